"""The strategies of [D] section 5 on network (11) in eager PyTorch, one run at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear, softplus

SIZE, RATE = 64, 0.3
HARD, SOFT = 50.0, 5.0
SCORES_MEAN, SCORES_STD, ROOTS_STD = -0.2, 0.1, 0.2
LOTTERY_ROUNDS, LOTTERY_FRACTION = 10, 0.2
AGNOSTIC_DRAWS, AGNOSTIC_WEIGHTS = 20, 10
PERCENTILES = torch.arange(1, 11) / 10

Leaves = list[Tensor]
"""One 64 x 64 matrix a layer."""

Step = Callable[[Leaves, Tensor, Tensor], None]
"""One step `(leaves, x, signs)` of gradient descent, in place."""


# One step --------------------------------------------------------------------------------------------


class TwoTemperature(torch.autograd.Function):
    """`sigma(hard w)` with the derivative of `sigma(soft w)`."""

    @staticmethod
    def forward(context: Any, scores: Tensor) -> Tensor:
        """The sharp sigmoid."""
        context.save_for_backward(scores)
        return torch.sigmoid(HARD * scores)

    @staticmethod
    def backward(context: Any, cotangent: Tensor) -> Tensor:
        """The slope of the soft one."""
        soft = torch.sigmoid(SOFT * context.saved_tensors[0])
        return torch.ops.aten.sigmoid_backward(cotangent, soft).mul_(SOFT)


def square(roots: Tensor) -> Tensor:
    """`w = u^2`; unlike `torch.square` it has a derivative of one kernel less."""
    return roots * roots


def descend(weights: Callable[[Tensor], Tensor], leaves: Leaves, x: Tensor, signs: Tensor) -> None:
    """One step along the gradient of the loss, in place; `weights` makes a layer's of a leaf."""
    for leaf in leaves:
        x = torch.tanh(linear(x, weights(leaf)))
    loss = (softplus(x.sum(1)) * signs).mean()
    loss.backward()
    with torch.no_grad():
        for leaf in leaves:
            assert leaf.grad is not None
            leaf.sub_(leaf.grad, alpha=RATE)
            leaf.grad = None


descend_squares = partial(descend, square)


@torch.no_grad()
def descend_by_hand(leaves: Leaves, x: Tensor, signs: Tensor) -> None:
    """`descend` for weights `u^2`, its gradient written out instead of recorded."""
    first, second = leaves
    weights = second * second
    hidden = linear(x, first * first).tanh_()
    outputs = linear(hidden, weights).tanh_()
    slope = torch.sigmoid(outputs.sum(1)).mul_(signs).div_(len(x))
    back = torch.ops.aten.tanh_backward(slope[:, None].expand_as(outputs), outputs)
    gradient = back.T @ hidden
    back = torch.ops.aten.tanh_backward(back @ weights, hidden)
    second.sub_(gradient.mul_(second), alpha=2 * RATE)
    first.sub_((back.T @ x).mul_(first), alpha=2 * RATE)


# One run ---------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """What a run trains on, and where its randomness comes from.

    Attributes:
      x: training examples, one a row.
      signs: `1 - 2y` of each.
      steps: of a training.
      rows: the rows of a batch, a fresh one every time.
      normal: `(mean, std, shape) -> numbers`.
    """

    x: Tensor
    signs: Tensor
    steps: int
    rows: Callable[[], Tensor]
    normal: Callable[[float, float, tuple[int, ...]], Tensor]

    def draw(self, mean: float, std: float) -> Leaves:
        """Random leaves."""
        return [self.normal(mean, std, (SIZE, SIZE)) for _ in range(2)]

    def train(self, step: Step, start: Leaves) -> Leaves:
        """The leaves after all steps."""
        leaves = [leaf.clone().requires_grad_() for leaf in start]
        for _ in range(self.steps):
            rows = self.rows()
            step(leaves, self.x.index_select(0, rows), self.signs.index_select(0, rows))
        return [leaf.detach() for leaf in leaves]

    @torch.inference_mode()
    def objective(self, weights: Leaves) -> float:
        """F on all training examples."""
        x = self.x
        for leaf in weights:
            x = linear(x, leaf).tanh_()
        return float((softplus(x.sum(1)) * self.signs).mean())


class Network(NamedTuple):
    """What a stage finds: weights, the weights that they were trained from, and F of all that it tried."""

    weights: Leaves
    start: Leaves
    tried: list[float]


# Stages: (run, what was found before) -> Network -------------------------------------------------------

Stage = Callable[[Run, Any], Network]


def dense(run: Run, before: None, step: Step = descend_squares) -> Network:
    """Weights `u^2`, all of them."""
    roots = run.draw(0.0, ROOTS_STD)
    return Network([square(leaf) for leaf in run.train(step, roots)], roots, [])


def binary(run: Run, before: None) -> Network:
    """Algorithm 1."""
    scores = run.train(partial(descend, TwoTemperature.apply), run.draw(SCORES_MEAN, SCORES_STD))
    return Network([(leaf > 0).float() for leaf in scores], [], [])


def retrain(run: Run, roots: Leaves) -> Leaves:
    """Weights `u^2` from a start that is 0 where there is no connection: it has no gradient, and stays 0."""
    return [square(leaf) for leaf in run.train(descend_squares, roots)]


def warm(run: Run, before: Network) -> Network:
    """The weights of an architecture, from 1."""
    return Network(retrain(run, before.weights), [], [])


def cold(run: Run, before: Network) -> Network:
    """The weights of an architecture, from fresh ones."""
    fresh = run.draw(0.0, ROOTS_STD)
    roots = [root * mask for root, mask in zip(fresh, before.weights, strict=True)]
    return Network(retrain(run, roots), [], [])


def lottery(run: Run, before: Network) -> Network:
    """Prune, rewind and train, time and again; the best network of all."""
    weights = before.weights
    best, tried = weights, [run.objective(weights)]
    left = 2 * SIZE * SIZE
    for _ in range(LOTTERY_ROUNDS):
        left -= round(LOTTERY_FRACTION * left)
        kept = torch.cat([leaf.flatten() for leaf in weights]).topk(left, sorted=False).indices
        masks = torch.zeros(2 * SIZE * SIZE).index_fill_(0, kept, 1.0).view(2, SIZE, SIZE)
        weights = retrain(run, [root * mask for root, mask in zip(before.start, masks, strict=True)])
        tried.append(run.objective(weights))
        if tried[-1] < min(tried[:-1]):
            best = weights
    return Network(best, [], tried)


def threshold(run: Run, before: Network) -> Network:
    """The best of the architectures of the weights above a percentile."""
    candidates = architectures(before.weights)
    tried = [run.objective(masks) for masks in candidates]
    return Network(candidates[tried.index(min(tried))], [], tried)


def architectures(weights: Leaves) -> list[Leaves]:
    """The connections above each percentile of all weights together."""
    thresholds = torch.quantile(torch.cat([leaf.flatten() for leaf in weights]), PERCENTILES)
    return [[(leaf > xi).float() for leaf in weights] for xi in thresholds]


def agnostic(run: Run, before: None) -> Network:
    """The best of many random architectures, each with the best of some shared weights."""
    shared = run.normal(0.0, 1.0, (AGNOSTIC_WEIGHTS,)).tolist()
    best, tried = None, []
    for _ in range(AGNOSTIC_DRAWS):
        for masks in architectures([square(leaf) for leaf in run.draw(0.0, 1.0)]):
            least = min(run.objective([weight * mask for mask in masks]) for weight in shared)
            if best is None or least < min(tried):
                best = masks
            tried.append(least)
    assert best is not None
    return Network(best, [], tried)


def random(run: Run, before: None) -> Network:
    """Random weights, untrained."""
    return Network([square(leaf) for leaf in run.draw(0.0, 1.0)], [], [])


def dense_by_hand(run: Run, before: None) -> Network:
    """`dense` without autograd."""
    return dense(run, before, descend_by_hand)


STRATEGIES: dict[str, tuple[Stage, ...]] = {
    "real": (dense,),
    "real->bin": (dense, threshold),
    "bin": (binary,),
    "bin->real warm": (binary, warm),
    "bin->real cold": (binary, cold),
    "lottery": (dense, lottery),
    "lottery->bin": (dense, lottery, threshold),
    "agnostic": (agnostic,),
    "random->bin": (random, threshold),
}


def compare(strategies: dict[str, tuple[Stage, ...]], run: Run) -> dict[str, Network]:
    """What each strategy finds; beginnings that they share are run once."""
    done: dict[tuple[Stage, ...], Network] = {}
    for stages in strategies.values():
        network = None
        for index, stage in enumerate(stages):
            shared = stages[: index + 1]
            if shared not in done:
                done[shared] = stage(run, network)
            network = done[shared]
    return {name: done[stages] for name, stages in strategies.items()}

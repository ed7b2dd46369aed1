"""Algorithm A.1 of [A]: scores and weights descend together, until the mask has a given density."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import (
    ArgumentError,
    check_choice,
    check_flag,
    check_one_number,
    check_one_strength,
)
from jaxarch._internal.trees import PyTree, Where, map_selected, matrices, select, select_floating
from jaxarch.masks import apply_mask, check_temperatures, density, hard_mask, init_scores, penalty, soft_mask
from jaxarch.masks._units import Units, UnitsLike
from jaxarch.optim import stop_at
from jaxarch.optim._masked_leaves import check_optimizer
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.run._training_info import TrainingInfo
from jaxarch.search._units import check_counts, check_units, needs_of, units_of
from jaxarch.search._within import WITHIN_A_MASK, mask_before, within
from jaxarch.transforms._densities import Densities, check_densities, layers_emptied, with_densities

SCORES_RATE, WEIGHTS_RATE = 1.1, 0.1
"""Learning rates of the default optimizers, plain gradient descent: alpha and beta of (15) and (16)."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Targets, temperatures, the penalty with its sign, and the start of the scores."""

    targets: tuple[float, ...]
    hard: ArrayLike
    soft: ArrayLike
    strength: ArrayLike
    sign: float
    factor: bool
    std: ArrayLike
    where: Where
    units: tuple[str, ...] | Units


class Fixed(NamedTuple):
    """Fixed parts of the state: the mask that the weights had before, and the unit of each score."""

    mask: PyTree
    units: Units


@method("[A] appendix A.1", densities=0.5)
def architecture_pruning(
    densities: Densities,
    hard: ArrayLike = 100.0,
    soft: ArrayLike = 10.0,
    *,
    strength: ArrayLike = 3e-5,
    penalty: Literal["corrected", "as printed"] = "corrected",
    factor: bool = False,
    std: ArrayLike = 0.03,
    where: Where = matrices,
    units: UnitsLike = None,
    scores_optimizer: optax.GradientTransformation | None = None,
    weights_optimizer: optax.GradientTransformation | None = None,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Prune a network while it is trained, until its architecture has a given size ([A] appendix A.1).

    Scores w and weights theta descend together on `L(sigma(hard w) o theta)`, both under a penalty. The
    scores descend along the two-temperature gradient (15), v' = sigma(soft w):

        w     <- w - alpha (grad_v L o v' o (1 - v') + 2 gamma (1 + w)),
        theta <- theta - beta (sigma(hard w) o grad L + 2 gamma theta),

    from `w ~ |N(0, std)|`: every connection is there at first, and the penalty pushes scores towards -1. When
    the share of positive scores first falls to a target, the scores are recorded. At the last target they are
    frozen, and the weights train under that mask for the remaining steps. The mask of a target d has exactly
    `round(d D)` of the D connections: those with the largest scores recorded for it.

    Args:
      densities: targets in (0, 1]. Several targets are all reached in one training, and the search returns
        the smallest. With none, `()`, nothing is frozen, and the mask is `1[w > 0]` after the last step ([A]
        section 2.3).
      hard: t_l, the inverse temperature of the mask, positive. May be traced, like all numbers but densities.
      soft: t_s, the inverse temperature of the gradient, positive, at most `hard`. [A] has 100 and 10.
      strength: gamma, at least 0, of the penalty on masked leaves: a sum over connections, so it scales with
        the size of the network. The larger it is, the sooner the targets are reached.
      penalty: `corrected`, `gamma sum ((1 + w)^2 + theta^2)`, as (18) has it. [A] (17) prints its gradient
        with the other sign: `as printed` pushes scores away from -1 and weights away from 0, and nothing is
        pruned. It is there to show that.
      factor: whether the gradient carries the factor `soft`, as in (7), or not, as in (15).
      std: of the initial scores.
      where: the leaves that are masked, by path. The others are trained as well, without a penalty.
      units: connections to keep or remove together (see `masks.keep`): `neurons`, `channels` or `heads` of
        the problem's model, or several of them, `("heads", "neurons")`; `Groups.units`; `(4, 4)`; `"2:4"`.
        Each unit has one score, and a connection has the product of the masks of its units. Targets are
        shares of units, and the penalty is a sum over these scores and over the weights of the leaves of
        `where`. For N:M the target is N/M: it determines when the scores are frozen, and the mask has the N
        largest of every M.
      scores_optimizer: any optax transformation; by default gradient descent at learning rate 1.1.
      weights_optimizer: any optax transformation; by default gradient descent at learning rate 0.1.
      **descent: `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search. It finds architecture and weights; [A] transfers the architecture alone,
      `chain(..., retrain("cold", nonnegative=False))`. Its `info` has `densities` and `reached_at`, the step
      or -1, one entry per target from the largest on. It also has `lowest_density`, the smallest share of
      positive scores after any step. `at_density` selects the architecture of one of the targets.

    Raises:
      ArgumentError: a density outside (0, 1]; temperatures that are not positive, soft > hard; a strength
        that is negative or not finite; an unknown penalty; units that are not understood, or that the model
        does not have.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> search = jaxarch.search.architecture_pruning((0.5, 0.25), strength=0.1)
      >>> network = search(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), network.info["densities"], network.info["reached_at"])
      0.25 [0.5  0.25] [1 1]
    """
    targets = () if isinstance(densities, tuple) and not densities else check_densities(densities)
    together = check_units(units)
    check_counts(together, targets)
    check_one_number("hard", hard)
    check_one_number("soft", soft)
    check_temperatures(hard, soft)
    check_one_strength("strength", strength)
    check_one_strength("std", std)
    check_flag("factor", factor)
    check_choice("penalty", penalty, ("corrected", "as printed"))
    if "optimizer" in descent:
        raise ArgumentError(
            "optimizer: architecture_pruning has two; pass scores_optimizer and weights_optimizer instead"
        )
    of_scores = optax.sgd(SCORES_RATE) if scores_optimizer is None else scores_optimizer
    of_weights = optax.sgd(WEIGHTS_RATE) if weights_optimizer is None else weights_optimizer
    for name, optimizer in {"scores_optimizer": of_scores, "weights_optimizer": of_weights}.items():
        check_optimizer(name, optimizer, "optax.sgd(0.1)")
    optimizers = {
        "scores": optax.chain(of_scores, stop_at(targets[-1])) if targets else of_scores,
        "weights": of_weights,
    }
    sign = 1.0 if penalty == "corrected" else -1.0
    return Training(
        "architecture pruning",
        _init,
        _params,
        _network,
        Settings(targets, hard, soft, strength, sign, factor, std, where, together),
        own_descent(descent, optimizers),
        penalty=_penalty,
        after_step=_after_step,
        remarks=_remarks,
        remedy="the mask saturates the network: lower `hard`, or start from smaller weights",
        needs=needs_of(together, WITHIN_A_MASK),
    )


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    params_key, scores_key = jax.random.split(key)
    params, model = problem.start(params_key) if network is None else (network.params, network.state)
    selected = select_floating(params, settings.where)
    units = units_of(settings.units, problem, params, model, selected)
    scores = map_selected(jnp.abs, init_scores(scores_key, units.score(selected), 0.0, settings.std))
    for target in settings.targets:
        units.counts(scores, target)
    memory = {"lowest_density": jnp.ones(())}
    if settings.targets:
        memory["reached_at"] = jnp.full(len(settings.targets), -1, jnp.int32)
        # The last target needs no copy: its scores are the trainable ones, and their optimizer holds them.
        before = len(settings.targets) - 1
        memory["scores"] = map_selected(lambda leaf: jnp.broadcast_to(leaf, (before, *leaf.shape)), scores)
    fixed = Fixed(mask_before(network), units)
    return TrainState({"scores": scores, "weights": params}, fixed, model, memory)


def _params(settings: Settings, state: TrainState) -> PyTree:
    weights, (before, units) = state.trainable["weights"], state.fixed
    centred = units.centred(state.trainable["scores"])
    soft = soft_mask(centred, settings.hard, settings.soft, factor=settings.factor)
    return apply_mask(within(units.spread(soft, weights), before), weights)


def _penalty(settings: Settings, state: TrainState) -> Array:
    scores, weights = state.trainable["scores"], state.trainable["weights"]
    masked = state.fixed.units.spread(scores, weights)
    selected = select(weights, settings.where)
    of_units = map_selected(lambda leaf, score: None if score is None else leaf, selected, masked)
    return settings.sign * penalty(scores, of_units, settings.strength)


def _after_step(settings: Settings, state: TrainState) -> PyTree:
    memory, scores = state.memory, state.trainable["scores"]
    share = density(hard_mask(scores))
    memory = memory | {"lowest_density": jnp.minimum(memory["lowest_density"], share)}
    if not settings.targets:
        return memory
    hits = (memory["reached_at"] < 0) & (share <= jnp.asarray(settings.targets, share.dtype))
    memory["reached_at"] = jnp.where(hits, state.step, memory["reached_at"])
    if len(settings.targets) == 1:
        return memory

    def keep() -> PyTree:
        def kept(leaf: Array, before: Array) -> Array:
            return jnp.where(hits[:-1].reshape(-1, *[1] * leaf.ndim), leaf, before)

        return map_selected(kept, scores, memory["scores"])

    return memory | {"scores": jax.lax.cond(hits[:-1].any(), keep, lambda: memory["scores"])}


def _network(settings: Settings, state: TrainState) -> Network:
    memory, scores, weights = state.memory, state.trainable["scores"], state.trainable["weights"]
    before, units = state.fixed
    if not settings.targets:
        mask_found = within(units.spread(units.hard(scores), weights), before)
        return Network(apply_mask(mask_found, weights), mask_found, state.model, info=TrainingInfo(memory))

    def mask(index: int, target: float) -> PyTree:
        def at_its_step(leaf: Array, kept: Array) -> Array:
            return jnp.where(memory["reached_at"][index] >= 0, kept[index], leaf)

        is_last = index == len(settings.targets) - 1
        chosen = scores if is_last else map_selected(at_its_step, scores, memory["scores"])
        kept = units.largest(chosen, units.counts(scores, target))
        return within(units.spread(kept, weights), before)

    masks = {target: mask(index, target) for index, target in enumerate(settings.targets)}
    info = {name: memory[name] for name in ("reached_at", "lowest_density")}
    return with_densities(masks, weights, state.model, info | {"densities": jnp.asarray(settings.targets)})


def _remarks(network: Network) -> Iterable[str]:
    """Return lines about targets that were not reached, and about layers without a connection."""
    yield from _unreached(network)
    yield from layers_emptied(network)


def _unreached(network: Network) -> Iterable[str]:
    """Yield a line per target that the share of positive scores never reached in some runs."""
    if "reached_at" not in network.info:
        return
    missed = np.asarray(network.info["reached_at"]) < 0
    for target, runs in zip(np.asarray(network.info["densities"])[0], missed.T, strict=True):
        if runs.any():
            lowest = np.asarray(network.info["lowest_density"])[runs]
            yield (
                f"density {target:.4g} was not reached in {runs.sum()} of {len(runs)} runs, which reached "
                f"only {lowest.min():.3g} to {lowest.max():.3g}: their masks have the largest scores of the "
                "last step; take more steps, a larger strength or a higher rate for the scores"
            )

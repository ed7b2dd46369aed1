"""MaskLLM: a distribution over the N:M patterns of each group of fixed weights, learned with Gumbel noise."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, Literal, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, check_one_positive, check_one_strength, is_choice, shown
from jaxarch._internal.trees import (
    PyTree,
    Where,
    map_selected,
    matrices,
    named_leaves,
    placed,
    select_floating,
)
from jaxarch.masks import apply_mask
from jaxarch.masks._units import NOfM, UnitsLike
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import Start
from jaxarch.run._training import Training, TrainState
from jaxarch.run._training_info import TrainingInfo
from jaxarch.search._fixed_weights import Function
from jaxarch.search._scored import total
from jaxarch.search._units import check_pattern, pattern_of
from jaxarch.search._within import WITHIN_A_MASK, mask_before, within
from jaxarch.transforms._densities import layers_emptied

Prior = Literal["magnitude"] | Function | None
Range = tuple[ArrayLike, ArrayLike]

MOST = 1000
"""Largest number of patterns of a group; with more, logits take dozens of times the weights' memory."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The pattern, the first and the last scale and temperature, the prior, the penalty, and the leaves."""

    units: NOfM
    scale: Range
    temperature: Range
    std: ArrayLike
    prior: Prior
    prior_strength: ArrayLike
    strength: ArrayLike
    where: Where


class Fixed(NamedTuple):
    """Fixed parts of the state.

    Attributes:
      weights: the weights.
      mask: the mask of an earlier stage; `None` without.
      units: the pattern along the model's axes.
      key: the key of all noise.
      steps: the number of steps.
      first: `()` if no stage came before.
    """

    weights: PyTree
    mask: PyTree
    units: NOfM
    key: Array
    steps: Array
    first: tuple[()] | None


@method("G. Fang et al., 2024", units="1:2")
def maskllm(
    units: UnitsLike = "2:4",
    *,
    scale: Range = (100.0, 500.0),
    temperature: Range = (4.0, 0.05),
    std: ArrayLike = 0.01,
    prior: Prior = "magnitude",
    prior_strength: ArrayLike = 3.0,
    strength: ArrayLike = 1e-5,
    where: Where = matrices,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Learn which N of every M weights to keep, as a distribution over patterns, and train no weight.

    Every M consecutive inputs of an output form a group, with `C(M, N)` patterns P_i, rows of N ones and
    M - N zeros. Each group has a logit pi_i for each pattern. At a step, with Gumbel noise g_i drawn anew,
    the network computes with `m o w`, w fixed,

        m = sum_i y_i P_i,    y = softmax((kappa_t pi + g) / tau_t).

    The N ones of each pattern make m sum to N in each group. The logits descend on

        L(m o w) - lambda (1 - t / T) sum (m o w)^2,

    whose second term keeps large the weights that remain, so that their gradients do not vanish. The scale
    kappa_t and the temperature tau_t change linearly with the step t of T. The logits begin as normal
    numbers with a standard deviation of sigma. A prior mask m_0 adds `alpha s (P_i m_0 - N^2 / M)` to pi_i, s
    the standard deviation of the leaf's logits. The result has the likeliest pattern of each group. G. Fang
    et al., MaskLLM: learnable semi-structured sparsity for large language models, 2024. The formulas are
    those of the authors' code, `learnable_sparsity/differentiable_mask.py` and `pretrain_maskllm.py` of
    github.com/NVlabs/MaskLLM. The defaults are those of its script for Llama 2 7B, which trains 2,000 steps
    by AdamW at a learning rate of 5e-4.

    Departures from the authors' code: N:M other than 2:4 and 1:4 are possible. The prior's overlap is
    centered by its mean over all patterns, N^2 / M, where their code for 2:4 has 1, which is the same. Their
    optional hard samples, one pattern a group with a straight-through gradient, are left out. Weight decay is
    the optimizer's; theirs is .1.

    Logits are float32, `C(M, N) / M` for each weight: 1.5 for 2:4, 1 for 1:4, 8.75 for 4:8. Adam's moments
    take twice as much again, and so does a step's noise with its probabilities.

    Args:
      units: `"2:4"`, any `"N:M"` with at most 1000 patterns, or `masks.NOfM(n, m, axis=...)`. M divides the
        inputs of each masked leaf.
      scale: the first and the last kappa, positive. May be traced. A larger scale lets small learning rates
        decide more.
      temperature: the first and the last tau, positive. May be traced.
      std: sigma, positive. May be traced.
      prior: `magnitude` for the mask of the N largest `|w|`; a function `(key, selected) -> scores`, in the
        structure of the masked leaves, whose N largest of every M make the mask: `saliency.wanda`'s scores or
        the mask of `jaxarch.sparsegpt`, for instance; `None` for no prior.
      prior_strength: alpha, at least 0. At 3, noise of the start still outweighs the prior in some groups.
        May be traced.
      strength: lambda, at least 0. May be traced.
      where: the leaves that are masked, by path. Leaves that are not masked keep their values, too.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search; after another stage, `dense` for instance, one over its weights and within its mask. Its mask
      keeps exactly N of every M, or fewer where an earlier mask has removed some. Its `Start` has the
      weights, if no stage came before. Its `info` has the `logits`, of shape (..., groups, `C(M, N)`), and
      the `loss` with the second term.

    Raises:
      ArgumentError: units other than N:M, one with more than 1000 patterns, or an M that does not divide the
        inputs of a masked leaf; numbers out of range; an unknown prior, or one of other shapes.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.adam(0.01), steps=2)
      >>> network = jaxarch.search.maskllm("2:4")(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), network.info["logits"]["W2_1"].shape)
      0.5 (8, 1, 6)
    """
    pattern = check_pattern(units)
    # There are at least M patterns, and the number of patterns of a large M is slow to compute.
    if pattern.m > MOST or math.comb(pattern.m, pattern.n) > MOST:
        raise ArgumentError(
            f"units: {pattern.n}:{pattern.m} has more than {MOST} patterns, and a group needs a logit for "
            "each; give a smaller M"
        )
    for name, numbers in (("scale", scale), ("temperature", temperature)):
        _check_range(name, numbers)
    check_one_positive("std", std)
    for name, number in (("prior_strength", prior_strength), ("strength", strength)):
        check_one_strength(name, number)
    if prior is not None and not callable(prior) and not is_choice(prior, ("magnitude",)):
        raise ArgumentError(f"prior: expected 'magnitude', a function or None, got {shown(prior)}")
    return Training(
        "MaskLLM",
        _init,
        _params,
        _network,
        Settings(pattern, _pair(scale), _pair(temperature), std, prior, prior_strength, strength, where),
        own_descent(descent),
        penalty=_penalty,
        remedy="keep more of every M, or start from other weights",
        remarks=layers_emptied,
        needs=WITHIN_A_MASK,
    )


def _check_range(name: str, numbers: Any) -> None:
    if not isinstance(numbers, (tuple, list)) or len(numbers) != 2:
        raise ArgumentError(f"{name}: expected two numbers, the first and the last, got {shown(numbers)}")
    for number in numbers:
        check_one_positive(name, number)


def _pair(numbers: Range) -> Range:
    first, last = numbers
    return first, last


def patterns(n: int, m: int) -> np.ndarray:
    """Return all patterns of N ones among M, one a row, in the order of `itertools.combinations`."""
    made = np.zeros((math.comb(m, n), m), np.float32)
    for row, places in zip(made, itertools.combinations(range(m), n), strict=True):
        row[list(places)] = 1
    return made


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    params_key, logits_key, prior_key, noise_key = jax.random.split(key, 4)
    params, model = problem.start(params_key) if network is None else (network.params, network.state)
    selected = select_floating(params, settings.where)
    units = pattern_of(settings.units, problem, params, model, selected)
    made = patterns(units.n, units.m)

    def logits_of(rows: Array) -> Array:
        return jnp.broadcast_to(jnp.asarray(settings.std, jnp.float32), (*rows.shape[:-1], len(made)))

    spread = map_selected(logits_of, units.rows(selected))
    logits = map_selected(jnp.multiply, spread, _drawn(jax.random.normal, logits_key, spread))
    if settings.prior is not None:
        prior = units.rows(units.largest(_prior_scores(settings.prior, prior_key, selected), None))
        logits = map_selected(lambda leaf, m: _with_prior(settings, units, leaf, m), logits, prior)
    first = () if network is None else None
    steps = jnp.asarray(problem.descent.steps, jnp.float32)
    return TrainState(logits, Fixed(params, mask_before(network), units, noise_key, steps, first), model)


def _prior_scores(prior: Prior, key: Array, selected: PyTree) -> PyTree:
    if not callable(prior):
        return map_selected(jnp.abs, selected)
    given, found = named_leaves(prior(key, selected)), {}
    for path, leaf in named_leaves(selected).items():
        shape = jnp.shape(given[path]) if path in given else None
        if shape != leaf.shape:
            raise ArgumentError(
                f"prior: expected scores of shape {leaf.shape} for {path!r}, got {shape}; return one for "
                "each connection"
            )
        found[path] = jnp.asarray(given[path])
    return placed(found, selected)


def _with_prior(settings: Settings, units: NOfM, logits: Array, mask: Array) -> Array:
    made = patterns(units.n, units.m)
    overlap = jnp.matmul(mask.astype(jnp.float32), made.T, precision="highest") - units.n**2 / units.m
    alpha = jnp.asarray(settings.prior_strength, jnp.float32)
    return logits + alpha * jnp.std(logits, ddof=1) * overlap


def _drawn(draw: Any, key: Array, shapes: PyTree) -> PyTree:
    """Draw float32 numbers in the shapes of some leaves."""
    leaves, treedef = jax.tree.flatten(shapes)
    keys = jax.random.split(key, len(leaves))
    made = [draw(one, leaf.shape, jnp.float32) for one, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(treedef, made)


def _soft_mask(settings: Settings, state: TrainState) -> PyTree:
    """Return the expected pattern of each group under the noise of a step, within an earlier mask."""
    fixed = state.fixed
    done = _done(state)
    kappa, tau = _at(settings.scale, done), _at(settings.temperature, done)
    made = patterns(fixed.units.n, fixed.units.m)

    def expected(leaf: Array, noise: Array) -> Array:
        return jnp.matmul(jax.nn.softmax((kappa * leaf + noise) / tau), made, precision="highest")

    noise = _drawn(jax.random.gumbel, jax.random.fold_in(fixed.key, state.step), state.trainable)
    rows = map_selected(expected, state.trainable, noise)
    return within(_spread(settings, fixed, rows), fixed.mask)


def _done(state: TrainState) -> Array:
    """Return the share of the steps that are taken."""
    return jnp.asarray(state.step, jnp.float32) / state.fixed.steps


def _at(numbers: Range, done: Array) -> Array:
    first, last = (jnp.asarray(number, jnp.float32) for number in numbers)
    return first + (last - first) * done


def _spread(settings: Settings, fixed: Fixed, rows: PyTree) -> PyTree:
    return fixed.units.of_rows(rows, select_floating(fixed.weights, settings.where))


def _params(settings: Settings, state: TrainState) -> PyTree:
    return apply_mask(_soft_mask(settings, state), state.fixed.weights)


def _penalty(settings: Settings, state: TrainState) -> Array:
    def squared(m: Array, w: Array) -> Array:
        return jnp.square(m.astype(jnp.float32) * w.astype(jnp.float32))

    remaining = map_selected(squared, _soft_mask(settings, state), state.fixed.weights)
    left = 1 - _done(state)
    return -jnp.asarray(settings.strength, jnp.float32) * left * total(remaining)


def _network(settings: Settings, state: TrainState) -> Network:
    fixed = state.fixed
    made = patterns(fixed.units.n, fixed.units.m)
    rows = map_selected(lambda leaf: jnp.asarray(made > 0)[jnp.argmax(leaf, -1)], state.trainable)
    mask = within(_spread(settings, fixed, rows), fixed.mask)
    records = () if fixed.first is None else (Start(fixed.weights),)
    info = TrainingInfo({"logits": state.trainable})
    return Network(apply_mask(mask, fixed.weights), mask, state.model, records=records, info=info)

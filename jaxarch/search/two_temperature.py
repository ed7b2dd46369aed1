"""Algorithm 1 of [D]: a mask learned by gradient descent on its scores, the weights held fixed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple, Unpack

import jax
from jax import Array
from jax.typing import ArrayLike

from jaxarch.descent import DescentChanges, own_descent
from jaxarch.errors import (
    ArgumentError,
    check_flag,
    check_one_finite,
    check_one_number,
    check_one_strength,
    shown,
)
from jaxarch.masks import (
    apply_mask,
    check_temperatures,
    hard_mask,
    init_scores,
    soft_mask,
    weight_free,
)
from jaxarch.network import Network
from jaxarch.problem import Problem
from jaxarch.running.methods import method
from jaxarch.running.stage import Needs
from jaxarch.running.training import Training, TrainState
from jaxarch.search.within import mask_before, within
from jaxarch.trees import PyTree, Where, matrices, merge, select

Weights = Literal["ones", "initial"] | Callable[[Array, PyTree], PyTree]

NEEDS = Needs("optional", ("params",), forgets=("connections", "neurons"))


@dataclasses.dataclass(frozen=True)
class Settings:
    """Temperatures, the fixed weights, and the distribution of the initial scores."""

    hard: ArrayLike
    soft: ArrayLike
    weights: Weights
    where: Where
    mean: ArrayLike
    std: ArrayLike
    units: Literal["1/hard", "absolute"]
    factor: bool


class Fixed(NamedTuple):
    """What does not move: the weights, and the mask that they had before."""

    weights: PyTree
    mask: PyTree


@method("[D] Algorithm 1")
def two_temperature(
    hard: ArrayLike = 50.0,
    soft: ArrayLike = 5.0,
    *,
    weights: Weights = "ones",
    where: Where = matrices,
    mean: ArrayLike = -10.0,
    std: ArrayLike = 5.0,
    units: Literal["1/hard", "absolute"] = "1/hard",
    factor: bool = True,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Learn which connections to keep, and nothing else ([D] Algorithm 1).

    The network computes with `sigma(hard w) o theta`, theta fixed; the scores w descend along
    `grad_v f(v) o dsigma_soft(w)` ([D] eq. 5). What is found is the network `1[w > 0] o theta`: with
    `weights="ones"` it has no weights at all.

    Args:
      hard: inverse temperature of the forward pass, positive. May be traced, like all numbers here.
      soft: inverse temperature of the gradient, positive, at most `hard`. [D] uses 50 and 5.
      weights: theta. `ones` for weight-free networks, `initial` for the problem's initial parameters, or a
        function `(key, selected) -> values` in the structure of the masked leaves.
      where: which leaves are masked, by path: a predicate on (path, leaf) or glob patterns. By default
        kernels but neither biases nor norm scales. Leaves that are not masked keep their initial values.
      mean: mean of the initial scores.
      std: their standard deviation. The default is N(-.2, .1) at `hard=50`; centred on 0, the initial mask of
        the network of [D] saturates it on non-negative inputs, and no gradient is left.
      units: whether `mean` and `std` are in units of `1/hard` (the distribution of the initial *mask* is then
        the same at every temperature) or absolute.
      factor: whether the gradient carries the factor `soft` (see `masks.two_temperature`).
      **descent: `optimizer`, `steps`, `batch_size`, `sampling` in place of the problem's.

    Returns:
      A search; after another stage, one over the weights that were found. Its `info` has `scores`, the final
      scores.

    Raises:
      ArgumentError: temperatures that are not positive, soft > hard, an unknown `weights` or `units`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.two_temperature()(jax.random.key(0), problem)
      >>> mask, scores = network.mask["W2_1"], network.info["scores"]["W2_1"]
      >>> print((mask == (scores > 0)).all(), (network.params["W2_1"] == mask).all())  # its weights are all 1
      True True
    """
    check_one_number("hard", hard)
    check_one_number("soft", soft)
    check_temperatures(hard, soft)
    check_one_finite("mean", mean)
    check_one_strength("std", std)
    check_flag("factor", factor)
    if not callable(weights) and weights not in ("ones", "initial"):
        raise ArgumentError(f"weights: expected 'ones', 'initial' or a function, got {shown(weights)}")
    if units not in ("1/hard", "absolute"):
        raise ArgumentError(f"units: expected '1/hard' or 'absolute', got {shown(units)}")
    return Training(
        "two_temperature",
        _init,
        _params,
        _network,
        Settings(hard, soft, weights, where, mean, std, units, factor),
        own_descent(descent),
        remedy="the initial mask saturates the network or keeps too little, or the weights under it are "
        "0: move `mean` (in units of 1/hard) away from 0, lower `std`, or choose other leaves with `where`",
        needs=NEEDS,
        removes=("connections",),
    )


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    params_key, scores_key, weights_key = jax.random.split(key, 3)
    params, model = problem.init(params_key) if network is None else (network.params, network.state)
    selected = select(params, settings.where)
    unit = settings.hard if settings.units == "1/hard" else None
    scores = init_scores(scores_key, selected, settings.mean, settings.std, unit)
    if callable(settings.weights):
        params = merge(settings.weights(weights_key, selected), params)
    return TrainState(scores, Fixed(params, mask_before(network)), model)


def _params(settings: Settings, state: TrainState) -> PyTree:
    soft = soft_mask(state.trainable, settings.hard, settings.soft, factor=settings.factor)
    return _masked(settings, within(soft, state.fixed.mask), state)


def _network(settings: Settings, state: TrainState) -> Network:
    mask = within(hard_mask(state.trainable), state.fixed.mask)
    return Network(_masked(settings, mask, state), mask, state.model, info={"scores": state.trainable})


def _masked(settings: Settings, mask: PyTree, state: TrainState) -> PyTree:
    """The fixed weights under a mask, or the mask alone."""
    masked = weight_free if settings.weights == "ones" else apply_mask
    return masked(mask, state.fixed.weights)

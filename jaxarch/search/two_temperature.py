"""Algorithm 1 of [D]: a mask learned by gradient descent on its scores, the weights held fixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch.errors import ArgumentError
from jaxarch.masks import (
    apply_mask,
    check_temperatures,
    hard_mask,
    init_scores,
    soft_mask,
    weight_free,
)
from jaxarch.problem import Network, Problem
from jaxarch.running.training import Training, TrainState
from jaxarch.trees import PyTree, Where, matrices, merge, select

Weights = Literal["ones", "initial"] | Callable[[Array, PyTree], PyTree]


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
    optimizer: optax.GradientTransformation | None = None,
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
      optimizer: any optax transformation; by default the problem's.

    Returns:
      A search. The found `info` has `scores`, the final scores.

    Raises:
      ArgumentError: temperatures that are not positive, soft > hard, an unknown `weights` or `units`.
    """
    check_temperatures(hard, soft)
    if not callable(weights) and weights not in ("ones", "initial"):
        raise ArgumentError(f"weights: expected 'ones', 'initial' or a function, got {weights!r}")
    if units not in ("1/hard", "absolute"):
        raise ArgumentError(f"units: expected '1/hard' or 'absolute', got {units!r}")

    def init(key: Array, problem: Problem, network: Network | None) -> TrainState:
        params_key, scores_key, weights_key = jax.random.split(key, 3)
        params, state = problem.init(params_key) if network is None else (network.params, network.state)
        selected = select(params, where)
        scores = init_scores(scores_key, selected, mean, std, hard if units == "1/hard" else None)
        if callable(weights):
            params = merge(weights(weights_key, selected), params)
        return TrainState(scores, params, state)

    masked = weight_free if weights == "ones" else apply_mask

    def params(point: TrainState) -> PyTree:
        return masked(soft_mask(point.trainable, hard, soft, factor=factor), point.fixed)

    def network(point: TrainState) -> Network:
        mask = hard_mask(point.trainable)
        return Network(masked(mask, point.fixed), mask, point.state, {"scores": point.trainable})

    return Training(
        "two_temperature",
        init,
        params,
        network,
        optimizer,
        remedy="the initial mask saturates the network or keeps too little, or the weights under it are "
        "0: move `mean` (in units of 1/hard) away from 0, lower `std`, or choose other leaves with `where`",
    )

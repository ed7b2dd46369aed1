"""Thresholding: the weight-free network of the largest weights."""

from __future__ import annotations

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, check_choice, shown
from jaxarch._internal.trees import PyTree, map_selected
from jaxarch.masks import apply_mask, percentile_thresholds, threshold_mask, weight_free
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import A_NETWORK, FunctionStage

PERCENTILES = tuple(range(10, 101, 10))
"""The percentiles of [D] eq. (13)."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The candidate percentiles, and the weights above the best threshold."""

    percentiles: tuple[float, ...]
    weights: Literal["ones", "found"]


@method("[D] eq. 13")
def threshold(
    percentiles: tuple[float, ...] = PERCENTILES, *, weights: Literal["ones", "found"] = "ones"
) -> FunctionStage:
    r"""Keep the weights above a threshold, as a weight-free network ([D] eq. 13).

    `w' = B_inf(w - xi*)`, `xi* = argmin F(B_inf(w - xi))` over the percentiles of all masked leaves together,
    F on the training rows. Missing connections, at weight 0, count for the percentiles, and do not come back
    at a negative threshold.

    Args:
      percentiles: candidates, in [0, 100]; at 100 no connection is left.
      weights: `ones` for the weight-free network that F is computed with; `found` to keep the weights above
        the threshold, as in the recursion that [D] prints for lottery tickets.

    Returns:
      A transform. Its `info` has `threshold` and `percentile`; `candidates`, F at each percentile; `ties`,
      how many other candidates reach the same F (the lowest percentile is then taken); and `constant`,
      whether the chosen network gives the same output on all training examples, which F alone does not show.
      A candidate whose F is NaN is never chosen.

    Raises:
      ArgumentError: percentiles outside [0, 100], or none; an unknown `weights`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> strategy = jaxarch.chain(jaxarch.search.dense(), jaxarch.threshold((25, 50)))
      >>> network = strategy(jax.random.key(0), problem)
      >>> print(network.info["candidates"].shape, (network.params["W2_1"] == network.mask["W2_1"]).all())
      (2,) True
    """
    check_choice("weights", weights, ("ones", "found"))
    check_percentiles(percentiles)
    return FunctionStage("threshold", _threshold, Settings(tuple(percentiles), weights), A_NETWORK)


def _threshold(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    values = map_selected(lambda m, leaf: leaf, network.mask, network.params)
    thresholds = percentile_thresholds(values, jnp.asarray(settings.percentiles))

    def binary(xi: ArrayLike) -> tuple[PyTree, PyTree]:
        above = threshold_mask(values, xi)
        mask = map_selected(jnp.logical_and, above, network.mask)
        return mask, weight_free(mask, network.params)

    def objective(xi: Array) -> Array:
        return problem.objective(binary(xi)[1], network.state)

    candidates = jax.lax.map(objective, thresholds)
    ranked = jnp.where(jnp.isnan(candidates), jnp.inf, candidates)
    best = jnp.argmin(ranked)
    mask, params = binary(thresholds[best])
    info = {
        "threshold": thresholds[best],
        "percentile": jnp.asarray(settings.percentiles, jnp.float32)[best],
        "candidates": candidates,
        "ties": jnp.sum(ranked == ranked[best]) - 1,
    }
    if problem.predict is not None:
        outputs = jax.tree.leaves(problem.outputs(params, network.state))
        info["constant"] = jnp.stack([jnp.all(leaf == leaf[:1]) for leaf in outputs]).all()
    if settings.weights == "found":
        params = apply_mask(mask, network.params)
    return network.replace(params=params, mask=mask, info=network.info | info)


def check_percentiles(percentiles: tuple[float, ...]) -> None:
    """Raise unless there are percentiles, all in [0, 100]."""
    try:
        numbers = np.asarray(percentiles)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    usable = numbers.ndim == 1 and numbers.dtype.kind in "iuf" and numbers.size
    if not usable or not ((numbers >= 0) & (numbers <= 100)).all():
        raise ArgumentError(f"percentiles: expected numbers in [0, 100], got {shown(percentiles)}")

"""What turns one found network into another: thresholding its weights, retraining its architecture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch.errors import ArgumentError
from jaxarch.masks import percentile_thresholds, threshold_mask, weight_free
from jaxarch.problem import Found, Problem
from jaxarch.training import Point, Training
from jaxarch.trees import PyTree, map_selected
from jaxarch.weights import fresh, square_roots, weight_training

PERCENTILES = tuple(range(10, 101, 10))
"""The percentiles of [D] eq. (13)."""


def threshold(percentiles: tuple[float, ...] = PERCENTILES) -> Callable[[Array, Problem, Found], Found]:
    r"""The weight-free network of the weights above a threshold ([D] eq. 13).

    `w' = B_inf(w - xi*)`, `xi* = argmin F(B_inf(w - xi))` over the percentiles of all masked leaves together,
    F on the training rows.

    Args:
      percentiles: candidates, in [0, 100]; at 100 no connection is left.

    Returns:
      A finish. Its `info` has `threshold` and `percentile`; `candidates`, F at each percentile; `ties`, how
      many other candidates reach the same F (the lowest percentile is then taken); and `constant`, whether
      the network chosen gives the same output on all training examples, which F alone does not show. A
      candidate whose F is NaN is never chosen.

    Raises:
      ArgumentError: percentiles outside [0, 100], or none.
    """
    if not percentiles or not all(0 <= p <= 100 for p in percentiles):
        raise ArgumentError(f"percentiles: expected numbers in [0, 100], got {percentiles}")

    def finish(key: Array, problem: Problem, found: Found) -> Found:
        values = map_selected(lambda m, leaf: leaf, found.mask, found.params)
        thresholds = percentile_thresholds(values, jnp.asarray(percentiles))

        def binary(xi: ArrayLike) -> tuple[PyTree, PyTree]:
            mask = threshold_mask(values, xi)
            return mask, weight_free(mask, found.params)

        def objective(xi: Array) -> Array:
            return problem.objective(binary(xi)[1], found.state)

        candidates = jax.lax.map(objective, thresholds)
        ranked = jnp.where(jnp.isnan(candidates), jnp.inf, candidates)
        best = jnp.argmin(ranked)
        mask, params = binary(thresholds[best])
        info = {
            "threshold": thresholds[best],
            "percentile": jnp.asarray(percentiles, jnp.float32)[best],
            "candidates": candidates,
            "ties": jnp.sum(ranked == ranked[best]) - 1,
        }
        if problem.predict is not None:
            outputs = jax.tree.leaves(problem.outputs(params, found.state))
            info["constant"] = jnp.stack([jnp.all(leaf == leaf[:1]) for leaf in outputs]).all()
        return Found(params, mask, found.state, info)

    finish.__name__ = "threshold"
    return finish


def retrain(
    start: Literal["warm", "cold"] = "cold",
    *,
    nonnegative: bool = True,
    std: ArrayLike = 0.2,
    optimizer: optax.GradientTransformation | None = None,
) -> Training:
    r"""Train weights on a found architecture: `argmin F(w o m)`, the mask m held fixed ([D] section 5).

    Args:
      start: `warm` from the found weights (after a weight-free search: from 1), `cold` from fresh ones.
      nonnegative: whether the masked leaves are `w = u^2`, u unconstrained ([D] footnote 11). A warm start
        then needs weights that are not negative; a run that has some is reported as failed at step 0.
      std: with `nonnegative`, a cold start draws `u ~ N(0, std)`, std the standard deviation. [D] draws from
        N(0, 1), where the network saturates and its gradient is exactly 0.
      optimizer: any optax transformation; by default the problem's.

    Returns:
      A finish. Leaves that are not masked are trained too, unconstrained, from the found values (warm) or the
      problem's initial ones (cold). A connection that is pruned stays exactly 0.

    Raises:
      ArgumentError: an unknown `start`.
    """
    if start not in ("warm", "cold"):
        raise ArgumentError(f"start: expected 'warm' or 'cold', got {start!r}")

    def init(key: Array, problem: Problem, found: Found | None) -> Point:
        if found is None:
            raise ArgumentError("retrain: it finishes what a search found; use chain(search, retrain())")
        if start == "cold":
            params, state = fresh(key, problem, found.mask, nonnegative, std)
        else:
            params = square_roots(found.mask, found.params) if nonnegative else found.params
            state = found.state
        return Point(params, found.mask, state)

    if start == "warm" and nonnegative:
        remedy = "a warm start needs weights that are neither 0 everywhere nor negative; or nonnegative=False"
    else:
        remedy = "the architecture keeps too little, or `std` saturates the network: change either"
    return weight_training(f"retrain {start}", init, nonnegative, optimizer, remedy)

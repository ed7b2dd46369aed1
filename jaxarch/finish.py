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
from jaxarch.masks import (
    apply_mask,
    full_mask,
    percentile_thresholds,
    threshold_mask,
    weight_free,
)
from jaxarch.problem import Found, Problem
from jaxarch.training import Start, Training
from jaxarch.trees import PyTree, Where, map_selected, merge, select

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
      the network chosen gives the same output on all training examples, which F alone does not show.

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
        best = jnp.argmin(candidates)
        mask, params = binary(thresholds[best])
        info = {
            "threshold": thresholds[best],
            "percentile": jnp.asarray(percentiles, jnp.float32)[best],
            "candidates": candidates,
            "ties": jnp.sum(candidates == candidates[best]) - 1,
        }
        if problem.predict is not None:
            outputs = problem.outputs(params, found.state)
            info["constant"] = jnp.all(outputs == outputs[:1])
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
      nonnegative: whether the masked leaves are `w = u^2`, u unconstrained ([D] footnote 11).
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

    def init(key: Array, problem: Problem, found: Found | None) -> Start:
        if found is None:
            raise ArgumentError("retrain: it finishes what a search found; use chain(search, retrain())")
        if start == "cold":
            return cold_start(key, problem, found.mask, nonnegative, std)
        params = found.params
        if nonnegative:
            params = merge(map_selected(lambda m, w: jnp.sqrt(jnp.abs(w)), found.mask, params), params)
        return Start(params, found.mask, found.state)

    return weight_training(f"retrain {start}", init, nonnegative, optimizer)


def train_weights(
    nonnegative: bool, std: ArrayLike, where: Where, optimizer: optax.GradientTransformation | None
) -> Training:
    """Train all weights from a cold start: `retrain` on the architecture that keeps every connection."""

    def init(key: Array, problem: Problem, found: Found | None) -> Start:
        shapes, _ = jax.eval_shape(problem.init, key)
        return cold_start(key, problem, full_mask(select(shapes, where)), nonnegative, std)

    return weight_training("real" if nonnegative else "real unconstrained", init, nonnegative, optimizer)


def cold_start(key: Array, problem: Problem, mask: PyTree, nonnegative: bool, std: ArrayLike) -> Start:
    """Fresh weights on an architecture."""
    params_key, weights_key = jax.random.split(key)
    params, state = problem.init(params_key)
    if nonnegative:
        params = merge(map_selected(lambda m, u: u, mask, normal_like(weights_key, params, std)), params)
    return Start(params, mask, state)


def normal_like(key: Array, tree: PyTree, std: ArrayLike) -> PyTree:
    """`N(0, std)` in the shapes and dtypes of a tree."""
    leaves, treedef = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    drawn = [
        (std * jax.random.normal(k, leaf.shape)).astype(leaf.dtype)
        for k, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(treedef, drawn)


def weight_training(
    name: str,
    init: Callable[[Array, Problem, Found | None], Start],
    nonnegative: bool,
    optimizer: optax.GradientTransformation | None,
) -> Training:
    """Descent on the weights `m o u^2` (or `m o u`), with the mask m in the training's fixed part."""

    def params(weights: PyTree, mask: PyTree) -> PyTree:
        if nonnegative:
            weights = merge(map_selected(lambda m, u: jnp.square(u), mask, weights), weights)
        return apply_mask(mask, weights)

    def found(weights: PyTree, mask: PyTree, state: PyTree) -> Found:
        return Found(params(weights, mask), mask, state, {})

    remedy = (
        "lower `std`: large weights saturate the network"
        if nonnegative
        else ("start from smaller or less symmetric weights in the problem's init")
    )
    return Training(name, init, params, found, optimizer, remedy)

"""Tests of a user's loss for convexity on [0, 1]^d, which the theorems on convergence assume."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch import ArgumentError, PyTree
from jaxarch.lab.checks import check_callable, check_count, check_one_key, first_line, shown
from jaxarch.lab.claims.checks.core import float64, quick

PAIRS = 1024
"""Number of pairs drawn; half of them are pairs of corners of the cube."""

REFINED = 64
"""Number of pairs that are followed along the gradient."""


class ConvexityGap(NamedTuple):
    """The height of a loss above the middle of a chord: `f((u + v)/2) - (f(u) + f(v))/2`.

    Attributes:
      gap: the largest height found; for every convex loss at most 0, but for rounding.
      rounding: the gap that rounding may produce: `8 d` units in the last place of the largest loss met.
      first: u, of shape (d,).
      second: v, of shape (d,).
    """

    gap: float
    rounding: float
    first: np.ndarray
    second: np.ndarray

    @property
    def convex(self) -> bool:
        """True if no violation was found beyond rounding; this does not prove convexity."""
        return self.gap <= self.rounding


def half_corners(points: Array) -> Array:
    """Round the first half of the points, along the leading axis, to corners of the cube."""
    half = len(points) // 2
    return jnp.concatenate([jnp.round(points[:half]), points[half:]])


def convexity_gap(
    loss: Callable[[Array], Array], dimension: int, *, key: Array | None = None, steps: int = 100
) -> ConvexityGap:
    """Search for the largest violation of midpoint convexity of a loss on [0, 1]^d.

    Pairs of points are drawn, corners (masks) and others. The worst pairs follow the gradient of the
    violation by projected steps of decreasing length. All is in float64, unless the loss itself computes in
    less.

    Args:
      loss: a function from a mask v of shape (d,) to a scalar; differentiable, written in JAX.
      dimension: d.
      key: a `jax.random.key`.
      steps: the number of steps along the gradient, at least 0.

    Returns:
      The violation and the two points; a violation beyond rounding proves that the loss is not convex.

    Raises:
      ArgumentError: a loss that is not a finite real number; a dimension or steps that are not such counts.

    Example:
      >>> import jaxarch
      >>> found = jaxarch.lab.claims.convexity_gap(lambda v: -(v @ v), 2, steps=0)  # at corners
      >>> found.gap, found.convex
      (0.5, False)
    """
    check_callable("loss", loss, "v")
    check_count("dimension", dimension)
    check_count("steps", steps, least=0)
    key = jax.random.key(0) if key is None else key
    check_one_key(key)
    with float64():
        shape = check_scalar(loss, dimension)
        gaps, pairs, largest = jax.tree.map(np.asarray, _largest_gaps(loss, dimension, steps, key))
    if not np.isfinite(largest):
        raise ArgumentError("loss: expected finite values on [0, 1]^d, got NaN or an infinite one")
    worst = int(np.argmax(gaps))
    rounding = 8 * dimension * float(jnp.finfo(shape.dtype).eps) * float(largest)
    return ConvexityGap(float(gaps[worst]), rounding, *pairs[worst])


def check_scalar(loss: Callable[..., Array], dimension: int, *example: PyTree) -> jax.ShapeDtypeStruct:
    """Check that a loss of a mask, and of an example if there is one, is a real scalar.

    Returns its shape and dtype.
    """
    taken = "a mask and one example" if example else f"a mask of shape ({dimension},)"
    try:
        value = jax.eval_shape(loss, jax.ShapeDtypeStruct((dimension,), jnp.float64), *example)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"loss: expected a function of {taken} ({first_line(error)})") from error
    if getattr(value, "shape", None) != () or not jnp.issubdtype(value.dtype, jnp.floating):
        raise ArgumentError(f"loss: expected a real scalar for {taken}, got {shown(value)}")
    return value


def _largest_gaps(
    loss: Callable[[Array], Array], dimension: int, steps: int, key: Array
) -> tuple[Array, Array, Array]:
    """Return violations and pairs, of shapes (n,) and (n, 2, d), and the largest absolute loss."""

    def gap(pair: Array) -> Array:
        return loss(pair.mean(axis=0)) - (loss(pair[0]) + loss(pair[1])) / 2

    def ascend(pair: Array) -> Array:
        def step(t: Array, pair: Array) -> Array:
            slope = jax.grad(gap)(pair)
            norm = jnp.linalg.norm(slope)
            length = jnp.sqrt(dimension) / (t + 2)
            return jnp.clip(pair + length * slope / jnp.where(norm > 0, norm, 1), 0, 1)

        return jax.lax.fori_loop(0, steps, step, pair)

    @partial(jax.jit, compiler_options=quick())
    def search(key: Array) -> tuple[Array, Array, Array]:
        drawn = jax.random.uniform(key, (PAIRS, 2, dimension), jnp.float64)
        drawn = half_corners(drawn)
        gaps = jax.vmap(gap)(drawn)
        best = drawn[jnp.argsort(-gaps)[:REFINED]]
        pairs = jnp.concatenate([best, jax.vmap(ascend)(best)])
        losses = jax.vmap(jax.vmap(loss))(jnp.concatenate([drawn, pairs]))
        return jax.vmap(gap)(pairs), pairs, jnp.max(jnp.abs(losses))

    return search(key)


def check_convex(loss: Callable[[Array], Array], dimension: int, *, key: Array | None = None) -> None:
    """Raise if `convexity_gap` finds that a loss is not convex on [0, 1]^d.

    Raises:
      ArgumentError: a loss that is not convex; the message names two points between which it rises above
        its chord.

    Example:
      >>> import jaxarch
      >>> jaxarch.lab.claims.check_convex(lambda v: v @ v, 2)
      >>> jaxarch.lab.claims.check_convex(lambda v: -(v @ v), 2)  # doctest: +ELLIPSIS
      Traceback (most recent call last):
      jaxarch.ArgumentError: loss: expected a loss that is convex in the mask; midway between v = ...
    """
    found = convexity_gap(loss, dimension, key=key)
    if not found.convex:
        first, second = (np.array2string(v, precision=3, threshold=6).replace("\n", "") for v in found[2:])
        raise ArgumentError(
            f"loss: expected a loss that is convex in the mask; midway between v = {first} and v = {second} "
            f"it exceeds the mean of its values at both by {found.gap:.3g}"
        )

"""Estimates of how fast the gradient of a loss changes within the cube; they are never upper bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

REACH = 0.01
"""The fraction of the way to another mask along which the gradient is followed."""
JUMPS = 0.02
"""A loss counts as smooth if at most this share of its gradient's change is not the Hessian's integral."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)


class Curvature(NamedTuple):
    """The curvature found at some masks.

    Attributes:
      smoothness: the largest `norm(H x)`, x of norm 1 and H the Hessian, that power iteration reached. It is
        at most the Lipschitz constant of the gradient.
      largest_sum: the largest `sum_i abs(g_i)`.
      jumps: the share of the gradient's changes, over a short way from each mask, that is not the integral
        of the Hessian, for all masks together. It is large if the gradient jumps, as with ReLU.
    """

    smoothness: float
    largest_sum: float
    jumps: float


def look(
    objective: Callable[[Array], Array], start: Array, key: Array, masks: int, iterations: int
) -> Curvature:
    """Estimate the curvature of F at a mask, and at others on the way from it to random masks.

    Args:
      objective: F as a function of a vector in [0, 1]^d.
      start: the first mask.
      key: a `jax.random.key`.
      masks: the number of masks, including the first.
      iterations: the number of iterations of the power method at each mask.
    """
    gradient = jax.grad(objective)
    nodes, weights = (jnp.asarray(each, start.dtype) for each in ((1 + _NODES) / 2, _WEIGHTS / 2))

    def times_hessian(at: Array, x: Array) -> Array:
        return jax.jvp(gradient, (at,), (x,))[1]

    def largest(at: Array, x: Array) -> Array:
        def iterate(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            x = carry[0]
            after = times_hessian(at, x)
            size = jnp.linalg.norm(after)
            return jnp.where(size > 0, after / jnp.where(size > 0, size, 1), x), size

        unit = x / jnp.linalg.norm(x)
        return jax.lax.fori_loop(0, iterations, iterate, (unit, jnp.zeros_like(unit[0])))[1]

    def at_one(number: Array) -> tuple[Array, Array, Array, Array]:
        keys = jax.random.split(jax.random.fold_in(key, number), 4)
        one, other = (drawn_mask(of, start, number) for of in keys[:2])
        at = start + jnp.where(number > 0, jax.random.uniform(keys[2]), 0) * (one - start)
        way = REACH * (other - at)
        here = gradient(at)
        change = gradient(at + way) - here
        integral = weights @ jax.lax.map(lambda node: times_hessian(at + node * way, way), nodes)
        apart = jnp.linalg.norm(change - integral)
        size = largest(at, jax.random.normal(keys[3], at.shape, at.dtype))
        return size, jnp.sum(jnp.abs(here)), apart, jnp.linalg.norm(change)

    sizes, sums, apart, changes = jax.jit(lambda n: jax.lax.map(at_one, n))(jnp.arange(masks))
    jumps = apart.sum() / jnp.maximum(changes.sum(), jnp.finfo(changes.dtype).tiny)
    return Curvature(float(sizes.max()), float(sums.max()), float(jumps))


def drawn_mask(key: Array, like: Array, number: Array) -> Array:
    """Draw a mask with one random level.

    For even `number` the entries are uniform in [0, level). For odd ones an entry is 1 with the level as its
    probability, and 0 otherwise.
    """
    level_key, key = jax.random.split(key)
    level, share = jax.random.uniform(level_key), jax.random.uniform(key, like.shape, like.dtype)
    return jnp.where(number % 2, share < level, share * level).astype(like.dtype)

"""How fast the gradient of a loss turns within the cube: looked for, and never an upper bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

REACH = 0.05
"""How far of the way to another mask the gradient is followed."""
JUMPS = 0.02
"""Up to this share of its change the gradient of a smooth loss is the integral of its Hessian."""
_NODES, _WEIGHTS = (1 + np.polynomial.legendre.leggauss(4)[0]) / 2, np.polynomial.legendre.leggauss(4)[1] / 2


class Curvature(NamedTuple):
    """What was found at some masks.

    Attributes:
      smoothness: the largest `norm(H x)`, x of norm 1 and H the Hessian, that power iteration came to: at
        most the constant with which the gradient is Lipschitz.
      largest_sum: the largest `sum_i abs(g_i)`.
      jumps: by how much the gradient changed that is no integral of its Hessian, of all that it changed: the
        largest share. It is large where the gradient jumps, as that of ReLU does.
    """

    smoothness: float
    largest_sum: float
    jumps: float


def look(
    objective: Callable[[Array], Array], start: Array, key: Array, masks: int, iterations: int
) -> Curvature:
    """The curvature of F at a mask and at others that are drawn, half of them of zeros and ones.

    Args:
      objective: F of a vector in [0, 1]^d.
      start: the first mask.
      key: a `jax.random.key`.
      masks: how many, the first one included.
      iterations: of the power method at each.
    """
    gradient = jax.grad(objective)

    def times_hessian(at: Array, x: Array) -> Array:
        return jax.jvp(gradient, (at,), (x,))[1]

    def along(at: Array, other: Array) -> Array:
        way = REACH * (other - at)
        change = gradient(at + way) - gradient(at)
        nodes, weights = (jnp.asarray(each, at.dtype) for each in (_NODES, _WEIGHTS))
        integral = weights @ jax.lax.map(lambda node: times_hessian(at + node * way, way), nodes)
        # What rounding makes of a difference is no jump.
        rounding = 1e3 * jnp.finfo(at.dtype).eps * jnp.linalg.norm(gradient(at))
        size = jnp.linalg.norm(change) + rounding
        return jnp.where(size > 0, jnp.linalg.norm(change - integral) / jnp.where(size > 0, size, 1), 0)

    def at_one(number: Array) -> tuple[Array, Array, Array]:
        keys = jax.random.split(jax.random.fold_in(key, number), 3)
        drawn, other = (drawn_mask(of, start, number) for of in keys[:2])
        at = jnp.where(number == 0, start, drawn)

        def iterate(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            x = carry[0]
            after = times_hessian(at, x)
            size = jnp.linalg.norm(after)
            return jnp.where(size > 0, after / jnp.where(size > 0, size, 1), x), size

        first = jax.random.normal(keys[2], start.shape, start.dtype)
        unit = first / jnp.linalg.norm(first)
        _, size = jax.lax.fori_loop(0, iterations, iterate, (unit, jnp.zeros_like(unit[0])))
        return size, jnp.sum(jnp.abs(gradient(at))), along(at, other)

    found = jax.jit(lambda numbers: jax.lax.map(at_one, numbers))(jnp.arange(masks))
    return Curvature(*(float(jnp.max(each)) for each in found))


def drawn_mask(key: Array, like: Array, number: Array) -> Array:
    """Entries of one level: as chances of a 1 in every other mask, as the largest value in the others."""
    level_key, key = jax.random.split(key)
    level, share = jax.random.uniform(level_key), jax.random.uniform(key, like.shape, like.dtype)
    return jnp.where(number % 2, share < level, share * level).astype(like.dtype)

r"""Optimality of a mask from one gradient: its duality gap, and the connections worth flipping.

    gap(v) = sum_i max(g_i v_i, -g_i (1 - v_i)),        g = grad F(v)

(docs/theory.md, `certificate.gap` and `certificate.flips`; the gap of Frank and Wolfe, 1956, and Jaggi, 2013,
on the cube).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import ArgumentError
from jaxarch._internal.trees import PyTree, map_selected, restructured
from jaxarch.masks import check_fits

__all__ = ["duality_gap", "flip_slopes"]


def duality_gap(mask: PyTree, gradient: PyTree) -> Array:
    r"""Return `sum_i max(g_i v_i, -g_i (1 - v_i))`: the largest descent of the tangent plane in the cube.

    If F is convex on [0, 1]^d, `F(v) - min F <= gap(v)`. The minimum is over the cube, and therefore also
    covers all masks in {0, 1}^d. For any F, the gap is 0 exactly where no direction into the cube descends.

    Args:
      mask: v, numbers in [0, 1] or booleans; `None` for leaves that are not masked.
      gradient: the gradient of F at v on all examples; the gradient of a batch says nothing about the mean.

    Returns:
      A scalar, at least 0.

    Raises:
      ArgumentError: trees of different structures or shapes.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.theory.optimality import duality_gap
      >>> print(duality_gap({"w": jnp.array([True, False])}, {"w": jnp.array([-3.0, 0.5])}))  # none is better
      0.0
      >>> print(duality_gap({"w": jnp.array([True, True])}, {"w": jnp.array([-3.0, 0.5])}))
      0.5
    """
    check_fits(mask, gradient)
    gradient = restructured(gradient, mask)

    def of_leaf(v: Array, g: Array) -> Array:
        v = v.astype(g.dtype)
        return jnp.sum(jnp.maximum(g * v, -g * (1 - v)))

    parts = jax.tree.leaves(map_selected(of_leaf, mask, gradient))
    if not parts:
        raise ArgumentError("mask: no leaf is masked; select leaves by path")
    return jnp.sum(jnp.stack(parts))


def flip_slopes(mask: PyTree, gradient: PyTree) -> PyTree:
    r"""Return `s_i g_i`: the first-order change of F when connection i alone is flipped.

    s is 1 where there is no connection and -1 where there is one. If F is convex and all slopes are positive,
    the mask is the only minimizer over the cube, and therefore over all masks. If all slopes are at least
    `L_ii/2`, with `|d^2 F/dv_i^2| <= L_ii` along the edge, no single flip lowers F, convex or not.

    Args:
      mask: booleans, `None` for leaves that are not masked.
      gradient: the gradient of F at the mask, on all examples.

    Returns:
      The slopes, in the structure of the mask.

    Raises:
      ArgumentError: trees of different structures or shapes.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.theory.optimality import flip_slopes
      >>> print(flip_slopes({"w": jnp.array([True, False])}, {"w": jnp.array([-3.0, 0.5])})["w"])
      [3.  0.5]
    """
    check_fits(mask, gradient)
    gradient = restructured(gradient, mask)
    return map_selected(lambda m, g: jnp.where(m, -g, g), mask, gradient)

r"""Optimality of a mask from one gradient: its duality gap, and the connections worth flipping.

    gap(v) = sum_i max(g_i v_i, -g_i (1 - v_i)),        g = grad F(v)

(docs/theory.md, `certificate.gap` and `certificate.flips`; the gap of Frank and Wolfe, 1956, and Jaggi, 2013,
on the cube).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError
from jaxarch._internal.trees import PyTree, map_selected, restructured
from jaxarch.masks import check_fits
from jaxarch.masks._largest import largest_of

__all__ = ["duality_gap", "flip_slopes"]


def duality_gap(
    mask: PyTree, gradient: PyTree, size: ArrayLike | None = None, within: PyTree = None
) -> Array:
    r"""Return `sum_i max(g_i v_i, -g_i (1 - v_i))`: the largest descent of the tangent plane in the cube.

    If F is convex on [0, 1]^d, `F(v) - min F <= gap(v)`. The minimum is over the cube, and therefore also
    covers all masks in {0, 1}^d. For any F, the gap is 0 exactly where no direction into the cube descends.

    With a `size` k the minimum is over numbers in the cube that sum to k, and so over all masks of k
    connections. The gap is then the one of `g - lambda`, with lambda the k-th smallest of g (docs/theory.md,
    `certificate.gap-of-a-size`), and never larger than the one over the cube.

    Args:
      mask: v, numbers in [0, 1] or booleans; `None` for leaves that are not masked.
      gradient: the gradient of F at v on all examples; the gradient of a batch says nothing about the mean.
      size: k, the sum of v; or an array with the sum of each leaf. May be traced.
      within: booleans for each leaf of the mask: no other connection is there, and v is 0 outside.

    Returns:
      A scalar, at least 0.

    Raises:
      ArgumentError: trees of different structures or shapes; a size that is not an integer, or not one per
        leaf.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.theory.optimality import duality_gap
      >>> print(duality_gap({"w": jnp.array([True, False])}, {"w": jnp.array([-3.0, 0.5])}))  # none is better
      0.0
      >>> print(duality_gap({"w": jnp.array([True, True])}, {"w": jnp.array([-3.0, 0.5])}))
      0.5
      >>> print(duality_gap({"w": jnp.array([True, True])}, {"w": jnp.array([-3.0, 0.5])}, size=2))
      0.0
    """
    check_fits(mask, gradient)
    gradient = restructured(gradient, mask)
    if size is not None:
        gradient = _less_multiplier(gradient, size, within)

    def of_leaf(v: Array, g: Array) -> Array:
        v = v.astype(g.dtype)
        return jnp.sum(jnp.maximum(g * v, -g * (1 - v)))

    parts = jax.tree.leaves(map_selected(of_leaf, mask, gradient))
    if not parts:
        raise ArgumentError("mask: no leaf is masked; select leaves by path")
    return jnp.sum(jnp.stack(parts))


def _less_multiplier(gradient: PyTree, size: ArrayLike, within: PyTree) -> PyTree:
    """Subtract the k-th smallest entry, of all leaves or of each leaf with its own k; 0 outside `within`."""
    smallest = largest_of(map_selected(lambda g: -g, gradient), size, within)
    most = map_selected(lambda g, low: jnp.max(g, where=low, initial=-jnp.inf), gradient, smallest)
    least = map_selected(lambda g: jnp.min(g, initial=jnp.inf), gradient)
    if np.ndim(size) == 0:
        of_all, of_none = (
            jnp.max(jnp.stack(jax.tree.leaves(most))),
            jnp.min(jnp.stack(jax.tree.leaves(least))),
        )
        most, least = (map_selected(lambda _, one=one: one, most) for one in (of_all, of_none))
    # A size of 0 has no k-th smallest entry: any multiplier up to the smallest one gives its gap.
    most = map_selected(jnp.maximum, most, least)
    less = map_selected(lambda g, multiplier: g - multiplier, gradient, most)
    return less if within is None else map_selected(lambda g, there: jnp.where(there, g, 0), less, within)


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

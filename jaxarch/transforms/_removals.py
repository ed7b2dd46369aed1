"""Number of ordered neurons to remove, by the loss without them: all removals are tried, or a few."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, check_array, check_strength

Loss = Callable[[Array], Array]
"""A function from a number of neurons, removed in a fixed order, to the loss."""


def along_the_curve(loss: Loss, neurons: int, tolerance: ArrayLike) -> tuple[Array, Array]:
    """Return the losses after removing 0, 1, ..., H neurons, and the largest removal within the tolerance."""
    losses = jax.lax.map(loss, jnp.arange(neurons + 1))
    return losses, largest_removal(losses, tolerance)


def by_bisection(loss: Loss, neurons: int, tolerance: ArrayLike) -> tuple[Array, Array]:
    """Return the same as `along_the_curve` from `1 + ceil(log2(H + 1))` losses; the others are NaN.

    Start with a removal within the tolerance and a larger one beyond it, or H + 1; try the middle until they
    are neighbors. Return the smaller one. It is the largest removal within the tolerance, unless some removal
    within the tolerance is larger than one beyond it.
    """
    first = loss(jnp.zeros((), jnp.int32))
    most = highest(first, tolerance)

    def halved(_: int, bounds: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        within, beyond, losses = bounds
        middle = (within + beyond) // 2
        value = loss(middle)
        is_within = (value <= most) & jnp.isfinite(first)
        return (
            jnp.where(is_within, middle, within),
            jnp.where(is_within, beyond, middle),
            losses.at[middle].set(value),
        )

    begin = (
        jnp.zeros((), jnp.int32),
        jnp.asarray(neurons + 1, jnp.int32),
        jnp.full(neurons + 1, jnp.nan, first.dtype).at[0].set(first),
    )
    within, _, losses = jax.lax.fori_loop(0, math.ceil(math.log2(neurons + 1)), halved, begin)
    return losses, within


def largest_removal(losses: Array, tolerance: ArrayLike) -> Array:
    """Return the largest removal whose loss is at most `losses[0] + tolerance |losses[0]|`.

    It is 0 if the loss without a removal is not finite.

    Args:
      losses: losses after the removal of 0, 1, ..., H neurons, shape (H + 1,).
      tolerance: relative increase of the loss.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> print(jaxarch.transforms.largest_removal(jnp.array([1.0, 1.05, 1.2, 1.08]), 0.1))
      3
    """
    check_array("losses", losses, real=True)
    check_strength("tolerance", tolerance)
    if jnp.ndim(losses) != 1 or not jnp.size(losses) or jnp.ndim(tolerance):
        raise ArgumentError(
            f"losses: expected shape (H + 1,) and one number as tolerance; got shapes {jnp.shape(losses)} "
            f"and {jnp.shape(tolerance)}"
        )
    losses = jnp.asarray(losses)
    within = (losses <= highest(losses[0], tolerance)) & jnp.isfinite(losses[0])
    return jnp.max(jnp.where(within, jnp.arange(losses.size), 0))


def highest(loss: Array, tolerance: ArrayLike) -> Array:
    """Return the highest loss within the tolerance: `loss + tolerance |loss|`."""
    return loss + jnp.asarray(tolerance, loss.dtype) * jnp.abs(loss)


REMOVALS = {"all": along_the_curve, "bisection": by_bisection}

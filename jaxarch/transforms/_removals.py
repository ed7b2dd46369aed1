"""How many of ordered neurons can go, by the loss without them: all removals, or a few of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, check_array, check_strength

Loss = Callable[[Array], Array]
"""The loss after the removal of so many neurons, in a fixed order."""


def along_the_curve(loss: Loss, neurons: int, tolerance: ArrayLike) -> tuple[Array, Array]:
    """The losses after the removal of 0, 1, ..., H neurons, and the largest removal within the tolerance."""
    losses = jax.lax.map(loss, jnp.arange(neurons + 1))
    return losses, largest_removal(losses, tolerance)


def by_bisection(loss: Loss, neurons: int, tolerance: ArrayLike) -> tuple[Array, Array]:
    """The same by `1 + ceil(log2(H + 1))` losses; the others are NaN.

    Between a removal that is within the tolerance and a larger one that is not, or H + 1, the middle is tried
    until they are neighbours. The first of them is what is returned: the largest removal of all, if no
    removal is within the tolerance that is larger than one that is not.
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
      losses: after the removal of 0, 1, ..., H neurons, shape (H + 1,).
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
            "losses: expected shape (H + 1,), and one number for tolerance; got shapes "
            f"{jnp.shape(losses)} and {jnp.shape(tolerance)}"
        )
    losses = jnp.asarray(losses)
    within = (losses <= highest(losses[0], tolerance)) & jnp.isfinite(losses[0])
    return jnp.max(jnp.where(within, jnp.arange(losses.size), 0))


def highest(loss: Array, tolerance: ArrayLike) -> Array:
    """The highest loss within the tolerance: `loss + tolerance |loss|`."""
    return loss + jnp.asarray(tolerance, loss.dtype) * jnp.abs(loss)


REMOVALS = {"all": along_the_curve, "bisection": by_bisection}

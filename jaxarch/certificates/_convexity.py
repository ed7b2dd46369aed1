"""Checks, at some places, of a loss that is claimed to be convex in the mask."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import ArgumentError
from jaxarch.transforms._flip import MaskedObjective, Tries

SEGMENTS = 16
"""Number of segments from the mask to random other masks."""
COARSEST = 1e-6
"""The coarsest machine epsilon at which a failure of convexity can be told from rounding."""
ROUNDINGS = 1e3
"""Allowance for the rounding of a sum over examples, in units in the last place."""


def check_convex(on: MaskedObjective, loss: float, gradient: Array, gap: float, tries: Tries | None) -> None:
    """Raise if F is found below its tangent plane at the mask, or above a chord of the cube."""
    eps = float(jnp.finfo(on.flat.dtype).eps)
    if eps > COARSEST:
        raise ArgumentError(f"convex: {on.flat.dtype} is too coarse to check this; compute in float32")
    check_flips(loss, gap, tries, eps)

    def excess(key: Array) -> tuple[Array, Array]:
        other_key, share_key = jax.random.split(key)
        share = jax.random.uniform(share_key)
        other = (jax.random.uniform(other_key, on.flat.shape) < share).astype(on.flat.dtype)
        other = jnp.where(on.allowed, other, 0)
        of_other, middle = on.objective(other), on.objective((on.flat + other) / 2)
        plane = loss + gradient @ (other - on.flat)
        size = abs(loss) + jnp.abs(of_other) + jnp.abs(gradient) @ jnp.abs(other - on.flat)
        return jnp.maximum(middle - (loss + of_other) / 2, plane - of_other), size

    keys = jax.random.split(jax.random.key(0), SEGMENTS)
    above, size = jax.jit(lambda keys: jax.lax.map(excess, keys))(keys)
    if not (above <= ROUNDINGS * eps * size).all():
        raise ArgumentError(
            "convex: the loss is not convex in the mask, or not differentiable at it: between this mask "
            f"and another one, convexity fails by {float(above.max()):.3g}; leave convex=True out"
        )


def check_flips(loss: float, gap: float, tries: Tries | None, eps: float) -> None:
    """Raise if a flip has a lower loss than the gap allows for any mask."""
    if tries is not None and float(tries.values.min()) < loss - gap - ROUNDINGS * eps * (abs(loss) + gap):
        raise ArgumentError(
            "convex: the loss is not convex in the mask, or not differentiable at it: a flip has a loss of "
            f"{float(tries.values.min()):.4g}, below the bound for all masks, {loss - gap:.4g}; leave "
            "convex=True out"
        )

"""The straight-through estimator: the value of one array, the derivative of another."""

from __future__ import annotations

import jax
from jax import Array


def straight_through(value: Array, descended: Array) -> Array:
    """An array with the value of one and the derivative of another (Y. Bengio et al., 2013)."""
    # In these brackets, since the difference is exactly 0.
    return jax.lax.stop_gradient(value) + (descended - jax.lax.stop_gradient(descended))

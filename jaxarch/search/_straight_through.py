"""The straight-through estimator: the value of one array, the derivative of another."""

from __future__ import annotations

import jax
from jax import Array


def straight_through(value: Array, descended: Array) -> Array:
    """Return an array with the value of one and the derivative of another (Y. Bengio et al., 2013)."""
    # The brackets matter: the difference inside them is exactly 0, so the value is exact.
    return jax.lax.stop_gradient(value) + (descended - jax.lax.stop_gradient(descended))

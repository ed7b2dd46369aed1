"""Variables that the claims on mirror descent draw.

Masks only depend on `x = H w` (`positions`), rho = S/H (`ratio`) and eta H S (`two-temperature.scaling`). So
cases draw x and `reach = eta G H S/16`, the farthest that a step with `|g| <= G` can move a mask. They also
draw H, which should not matter.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.cube import log_uniform, often, symlog, uniform

DIMENSION = 2
"""Dimension of the masks whose runs are checked."""

HARD = log_uniform(0.01, 1000.0)
RATIO = often(1.0, log_uniform(1.0, 1e-3))
POSITION = symlog(30.0, 0.01)
POSITIONS = often(0.0, symlog(30.0, 0.01, (DIMENSION,)))
COMPARATOR = often(0.0, uniform(1.0, 0.0, (DIMENSION,)))


def inside(comparator: Array, ratio: Array) -> Array:
    """Move the comparator inside the cube at equal temperatures, where vertices are infinitely far."""
    return jnp.where(ratio < 1, comparator, jnp.clip(comparator, 1e-6, 1 - 1e-6))

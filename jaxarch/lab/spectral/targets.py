"""The targets of [S] experiment 1, which turn from linear to quadratic."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch import PyTree

SIDE = 41
"""Points per side of the plane on which fits are drawn."""


def shares(alpha: ArrayLike, beta: ArrayLike) -> np.ndarray:
    """Return the target's linear and quadratic coefficients ([S] 5.1), shape (..., 2)."""
    turn = np.tanh(np.asarray(beta) * (np.asarray(alpha) - 0.5))
    return np.stack([1 - turn, 1 + turn], axis=-1).astype(np.float32) / 4


def linear_share(alpha: float, beta: float) -> float:
    """Return the linear part's share of the target's variance; the two parts are uncorrelated."""
    linear, quadratic = np.square(shares(alpha, beta).astype(float)) * (2 / 3, 8 / 45)
    return float(linear / (linear + quadratic))


def parts(x: Any) -> Array:
    """Compute the linear and the quadratic function, `1.x` and `x.x`, shape (..., 2)."""
    return jnp.stack([jnp.sum(x, -1), jnp.sum(jnp.square(x), -1)], axis=-1)


def take_target_rows(data: PyTree, per_run: PyTree, rows: Array) -> PyTree:
    """Take rows of the inputs, with the targets of one run's alpha and beta."""
    x, functions = data
    return x[rows], (functions[rows] @ per_run["shares"])[:, None]


def plane() -> Array:
    """Return the points at which fits are drawn, shape (SIDE, SIDE, 2)."""
    side = jnp.linspace(-1, 1, SIDE)
    return jnp.stack(jnp.meshgrid(side, side), axis=-1)

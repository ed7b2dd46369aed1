"""Computation in float64, whatever precision JAX uses elsewhere."""

from __future__ import annotations

from contextlib import AbstractContextManager

import jax


def float64() -> AbstractContextManager[None]:
    """Return a context in which JAX computes in float64, in the thread that enters it.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> with jaxarch.float64():
      ...     print(jnp.ones(1).dtype)
      float64
    """
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # type: ignore[attr-defined]

    return enable_x64()

"""Computation in float64, whatever precision JAX uses elsewhere, and dtypes of at least 32 bits."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp


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


def at_least_float32(dtype: Any) -> Any:
    """Return a floating-point or complex dtype of at least 32 bits."""
    if jnp.issubdtype(dtype, jnp.inexact) and jnp.finfo(dtype).bits >= 32:
        return dtype
    return jnp.float32


def widened(array: Any) -> Any:
    """Convert an array of JAX or NumPy to at least 32 bits: integers and booleans to float32."""
    return array.astype(at_least_float32(array.dtype))

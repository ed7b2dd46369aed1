"""ReLU with the slope 1/2 at 0, for starts at which hidden eigenvalues are exactly 0."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import as_array


def half_slope_relu(z: Array) -> Array:
    """`max(z, 0)` with the derivative 1/2 at 0, the mean of those on its two sides.

    JAX takes 0 there, as most libraries do. The values are the same, and so are all other derivatives. Where
    an eigenvalue of a gated network is 0, the derivative in it is `f'(0)` times something: with
    `jax.nn.relu` it stays 0 for ever, with this one it is the mean of the two one-sided derivatives.

    Args:
      z: of any shape.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> print(jaxarch.spectral.half_slope_relu(jnp.array([-2.0, 0.0, 2.0])))
      [0. 0. 2.]
      >>> print(jax.vmap(jax.grad(jaxarch.spectral.half_slope_relu))(jnp.array([-2.0, 0.0, 2.0])))
      [0.  0.5 1. ]
    """
    return _half_slope_relu(as_array("z", z))


@jax.custom_jvp
def _half_slope_relu(z: Array) -> Array:
    return jnp.maximum(z, 0)


_half_slope_relu.defjvps(lambda tangent, _, z: tangent * jnp.heaviside(z, 0.5).astype(tangent.dtype))

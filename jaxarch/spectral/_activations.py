"""ReLU with slope 1/2 at 0, for starts at which hidden eigenvalues are exactly 0."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import as_array


def half_slope_relu(z: Array) -> Array:
    """Return `max(z, 0)`, with the derivative 1/2 at 0: the mean of the derivatives on its two sides.

    JAX, like most libraries, takes 0 there. The values and all other derivatives are the same. If an
    eigenvalue of a gated network is 0, the derivative in it is `f'(0)` times a factor. With `jax.nn.relu` the
    eigenvalue thus stays 0 for ever; here the derivative is the mean of the two one-sided derivatives.

    Args:
      z: array of any shape.

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

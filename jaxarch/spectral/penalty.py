r"""The regularization Omega of [S] eq. (4.4), which makes a spectral network leave neurons out.

Each penalty takes the eigenvalues to keep small, a pytree with one vector per layer, and returns a number.
Eigenvalues may start at exactly 0; there, the gradient of all three penalties is 0.

[S] Peri, Chicchi, Fanelli and Giambagli, Spectral Architecture Search for Neural Network Models (SPARCS).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import check_arrays
from jaxarch._internal.trees import PyTree

__all__ = ["PENALTIES", "Penalty", "l1", "l2", "squared_l2"]

Penalty = Callable[[PyTree], Array]
"""A function from a pytree of eigenvalues, one vector per layer, to a number."""


def l1(eigenvalues: PyTree) -> Array:
    r"""Return `sum |lambda|`, which selects neurons ([S] appendices F and G).

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> print(jaxarch.spectral.penalty.l1({"L2": jnp.array([3.0, -4.0]), "L3": jnp.array([2.0])}))
      9.0
    """
    # Not jnp.abs, whose derivative at 0 is 1 in JAX.
    return _total(lambda layer: jnp.sum(layer * jax.lax.stop_gradient(jnp.sign(layer))), eigenvalues)


def l2(eigenvalues: PyTree) -> Array:
    r"""Return `sum_k ||L_k||`, not squared, as in the code of [S]: a group lasso, which selects whole layers.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> print(jaxarch.spectral.penalty.l2({"L2": jnp.array([3.0, -4.0]), "L3": jnp.array([2.0])}))
      7.0
    """

    def norm(layer: Array) -> Array:
        # Divide by the largest, so that the squares of small eigenvalues do not underflow.
        unit = jax.lax.stop_gradient(jnp.max(jnp.abs(layer), initial=0))
        unit = jnp.where(unit > 0, unit, 1)
        squares = jnp.sum(jnp.square(layer / unit))
        # The derivative of a square root at 0 is infinite, so it is taken at 1 there and not used.
        root = jnp.sqrt(jnp.where(squares > 0, squares, 1))
        return jnp.where(squares > 0, unit * root, 0)

    return _total(norm, eigenvalues)


def squared_l2(eigenvalues: PyTree) -> Array:
    r"""Return `sum lambda^2`: weight decay. It makes all eigenvalues small and none of them 0.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> print(jaxarch.spectral.penalty.squared_l2({"L2": jnp.array([3.0, -4.0]), "L3": jnp.array([2.0])}))
      29.0
    """
    return _total(lambda layer: jnp.sum(jnp.square(layer)), eigenvalues)


PENALTIES: dict[str, Penalty] = {"l1": l1, "l2": l2, "squared l2": squared_l2}
"""The penalties of this module by name, as `search.spectral` takes them."""


def _total(of_layer: Callable[[Array], Array], eigenvalues: PyTree) -> Array:
    check_arrays("eigenvalues", eigenvalues)
    return jnp.sum(jnp.stack([of_layer(layer) for layer in jax.tree.leaves(eigenvalues)]))

"""The network (11) and the loss (12) of [D], for any input size and depth."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, as_array, check_broadcast, check_widths
from jaxarch._internal.trees import PyTree
from jaxarch.models._model import Model
from jaxarch.run._problem import Key


def tanh_network(widths: Sequence[int], std: ArrayLike = 0.2) -> Model:
    r"""Make the network of [D] eq. (11): `psi(w, x) = softplus(sum_i tanh(w_L ... tanh(w_1 x))_i)`.

    Args:
      widths: sizes of the input and of each layer; [D] has (64, 64, 64): two square matrices.
      std: standard deviation of the initial weights, for searches that start from the problem's own weights.

    Returns:
      A model with parameters `{"w1": (widths[1], widths[0]), ...}` and outputs of shape (batch,), positive.
      [D] writes ReLU for softplus, `log(1 + e^x)`, which is used here. There is no bias.

    Raises:
      ArgumentError: fewer than two widths, or widths that are not positive integers.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> model = jaxarch.tanh_network((2, 3))
      >>> params, state = model.init(jax.random.key(0))
      >>> outputs, _ = model.apply(params, state, jnp.zeros((4, 2)), None)
      >>> print(params["w1"].shape, outputs.shape, f"{outputs[0]:.2f}")  # softplus(0) = log 2
      (3, 2) (4,) 0.69
    """
    check_widths(widths)
    shapes = {f"w{i + 1}": (widths[i + 1], widths[i]) for i in range(len(widths) - 1)}

    def init(key: Array) -> tuple[PyTree, PyTree]:
        keys = jax.random.split(key, len(shapes))
        params = {
            name: std * jax.random.normal(k, shape)
            for k, (name, shape) in zip(keys, shapes.items(), strict=True)
        }
        return params, {}

    def apply(params: PyTree, state: PyTree, x: Array, key: Key) -> tuple[Array, PyTree]:
        if x.shape[-1] != widths[0]:
            raise ArgumentError(f"x: the network has {widths[0]} inputs, got examples of shape {x.shape[1:]}")
        for name in shapes:
            x = jnp.tanh(x @ params[name].T)
        return jax.nn.softplus(x.sum(-1)), state

    return Model(init, apply)


def signed_output_loss(outputs: Array, y: Array) -> Array:
    r"""Return the loss of [D] eq. (12) for each example: `psi(w, x) (1 - 2 y)`, y in {0, 1}, shape (batch,).

    It is unbounded below in psi: it rewards large outputs for y = 1 and small ones for y = 0. It is not a
    likelihood, and the network with the lower loss need not have the higher AUC.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> print(jaxarch.models.signed_output_loss(jnp.array([0.5, 2.0]), jnp.array([0, 1])))
      [ 0.5 -2. ]
    """
    outputs = as_array("outputs", outputs)
    y = as_array("y", y, outputs.dtype)
    check_broadcast(outputs=outputs, y=y)
    return outputs * (1 - 2 * y)

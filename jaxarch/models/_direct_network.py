"""Networks in direct space, the rivals of spectral ones: every weight is a parameter."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_callable, check_flag, check_widths
from jaxarch._internal.trees import PyTree
from jaxarch.models._model import Model
from jaxarch.run._problem import Key
from jaxarch.spectral._direct import direct_feedforward, direct_widths
from jaxarch.spectral._network import Activation, Initializer, check_activation, xavier_uniform


def direct_network(
    widths: Sequence[int],
    *,
    activation: Activation = jax.nn.relu,
    bias: bool = False,
    skips: bool = True,
    weights: Initializer = xavier_uniform,
) -> Model:
    r"""Make a network whose weight matrices are its parameters: `a_i = f(sum_{j<i} W_ij a_j + b_i)`.

    With skip connections it is the space that a spectral network searches, with more parameters
    (`spectral.parameter_counts`). Without, it is the plain multi-layer perceptron. `spectral.direct_weights`
    exports parameters of the network with skips.

    Args:
      widths: neurons per layer, N_1, ..., N_{B+1}, from the input to the output.
      activation: f, elementwise; there is none in the last layer.
      bias: whether every layer has biases, which start at 0.
      skips: whether every layer is joined to all later ones, or only to the next.
      weights: an initializer of W_ij^T, shape (N_j, N_i), bundle by bundle; by default Xavier uniform.

    Returns:
      A model for inputs of shape (..., widths[0]), with outputs of shape (..., widths[-1]) and parameters
      `{"W2_1": (N_2, N_1), "W3_1": (N_3, N_1), "W3_2": (N_3, N_2), ..., "b2": (N_2,), ...}`.

    Raises:
      ArgumentError: widths that are not at least two positive integers; an activation that is not
        elementwise.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> model = jaxarch.direct_network((2, 3, 1))
      >>> params, state = model.init(jax.random.key(0))
      >>> {name: matrix.shape for name, matrix in params.items()}
      {'W2_1': (3, 2), 'W3_1': (1, 2), 'W3_2': (1, 3)}
      >>> ones = jax.tree.map(jnp.ones_like, params)
      >>> print(model.apply(ones, state, jnp.array([[1.0, 2.0]]), None)[0])  # 3 relu(1 + 2) + (1 + 2)
      [[12.]]
    """
    check_widths(widths)
    check_activation(activation)
    check_flag("bias", bias)
    check_flag("skips", skips)
    check_callable("weights", weights, "key", "shape")
    layers = range(1, len(widths) + 1)
    shapes = {
        f"W{i}_{j}": (widths[j - 1], widths[i - 1])
        for i in layers[1:]
        for j in range(1 if skips else i - 1, i)
    }

    def init(key: Array) -> tuple[PyTree, PyTree]:
        keys = jax.random.split(key, len(shapes))
        params = {name: weights(k, shape).T for k, (name, shape) in zip(keys, shapes.items(), strict=True)}
        if bias:
            params |= {f"b{i}": jnp.zeros(widths[i - 1]) for i in layers[1:]}
        return params, {}

    def apply(params: PyTree, state: PyTree, x: Array, key: Key) -> tuple[Array, PyTree]:
        if direct_widths(params) != tuple(widths):
            raise ArgumentError(
                f"params: the network has widths {tuple(widths)}, got {direct_widths(params)}"
            )
        return direct_feedforward(params, x, activation), state

    return Model(init, apply)

"""Multi-layer perceptrons."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from flax import nnx
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_widths
from jaxarch.models._parents.checks import check_counts
from jaxarch.spectral._network import Activation


class MLP(nnx.Module):
    """A multi-layer perceptron: `x <- f(x W + b)`, layer after layer, without f in the last.

    Attributes:
      layers: dense layers, with `layers/0/kernel` of shape (widths[0], widths[1]) and so on.

    Args:
      widths: neurons per layer, from the input to the output.
      activation: f, elementwise.
      rngs: kernels are drawn from `rngs.params()`.

    Raises:
      ArgumentError: widths that are not at least two positive integers; inputs of another size.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> from flax import nnx
      >>> model = jaxarch.models.MLP((64, 32, 10), rngs=nnx.Rngs(0))
      >>> model(jnp.ones((5, 8, 8))).shape
      (5, 10)
    """

    def __init__(self, widths: Sequence[int], *, activation: Activation = nnx.relu, rngs: nnx.Rngs) -> None:
        check_widths(widths)
        self.layers = nnx.List(nnx.Linear(before, after, rngs=rngs) for before, after in pairwise(widths))
        self.activation = activation

    def __call__(self, x: Array) -> Array:
        """Return outputs (batch, widths[-1]) for inputs of shape (batch, ...), each of widths[0] numbers."""
        inputs = self.layers[0].in_features
        if x.size != x.shape[0] * inputs:
            raise ArgumentError(
                f"x: expected {inputs} numbers per example, got examples of shape {x.shape[1:]}"
            )
        return perceptron(self.layers, self.activation, x.reshape(-1, inputs))


class LeNet300100(MLP):
    """LeNet-300-100: a perceptron of 300 and 100 hidden neurons, for the images of MNIST.

    Y. LeCun et al., Gradient-based learning applied to document recognition, 1998. With ReLU it is the
    network of J. Frankle, M. Carbin, The Lottery Ticket Hypothesis, 2019, figure 2: 266,200 connections.

    Args:
      inputs: numbers per image, by default 28 x 28.
      outputs: one per class.
      activation: f, elementwise.
      rngs: kernels are drawn from `rngs.params()`.

    Raises:
      ArgumentError: sizes that are not positive integers; inputs of another size.

    Example:
      >>> import jaxarch
      >>> from flax import nnx
      >>> model = nnx.eval_shape(lambda: jaxarch.models.LeNet300100(rngs=nnx.Rngs(0)))
      >>> kernels = jaxarch.named_leaves(jaxarch.select(nnx.state(model, nnx.Param)))
      >>> {path: leaf.shape for path, leaf in kernels.items()}
      {'layers/0/kernel': (784, 300), 'layers/1/kernel': (300, 100), 'layers/2/kernel': (100, 10)}
    """

    def __init__(
        self,
        *,
        inputs: int = 784,
        outputs: int = 10,
        activation: Activation = nnx.relu,
        rngs: nnx.Rngs,
    ) -> None:
        check_counts(inputs=inputs, outputs=outputs)
        super().__init__((inputs, 300, 100, outputs), activation=activation, rngs=rngs)


def perceptron(layers: nnx.List, activation: Activation, x: Array) -> Array:
    """Apply `x <- f(x W + b)`, layer after layer, without f in the last."""
    *hidden, last = layers
    for layer in hidden:
        x = activation(layer(x))
    return last(x)

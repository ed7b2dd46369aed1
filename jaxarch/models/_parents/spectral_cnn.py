"""A gated spectral network for images as a Flax NNX module: every layer joined to all later ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_count, shown
from jaxarch.models._flax_models import Neurons
from jaxarch.models._parents.checks import check_counts, check_pictures
from jaxarch.models._spectral_network import RANDOM
from jaxarch.spectral._convolution import convolutional_feedforward
from jaxarch.spectral._network import Activation, Initializer, check_activation, xavier_uniform


class SpectralCNN(nnx.Module):
    """A convolutional network with all skip connections that recruits channels: one eigenvalue per channel.

    It is the gated form for images (`spectral.convolutional_feedforward`): kernels between neighboring
    layers, and 1x1 kernels, strided where images shrink, from each layer to all later ones. The 1x1 kernels
    are products of the centers of the kernels in between. The network therefore has the parameters of an
    ordinary convolutional network, and one more per channel. The mean over the last image goes to the
    outputs, which also have skip connections from all images. There is no batch norm.

    `jaxarch.search.spectral` penalizes its hidden eigenvalues, `search.spectral_depth` removes its layers,
    `jaxarch.recruit` removes channels, and `spectral.convolutional_weights(params, model.strides, state)`
    exports the remaining network.

    Attributes:
      factors: `phi1, ..., phiB`, parameters of shape (k, k, N_i, N_{i+1}), the last (1, 1, N_B, N_{B+1}).
      eigenvalues: `L2, ..., L{B+1}`, parameters of shape (N_i,).
      neurons: `L2, ..., LB`, booleans of shape (N_i,), the channels that are left: all at first.
      strides: the stride of every convolution.

    Args:
      channels: channels of each hidden layer, N_2, ..., N_B.
      strides: the stride of each convolution; by default 1 first, and then 2 where the number of channels
        changes.
      kernel: k, odd.
      activation: f, elementwise. With `jax.nn.relu` an eigenvalue that is exactly 0 stays 0.
      eigenvalues: initializer `(key, shape) -> values` of the hidden eigenvalues; the outputs' start at 1.
      inputs: channels of the images.
      outputs: one per class.
      rngs: kernels and hidden eigenvalues are drawn from `rngs.params()`, Xavier uniform. Centers are drawn
        as 1x1 kernels and the rest as k x k ones, so that skip connections carry as much as others.

    Raises:
      ArgumentError: sizes that are not positive integers; an even kernel; a wrong number of strides; an
        activation that is not elementwise; images of another form.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> from flax import nnx
      >>> model = jaxarch.SpectralCNN((8, 8, 16), inputs=3, outputs=10, rngs=nnx.Rngs(0))
      >>> model.strides, model(jnp.ones((5, 32, 32, 3))).shape
      ((1, 1, 2), (5, 10))
    """

    def __init__(
        self,
        channels: Sequence[int],
        *,
        strides: Sequence[int] | None = None,
        kernel: int = 3,
        activation: Activation = jax.nn.relu,
        eigenvalues: Initializer = RANDOM,
        inputs: int,
        outputs: int,
        rngs: nnx.Rngs,
    ) -> None:
        if not isinstance(channels, Sequence) or not channels:
            raise ArgumentError(f"channels: expected positive integers, got {shown(channels)}")
        check_counts(inputs=inputs, outputs=outputs, channels=channels)
        check_count("kernel", kernel)
        if kernel % 2 == 0:
            raise ArgumentError(f"kernel: expected an odd number, so that it has a centre, got {kernel}")
        check_activation(activation)
        if strides is None:
            strides = strides_of(channels)
        if len(strides) != len(channels):
            raise ArgumentError(
                f"strides: expected {len(channels)}, one for each hidden layer, got {shown(strides)}"
            )
        check_counts(strides=strides)
        self.strides = tuple(strides)
        self._activation = activation
        widths = [inputs, *channels, outputs]
        sizes = [kernel] * len(channels) + [1]
        self.factors = nnx.Dict(
            {
                f"phi{i}": nnx.Param(_kernel(rngs.params(), size, *shape))
                for i, (size, shape) in enumerate(zip(sizes, pairwise(widths), strict=True), 1)
            }
        )
        hidden = {f"L{i}": eigenvalues(rngs.params(), (width,)) for i, width in enumerate(channels, 2)}
        last = {f"L{len(widths)}": jnp.ones(outputs)}
        self.eigenvalues = nnx.Dict({name: nnx.Param(values) for name, values in (hidden | last).items()})
        self.neurons = nnx.Dict(
            {name: Neurons(jnp.ones(values.shape, bool)) for name, values in hidden.items()}
        )

    def __call__(self, x: Array) -> Array:
        """Return outputs of shape (batch, outputs) for images of shape (batch, height, width, inputs)."""
        factors, eigenvalues, neurons = (
            [variable[...] for _, variable in sorted(variables.items(), key=_number)]
            for variables in (self.factors, self.eigenvalues, self.neurons)
        )
        check_pictures(x, factors[0].shape[2])
        return convolutional_feedforward(factors, eigenvalues, x, self.strides, self._activation, neurons)


def strides_of(channels: Sequence[int]) -> tuple[int, ...]:
    """Return 1 first, and then 2 where the number of channels changes, else 1."""
    return (1, *(1 if a == b else 2 for a, b in pairwise(channels)))


def _number(item: tuple[str, object]) -> int:
    """Return the number of a layer from its name, such as phi2 or L10."""
    return int(item[0].lstrip("phiL"))


def _kernel(key: Array, size: int, inputs: int, outputs: int) -> Array:
    """Return a kernel whose center is drawn like a 1x1 kernel."""
    around, centre = jax.random.split(key)
    drawn = xavier_uniform(centre, (1, 1, inputs, outputs))
    if size == 1:
        return drawn
    return xavier_uniform(around, (size, size, inputs, outputs)).at[size // 2, size // 2].set(drawn[0, 0])

"""A gated spectral network of pictures as a Flax NNX module: every layer joined to all later ones."""

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
    """A convolutional network with all skip connections that recruits channels: an eigenvalue is a channel.

    The gated form for pictures (`spectral.convolutional_feedforward`): kernels between neighbouring layers,
    1x1 kernels, strided where pictures shrink, from each layer to all later ones. These are products of the
    centres of the kernels between, so that it has the parameters of an ordinary convolutional network and
    one for each channel more. The mean over the last picture goes to the outputs, which have skip connections
    from all pictures too. There is no batch norm.

    `jaxarch.search.spectral` penalises its hidden eigenvalues, `search.spectral_depth` takes out its layers,
    `jaxarch.recruit` removes channels, and `spectral.convolutional_weights(params, model.strides, state)`
    exports what is left.

    Attributes:
      factors: `phi1, ..., phiB`, parameters of shape (k, k, N_i, N_{i+1}), the last (1, 1, N_B, N_{B+1}).
      eigenvalues: `L2, ..., L{B+1}`, parameters of shape (N_i,).
      neurons: `L2, ..., LB`, booleans of shape (N_i,), the channels that are left: all at first.
      strides: of every convolution.

    Args:
      channels: of each hidden layer, N_2, ..., N_B.
      strides: of each convolution; by default 2 where there are other channels than before, but 1 first.
      kernel: k, odd.
      activation: f, elementwise. With `jax.nn.relu` an eigenvalue that is exactly 0 stays 0.
      eigenvalues: `(key, shape) -> values`, how hidden ones start; those of the outputs start at 1.
      inputs: channels of the pictures.
      outputs: one a class.
      rngs: kernels and hidden eigenvalues are drawn from `rngs.params()`: the centres as 1x1 kernels and all
        else as k x k ones, Xavier uniform, so that skip connections carry as much as others.

    Raises:
      ArgumentError: sizes that are not positive integers; an even kernel; strides of another number; an
        activation that is not elementwise; pictures of another form.

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
            raise ArgumentError(f"kernel: expected an odd number, for it to have a centre, got {kernel}")
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
        """Outputs of shape (batch, outputs) for pictures of shape (batch, height, width, inputs)."""
        factors, eigenvalues, neurons = (
            [variable[...] for _, variable in sorted(variables.items(), key=_number)]
            for variables in (self.factors, self.eigenvalues, self.neurons)
        )
        check_pictures(x, factors[0].shape[2])
        return convolutional_feedforward(factors, eigenvalues, x, self.strides, self._activation, neurons)


def strides_of(channels: Sequence[int]) -> tuple[int, ...]:
    """2 where there are other channels than before, but 1 first."""
    return (1, *(1 if a == b else 2 for a, b in pairwise(channels)))


def _number(item: tuple[str, object]) -> int:
    """Of a layer, by its name: phi2, L10."""
    return int(item[0].lstrip("phiL"))


def _kernel(key: Array, size: int, inputs: int, outputs: int) -> Array:
    """A kernel whose centre is drawn as a 1x1 kernel is."""
    around, centre = jax.random.split(key)
    drawn = xavier_uniform(centre, (1, 1, inputs, outputs))
    if size == 1:
        return drawn
    return xavier_uniform(around, (size, size, inputs, outputs)).at[size // 2, size // 2].set(drawn[0, 0])

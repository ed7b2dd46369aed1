"""Parent models to find architectures in, in Flax NNX: dense, convolutional and attention networks.

A problem takes them as functions of rngs: `lambda rngs: models.CNN(inputs=3, outputs=10, rngs=rngs)`. Their
kernels are masked by default; biases, the scales of norms and positional embeddings are not. The paths of
the kernels, sorted, are in the order of the data flow from layer to layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import jax.numpy as jnp
from flax import nnx
from jax import Array

from jaxarch.errors import ArgumentError, check_count, check_positive, check_widths, shown
from jaxarch.spectral.network import Activation


class MLP(nnx.Module):
    """A multi-layer perceptron: `x <- f(x W + b)`, layer after layer, without f in the last.

    Attributes:
      layers: dense, `layers/0/kernel` of shape (widths[0], widths[1]) and so on.

    Args:
      widths: neurons a layer: those of the input first, of the output last.
      activation: f, elementwise.
      rngs: kernels are drawn from `rngs.params()`.

    Raises:
      ArgumentError: widths that are not at least two positive integers; inputs of another size.
    """

    def __init__(self, widths: Sequence[int], *, activation: Activation = nnx.relu, rngs: nnx.Rngs) -> None:
        check_widths(widths)
        self.layers = _dense(widths, rngs)
        self.activation = activation

    def __call__(self, x: Array) -> Array:
        """Outputs of shape (batch, widths[-1]) for inputs of shape (batch, ...), each widths[0] numbers."""
        inputs = self.layers[0].in_features
        if x.size != x.shape[0] * inputs:
            raise ArgumentError(f"x: expected {inputs} numbers an example, got shape {x.shape[1:]}")
        return _perceptron(self.layers, self.activation, x.reshape(-1, inputs))


class CNN(nnx.Module):
    """A convolutional network: stages of 3x3 convolutions, each of which ends in 2x2 max pooling.

    Convolutions have stride 1, padding with zeros and no bias; batch norm and ReLU follow each. The mean
    over what is left of the picture goes to a dense head.

    Attributes:
      convolutions: all in order, `convolutions/0/kernel` of shape (3, 3, inputs, channels) and so on.
      norms: their batch norms (S. Ioffe, C. Szegedy, Batch Normalization, 2015). Running averages, of
        momentum .9, are state.
      head: the dense layer, `head/kernel`.

    Args:
      channels: of every stage; a sequence for one of several convolutions: `(64, (128, 128))`.
      inputs: channels of the pictures.
      outputs: of the head, one a class.
      rngs: kernels are drawn from `rngs.params()`.

    Raises:
      ArgumentError: sizes that are not positive integers; pictures of another form, or too small.
    """

    def __init__(
        self,
        channels: Sequence[int | Sequence[int]] = (16, 32, 64),
        *,
        inputs: int,
        outputs: int,
        rngs: nnx.Rngs,
    ) -> None:
        if not isinstance(channels, Sequence) or not channels or not all(channels):
            raise ArgumentError(
                f"channels: expected positive integers, or some for a stage, got {shown(channels)}"
            )
        stages = [stage if isinstance(stage, Sequence) else [stage] for stage in channels]
        widths = [inputs, *(width for stage in stages for width in stage)]
        _check_counts(inputs=inputs, outputs=outputs, channels=widths[1:])
        self.convolutions = nnx.List(
            nnx.Conv(before, after, (3, 3), use_bias=False, rngs=rngs) for before, after in pairwise(widths)
        )
        self.norms = nnx.List(nnx.BatchNorm(width, momentum=0.9, rngs=rngs) for width in widths[1:])
        self.head = nnx.Linear(widths[-1], outputs, rngs=rngs)
        self.stages = tuple(len(stage) for stage in stages)

    def __call__(self, x: Array) -> Array:
        """Outputs of shape (batch, outputs) for pictures of shape (batch, height, width, inputs)."""
        inputs, least = self.convolutions[0].in_features, 2 ** len(self.stages)
        if x.ndim != 4 or x.shape[3] != inputs or min(x.shape[1:3]) < least:
            raise ArgumentError(
                f"x: expected pictures of shape (batch, height, width, {inputs}), height and width at least "
                f"{least}, got {x.shape}"
            )
        layers = zip(self.convolutions, self.norms, strict=True)
        for convolutions in self.stages:
            for _ in range(convolutions):
                convolution, norm = next(layers)
                x = nnx.relu(norm(convolution(x)))
            x = nnx.max_pool(x, (2, 2), (2, 2))
        return self.head(x.mean((1, 2)))


class VGG19(CNN):
    """VGG19 for small pictures: 16 convolutions in five stages, and one dense layer.

    K. Simonyan, A. Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, 2014,
    configuration E, in the form that is usual on CIFAR: with batch norm, and one dense layer in place of
    three. With 3 inputs and 10 outputs it has 20.0 million connections. [A] section 3.2 has 'D ~ 144 m',
    which is the form for ImageNet, with 124 million in its dense layers.

    Args:
      width: a factor of the channels, which at 1 are 64, 128, 256, 512 and 512 in the five stages.
      inputs: channels of the pictures, which are at least 32 x 32.
      outputs: of the head, one a class.
      rngs: kernels are drawn from `rngs.params()`.

    Raises:
      ArgumentError: a width that is not positive; otherwise as `CNN`.
    """

    def __init__(self, width: float = 1.0, *, inputs: int, outputs: int, rngs: nnx.Rngs) -> None:
        check_positive("width", width)
        stages = ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))
        channels = [[max(round(width * size), 1)] * convolutions for convolutions, size in stages]
        super().__init__(channels, inputs=inputs, outputs=outputs, rngs=rngs)


class VisionTransformer(nnx.Module):
    """A small vision transformer: embedded patches of the pictures, and blocks of self-attention over them.

    A. Dosovitskiy et al., An Image is Worth 16x16 Words, 2021. In place of its class token the head takes
    the mean over all patches, as in L. Beyer et al., Better plain ViT baselines for ImageNet-1k, 2022.

    Attributes:
      embedding: dense, `embedding/kernel` of shape (patch^2 inputs, features).
      positions: `positions/bias`, shape (patches, features): learned, added to the embedded patches, and
        named so because it is a bias, which is not masked.
      encoder: the blocks, `encoder/0/attention/query/kernel`, `encoder/0/layers/0/kernel` and so on.
      norm: the layer norm after them.
      head: dense, `head/kernel`.

    Args:
      depth: blocks.
      features: of a patch; a multiple of `heads`.
      heads: of the attention.
      hidden: neurons in the hidden layer of a block; by default 4 times the features.
      size: height and width of the pictures, multiples of `patch`.
      patch: the side of a patch.
      dropout: its rate, in [0, 1): after the embedding, each attention and each dense layer of the blocks.
      inputs: channels of the pictures.
      outputs: of the head, one a class.
      rngs: kernels are drawn from `rngs.params()`, dropout from `rngs.dropout()`.

    Raises:
      ArgumentError: sizes that are not positive integers, or not the multiples that they must be; a rate
        outside [0, 1); pictures of another form.
    """

    def __init__(
        self,
        depth: int = 6,
        features: int = 64,
        *,
        heads: int = 4,
        hidden: int | None = None,
        size: tuple[int, int] = (32, 32),
        patch: int = 4,
        dropout: float = 0.0,
        inputs: int,
        outputs: int,
        rngs: nnx.Rngs,
    ) -> None:
        hidden = 4 * features if hidden is None else hidden
        if not isinstance(size, Sequence) or len(size) != 2:
            raise ArgumentError(f"size: expected height and width, got {shown(size)}")
        height, width = size
        _check_counts(depth=depth, features=features, heads=heads, hidden=hidden, size=size, patch=patch)
        _check_counts(inputs=inputs, outputs=outputs)
        if height % patch or width % patch:
            raise ArgumentError(f"size: expected multiples of patch = {patch}, got {size}")
        if features % heads:
            raise ArgumentError(f"features: expected a multiple of heads = {heads}, got {features}")
        if not 0 <= dropout < 1:
            raise ArgumentError(f"dropout: expected a rate in [0, 1), got {shown(dropout)}")
        patches = (height // patch) * (width // patch)
        positions = nnx.initializers.normal(0.02)(rngs.params(), (patches, features))
        self.embedding = nnx.Linear(patch * patch * inputs, features, rngs=rngs)
        self.positions = nnx.Dict(bias=nnx.Param(positions))
        self.dropout = nnx.Dropout(dropout, rngs=rngs)
        self.encoder = nnx.List(
            EncoderBlock(features, heads, hidden, dropout, rngs=rngs) for _ in range(depth)
        )
        self.norm = nnx.LayerNorm(features, rngs=rngs)
        self.head = nnx.Linear(features, outputs, rngs=rngs)
        self.shape = (height, width, inputs)
        self.patch = patch

    def __call__(self, x: Array) -> Array:
        """Outputs of shape (batch, outputs) for pictures of shape (batch, height, width, inputs)."""
        if x.shape[1:] != self.shape:
            expected = ", ".join(map(str, self.shape))
            raise ArgumentError(f"x: expected pictures of shape (batch, {expected}), got {x.shape}")
        height, width, inputs = self.shape
        side = self.patch
        x = x.reshape(-1, height // side, side, width // side, side, inputs)
        x = jnp.swapaxes(x, 2, 3).reshape(x.shape[0], -1, side * side * inputs)
        x = self.dropout(self.embedding(x) + self.positions["bias"][None])
        for block in self.encoder:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class EncoderBlock(nnx.Module):
    """Of a transformer, with norms first: `x <- x + attention(norm(x))`, `x <- x + perceptron(norm(x))`."""

    def __init__(self, features: int, heads: int, hidden: int, dropout: float, *, rngs: nnx.Rngs) -> None:
        self.attention = nnx.MultiHeadAttention(heads, features, decode=False, rngs=rngs)
        self.layers = _dense((features, hidden, features), rngs)
        self.norms = nnx.List(nnx.LayerNorm(features, rngs=rngs) for _ in range(2))
        self.dropout = nnx.Dropout(dropout, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """The same shape, (batch, patches, features)."""
        before, between = self.norms
        x = x + self.dropout(self.attention(before(x)))
        return x + self.dropout(_perceptron(self.layers, self._activation, between(x)))

    def _activation(self, x: Array) -> Array:
        return self.dropout(nnx.gelu(x))


def _dense(widths: Sequence[int], rngs: nnx.Rngs) -> nnx.List:
    return nnx.List(nnx.Linear(before, after, rngs=rngs) for before, after in pairwise(widths))


def _perceptron(layers: nnx.List, activation: Activation, x: Array) -> Array:
    *hidden, last = layers
    for layer in hidden:
        x = activation(layer(x))
    return last(x)


def _check_counts(**sizes: int | Sequence[int]) -> None:
    for name, given in sizes.items():
        for size in given if isinstance(given, Sequence) else [given]:
            check_count(name, size)

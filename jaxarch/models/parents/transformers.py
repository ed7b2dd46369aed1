"""Transformers: a vision transformer."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from flax import nnx
from jax import Array

from jaxarch.errors import ArgumentError, shown
from jaxarch.models.parents.checks import check_counts
from jaxarch.models.parents.perceptrons import dense, perceptron


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
        check_counts(depth=depth, features=features, heads=heads, hidden=hidden, size=size, patch=patch)
        check_counts(inputs=inputs, outputs=outputs)
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
        self.layers = dense((features, hidden, features), rngs)
        self.norms = nnx.List(nnx.LayerNorm(features, rngs=rngs) for _ in range(2))
        self.dropout = nnx.Dropout(dropout, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """The same shape, (batch, patches, features)."""
        before, between = self.norms
        x = x + self.dropout(self.attention(before(x)))
        return x + self.dropout(perceptron(self.layers, self._activation, between(x)))

    def _activation(self, x: Array) -> Array:
        return self.dropout(nnx.gelu(x))

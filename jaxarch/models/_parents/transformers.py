"""Transformers for images and language: blocks of self-attention with the norms first."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.nn.initializers import Initializer

from jaxarch._internal.errors import ArgumentError, check_flag, shown
from jaxarch.models._parents.checks import check_counts
from jaxarch.models._parents.perceptrons import perceptron

LECUN_NORMAL = nnx.initializers.lecun_normal()
"""Default initializer of Flax's dense layers."""


class VisionTransformer(nnx.Module):
    """A small vision transformer: embedded patches of the images, and blocks of self-attention over them.

    A. Dosovitskiy et al., An Image is Worth 16x16 Words, 2021. Instead of a class token, the head gets the
    mean over all patches, as in L. Beyer et al., Better plain ViT baselines for ImageNet-1k, 2022.

    Attributes:
      embedding: dense, `embedding/kernel` of shape (patch^2 inputs, features).
      positions: `positions/bias`, shape (patches, features): learned, added to the embedded patches. It is
        called a bias so that it is not masked.
      encoder: the blocks, `encoder/0/attention/query/kernel`, `encoder/0/layers/0/kernel` and so on.
      norm: the layer norm after them.
      head: dense, `head/kernel`.

    Args:
      depth: number of blocks.
      features: features of a patch; a multiple of `heads`.
      heads: heads of the attention.
      hidden: neurons in the hidden layer of a block; by default 4 times the features.
      size: height and width of the images, multiples of `patch`.
      patch: the side of a patch.
      dropout: dropout rate, in [0, 1), after the embedding, each attention and each dense layer of the
        blocks.
      inputs: channels of the images.
      outputs: outputs of the head, one per class.
      rngs: kernels are drawn from `rngs.params()`, dropout from `rngs.dropout()`.

    Raises:
      ArgumentError: sizes that are not positive integers, or not the required multiples; a rate outside
        [0, 1); images of another form.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> from flax import nnx
      >>> def outputs(x):
      ...     model = jaxarch.models.VisionTransformer(size=(8, 8), inputs=1, outputs=10, rngs=nnx.Rngs(0))
      ...     return model(x)
      >>> nnx.eval_shape(outputs, jnp.ones((5, 8, 8, 1))).shape
      (5, 10)
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
            raise ArgumentError(f"size: expected multiples of patch={patch}, got {size}")
        _check_blocks(features, heads, dropout)
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
        """Return outputs of shape (batch, outputs) for images of shape (batch, height, width, inputs)."""
        if x.shape[1:] != self.shape:
            expected = ", ".join(map(str, self.shape))
            raise ArgumentError(f"x: expected images of shape (batch, {expected}), got {x.shape}")
        height, width, inputs = self.shape
        side = self.patch
        x = x.reshape(-1, height // side, side, width // side, side, inputs)
        x = jnp.swapaxes(x, 2, 3).reshape(x.shape[0], -1, side * side * inputs)
        x = self.dropout(self.embedding(x) + self.positions["bias"][None])
        for block in self.encoder:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class GPT(nnx.Module):
    """A small language model: embedded tokens, and blocks of causal self-attention over them.

    A. Radford et al., Language Models are Unsupervised Multitask Learners, 2019 (GPT-2), section 2.3. Norms
    come first in the blocks, and once more after them. Kernels and embeddings start as N(0, .02). Those that
    end a branch of a block start as N(0, .02 / sqrt(2 depth)), since 2 depth of them are summed. GPT-2 also
    ties the head to the embedding, and applies dropout to attention weights.

    Attributes:
      embedding: `embedding/embedding`, shape (vocabulary, features).
      positions: `positions/bias`, shape (length, features): learned, added to the embedded tokens. It is
        called a bias so that it is not masked.
      encoder: the blocks, `encoder/0/attention/query/kernel`, `encoder/0/layers/0/kernel` and so on.
      norm: the layer norm after them.
      head: dense without bias, `head/kernel` of shape (features, vocabulary); `None` if it is tied.

    Args:
      depth: number of blocks.
      features: features of a token; a multiple of `heads`.
      heads: heads of the attention.
      hidden: neurons in the hidden layer of a block, with GELU; by default 4 times the features.
      length: the maximum number of tokens of a text.
      dropout: dropout rate, in [0, 1), after the embedding, each attention and each dense layer of the
        blocks.
      tied: whether the logits are products with the embedding, which is then one parameter with one mask.
      vocabulary: the number of tokens.
      rngs: kernels are drawn from `rngs.params()`, dropout from `rngs.dropout()`.

    Raises:
      ArgumentError: sizes that are not positive integers; features that are not a multiple of the heads; a
        rate outside [0, 1); a `tied` that is not a boolean; inputs that are not integers, of another form, or
        too long.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> from flax import nnx
      >>> def logits(tokens):
      ...     return jaxarch.models.GPT(length=16, vocabulary=50, rngs=nnx.Rngs(0))(tokens)
      >>> nnx.eval_shape(logits, jnp.zeros((5, 16), int)).shape
      (5, 16, 50)
    """

    def __init__(
        self,
        depth: int = 6,
        features: int = 64,
        *,
        heads: int = 4,
        hidden: int | None = None,
        length: int = 256,
        dropout: float = 0.0,
        tied: bool = False,
        vocabulary: int,
        rngs: nnx.Rngs,
    ) -> None:
        hidden = 4 * features if hidden is None else hidden
        check_counts(depth=depth, features=features, heads=heads, hidden=hidden, length=length)
        check_counts(vocabulary=vocabulary)
        _check_blocks(features, heads, dropout)
        check_flag("tied", tied)
        start, last = (nnx.initializers.normal(0.02 * scale) for scale in (1, (2 * depth) ** -0.5))
        self.embedding = nnx.Embed(vocabulary, features, embedding_init=start, rngs=rngs)
        self.positions = nnx.Dict(bias=nnx.Param(start(rngs.params(), (length, features))))
        self.dropout = nnx.Dropout(dropout, rngs=rngs)
        self.encoder = nnx.List(
            EncoderBlock(features, heads, hidden, dropout, causal=True, start=start, last=last, rngs=rngs)
            for _ in range(depth)
        )
        self.norm = nnx.LayerNorm(features, rngs=rngs)
        self.head = (
            None if tied else nnx.Linear(features, vocabulary, use_bias=False, kernel_init=start, rngs=rngs)
        )

    def __call__(self, x: Array) -> Array:
        """Return logits of the next token, (batch, length, vocabulary), for tokens of shape (batch, length).

        Logits at a position depend on the tokens there and before. A token beyond the vocabulary makes NaN.
        """
        longest = self.positions["bias"].shape[0]
        if x.ndim != 2 or not jnp.issubdtype(x.dtype, jnp.integer) or x.shape[1] > longest:
            raise ArgumentError(
                f"x: expected integers of shape (batch, length) with length at most {longest}, got "
                f"{x.dtype} of shape {x.shape}"
            )
        x = self.dropout(self.embedding(x) + self.positions["bias"][None, : x.shape[1]])
        for block in self.encoder:
            x = block(x)
        x = self.norm(x)
        return self.embedding.attend(x) if self.head is None else self.head(x)


class EncoderBlock(nnx.Module):
    """Block of a transformer, norms first: `x <- x + attention(norm(x))`, `x <- x + perceptron(norm(x))`.

    Args:
      features: features of a patch or token.
      heads: heads of the attention.
      hidden: neurons of the perceptron's hidden layer.
      dropout: dropout rate, after the attention and each layer of the perceptron.
      causal: whether attention excludes later positions.
      start: initializer of the kernels.
      last: initializer of the kernels that end the two branches: the attention's and the perceptron's output.
      rngs: random streams for the kernels and for dropout.
    """

    def __init__(
        self,
        features: int,
        heads: int,
        hidden: int,
        dropout: float,
        *,
        causal: bool = False,
        start: Initializer = LECUN_NORMAL,
        last: Initializer = LECUN_NORMAL,
        rngs: nnx.Rngs,
    ) -> None:
        self.attention = nnx.MultiHeadAttention(
            heads, features, kernel_init=start, out_kernel_init=last, decode=False, rngs=rngs
        )
        self.layers = nnx.List(
            [
                nnx.Linear(features, hidden, kernel_init=start, rngs=rngs),
                nnx.Linear(hidden, features, kernel_init=last, rngs=rngs),
            ]
        )
        self.norms = nnx.List(nnx.LayerNorm(features, rngs=rngs) for _ in range(2))
        self.dropout = nnx.Dropout(dropout, rngs=rngs)
        self.causal = causal

    def __call__(self, x: Array) -> Array:
        """Return an array of the same shape, (batch, length, features): patches or tokens."""
        before, between = self.norms
        x = x + self.dropout(self.attention(before(x), mask=self._mask(x.shape[1])))
        return x + self.dropout(perceptron(self.layers, self._activation, between(x)))

    def _mask(self, length: int) -> Array | None:
        return jnp.tri(length, dtype=bool)[None, None] if self.causal else None

    def _activation(self, x: Array) -> Array:
        return self.dropout(nnx.gelu(x))


def _check_blocks(features: int, heads: int, dropout: float) -> None:
    if features % heads:
        raise ArgumentError(f"features: expected a multiple of heads = {heads}, got {features}")
    if not 0 <= dropout < 1:
        raise ArgumentError(f"dropout: expected a rate in [0, 1), got {shown(dropout)}")

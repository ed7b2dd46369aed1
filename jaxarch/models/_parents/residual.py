"""Residual networks for small images.

The sorted paths of their kernels follow the data flow, with one exception: the projection of a shortcut comes
after the two convolutions of its block, which it bypasses.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import jax.numpy as jnp
from flax import nnx
from jax import Array

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch.models._parents.checks import check_counts, check_pictures
from jaxarch.models._parents.convolutional import scaled

Shortcut = Literal["padding", "projection"]
"""Connection from a block's input to its output if their shapes differ."""

HE_NORMAL = nnx.initializers.variance_scaling(2.0, "fan_in", "normal")
"""N(0, sqrt(2 / n)) for n inputs of a neuron: K. He et al., Delving Deep into Rectifiers, 2015, section 2.2.

Flax's own `he_normal` is truncated at two standard deviations.
"""


class ResNet(nnx.Module):
    """A residual network of basic blocks: `x <- relu(F(x) + shortcut(x))`, F made of two 3x3 convolutions.

    K. He et al., Deep Residual Learning for Image Recognition, 2016, section 4.2. A 3x3 convolution of stride
    1 comes first, then stages of blocks. The first block of every stage except the first stage halves height
    and width. The mean over the remaining image goes to a dense head. Convolutions have no bias, and batch
    norm follows each. All kernels start as N(0, sqrt(2 / n)), n inputs per neuron.

    Attributes:
      convolution: the first convolution, `convolution/kernel` of shape (3, 3, inputs, widths[0]).
      norm: its batch norm. The running averages, with momentum .9, are state.
      encoder: the blocks of all stages, `encoder/0/convolutions/0/kernel` and so on; if a shortcut is a
        projection, `encoder/3/shortcut/kernel` of shape (1, 1, before, after).
      head: the dense layer, `head/kernel`.

    Args:
      widths: channels of every stage.
      blocks: blocks of every stage, or one number for all.
      shortcut: between different shapes, as in [He et al., section 3.3]. `padding`, option A, takes every
        second row and column, appends channels of zeros, and has no parameters. `projection`, option B, is a
        1x1 convolution with a batch norm. All other shortcuts are identities.
      inputs: channels of the images.
      outputs: outputs of the head, one per class.
      rngs: kernels are drawn from `rngs.params()`.

    Raises:
      ArgumentError: sizes that are not positive integers; different numbers of blocks and widths; another
        shortcut; decreasing widths with padded shortcuts; images of another form.
    """

    def __init__(
        self,
        widths: Sequence[int],
        blocks: int | Sequence[int],
        *,
        shortcut: Shortcut = "projection",
        inputs: int,
        outputs: int,
        rngs: nnx.Rngs,
    ) -> None:
        if not isinstance(widths, Sequence) or not widths:
            raise ArgumentError(f"widths: expected the channels of at least one stage, got {shown(widths)}")
        check_counts(inputs=inputs, outputs=outputs, widths=widths, blocks=blocks)
        if shortcut not in ("padding", "projection"):
            raise ArgumentError(f"shortcut: expected 'padding' or 'projection', got {shown(shortcut)}")
        counts = blocks if isinstance(blocks, Sequence) else [blocks] * len(widths)
        if len(counts) != len(widths):
            raise ArgumentError(
                f"blocks: expected {len(widths)} integers, one per stage, got {shown(blocks)}"
            )
        if shortcut == "padding" and any(after < before for before, after in pairwise(widths)):
            raise ArgumentError(
                "widths: expected widths that never decrease, since shortcuts are padded, got "
                f"{shown(widths)}"
            )
        each = [width for width, count in zip(widths, counts, strict=True) for _ in range(count)]
        halving = {sum(counts[:stage]) for stage in range(1, len(widths))}
        self.convolution = _convolution(inputs, widths[0], rngs=rngs)
        self.norm = _norm(widths[0], rngs)
        self.encoder = nnx.List(
            BasicBlock(before, after, 2 if index in halving else 1, shortcut, rngs=rngs)
            for index, (before, after) in enumerate(pairwise([widths[0], *each]))
        )
        self.head = nnx.Linear(widths[-1], outputs, kernel_init=HE_NORMAL, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Return outputs of shape (batch, outputs) for images of shape (batch, height, width, inputs)."""
        check_pictures(x, self.convolution.in_features)
        x = nnx.relu(self.norm(self.convolution(x)))
        for block in self.encoder:
            x = block(x)
        return self.head(x.mean((1, 2)))


class BasicBlock(nnx.Module):
    """Block of a residual network: `relu(norm(conv(relu(norm(conv(x))))) + shortcut(x))`."""

    def __init__(self, before: int, after: int, stride: int, shortcut: Shortcut, *, rngs: nnx.Rngs) -> None:
        self.convolutions = nnx.List(
            [_convolution(before, after, stride=stride, rngs=rngs), _convolution(after, after, rngs=rngs)]
        )
        self.norms = nnx.List(_norm(after, rngs) for _ in range(2))
        self.projects = shortcut == "projection" and (before, stride) != (after, 1)
        if self.projects:
            self.shortcut = _convolution(before, after, stride=stride, side=1, rngs=rngs)
            self.norms.append(_norm(after, rngs))
        self.added = after - before
        self.stride = stride

    def __call__(self, x: Array) -> Array:
        """Return an array of shape (batch, height / stride, width / stride, after), rounded up."""
        (first, second), (before, between, *_) = self.convolutions, self.norms
        change = between(second(nnx.relu(before(first(x)))))
        return nnx.relu(change + self._shortcut(x))

    def _shortcut(self, x: Array) -> Array:
        if self.projects:
            return self.norms[2](self.shortcut(x))
        x = x[:, :: self.stride, :: self.stride]
        return jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, self.added)))


class ResNet20(ResNet):
    """ResNet-20 for CIFAR: three stages of three blocks, with shortcuts that have no parameters.

    K. He et al., 2016, section 4.2, n = 3 and option A. With 3 inputs and 10 outputs it has 0.27 million
    parameters.

    Args:
      width: a factor of the channels, which at 1 are 16, 32 and 64 in the three stages.
      inputs: channels of the images.
      outputs: outputs of the head, one per class.
      rngs: kernels are drawn from `rngs.params()`.

    Raises:
      ArgumentError: a width that is not positive; otherwise as in `ResNet`.

    Example:
      >>> import jaxarch
      >>> from flax import nnx
      >>> model = nnx.eval_shape(lambda: jaxarch.models.ResNet20(inputs=3, outputs=10, rngs=nnx.Rngs(0)))
      >>> kernels = jaxarch.named_leaves(jaxarch.select(nnx.state(model, nnx.Param)))
      >>> len(kernels), sum(leaf.size for leaf in kernels.values())
      (20, 268336)
    """

    def __init__(self, width: float = 1.0, *, inputs: int, outputs: int, rngs: nnx.Rngs) -> None:
        widths = scaled(width, (16, 32, 64))
        super().__init__(widths, 3, shortcut="padding", inputs=inputs, outputs=outputs, rngs=rngs)


class ResNet18(ResNet):
    """ResNet-18 in its usual form for CIFAR: four stages of two blocks, with projections.

    K. He et al., 2016, table 1 and option B. For images of 32 x 32 it begins with a 3x3 convolution of stride
    1, without max pooling. This replaces a 7x7 one of stride 2 with max pooling. With 3 inputs and 10 outputs
    it has 11.17 million parameters.

    Args:
      width: a factor of the channels, which at 1 are 64, 128, 256 and 512 in the four stages.
      inputs: channels of the images.
      outputs: outputs of the head, one per class.
      rngs: kernels are drawn from `rngs.params()`.

    Raises:
      ArgumentError: a width that is not positive; otherwise as in `ResNet`.
    """

    def __init__(self, width: float = 1.0, *, inputs: int, outputs: int, rngs: nnx.Rngs) -> None:
        widths = scaled(width, (64, 128, 256, 512))
        super().__init__(widths, 2, shortcut="projection", inputs=inputs, outputs=outputs, rngs=rngs)


def _convolution(before: int, after: int, *, stride: int = 1, side: int = 3, rngs: nnx.Rngs) -> nnx.Conv:
    # Flax's own padding, "SAME", is asymmetric under a stride: the center of such a convolution would not
    # be at the pixels that a shortcut takes.
    return nnx.Conv(
        before,
        after,
        (side, side),
        strides=stride,
        padding=side // 2,
        use_bias=False,
        kernel_init=HE_NORMAL,
        rngs=rngs,
    )


def _norm(width: int, rngs: nnx.Rngs) -> nnx.BatchNorm:
    return nnx.BatchNorm(width, momentum=0.9, rngs=rngs)

"""Convolutional networks without skip connections: stages of convolutions between poolings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from flax import nnx
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_one_positive, shown
from jaxarch.models._parents.checks import check_counts, check_pictures


class CNN(nnx.Module):
    """A convolutional network: stages of 3x3 convolutions, each stage ending in 2x2 max pooling.

    Convolutions have stride 1, zero padding and no bias; batch norm and ReLU follow each. The mean over the
    remaining image goes to a dense head.

    Attributes:
      convolutions: all convolutions in order, with `convolutions/0/kernel` of shape (3, 3, inputs, channels)
        and so on.
      norms: their batch norms (S. Ioffe, C. Szegedy, Batch Normalization, 2015). The running averages, with
        momentum .9, are state.
      head: the dense layer, `head/kernel`.

    Args:
      channels: channels of every stage; a sequence for a stage of several convolutions: `(64, (128, 128))`.
      inputs: channels of the images.
      outputs: outputs of the head, one per class.
      rngs: kernels are drawn from `rngs.params()`.

    Raises:
      ArgumentError: sizes that are not positive integers; images of another form, or too small.

    Example:
      >>> import jaxarch
      >>> from flax import nnx
      >>> model = nnx.eval_shape(lambda: jaxarch.models.CNN((8, 16), inputs=1, outputs=10, rngs=nnx.Rngs(0)))
      >>> kernels = jaxarch.named_leaves(jaxarch.select(nnx.state(model, nnx.Param)))
      >>> {path: leaf.shape for path, leaf in kernels.items()}
      {'convolutions/0/kernel': (3, 3, 1, 8), 'convolutions/1/kernel': (3, 3, 8, 16), 'head/kernel': (16, 10)}
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
                "channels: expected positive integers, or sequences of them, one per stage, got "
                f"{shown(channels)}"
            )
        stages = [stage if isinstance(stage, Sequence) else [stage] for stage in channels]
        widths = [inputs, *(width for stage in stages for width in stage)]
        check_counts(inputs=inputs, outputs=outputs, channels=widths[1:])
        self.convolutions = nnx.List(
            nnx.Conv(before, after, (3, 3), use_bias=False, rngs=rngs) for before, after in pairwise(widths)
        )
        self.norms = nnx.List(nnx.BatchNorm(width, momentum=0.9, rngs=rngs) for width in widths[1:])
        self.head = nnx.Linear(widths[-1], outputs, rngs=rngs)
        self.stages = tuple(len(stage) for stage in stages)

    def __call__(self, x: Array) -> Array:
        """Return outputs of shape (batch, outputs) for images of shape (batch, height, width, inputs)."""
        check_pictures(x, self.convolutions[0].in_features, 2 ** len(self.stages))
        layers = zip(self.convolutions, self.norms, strict=True)
        for convolutions in self.stages:
            for _ in range(convolutions):
                convolution, norm = next(layers)
                x = nnx.relu(norm(convolution(x)))
            x = nnx.max_pool(x, (2, 2), (2, 2))
        return self.head(x.mean((1, 2)))


class VGG11(CNN):
    """VGG11 for small images: 8 convolutions in five stages, and one dense layer.

    Configuration A of K. Simonyan, A. Zisserman, 2014, in the form of `VGG19`. With 3 inputs and 10 outputs
    it has 9.2 million connections.

    Args:
      width: a factor of the channels, which at 1 are 64, 128, 256, 512 and 512 in the five stages.
      inputs: channels of the images, which are at least 32 x 32.
      outputs: outputs of the head, one per class.
      rngs: kernels are drawn from `rngs.params()`.

    Raises:
      ArgumentError: a width that is not positive; otherwise as in `CNN`.
    """

    def __init__(self, width: float = 1.0, *, inputs: int, outputs: int, rngs: nnx.Rngs) -> None:
        super().__init__(_vgg(width, (1, 1, 2, 2, 2)), inputs=inputs, outputs=outputs, rngs=rngs)


class VGG16(CNN):
    """VGG16 for small images: 13 convolutions in five stages, and one dense layer.

    Configuration D of K. Simonyan, A. Zisserman, 2014, in the form of `VGG19`. With 3 inputs and 10 outputs
    it has 14.7 million connections.

    Args:
      width: a factor of the channels, which at 1 are 64, 128, 256, 512 and 512 in the five stages.
      inputs: channels of the images, which are at least 32 x 32.
      outputs: outputs of the head, one per class.
      rngs: kernels are drawn from `rngs.params()`.

    Raises:
      ArgumentError: a width that is not positive; otherwise as in `CNN`.
    """

    def __init__(self, width: float = 1.0, *, inputs: int, outputs: int, rngs: nnx.Rngs) -> None:
        super().__init__(_vgg(width, (2, 2, 3, 3, 3)), inputs=inputs, outputs=outputs, rngs=rngs)


class VGG19(CNN):
    """VGG19 for small images: 16 convolutions in five stages, and one dense layer.

    K. Simonyan, A. Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, 2014,
    configuration E, in its usual form for CIFAR: with batch norm, and one dense layer instead of three. With
    3 inputs and 10 outputs it has 20.0 million connections. [A] section 3.2 says 'D ~ 144 m', which is the
    form for ImageNet, with 124 million in its dense layers.

    Args:
      width: a factor of the channels, which at 1 are 64, 128, 256, 512 and 512 in the five stages.
      inputs: channels of the images, which are at least 32 x 32.
      outputs: outputs of the head, one per class.
      rngs: kernels are drawn from `rngs.params()`.

    Raises:
      ArgumentError: a width that is not positive; otherwise as in `CNN`.

    Example:
      >>> import jaxarch
      >>> from flax import nnx
      >>> model = nnx.eval_shape(lambda: jaxarch.models.VGG19(inputs=3, outputs=10, rngs=nnx.Rngs(0)))
      >>> kernels = jaxarch.named_leaves(jaxarch.select(nnx.state(model, nnx.Param)))
      >>> len(kernels), sum(leaf.size for leaf in kernels.values())
      (17, 20024000)
    """

    def __init__(self, width: float = 1.0, *, inputs: int, outputs: int, rngs: nnx.Rngs) -> None:
        super().__init__(_vgg(width, (2, 2, 4, 4, 4)), inputs=inputs, outputs=outputs, rngs=rngs)


def _vgg(width: float, convolutions: Sequence[int]) -> list[list[int]]:
    """Return the channels of each stage's convolutions."""
    sizes = scaled(width, (64, 128, 256, 512, 512))
    return [[size] * count for size, count in zip(sizes, convolutions, strict=True)]


def scaled(width: float, sizes: Sequence[int]) -> list[int]:
    """Multiply numbers of channels by a factor, and round them to at least 1.

    Raises:
      ArgumentError: a width that is not one positive number.
    """
    check_one_positive("width", width)
    return [max(round(width * size), 1) for size in sizes]

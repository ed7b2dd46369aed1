"""Networks with batch norm and without skip connections, the rivals that network slimming prunes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from flax import nnx
from jax import Array

MOMENTUM = 0.9


class NormalisedMLP(nnx.Module):
    """Dense layers, all but the last with batch norm and ReLU.

    Args:
      widths: neurons of each layer, inputs first, outputs last.
      rngs: `params`.
    """

    def __init__(self, widths: Sequence[int], *, rngs: nnx.Rngs) -> None:
        *hidden, last = pairwise(widths)
        self.layers = nnx.List(nnx.Linear(*shape, use_bias=False, rngs=rngs) for shape in hidden)
        self.norms = nnx.List(nnx.BatchNorm(n, momentum=MOMENTUM, rngs=rngs) for _, n in hidden)
        self.head = nnx.Linear(*last, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Compute outputs of shape (batch, widths[-1]) from inputs of shape (batch, widths[0])."""
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = nnx.relu(norm(layer(x)))
        return self.head(x)


class NormalisedCNN(nnx.Module):
    """3x3 convolutions, each with batch norm and ReLU, then a global mean and a dense layer.

    As in `models.SpectralCNN`, the stride is 2 where the number of channels changes, but 1 at first.

    Args:
      channels: channels of each convolution.
      inputs: channels of the pictures.
      outputs: number of classes.
      rngs: `params`.
    """

    def __init__(self, channels: Sequence[int], *, inputs: int, outputs: int, rngs: nnx.Rngs) -> None:
        strides = (1, *(1 if a == b else 2 for a, b in pairwise(channels)))
        around = ((1, 1), (1, 1))
        self.convolutions = nnx.List(
            nnx.Conv(*shape, (3, 3), strides=stride, padding=around, use_bias=False, rngs=rngs)
            for shape, stride in zip(pairwise([inputs, *channels]), strides, strict=True)
        )
        self.norms = nnx.List(nnx.BatchNorm(n, momentum=MOMENTUM, rngs=rngs) for n in channels)
        self.head = nnx.Linear(channels[-1], outputs, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Compute outputs of shape (batch, outputs) from pictures of shape (batch, height, width, inputs)."""
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = nnx.relu(norm(convolution(x)))
        return self.head(x.mean((1, 2)))

"""Networks with signs as weights: a mask chooses among them, and nothing else is chosen."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch import ArgumentError, PyTree, map_selected

PATCH = 3
"""Side of a convolution's patches."""
WINDOW = 2
"""Side of the max-pooling windows after a convolution."""


class SignNetwork(NamedTuple):
    """A network without biases as two pure functions; its weights are signs times `sqrt(2/n)`, with n inputs.

    Attributes:
      shapes: path and shape of each kernel, in order; kernels of convolutions have four axes.
    """

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    def init(self, key: Array) -> dict[str, Array]:
        """Draw random signs, both equally likely."""
        keys = jax.random.split(key, len(self.shapes))
        return {
            path: jax.random.rademacher(k, shape, jnp.float32) * math.sqrt(2 / math.prod(shape[:-1]))
            for k, (path, shape) in zip(keys, self.shapes, strict=True)
        }

    def apply(self, params: Mapping[str, Array], x: Array) -> Array:
        """Map pictures of shape (batch, height, width, channels) to outputs of shape (batch, classes)."""
        *hidden, last = (params[path] for path, _ in self.shapes)
        for kernel in hidden:
            if kernel.ndim == 4:
                x = jax.nn.relu(_windows(_convolved(x, kernel)))
            else:
                x = jax.nn.relu(x.reshape(len(x), -1) @ kernel)
        return x.reshape(len(x), -1) @ last


class Readout(NamedTuple):
    """A linear classifier of features; each connection exists twice, with the weights c and -c.

    With n connections an output, `c = sqrt(2/n)`. A mask chooses the sign of a connection, or leaves it out.

    Attributes:
      shapes: path and shape of each kernel, in the order of the features; kernels have three axes, of which
        the first one is the sign.
    """

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    def init(self, key: Array) -> dict[str, Array]:
        """Return the weights; nothing is drawn."""
        size = math.sqrt(2 / sum(2 * inputs for _, (_, inputs, _) in self.shapes))
        signs = jnp.array([size, -size], jnp.float32).reshape(2, 1, 1)
        return {path: jnp.broadcast_to(signs, shape) for path, shape in self.shapes}

    def apply(self, params: Mapping[str, Array], x: Array) -> Array:
        """Map features of shape (batch, features) to outputs of shape (batch, classes)."""
        return x @ jnp.concatenate([params[path].sum(axis=0) for path, _ in self.shapes])


def readout(kinds: Mapping[str, int], outputs: int) -> Readout:
    """Build a linear classifier, with a kernel for the features of each kind: descriptions go by kind."""
    return Readout(tuple((kind, (2, inputs, outputs)) for kind, inputs in kinds.items()))


def convolutional(picture: Sequence[int], channels: Sequence[int], outputs: int) -> SignNetwork:
    """Build 3x3 convolutions without padding, each with 2x2 max pooling and ReLU, and a dense layer."""
    height, width, inputs = picture
    shapes: list[tuple[str, tuple[int, ...]]] = []
    for layer, made in enumerate(channels):
        shapes.append((f"convolution_{layer}", (PATCH, PATCH, inputs, made)))
        height, width = ((side - PATCH + 1) // WINDOW for side in (height, width))
        if min(height, width) < 1:
            raise ArgumentError(
                f"widths: expected fewer than {layer + 1}, after which pictures have no pixels left"
            )
        inputs = made
    shapes.append(("dense", (height * width * inputs, outputs)))
    return SignNetwork(tuple(shapes))


def multilayer(picture: Sequence[int], widths: Sequence[int], outputs: int) -> SignNetwork:
    """Build dense layers with ReLU between them."""
    sizes = [math.prod(picture), *widths, outputs]
    return SignNetwork(tuple((f"dense_{i}", shape) for i, shape in enumerate(pairwise(sizes))))


@dataclasses.dataclass(frozen=True)
class Scaled:
    """Weights times `1/sqrt(density)`, so that neurons with this share of their inputs stay as large."""

    density: float

    def __call__(self, key: Array, selected: PyTree) -> PyTree:
        """Return the scaled weights; nothing is drawn."""
        return map_selected(lambda leaf: leaf / math.sqrt(self.density), selected)


def _convolved(x: Array, kernel: Any) -> Array:
    # A product with patches replaces the convolution: under vmap over kernels, XLA's convolution on CPU is
    # many times as slow.
    side, _, inputs, outputs = kernel.shape
    height, width = (length - side + 1 for length in x.shape[1:3])
    patches = jnp.concatenate(
        [x[:, i : i + height, j : j + width] for i in range(side) for j in range(side)], axis=-1
    )
    return patches @ kernel.reshape(side * side * inputs, outputs)


def _windows(x: Array) -> Array:
    batch, height, width, channels = x.shape
    rows, columns = height // WINDOW, width // WINDOW
    cut = x[:, : rows * WINDOW, : columns * WINDOW]
    return cut.reshape(batch, rows, WINDOW, columns, WINDOW, channels).max(axis=(2, 4))

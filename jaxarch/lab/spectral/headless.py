"""A parent without its head, and a head without its parent: the two parts of a frozen-backbone model."""

from __future__ import annotations

from typing import Any

from flax import nnx
from jax import Array


class Head(nnx.Module):
    """A dense head on given features, `head(x)`, named like a parent's own head.

    Args:
      inputs: number of features.
      outputs: number of outputs.
      rngs: `params`.
    """

    def __init__(self, inputs: int, outputs: int, rngs: nnx.Rngs) -> None:
        self.head = nnx.Linear(inputs, outputs, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Compute outputs of shape (batch, outputs) from features of shape (batch, inputs)."""
        return self.head(x)


class Nothing(nnx.Module):
    """The identity, in place of a head."""

    def __call__(self, x: Array) -> Array:
        """Return the inputs unchanged."""
        return x


def headless(parent: Any) -> Any:
    """Replace the parent's head, so that the parent outputs the inputs of its head."""
    parent.head = Nothing()
    return parent

"""A parent without its head, and a head without its parent: what a frozen backbone is made of."""

from __future__ import annotations

from typing import Any

from flax import nnx
from jax import Array


class Head(nnx.Module):
    """A dense head on features that are given: `head(x)`, under the name that a parent's own has.

    Args:
      inputs: features.
      outputs: of the head.
      rngs: `params`.
    """

    def __init__(self, inputs: int, outputs: int, rngs: nnx.Rngs) -> None:
        self.head = nnx.Linear(inputs, outputs, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Outputs of shape (batch, outputs) of features of shape (batch, inputs)."""
        return self.head(x)


class Nothing(nnx.Module):
    """In place of a head."""

    def __call__(self, x: Array) -> Array:
        """The same."""
        return x


def headless(parent: Any) -> Any:
    """The parent, whose outputs are now what its head has been shown."""
    parent.head = Nothing()
    return parent

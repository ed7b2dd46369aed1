"""The random keys of a run: each is split off here, once, and has a name."""

from __future__ import annotations

from typing import NamedTuple

import jax
from jax import Array

_CONTINUED = 1 << 30
"""A number beyond the index of any stage."""


class RunKeys(NamedTuple):
    """Random keys of one run's training, the same at all of its steps.

    Attributes:
      start: for what `init` draws: weights, scores, masks.
      batches: for the training examples, together with the step.
      losses: for dropout and augmentation; step t has `fold_in(losses, t)`.
      optimizer: for what wraps the optimizer.

    Example:
      >>> import jax
      >>> from jaxarch.run._run_keys import RunKeys
      >>> keys = RunKeys.of(jax.random.key(0))
      >>> len({str(jax.random.key_data(key)) for key in keys})
      4
    """

    start: Array
    batches: Array
    losses: Array
    optimizer: Array

    @classmethod
    def of(cls, key: Array | RunKeys) -> RunKeys:
        """Split a training's key; keys that are split already stay as they are."""
        if isinstance(key, RunKeys):
            return key
        # Clone the key: JAX's check for reused keys would count every program of a training.
        return cls(*jax.random.split(jax.random.clone(key), 4))

    def at_step(self) -> RunKeys:
        """Return clones: JAX's check for reused keys would count every step."""
        return RunKeys(*map(jax.random.clone, self))


def stage_key(key: Array, index: int) -> Array:
    """Return the key of a run's stage by its place in the strategy."""
    return jax.random.fold_in(key, index)


def continued(key: Array) -> Array:
    """Return a key for continuing with a given network, different from any key of its search.

    With the same key, fresh weights would equal the search's initial weights. A mask would be permuted by the
    numbers that it was drawn with.
    """
    return jax.random.fold_in(key, _CONTINUED)

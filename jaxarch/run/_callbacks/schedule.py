"""Schedules: settings that change while training."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import ArgumentError, first_line, shown
from jaxarch._internal.trees import PyTree
from jaxarch.run._callbacks.chunk_end import ChunkEnd
from jaxarch.run._group import Group
from jaxarch.run._loop import Loop


def scheduled(group: Group, step: int) -> PyTree:
    """Return the settings of the chunk that begins with a step: the group's own without a schedule.

    Raises:
      ArgumentError: a schedule whose return value does not match the settings.
    """
    schedule = group.job.options.schedule
    if schedule is None:
        return group.share.settings
    return like_settings("schedule", schedule(step, group.share.settings), group.share.settings)


def like_settings(name: str, values: PyTree, settings: PyTree) -> PyTree:
    """Return values with the shapes, dtypes and places of the settings that they replace.

    Raises:
      ArgumentError: another structure, or shapes that cannot be broadcast.
    """

    def placed(value: Any, original: Array | np.ndarray) -> Array:
        value = jnp.broadcast_to(jnp.asarray(value, original.dtype), original.shape)
        return jax.device_put(value, getattr(original, "sharding", None))

    try:
        return jax.tree.map(placed, values, settings)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"{name}: expected it to return settings with the structure and shapes of those that it got, "
            f"{shown(jax.tree.map(jnp.shape, settings))} ({first_line(error)})"
        ) from None


class Schedule:
    """Set the settings of the next chunk, as the option `schedule` says."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def __call__(self, end: ChunkEnd) -> None:
        """Ask the schedule for the settings of the chunk that begins here.

        Raises:
          ArgumentError: a schedule whose return value does not match the settings.
        """
        if not self._loop.is_over:
            upcoming = scheduled(self._loop.group, end.step)
            self._loop.state = self._loop.state._replace(upcoming=upcoming)

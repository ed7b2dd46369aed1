"""Warnings about starts from which some leaves cannot move."""

from __future__ import annotations

import numpy as np

from jaxarch._internal.errors import ArgumentError, DeadStartWarning
from jaxarch._internal.trees import inexact, named_leaves
from jaxarch.run._callbacks.chunk_end import ChunkEnd
from jaxarch.run._loop import Loop
from jaxarch.run._training import WAKING


class DeadStarts:
    """Report leaves whose first gradients are all exactly zero.

    Attributes:
      is_dead: whether all runs of the group have such leaves.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._leaves = list(named_leaves(inexact(loop.state.carry.state.trainable)))
        self._has_looked = False
        self.is_dead = False

    def begins(self) -> None:
        """Report again when a fit resumes from a checkpoint."""
        self._look()

    def __call__(self, end: ChunkEnd) -> None:
        """Look once, when every leaf that is not dead has had a gradient.

        Raises:
          ArgumentError: a dead start, if the option says that it is an error.
        """
        self._look()

    def _look(self) -> None:
        state, steps = self._loop.state, self._loop.steps
        if not self._has_looked and state.step >= min(WAKING, steps):
            self._has_looked = True
            dead = self._loop.group.gather("dead starts", np.asarray(state.carry.dead))
            self._report(dead[: len(self._loop.group.members)])

    def _report(self, dead: np.ndarray) -> None:
        if not dead.any():
            return
        group, options = self._loop.group, self._loop.group.job.options
        self.is_dead = bool(dead.all())
        hit = np.any(dead, axis=0).tolist()
        leaves = [repr(name) for name, is_hit in zip(self._leaves, hit, strict=True) if is_hit]
        runs = group.members[dead.any(1)]
        message = (
            f"{group.job.name}: dead start: the gradient is exactly zero from step 0 on in "
            f"{', '.join(leaves)}, in {len(runs)} of {len(group.members)} runs "
            f"(first: {options.label(runs[0])}); {group.training.remedy}"
        )
        # With several groups another one may move: `fit` raises at the end if none does.
        nothing_moves = self.is_dead and group.count == 1
        if options.dead_start == "raise" or (nothing_moves and options.dead_start == "warn"):
            raise ArgumentError(message)
        if options.dead_start == "warn":
            self._loop.note(message, DeadStartWarning)

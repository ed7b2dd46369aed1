"""Checkpoints: the loop's state, saved at a chunk's end and restored when a fit resumes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from jaxarch._internal.digests import tree_digest
from jaxarch._internal.errors import ArgumentError
from jaxarch._internal.trees import PyTree
from jaxarch.run._callbacks.chunk_end import ChunkEnd
from jaxarch.run._devices import place
from jaxarch.run._fingerprint import fingerprint
from jaxarch.run._group import Group
from jaxarch.run._loop import Loop, LoopState
from jaxarch.run._options import Checkpoint

_BY_RUN = ("carry", "best", "losses", "failed_at", "settings", "upcoming")
"""Fields of a state whose leaves have a leading axis of runs; in `validation` that axis is the second."""


class Save:
    """Save the state at a chunk's end, if it is time or the training is over.

    However many processes there are, a checkpoint has all runs, and the first process alone reads and writes.
    """

    def __init__(self, loop: Loop, checkpoint: Checkpoint) -> None:
        self._loop, self._checkpoint = loop, checkpoint
        self._group, self._team = loop.group, loop.group.job.team
        self._belongs_to = belonging(loop.group) if self._team.index == 0 else np.zeros(0, np.uint8)

    def tell(self) -> dict[str, Any]:
        """Return whether it is time for a checkpoint, by this process's clock."""
        is_due = getattr(self._checkpoint, "is_due", lambda name: True)(self._group.slot)
        return {"due": np.full(len(self._loop.state.losses), is_due)}

    def __call__(self, end: ChunkEnd) -> None:
        """Save, if it is time by the first process's clock."""
        over = self._loop.is_over
        if over or self._loop.told["due"][0]:
            # All processes take part in gathering the state, although only the first one saves it.
            saved = self._saved()
            if self._team.index == 0:
                self._checkpoint.save(self._group.slot, saved, last=over)

    def restore(self) -> None:
        """Resume the loop from the last checkpoint, if there is one.

        Raises:
          ArgumentError: a checkpoint of another fit, or one that is damaged.
        """
        mine, slot = self._saved(), self._group.slot
        saved = self._checkpoint.load(slot, mine) if self._team.index == 0 else None
        if saved is not None and not np.array_equal(saved["belongs_to"], mine["belongs_to"]):
            raise ArgumentError(
                f"checkpoint: {slot!r} was saved by a training with other keys, settings, data or sizes, "
                "another strategy, problem, descent, schedule or early stopping, or by an earlier version of "
                "jaxarch; use a fresh folder"
            )
        whole = self._team.of_the_first(slot, saved and saved["state"], mine["state"])
        if whole is not None:
            self._check_counts(int(whole.step), float(whole.seconds))
            self._loop.resume(self._placed(self._of_mine(whole)), whole)

    def _saved(self) -> dict[str, PyTree]:
        state = self._loop.state._replace(seconds=np.asarray(self._loop.seconds))
        return {"belongs_to": self._belongs_to, "state": self._of_all(state)}

    def _check_counts(self, step: int, seconds: float) -> None:
        """Raise unless a checkpoint's step ends a chunk, and its seconds are a time."""
        steps, chunk = self._loop.steps, self._group.job.options.chunk
        is_end = 0 <= step <= steps and (step == steps or step % chunk == 0)
        if not is_end or not 0 <= seconds < math.inf:
            raise ArgumentError(f"checkpoint: {self._group.slot!r} is damaged; use a fresh folder")

    def _placed(self, state: LoopState) -> LoopState:
        """Put a state on the devices; its arrays on the host are copied, so that they can be written to."""
        names = ("carry", "best", "settings", "upcoming")
        parts = tuple(getattr(state, name) for name in names)
        placed = place(self._group.job.mesh, (0,) * len(names), parts)
        return state._replace(
            **dict(zip(names, placed, strict=True)),
            losses=np.array(state.losses),
            failed_at=np.array(state.failed_at),
            validation={name: np.array(rows) for name, rows in state.validation.items()},
        )

    def _of_all(self, state: LoopState) -> LoopState:
        """Return the state of all runs of the group, on the host if there are several processes."""
        if self._team.size == 1:
            return state
        return _joined(state, self._group.gather(f"checkpoint at step {int(state.step)}", _split(state)))

    def _of_mine(self, state: LoopState) -> LoopState:
        """Return this process's part of the state of all runs."""
        if self._team.size == 1:
            return state
        return _joined(state, jax.tree.map(lambda leaf: leaf[self._group.mine], _split(state)))


def _split(state: LoopState) -> dict[str, PyTree]:
    """Return the fields of a state whose leaves have an axis of runs, with that axis first."""
    split = {name: getattr(state, name) for name in _BY_RUN}
    return split | {"validation": {name: rows.T for name, rows in state.validation.items()}}


def _joined(state: LoopState, split: dict[str, PyTree]) -> LoopState:
    """Return a state with the fields of `_split` put back."""
    validation = {name: rows.T for name, rows in split["validation"].items()}
    return state._replace(**split | {"validation": validation})


def belonging(group: Group) -> np.ndarray:
    """Return a digest of everything that the bits of a group depend on, except for the devices."""
    keys, settings, problem, network = group.whole()
    training, options = group.training, group.job.options
    learned = (training.name, training.init, training.params, training.network, training.settings)
    beside = (
        training.penalty,
        training.after_step,
        training.wrap_optimizer,
        problem.init,
        problem.loss,
        problem.gather,
    )
    descent = training.on(group.share.problem).descent
    # Schedules and early stopping act at the ends of chunks, so the size of a chunk counts too.
    at_ends = (options.early_stopping, options.schedule)
    return tree_digest(
        (keys, settings, dataclasses.replace(problem, data=group.job.data), network),
        (fingerprint((learned, beside, descent, at_ends)), options.chunk, len(group.members)),
    )

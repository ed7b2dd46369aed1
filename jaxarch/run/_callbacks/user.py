"""Callbacks of a user: what they may change, and how several processes agree on it."""

from __future__ import annotations

import json

import jax
import numpy as np

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch._internal.trees import PyTree
from jaxarch.run._callbacks.chunk_end import Callback, ChunkEnd, Decision
from jaxarch.run._callbacks.schedule import like_settings
from jaxarch.run._loop import Loop

_NOTHING = Decision()


class UserCallback:
    """A function of a user, whose decisions change the loop.

    Every process calls it, and sees all runs. The first process's decisions count in all of them: a callback
    may look at a clock or at a file, which processes see at different moments.
    """

    def __init__(self, loop: Loop, function: Callback) -> None:
        self._loop, self._function = loop, function
        self._name = getattr(function, "__name__", type(function).__name__)

    def __call__(self, end: ChunkEnd) -> None:
        """Call the function, and carry out its decision.

        Raises:
          ArgumentError: a return value that is neither a `Decision` nor `None`, or settings that are unlike
            those of the chunk.
        """
        decision = self._function(end)
        decision = _NOTHING if decision is None else decision
        if not isinstance(decision, Decision):
            raise ArgumentError(
                f"callbacks: expected {self._name} to return a jaxarch.Decision or None, got "
                f"{shown(decision)}"
            )
        stop, note, settings = self._agreed(end, decision)
        loop, state = self._loop, self._loop.state
        if settings is not None:
            state = state._replace(upcoming=self._here(end, settings))
        loop.state = state._replace(is_stopped=np.asarray(bool(state.is_stopped) or stop))
        if note:
            loop.notes.append(f"{end.name}: step {end.step}: {note}")

    def _agreed(self, end: ChunkEnd, decision: Decision) -> tuple[bool, str, PyTree]:
        """Return the first process's decision; its settings are arrays of all runs."""
        settings = decision.settings
        if settings is not None:
            settings = like_settings(self._title, settings, end.settings)
        team = self._loop.group.job.team
        if team.size == 1:
            return decision.stop, decision.note, settings
        title = f"{self._loop.group.slot}: {self._name} at step {end.step}"
        said = json.dumps([decision.stop, decision.note])
        stop, note = json.loads(team.exchange(title, said.encode())[0])
        return stop, note, team.of_the_first(title, settings, end.settings)

    def _here(self, end: ChunkEnd, settings: PyTree) -> PyTree:
        """Return this process's share of the settings of all runs, on its devices."""
        group = self._loop.group
        # Copies of the first members fill the program up, as in `fit`.
        rows = np.resize(np.arange(len(group.members)), sum(group.rows))[group.mine]
        share = jax.tree.map(lambda leaf: leaf[rows], settings)
        return like_settings(self._title, share, group.share.settings)

    @property
    def _title(self) -> str:
        return f"callbacks: {self._name}"

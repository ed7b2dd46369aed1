"""The training loop: compiled chunks of steps for a group of runs, and callbacks at the end of each chunk."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxarch._internal.trees import PyTree
from jaxarch.io import Window
from jaxarch.run import _programs as programs
from jaxarch.run._callbacks.chunk_end import Callback, ChunkEnd, Look
from jaxarch.run._chunk_program import Advance, compiled, next_window, windows
from jaxarch.run._devices import first_runs, place
from jaxarch.run._group import Group
from jaxarch.run._network import Network
from jaxarch.run._programs import Best
from jaxarch.run._training import Carry, joined, with_losses


class LoopState(NamedTuple):
    """Everything that a loop hands from chunk to chunk, for this process's share of the runs.

    Attributes:
      step: how many steps have been taken.
      carry: every run's carry, on the devices.
      best: early stopping's memory, on the devices; `None` without.
      losses: losses before every step, shape (runs, steps); NaN for a run that had stopped.
      validation: metrics, each of shape (chunks, runs).
      failed_at: like the carry's, without failures after a run had stopped.
      settings: settings of the last chunk.
      upcoming: settings of the next chunk.
      is_stopped: whether a callback has stopped the training.
      seconds: seconds spent until the last checkpoint.
      last_batch: digest of the last batch of a stream; `None` without.
    """

    step: np.ndarray
    carry: Carry
    best: Best | None
    losses: np.ndarray
    validation: dict[str, np.ndarray]
    failed_at: np.ndarray
    settings: PyTree
    upcoming: PyTree
    is_stopped: np.ndarray
    seconds: np.ndarray
    last_batch: np.ndarray | None


class Loop:
    """The loop over the chunks of one group of runs: this process's share, in step with other processes.

    Attributes:
      group: the runs.
      state: state of the loop.
      notes: lines for the report.
      steps: how many steps there are.
      running: which runs of the group early stopping lets go on, copies included.
      failed_at: first steps whose loss was not finite, copies included.
      history: losses of all steps so far, copies included.
      told: facts about the last chunk's end that all processes know.
    """

    def __init__(self, group: Group, settings: PyTree) -> None:
        """Make the state before the first step, whose chunk has these settings."""
        self.group = group
        self.notes: list[str] = []
        self.steps = group.training.on(group.share.problem).descent.steps
        self._job, self._watch = group.job, group.job.watch
        self._seconds_before = self._watch.running
        self._advance: Advance | None = None
        # Programs are compiled for these, so that other settings, of a checkpoint for instance, do not change
        # the dtypes that they promote to.
        self._settings = settings
        self.state = self._first_state(settings)
        width = sum(group.rows)
        self.running, self.failed_at = np.ones(width, bool), np.full(width, -1, np.int32)
        # One process has all runs, so its own losses are the whole history.
        alone = self._job.team.size == 1
        self.history = self.state.losses if alone else np.full((width, self.steps), np.nan, np.float32)
        self.told: dict[str, Any] = {}

    def run(self, callbacks: Sequence[Callback]) -> Network:
        """Train until every run is done, and return the networks of all runs of the group.

        A callback's method `begins`, if it has one, is called before the first chunk. Its method `tell`
        returns what all processes have to know about this process's runs, before any callback is called.
        """
        for begins in _methods(callbacks, "begins"):
            begins()
        with windows(self.group, int(self.state.step), self.state.last_batch, self.is_over) as waiting:
            while not self.is_over:
                start = int(self.state.step)
                self._train_chunk(start, *next_window(self.group, waiting))
                self._tell(start, callbacks)
                end, look = self._end(start)
                for callback in callbacks:
                    callback(end)
                # The next chunk donates the carry that a look is made from.
                look.close()
        return self._result()

    @property
    def is_over(self) -> bool:
        """Return whether nothing is left to do: no steps, or no run that has neither stopped nor failed."""
        state = self.state
        if state.step >= self.steps or state.is_stopped or not self.running.any():
            return True
        return bool((self.failed_at[: len(self.group.members)] >= 0).all())

    @property
    def seconds(self) -> float:
        """Seconds that were spent on the group so far, compilation apart."""
        return self._watch.running - self._seconds_before

    def note(self, message: str, category: type[Warning]) -> None:
        """Warn with a message, and keep it for the report."""
        self.notes.append(message)
        warnings.warn(message, category, stacklevel=2)

    def resume(self, state: LoopState, whole: LoopState) -> None:
        """Resume from this process's share of a state; `whole` is the state of all runs of the group."""
        self.state = state
        self.failed_at = np.asarray(whole.failed_at)
        if whole.best is not None:
            self.running = ~np.asarray(whole.best.stopped)
        self.history = state.losses if self._job.team.size == 1 else np.array(whole.losses)
        self._watch.running += float(whole.seconds)

    def running_here(self) -> np.ndarray:
        """Return which runs of this process's share early stopping has not stopped."""
        best = self.state.best
        return np.ones(len(self.state.losses), bool) if best is None else ~np.asarray(best.stopped)

    def _first_state(self, settings: PyTree) -> LoopState:
        group, mesh = self.group, self._job.mesh
        args = (group.share.keys, settings, group.share.problem, group.share.network)
        begin = self._watch.compile(programs.begin, self._job.make, mesh, *args)
        carry = self._watch.run(begin, *args)
        width, stream = group.share.keys.shape[0], group.share.problem.stream
        return LoopState(
            step=np.asarray(0),
            carry=carry,
            best=None,
            losses=np.full((width, self.steps), np.nan, np.float32),
            validation={},
            failed_at=np.full(width, -1, np.int32),
            settings=settings,
            upcoming=settings,
            is_stopped=np.asarray(False),
            seconds=np.asarray(0.0),
            last_batch=None if stream is None else stream.digest,
        )

    def _train_chunk(self, start: int, window: Window | None, last_batch: np.ndarray | None) -> None:
        state, running = self.state, self.running_here()
        stop = min(start + self._job.options.chunk, self.steps)
        # Compile only now: a stream's first window and a resumed carry exist from here on.
        if self._advance is None:
            self._advance = compiled(self.group, self._settings, state.carry, window)
        carry, values = self._advance(state.upcoming, state.carry, start, stop, window)
        # The program steps stopped runs too: their later losses and failures do not count.
        state.losses[running, start:stop] = np.asarray(values)[running, : stop - start]
        state.failed_at[running] = np.asarray(carry.failed_at)[running]
        self.state = state._replace(
            step=np.asarray(stop), carry=carry, settings=state.upcoming, last_batch=last_batch
        )

    def _tell(self, start: int, callbacks: Sequence[Callback]) -> None:
        """Share a chunk's end among all processes, once, so that all decide alike."""
        state, step = self.state, int(self.state.step)
        # Losses before the last are for a user's callbacks only; without any they need not be sent.
        seen = start if self._job.options.callbacks else step - 1
        told = {"losses": state.losses[:, seen:step], "failed_at": state.failed_at}
        if self._job.options.callbacks:
            told["settings"] = state.settings
        for tell in _methods(callbacks, "tell"):
            told |= tell()
        # Early stopping has judged the chunk by now.
        told["running"] = self.running_here()
        batch = b"" if state.last_batch is None else state.last_batch.tobytes()
        # Titles must agree, so a stream that gives the processes different batches is found here.
        self.told = self.group.gather(f"step {step} {batch[:8].hex()}", told)
        self.running, self.failed_at = self.told["running"], np.asarray(self.told["failed_at"])
        if self._job.team.size > 1:
            self.history[:, seen:step] = self.told["losses"]

    def _end(self, start: int) -> tuple[ChunkEnd, Look]:
        """Make the record of a chunk's end that callbacks see, of all members of the group."""
        group, step, look = self.group, int(self.state.step), Look(self.network_now)
        # Callbacks may keep what they see, and the loop writes into its own arrays: pass copies.
        told = jax.tree.map(lambda leaf: _on_host(leaf[: len(group.members)]), self.told)
        history = self.history[: len(group.members), :step]
        # With one process this is a view of the losses that checkpoints save: callbacks may only read it.
        history.flags.writeable = False
        end = ChunkEnd(
            name=self._job.name,
            start=start,
            step=step,
            steps=self.steps,
            group=group.index,
            groups=group.count,
            labels=group.labels,
            losses=told["losses"],
            running=told["running"],
            failed_at=told["failed_at"],
            validation=told.get("validation", {}),
            settings=told.get("settings"),
            history=history,
            look=look,
        )
        return end, look

    def network_now(self) -> Network:
        """Return the networks that all runs of the group would find if the training ended here."""
        found = joined(self.group.share.network, self._concluded(self.state.carry))
        found = self.group.gather(f"a look at step {int(self.state.step)}", found)
        return first_runs(len(self.group.members), found)

    def _concluded(self, carry: Carry) -> Network:
        """Return the networks found if the training ends with a carry."""
        mesh, state = self._job.mesh, self.state
        # The carry also marks failures after a run has stopped; the host's marks leave them out.
        losses, failed_at = place(mesh, (0, 0), (state.losses, state.failed_at))
        carry = carry._replace(failed_at=failed_at)
        conclude = self._watch.compile(programs.conclude, self._job.make, mesh, self._settings, carry)
        # Losses of stopped runs are NaN. No program returns them, because `jax_debug_nans` would raise.
        return with_losses(self._watch.run(conclude, state.settings, carry), losses)

    def _result(self) -> Network:
        carry, best = self.state.carry, self.state.best
        # `best.state` already has the weights to evaluate; without an optimizer state they stay as they are.
        network = self._concluded(carry if best is None else carry._replace(state=best.state, opt_state=()))
        if best is not None:
            network = network.replace(info=network.info | {"kept_at": best.state.step})
        return self.group.gather("result", network)


def _on_host(leaf: Any) -> Any:
    """Return a copy of an array on the host; random keys stay keys, which NumPy does not have."""
    return jnp.copy(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.array(leaf)


def _methods(callbacks: Sequence[Callback], name: str) -> list[Callable[[], Any]]:
    """Return the methods of a name, from the callbacks that have it."""
    return [getattr(callback, name) for callback in callbacks if hasattr(callback, name)]

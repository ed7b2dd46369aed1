"""The only place that loops: a training's steps in compiled chunks, for many runs at once, on all devices.

Whatever a long training needs happens at the borders between chunks: progress, validation, early stopping,
schedules, reports of runs that failed, checkpoints.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from jaxarch import programs
from jaxarch.devices import place, runs_mesh, take_runs
from jaxarch.errors import ArgumentError, DeadStartWarning, NonFiniteWarning
from jaxarch.fit_options import FitOptions, Progress, StageReport
from jaxarch.problem import Found, Problem
from jaxarch.programs import Best, Make, Stopwatch
from jaxarch.training import Carry
from jaxarch.trees import PyTree, named_leaves


def fit(
    make: Make,
    keys: Array,
    problem: Problem,
    settings: PyTree = None,
    found: Found | None = None,
    options: FitOptions | None = None,
) -> tuple[Found, StageReport]:
    """Train every run, and read off what each found.

    Args:
      make: from one run's settings to its training. Without settings it is called with `None`.
      keys: one key a run, shape (runs,).
      problem: what to learn; its per-run arrays have the keys' length.
      settings: pytree whose leaves have a leading axis of runs: traced, so that a sweep over rates,
        temperatures or penalties is one program.
      found: what the stage before found, with a leading axis of runs, or `None`.
      options: chunks, progress, checkpoints and the like.

    Returns:
      `Found` with a leading axis of runs, and a report. A run whose loss became NaN or infinite keeps its
      place, with `info["failed_at"]` its step; the others are not affected.

    Raises:
      ArgumentError: an early stopping without validation rows, a schedule without settings, a start from
        which no run can move, a checkpoint of another fit.
    """
    options = options or FitOptions()
    _check_options(options, problem, settings)
    runs = keys.shape[0]
    args = (keys, settings, problem, found)
    by_step = options.loop == "step" or (options.loop == "auto" and programs.is_slow_in_loops(make, args))
    mesh = None if by_step else runs_mesh(options.devices, runs)
    watch = Stopwatch()
    problem = dataclasses.replace(problem, data=place(mesh, (None,), (problem.data,))[0])
    axes = (0, 0, problem.in_axes(), 0)
    args = (keys, settings, problem, found)
    width = 1 if mesh is None else programs.width(make, mesh, axes, args, options, watch)

    results, notes, validations = [], [], []
    groups = math.ceil(runs / width)
    for group in range(groups):
        members = np.arange(group * width, min((group + 1) * width, runs))
        padded = np.resize(members, width) if len(members) < width else members
        share = place(mesh, axes, args if width == runs else take_runs(axes, args, padded))
        loop = _Group(make, mesh, share, options, watch, (group, groups), members)
        result, validation = loop.run()
        results.append(result if len(members) == width else _first(len(members), result))
        validations.append({name: values[:, : len(members)] for name, values in validation.items()})
        notes += loop.notes

    whole = results[0] if groups == 1 else jax.tree.map(_concatenate, *results)
    devices = 1 if mesh is None else mesh.size
    report = StageReport(
        name=make_one(make, settings).name,
        seconds=watch.running * devices / runs,
        compile_seconds=watch.compiling,
        width=width,
        devices=devices,
        notes=tuple(notes),
        validation={name: np.hstack([v[name] for v in validations]) for name in validations[0]},
    )
    return whole, report


def make_one(make: Make, settings: PyTree) -> Any:
    """What `make` makes of the first run's settings, outside any trace."""
    return make(jax.tree.map(lambda leaf: leaf[0], settings))


class _State(NamedTuple):
    """All that the loop over one group of runs keeps: what a checkpoint holds."""

    step: np.ndarray
    carry: Carry
    best: Best | None
    losses: np.ndarray
    validation: dict[str, np.ndarray]


class _Group:
    """The host loop over the chunks of one group of runs."""

    def __init__(
        self,
        make: Make,
        mesh: Mesh | None,
        share: tuple[PyTree, ...],
        options: FitOptions,
        watch: Stopwatch,
        position: tuple[int, int],
        members: np.ndarray,
    ) -> None:
        self.make, self.mesh, self.options, self.watch = make, mesh, options, watch
        self.keys, self.settings, self.problem, self.found = share
        self.group, self.groups = position
        self.members = members
        self.training = make_one(make, self.settings)
        self.name = options.named(self.training.name)
        self.notes: list[str] = []
        self.failed: set[int] = set()

    def run(self) -> tuple[Found, dict[str, np.ndarray]]:
        """Train to the end, from the last checkpoint if there is one: what was found, and the metrics."""
        steps, chunk = self.problem.steps, self.options.chunk
        state, border = self._first()
        state = self._restored(state)
        advance = self._compile_advance(state.carry)
        while state.step < steps and not self._over(state):
            start = int(state.step)
            stop = min(start + chunk, steps)
            carry, values = advance(state.carry, start, stop)
            state.losses[:, start:stop] = np.asarray(values)[:, : stop - start]
            best = state.best
            if start == 0 and self.options.dead_start != "ignore":
                self._report_dead(carry)
            if border is not None:
                index = jnp.asarray(stop, jnp.int32)
                metrics, best = self.watch.run(border, *self._inputs(start), carry, best, index)
                for name, row in metrics.items():
                    state.validation[name][start // chunk] = row
            state = state._replace(step=np.asarray(stop), carry=carry, best=best)
            self._report(state)
            if self.options.checkpoint is not None:
                self.options.checkpoint.save(self._slot, self._saved(state))
        return self._result(state), state.validation

    def _first(self) -> tuple[_State, Any]:
        """The state before the first step, and the program for the borders, if there is something to do."""
        begin = self.watch.compile(
            programs.begin, self.make, self.mesh, self.keys, *self._inputs(0), self.found
        )
        carry = self.watch.run(begin, self.keys, *self._inputs(0), self.found)
        width, steps = self.keys.shape[0], self.problem.steps
        best = self._first_best(carry)
        border, validation = None, {}
        if self.problem.validation is not None:
            args = (*self._inputs(0), carry, best, jnp.zeros((), jnp.int32))
            static = (self.make, self.mesh, self.options.early_stopping)
            metrics, _ = jax.eval_shape(partial(programs.border, *static), *args)
            borders = math.ceil(steps / self.options.chunk)
            validation = {name: np.full((borders, width), np.nan) for name in metrics}
            border = self.watch.compile(programs.border, *static, *args)
        losses = np.full((width, steps), np.nan, np.float32)
        return _State(np.asarray(0), carry, best, losses, validation), border

    def _first_best(self, carry: Carry) -> Best | None:
        if self.options.early_stopping is None:
            return None
        width = self.keys.shape[0]
        best = Best(
            value=jnp.full(width, jnp.inf),
            trainable=jax.tree.map(jnp.copy, carry.trainable),
            state=jax.tree.map(jnp.copy, carry.state),
            step=jnp.zeros(width, jnp.int32),
            waited=jnp.zeros(width, jnp.int32),
            stopped=jnp.zeros(width, bool),
        )
        return place(self.mesh, (0,), (best,))[0]

    def _inputs(self, index: int) -> tuple[PyTree, Problem]:
        """Settings and problem from a step on."""
        if self.options.schedule is None:
            return self.settings, self.problem
        return jax.tree.map(_as, self.options.schedule(index, self.settings), self.settings), self.problem

    def _compile_advance(self, carry: Carry) -> Callable[[Carry, int, int], tuple]:
        """`(carry, start, stop) -> (carry, losses)`: one program a chunk, or one a step."""
        zero = jnp.zeros((), jnp.int32)
        if self.mesh is not None:
            static = (self.make, self.mesh, self.options.chunk)
            chunk = self.watch.compile(
                programs.advance, *static, self.keys, *self._inputs(0), carry, zero, zero
            )

            def advance(carry: Carry, start: int, stop: int) -> tuple[Carry, np.ndarray]:
                borders = jnp.asarray(start, jnp.int32), jnp.asarray(stop, jnp.int32)
                return self.watch.run(chunk, self.keys, *self._inputs(start), carry, *borders)

            return advance

        step = self.watch.compile(programs.step, self.make, self.keys, *self._inputs(0), carry, zero)

        def steps(carry: Carry, start: int, stop: int) -> tuple[Carry, Array]:
            inputs, values = self._inputs(start), []
            for index in range(start, stop):
                carry, value = step(self.keys, *inputs, carry, jnp.asarray(index, jnp.int32))
                values.append(value)
            return carry, jnp.stack(values, axis=1)

        return partial(self.watch.run, steps)

    def _over(self, state: _State) -> bool:
        """Whether nothing is left to do: every run has stopped early, or failed."""
        stopped = state.best is not None and bool(state.best.stopped.all())
        return stopped or len(self.failed) == len(self.members)

    def _report(self, state: _State) -> None:
        failed_at = np.asarray(state.carry.failed_at)
        for run, step in zip(self.members, failed_at, strict=False):
            if step >= 0 and run not in self.failed:
                self.failed.add(run)
                self._note(
                    f"{self.name}: {self.options.label(run)}: the loss is NaN or infinite at step {step}; "
                    "the other runs go on (try a lower learning rate)",
                    NonFiniteWarning,
                )
        if self.options.progress is not None:
            last = state.losses[: len(self.members), int(state.step) - 1]
            finite = last[np.isfinite(last)]
            self.options.progress(
                Progress(
                    name=self.name,
                    step=int(state.step),
                    steps=self.problem.steps,
                    group=self.group,
                    groups=self.groups,
                    runs=len(self.members),
                    loss=float(np.median(finite)) if finite.size else math.nan,
                )
            )

    def _report_dead(self, carry: Carry) -> None:
        dead = np.asarray(carry.dead)[: len(self.members)]
        if not dead.any():
            return
        hit = np.any(dead, axis=0).tolist()
        leaves = [name for name, is_hit in zip(named_leaves(carry.trainable), hit, strict=True) if is_hit]
        runs = self.members[dead.any(1)]
        message = (
            f"{self.name}: dead start: the gradient is exactly zero at step 0 in "
            f"{', '.join(repr(leaf) for leaf in leaves)}, in {len(runs)} of {len(self.members)} runs "
            f"(first: {self.options.label(runs[0])}); {self.training.remedy}"
        )
        if self.options.dead_start == "raise" or dead.all():
            raise ArgumentError(message)
        self._note(message, DeadStartWarning)

    def _note(self, message: str, category: type[Warning]) -> None:
        self.notes.append(message)
        warnings.warn(message, category, stacklevel=2)

    def _saved(self, state: _State) -> PyTree:
        belongs_to = {"keys": self.keys, "settings": self.settings, "train": self.problem.train}
        return {"belongs_to": belongs_to, "state": state}

    def _restored(self, state: _State) -> _State:
        """The state of the last checkpoint, if there is one."""
        if self.options.checkpoint is None:
            return state
        mine = self._saved(state)
        saved = self.options.checkpoint.load(self._slot, mine)
        if saved is None:
            return state
        same = jax.tree.map(lambda a, b: bool((a == b).all()), saved["belongs_to"], mine["belongs_to"])
        if not all(jax.tree.leaves(same)):
            raise ArgumentError(
                f"checkpoint: {self._slot!r} is of a fit with other keys, settings or training rows; "
                "use a fresh folder"
            )
        state = saved["state"]
        carry, best = place(self.mesh, (0, 0), (state.carry, state.best))
        state = state._replace(
            carry=carry,
            best=best,
            losses=np.array(state.losses),
            validation={name: np.array(rows) for name, rows in state.validation.items()},
        )
        if state.step > 0:
            self._report(state)
        return state

    @property
    def _slot(self) -> str:
        return f"{self.name} stage {self.options.stage} group {self.group}"

    def _result(self, state: _State) -> Found:
        carry, best = state.carry, state.best
        if best is not None:
            carry = carry._replace(trainable=best.trainable, state=best.state)
        settings = self._inputs(int(state.step))[0]
        (losses,) = place(self.mesh, (0,), (state.losses,))
        conclude = self.watch.compile(programs.conclude, self.make, self.mesh, settings, carry, losses)
        found = self.watch.run(conclude, settings, carry, losses)
        if best is not None:
            found = found._replace(info={**found.info, "kept_at": best.step})
        return found


def _as(value: Any, original: Array) -> Array:
    """A scheduled setting in the shape, dtype and place of the one that it replaces."""
    value = jnp.broadcast_to(jnp.asarray(value, original.dtype), original.shape)
    return jax.device_put(value, original.sharding)


def _first(count: int, tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[:count], tree)


def _concatenate(*leaves: Array) -> np.ndarray:
    return np.concatenate(jax.device_get(leaves))


def _check_options(options: FitOptions, problem: Problem, settings: PyTree) -> None:
    if options.early_stopping is not None and problem.validation is None:
        raise ArgumentError("early_stopping: the problem has no validation rows; give it `validation=rows`")
    if options.schedule is not None and not jax.tree.leaves(settings):
        raise ArgumentError(
            "schedule: there are no settings to schedule; make the strategy a function of settings"
        )

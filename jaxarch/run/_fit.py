"""The only place that loops: a training's steps in compiled chunks, for many runs at once, on all devices.

Whatever a long training needs happens at the borders between chunks: progress, validation, early stopping,
schedules, reports of runs that failed, checkpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.digests import tree_digest
from jaxarch._internal.errors import ArgumentError, DeadStartWarning, NonFiniteWarning, first_line, shown
from jaxarch._internal.trees import PyTree, inexact, named_leaves
from jaxarch.io import Ahead, Window
from jaxarch.run import _programs as programs
from jaxarch.run._devices import first_runs, joined_runs, place, place_window, take_runs
from jaxarch.run._fingerprint import fingerprint
from jaxarch.run._layout import Layout
from jaxarch.run._network import Network
from jaxarch.run._options import TOO_LATE, FitOptions, Outset, Progress, StageReport
from jaxarch.run._problem import Problem
from jaxarch.run._processes import Team, local_devices
from jaxarch.run._program_memory import free_on_a_device, program_memory, width_of
from jaxarch.run._programs import Best, Make, Stopwatch
from jaxarch.run._runs_mesh import RunsMesh, runs_mesh, split_mesh
from jaxarch.run._shares import Shares
from jaxarch.run._stage import warn_of
from jaxarch.run._training import WAKING, Carry, joined, with_losses


def fit(
    make: Make,
    keys: Array,
    problem: Problem,
    settings: PyTree = None,
    network: Network | None = None,
    options: FitOptions | None = None,
    name: str = "",
) -> tuple[Network, StageReport]:
    """Train every run, and read off what each found.

    Args:
      make: from one run's settings to its training. Without settings it is called with `None`.
      keys: one key a run, shape (runs,).
      problem: what to learn; its per-run arrays have the keys' length.
      settings: pytree whose leaves have a leading axis of runs: traced, so that a sweep over rates,
        temperatures or penalties is one program.
      network: what the stage before found, with a leading axis of runs, or `None`.
      options: chunks, progress, checkpoints and the like.
      name: tells this fit from others in progress, reports and checkpoints.

    Returns:
      `Network` with a leading axis of runs, and a report. A run whose loss became NaN or infinite keeps its
      place, with `failed_at` its step; the others are not affected.

    Raises:
      ArgumentError: an early stopping without validation rows, a schedule without settings, a start from
        which no run can move, a checkpoint of another fit, or of this one on other devices, one run that
        needs more memory than there is; a stream of batches that ends too early or does not stay alike;
        a `partition` that does not fit the mesh or the parameters.
    """
    options = options or FitOptions()
    _check_options(options, problem, settings)
    training, team = make_one(make, settings), Team.of(options.devices)
    name = name or training.name
    if problem.stream is not None:
        size = min(options.chunk, training.on(problem).steps)
        problem = dataclasses.replace(problem, window=problem.stream.outline(size))
    split = split_mesh(options.mesh, options.partition, problem)
    if split is not None:
        problem = split.on(problem)
    args = (keys, settings, problem, network)
    axes = (0, 0, problem.in_axes(), 0)
    begun = Layout.saved(options.checkpoint, name, team)
    if begun is None:
        mesh, shares = places_of(make, args, options, team, split)
    else:
        mesh, shares = begun.places(options, name, team, split)
    data = place(mesh, (None,), (problem.data,))[0]
    args = (keys, settings, dataclasses.replace(problem, data=data), network)
    streamed = () if problem.stream is None else (problem.stream.digest.tobytes(),)
    same = None if options.checkpoint is None else tree_digest(problem.data, streamed)
    job = _Job(make, mesh, options, Stopwatch(), name, same, team, shares)
    per_device = _width(job, axes, args) if begun is None else begun.width // shares.devices
    width = per_device * shares.devices
    if begun is None and options.checkpoint is not None and team.index == 0:
        Layout.of(mesh, shares, width).save(options.checkpoint, name)

    # The batches themselves come as the training goes on.
    args = (keys, settings, dataclasses.replace(args[2], window=None), network)
    found, notes, validation = _trained(job, per_device, axes, args)
    notes += warn_of(training, name, found)
    running, compiling = team.largest(f"{name}: seconds", job.watch.running, job.watch.compiling)
    devices = shares.devices * (1 if mesh is None else mesh.per_share)
    report = StageReport(
        name=training.name,
        seconds=running * devices / keys.shape[0],
        compile_seconds=compiling,
        width=width,
        devices=devices,
        notes=tuple(notes),
        validation=validation,
    )
    return found, report


def make_one(make: Make, settings: PyTree) -> Any:
    """What `make` makes of the first run's settings, outside any trace."""
    return make(jax.tree.map(lambda leaf: leaf[0], settings))


@dataclasses.dataclass(frozen=True)
class _Job:
    """What all groups of a fit have in common; of the data, a digest if there are checkpoints."""

    make: Make
    mesh: RunsMesh | None
    options: FitOptions
    watch: Stopwatch
    name: str
    data: np.ndarray | None
    team: Team
    shares: Shares


def _width(job: _Job, axes: tuple[Any, ...], args: tuple[Any, ...]) -> int:
    """Choose how many runs each device trains at once, and tell progress of it before the first step."""
    make, mesh, options, watch, devices = job.make, job.mesh, job.options, job.watch, job.shares.devices
    beside = job.team.neighbours(f"{job.name}: hosts")
    fits, needed = width_of(make, mesh, axes, args, options, watch, devices, beside)
    per_device = job.team.least(f"{job.name}: width", fits)
    begins = getattr(options.progress, "begins", None)
    if begins is not None:
        if needed is None or per_device < fits:
            needed = program_memory(make, mesh, axes, args, per_device, options.chunk, watch)
        local, free = 1 if mesh is None else mesh.size, free_on_a_device(mesh, beside)
        begins(Outset(job.name, args[0].shape[0], per_device * devices, local, needed, free))
    return per_device


def _trained(
    job: _Job, per_device: int, axes: tuple[Any, ...], args: tuple[Any, ...]
) -> tuple[Network, list[str], dict[str, np.ndarray]]:
    """Train all runs, group by group; return their networks, notes, and metrics at the borders.

    Raises:
      ArgumentError: a start from which no run can move.
    """
    runs, width = args[0].shape[0], per_device * job.shares.devices
    results, notes, validations, dead = [], [], [], []
    groups = math.ceil(runs / width)
    for group in range(groups):
        members = np.arange(group * width, min((group + 1) * width, runs))
        padded = np.resize(members, width) if len(members) < width else members

        def taken(some: np.ndarray) -> Any:
            return args if np.array_equal(some, np.arange(runs)) else take_runs(axes, args, some)

        share = place(job.mesh, axes, taken(padded[job.shares.mine(per_device)]))
        loop = _Group(job, per_device, share, partial(taken, padded), members, group, groups)
        result, validation = loop.run()
        results.append(result if len(members) == width else first_runs(len(members), result))
        validations.append({name: values[:, : len(members)] for name, values in validation.items()})
        notes += loop.notes
        dead.append(loop.is_dead)

    if all(dead) and job.options.dead_start != "ignore":
        raise ArgumentError(notes[0])
    validation = {name: np.hstack([v[name] for v in validations]) for name in validations[0]}
    return joined_runs(job.mesh, results), notes, validation


def places_of(
    make: Make, args: tuple[Any, ...], options: FitOptions, team: Team, split: RunsMesh | None
) -> tuple[RunsMesh | None, Shares]:
    """The devices of a fit that begins, those of a mesh that was given; and each process's share of its runs.

    Without a mesh its steps are programs of their own, on one device of each process.
    """
    if split is not None:
        return split, Shares((split.shares,))
    runs = args[0].shape[0]
    at_once = min(runs, options.at_once or runs)
    alone = options.loop == "auto" and programs.is_slow_in_loops(programs.first_step(make, args))
    if options.loop == "step" or alone:
        return None, Shares.of((1,) * team.size, runs, team.index)
    shares = Shares.of(team.devices, at_once, team.index)
    return runs_mesh(local_devices(options.devices), shares.local), shares


class _State(NamedTuple):
    """All that the loop over one group of runs keeps: what a checkpoint holds.

    `failed_at` is that of the carry, for runs that had not stopped before; `seconds` is the time that was
    spent so far; `last_batch` the digest of the last batch, of a stream.
    """

    step: np.ndarray
    carry: Carry
    best: Best | None
    losses: np.ndarray
    validation: dict[str, np.ndarray]
    failed_at: np.ndarray
    seconds: np.ndarray
    last_batch: np.ndarray | None


class _Told(NamedTuple):
    """What every process is told at a border, of every run of the group: so all decide alike.

    `due` says whether it is time for a checkpoint, by the clock of the first process.
    """

    losses: np.ndarray
    failed_at: np.ndarray
    running: np.ndarray
    due: np.ndarray


class _Group:
    """The host loop over the chunks of one group of runs: a process's share of it, in step with the others.

    `members` are the runs of the whole group, and `whole` makes what all are fitted with; copies of runs,
    which fill a program up, come after them.
    """

    def __init__(
        self,
        job: _Job,
        per_device: int,
        share: tuple[PyTree, ...],
        whole: Callable[[], tuple[PyTree, ...]],
        members: np.ndarray,
        group: int,
        groups: int,
    ) -> None:
        self.make, self.mesh, self.options, self.watch = job.make, job.mesh, job.options, job.watch
        self.keys, self.settings, self.problem, self.network = share
        self.members, self.group, self.groups = members, group, groups
        self.name, self.data, self.whole = job.name, job.data, whole
        self.team = job.team
        self.rows, self.mine = job.shares.rows(per_device), job.shares.mine(per_device)
        self.training = make_one(self.make, self.settings)
        self.descent = self.training.on(self.problem).descent
        self.notes: list[str] = []
        self.is_dead = False
        self._failed: set[int] = set()
        self._scheduled: dict[int, PyTree] = {}
        self._digest: np.ndarray | None = None
        self._is_any_running = True

    def run(self) -> tuple[Network, dict[str, np.ndarray]]:
        """Train to the end, from the last checkpoint if there is one: what was found, and the metrics."""
        steps, chunk = self.descent.steps, self.options.chunk
        before = self.watch.running
        state, border = self._first_state()
        state = self._restored(state)
        advance = None
        with self._windows(state) as windows:
            while state.step < steps and not self._over(state):
                start = int(state.step)
                stop = min(start + chunk, steps)
                running = self._running(state)
                window, last_batch = self._next(windows)
                advance = advance or self._compile_advance(state.carry, window)
                carry, values = advance(state.carry, start, stop, window)
                state.losses[running, start:stop] = np.asarray(values)[running, : stop - start]
                state.failed_at[running] = np.asarray(carry.failed_at)[running]
                best = state.best
                if start < self._awake <= stop:
                    self._report_dead(np.asarray(carry.dead))
                if border is not None:
                    metrics, best = self.watch.run(border, *self._inputs(start), carry, best)
                    for name, row in metrics.items():
                        # What has stopped keeps NaN here: no program returns it, for `jax_debug_nans`.
                        state.validation[name][start // chunk, running] = np.asarray(row)[running]
                seconds = np.asarray(self.watch.running - before)
                state = state._replace(
                    step=np.asarray(stop), carry=carry, best=best, seconds=seconds, last_batch=last_batch
                )
                told = self._tell(state)
                self._report(state, told)
                over = stop == steps or self._over(state)
                if self.options.checkpoint is not None and (over or told.due[0]):
                    saved = self._saved(state)
                    if self.team.index == 0:
                        self.options.checkpoint.save(self._slot, saved, last=over)
        return self._result(state), self._by_border(
            self.team.gather(f"{self._slot}: validation", self._by_run(state.validation), self.rows)
        )

    def _next(self, windows: Iterator[tuple[Window | None, np.ndarray | None]]) -> Any:
        """The window of a chunk, the wait for it counted."""
        return next(windows) if self.problem.stream is None else self.watch.run(next, windows)

    def _windows(self, state: _State) -> Any:
        """The window of every chunk that is left, and the digest of its last batch, a chunk ahead."""
        stream, steps = self.problem.stream, self.descent.steps
        start = int(state.step)
        if stream is None or start == steps or self._over(state):
            return contextlib.nullcontext(itertools.repeat((None, None)))
        last, size = state.last_batch if start else None, min(self.options.chunk, steps)

        def placed(item: tuple[Window, np.ndarray]) -> tuple[Window, np.ndarray]:
            return place_window(self.mesh, item[0]), item[1]

        return Ahead(lambda closed: stream.windows(start, steps, size, last, closed), 1, placed)

    def _first_state(self) -> tuple[_State, Any]:
        """The state before the first step, and the program for the borders, if there is something to do."""
        inputs = self._inputs(0)
        begin = self.watch.compile(programs.begin, self.make, self.mesh, self.keys, *inputs, self.network)
        carry = self.watch.run(begin, self.keys, *inputs, self.network)
        width, steps = self.keys.shape[0], self.descent.steps
        best = self._first_best(carry)
        border, validation = None, {}
        stopping = self.options.early_stopping
        if self.problem.validation is not None or stopping is not None:
            args = (self.make, self.mesh, stopping, *inputs, carry, best)
            metrics, _ = programs.border.eval_shape(*args)
            borders = math.ceil(steps / self.options.chunk)
            validation = {name: np.full((borders, width), np.nan) for name in metrics}
            border = self.watch.compile(programs.border, *args)
        losses = np.full((width, steps), np.nan, np.float32)
        failed_at = np.full(width, -1, np.int32)
        last_batch = None if self.problem.stream is None else self.problem.stream.digest
        self._trainable = list(named_leaves(inexact(carry.state.trainable)))
        state = _State(np.asarray(0), carry, best, losses, validation, failed_at, np.asarray(0.0), last_batch)
        return state, border

    def _first_best(self, carry: Carry) -> Best | None:
        if self.options.early_stopping is None:
            return None
        width = self.keys.shape[0]
        best = Best(
            value=jnp.full(width, jnp.inf),
            state=jax.tree.map(jnp.copy, carry.state),
            waited=jnp.zeros(width, jnp.int32),
            stopped=jnp.zeros(width, bool),
        )
        return place(self.mesh, (0,), (best,))[0]

    def _inputs(self, index: int, window: Window | None = None) -> tuple[PyTree, Problem]:
        """Settings and problem for the chunk that begins with a step."""
        problem = self.problem if window is None else dataclasses.replace(self.problem, window=window)
        if self.options.schedule is None:
            return self.settings, problem
        if index not in self._scheduled:
            scheduled = self.options.schedule(index, self.settings)
            self._scheduled[index] = _scheduled(scheduled, self.settings)
        return self._scheduled[index], problem

    def _compile_advance(
        self, carry: Carry, window: Window | None
    ) -> Callable[[Carry, int, int, Window | None], tuple[Carry, Any]]:
        """`(carry, start, stop, window) -> (carry, losses)`: one program a chunk, or one a step."""
        zero = jnp.zeros((), jnp.int32)
        if self.mesh is not None:
            static = (self.make, self.mesh, self.options.chunk)
            inputs = (self.keys, *self._inputs(0, window))
            chunk = self.watch.compile(programs.advance, *static, *inputs, carry, zero, zero)

            def advance(carry: Carry, start: int, stop: int, window: Window | None) -> tuple[Carry, Array]:
                borders = jnp.asarray(start, jnp.int32), jnp.asarray(stop, jnp.int32)
                return self.watch.run(chunk, self.keys, *self._inputs(start, window), carry, *borders)

            return advance

        first = self._inputs(0, window)
        step = self.watch.compile(programs.step, self.make, self.keys, *first, carry, zero)

        def steps(carry: Carry, start: int, stop: int, window: Window | None) -> tuple[Carry, Array]:
            inputs, values = self._inputs(start, window), []
            for index in range(start, stop):
                carry, value = step(self.keys, *inputs, carry, jnp.asarray(index, jnp.int32))
                values.append(value)
            return carry, jnp.stack(values, axis=1)

        return partial(self.watch.run, steps)

    def _running(self, state: _State) -> np.ndarray:
        """Which runs early stopping has not stopped."""
        if state.best is None:
            return np.ones(self.keys.shape[0], bool)
        return ~np.asarray(state.best.stopped)

    def _over(self, state: _State) -> bool:
        """Whether nothing is left to do: every run of the group has stopped early, or failed."""
        return not self._is_any_running or len(self._failed) == len(self.members)

    def _tell(self, state: _State) -> _Told:
        """What all processes know of a border."""
        last = state.losses[:, int(state.step) - 1]
        is_due = getattr(self.options.checkpoint, "is_due", lambda name: True)
        due = np.full(len(last), self.options.checkpoint is not None and is_due(self._slot))
        batch = b"" if state.last_batch is None else state.last_batch.tobytes()
        title = f"{self._slot}: step {int(state.step)} {batch[:8].hex()}"
        told = self.team.gather(title, _Told(last, state.failed_at, self._running(state), due), self.rows)
        self._is_any_running = bool(told.running.any())
        return told

    def _report(self, state: _State, told: _Told) -> None:
        self._report_failed(told.failed_at)
        if self.options.progress is None:
            return
        last = told.losses[: len(self.members)]
        finite = last[np.isfinite(last)]
        over = False

        def look() -> Network:
            if over:
                raise ArgumentError(TOO_LATE)
            found = joined(self.network, self._concluded(state, state.carry))
            found = self.team.gather(f"{self._slot}: a look at step {int(state.step)}", found, self.rows)
            return first_runs(len(self.members), found)

        self.options.progress(
            Progress(
                name=self.name,
                step=int(state.step),
                steps=self.descent.steps,
                group=self.group,
                groups=self.groups,
                runs=len(self.members),
                loss=float(np.median(finite)) if finite.size else math.nan,
                losses=last.copy(),
                labels=tuple(self.options.label(run) for run in self.members),
                look=look,
            )
        )
        over = True

    def _report_failed(self, failed_at: np.ndarray) -> None:
        for run, step in zip(self.members, failed_at, strict=False):
            if step < 0 or run in self._failed:
                continue
            self._failed.add(run)
            remedy = self.training.remedy if step == 0 else "try a lower learning rate"
            self._note(
                f"{self.name}: {self.options.label(run)}: the loss is NaN or infinite at step {step}; "
                f"the other runs go on ({remedy})",
                NonFiniteWarning,
            )

    def _report_dead(self, dead: np.ndarray) -> None:
        dead = self.team.gather(f"{self._slot}: dead starts", dead, self.rows)[: len(self.members)]
        if not dead.any():
            return
        self.is_dead = bool(dead.all())
        hit = np.any(dead, axis=0).tolist()
        names = self._trainable
        leaves = [repr(name) for name, is_hit in zip(names, hit, strict=True) if is_hit]
        runs = self.members[dead.any(1)]
        message = (
            f"{self.name}: dead start: the gradient is exactly zero from step 0 on in {', '.join(leaves)}, "
            f"in {len(runs)} of {len(self.members)} runs (first: {self.options.label(runs[0])}); "
            f"{self.training.remedy}"
        )
        nothing_moves = self.is_dead and self.groups == 1
        if self.options.dead_start == "raise" or (nothing_moves and self.options.dead_start == "warn"):
            raise ArgumentError(message)
        if self.options.dead_start == "warn":
            self._note(message, DeadStartWarning)

    def _note(self, message: str, category: type[Warning]) -> None:
        self.notes.append(message)
        warnings.warn(message, category, stacklevel=2)

    def _saved(self, state: _State) -> PyTree:
        """What a checkpoint of the group holds: of all runs, however many processes have them.

        Only the first process's knows to what it belongs, which writes it.
        """
        return {"belongs_to": self._belonging(), "state": self._of_all(state)}

    def _of_all(self, state: _State) -> _State:
        """The state of all runs of the group, on the host if there are several processes."""
        if self.team.size == 1:
            return state
        title = f"{self._slot}: checkpoint at step {int(state.step)}"
        return self._with(state, self.team.gather(title, self._split(state), self.rows))

    def _of_mine(self, state: _State) -> _State:
        """The part of the state of all runs that this process trains."""
        if self.team.size == 1:
            return state
        return self._with(state, jax.tree.map(lambda leaf: leaf[self.mine], self._split(state)))

    def _split(self, state: _State) -> dict[str, PyTree]:
        """What a state has of each run, along the first axis."""
        split = {name: getattr(state, name) for name in ("carry", "best", "losses", "failed_at")}
        return split | {"validation": self._by_run(state.validation)}

    def _with(self, state: _State, split: dict[str, PyTree]) -> _State:
        return state._replace(**split | {"validation": self._by_border(split["validation"])})

    @staticmethod
    def _by_run(validation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: values.T for name, values in validation.items()}

    _by_border = _by_run

    def _belonging(self) -> np.ndarray:
        """A digest of what the group is of; of no use, and empty, where it is not the first process's."""
        if self.team.index > 0:
            return np.zeros(0, np.uint8)
        if self._digest is None:
            keys, settings, problem, network = self.whole()
            training = self.training
            learned = (training.name, training.init, training.params, training.network, training.settings)
            beside = (
                training.penalty,
                training.observe,
                training.around,
                problem.init,
                problem.loss,
                problem.gather,
            )
            borders = (self.options.early_stopping, self.options.schedule)
            self._digest = tree_digest(
                (keys, settings, dataclasses.replace(problem, data=self.data), network),
                (
                    fingerprint((learned, beside, self.descent, borders)),
                    self.options.chunk,
                    len(self.members),
                ),
            )
        return self._digest

    def _restored(self, state: _State) -> _State:
        """The state of the last checkpoint, if there is one."""
        if self.options.checkpoint is None:
            return state
        mine = self._saved(state)
        saved = self.options.checkpoint.load(self._slot, mine) if self.team.index == 0 else None
        if saved is not None and not np.array_equal(saved["belongs_to"], mine["belongs_to"]):
            raise ArgumentError(
                f"checkpoint: {self._slot!r} is of a fit with other keys, settings, data or sizes, or of "
                "another strategy, problem or descent, schedule or early stopping; use a fresh folder"
            )
        whole = self.team.of_the_first(self._slot, saved and saved["state"], mine["state"])
        if whole is None:
            return state
        self._check_counts(int(whole.step), float(whole.seconds))
        self._is_any_running = whole.best is None or not np.asarray(whole.best.stopped).all()
        state = self._of_mine(whole)
        carry, best = place(self.mesh, (0, 0), (state.carry, state.best))
        state = state._replace(
            carry=carry,
            best=best,
            losses=np.array(state.losses),
            failed_at=np.array(state.failed_at),
            validation={name: np.array(rows) for name, rows in state.validation.items()},
        )
        self.watch.running += float(state.seconds)
        if state.step >= self._awake:
            self._report_dead(np.asarray(carry.dead))
        self._report_failed(np.asarray(whole.failed_at))
        return state

    def _check_counts(self, step: int, seconds: float) -> None:
        """Raise unless a checkpoint's step is a border, and its seconds are a time."""
        steps = self.descent.steps
        is_border = 0 <= step <= steps and (step == steps or step % self.options.chunk == 0)
        if not is_border or not 0 <= seconds < math.inf:
            raise ArgumentError(f"checkpoint: {self._slot!r} is damaged; use a fresh folder")

    @property
    def _awake(self) -> int:
        """The step by which every leaf that is not dead has had a gradient."""
        return min(WAKING, self.descent.steps)

    @property
    def _slot(self) -> str:
        return f"{self.name} group {self.group}"

    def _concluded(self, state: _State, carry: Carry) -> Network:
        """What is found where the training ends with a carry."""
        (losses, failed_at) = place(self.mesh, (0, 0), (state.losses, state.failed_at))
        carry = carry._replace(failed_at=failed_at)
        last_chunk = (int(state.step) - 1) // self.options.chunk * self.options.chunk
        settings = self._inputs(last_chunk)[0]
        conclude = self.watch.compile(programs.conclude, self.make, self.mesh, settings, carry)
        # Losses have NaN where a run has stopped: no program returns them, for `jax_debug_nans`.
        return with_losses(self.watch.run(conclude, settings, carry), losses)

    def _result(self, state: _State) -> Network:
        best = state.best
        # What early stopping keeps are the weights to evaluate already.
        carry = state.carry if best is None else state.carry._replace(state=best.state, opt_state=())
        network = self._concluded(state, carry)
        if best is not None:
            network = network.replace(info={**network.info, "kept_at": best.state.step})
        network = self.team.gather(f"{self._slot}: result", network, self.rows)
        self._report_failed(np.asarray(network.failed_at))
        return network


def _scheduled(scheduled: PyTree, settings: PyTree) -> PyTree:
    """Scheduled settings in the shapes, dtypes and places of those that they replace."""

    def placed(value: Any, original: Array) -> Array:
        value = jnp.broadcast_to(jnp.asarray(value, original.dtype), original.shape)
        return jax.device_put(value, original.sharding)

    try:
        return jax.tree.map(placed, scheduled, settings)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"schedule: it must return settings of the structure and shapes that it was given, which are "
            f"{shown(jax.tree.map(jnp.shape, settings))} ({first_line(error)})"
        ) from None


def _check_options(options: FitOptions, problem: Problem, settings: PyTree) -> None:
    stopping = options.early_stopping
    if stopping is not None and stopping.metric != "gap" and problem.validation is None:
        raise ArgumentError("early_stopping: the problem has no validation rows; give it `validation=rows`")
    if options.schedule is not None and not jax.tree.leaves(settings):
        raise ArgumentError(
            "schedule: there are no settings to schedule; make the strategy a function of settings"
        )

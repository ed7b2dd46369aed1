"""The only place that loops: a training's steps in compiled chunks, for many runs at once, on all devices.

Whatever a long training needs happens at the borders between chunks: progress, validation, early stopping,
schedules, reports of runs that failed, checkpoints.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from jaxarch import training as single
from jaxarch.devices import over_runs, place, runs_mesh, take_runs
from jaxarch.errors import ArgumentError, DeadStartWarning, NonFiniteWarning, check_count
from jaxarch.problem import Found, Problem
from jaxarch.trees import PyTree, named_leaves

Make = Callable[[PyTree], single.Training]
"""From one run's settings to its training; hashable, and of one structure for all settings."""


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """Stop a run whose validation metric no longer improves, and keep its best parameters.

    Each run is judged by itself: its result is that of its own best border before its patience ran out,
    whatever the other runs do. The loop ends when all runs have stopped.

    Attributes:
      metric: `loss`, or a name of the problem's `metrics`.
      patience: chunks without improvement before a run stops.
      mode: whether smaller (`min`) or larger (`max`) is better.
      least: how much better counts as an improvement.
    """

    metric: str = "loss"
    patience: int = 5
    mode: Literal["min", "max"] = "min"
    least: float = 0.0

    def __post_init__(self) -> None:
        check_count("patience", self.patience)
        if self.mode not in ("min", "max"):
            raise ArgumentError(f"mode: expected 'min' or 'max', got {self.mode!r}")


@dataclasses.dataclass(frozen=True)
class Progress:
    """What a progress callback is told at a chunk border.

    `name` is the strategy's and the stage's; `group` counts the groups of runs that are trained one after the
    other when memory or the kind of model does not allow all at once; `loss` is the median over the group.
    """

    name: str
    step: int
    steps: int
    group: int
    groups: int
    runs: int
    loss: float


class Checkpoint(Protocol):
    """Where a fit saves its carry, and whence it continues. `jaxarch.Checkpoints` keeps them in a folder."""

    def load(self, name: str, like: PyTree) -> PyTree | None:
        """The pytree last saved under a name, in the structure of `like`; `None` if there is none."""

    def save(self, name: str, tree: PyTree) -> None:
        """Keep a pytree under a name, in place of the last."""


@dataclasses.dataclass(frozen=True)
class FitOptions:
    """How to fit, as against what: nothing here changes the result of a run, but for early stopping.

    Attributes:
      chunk: steps between two borders.
      progress: called at every border, with a `Progress`.
      early_stopping: needs the problem's `validation` rows.
      schedule: `(step, settings) -> settings`, called at every border with the settings that the fit was
        given: temperatures, rates or penalties that change while training. Needs `settings`.
      checkpoint: where the state is saved at every border, and whence an interrupted fit continues to the
        same bits.
      at_once: how many runs to train in one program; by default all that fit in memory.
      memory: bytes that a program may use on one device; by default what the device says is free.
      devices: by default all of `jax.devices()`.
      loop: `scan` for one program a chunk, all runs at once; `step` for one program a step, runs in turn, which
        is many times faster for convolutions on CPU; `auto` chooses.
      dead_start: what to do when some trainable leaf's first gradient is exactly zero: `warn` (and raise if
        no run can move at all), `raise`, or `ignore`. It is recorded in `info` in any case.
      labels: names of the runs for reports; `run 0`, `run 1`, ... by default.
      name: the strategy's, for progress and reports.
      stage: the stage's place in its strategy, for the names of checkpoints.
    """

    chunk: int = 100
    progress: Callable[[Progress], None] | None = None
    early_stopping: EarlyStopping | None = None
    schedule: Callable[[int, PyTree], PyTree] | None = None
    checkpoint: Checkpoint | None = None
    at_once: int | None = None
    memory: int | None = None
    devices: Sequence[jax.Device] | None = None
    loop: Literal["auto", "scan", "step"] = "auto"
    dead_start: Literal["warn", "raise", "ignore"] = "warn"
    labels: Sequence[str] | None = None
    name: str = ""
    stage: int = 0

    def __post_init__(self) -> None:
        check_count("chunk", self.chunk)
        if self.at_once is not None:
            check_count("at_once", self.at_once)
        if self.loop not in ("auto", "scan", "step"):
            raise ArgumentError(f"loop: expected 'auto', 'scan' or 'step', got {self.loop!r}")
        if self.dead_start not in ("warn", "raise", "ignore"):
            raise ArgumentError(f"dead_start: expected 'warn', 'raise' or 'ignore', got {self.dead_start!r}")

    def label(self, run: int) -> str:
        """The name of a run in reports."""
        return f"run {run}" if self.labels is None else self.labels[run]

    def named(self, stage: str) -> str:
        """The name of a stage in progress and reports."""
        return f"{self.name}: {stage}" if self.name else stage


@dataclasses.dataclass(frozen=True)
class StageReport:
    """What one stage cost and what happened on the way.

    Attributes:
      name: the stage's.
      seconds: wall time x devices / runs, compilation apart: what one run costs one device.
      compile_seconds: tracing and compiling, all programs together.
      width: how many runs were in one program (`vmap`), over all devices.
      devices: how many devices shared them.
      notes: runs that failed, dead starts: one line each.
      validation: metrics at the chunk borders, each of shape (borders, runs); NaN where a run had stopped.
    """

    name: str
    seconds: float
    compile_seconds: float
    width: int
    devices: int
    notes: tuple[str, ...] = ()
    validation: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


class Best(NamedTuple):
    """Early stopping's memory of one run: its best border so far, and how long ago that was."""

    value: Array
    trainable: PyTree
    state: PyTree
    step: Array
    waited: Array
    stopped: Array


# Programs: each compiles once for a training, a mesh and the arrays' shapes ---------------------------


@partial(jax.jit, static_argnames=("make", "mesh"))
def _begin(make: Make, mesh: Mesh | None, keys: Array, settings: PyTree, problem: Problem, found: Any):
    def begin(key: Array, settings: PyTree, problem: Problem, found: Found | None) -> single.Carry:
        return single.begin(make(settings), key, problem, found)

    return over_runs(begin, mesh, (0, 0, problem.in_axes(), 0))(keys, settings, problem, found)


@partial(jax.jit, static_argnames=("make", "mesh", "size"), donate_argnames=("carry",))
def _advance(
    make: Make,
    mesh: Mesh | None,
    size: int,
    keys: Array,
    settings: PyTree,
    problem: Problem,
    carry: single.Carry,
    start: Array,
    stop: Array,
):
    def advance(key: Array, settings: PyTree, problem: Problem, carry: single.Carry, *borders: Array):
        return single.advance(make(settings), key, problem, carry, *borders, size)

    axes = (0, 0, problem.in_axes(), 0, None, None)
    return over_runs(advance, mesh, axes)(keys, settings, problem, carry, start, stop)


@partial(jax.jit, static_argnames=("make",), donate_argnames=("carry",))
def _step(make: Make, keys: Array, settings: PyTree, problem: Problem, carry: single.Carry, index: Array):
    def step(key: Array, settings: PyTree, problem: Problem, carry: single.Carry, index: Array):
        return single.step(make(settings), key, problem, carry, index)

    axes = (0, 0, problem.in_axes(), 0, None)
    return over_runs(step, None, axes)(keys, settings, problem, carry, index)


@partial(jax.jit, static_argnames=("make", "mesh", "stopping"), donate_argnames=("best",))
def _border(
    make: Make,
    mesh: Mesh | None,
    stopping: EarlyStopping | None,
    settings: PyTree,
    problem: Problem,
    carry: single.Carry,
    best: Best | None,
    index: Array,
):
    def border(settings: PyTree, problem: Problem, carry: single.Carry, best: Best | None, index: Array):
        params = make(settings).params(carry.trainable, carry.fixed)
        metrics = {"loss": problem.objective(params, carry.state, problem.validation)}
        if problem.metrics is not None:
            batch = problem.gather(problem.data, problem.own, problem.validation)
            metrics |= problem.metrics(params, carry.state, batch)
        if stopping is not None and best is not None:
            best = _judge(stopping, metrics, carry, best, index)
        return metrics, best

    axes = (0, problem.in_axes(), 0, 0, None)
    return over_runs(border, mesh, axes)(settings, problem, carry, best, index)


def _judge(
    stopping: EarlyStopping, metrics: dict[str, Array], carry: single.Carry, best: Best, index: Array
) -> Best:
    if stopping.metric not in metrics:
        raise ArgumentError(f"early_stopping: no metric {stopping.metric!r}; there are: {', '.join(metrics)}")
    value = metrics[stopping.metric] * (1 if stopping.mode == "min" else -1)
    # `not >=`, so that NaN is never an improvement.
    better = ~best.stopped & (value < best.value - stopping.least)
    waited = jnp.where(better, 0, best.waited + 1)

    def keep(new: PyTree, old: PyTree) -> PyTree:
        return jax.tree.map(lambda a, b: jnp.where(better, a, b), new, old)

    return Best(
        value=keep(value, best.value),
        trainable=keep(carry.trainable, best.trainable),
        state=keep(carry.state, best.state),
        step=jnp.where(better, index, best.step),
        waited=waited,
        stopped=best.stopped | (waited >= stopping.patience),
    )


@partial(jax.jit, static_argnames=("make", "mesh"))
def _conclude(make: Make, mesh: Mesh | None, settings: PyTree, carry: single.Carry, losses: Array):
    def conclude(settings: PyTree, carry: single.Carry, losses: Array) -> Found:
        return single.conclude(make(settings), carry, losses)

    return over_runs(conclude, mesh, (0, 0, 0))(settings, carry, losses)


# The loop --------------------------------------------------------------------------------------------


class _Stopwatch:
    """Wall time, with compilation kept apart from running."""

    def __init__(self) -> None:
        self.compiling = 0.0
        self.running = 0.0

    def compile(self, program: Any, *args: Any, **static: Any) -> Any:
        start = time.perf_counter()
        executable = program.lower(*args, **static).compile()
        self.compiling += time.perf_counter() - start
        return executable

    def run(self, executable: Callable[..., Any], *args: Any) -> Any:
        start = time.perf_counter()
        result = jax.block_until_ready(executable(*args))
        self.running += time.perf_counter() - start
        return result


def fit(
    make: Make,
    keys: Array,
    problem: Problem,
    settings: PyTree = None,
    found: Found | None = None,
    options: FitOptions = FitOptions(),
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
    _check_options(options, problem, settings)
    runs = keys.shape[0]
    one_by_one = options.loop == "step" or (
        options.loop == "auto" and _slow_in_programs(make, keys, settings, problem, found)
    )
    mesh = None if one_by_one else runs_mesh(options.devices, runs)
    watch = _Stopwatch()
    problem = dataclasses.replace(problem, data=place(mesh, (None,), (problem.data,))[0])
    axes = (0, 0, problem.in_axes(), 0)
    args = (keys, settings, problem, found)
    width = 1 if mesh is None else _width(make, mesh, axes, args, options, watch)

    results, notes, validations = [], [], []
    groups = math.ceil(runs / width)
    for group in range(groups):
        members = np.arange(group * width, min((group + 1) * width, runs))
        padded = np.resize(members, width) if len(members) < width else members
        share = place(mesh, axes, args if width == runs else take_runs(axes, args, padded))
        loop = _Group(make, mesh, share, options, watch, (group, groups), members)
        result, validation = loop.run()
        real = slice(len(members))
        results.append(jax.tree.map(lambda leaf, real=real: leaf[real], result))
        validations.append({name: values[:, real] for name, values in validation.items()})
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
    carry: single.Carry
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
        watch: _Stopwatch,
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
            state.losses[:, start:stop] = values[:, : stop - start]
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
        begin = self.watch.compile(_begin, self.make, self.mesh, self.keys, *self._inputs(0), self.found)
        carry = self.watch.run(begin, self.keys, *self._inputs(0), self.found)
        width, steps = self.keys.shape[0], self.problem.steps
        best = self._first_best(carry)
        border, validation = None, {}
        if self.problem.validation is not None:
            args = (*self._inputs(0), carry, best, jnp.zeros((), jnp.int32))
            static = (self.make, self.mesh, self.options.early_stopping)
            metrics, _ = jax.eval_shape(partial(_border, *static), *args)
            borders = math.ceil(steps / self.options.chunk)
            validation = {name: np.full((borders, width), np.nan) for name in metrics}
            border = self.watch.compile(_border, *static, *args)
        losses = np.full((width, steps), np.nan, np.float32)
        return _State(np.asarray(0), carry, best, losses, validation), border

    def _first_best(self, carry: single.Carry) -> Best | None:
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

    def _compile_advance(self, carry: single.Carry) -> Callable[[single.Carry, int, int], tuple]:
        """`(carry, start, stop) -> (carry, losses)`: one program a chunk, or one a step."""
        zero = jnp.zeros((), jnp.int32)
        if self.mesh is not None:
            static = (self.make, self.mesh, self.options.chunk)
            chunk = self.watch.compile(_advance, *static, self.keys, *self._inputs(0), carry, zero, zero)

            def advance(carry: single.Carry, start: int, stop: int) -> tuple[single.Carry, np.ndarray]:
                borders = jnp.asarray(start, jnp.int32), jnp.asarray(stop, jnp.int32)
                return self.watch.run(chunk, self.keys, *self._inputs(start), carry, *borders)

            return advance

        step = self.watch.compile(_step, self.make, self.keys, *self._inputs(0), carry, zero)

        def steps(carry: single.Carry, start: int, stop: int) -> tuple[single.Carry, Array]:
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

    def _report_dead(self, carry: single.Carry) -> None:
        dead = np.asarray(carry.dead)[: len(self.members)]
        if not dead.any():
            return
        leaves = [name for name, hit in zip(named_leaves(carry.trainable), dead.any(0), strict=True) if hit]
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
                f"checkpoint: {self._slot!r} was written by a fit with other keys, settings or training rows; "
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
        conclude = self.watch.compile(_conclude, self.make, self.mesh, settings, carry, losses)
        found = self.watch.run(conclude, settings, carry, losses)
        if best is not None:
            found = found._replace(info={**found.info, "kept_at": best.step})
        return found


def _as(value: Any, original: Array) -> Array:
    """A scheduled setting in the shape, dtype and place of the one that it replaces."""
    value = jnp.broadcast_to(jnp.asarray(value, original.dtype), original.shape)
    return jax.device_put(value, original.sharding)


def _concatenate(*leaves: Array) -> np.ndarray:
    return np.concatenate(jax.device_get(leaves))


def _check_options(options: FitOptions, problem: Problem, settings: PyTree) -> None:
    if options.early_stopping is not None and problem.validation is None:
        raise ArgumentError("early_stopping: the problem has no validation rows; give it `validation=rows`")
    if options.schedule is not None and not jax.tree.leaves(settings):
        raise ArgumentError(
            "schedule: there are no settings to schedule; make the strategy a function of settings"
        )


def _width(make: Make, mesh: Mesh, axes: tuple, args: tuple, options: FitOptions, watch: _Stopwatch) -> int:
    """How many runs to train at once: all, as asked, or as many as memory allows."""
    keys, settings, problem, found = args
    wanted = min(keys.shape[0], options.at_once or keys.shape[0])
    limit = options.memory if options.memory is not None else _free_memory(mesh.devices.flat[0], mesh.size)
    zero = jnp.zeros((), jnp.int32)
    per_device = math.ceil(wanted / mesh.size)
    while True:
        width = per_device * mesh.size
        if limit is None or per_device == 1:
            return width
        members = np.minimum(np.arange(width), keys.shape[0] - 1)
        share = place(mesh, axes, take_runs(axes, args, members))
        carry = jax.eval_shape(partial(_begin, make, mesh), *share)
        carry = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=share[0].sharding), carry
        )
        program = watch.compile(_advance, make, mesh, options.chunk, *share[:3], carry, zero, zero)
        stats = program.memory_analysis()
        if stats is None:
            return width
        needed = stats.temp_size_in_bytes + stats.argument_size_in_bytes + stats.output_size_in_bytes
        if needed <= limit:
            return width
        per_device = max(per_device // 2, 1)


def _free_memory(device: jax.Device, sharers: int) -> int | None:
    """Bytes that are free on a device, as far as it tells; CPU devices share the machine's."""
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    if device.platform == "cpu" and "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // sharers
    return None


def _slow_in_programs(
    make: Make, keys: Array, settings: PyTree, problem: Problem, found: Found | None
) -> bool:
    """Whether XLA would run the training many times slower inside a loop or `vmap` than step by step.

    So it is with convolutions on CPU: a step that takes 0.1 s alone takes 2.5 s inside `lax.scan`.
    """
    if jax.default_backend() != "cpu":
        return False
    axes = (0, 0, problem.in_axes(), 0)
    share = jax.eval_shape(
        lambda *args: take_runs(axes, args, np.zeros(1, int)), keys, settings, problem, found
    )

    def one_step(key: Array, settings: PyTree, problem: Problem, found: Found | None) -> Any:
        training = make(settings)
        carry = single.begin(training, key, problem, found)
        return single.step(training, key, problem, carry, jnp.zeros((), jnp.int32))

    jaxpr = jax.make_jaxpr(over_runs(one_step, None, axes))(*share)
    return _contains(jaxpr.jaxpr, "conv_general_dilated")


def _contains(jaxpr: Any, primitive: str) -> bool:
    for equation in jaxpr.eqns:
        if equation.primitive.name == primitive:
            return True
        for inner in jax.tree.leaves(
            list(equation.params.values()),
            is_leaf=lambda leaf: hasattr(leaf, "eqns") or hasattr(leaf, "jaxpr"),
        ):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns") and _contains(inner, primitive):
                return True
    return False

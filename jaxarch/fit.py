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
      validation: metrics at the chunk borders, each of shape (borders, runs).
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
    options: FitOptions = FitOptions(),  # noqa: B008
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
        members = np.minimum(np.arange(group * width, (group + 1) * width), runs - 1)
        real = min(width, runs - group * width)
        share = place(mesh, axes, args if groups == 1 and width == runs else take_runs(axes, args, members))
        loop = _Group(make, mesh, share, options, watch, group, groups, members[:real])
        result = loop.run()
        results.append(jax.tree.map(lambda leaf, real=real: leaf[:real], result))
        notes += loop.notes
        validations.append({name: np.stack(rows)[:, :real] for name, rows in loop.validation.items()})

    whole = results[0] if groups == 1 else jax.tree.map(lambda *leaves: np.concatenate(leaves), *results)
    devices = 1 if mesh is None else mesh.size
    report = StageReport(
        name=make_one(make, settings).name,
        seconds=watch.running * devices / runs,
        compile_seconds=watch.compiling,
        width=width,
        devices=devices,
        notes=tuple(notes),
        validation=_join(validations),
    )
    return whole, report


def make_one(make: Make, settings: PyTree) -> Any:
    """What `make` makes of the first run's settings, outside any trace."""
    return make(jax.tree.map(lambda leaf: leaf[0], settings))


class _Group:
    """The host loop over the chunks of one group of runs."""

    def __init__(
        self,
        make: Make,
        mesh: Mesh | None,
        share: tuple[PyTree, ...],
        options: FitOptions,
        watch: _Stopwatch,
        group: int,
        groups: int,
        members: np.ndarray,
    ) -> None:
        self.make, self.mesh, self.options, self.watch = make, mesh, options, watch
        self.keys, self.settings, self.problem, self.found = share
        self.group, self.groups, self.members = group, groups, members
        self.name = options.named(make_one(make, self.settings).name)
        self.notes: list[str] = []
        self.validation: dict[str, list[np.ndarray]] = {}
        self.failed: set[int] = set()

    def run(self) -> Found:
        steps, chunk = self.problem.steps, self.options.chunk
        begin = self.watch.compile(_begin, self.make, self.mesh, self.keys, *self._inputs(0), self.found)
        carry = self.watch.run(begin, self.keys, *self._inputs(0), self.found)
        losses = np.full((self.keys.shape[0], steps), np.nan, np.float32)
        best = self._first_best(carry)
        start, carry, losses, best = self._restore(carry, losses, best)
        advance = self._compile_advance(carry)
        border = self._compile_border(carry, best)
        while start < steps:
            stop = min(start + chunk, steps)
            carry, values = advance(carry, start, stop)
            losses[:, start:stop] = values[:, : stop - start]
            self._report(carry, start, losses[: len(self.members), stop - 1], stop)
            if border is not None:
                metrics, best = self.watch.run(
                    border, *self._inputs(start), carry, best, jnp.asarray(stop, jnp.int32)
                )
                for name, values in metrics.items():
                    self.validation.setdefault(name, []).append(np.asarray(values))
            self._save(stop, carry, losses, best)
            start = stop
            if best is not None and bool(best.stopped.all()):
                break
            if len(self.failed) == len(self.members):
                break
        return self._result(carry, losses, best)

    def _inputs(self, index: int) -> tuple[PyTree, Problem]:
        """Settings and problem from a step on."""
        if self.options.schedule is None:
            return self.settings, self.problem
        scheduled = self.options.schedule(index, self.settings)
        return jax.tree.map(self._like, scheduled, self.settings), self.problem

    @staticmethod
    def _like(value: Any, original: Array) -> Array:
        value = jnp.broadcast_to(jnp.asarray(value, original.dtype), original.shape)
        return jax.device_put(value, original.sharding)

    def _compile_advance(self, carry: single.Carry) -> Callable[[single.Carry, int, int], tuple]:
        """`(carry, start, stop) -> (carry, losses)`: one program a chunk, or one a step."""
        zero = jnp.zeros((), jnp.int32)
        if self.mesh is None:
            program = self.watch.compile(_step, self.make, self.keys, *self._inputs(0), carry, zero)

            def advance(carry: single.Carry, start: int, stop: int) -> tuple[single.Carry, np.ndarray]:
                def chunk() -> tuple[single.Carry, list[Array]]:
                    moving, values = carry, []
                    inputs = self._inputs(start)
                    for index in range(start, stop):
                        moving, value = program(self.keys, *inputs, moving, jnp.asarray(index, jnp.int32))
                        values.append(value)
                    return moving, values

                moved, values = self.watch.run(chunk)
                return moved, np.stack(values, axis=1)

            return advance

        program = self.watch.compile(
            _advance, self.make, self.mesh, self.options.chunk, self.keys, *self._inputs(0), carry, zero, zero
        )

        def advance_chunk(carry: single.Carry, start: int, stop: int) -> tuple[single.Carry, np.ndarray]:
            borders = jnp.asarray(start, jnp.int32), jnp.asarray(stop, jnp.int32)
            carry, values = self.watch.run(program, self.keys, *self._inputs(start), carry, *borders)
            return carry, np.asarray(values)

        return advance_chunk

    def _compile_border(self, carry: single.Carry, best: Best | None) -> Any:
        if self.problem.validation is None:
            return None
        zero = jnp.zeros((), jnp.int32)
        return self.watch.compile(
            _border, self.make, self.mesh, self.options.early_stopping, *self._inputs(0), carry, best, zero
        )

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

    def _report(self, carry: single.Carry, start: int, last: np.ndarray, stop: int) -> None:
        if start == 0 and self.options.dead_start != "ignore":
            self._report_dead(carry)
        failed_at = np.asarray(carry.failed_at)
        for place_, run in enumerate(self.members):
            if failed_at[place_] >= 0 and run not in self.failed:
                self.failed.add(run)
                self._note(
                    f"{self.name}: {self.options.label(run)}: the loss is NaN or infinite at step "
                    f"{failed_at[place_]}; the other runs go on (try a lower learning rate)",
                    NonFiniteWarning,
                )
        if self.options.progress is not None:
            finite = last[np.isfinite(last)]
            loss = float(np.median(finite)) if finite.size else math.nan
            self.options.progress(
                Progress(
                    self.name, stop, self.problem.steps, self.group, self.groups, len(self.members), loss
                )
            )

    def _report_dead(self, carry: single.Carry) -> None:
        dead = np.asarray(carry.dead)[: len(self.members)]
        if not dead.any():
            return
        remedy = make_one(self.make, self.settings).remedy
        leaves = [name for name, hit in zip(named_leaves(carry.trainable), dead.any(0), strict=True) if hit]
        runs = self.members[dead.any(1)]
        message = (
            f"{self.name}: dead start: the gradient is exactly zero at step 0 in "
            f"{', '.join(repr(leaf) for leaf in leaves)}, in {len(runs)} of {len(self.members)} runs "
            f"(first: {self.options.label(runs[0])}); {remedy}"
        )
        if self.options.dead_start == "raise" or dead.all():
            raise ArgumentError(message)
        self._note(message, DeadStartWarning)

    def _note(self, message: str, category: type[Warning]) -> None:
        self.notes.append(message)
        warnings.warn(message, category, stacklevel=2)

    def _saved(self, step: int, carry: single.Carry, losses: np.ndarray, best: Best | None) -> PyTree:
        return {"step": np.asarray(step), "carry": carry, "losses": losses, "best": best}

    def _save(self, step: int, carry: single.Carry, losses: np.ndarray, best: Best | None) -> None:
        if self.options.checkpoint is not None:
            self.options.checkpoint.save(self._slot, self._saved(step, carry, losses, best))

    def _restore(self, carry: single.Carry, losses: np.ndarray, best: Best | None) -> tuple:
        if self.options.checkpoint is None:
            return 0, carry, losses, best
        saved = self.options.checkpoint.load(self._slot, self._saved(0, carry, losses, best))
        if saved is None:
            return 0, carry, losses, best
        carry, best = place(self.mesh, (0, 0), (saved["carry"], saved["best"]))
        return int(saved["step"]), carry, np.array(saved["losses"]), best

    @property
    def _slot(self) -> str:
        return f"{self.name} {self.group + 1} of {self.groups}".replace("/", "-")

    def _result(self, carry: single.Carry, losses: np.ndarray, best: Best | None) -> Found:
        if best is not None:
            carry = carry._replace(trainable=best.trainable, state=best.state)
        settings = self._inputs(self.problem.steps)[0]
        (placed,) = place(self.mesh, (0,), (losses,))
        conclude = self.watch.compile(_conclude, self.make, self.mesh, settings, carry, placed)
        found = self.watch.run(conclude, settings, carry, placed)
        if best is not None:
            found = found._replace(info={**found.info, "kept_at": best.step})
        return found


def _join(validations: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Metrics of all groups side by side; NaN where a group stopped earlier than another."""
    joined = {}
    for name in validations[0] if validations else ():
        borders = max(group[name].shape[0] for group in validations)
        joined[name] = np.concatenate(
            [
                np.pad(
                    group[name].astype(np.float64),
                    ((0, borders - group[name].shape[0]), (0, 0)),
                    constant_values=np.nan,
                )
                for group in validations
            ],
            axis=1,
        )
    return joined


def _check_options(options: FitOptions, problem: Problem, settings: PyTree) -> None:
    if options.early_stopping is not None and problem.validation is None:
        raise ArgumentError("early_stopping: the problem has no validation rows; give it `validation=rows`")
    if options.schedule is not None and not jax.tree.leaves(settings):
        raise ArgumentError(
            "schedule: there are no settings to schedule; make the strategy a function of settings"
        )


def _width(
    make: Make, mesh: Mesh, axes: tuple, args: tuple, options: FitOptions, watch: _Stopwatch
) -> int:
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
            list(equation.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns") or hasattr(leaf, "jaxpr")
        ):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns") and _contains(inner, primitive):
                return True
    return False

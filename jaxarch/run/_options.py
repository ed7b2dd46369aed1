"""Options of a fit, what it tells on the way, and its report."""

from __future__ import annotations

import dataclasses
import inspect
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import jax
import numpy as np
from jax.sharding import Mesh

from jaxarch._internal.errors import (
    ArgumentError,
    check_choice,
    check_count,
    check_one_finite,
    check_one_strength,
    shown,
)
from jaxarch._internal.memory import ProgramMemory
from jaxarch._internal.trees import PyTree
from jaxarch.run._callbacks.chunk_end import Callback, densities_of
from jaxarch.run._network import Network
from jaxarch.run._partition import Rules
from jaxarch.run._processes import ALL_HOSTS


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """Stop a run whose metric no longer improves, or is good enough, and keep its best parameters.

    Each run is judged by itself: it returns the parameters of its own best chunk end before its patience ran
    out, whatever the other runs do. The loop ends when all runs have stopped.

    Attributes:
      metric: `loss`, or a name of the problem's `metrics`, on the validation rows; or `gap`, for a search
        that has it (`search.two_temperature`). The gap tells how far from stationary the mask is that the
        search descends on, over all training rows (`theory.optimality.duality_gap`), its penalty included. It
        needs no validation rows, but a gradient on all training rows at every chunk's end.
      patience: chunks without improvement before a run stops.
      mode: whether smaller (`min`) or larger (`max`) is better.
      least: how much better counts as an improvement, finite and at least 0.
      until: a value that is good enough: a run stops there; `None` for no such value.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> model = (lambda key: {"w": jnp.zeros((1, 1))}, lambda params, x: x @ params["w"])
      >>> problem = jaxarch.supervised(
      ...     model, (jnp.ones((2, 1)), jnp.array([[1.0], [0.75]])), loss=optax.l2_loss,
      ...     optimizer=optax.sgd(0.5), steps=100, train=[0], validation=[1],
      ... )
      >>> search, keys = jaxarch.search.dense(nonnegative=False), jax.random.split(jax.random.key(0), 1)
      >>> stop = jaxarch.EarlyStopping(patience=2)  # w is .5, .75, .875, .9375, and no more
      >>> network, _ = jaxarch.over_seeds(search, keys, problem, chunk=1, early_stopping=stop)
      >>> print(network.params["w"], jnp.isfinite(network.info["loss"]).sum())
      [[[0.75]]] 4
    """

    metric: str = "loss"
    patience: int = 5
    mode: Literal["min", "max"] = "min"
    least: float = 0.0
    until: float | None = None

    def __post_init__(self) -> None:
        check_count("patience", self.patience)
        if self.until is not None:
            check_one_finite("until", self.until)
        check_one_strength("least", self.least)
        if self.mode not in ("min", "max"):
            raise ArgumentError(f"mode: expected 'min' or 'max', got {shown(self.mode)}")
        if self.metric == "gap" and self.mode == "max":
            raise ArgumentError(
                "mode: expected 'min' for the metric 'gap', got 'max'; a smaller gap is better"
            )


TOO_LATE = "progress: the network of a chunk's end is available only inside the callback; ask for it there"


@dataclasses.dataclass(frozen=True)
class Progress:
    """A chunk's end as progress callbacks see it.

    Attributes:
      name: the strategy's and the stage's.
      step: how many steps have been taken.
      steps: how many steps the training has.
      group: index of this group of runs; groups are trained one after the other when memory or the kind of
        model does not allow all runs at once.
      groups: how many groups there are.
      runs: how many runs the group has.
      loss: the median of the finite `losses`, NaN if none is; `None` for a stage that is not a training.
      losses: the last step's loss of each run of the group, shape (runs,); NaN if early stopping has stopped
        the run.
      labels: the names of these runs.
      making: for an experiment whose parts are made by other processes: the parts that are being made; `step`
        and `steps` then count parts. `None` for a training.
      look: function that makes the return value of `network`.
    """

    name: str
    step: int
    steps: int
    group: int
    groups: int
    runs: int
    loss: float | None
    losses: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0), compare=False, repr=False)
    labels: tuple[str, ...] = ()
    making: tuple[str, ...] | None = None
    look: Callable[[], Network] | None = dataclasses.field(default=None, compare=False, repr=False)

    def network(self) -> Network:
        """Return the network that would be found if the training ended here, with a leading axis of runs.

        Its masks are hard. The program that ends the training computes it on request, so it costs nothing
        unless you ask. Ask within the callback: the next chunk is written in its place. Parameters that early
        stopping would keep from an earlier chunk's end are not considered.

        Raises:
          ArgumentError: it is asked for after the callback has returned.
        """
        if self.look is None:
            raise ArgumentError(TOO_LATE)
        return self.look()

    def densities(self) -> np.ndarray | None:
        """Return the density of each run of the group, shape (runs,); `None` without a mask.

        Density is the share of connections that a run keeps.

        Raises:
          ArgumentError: it is asked for after the callback has returned, as with `network`.
        """
        return densities_of(self.network())


@dataclasses.dataclass(frozen=True)
class RunPlan:
    """Facts known about a training before its first step.

    Attributes:
      name: the strategy's and the stage's.
      runs: how many runs there are.
      max_parallel_runs: how many runs one program trains. Some repeat others where the devices would have
        unequally many.
      devices: how many devices this process trains them on.
      memory: memory of the program on each device, if the compiler counts it.
      free: free bytes on a device, if it tells.
    """

    name: str
    runs: int
    max_parallel_runs: int
    devices: int
    memory: ProgramMemory | None
    free: int | None


class Checkpoint(Protocol):
    """Storage of a fit's carry, from which the fit resumes. `jaxarch.Checkpoints` keeps it in a folder."""

    def load(self, name: str, like: PyTree) -> PyTree | None:
        """Return the pytree last saved under a name, in the structure of `like`; `None` if there is none."""

    def save(self, name: str, tree: PyTree, last: bool = False) -> None:
        """Save a pytree under a name, replacing the one before; `last` if none comes after it."""


@dataclasses.dataclass(frozen=True)
class FitOptions:
    """Options for fitting: early stopping, a schedule and decisions of callbacks change results.

    All other options change at most the order in which numbers are added, and so the last bits of results:

    - `progress`, `checkpoint`, `dead_start` and `labels` change no bit. Neither does `chunk`, except that
      early stopping, a schedule and callbacks act at every chunk's end.
    - `mesh` and `partition` may change bits.
    - `max_parallel_runs` and `memory` may, if they change the width of the program of one device. `devices`
      of the same kind may for the same reason, and through their number in a process. `loop` and devices of
      another kind may, too.
    - A fit that resumes from its checkpoints keeps its original width, number of devices and loop. It does so
      whatever `max_parallel_runs` and `memory` say now, and however many processes have the devices. It does
      not resume on fewer devices, on devices of another kind or in another loop.

    Attributes:
      chunk: steps from one chunk's end to the next.
      progress: called at every chunk's end with a `Progress`: step, losses, and, if asked, the densities. A
        method `begins`, if there is one, is called with a `RunPlan`, the resources of the training. That
        happens before the first step, unless the training resumes from a checkpoint. A method `doing` is
        called with what is waited for, the compilation of a training or a stage that does not train, and
        with "" when a stage is over.
      early_stopping: needs the problem's `validation` rows, unless its metric is the `gap`.
      schedule: `(step, settings) -> settings`: temperatures, learning rates or penalties that change while
        training. It is called with the first step of every chunk and the settings that the fit was given.
        Needs `settings`.
      checkpoint: where the state is saved at every chunk's end; an interrupted fit resumes from it, to the
        same bits.
      max_parallel_runs: how many runs to train in one program; by default all that fit in memory.
      memory: bytes that a program may use on one device; by default what the device says is free. A fit is
        refused if not even one of its runs fits.
      devices: by default all of `jax.local_devices()`: each process runs the keys that it is given.
        `all hosts` means the devices of all processes of the program, after `jax.distributed.initialize`.
        Each process then calls with the same arguments, trains its share of the runs, and returns the
        networks of all runs.
      mesh: replaces `devices` when single runs are split as well: `jax.make_mesh((2, 4), ("runs", "data"))`
        has two shares of the runs, and four devices that share each run. An axis called `data` splits the
        examples of a batch; `partition` says which axes split the parameters. The networks that are found
        stay split, on CPUs too.
      partition: how parameters, and arrays that belong to them, are split over the axes of the mesh. Either a
        dict from glob patterns on their paths to `PartitionSpec`s: the first pattern that matches counts, and
        an unmatched parameter stays whole. Or a function `(path, leaf, sizes) -> PartitionSpec` of a
        parameter's path, its shape and dtype, and the sizes of the axes, as `jaxarch.fully_sharded()`. By
        default what the model says: `nnx.with_partitioning` of Flax NNX and Linen.
      loop: `scan` for one program per chunk, all runs at once; `step` for one program per step, runs in turn,
        which is many times faster for convolutions on CPU (and uses one device); `auto` chooses.
      dead_start: what to do when some trainable leaf's first gradients are exactly zero: `warn` (and raise if
        no run can move at all), `raise`, or `ignore`. `TrainingInfo.dead_start` records it in any case.
      labels: names of the runs for reports; `run 0`, `run 1`, ... by default.
      callbacks: functions of a `ChunkEnd`, called in their order at the end of every chunk of every training:
        after the schedule and `progress`, before the checkpoint. A function may return a `Decision` to stop
        the training, to change settings, or to add a note to the report. `None` changes nothing. Under
        several processes each process calls it with all runs, and the first process's decision counts. A
        checkpoint keeps the decisions, and nothing that a callback remembers. So an interrupted fit has the
        same bits if its callbacks decide by their `ChunkEnd` alone.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> def show(progress):
      ...     print(f"{progress.name}: {progress.step} of {progress.steps}, {progress.runs} runs")
      >>> keys = jax.random.split(jax.random.key(0), 3)
      >>> network, _ = jaxarch.over_seeds(jaxarch.search.dense(), keys, problem, chunk=1, progress=show)
      dense: 1 of 2, 3 runs
      dense: 2 of 2, 3 runs

      Stop when a file appears, and write down what is kept on the way:

      >>> import pathlib, tempfile
      >>> folder = pathlib.Path(tempfile.mkdtemp())
      >>> def stop_by_file(end):
      ...     return jaxarch.Decision(stop=(folder / "stop").exists(), note=f"{end.steps - end.step} left")
      >>> def write_densities(end):
      ...     with open(folder / "densities.txt", "a") as file:
      ...         print(end.step, *end.densities(), file=file)
      ...     (folder / "stop").touch()
      >>> callbacks = [stop_by_file, write_densities]
      >>> search = jaxarch.search.movement(0.5)
      >>> network, report = jaxarch.over_seeds(search, keys, problem, chunk=1, callbacks=callbacks)
      >>> print(report.notes[0], len((folder / "densities.txt").read_text().splitlines()))
      movement: step 1: 1 left 2
    """

    chunk: int = 100
    progress: Callable[[Progress], None] | None = None
    early_stopping: EarlyStopping | None = None
    schedule: Callable[[int, PyTree], PyTree] | None = None
    checkpoint: Checkpoint | None = None
    max_parallel_runs: int | None = None
    memory: int | None = None
    devices: Sequence[jax.Device] | Literal["all hosts"] | None = None
    mesh: Mesh | None = None
    partition: Rules | None = None
    loop: Literal["auto", "scan", "step"] = "auto"
    dead_start: Literal["warn", "raise", "ignore"] = "warn"
    labels: Sequence[str] | None = None
    callbacks: Sequence[Callback] = ()

    def __post_init__(self) -> None:
        check_count("chunk", self.chunk)
        if self.max_parallel_runs is not None:
            check_count("max_parallel_runs", self.max_parallel_runs)
        if self.memory is not None and not _is_size(self.memory):
            raise ArgumentError(f"memory: expected a positive number of bytes, got {shown(self.memory)}")
        for name, value in (("progress", self.progress), ("schedule", self.schedule)):
            if value is not None and not callable(value):
                raise ArgumentError(f"{name}: expected a function, got {shown(value)}")
        if self.early_stopping is not None and not isinstance(self.early_stopping, EarlyStopping):
            raise ArgumentError(
                f"early_stopping: expected jaxarch.EarlyStopping(...), got {shown(self.early_stopping)}"
            )
        if self.checkpoint is not None and not (
            hasattr(self.checkpoint, "load") and hasattr(self.checkpoint, "save")
        ):
            raise ArgumentError(
                f"checkpoint: expected jaxarch.Checkpoints(folder), got {shown(self.checkpoint)}"
            )
        self._check_callbacks()
        self._check_devices()
        if self.labels is not None and not _are(str, self.labels):
            raise ArgumentError(
                f"labels: expected a list of strings, one for each run, got {shown(self.labels)}"
            )
        check_choice("loop", self.loop, ("auto", "scan", "step"))
        check_choice("dead_start", self.dead_start, ("warn", "raise", "ignore"))

    def _check_callbacks(self) -> None:
        if isinstance(self.callbacks, str) or not isinstance(self.callbacks, Sequence):
            raise ArgumentError(f"callbacks: expected a list of functions, got {shown(self.callbacks)}")
        for callback in self.callbacks:
            if isinstance(callback, type) or not callable(callback):
                got = f"the class {callback.__name__}" if isinstance(callback, type) else shown(callback)
                raise ArgumentError(
                    f"callbacks: expected a function that takes a jaxarch.ChunkEnd, got {got}"
                )
            if not _takes_one(callback):
                raise ArgumentError(
                    "callbacks: expected a function that takes a jaxarch.ChunkEnd, got one that cannot be "
                    f"called with one argument: {shown(callback)}"
                )

    def _check_devices(self) -> None:
        is_named = isinstance(self.devices, str) and self.devices == ALL_HOSTS
        if self.devices is not None and not is_named and not _are(jax.Device, self.devices):
            raise ArgumentError(
                f"devices: expected a list from jax.devices(), or {ALL_HOSTS!r}, got {shown(self.devices)}"
            )
        if self.mesh is not None and self.devices is not None:
            raise ArgumentError("mesh: it has devices of its own; leave out `devices`")
        if self.partition is not None and self.mesh is None:
            raise ArgumentError(
                "partition: it needs a mesh to split over; give `mesh`, or leave out `partition`"
            )
        if self.mesh is not None and self.loop == "step":
            raise ArgumentError("loop: only 'scan' works with a mesh, got 'step'; leave it out")

    def label(self, run: int) -> str:
        """Return the name of a run in reports."""
        return f"run {run}" if self.labels is None else self.labels[run]


def _is_size(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < float(value) < math.inf


def _takes_one(function: Callable[..., object]) -> bool:
    """Return whether a function can be called with one argument, as far as its signature tells."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:
        # Some builtins have no signature.
        return True
    return True


def _are(kind: type, values: object) -> bool:
    """Return whether values are a sequence of such objects; one text is not a sequence of texts."""
    return (
        isinstance(values, Sequence)
        and not isinstance(values, str)
        and all(isinstance(v, kind) for v in values)
    )


@dataclasses.dataclass(frozen=True)
class StageReport:
    """Costs of one stage, and what happened on the way.

    Attributes:
      name: the stage's.
      seconds: wall time x devices / runs, without compilation: what one run costs one device.
      compile_seconds: tracing and compiling, all programs together.
      width: how many runs were in one program (`vmap`), over all devices, padding included.
      devices: how many devices shared them.
      notes: runs that failed, dead starts, layers without a connection: one line each.
      validation: metrics at the ends of chunks, each of shape (chunks, runs), of the network that would be
        found there (masks hard, not soft); NaN for a run that had stopped. They include the `gap`, if early
        stopping used it.
    """

    name: str
    seconds: float
    compile_seconds: float
    width: int
    devices: int
    notes: tuple[str, ...] = ()
    validation: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

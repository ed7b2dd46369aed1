"""Strategies: a search followed by finishes, run for one key or for many runs at once."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from jaxarch.errors import ArgumentError, check_count, check_keys, did_you_mean
from jaxarch.problem import Network, Problem, check_rows
from jaxarch.running.devices import first_runs, gather_on_cpu, over_runs, place, runs_mesh, take_runs
from jaxarch.running.fit import fit
from jaxarch.running.options import FitOptions, StageReport
from jaxarch.running.programs import Stopwatch, is_slow_in_loops
from jaxarch.running.training import Training
from jaxarch.trees import PyTree, named_leaves


@dataclasses.dataclass(frozen=True)
class HostSearch:
    """A search that is no JAX, scikit-learn's for one: it runs on the host, and cannot be jitted or mapped.

    Attributes:
      name: shown in progress and reports.
      search: `(keys, problem) -> Network`, for all runs, with a leading axis of runs.
      predict: `(params, state, batch) -> outputs` in JAX, in place of the problem's own.
    """

    name: str
    search: Callable[[Array, Problem], Network]
    predict: Callable[[PyTree, PyTree, PyTree], Any]


@dataclasses.dataclass(frozen=True)
class Strategy:
    """Stages in a row: what one finds, the next turns into another. Built by `chain`.

    `strategy(key, problem)` is a pure function of one run: jit it, vmap it, nest it. `over_seeds` runs it for
    many keys with progress, checkpoints and all else that `FitOptions` offers.
    """

    stages: tuple[Any, ...]

    def __call__(self, key: Array, problem: Problem, network: Network | None = None) -> Network:
        """What one run finds, beginning from what was found before if that is given."""
        for index, stage in enumerate(self.stages):
            if isinstance(stage, HostSearch):
                raise ArgumentError(f"{stage.name}: it runs on the host; use over_seeds")
            network = _apply(stage, jax.random.fold_in(key, index), problem, network)
        assert network is not None
        return network

    def predict(self, problem: Problem) -> Callable[[PyTree, PyTree, PyTree], Any]:
        """The function that computes with what this strategy finds."""
        last = self.stages[-1]
        predict = last.predict if isinstance(last, HostSearch) else problem.predict
        if predict is None:
            raise ArgumentError("problem: it has no `predict`, which this needs")
        return predict


@dataclasses.dataclass(frozen=True)
class Report:
    """What a strategy cost, stage by stage, and what happened on the way."""

    stages: tuple[StageReport, ...]

    @property
    def seconds(self) -> float:
        """Wall time x devices / runs, all stages together, compilation apart."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def compile_seconds(self) -> float:
        """Seconds spent on tracing and compiling."""
        return sum(stage.compile_seconds for stage in self.stages)

    @property
    def width(self) -> int:
        """The largest number of runs in one program."""
        return max(stage.width for stage in self.stages)

    @property
    def notes(self) -> tuple[str, ...]:
        """Failed runs and dead starts, one line each."""
        return tuple(note for stage in self.stages for note in stage.notes)


def chain(search: Any, *finishes: Any) -> Strategy:
    """A search followed by finishes: `chain(real(), threshold())` is the strategy real -> bin of [D].

    Args:
      search: `(key, problem) -> Network`: a plain function, a `Training`, a `HostSearch` or another chain.
      finishes: `(key, problem, network) -> Network`, each given what was found before it; or chains of them.

    Returns:
      A pure function `(key, problem) -> Network`. Stage i draws from `fold_in(key, i)`, so that strategies with
      the same beginning share it exactly.
    """
    stages: list[Any] = []
    for part in (search, *finishes):
        if stages and isinstance(stages[-1], HostSearch):
            raise ArgumentError(f"chain: {stages[-1].name} runs on the host and has no finishes")
        if not callable(part) and not isinstance(part, HostSearch):
            raise ArgumentError(f"chain: expected functions or trainings, got {part!r}")
        stages += part.stages if isinstance(part, Strategy) else [part]
    return Strategy(tuple(stages))


def over_seeds(
    strategy: Any,
    keys: Array,
    problem: Problem,
    settings: PyTree = None,
    *,
    network: Network | None = None,
    name: str = "",
    **options: Any,
) -> tuple[Network, Report]:
    """Run a strategy once for every key: one program, all runs, on all devices.

    Args:
      strategy: a search, a finish chain, or, with `settings`, a function from one run's settings to one.
      keys: `jax.random.split(jax.random.key(0), runs)`.
      problem: what to learn, for all runs.
      settings: pytree whose leaves have a leading axis of runs: rates, temperatures, penalties. They are
        traced, so a sweep compiles once; the structure of the strategy must not depend on them.
      network: what an earlier call found, on another problem for instance, with a leading axis of runs: the
        strategy then begins with a finish, `retrain("cold")` to transfer an architecture.
      name: the strategy's, for progress, reports and checkpoints.
      **options: fields of `FitOptions`: `chunk`, `progress`, `early_stopping`, `checkpoint`, ...

    Returns:
      What was found, every array with a leading axis of runs, and a report of costs and mishaps. On CPU the
      arrays are on the first device; elsewhere they stay split over the devices that computed them.

    Raises:
      ArgumentError: keys that are no vector of keys, per-run arrays of another length, an unknown option.
    """
    return compare({name: strategy}, keys, problem, settings, network=network, **options)[name]


def compare(
    strategies: Mapping[str, Any],
    keys: Array,
    problem: Problem,
    settings: PyTree = None,
    *,
    network: Network | None = None,
    **options: Any,
) -> dict[str, tuple[Network, Report]]:
    """`over_seeds` for several strategies by name; beginnings that they share are run once.

    Each report's costs include those of the stages that were shared. With `settings` nothing is shared.
    """
    fit_options = _options(options)
    _check_runs(keys, problem, settings, network, fit_options)
    problem.check()
    begun = network
    done: dict[tuple[Any, ...], tuple[Network, StageReport]] = {}
    results = {}
    for name, given in strategies.items():
        strategy: Any = chain(given) if settings is None else given
        stages = _stages(strategy, settings)
        reports, network = [], begun
        for index, stage in enumerate(stages):
            make: Any = _Constant(stage) if settings is None else _StageOf(strategy, index)
            shared = stages[: index + 1] if settings is None else (strategy, index)
            if shared not in done:
                args = (_stage_keys(keys, index), problem, settings, network, fit_options)
                done[shared] = _run_stage(make, stage, *args, _stage_name(name, stage, index))
            network, report = done[shared]
            reports.append(report)
        assert network is not None
        results[name] = gather_on_cpu(network), Report(tuple(reports))
    return results


def evaluate(
    strategy: Any,
    network: Network,
    problem: Problem,
    rows: Array | np.ndarray,
    *,
    batch_size: int | None = None,
) -> Any:
    """The outputs of what a strategy found, for every run, on some rows.

    Args:
      strategy: the strategy that found it.
      network: with a leading axis of runs.
      problem: the problem that it was run on.
      rows: rows of the problem's data, shape (n,), or (runs, n) where each run has its own.
      batch_size: how many rows at a time, where memory is short; by default all.

    Returns:
      The problem's `predict` on those rows, with leading axes of runs and rows, on the host.

    Raises:
      ArgumentError: rows that are not in the data, a problem without `predict`.
    """
    predict = chain(strategy).predict(problem)
    rows = jnp.asarray(rows)
    check_rows("rows", rows, jax.tree.leaves(problem.data)[0].shape[0])
    if batch_size is not None:
        check_count("batch_size", batch_size)
    size = batch_size or rows.shape[-1]
    args = jax.device_put((network.params, network.state, problem, rows), jax.local_devices()[0])
    axes = (0, 0, problem.in_axes(), 0 if rows.ndim == 2 else None)
    alone = is_slow_in_loops(_outputs.trace(predict, False, *args).jaxpr.jaxpr)
    runs = jax.tree.leaves(network.params)[0].shape[0]
    shares = (take_runs(axes, args, np.asarray([run])) for run in range(runs)) if alone else [args]
    results = []
    for *share, per_run in shares:
        parts = [
            jax.device_get(_outputs(predict, alone, *share, per_run[..., start : start + size]))
            for start in range(0, rows.shape[-1], size)
        ]
        results.append(jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *results)


@partial(jax.jit, static_argnames=("predict", "alone"))
def _outputs(
    predict: Callable, alone: bool, params: PyTree, state: PyTree, problem: Problem, rows: Array
) -> Any:
    """Outputs on some rows for all runs at once, or for the one that is `alone`."""

    def one(params: PyTree, state: PyTree, problem: Problem, rows: Array) -> Any:
        return predict(params, state, problem.gather(problem.data, problem.per_run, rows))

    axes = (0, 0, problem.in_axes(), 0 if rows.ndim == 2 else None)
    mapped = over_runs(one, None, axes) if alone else jax.vmap(one, in_axes=axes)
    return mapped(params, state, problem, rows)


@dataclasses.dataclass(frozen=True)
class _StageOf:
    """One stage of a strategy that is a function of settings, as a hashable `Make`."""

    strategy: Callable[[PyTree], Any]
    index: int

    def __call__(self, settings: PyTree) -> Any:
        return chain(self.strategy(settings)).stages[self.index]


@dataclasses.dataclass(frozen=True)
class _Constant:
    """A stage that depends on no settings, as a hashable `Make`."""

    stage: Any

    def __call__(self, settings: PyTree) -> Any:
        return self.stage


def _stage_name(strategy: str, stage: Any, index: int) -> str:
    """How a stage is called in progress, reports and checkpoints; no two of a `compare` are called alike."""
    place = strategy if index == 0 else f"{strategy}, stage {index + 1}".removeprefix(", ")
    name = stage.name if isinstance(stage, Training) else getattr(stage, "__name__", type(stage).__name__)
    return f"{place}: {name}" if place else str(name)


def _apply(stage: Any, key: Array, problem: Problem, network: Network | None) -> Network:
    """A stage as a function, with what is known from before kept in `info`."""
    return stage(key, problem) if network is None else _after(network, stage(key, problem, network))


def _after(before: Network | None, network: Network) -> Network:
    """What a stage found, with the info of the stages before it; a failure once is a failure for good."""
    if before is None:
        return network
    info = {**before.info, **network.info}
    if "failed_at" in before.info and network.info.get("failed_at") is not None:
        first = before.info["failed_at"]
        info["failed_at"] = jnp.where(first >= 0, first, network.info["failed_at"])
    if "dead_start" in before.info and "dead_start" in network.info:
        info["dead_start"] = before.info["dead_start"] | network.info["dead_start"]
    return network._replace(info={name: value for name, value in info.items() if value is not None})


def _run_stage(
    make: Callable[[PyTree], Any],
    stage: Any,
    keys: Array,
    problem: Problem,
    settings: PyTree,
    network: Network | None,
    options: FitOptions,
    name: str,
) -> tuple[Network, StageReport]:
    if isinstance(stage, Training):
        after, report = fit(make, keys, problem, settings, network, options, name)
        return _after(network, after), report
    if isinstance(stage, HostSearch):
        start = time.perf_counter()
        after = stage.search(keys, problem)
        return after, StageReport(stage.name, (time.perf_counter() - start) / keys.shape[0], 0.0, 1, 1)
    return _run_function(make, name, keys, problem, settings, network, options)


def _run_function(
    make: Callable[[PyTree], Any],
    name: str,
    keys: Array,
    problem: Problem,
    settings: PyTree,
    network: Network | None,
    options: FitOptions,
) -> tuple[Network, StageReport]:
    """A stage that is a plain function: one program, or one for each group of `at_once` runs."""
    runs = keys.shape[0]
    at_once = min(runs, options.at_once or runs)
    mesh = runs_mesh(options.devices, at_once)
    width = math.ceil(at_once / mesh.size) * mesh.size
    axes, args = (0, 0, problem.in_axes(), 0), (keys, settings, problem, network)
    watch, results = Stopwatch(), []
    for start in range(0, runs, width):
        members = np.arange(start, min(start + width, runs))
        share = args if width == runs else take_runs(axes, args, np.resize(members, width))
        share = place(mesh, axes, share)
        result = watch.run(watch.compile(_function_program, make, mesh, *share), *share)
        results.append(result if len(members) == width else first_runs(len(members), result))
    after = results[0] if len(results) == 1 else jax.tree.map(lambda *parts: jnp.concatenate(parts), *results)
    seconds = watch.running * mesh.size / runs
    return after, StageReport(name, seconds, watch.compiling, width, mesh.size)


@partial(jax.jit, static_argnums=(0, 1))
def _function_program(
    make: Callable[[PyTree], Any],
    mesh: Mesh,
    keys: Array,
    settings: PyTree,
    problem: Problem,
    network: Network | None,
) -> Network:
    def one(key: Array, settings: PyTree, problem: Problem, network: Network | None) -> Network:
        return _apply(make(settings), key, problem, network)

    return over_runs(one, mesh, (0, 0, problem.in_axes(), 0))(keys, settings, problem, network)


@partial(jax.jit, static_argnames=("index",))
def _stage_keys(keys: Array, index: int) -> Array:
    return jax.vmap(lambda key: jax.random.fold_in(key, index))(keys)


def _stages(strategy: Any, settings: PyTree) -> tuple[Any, ...]:
    """The stages of a strategy; with settings, every run's are made once, so that bad values are found."""
    if settings is None:
        return chain(strategy).stages
    if not callable(strategy):
        raise ArgumentError("strategy: with settings, it must be a function from one run's settings")
    host = jax.device_get(settings)
    runs = jax.tree.leaves(host)[0].shape[0]
    made = [chain(strategy(jax.tree.map(lambda leaf, i=i: leaf[i], host))).stages for i in range(runs)]
    return made[0]


def _options(options: dict[str, Any]) -> FitOptions:
    known = [field.name for field in dataclasses.fields(FitOptions)]
    for name in options:
        if name not in known:
            raise ArgumentError(f"over_seeds: unknown option {name!r}; {did_you_mean(name, known)}")
    return FitOptions(**options)


def _check_runs(
    keys: Array, problem: Problem, settings: PyTree, network: Network | None, options: FitOptions
) -> None:
    check_keys(keys)
    runs = keys.shape[0]
    if problem.runs not in (None, runs):
        raise ArgumentError(f"keys: expected {problem.runs}, one for each run of the problem, got {runs}")
    if settings is not None and not jax.tree.leaves(settings):
        raise ArgumentError("settings: expected arrays with a leading axis of runs, or None; got no array")
    for leaf in jax.tree.leaves(settings):
        if jnp.ndim(leaf) == 0 or leaf.shape[0] != runs:
            raise ArgumentError(f"settings: every leaf needs a leading axis of {runs} runs, one for each key")
    for path, leaf in named_leaves(network).items():
        if jnp.ndim(leaf) == 0 or leaf.shape[0] != runs:
            raise ArgumentError(
                f"network: leaf {path!r} needs a leading axis of {runs} runs, one for each key; it has shape "
                f"{jnp.shape(leaf)}"
            )
    if options.labels is not None and len(options.labels) != runs:
        raise ArgumentError(f"labels: expected {runs}, one for each run, got {len(options.labels)}")

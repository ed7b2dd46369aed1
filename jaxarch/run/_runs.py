"""Many runs of a strategy, or of several that share their first stages, in few programs."""

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

from jaxarch._internal.digests import tree_digest
from jaxarch._internal.errors import ArgumentError, check_keys, did_you_mean, first_line, is_traced, shown
from jaxarch._internal.memory import ProgramMemory
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.run._devices import first_runs, gather_on_cpu, joined_runs, over_runs, take_runs
from jaxarch.run._fingerprint import fingerprint
from jaxarch.run._fit import fit, places_of
from jaxarch.run._inputs import Inputs
from jaxarch.run._keyed import Keyed, key_of, keyed_problem
from jaxarch.run._network import Network
from jaxarch.run._options import FitOptions, StageReport
from jaxarch.run._problem import Problem, check_is_problem
from jaxarch.run._processes import ALL_HOSTS, Team, local_devices
from jaxarch.run._program_memory import program_memory
from jaxarch.run._programs import Stopwatch
from jaxarch.run._run_keys import continued, stage_key
from jaxarch.run._runs_mesh import RunsMesh, check_batches, runs_mesh, split_mesh
from jaxarch.run._shares import Shares
from jaxarch.run._stage import HostSearch, Stage, check_network, warn_of
from jaxarch.run._strategy import Strategy, chain, check_stages
from jaxarch.run._training import Training, joined


@dataclasses.dataclass(frozen=True)
class Report:
    """Costs of a strategy, stage by stage, and what happened on the way."""

    stages: tuple[StageReport, ...]

    @property
    def seconds(self) -> float:
        """Wall time x devices / runs, all stages together, without compilation."""
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
      strategy: a stage, a chain of them, or, with `settings`, a function from one run's settings to one.
      keys: `jax.random.split(jax.random.key(0), runs)`.
      problem: what to learn, for all runs.
      settings: pytree whose leaves have a leading axis of runs: learning rates, temperatures, penalties. They
        are traced, so a sweep compiles once; the structure of the strategy must not depend on them.
      network: the network that an earlier call found, on another problem for instance, with a leading axis of
        runs. The strategy then begins with a transform, such as `retrain("cold")` to transfer an
        architecture. You may pass the keys of the earlier call again: with a network, stages draw other
        numbers from them.
      name: the strategy's name in progress, reports and checkpoints.
      **options: fields of `FitOptions`: `chunk`, `progress`, `early_stopping`, `checkpoint`, ...

    Returns:
      The network found, every array with a leading axis of runs, and a report of costs and mishaps. On CPU
      the arrays are on the first device; elsewhere they stay split over the devices that computed them.

    Raises:
      ArgumentError: keys that are not a vector of keys, per-run arrays of another length, an unknown option;
        a stage that lacks something, before any stage is run.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> keys = jax.random.split(jax.random.key(0), 3)
      >>> network, report = jaxarch.over_seeds(jaxarch.search.snip(0.25), keys, problem)
      >>> print(jax.vmap(jaxarch.density)(network.mask), network.params["W2_1"].shape)
      [0.25 0.25 0.25] (3, 8, 4)
    """
    if not isinstance(name, str):
        raise ArgumentError(f"name: expected text, got {shown(name)}")
    return _results({name: strategy}, Inputs(keys, settings, problem, network), options)[name]


def compare(
    strategies: Mapping[str, Any],
    keys: Array,
    problem: Problem,
    settings: PyTree = None,
    *,
    network: Network | None = None,
    **options: Any,
) -> dict[str, tuple[Network, Report]]:
    """Run `over_seeds` for several strategies by name; first stages that they share are run once.

    Each report's costs include those of the shared stages. With `settings` nothing is shared.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> keys, dense = jax.random.split(jax.random.key(0), 3), jaxarch.search.dense()
      >>> strategies = {"real": dense, "real->bin": jaxarch.chain(dense, jaxarch.threshold())}
      >>> results = jaxarch.compare(strategies, keys, problem)  # what is dense is trained once
      >>> {name: len(report.stages) for name, (network, report) in results.items()}
      {'real': 1, 'real->bin': 2}
    """
    return _results(strategies, Inputs(keys, settings, problem, network), options)


def _results(
    strategies: Mapping[str, Any], inputs: Inputs, options: dict[str, Any]
) -> dict[str, tuple[Network, Report]]:
    """Run strategies for `compare` and `over_seeds`, in one function to keep tracebacks of a loss short."""
    if is_traced(tuple(inputs)):
        raise ArgumentError(
            "keys: expected concrete arguments, got traced ones; call this outside of jit and vmap"
        )
    # An error in the options must reach the other processes, so the team is made before they are checked.
    team = Team.of(ALL_HOSTS if options.get("devices") == ALL_HOSTS else None)
    with team.together():
        fit_options = _checked_options(strategies, inputs, options, team)
        inputs = inputs._replace(problem=keyed_problem(inputs.problem))
        planned = _planned(strategies, inputs, fit_options)
        keys, begun = inputs.keys, None
        if inputs.network is not None:
            keys, begun = jax.vmap(continued)(keys), _with_marks_on_the_host(inputs.network)
        # Results are kept by the stages that led to them, so strategies with equal first stages share these.
        done: dict[tuple[Any, ...], tuple[Network | None, tuple[StageReport, ...]]] = {(): (begun, ())}
        made = {name: _makes(strategies[name], stages, inputs.settings) for name, stages in planned.items()}
        for name, makes in made.items():
            for index, stage in enumerate(planned[name]):
                if makes[: index + 1] in done:
                    continue
                before, reports = done[makes[:index]]
                run, of_stage = _runner(stage), inputs._replace(keys=_stage_keys(keys, index), network=before)
                stage_name = _stage_name(name, stage, index)
                doing = getattr(fit_options.progress, "doing", lambda words: None)
                if not isinstance(stage, Training):
                    doing(stage_name)
                after, report = run(makes[index], of_stage, fit_options, stage_name)
                doing("")
                after = joined(before, after) if isinstance(stage, Training) else after
                done[makes[: index + 1]] = after, (*reports, report)
        return {name: _as_found(*done[makes], fit_options) for name, makes in made.items()}


def _checked_options(
    strategies: Mapping[str, Any], inputs: Inputs, options: dict[str, Any], team: Team
) -> FitOptions:
    """Return the options, after checking that all arguments are valid and equal in all processes."""
    fit_options = _options(options)
    _check_runs(strategies, inputs, fit_options)
    if team.size > 1:
        if getattr(fit_options.checkpoint, "format", "npz") == "orbax":
            raise ArgumentError(
                "checkpoint: the format 'orbax' does not work with several processes; use 'npz'"
            )
        team.check_alike(_said(strategies, inputs, fit_options))
    return fit_options


def _makes(strategy: Any, stages: tuple[Any, ...], settings: PyTree) -> tuple[Any, ...]:
    """Return the stages as functions of settings; equal ones are run once."""
    if settings is None:
        return tuple(_Constant(Keyed(stage)) for stage in stages)
    return tuple(_stage_of(strategy, settings, index) for index in range(len(stages)))


def _runner(stage: Stage) -> Callable[..., tuple[Network, StageReport]]:
    """Return the function that runs a stage: `(make, inputs, options, name)`."""
    if isinstance(stage, Training):
        return fit
    if isinstance(stage, HostSearch):
        return partial(_run_on_hosts, stage)
    return partial(_run_function, stage)


def _as_found(
    network: Network | None, reports: tuple[StageReport, ...], options: FitOptions
) -> tuple[Network, Report]:
    """Return a strategy's network and report in the form that users get."""
    assert network is not None
    # With a mesh from the user, each array stays where it is.
    return network if options.mesh is not None else gather_on_cpu(network), Report(reports)


def needed_memory(
    strategy: Any,
    keys: Array,
    problem: Problem,
    settings: PyTree = None,
    *,
    network: Network | None = None,
    **options: Any,
) -> dict[str, ProgramMemory]:
    """Compute the memory that `over_seeds` needs on each device for one run per share, without running.

    The programs are only compiled. If several runs fit, `over_seeds` finds how many to train at once.

    Args:
      strategy: as for `over_seeds`, like the other arguments.
      keys: one per run.
      problem: what to learn.
      settings: one run's each, with a leading axis of runs.
      network: the network that the strategy continues from.
      **options: fields of `FitOptions`, such as `mesh` and `partition`.

    Returns:
      Memory of each stage that trains, by name; for convolutions on CPUs, memory of one step of one run.

    Raises:
      ArgumentError: errors of `over_seeds`; a strategy with a stage that is fitted on the host.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> keys = jax.random.split(jax.random.key(0), 3)
      >>> needed = jaxarch.needed_memory(jaxarch.search.dense(), keys, problem)
      >>> needed["dense"].carry >= 64 * 4  # the weights, and some numbers of a run
      True
    """
    fit_options = _options(options)
    inputs = Inputs(keys, settings, problem, network)
    _check_runs({"": strategy}, inputs, fit_options)
    inputs = inputs._replace(problem=keyed_problem(problem))
    needed: dict[str, ProgramMemory] = {}
    for index, stage in enumerate(_planned({"": strategy}, inputs, fit_options)[""]):
        make = _Constant(Keyed(stage)) if settings is None else _stage_of(strategy, settings, index)
        if isinstance(stage, HostSearch):
            raise ArgumentError(
                f"strategy: {stage.name} is fitted on the host, so it has no device memory to compute"
            )
        problem = inputs.problem
        if problem.stream is not None:
            steps = stage.on(problem).descent.steps if isinstance(stage, Training) else 1
            window = problem.stream.outline(min(fit_options.chunk, steps))
            inputs = inputs._replace(problem=dataclasses.replace(problem, _window=window))
        if isinstance(stage, Training):
            needed |= _needed_by(make, inputs, fit_options, _stage_name("", stage, index))
        # Trace this stage without computing anything: the next one is checked with the shapes of its result.
        inputs = inputs._replace(network=_function_program.eval_shape(make, runs_mesh(None, 1), *inputs))
    return needed


def _planned(
    strategies: Mapping[str, Any], inputs: Inputs, options: FitOptions
) -> dict[str, tuple[Any, ...]]:
    """Return the stages of each strategy, after checking that none of them lacks something."""
    keys, settings, problem, network = inputs
    problem.check()
    planned = {name: _stages(given, settings) for name, given in strategies.items()}
    first = problem if problem.runs is None else problem.of_run(0)
    for stages in planned.values():
        check_network(stages[0], network)
        # Clone the keys: JAX's check for reused keys would count this trial as a use.
        check_stages(stages, jax.random.clone(keys)[0], first, None if network is None else network.of_run(0))
    mesh = split_mesh(options.mesh, options.partition, problem)
    for stage in [stage for stages in planned.values() for stage in stages]:
        if mesh is not None and isinstance(stage, Training):
            check_batches(stage.on(problem), mesh)
    return planned


def _needed_by(make: Any, inputs: Inputs, options: FitOptions, name: str) -> dict[str, ProgramMemory]:
    """Return a training's memory by its name; nothing if the compiler does not count it."""
    split = split_mesh(options.mesh, options.partition, inputs.problem)
    mesh, _ = places_of(make, inputs, options, Team.of(options.devices), split)
    if mesh is not None:
        inputs = inputs._replace(problem=mesh.on(inputs.problem))
    needed = program_memory(make, mesh, inputs, 1, options.chunk, Stopwatch())
    return {} if needed is None else {name: needed}


def _with_marks_on_the_host(network: Network) -> Network:
    """Move failures and dead starts to the host, to join them with those of runs on any devices."""
    marks = {name: getattr(network.info, name) for name in ("failed_at", "dead_start")}
    on_the_host = {name: mark if mark is None else np.asarray(mark) for name, mark in marks.items()}
    return network.replace(info=network.info.replace(**on_the_host))


@dataclasses.dataclass(frozen=True)
class _StageOf:
    """One stage of a strategy that is a function of settings, as a hashable `Make`.

    `says` is the key of the stage without its traced numbers. It takes part in equality, since values that
    the function reads from elsewhere may change from call to call: the steps of a descent, for instance.
    """

    strategy: Keyed
    index: int
    says: Any

    def __call__(self, settings: PyTree) -> Stage:
        return chain(self.strategy(settings)).stages[self.index]


def _stage_of(strategy: Callable[[PyTree], Any], settings: PyTree, index: int) -> _StageOf:
    said = []

    def look(one: PyTree) -> None:
        said.append(key_of(chain(strategy(one)).stages[index], traced_alike=True))

    jax.eval_shape(look, jax.tree.map(lambda leaf: leaf[0], settings))
    return _StageOf(Keyed(strategy), index, said[0])


@dataclasses.dataclass(frozen=True)
class _Constant:
    """A stage that does not depend on settings, as a hashable `Make`."""

    stage: Keyed

    def __call__(self, settings: PyTree) -> Any:
        return self.stage.__wrapped__


def _stage_name(strategy: str, stage: Stage, index: int) -> str:
    """Return a stage's name for progress, reports and checkpoints, unique within one `compare`."""
    place = strategy if index == 0 else f"{strategy}, stage {index + 1}".removeprefix(", ")
    return f"{place}: {stage.name}" if place else stage.name


def _run_function(
    stage: Stage,
    make: Callable[[PyTree], Any],
    inputs: Inputs,
    options: FitOptions,
    name: str,
) -> tuple[Network, StageReport]:
    """Run a stage that is a plain function: one program, or one per group of `max_parallel_runs` runs.

    If the problem's batches come from a stream, the stage gets as many of them as it needs.
    """
    runs, problem, team = inputs.runs, inputs.problem, Team.of(options.devices)
    max_parallel_runs = min(runs, options.max_parallel_runs or runs)
    mesh = split_mesh(options.mesh, options.partition, problem)
    if mesh is None:
        shares = Shares.of(team.devices, max_parallel_runs, team.index)
        mesh = runs_mesh(local_devices(options.devices), shares.local)
    else:
        shares, problem = Shares((mesh.shares,)), mesh.on(problem)
    per_device = math.ceil(max_parallel_runs / shares.devices)
    width = per_device * shares.devices
    watch, results = Stopwatch(), []
    if problem.stream is not None and stage.needs.batches:
        problem = dataclasses.replace(problem, _window=watch.run(problem.stream.window, stage.needs.batches))
    inputs = inputs._replace(problem=problem)
    for start in range(0, runs, width):
        # Copies of members fill the last program up, so that all have one shape and compile once.
        members = np.arange(start, min(start + width, runs))
        mine = np.resize(members, width)[shares.mine(per_device)]
        share = inputs.of(mine).on(mesh)
        result = watch.run(watch.compile(_function_program, make, mesh, *share), *share)
        result = team.gather(f"{name}: runs from {start}", result, shares.rows(per_device))
        results.append(result if len(members) == width else first_runs(len(members), result))
    after = joined_runs(mesh, results)
    running, compiling = team.largest(f"{name}: seconds", watch.running, watch.compiling)
    devices = shares.devices * mesh.per_share
    seconds, notes = running * devices / runs, warn_of(stage, name, after)
    return after, StageReport(name, seconds, compiling, width, devices, notes)


def _run_on_hosts(
    stage: HostSearch,
    make: Callable[[PyTree], Any],
    inputs: Inputs,
    options: FitOptions,
    name: str,
) -> tuple[Network, StageReport]:
    """Run a search outside of JAX: each process searches for its share of the runs."""
    if options.mesh is not None:
        raise ArgumentError(
            f"mesh: {stage.name} is fitted on the host, so it cannot be split; leave out `mesh`"
        )
    team = Team.of(options.devices)
    runs, keys, problem = inputs.runs, inputs.keys, inputs.problem
    shares = Shares.of((1,) * team.size, runs, team.index)
    each = math.ceil(runs / shares.devices)
    start = time.perf_counter()
    if team.size > 1:
        mine = np.resize(np.arange(runs), each * shares.devices)[shares.mine(each)]
        keys, problem = take_runs((0, problem.in_axes()), (keys, problem), mine)
    after = team.gather(stage.name, stage.search(stage.settings, keys, problem), shares.rows(each))
    (seconds,) = team.largest(f"{stage.name}: seconds", time.perf_counter() - start)
    if team.size > 1:
        after = first_runs(runs, after)
    return after, StageReport(stage.name, seconds * shares.devices / runs, 0.0, 1, shares.devices)


@partial(jax.jit, static_argnums=(0, 1))
def _function_program(
    make: Callable[[PyTree], Any],
    mesh: RunsMesh,
    keys: Array,
    settings: PyTree,
    problem: Problem,
    network: Network | None,
) -> Network:
    def one(key: Array, settings: PyTree, problem: Problem, network: Network | None) -> Network:
        return make(settings)(key, problem, network)

    return over_runs(one, mesh, (0, 0, problem.in_axes(), 0))(keys, settings, problem, network)


def _said(strategies: Any, inputs: Inputs, options: FitOptions) -> dict[str, Any]:
    """Return, by name, what must be equal in all processes that train together; arrays as digests."""
    # Whether there is a checkpoint, and how many callbacks there are, decides which messages follow; the
    # objects themselves may differ.
    told = dataclasses.replace(options, progress=None, checkpoint=None, memory=None, callbacks=())
    digests = {name: tree_digest(tree).tobytes().hex() for name, tree in inputs._asdict().items()}
    problem, stream = inputs.problem, inputs.problem.stream
    return digests | {
        "strategies": fingerprint(strategies),
        "functions": fingerprint([getattr(problem, name, None) for name in _FUNCTIONS]),
        "options": fingerprint((told, options.checkpoint is None, len(options.callbacks))),
        "precision": str(jax.dtypes.canonicalize_dtype(float)),
        **({} if stream is None else {"stream": stream.digest.tobytes().hex()}),
    }


_FUNCTIONS = ("init", "loss", "gather", "predict", "metrics", "descent")


# The index is traced, so all stages of all strategies share one program.
@jax.jit
def _stage_keys(keys: Array, index: int) -> Array:
    return jax.vmap(lambda key: stage_key(key, index))(keys)


def _stages(strategy: Any, settings: PyTree) -> tuple[Any, ...]:
    """Return the stages of a strategy; with settings, build every run's once, to find bad values."""
    if settings is None:
        return chain(strategy).stages
    if not callable(strategy) or isinstance(strategy, (Stage, Strategy)):
        raise ArgumentError(
            "strategy: with settings, expected a function of one run's settings, such as lambda s: "
            "search.spectral(s)"
        )
    host = jax.device_get(settings)
    runs = jax.tree.leaves(host)[0].shape[0]
    made = [chain(strategy(jax.tree.map(lambda leaf, i=i: leaf[i], host))).stages for i in range(runs)]
    try:
        jax.eval_shape(lambda one: chain(strategy(one)) and None, jax.tree.map(lambda leaf: leaf[0], host))
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise ArgumentError(
            "settings: the strategy converts one to a Python number, or branches on it, but settings are "
            f"traced; to vary steps, widths or branches, compare several strategies ({first_line(error)})"
        ) from error
    return made[0]


def _options(options: dict[str, Any]) -> FitOptions:
    known = [field.name for field in dataclasses.fields(FitOptions)]
    for name in options:
        if name not in known:
            raise ArgumentError(f"over_seeds: unknown option {shown(name)}; {did_you_mean(name, known)}")
    return FitOptions(**options)


def _check_runs(strategies: Mapping[str, Any], inputs: Inputs, options: FitOptions) -> None:
    keys, settings, problem, network = inputs
    if not isinstance(strategies, Mapping):
        raise ArgumentError(f"strategies: expected a dict of strategies by name, got {shown(strategies)}")
    check_keys(keys)
    check_is_problem(problem)
    if network is not None and not isinstance(network, Network):
        raise ArgumentError(
            "network: expected a network returned by over_seeds, or jaxarch.architecture(mask), got "
            f"{shown(network)}"
        )
    _check_axes(keys.shape[0], problem, settings, network)
    if options.labels is not None and len(options.labels) != keys.shape[0]:
        raise ArgumentError(
            f"labels: expected {keys.shape[0]} labels, one for each run, got {len(options.labels)}"
        )


def _check_axes(runs: int, problem: Problem, settings: PyTree, network: Network | None) -> None:
    """Raise unless everything given per run has a leading axis of `runs`."""
    if problem.runs not in (None, runs):
        raise ArgumentError(
            f"keys: expected {problem.runs} keys, one for each run of the problem, got {runs}"
        )
    if settings is not None and not jax.tree.leaves(settings):
        raise ArgumentError("settings: expected arrays with a leading axis of runs, or None; got no array")
    for leaf in jax.tree.leaves(settings):
        if jnp.ndim(leaf) == 0 or leaf.shape[0] != runs:
            raise ArgumentError(
                f"settings: every leaf needs a leading axis of {runs} runs, one for each key, got shape "
                f"{jnp.shape(leaf)}"
            )
    for path, leaf in named_leaves(network).items():
        if jnp.ndim(leaf) == 0 or leaf.shape[0] != runs:
            raise ArgumentError(
                f"network: leaf {path!r} needs a leading axis of {runs} runs, one for each key; it has shape "
                f"{jnp.shape(leaf)}"
            )

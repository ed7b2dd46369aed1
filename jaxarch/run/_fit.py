"""A fit: a training's steps for many runs, in groups that fit in memory, and its report."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from jaxarch._internal.digests import tree_digest
from jaxarch._internal.errors import ArgumentError
from jaxarch._internal.memory import ProgramMemory
from jaxarch._internal.trees import PyTree
from jaxarch.run import _programs as programs
from jaxarch.run._callbacks.chunk_end import Callback
from jaxarch.run._callbacks.dead_starts import DeadStarts
from jaxarch.run._callbacks.failures import Failures
from jaxarch.run._callbacks.report_progress import ReportProgress
from jaxarch.run._callbacks.save import Save
from jaxarch.run._callbacks.schedule import Schedule, scheduled
from jaxarch.run._callbacks.user import UserCallback
from jaxarch.run._callbacks.validation import Validation
from jaxarch.run._devices import first_runs, joined_runs, place
from jaxarch.run._group import Group, Job, make_one
from jaxarch.run._inputs import Inputs
from jaxarch.run._layout import Layout
from jaxarch.run._loop import Loop
from jaxarch.run._network import Network
from jaxarch.run._options import FitOptions, RunPlan, StageReport
from jaxarch.run._problem import Problem
from jaxarch.run._processes import Team, local_devices
from jaxarch.run._program_memory import free_on_a_device, program_memory, width_of
from jaxarch.run._programs import Make, Stopwatch
from jaxarch.run._runs_mesh import RunsMesh, runs_mesh, split_mesh
from jaxarch.run._shares import Shares
from jaxarch.run._stage import warn_of


def fit(
    make: Make, inputs: Inputs, options: FitOptions | None = None, name: str = ""
) -> tuple[Network, StageReport]:
    """Train every run, and return the network of each.

    Args:
      make: function from one run's settings to its training. Without settings it is called with `None`.
      inputs: keys, settings, the problem, and the result of the stage before. The settings are traced, so
        that a sweep over learning rates, temperatures or penalties is one program.
      options: chunks, progress, checkpoints and the like.
      name: tells this fit from others in progress, reports and checkpoints.

    Returns:
      `Network` with a leading axis of runs, and a report. A run whose loss became NaN or infinite keeps its
      place, with `failed_at` its step; the others are not affected.

    Raises:
      ArgumentError: early stopping without validation rows; a schedule without settings; a start from which
        no run can move; a checkpoint of another fit, or of this one on other devices; one run that needs more
        memory than there is; a stream of batches that ends too early or does not stay alike; a `partition`
        that does not fit the mesh or the parameters.
    """
    options = options or FitOptions()
    problem = inputs.problem
    _check_options(options, problem, inputs.settings)
    training, team = make_one(make, inputs.settings), Team.of(options.devices)
    name = name or training.name
    if problem.stream is not None:
        # Programs are traced and measured with a window's shapes, before any batch is read.
        size = min(options.chunk, training.on(problem).descent.steps)
        problem = dataclasses.replace(problem, _window=problem.stream.outline(size))
    split = split_mesh(options.mesh, options.partition, problem)
    if split is not None:
        problem = split.on(problem)
    inputs = inputs._replace(problem=problem)
    # Read the layout before choosing devices: on another layout a resumed fit would end with other bits.
    begun = Layout.saved(options.checkpoint, name, team)
    if begun is None:
        mesh, shares = places_of(make, inputs, options, team, split)
    else:
        mesh, shares = begun.places(options, name, team, split)
    data = place(mesh, (None,), (problem.data,))[0]
    inputs = inputs._replace(problem=dataclasses.replace(problem, data=data))
    streamed = () if problem.stream is None else (problem.stream.digest.tobytes(),)
    # Hash the data once; in the digests of all groups this hash stands for the data.
    same = None if options.checkpoint is None else tree_digest(problem.data, streamed)
    job = Job(make, mesh, options, Stopwatch(), name, same, team, shares)
    if begun is None:
        beside = team.neighbours(f"{name}: hosts")
        getattr(options.progress, "doing", lambda words: None)(f"{name}: compiling")
        fits, needed = width_of(make, mesh, inputs, options, job.watch, shares.devices, beside)
        # All processes train equally many runs per device, so the least free memory decides.
        per_device = team.least(f"{name}: width", fits)
        # `needed` was counted for this process's own width, which another process may have reduced.
        _tell_plan(job, inputs, per_device, needed if per_device == fits else None, beside)
    else:
        per_device = begun.width // shares.devices
    width = per_device * shares.devices
    if begun is None and options.checkpoint is not None and team.index == 0:
        Layout.of(mesh, shares, width).save(options.checkpoint, name)

    # The window served for tracing; the batches themselves come as the training goes on.
    inputs = inputs._replace(problem=dataclasses.replace(inputs.problem, _window=None))
    found, notes, validation = _trained(job, per_device, inputs)
    notes += warn_of(training, name, found)
    running, compiling = team.largest(f"{name}: seconds", job.watch.running, job.watch.compiling)
    devices = shares.devices * (1 if mesh is None else mesh.per_share)
    report = StageReport(
        name=training.name,
        seconds=running * devices / inputs.runs,
        compile_seconds=compiling,
        width=width,
        devices=devices,
        notes=tuple(notes),
        validation=validation,
    )
    return found, report


def _tell_plan(job: Job, inputs: Inputs, per_device: int, needed: ProgramMemory | None, beside: int) -> None:
    """Report to progress, before the first step, how many runs train at once and the memory they take."""
    begins = getattr(job.options.progress, "begins", None)
    if begins is None:
        return
    mesh = job.mesh
    if needed is None:
        needed = program_memory(job.make, mesh, inputs, per_device, job.options.chunk, job.watch)
    local, free = 1 if mesh is None else mesh.size, free_on_a_device(mesh, beside)
    max_parallel_runs = per_device * job.shares.devices
    begins(RunPlan(job.name, inputs.runs, max_parallel_runs, local, needed, free))


class _Found(NamedTuple):
    """Results of a group: networks of the members, notes for the report, metrics."""

    network: Network
    notes: list[str]
    validation: dict[str, np.ndarray]
    is_dead: bool


def _trained(job: Job, per_device: int, inputs: Inputs) -> tuple[Network, list[str], dict[str, np.ndarray]]:
    """Train all runs, group by group; return their networks, notes, and metrics at the chunks' ends.

    Raises:
      ArgumentError: a start from which no run can move.
    """
    runs, width = inputs.runs, per_device * job.shares.devices
    count = math.ceil(runs / width)
    found = []
    for index in range(count):
        # Copies of members fill the last group up, so that all have one shape and compile once.
        members = np.arange(index * width, min((index + 1) * width, runs))
        padded = np.resize(members, width) if len(members) < width else members
        share = inputs.of(padded[job.shares.mine(per_device)]).on(job.mesh)
        # Only the first process's checkpoints need the inputs of all runs, so they are made on demand.
        whole = partial(inputs.of, padded)
        found.append(_train(Group(job, per_device, share, whole, members, index, count)))

    notes = [note for group in found for note in group.notes]
    # A group does not know whether others can move, so with several groups the error waits until here.
    if all(group.is_dead for group in found) and job.options.dead_start != "ignore":
        raise ArgumentError(notes[0])
    validation = {
        name: np.hstack([group.validation[name] for group in found]) for name in found[0].validation
    }
    return joined_runs(job.mesh, [group.network for group in found]), notes, validation


def _train(group: Group) -> _Found:
    """Train one group of runs, from its last checkpoint if there is one."""
    options = group.job.options
    loop = Loop(group, scheduled(group, 0))
    validation = None
    if group.share.problem.validation is not None or options.early_stopping is not None:
        validation = Validation(loop)
    # A checkpoint is read in the structure of the loop's state, to which `Validation` has added its fields.
    save = None if options.checkpoint is None else Save(loop, options.checkpoint)
    if save is not None:
        save.restore()
    dead, failures = DeadStarts(loop), Failures(loop)
    # The state is saved last, so that the checkpoint contains the changes of all other callbacks.
    # User callbacks come after the schedule, so that their settings win.
    callbacks: list[Callback | None] = [
        validation,
        dead,
        failures,
        None if options.schedule is None else Schedule(loop),
        None if options.progress is None else ReportProgress(options.progress),
        *(UserCallback(loop, function) for function in options.callbacks),
        save,
    ]
    network = loop.run([callback for callback in callbacks if callback is not None])
    failures.report(np.asarray(network.info.failed_at))
    if len(group.members) < len(loop.running):
        network = first_runs(len(group.members), network)
    metrics = {} if validation is None else validation.metrics()
    return _Found(network, loop.notes, metrics, dead.is_dead)


def places_of(
    make: Make, inputs: Inputs, options: FitOptions, team: Team, split: RunsMesh | None
) -> tuple[RunsMesh | None, Shares]:
    """Return the devices of a new fit (of the given mesh, if any), and each process's share of its runs.

    If no mesh is returned, every step is a program of its own, on one device of each process.
    """
    if split is not None:
        return split, Shares((split.shares,))
    runs = inputs.runs
    max_parallel_runs = min(runs, options.max_parallel_runs or runs)
    alone = options.loop == "step"
    if options.loop == "auto":
        alone = programs.is_slow_in_loops(programs.traced_step.trace(make, *inputs).jaxpr.jaxpr)
    if alone:
        return None, Shares.of((1,) * team.size, runs, team.index)
    shares = Shares.of(team.devices, max_parallel_runs, team.index)
    return runs_mesh(local_devices(options.devices), shares.local), shares


def _check_options(options: FitOptions, problem: Problem, settings: PyTree) -> None:
    stopping = options.early_stopping
    if stopping is not None and stopping.metric != "gap" and problem.validation is None:
        raise ArgumentError("early_stopping: the problem has no validation rows; give it `validation=rows`")
    if options.schedule is not None and not jax.tree.leaves(settings):
        raise ArgumentError(
            "schedule: there are no settings to schedule; make the strategy a function of settings, and pass "
            "`settings`"
        )

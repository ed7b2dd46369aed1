"""Networks of the units that were found: trained, cut, and measured before and after."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from jaxarch import Checkpoints, Network, Problem, Progress, PyTree, cost, evaluate, over_seeds, shrink
from jaxarch.io import digest
from jaxarch.lab.harness import Parts
from jaxarch.lab.harness.settings import devices
from jaxarch.lab.pruning.searches import Architectures
from jaxarch.lab.pruning.trial import TEST_BATCH, compared, without_failures
from jaxarch.lab.pruning.unit_searches import TRAINING, Task, full, started, units_kept
from jaxarch.lab.pruning.unit_settings import DENSE, TOLERANCE, ChannelSettings
from jaxarch.transforms import density_name

ROUNDING = float(jnp.finfo(jnp.float32).eps) ** 0.5
"""Largest difference, in units of the largest output, at which outputs count as equal up to rounding."""
LAST_STEPS = 20


class Measured(NamedTuple):
    """Measurements of all networks.

    Attributes:
      table: one row a run.
      comparisons: every pair of methods at every share, tested on the same seeds.
      masks: by method, by share, with a leading axis of seeds.
      notes: warnings about the searches for readers of the tables.
    """

    table: pd.DataFrame
    comparisons: pd.DataFrame
    masks: dict[str, dict[str, PyTree]]
    notes: list[str]


def measure(task: Task, progress: Callable[[Progress], None] | None) -> Measured:
    """Search for the units of all methods, train the networks that keep them, and cut these networks."""
    settings = task.settings
    pictures = digest(task.images.x, task.images.y)
    parts = Parts(settings, pictures=pictures)
    found = units_kept(task, parts, progress)
    tables = []
    for share in (1.0, *settings.shares):

        def train(checkpoint: Checkpoints | None, share: float = share) -> pd.DataFrame:
            return trained(*_runs(found, task, share), task, progress, checkpoint)

        tables.append(parts.table(f"share {density_name(share)}", train))
    table = pd.concat(tables, ignore_index=True)
    table.insert(0, "dataset", settings.dataset)
    table.insert(1, "model", settings.model)
    comparisons = compared(table[table["strategy"] != DENSE], ["share"])
    masks = {method: of_method.masks for method, of_method in found.items()}
    return Measured(table, comparisons, masks, [*_notes(found, settings), *off_target(table)])


def _runs(found: dict[str, Architectures], task: Task, share: float) -> tuple[pd.DataFrame, PyTree]:
    """Return the runs of one share as a table and their stacked masks; share 1 is the dense network."""
    settings, seeds = task.settings, np.arange(task.settings.seeds)
    dense = share == 1
    rows, masks = [], []
    for method in [DENSE] if dense else settings.methods:
        masks.append(full(task) if dense else found[method].masks[density_name(share)])
        row = {"strategy": method, "share": share, "seed": seeds}
        row |= {"search_steps": settings.search_steps_of(method), "steps": settings.steps}
        row |= {"search_seconds": 0.0 if dense else float(found[method].seconds)}
        row |= {"search_failed_at": -1 if dense else np.asarray(found[method].failed_at)}
        rows.append(pd.DataFrame(row))
    stacked = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *masks)
    return pd.concat(rows, ignore_index=True), stacked


def trained(
    runs: pd.DataFrame,
    masks: PyTree,
    task: Task,
    progress: Callable[[Progress], None] | None,
    checkpoint: Checkpoints | None,
) -> pd.DataFrame:
    """Train networks from the initial weights of their seeds, cut them, and measure them before and after.

    Args:
      runs: strategy, share and seed of each run.
      masks: with a leading axis of runs.
      task: the task to train on.
      progress: called with the progress, if given.
      checkpoint: checkpoint to resume from.
    """
    name = f"share {runs['share'].iloc[0]:g}"
    seeds = runs["seed"].to_numpy()
    problem, rows = task.learning(seeds), task.test[seeds]
    network, report = over_seeds(
        TRAINING,
        task.settings.seed_keys()[seeds],
        problem,
        network=started(task, masks, seeds),
        name=name,
        progress=progress,
        checkpoint=checkpoint,
        devices=devices(),
        labels=[f"{run.strategy}, share {run.share:g}, seed {run.seed}" for run in runs.itertuples()],
        dead_start="ignore",
    )
    outputs = evaluate(TRAINING, network, problem, rows, batch_size=TEST_BATCH)
    losses = np.asarray(network.info["loss"], np.float64)
    failed_at = np.maximum(np.asarray(network.info.failed_at), runs["search_failed_at"])
    cuts = []
    for run in range(len(runs)):
        if failed_at[run] >= 0:
            cuts.append(dict.fromkeys(Cut._fields, np.nan))
            continue
        one = problem if problem.runs is None else problem.of_run(run)
        made = cut(network.of_run(run), one, task, rows[run], outputs[run])
        cuts.append(made._asdict())
        if progress is not None:
            progress(Progress(f"{name}: cut out", run + 1, len(runs), 0, 1, 1, float(losses[run, -1])))
    return runs.assign(
        accuracy=(outputs.argmax(-1) == task.images.y[rows]).mean(axis=1),
        **pd.DataFrame(cuts),
        loss=losses[:, -LAST_STEPS:].mean(axis=1),
        dead_start=np.asarray(network.info.dead_start),
        failed_at=failed_at,
        seconds=report.seconds,
    ).pipe(without_failures, "accuracy", "loss")


class Cut(NamedTuple):
    """Measurements of a network whose units were cut out.

    Attributes:
      shrunk_accuracy: accuracy of the smaller network on the test rows.
      difference: largest difference between both networks' outputs there, in units of the largest output.
      units: units of the smaller network.
      all_units: units of the whole network.
      multiply_adds: multiply-adds of the smaller network for one example.
      parameters: parameters of the smaller network.
      dense_multiply_adds: multiply-adds of the whole network for one example.
      dense_parameters: parameters of the whole network.
    """

    shrunk_accuracy: float
    difference: float
    units: int
    all_units: int
    multiply_adds: float
    parameters: int
    dense_multiply_adds: float
    dense_parameters: int


def cut(network: Network, problem: Problem, task: Task, rows: np.ndarray, outputs: np.ndarray) -> Cut:
    """Cut a network, check that its outputs are unchanged, and count its costs.

    Args:
      network: of one run.
      problem: of one run.
      task: the task that the network was trained on.
      rows: test rows.
      outputs: outputs of the network on the test rows.

    Raises:
      RuntimeError: the smaller network computes something else: a fault of `shrink`, never of the network.
    """
    small = shrink(network, problem)
    alone = jax.tree.map(lambda leaf: leaf[None], small.network)
    made = evaluate(TRAINING, alone, small.problem, rows, batch_size=TEST_BATCH)[0]
    difference = float(np.abs(made - outputs).max() / (np.abs(outputs).max() or 1))
    if not difference <= ROUNDING:
        raise RuntimeError(
            f"shrink: on the test rows the smaller network's outputs differ by {difference:.1e} of the "
            "largest output; please report this as a bug"
        )
    kinds = {name: group.kind for name, group in small.groups.groups.items()}
    kept = {name: units for name, units in small.kept.items() if kinds[name] == task.settings.units}
    total = cost(network, problem).total
    assert total.shrunk is not None
    return Cut(
        float((made.argmax(-1) == task.images.y[rows]).mean()),
        difference,
        sum(int(units.sum()) for units in kept.values()),
        sum(units.size for units in kept.values()),
        total.shrunk.multiply_adds,
        total.shrunk.parameters,
        total.dense.multiply_adds,
        total.dense.parameters,
    )


def timed(task: Task, steps: int) -> tuple[float, float]:
    """Time one training step of a network, and time testing it, cutting it and testing it again, in seconds.

    Args:
      task: the task to train on.
      steps: number of steps to time.
    """
    seeds = np.arange(task.settings.seeds)
    problem = task.learning(seeds).descending(steps=steps)
    network, report = over_seeds(
        TRAINING,
        task.settings.seed_keys(),
        problem,
        network=started(task, full(task), seeds),
        dead_start="ignore",
        chunk=steps,
    )
    one = problem if problem.runs is None else problem.of_run(0)
    alone = jax.tree.map(lambda leaf: leaf[:1], network)
    rows, begun = task.test[0], 0.0
    # The second pass is timed: the first one compiles the programs that all networks share.
    for _ in range(2):
        begun = time.perf_counter()
        outputs = evaluate(TRAINING, alone, one, rows, batch_size=TEST_BATCH)[0]
        cut(network.of_run(0), one, task, rows, outputs)
    return report.seconds / steps, time.perf_counter() - begun


def _notes(found: dict[str, Architectures], settings: ChannelSettings) -> list[str]:
    """List searches that failed, and shares that architecture pruning did not reach."""
    return [note for method, of in found.items() for note in of.notes(method, settings.shares, "share")]


def off_target(table: pd.DataFrame) -> list[str]:
    """Count the networks of TAS that miss the number of units of their share by more than its tolerance."""
    rows = table[table["strategy"] == "TAS"]
    asked = (rows["share"] * rows["all_units"]).round()
    missed = rows[(rows["units"] - asked).abs() > TOLERANCE * asked]
    return [
        f"! TAS: {len(of)} of {(rows['share'] == share).sum()} networks of share {share:g} have "
        f"{of['units'].min():g} to {of['units'].max():g} units, and not {asked[of.index[0]]:g}"
        for share, of in missed.groupby("share", sort=False)
    ]

"""After [D] section 5: flip single connections of a learned mask until no flip lowers F.

F and AUC are measured before and after.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import Problem, chain, compare, flip, plots
from jaxarch.io import Checkpoints, digest
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count
from jaxarch.lab.data import Dataset, Task
from jaxarch.lab.disentangling import measuring, trial
from jaxarch.lab.disentangling.settings import TaskSettings
from jaxarch.lab.harness import Context, Experiment, Outcome, Parts, Results, finding, paired, tables
from jaxarch.lab.harness.results import failures
from jaxarch.lab.harness.settings import devices
from jaxarch.lab.harness.tables import Table
from jaxarch.masks import check_temperatures
from jaxarch.search import two_temperature

COMPARISONS = "comparisons.csv"
BEFORE, AFTER = "bin", "bin->flipped"
QUANTITIES = {
    "loss": ("F", ".2f"),
    "auc": ("test AUC", ".3f"),
    "test_loss": ("loss on test examples", ".2f"),
    "density": ("density", ".3f"),
}
"""Quantities that are compared: name in words, and number format."""


@dataclasses.dataclass(frozen=True)
class Settings(TaskSettings):
    """Settings of `jaxarch run disentangling.flips`, changed with `--set NAME=VALUE`.

    Attributes:
      positive: classes of the first group, which is y = 1 unless the task is flipped.
      negative: classes of the second group; no class is in both.
      train_per_class: examples of each class to train on.
      hard: the inverse temperature M_hard of the mask in the loss.
      soft: the inverse temperature M_soft, at most M_hard, of the mask that the gradient passes through.
      rounds: maximal number of rounds; each computes a gradient and makes at most one flip.
      tried: candidate flips that are evaluated in a round.
    """

    positive: tuple[int, ...] = (1, 2, 3)
    negative: tuple[int, ...] = (4, 5, 6)
    train_per_class: int = 100
    hard: float = 50.0
    soft: float = 5.0
    rounds: int = 4000
    tried: int = 128

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "train_per_class", "rounds", "tried")
        check_temperatures(self.hard, self.soft)

    def strategies(self) -> dict[str, Any]:
        """Return the search of [D], alone and followed by flips."""
        search = two_temperature(self.hard, self.soft)
        flips = flip(self.rounds, tried=self.tried, returning="ones")
        return {BEFORE: search, AFTER: chain(search, flips)}


def prepare(settings: Settings) -> tuple[Dataset, Task, Problem]:
    """Build data, task and problem."""
    data = settings.data()
    task = trial.split(settings, data, (settings.positive, settings.negative), settings.train_per_class)
    return data, task, trial.problem(settings, data, task)


def plan(settings: Settings) -> list[str]:
    """Describe the trainings to be compiled and run."""
    data, task, learning = prepare(settings)
    params, _ = jax.eval_shape(learning.init, jax.random.key(0))
    connections = sum(leaf.size for leaf in jax.tree.leaves(params))
    return [
        f"data: {data.name}, {data.x.shape[0]} x {data.x.shape[1]}; task {task.name}, both orientations",
        f"training: {settings.steps} steps of batch {settings.batch_size} x {len(task.seeds)} runs",
        f"flips: {settings.tried} of {connections:,} connections tried in each of at most "
        f"{settings.rounds} rounds, on {task.train.shape[1]} examples; one seed at a time",
    ]


def run(settings: Settings, context: Context) -> Outcome:
    """Train, and flip until no flip is better; each seed is a separate part."""
    data, task, learning = prepare(settings)
    parts = Parts(settings, experiment=context.experiment, data=digest(data.x, data.y))
    of_seed = partial(_of_seed, settings, context, data, task, learning)
    seeds = [parts.table(f"seed {seed}", partial(of_seed, seed)) for seed in range(settings.seeds)]
    table = pd.concat(seeds, ignore_index=True)
    comparisons = pd.concat(
        [measuring.compare_runs(table, ["flipped"], of).assign(quantity=of) for of in QUANTITIES],
        ignore_index=True,
    )
    return Outcome(table, _findings(table, comparisons), data, tables={COMPARISONS: comparisons})


def _of_seed(
    settings: Settings,
    context: Context,
    data: Dataset,
    task: Task,
    learning: Problem,
    seed: int,
    point: Checkpoints | None,
) -> pd.DataFrame:
    """Measure both orientations of a split, before and after the flips."""
    runs = np.flatnonzero(task.seeds == seed)
    own = Task(task.name, *(of[runs] for of in task[1:]))
    problem = dataclasses.replace(
        learning, train=learning.train[runs], per_run=jax.tree.map(lambda of: of[runs], learning.per_run)
    )
    chosen = settings.strategies()
    options: dict[str, Any] = {"progress": context.progress, "checkpoint": point, "devices": devices()}
    done = compare(chosen, settings.run_keys(own), problem, labels=trial.labels(own), **options)
    table = measuring.measure(data, own, problem, chosen, done)
    info = done[AFTER][0].info
    after = table["strategy"] == AFTER
    for name in ("flips", "locally_optimal"):
        table.loc[after, name] = np.asarray(info[name], float)
    return table


def _findings(table: pd.DataFrame, comparisons: pd.DataFrame) -> list[dict[str, Any]]:
    """Report the measurements before and after, and their differences, the better orientation first."""
    found = []
    [(task, better)] = measuring.better_orientation(table).items()
    for flipped in (better, not better):
        where = f"{table['dataset'].iloc[0]} {trial.versus(task, flipped)}"
        runs = table[table["flipped"] == flipped]
        differences = _differences(comparisons[comparisons["flipped"] == flipped])
        for of, (words, _) in QUANTITIES.items():
            found.append(finding(f"{words} of {AFTER} minus {BEFORE}, {where}", differences.loc[of]))
            found += [
                finding(f"{words} of {name}, {where}", rows[of]) for name, rows in measuring.by_strategy(runs)
            ]
        after = runs[runs["strategy"] == AFTER]
        found.append(finding(f"flips, {where}", after["flips"]))
        found.append(finding(f"share of locally optimal masks, {where}", after["locally_optimal"].mean()))
    return found


def _differences(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return the differences, after minus before, indexed by quantity."""
    return paired.against(comparisons, AFTER).set_index("quantity")


def conclusion(results: Results) -> Iterable[str]:
    """Report how many flips there were, and what they changed, in the orientation with the higher AUC."""
    table, comparisons = results.table, results.read(COMPARISONS)
    [(task, better)] = measuring.better_orientation(table).items()
    differences = _differences(comparisons[comparisons["flipped"] == better])
    runs = table[(table["flipped"] == better) & (table["strategy"] == AFTER)]
    yield (
        f"{results.manifest['data']['name']} {trial.versus(task, better)} (the orientation with the higher "
        f"test AUC): after {tables.inline(runs['flips'], '.0f')} flips of single connections "
        f"({tables.counted([runs['flips']])}), no single flip lowers the loss F further in "
        f"{int(runs['locally_optimal'].sum())} of {len(runs)} runs."
    )
    said = " and ".join(
        f"{QUANTITIES[of][0]} by {paired.in_words(differences.loc[of], form)}"
        for of, form in (("loss", ".2f"), ("auc", ".3f"))
        if np.isfinite(differences.loc[of, "median"])
    )
    if said:
        yield f"Paired by split, the flips change {said}."


def report(results: Results) -> list[RenderableType]:
    """Draw the figure and build the tables."""
    table, comparisons = results.table, results.read(COMPARISONS)
    name = results.manifest["data"]["name"]
    [(task, better)] = measuring.better_orientation(table).items()
    rendered: list[RenderableType] = []
    values = {}
    for flipped in (better, not better):
        side = trial.versus(task, flipped)
        runs = table[table["flipped"] == flipped]
        values[side] = {of: rows["auc"].to_numpy() for of, rows in measuring.by_strategy(runs)}
        rendered.append(_table(runs, comparisons[comparisons["flipped"] == flipped], f"{name} {side}"))
        rendered.append(_how_many(runs[runs["strategy"] == AFTER]))
    figure = plots.by_strategy(values, "test AUC", f"{name}, before and after single flips", chance=0.5)
    results.draw(figure, "auc")
    return rendered + list(failures(measuring.by_strategy(table)))


def _table(runs: pd.DataFrame, comparisons: pd.DataFrame, side: str) -> Table:
    differences = _differences(comparisons)
    of_strategy = dict(measuring.by_strategy(runs))
    rows = []
    for of, (words, form) in QUANTITIES.items():
        pair = differences.loc[of]
        rows.append(
            (
                words,
                *(tables.spread(of_strategy[name][of], form) for name in (BEFORE, AFTER)),
                f"{tables.signed(pair['median'], form)} "
                f"[{tables.signed(pair['q25'], form)} {tables.signed(pair['q75'], form)}]",
                tables.number(pair["p"], ".3f"),
            )
        )
    seeds = runs["seed"].nunique()
    columns = ("", BEFORE, AFTER, "difference", "p")
    return tables.table(f"{side}, {seeds} seeds: median [quartiles], paired", columns, rows)


def _how_many(after: pd.DataFrame) -> str:
    optimal = int(after["locally_optimal"].sum())
    return (
        f"{tables.spread(after['flips'], '.0f')} flips; no single flip lowers F further in {optimal} of "
        f"{len(after)} runs"
    )


def charts(results: Results) -> list[Chart]:
    """Chart the AUC of every run, before and after the flips."""
    table = results.table
    sides = [trial.versus(*of) for of in table[["task", "flipped"]].itertuples(index=False)]
    labels = {"auc": "test AUC", "side": "orientation"}
    title = f"{results.manifest['data']['name']}: test AUC of every run, before and after single flips"
    return [Chart(title, table.assign(side=sides), "auc", "strategy", "side", labels=labels)]


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion, charts=charts)

"""[D] figures 4 and 6 to 9: run time against AUC for every strategy, several tasks and training sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.console import RenderableType

from jaxarch import Problem, compare, plots
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count, check_distinct
from jaxarch.lab.data import Dataset, Task
from jaxarch.lab.disentangling import measuring, trial
from jaxarch.lab.disentangling.settings import StrategySettings
from jaxarch.lab.harness import Context, Experiment, Outcome, Results, costs, finding, paired, tables
from jaxarch.lab.harness.tables import Table

COMPARISONS = "comparisons.csv"
CELL = ["task", "train_per_class", "flipped"]
REFERENCES = ("unconstrained real", "logistic regression")
"""Strategies that [D] does not have: shown, but left out of the search for the best strategy."""


_DIGITS = ("1v2", "4v9", "1+2+3v4+5+6", "0+1+2+3+4v5+6+7+8+9")
TASKS = {
    "digits": _DIGITS,
    "mnist": _DIGITS,
    "citeseer": ("0v1", "2v3", "0+1+2v3+4+5", "0+2+4v1+3+5"),
}
SIZES = {"digits": (30, 60, 120), "mnist": (50, 100, 150), "citeseer": (50, 100, 150)}


@dataclasses.dataclass(frozen=True)
class Settings(StrategySettings):
    """Settings of `jaxarch run disentangling.fig4`, changed with `--set NAME=VALUE`.

    Attributes:
      tasks: groups of classes, written 1+2+3v4+5+6; if empty, the tasks known for the data set.
      sizes: examples of each class to train on; if empty, the sizes known for the data set.
    """

    tasks: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "sizes")
        check_distinct("sizes", self.sizes)
        check_distinct("tasks", self.tasks)

    def complete(self) -> Self:
        """Return the settings with empty tasks and sizes replaced by those known for the data set."""
        tasks, sizes = self.or_known("tasks", TASKS, "0v1"), self.or_known("sizes", SIZES, "50,100")
        return dataclasses.replace(self, tasks=tasks, sizes=sizes)


class Cell(NamedTuple):
    """One task with one training size."""

    size: int
    task: Task


def prepare(settings: Settings) -> tuple[Dataset, list[Cell], Problem, dict[str, Any]]:
    """Build data, cells, the problem (moved from cell to cell), and strategies."""
    data = settings.data()
    cells = [
        Cell(size, trial.split(settings, data, trial.read_groups(text), size))
        for text in settings.tasks
        for size in settings.sizes
    ]
    return data, cells, trial.problem(settings, data, cells[0].task), settings.chosen()


def plan(settings: Settings) -> list[str]:
    """Describe the trainings to be compiled and run."""
    data, cells, _, chosen = prepare(settings)
    runs, trainings = 2 * settings.seeds, measuring.trainings(chosen)
    return [
        f"data: {data.name}, {data.x.shape[0]} x {data.x.shape[1]}",
        f"tasks: {'; '.join(dict.fromkeys(cell.task.name for cell in cells))}; both orientations",
        f"training examples per class: {', '.join(str(size) for size in settings.sizes)}",
        f"runs: {settings.seeds} seeds x 2 orientations x {len(cells)} tasks and sizes = {runs * len(cells)}",
        f"strategies: {', '.join(chosen)}",
        f"trainings: {len(trainings)}, each {settings.steps} steps of batch {settings.batch_size} x "
        f"{runs} runs x {len(cells)} tasks and sizes, compiled once",
    ]


def run(settings: Settings, context: Context) -> Outcome:
    """Train all strategies on all tasks and sizes."""
    data, cells, learning, chosen = prepare(settings)
    rows = max(cell.task.train.shape[1] for cell in cells)
    measured, spent = [], {}
    for index, (size, task) in enumerate(cells):
        moved = trial.move(learning, task, rows)
        title = f"{task.name}, {size} a class ({index + 1} of {len(cells)})"
        options = context.within(title).options
        done = compare(chosen, settings.run_keys(task), moved, labels=trial.labels(task), **options)
        measured.append(measuring.measure(data, task, moved, chosen, done))
        spent[title] = costs(done)
    table = pd.concat(measured, ignore_index=True)
    comparisons = measuring.compare_runs(table, CELL)
    return Outcome(table, findings(table, comparisons), data, spent, tables={COMPARISONS: comparisons})


def conclusion(results: Results) -> Iterable[str]:
    """Report in how many cells an architecture of weights 1 is best, and bin against real."""
    table, name = results.table, results.manifest["data"]["name"]
    best = best_strategies(table)
    counts = best.sum().sort_values(ascending=False)
    if counts.empty:
        yield f"{name}: no strategy of [D] was run."
        return
    yield (
        f"{name}: of the strategies of [D], {counts.index[0]} has the highest median test AUC in "
        f"{counts.iloc[0]} of {len(best)} cells (task x training size x orientation), ties included."
    )
    if (family := _family(best)) is not None:
        yield f"In {family} cells it is bin, a learned mask with all weights 1, or bin->real."
    if {"bin", "real"} <= set(table["strategy"]):
        against = paired.against(results.read(COMPARISONS), "bin", "real")
        yield (
            f"Bin minus real (trained weights >= 0) has a median AUC difference of "
            f"{tables.inline(against['median'], '+.3f')} over cells, each paired over "
            f"{results.settings['seeds']} splits."
        )


def report(results: Results) -> list[RenderableType]:
    """Draw the figures and build the tables."""
    table, comparisons = results.table, results.read(COMPARISONS)
    name, better = results.manifest["data"]["name"], measuring.better_orientation(table)
    is_better = table["flipped"] == table["task"].map(better)
    for side, rows in (("better", table[is_better]), ("other", table[~is_better])):
        figure = plots.runtime(_panels(rows), "test AUC", f"{name}, {side} orientation of each task", 0.5)
        results.draw(figure, f"runtime-{side}")
    rendered: list[RenderableType] = [
        _table(rows, f"{name}, {task}, {trial.orientation(better[task])} (the better orientation)")
        for task, rows in table[is_better].groupby("task", sort=False)
    ]
    rendered += measuring.explain(table["strategy"].unique())
    rendered.append(_times(table))
    if "bin" in set(table["strategy"]):
        differences = paired.against(comparisons, "bin")
        results.draw(_differences(differences, name), "differences")
        if len(differences):
            rendered.append(_summary(differences))
    return [*rendered, _best(table), *measuring.remarks(results)]


def best_strategies(table: pd.DataFrame) -> pd.DataFrame:
    """Tell for each cell and strategy of [D] whether its median AUC is the highest (ties count)."""
    per_run = table[~table["strategy"].isin(REFERENCES)]
    medians = per_run.groupby([*CELL, "strategy"], sort=False)["auc"].median().unstack("strategy", sort=False)
    return medians.eq(medians.max(axis=1), axis=0)


def _panels(table: pd.DataFrame) -> dict[str, dict[str, dict[str, tuple[float, np.ndarray]]]]:
    """Map task, size and strategy to the seconds a run and the AUC of all runs."""
    return {
        f"{task}\n{trial.orientation(bool(rows['flipped'].iloc[0]))}": {
            f"{size} training examples per class": {
                strategy: (runs["seconds"].median(), runs["auc"].to_numpy())
                for strategy, runs in measuring.by_strategy(cell)
            }
            for size, cell in rows.groupby("train_per_class")
        }
        for task, rows in table.groupby("task", sort=False)
    }


def _differences(differences: pd.DataFrame, name: str) -> Figure:
    values = {
        trial.orientation(bool(flipped)): {
            str(other): cells["median"].to_numpy() for other, cells in rows.groupby("against", sort=False)
        }
        for flipped, rows in differences.groupby("flipped")
    }
    label = "test AUC of bin minus test AUC of ..."
    return plots.by_strategy(values, label, name, zero=0.0, dots="tasks and sizes, medians over splits")


def _table(table: pd.DataFrame, title: str) -> Table:
    sizes = sorted(table["train_per_class"].unique())
    rows = []
    for name, runs in measuring.by_strategy(table):
        spreads = [tables.spread(runs[runs["train_per_class"] == size]["auc"], ".3f") for size in sizes]
        rows.append((name, *spreads))
    return tables.table(title, ("AUC", *(f"{size} per class" for size in sizes)), rows)


def _times(table: pd.DataFrame) -> Table:
    seconds = table.groupby(["strategy", "train_per_class", "task"], sort=False)["seconds"].median()
    medians = seconds.groupby(["strategy", "train_per_class"], sort=False).median().unstack("train_per_class")
    rows = [(name, *(f"{medians.loc[name, size]:.4f}" for size in medians)) for name in medians.index]
    columns = ("seconds", *(f"{size} per class" for size in medians))
    return tables.table("run time: wall-clock time x devices / runs, median over tasks", columns, rows)


def _summary(differences: pd.DataFrame) -> Table:
    cells = len(differences[CELL].drop_duplicates())
    rows = []
    for other, part in differences.groupby("against", sort=False):
        rows.append(
            (
                str(other),
                tables.spread(part["median"], "+.3f"),
                f"{(part['mean_low'] > 0).sum()}",
                f"{(part['mean_high'] < 0).sum()}",
            )
        )
    title = f"AUC of bin minus AUC of others in {cells} cells (task x size x orientation), paired by split"
    columns = ("against", "medians: median [quartiles]", "95% interval above 0", "below 0")
    return tables.table(title, columns, rows)


def _best(table: pd.DataFrame) -> Table:
    best = best_strategies(table)
    rows = [(str(name), f"{count}") for name, count in best.sum().sort_values(ascending=False).items()]
    if (family := _family(best)) is not None:
        rows.append(("bin or bin->real", f"{family}"))
    title = f"number of cells, of {len(best)}, in which a strategy of [D] has the highest median AUC"
    return tables.table(title, ("", "cells"), rows)


def _family(best: pd.DataFrame) -> int | None:
    """Count the cells where bin or bin->real is best; None unless they ran beside others."""
    family = [name for name in best if name.startswith("bin")]
    return int(best[family].any(axis=1).sum()) if 0 < len(family) < best.shape[1] else None


def findings(table: pd.DataFrame, comparisons: pd.DataFrame) -> list[dict[str, Any]]:
    """Build the findings that are recorded.

    For all tasks, tasks of single classes and tasks of groups: the number of cells where bin or bin->real is
    best, and bin against every other strategy. Then run times; and the AUC of every strategy on every
    task at the middle training size, in the better orientation.
    """
    dataset = table["dataset"].iloc[0]
    single = ~table["task"].str.contains(",")
    scopes = {"all tasks": table, "single classes": table[single], "groups of classes": table[~single]}
    found = []
    for scope, part in scopes.items():
        if part.empty:
            continue
        best = best_strategies(part)
        where = f"{dataset}, {scope}"
        if (family := _family(best)) is not None:
            what = f"cells of {len(best)} with the highest median AUC in bin or bin->real; {where}"
            found.append(finding(what, family))
        differences = paired.against(comparisons[comparisons["task"].isin(part["task"])], "bin")
        for other, cells in differences.groupby("against", sort=False):
            above, below = (cells["mean_low"] > 0).sum(), (cells["mean_high"] < 0).sum()
            of = f"cells of {len(cells)}"
            found += [
                finding(f"{of} with bin above {other} (95% interval); {where}", above),
                finding(f"{of} with bin below {other} (95% interval); {where}", below),
                finding(
                    f"AUC of bin minus {other}, median of the medians of {len(cells)} cells; {where}",
                    cells["median"].median(),
                ),
            ]
    for strategy, runs in measuring.by_strategy(table):
        seconds = runs.groupby(["task", "train_per_class"])["seconds"].first().median()
        what = f"seconds a run and device of {strategy}, median over tasks and sizes; {dataset}"
        found.append(finding(what, seconds))
    sizes = sorted(table["train_per_class"].unique())
    middle = sizes[len(sizes) // 2]
    for task, flipped in measuring.better_orientation(table).items():
        where = f"{dataset} {trial.versus(task, flipped)}, {middle} a class"
        cell = table[(table[CELL] == [task, middle, flipped]).all(axis=1)]
        for strategy, runs in measuring.by_strategy(cell):
            found.append(finding(f"AUC of {strategy}; {where}", runs["auc"]))
        same = (comparisons[CELL] == [task, middle, flipped]).all(axis=1)
        for _, pair in paired.against(comparisons[same], "bin").iterrows():
            found.append(finding(f"AUC of bin minus {pair['against']}; {where}", pair))
    return found


def charts(results: Results) -> list[Chart]:
    """Chart the AUC of every run against its run time, for both orientations of all tasks."""
    labels = {
        "auc": "test AUC",
        "seconds": "seconds per run",
        "train_per_class": "training examples per class",
    }
    title = f"{results.manifest['data']['name']}: test AUC against run time"
    tells = ("task", "flipped", "train_per_class", "seed")
    log = (True, False)
    return [Chart(title, results.table, "seconds", "auc", "strategy", "", labels, tells, log)]


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion, charts=charts)

"""[A] section 3.3 and table 1: what is left of an architecture when its layers are reshuffled."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import RenderableType
from rich.table import Table

from jaxarch import results
from jaxarch.errors import check_distinct, check_known
from jaxarch.experiments import tables
from jaxarch.experiments.experiment import Experiment
from jaxarch.experiments.pruning import estimate, tasks, transfer, trial
from jaxarch.experiments.pruning.searches import RESHUFFLED, SEARCHES
from jaxarch.fit import Progress

NAME = "pruning.reshuffle"


@dataclasses.dataclass(frozen=True)
class Settings(tasks.Settings):
    """What can be set with `jaxarch run pruning.reshuffle --set NAME=VALUE`.

    What each of the `searches` finds is compared with itself, its connections permuted within each layer.
    """

    sparsities: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.99)
    searches: tuple[str, ...] = ("AP", "IMP")

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_known("searches", self.searches, SEARCHES)
        check_distinct("searches", self.searches)

    @property
    def methods(self) -> tuple[str, ...]:
        """Every search, and what it finds reshuffled."""
        return tuple(name for search in self.searches for name in (search, search + RESHUFFLED))


def plan(settings: Settings) -> list[str]:
    """What would be compiled and trained."""
    return estimate.plan(settings.methods, tasks.prepare(settings))


def duration(settings: Settings) -> list[str]:
    """How long it would take here."""
    return estimate.duration(settings.methods, tasks.prepare(settings))


def run(settings: Settings, folder: Path, progress: Callable[[Progress], None] | None = None) -> None:
    """Search, train on the new task, and write results, comparisons, layer densities and manifest."""
    started = time.time()
    ready = tasks.prepare(settings)
    measured = trial.measure(settings.methods, ready, progress)
    trial.write(folder, NAME, ready, measured, started, _findings(measured, settings))


def _pairs(comparisons: pd.DataFrame) -> pd.DataFrame:
    """A search against itself reshuffled."""
    return comparisons[comparisons["second"] == comparisons["first"] + RESHUFFLED]


def _findings(measured: trial.Measured, settings: Settings) -> list[dict[str, Any]]:
    found = []
    for pair in _pairs(measured.comparisons).to_dict("records"):
        what = f"accuracy of {pair['first']} minus itself reshuffled, {transfer.where(pair)}"
        found.append(results.finding(what, pd.Series(pair)))
    for cell, rows in measured.table.groupby([*trial.CELL, "strategy"], sort=False):
        place = transfer.where(dict(zip(trial.CELL, cell, strict=False)))
        found.append(results.finding(f"accuracy of {cell[-1]}, {place}", rows["accuracy"]))
    return found


def report(folder: Path) -> list[RenderableType]:
    """Draw the figure of a folder from its files, and make its tables."""
    manifest, table = results.read_manifest(folder), results.read_table(folder)
    comparisons = results.read_table(folder, trial.COMPARISONS)
    task = table["task"].iloc[0]
    trial.draw_layers(folder, task)
    rendered: list[RenderableType] = []
    for (weights, size), rows in table.groupby(["weights", "size"], sort=False):
        title = f"{task}: test accuracy after {size} examples, {weights} start"
        pairs = _pairs(comparisons)
        rendered.append(_table(rows, title))
        rendered.append(_lost(pairs[(pairs["weights"] == weights) & (pairs["size"] == size)]))
    return [*rendered, *trial.remarks(manifest, table)]


def _table(table: pd.DataFrame, title: str) -> Table:
    """Table 1 of [A]: sparsities down, methods across; the parent in the title."""
    parent = tables.spread(table.loc[table["strategy"] == trial.PARENT, "accuracy"], ".3f")
    table = table[table["strategy"] != trial.PARENT]
    methods = table["strategy"].unique()
    rows = [
        (
            f"{sparsity:g}",
            *(tables.spread(of.loc[of["strategy"] == method, "accuracy"], ".3f") for method in methods),
        )
        for sparsity, of in table.groupby("sparsity")
    ]
    return tables.table(f"{title}; the parent has {parent}", ("sparsity", *methods), rows)


def _lost(pairs: pd.DataFrame) -> Table:
    rows = [
        (
            f"{pair['first']}, {pair['sparsity']:g}",
            tables.signed(pair["median"], ".3f"),
            f"{tables.signed(pair['mean_low'], '.3f')} {tables.signed(pair['mean_high'], '.3f')}",
            f"{pair['wins']:g} of {pair['runs']}",
        )
        for _, pair in pairs.iterrows()
    ]
    columns = ("search, sparsity", "median", "95% of mean", "better")
    return tables.table("accuracy minus that of the same reshuffled, seed by seed", columns, rows)


EXPERIMENT = Experiment(
    NAME,
    "table 1 of [A]: architectures against themselves reshuffled within layers, and their layers' densities",
    Settings,
    plan,
    run,
    report,
    duration,
)

"""[A] section 3.2, figures 2 to 7: architectures of one task, trained on another with few examples."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import RenderableType
from rich.table import Table

from jaxarch import plots, results
from jaxarch.experiments import tables
from jaxarch.experiments.experiment import Experiment
from jaxarch.experiments.pruning import estimate, tasks, trial
from jaxarch.experiments.pruning.searches import RESHUFFLED, check_methods
from jaxarch.fit import Progress

NAME = "pruning.transfer"
METHODS = ("AP", "IMP", "magnitude", "SNIP", "random search", "ERK", "random", "AP" + RESHUFFLED)


@dataclasses.dataclass(frozen=True)
class Settings(tasks.Settings):
    """What can be set with `jaxarch run pruning.transfer --set NAME=VALUE`.

    Of the `methods`, AP is architecture pruning and IMP iterative magnitude pruning; what each finds can be
    reshuffled within layers, as in `AP->reshuffled`.
    """

    methods: tuple[str, ...] = METHODS

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_methods("methods", self.methods)


def plan(settings: Settings) -> list[str]:
    """What would be compiled and trained."""
    return estimate.plan(settings.methods, tasks.prepare(settings))


def duration(settings: Settings) -> list[str]:
    """How long it would take here."""
    return estimate.duration(settings.methods, tasks.prepare(settings))


def run(settings: Settings, folder: Path, progress: Callable[[Progress], None] | None = None) -> None:
    """Search, train on the new task, and write results, comparisons, layer densities and manifest."""
    started = time.time()
    transfer = tasks.prepare(settings)
    measured = trial.measure(settings.methods, transfer, progress)
    trial.write(folder, NAME, transfer, measured, started, findings(measured))


def findings(measured: trial.Measured) -> list[dict[str, Any]]:
    """What the ledger takes: AP against the others, and the accuracy of all."""
    found = []
    for pair in measured.comparisons.to_dict("records"):
        if pair["first"] == "AP":
            what = f"accuracy of AP minus {pair['second']}, {where(pair)}"
            found.append(results.finding(what, pd.Series(pair)))
    for cell, rows in measured.table.groupby([*trial.CELL, "strategy"], sort=False):
        place = where(dict(zip(trial.CELL, cell, strict=False)))
        found.append(results.finding(f"accuracy of {cell[-1]}, {place}", rows["accuracy"]))
    return found


def where(cell: Any) -> str:
    """A cell in words."""
    return f"sparsity {cell['sparsity']:g}, {cell['size']} examples, {cell['weights']} start"


def report(folder: Path) -> list[RenderableType]:
    """Draw the figures of a folder from its files, and make its tables."""
    manifest, table = results.read_manifest(folder), results.read_table(folder)
    comparisons = results.read_table(folder, trial.COMPARISONS)
    task = table["task"].iloc[0]
    plots.save(
        plots.sweep(_curves(table), "share of connections left", task, (), None, True), folder, "accuracy"
    )
    trial.draw_layers(folder, task)
    rendered: list[RenderableType] = []
    for (weights, size), rows in table.groupby(["weights", "size"], sort=False):
        rendered.append(accuracy_table(rows, f"{task}: test accuracy after {size} examples, {weights} start"))
    if "AP" in set(table["strategy"]):
        rendered.append(_against(comparisons))
    return [*rendered, *trial.remarks(manifest, table)]


def _curves(table: pd.DataFrame) -> Any:
    """By start, by size, by method: shares of connections, of which 1 is the parent, and accuracies."""
    curves: dict[str, Any] = {}
    for (weights, size), cell in table.groupby(["weights", "size"], sort=False):
        parent = cell[cell["strategy"] == trial.PARENT]
        panel = curves.setdefault(f"test accuracy\n{weights} start", {}).setdefault(f"{size} examples", {})
        for method, rows in cell[cell["strategy"] != trial.PARENT].groupby("strategy", sort=False):
            by_seed = (
                pd.concat([parent, rows]).pivot(index="seed", columns="sparsity", values="accuracy").dropna()
            )
            panel[method] = (1 - by_seed.columns.to_numpy(float), by_seed.to_numpy())
    return curves


def accuracy_table(table: pd.DataFrame, title: str) -> Table:
    """Methods down, sparsities across; the parent in the title."""
    parent = tables.spread(table.loc[table["strategy"] == trial.PARENT, "accuracy"], ".3f")
    found = table[table["strategy"] != trial.PARENT]
    sparsities = sorted(found["sparsity"].unique())
    rows = [
        (str(method), *(tables.spread(of.loc[of["sparsity"] == s, "accuracy"], ".3f") for s in sparsities))
        for method, of in found.groupby("strategy", sort=False)
    ]
    columns = ("sparsity", *(f"{sparsity:g}" for sparsity in sparsities))
    return tables.table(f"{title}; the parent has {parent}", columns, rows)


def _against(comparisons: pd.DataFrame) -> Table:
    """AP minus every other method, seed by seed."""
    pairs = comparisons[comparisons["first"] == "AP"]
    sparsities = sorted(pairs["sparsity"].unique())
    rows = []
    for (weights, size, other), of in pairs.groupby(["weights", "size", "second"], sort=False):
        by_sparsity = [of[of["sparsity"] == sparsity].iloc[0] for sparsity in sparsities]
        cells = [
            f"{tables.signed(pair['median'], '.3f')} {pair['wins']:g}/{pair['runs']}" for pair in by_sparsity
        ]
        rows.append((f"{other}, {size}, {weights}", *cells))
    return tables.table(
        "accuracy of AP minus that of others, seed by seed: median, and in how many seeds AP is better",
        ("against, examples, start", *(f"{sparsity:g}" for sparsity in sparsities)),
        rows,
    )


EXPERIMENT = Experiment(
    NAME,
    "figures 2 to 7 of [A]: architectures found on one task, trained on another with few examples",
    Settings,
    plan,
    run,
    report,
    duration,
)

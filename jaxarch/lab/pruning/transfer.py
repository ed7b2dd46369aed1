"""[A] section 3.2, figures 2 to 7: architectures of one task, trained on another with few examples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import pandas as pd
from rich.console import RenderableType

from jaxarch import plots
from jaxarch.lab.charts import Chart
from jaxarch.lab.harness import Results, finding, paired, tables
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.pruning import reporting
from jaxarch.lab.pruning.searches import RESHUFFLED, check_methods
from jaxarch.lab.pruning.settings import TransferSettings
from jaxarch.lab.pruning.trial import CELL, PARENT, Measured

RIVALS = ("IMP", "random")
"""Methods that a conclusion compares AP with."""
METHODS = ("AP", "IMP", "magnitude", "SNIP", "random search", "ERK", "random", "AP" + RESHUFFLED)


@dataclasses.dataclass(frozen=True)
class Settings(TransferSettings):
    """Settings of `jaxarch run pruning.transfer`, changed with `--set NAME=VALUE`.

    All settings of transfers apply too.

    Attributes:
      methods: AP (architecture pruning), IMP (iterative magnitude pruning), magnitude (the same in one shot),
        SNIP, random search; drawn at random: random, uniform, ERK; METHOD->reshuffled permutes METHOD's
        architecture within layers.
    """

    methods: tuple[str, ...] = METHODS

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_methods("methods", self.methods)


def findings(measured: Measured) -> list[dict[str, Any]]:
    """Compare AP with the other methods, and report the accuracy of every method."""
    pairs = [pair for pair in measured.comparisons.to_dict("records") if pair["first"] == "AP"]
    against = [
        finding(f"accuracy of AP minus {pair['second']}, {reporting.where(pair)}", pd.Series(pair))
        for pair in pairs
    ]
    return against + reporting.accuracies(measured)


def conclusion(results: Results) -> Iterable[str]:
    """Count the cells in which each method is best, and compare AP with its rivals and the whole network."""
    table, comparisons = results.table, results.read(reporting.COMPARISONS)
    found = table[table["strategy"] != PARENT]
    methods = [str(name) for name in found["strategy"].unique()]
    medians = found.groupby([*CELL, "strategy"], sort=False)["accuracy"].median().unstack("strategy")[methods]
    ours, cells = "AP" if "AP" in methods else methods[0], f"{len(medians)} cells"
    whole = table[table["strategy"] == PARENT].groupby(["weights", "size"])["accuracy"].median()
    yield (
        f"{table['task'].iloc[0]}: {ours} has a test accuracy of {tables.inline(medians[ours], '.3f')} "
        f"(median [quartiles] of {cells}, sparsity x examples x start, each the median of "
        f"{results.settings['seeds']} seeds), and the whole network has {tables.inline(whole, '.3f')}."
    )
    if len(methods) == 1:
        return
    highest = medians.eq(medians.max(axis=1), axis=0).sum().sort_values(ascending=False, kind="stable")
    counts = [f"{name} in {highest[name]}" for name in dict.fromkeys([*highest.index[:2], ours])]
    yield f"The highest median is that of {', '.join(counts)} of these cells, ties included."
    rivals = [name for name in RIVALS if name in methods and name != ours] or methods[1:2]
    pairs = {name: paired.against(comparisons, ours, name) for name in rivals}
    tests = len(methods) * (len(methods) - 1) // 2
    said = "; ".join(
        f"minus {name} {tables.inline(of['median'], '+.3f')} (cells with adjusted p < {paired.LEVEL:g}: "
        f"{paired.significant(of, 'p_adjusted', tests)})"
        for name, of in pairs.items()
    )
    yield f"Paired by seed, {ours} over the same cells: {said}."


def report(results: Results) -> list[RenderableType]:
    """Draw the figures and build the tables."""
    table, comparisons = results.table, results.read(reporting.COMPARISONS)
    task = table["task"].iloc[0]
    figure = plots.sweep(_curves(table), "share of connections left", task, logarithmic_setting=True)
    results.draw(figure, "accuracy")
    reporting.draw_layers(results, task)
    rendered: list[RenderableType] = [
        _accuracies(cell, f"{task}: test accuracy after {size} examples, {weights} start")
        for (weights, size), cell in table.groupby(["weights", "size"], sort=False)
    ]
    rendered[1:1] = reporting.explain(table)
    if len(pairs := paired.against(comparisons, "AP")):
        rendered.append(_against(pairs))
    return [*rendered, *reporting.remarks(results)]


def _curves(table: pd.DataFrame) -> Any:
    """Map start, size and method to shares of connections (1 is the parent) and accuracies."""
    curves: dict[str, Any] = {}
    for (weights, size), cell in table.groupby(["weights", "size"], sort=False):
        whole = cell[cell["strategy"] == PARENT]
        panel = curves.setdefault(f"test accuracy\n{weights} start", {}).setdefault(f"{size} examples", {})
        for method, rows in cell[cell["strategy"] != PARENT].groupby("strategy", sort=False):
            by_seed = pd.concat([whole, rows]).pivot(index="seed", columns="sparsity", values="accuracy")
            panel[method] = (1 - by_seed.columns.to_numpy(float), by_seed.to_numpy())
    return curves


def _accuracies(table: pd.DataFrame, title: str) -> Table:
    """Tabulate accuracies: methods down, sparsities across."""
    found = table[table["strategy"] != PARENT]
    sparsities = sorted(found["sparsity"].unique())
    rows = [
        (str(method), *(tables.spread(of.loc[of["sparsity"] == s, "accuracy"], ".3f") for s in sparsities))
        for method, of in found.groupby("strategy", sort=False)
    ]
    columns = ("sparsity", *(f"{sparsity:g}" for sparsity in sparsities))
    return tables.table(f"{title}; {reporting.parent(table)}", columns, rows)


def _against(pairs: pd.DataFrame) -> Table:
    """Tabulate AP minus every other method, paired by seed."""
    sparsities = sorted(pairs["sparsity"].unique())
    rows = []
    for (weights, size, other), of in pairs.groupby(["weights", "size", "against"], sort=False):
        by_sparsity = [of[of["sparsity"] == sparsity].iloc[0] for sparsity in sparsities]
        cells = [
            f"{tables.signed(pair['median'], '.3f')} {pair['wins']:g}/{pair['runs']}" for pair in by_sparsity
        ]
        rows.append((f"{other}, {size}, {weights}", *cells))
    return tables.table(
        "accuracy of AP minus accuracy of others, paired by seed: median, and seeds in which AP is better",
        ("against, examples, start", *(f"{sparsity:g}" for sparsity in sparsities)),
        rows,
    )


def charts(results: Results) -> list[Chart]:
    """Chart every run's accuracy against its share of connections left, one chart per start and size."""
    table = results.table.assign(share=1 - results.table["sparsity"])
    labels = {"share": "share of connections left", "accuracy": "test accuracy", "strategy": "method"}
    return [
        Chart(
            f"{cell['task'].iloc[0]}: test accuracy after {size} examples, {weights} start",
            cell,
            "share",
            "accuracy",
            "strategy",
            at="share",
            labels=labels,
            logarithmic=(True, False),
        )
        for (weights, size), cell in table.groupby(["weights", "size"], sort=False)
    ]


EXPERIMENT = reporting.experiment(__name__, Settings, findings, report, conclusion, charts)

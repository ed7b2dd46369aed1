"""[A] section 3.3 and table 1: accuracy of architectures whose layers are reshuffled."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import pandas as pd
from rich.console import RenderableType

from jaxarch.lab.checks import check_distinct, check_known
from jaxarch.lab.harness import Results, finding, paired, tables
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.pruning import reporting
from jaxarch.lab.pruning.searches import RESHUFFLED, SEARCHES
from jaxarch.lab.pruning.settings import TransferSettings
from jaxarch.lab.pruning.trial import PARENT, Measured


@dataclasses.dataclass(frozen=True)
class Settings(TransferSettings):
    """Settings of `jaxarch run pruning.reshuffle`, changed with `--set NAME=VALUE`.

    Each found architecture is compared with itself, its connections permuted within each layer. All settings
    of transfers apply too.

    Attributes:
      searches: AP (architecture pruning), IMP (iterative magnitude pruning), magnitude, SNIP, random,
        uniform, ERK, random search.
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
        """Return every search, each followed by its reshuffled variant."""
        return tuple(name for search in self.searches for name in (search, search + RESHUFFLED))


def findings(measured: Measured) -> list[dict[str, Any]]:
    """Compare every search with itself reshuffled, and report the accuracy of every method."""
    against = [
        finding(f"accuracy of {pair['first']} minus itself reshuffled, {reporting.where(pair)}", pair)
        for _, pair in _pairs(measured.comparisons).iterrows()
    ]
    return against + reporting.accuracies(measured)


def conclusion(results: Results) -> Iterable[str]:
    """Report the differences of architectures to themselves reshuffled, in all cells and in the sparsest."""
    pairs = _pairs(results.read(reporting.COMPARISONS))
    searches = {str(name): of for name, of in pairs.groupby("first", sort=False)}
    cells = len(pairs) // len(searches)
    task, seeds = results.table["task"].iloc[0], results.settings["seeds"]
    said = ", ".join(f"{name} {tables.inline(of['median'], '+.3f')}" for name, of in searches.items())
    yield (
        f"{task}: test accuracy of an architecture minus the same reshuffled within layers, paired by seed: "
        f"{said} (median [quartiles] over {cells} cells, sparsity x examples x start, of {seeds} seeds each)."
    )
    sparsest = pairs["sparsity"].max()
    if pairs["sparsity"].nunique() > 1:
        at = {name: of[of["sparsity"] == sparsest]["median"] for name, of in searches.items()}
        said = ", ".join(f"{name} {tables.inline(of, '+.3f')}" for name, of in at.items())
        yield f"At the largest sparsity, {sparsest:g}, it is: {said}."
    said = "; ".join(f"{name} {paired.significant(of, 'p')}" for name, of in searches.items())
    yield f"Cells with p < {paired.LEVEL:g} (Wilcoxon, not adjusted): {said}."


def report(results: Results) -> list[RenderableType]:
    """Draw the figure and build the tables."""
    table, pairs = results.table, _pairs(results.read(reporting.COMPARISONS))
    task = table["task"].iloc[0]
    reporting.draw_layers(results, task)
    rendered: list[RenderableType] = []
    for (weights, size), cell in table.groupby(["weights", "size"], sort=False):
        rendered.append(_table(cell, f"{task}: test accuracy after {size} examples, {weights} start"))
        rendered.append(_differences(pairs[(pairs["weights"] == weights) & (pairs["size"] == size)]))
    rendered[1:1] = reporting.explain(table)
    return [*rendered, *reporting.remarks(results)]


def _pairs(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Select the comparisons of a search with itself reshuffled."""
    return comparisons[comparisons["second"] == comparisons["first"] + RESHUFFLED]


def _table(table: pd.DataFrame, title: str) -> Table:
    """Build table 1 of [A]: sparsities down, methods across."""
    found = table[table["strategy"] != PARENT]
    methods = found["strategy"].unique()
    rows = [
        (f"{sparsity:g}", *(tables.spread(of.loc[of["strategy"] == m, "accuracy"], ".3f") for m in methods))
        for sparsity, of in found.groupby("sparsity")
    ]
    return tables.table(f"{title}; {reporting.parent(table)}", ("sparsity", *methods), rows)


def _differences(pairs: pd.DataFrame) -> Table:
    rows = [
        (
            f"{pair['first']}, {pair['sparsity']:g}",
            tables.signed(pair["median"], ".3f"),
            f"{tables.signed(pair['mean_low'], '.3f')} {tables.signed(pair['mean_high'], '.3f')}",
            f"{pair['wins']:g} of {pair['runs']}",
        )
        for _, pair in pairs.iterrows()
    ]
    columns = ("search, sparsity", "median", "95% interval of mean", "seeds better")
    return tables.table(
        "accuracy minus accuracy of the same architecture reshuffled, paired by seed", columns, rows
    )


EXPERIMENT = reporting.experiment(__name__, Settings, findings, report, conclusion)

"""Tables and figures of a tournament."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import RenderableType
from scipy import stats

from jaxarch import plots
from jaxarch.lab.charts import Chart
from jaxarch.lab.harness import Results, paired, tables
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.pruning.parents import in_words
from jaxarch.lab.tournament.control_report import control_report
from jaxarch.lab.tournament.entrants import DENSE, WHOLE
from jaxarch.lab.tournament.names import explain
from jaxarch.lab.tournament.own import FAMILY
from jaxarch.metrics import Ranking, ranking

CHANCE = "chance"
REFERENCE = "random ERK"
"""The method that the report compares with every other; a file has all pairs."""
CIFAR_NOTE = "! this copy of CIFAR-10 may come from lossy JPEGs: see `jaxarch data cifar10`"
COMPARISONS, RANKS, TRIALS = "comparisons.csv", "ranks.csv", "trials.csv"
CONTROLS, LAYERS = "controls.csv", "layers.csv"
MOST_COLUMNS = 45
"""Largest number of layers times densities that the figure of layers has room for."""
AGAINST = {
    "density": "density",
    "cost": "multiply-adds of training, relative to the dense network",
    "gradient_evaluations": "gradient evaluations",
}
"""Quantities that accuracies are drawn against: columns of `_with_cost`, and their labels."""


def ranking_of(table: pd.DataFrame) -> Ranking:
    """Rank the methods by accuracy; a seed is a run, its densities are cells."""
    ranked = table[table["strategy"] != DENSE]
    values = {}
    for name, rows in ranked.groupby("strategy", sort=False):
        by_seed = rows.pivot(index="seed", columns="density", values="accuracy")
        values[str(name)] = by_seed.to_numpy(float)
    return ranking(values)


def conclusion(results: Results) -> Iterable[str]:
    """Name the method of the best mean rank, and compare it with random masks at the smallest density."""
    settings, table = results.settings, results.table
    where = f"{settings['dataset']}, {in_words(settings)}, budget {settings['budget']}"
    ranked = table[table["strategy"] != DENSE]
    if ranked["accuracy"].isna().all():
        yield f"{where}: all {len(ranked)} runs met NaN or infinity, so no method is better than another."
        return
    if ranked["strategy"].nunique() < 2:
        best = str(ranked["strategy"].iloc[0])
        yield f"{where}: {best} is the only method, so there is no rank."
    else:
        found = ranking_of(table)
        first = found.table.iloc[0]
        tied = found.table.loc[found.table["rank"] == first["rank"], "strategy"].tolist()
        best = str(tied[0])
        have = f"{best} has" if len(tied) == 1 else f"{' and '.join(tied)} share"
        alike = int((found.table["rank"] - first["rank"] < found.critical_difference).sum()) - len(tied)
        yield (
            f"{where}: {have} the best mean rank of {len(found.table)} methods, {first['rank']:.1f} "
            f"[{first['low']:.1f}, {first['high']:.1f}] (mean [95% interval] over {found.runs} seeds, each "
            f"over {ranked['density'].nunique()} densities); {alike} of the others cannot be told from it "
            "(Nemenyi, 5%)."
        )
    yield from _at_smallest(results, ranked, best)


def _at_smallest(results: Results, ranked: pd.DataFrame, best: str) -> Iterator[str]:
    """Compare a method with the dense network and random masks, at the smallest density."""
    density = ranked["density"].min()
    here = ranked[ranked["density"] == density]
    dense = results.table.loc[results.table["strategy"] == DENSE, "accuracy"]
    accuracy = here.loc[here["strategy"] == best, "accuracy"]
    medians = here.groupby("strategy", sort=False)["accuracy"].median()
    highest = medians.idxmax() if medians.notna().any() else best
    other = "" if highest == best else f"; the highest median is {medians[highest]:.3f}, of {highest}"
    yield (
        f"At density {density:g} the test accuracy of {best} is {tables.inline(accuracy, '.3f')} (median "
        f"[quartiles] of {accuracy.notna().sum()} runs), and that of the dense network "
        f"{tables.inline(dense, '.3f')}{other}."
    )
    rivals = [name for name in (REFERENCE, WHOLE) if name != best and name in medians]
    if not rivals:
        return
    pairs = paired.against(_adjusted(results.read(COMPARISONS), rivals[0]), best, rivals[0])
    for pair in pairs[(pairs["density"] == density) & pairs["median"].notna()].to_dict("records"):
        yield f"Paired by seed, {best} minus {rivals[0]} is {paired.in_words(pair, '.3f', 'p_adjusted')}."


def report(results: Results) -> list[RenderableType]:
    """Draw the figures and build the tables."""
    settings, table = results.settings, results.table
    found = ranking_of(table) if table["strategy"].nunique() > 2 else None
    title = f"{settings['dataset']}, {in_words(settings)}, budget {settings['budget']}"
    order = list(table["strategy"].unique()) if found is None else found.table["strategy"].tolist()
    made: list[RenderableType] = [
        _accuracies(table, order, found, title, results.manifest["chance"]),
        *_explained(settings, table, order),
        _costs(table, order),
    ]
    if "cross_entropy" in table:
        made.insert(1, _perplexities(table, order))
    if found is not None:
        results.draw(plots.ranks(found, title), "ranks")
        made.insert(-1, _test(found))
    _draw(results, table, title)
    _draw_layers(results, order, title)
    comparisons = results.read(COMPARISONS)
    if REFERENCE in set(comparisons["first"]) | set(comparisons["second"]):
        made.append(_against(comparisons, order))
    if settings["controls"]:
        made += control_report(results, results.read(CONTROLS), order, title)
    if settings["tune"]:
        made.append(_trials(results.read(TRIALS)))
    if settings["dataset"] == "cifar10":
        made.append(CIFAR_NOTE)
    return made


def _explained(settings: Mapping[str, Any], table: pd.DataFrame, order: list[str]) -> Iterator[str]:
    """Explain the rows and columns of the table of accuracies."""
    yield from explain(order)
    families = dict(zip(table["strategy"], table["family"], strict=True))
    for name in order:
        if families[name] == FAMILY:
            yield f"- {name}: a method of your own, from {Path(settings['own']).name}"
    yield f"- {DENSE}: the whole network, trained for as long as a method that trains once"
    yield f"- {CHANCE}: accuracy of always predicting the most frequent class"
    yield "- mean rank: 1 is the best; ranks averaged over densities, ranked again; mean over seeds [95%]"
    if table["accuracy"].isna().any():
        yield "- failed: runs that met NaN or infinity; they come last in the ranks"


def charts(results: Results) -> Iterator[Chart]:
    """Chart the accuracy of every run against density, and against the costs of its training."""
    settings, table = results.settings, results.table
    title = f"{settings['dataset']}, {in_words(settings)}: test accuracy against"
    table = _with_cost(table)
    labels = {"strategy": "method", "accuracy": "test accuracy", "seconds": "seconds per run", **AGAINST}
    tells = ("seed", "density", "seconds")
    for column in AGAINST:
        yield Chart(
            f"{title} {column.replace('_', ' ')}",
            table,
            column,
            "accuracy",
            "strategy",
            at="density",
            labels=labels,
            tells=tells,
            logarithmic=(True, False),
        )


def _accuracies(
    table: pd.DataFrame, order: list[str], found: Ranking | None, title: str, chance: float
) -> Table:
    """Tabulate methods down, the best first, and densities across; then the dense network and chance."""
    densities = sorted(table.loc[table["strategy"] != DENSE, "density"].unique(), reverse=True)
    ranks = {} if found is None else found.table.set_index("strategy").to_dict("index")
    rows = []
    for name in order:
        of = table[table["strategy"] == name]
        failed = int(of["accuracy"].isna().sum())
        rank = ranks.get(name)
        rows.append(
            (
                name,
                *(tables.spread(of.loc[of["density"] == d, "accuracy"], ".3f") for d in densities),
                "-" if rank is None else f"{rank['rank']:.1f} [{rank['low']:.1f} {rank['high']:.1f}]",
                str(failed) if failed else "",
            )
        )
    of_dense = table.loc[table["strategy"] == DENSE, "accuracy"]
    failed = int(of_dense.isna().sum())
    dense = tables.spread(of_dense, ".3f")
    rows.append((DENSE, *([dense] * len(densities)), "", str(failed) if failed else ""))
    rows.append((CHANCE, *([tables.number(chance, ".3f")] * len(densities)), "", ""))
    columns = ("density", *(f"{density:g}" for density in densities), "mean rank", "failed")
    return tables.table(f"{title}: test accuracy, median [quartiles] over seeds", columns, rows)


def _perplexities(table: pd.DataFrame, order: list[str]) -> Table:
    """Tabulate the perplexities on the test text, like the accuracies."""
    densities = sorted(table.loc[table["strategy"] != DENSE, "density"].unique(), reverse=True)
    rows = []
    for name in (*order, DENSE):
        of = table[table["strategy"] == name]
        here = [of if name == DENSE else of[of["density"] == density] for density in densities]
        rows.append((name, *(tables.spread(np.exp(runs["cross_entropy"]), ".2f") for runs in here)))
    return tables.table(
        "perplexity per character: exp of the cross-entropy on the test text, median [quartiles] over seeds",
        ("density", *(f"{density:g}" for density in densities)),
        rows,
    )


def _test(found: Ranking) -> str:
    """Describe the results of Friedman's and Nemenyi's tests."""
    return (
        f"Friedman: chi-square {found.chi_square:.1f}, p {found.p:.2g} over {found.runs} seeds (failures "
        f"rank last); mean ranks that differ by less than {found.critical_difference:.2f} do not differ "
        "significantly (Nemenyi, 5%)"
    )


def _costs(table: pd.DataFrame, order: list[str]) -> Table:
    """Tabulate the costs of a network, over all densities, relative to the dense network."""
    dense = table.loc[table["strategy"] == DENSE, "training_multiply_adds"].median()
    rows = []
    for name in (*order, DENSE):
        of = table[table["strategy"] == name]
        rows.append(
            (
                name,
                f"{of['gradient_evaluations'].median():,.0f}",
                f"{of['training_multiply_adds'].median() / dense:.2f}",
                f"{(of['dense_multiply_adds'] / of['multiply_adds']).median():.1f}",
                tables.median(of["seconds"], ".2f"),
                f"{of['compile_seconds'].iloc[0]:.1f}",
            )
        )
    columns = (
        "medians over densities and seeds",
        "gradient evaluations",
        "training / dense",
        "times fewer multiply-adds",
        "seconds per run",
        "seconds to compile",
    )
    return tables.table(
        "costs per network; training in multiply-adds of the connections that are left",
        columns,
        rows,
    )


def _adjusted(comparisons: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Select the pairs that a reference is in, with p adjusted over these pairs at all densities."""
    pairs = comparisons[(comparisons[["first", "second"]] == reference).any(axis=1)].copy()
    tested = pairs["p"].notna()
    pairs["p_adjusted"] = pairs["p"]
    if tested.any():
        pairs.loc[tested, "p_adjusted"] = stats.false_discovery_control(pairs.loc[tested, "p"], method="by")
    return pairs


def _against(comparisons: pd.DataFrame, order: list[str]) -> Table:
    """Tabulate each method minus the reference, paired by seed, at each density."""
    densities = sorted(comparisons["density"].unique(), reverse=True)
    pairs = _adjusted(comparisons, REFERENCE)
    rows = []
    for name in order:
        cells = []
        against = paired.against(pairs, name, REFERENCE)
        for density in densities:
            pair = against[against["density"] == density]
            if pair.empty:
                cells += ["", "", ""]
                continue
            one = pair.iloc[0]
            cells += [
                tables.signed(one["median"], ".3f"),
                tables.number(one["p_adjusted"], ".3f"),
                _needed(int(one["runs_needed"])),
            ]
        rows.append((name, *cells))
    columns = ["minus " + REFERENCE]
    for density in densities:
        columns += [f"at {density:g}", "adjusted p", "seeds needed"]
    return tables.table(
        f"accuracy minus accuracy of {REFERENCE}, paired by seed: median, Wilcoxon p adjusted over these "
        "pairs, and the seeds needed to detect such a difference (t-test, power .8)",
        columns,
        rows,
    )


def _needed(runs: int) -> str:
    return "-" if runs < 2 else (f"{runs}" if runs < 10_000 else "over 9999")


def _trials(trials: pd.DataFrame) -> Table:
    """Tabulate the settings chosen for each method on the held-out rows."""
    rows = []
    for name, of in trials.groupby("strategy", sort=False):
        best, first = of[of["chosen"]].iloc[0], of.iloc[0]
        rows.append(
            (
                str(name),
                f"{best['rate']:.2g}",
                f"{best['own']:.2g}" if best["own"] else "",
                f"{first['validation_accuracy']:.3f}",
                f"{best['validation_accuracy']:.3f}",
                str(len(of)),
            )
        )
    columns = ("method", "learning rate", "own setting", "accuracy, defaults", "accuracy, chosen", "trials")
    return tables.table("settings chosen by accuracy on held-out rows", columns, rows)


def _draw(results: Results, table: pd.DataFrame, title: str) -> None:
    """Draw accuracy against density, and against the training's multiply-adds and gradients."""
    label = {str(name): rows for name, rows in _with_cost(table).groupby("strategy", sort=False)}

    def points(name: str, column: str) -> tuple[np.ndarray, np.ndarray]:
        rows = label[name]

        def by_density(of: str) -> np.ndarray:
            wide = rows.pivot(index="seed", columns="density", values=of)
            return wide.sort_index(axis=1).to_numpy(float)

        return by_density(column), by_density("accuracy")

    families: dict[str, list[str]] = {}
    for name, rows in label.items():
        if name != DENSE:
            families.setdefault(str(rows["family"].iloc[0]), []).append(str(name))
    for column, words in AGAINST.items():
        panels = {
            family: {name: points(name, column) for name in names} for family, names in families.items()
        }
        beside = {DENSE: points(DENSE, column)}
        if REFERENCE in label and column == "density":
            beside[REFERENCE] = points(REFERENCE, column)
        figure = plots.trade_offs(panels, words, "test accuracy", title, (True, False), beside, shares=True)
        results.draw(figure, column)


def _draw_layers(results: Results, order: list[str], title: str) -> None:
    """Draw the connections left in each layer, if layers are few; older folders have no such table."""
    if not (results.folder / LAYERS).exists():
        return
    layers = results.read(LAYERS)
    if layers["layer"].nunique() * layers["density"].nunique() <= MOST_COLUMNS:
        results.draw(plots.connections_by_layer(_by_layer(layers, order), title), "layers")


def _by_layer(layers: pd.DataFrame, order: list[str]) -> dict[str, Any]:
    """Arrange the connections for the figure: by family, method, density and layer."""
    groups: dict[str, Any] = {}
    by_name = dict(iter(layers.groupby("strategy", sort=False)))
    for name in order:
        if name not in by_name:
            continue
        rows = by_name[name]
        groups.setdefault(str(rows["family"].iloc[0]), {})[name] = {
            f"density {density:g}": {
                str(layer).removesuffix("/kernel"): of["connections"].to_numpy()
                for layer, of in here.groupby("layer", sort=False)
            }
            for density, here in rows.groupby("density", sort=False)
        }
    return groups


def _with_cost(table: pd.DataFrame) -> pd.DataFrame:
    """Add `cost` to the table: a training's multiply-adds, relative to the dense network's."""
    dense = table.loc[table["strategy"] == DENSE, "training_multiply_adds"].median()
    return table.assign(cost=table["training_multiply_adds"] / dense)

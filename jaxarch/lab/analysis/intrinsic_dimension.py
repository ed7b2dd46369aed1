"""Intrinsic dimension of pruned networks: the smallest random subspace in which each mask learns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import Array
from rich.console import RenderableType

from jaxarch import ArgumentError, Network, PyTree, plots
from jaxarch.analysis import intrinsic_dimension
from jaxarch.lab.analysis.rows import rows_of
from jaxarch.lab.analysis.settings import MethodSettings
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count, check_positive
from jaxarch.lab.harness import (
    Context,
    Experiment,
    Outcome,
    Part,
    Results,
    Work,
    finding,
    paired,
    tables,
)
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.pruning.parents import in_words
from jaxarch.lab.pruning.settings import check_share
from jaxarch.lab.tournament.entrants import DENSE
from jaxarch.lab.tournament.matches import entered, trained
from jaxarch.lab.tournament.names import explain
from jaxarch.lab.tournament.task import PictureTask, prepare
from jaxarch.lab.tournament.tuning import defaults
from jaxarch.masks import connections

RANDOM = "random"
METHODS = (RANDOM, "SNIP", "lottery tickets", "two-temperature")
SCORES, COMPARISONS = "scores.csv", "comparisons.csv"
TARGETS = {"of_dense": "a share of the dense accuracy", "of_own": "a share of its own accuracy"}
"""Columns with the dimension that reaches a share of an accuracy."""


@dataclasses.dataclass(frozen=True)
class IntrinsicDimensionSettings(MethodSettings):
    """Settings of `jaxarch run analysis.intrinsic_dimension`, changed with `--set NAME=VALUE`.

    Values that are empty, 0 or `auto` become the data set's defaults.

    Attributes:
      methods: methods of the tournament, which find masks. The dense network is always beside them.
      dimensions: dimensions of the random subspaces. Those above a network's number of parameters are left
        out, and that number itself is added.
      subspace_rate: learning rate of Adam in the subspaces.
      share: share of an accuracy to reach.
    """

    methods: tuple[str, ...] = METHODS
    densities: tuple[float, ...] = (0.3, 0.1, 0.03)
    dimensions: tuple[int, ...] = ()
    subspace_rate: float = 0.03
    share: float = 0.9

    hidden = (32, 32)
    suits_all = MappingProxyType(
        {
            "model": "mlp",
            "steps": 600,
            "batch_size": 60,
            "rate": 3e-3,
            "seeds": 8,
            "dimensions": (10, 18, 33, 60, 110, 200, 360),
        }
    )
    suits = MappingProxyType(
        {"mnist": {"steps": 3000, "rate": 1.2e-3, "seeds": 5, "dimensions": (50, 100, 200, 400, 800, 1600)}}
    )

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_numbers(check_count, "dimensions")
        self.check_each(check_positive, "subspace_rate")
        self.check_each(check_share, "share")
        if self.seeds < 2:
            raise ArgumentError(f"seeds: expected at least 2, for pairs of runs, got {self.seeds}")


Task = PictureTask[IntrinsicDimensionSettings]


def plan(settings: IntrinsicDimensionSettings) -> list[str]:
    """Describe the searches and trainings."""
    task = prepare(settings)
    return [
        f"parent: {in_words(settings)}, {task.connections} connections; {task.form()}",
        f"masks: {', '.join((DENSE, *settings.methods))}; densities "
        f"{', '.join(f'{density:g}' for density in settings.densities)}; {settings.seeds} seeds",
        f"each mask trained from fresh weights, {settings.steps} steps of batch {settings.batch_size}: in "
        f"all its weights, and in random subspaces of {', '.join(map(str, sorted(settings.dimensions)))} "
        "dimensions",
    ]


def run(settings: IntrinsicDimensionSettings, context: Context) -> Outcome:
    """Find masks by every method, train each in subspaces, and compare."""
    methods = [Part(name, _measured, name) for name in (DENSE, *settings.methods)]
    scores, facts = rows_of(prepare, settings, methods, context)
    table = _runs(scores, settings.share)
    compared = _comparisons(table)
    files = {COMPARISONS: compared, SCORES: scores}
    return Outcome(table, _findings(table, compared), tables=files, facts=facts)


def _measured(task: Task, name: str, found: Mapping[str, Any], work: Work) -> pd.DataFrame:
    """Find masks by one method, and train each in subspaces: a row a density, seed and dimension."""
    entrant, task = entered(name, task)
    settings = task.settings
    seeds = np.arange(settings.seeds)
    values = {number: np.full(len(seeds), value) for number, value in defaults(entrant, task).items()}
    options = {"progress": work.progress, "checkpoint": work.checkpoint, **settings.width()}
    # The masks are what is compared, so no method trains on its own after the search.
    searching = dataclasses.replace(entrant, finish=None)
    network, _ = trained(searching, task, seeds, values, {**options, "name": name})
    rows = []
    for place, density in enumerate(settings.densities):
        runs = place * len(seeds) + seeds
        masks = jax.tree.map(lambda leaf, runs=runs: leaf[runs], network.mask)
        told = f"{name}, density {density:g}"
        of = _in_subspaces(task, masks, {**options, "name": told})
        about = {"strategy": name, "family": entrant.family, "density": density}
        for row, dimension in enumerate(of.dimensions):
            measured = {"kept": of.kept, "accuracy": of.baseline, "dimension": dimension}
            rows.append(pd.DataFrame({**about, "seed": seeds, **measured, "score": of.scores[row]}))
    return pd.concat(rows, ignore_index=True)


def _in_subspaces(task: Task, masks: PyTree, options: Mapping[str, Any]) -> Any:
    """Train masks from fresh weights, which are the same for all methods and densities of a seed."""
    settings = task.settings
    unmasked = sum(leaf.size for leaf in jax.tree.leaves(task.params)) - task.connections
    most = int(jax.vmap(connections)(masks).min()) + unmasked
    dimensions = [*sorted(size for size in settings.dimensions if size < most), most]
    return intrinsic_dimension(
        task.learning(np.arange(settings.seeds)),
        task.keys("training"),
        dimensions,
        Network(mask=masks),
        score=_accuracy(task.problem.predict),
        rows=task.test,
        optimizer=optax.adam(settings.subspace_rate),
        **options,
    )


@cache
def _accuracy(predict: Callable[[PyTree, PyTree, Any], Array]) -> Callable[[PyTree, PyTree, Any], Array]:
    """Return the share of right answers; cached, since a new function would be compiled again."""

    def accuracy(params: PyTree, state: PyTree, batch: Any) -> Array:
        return (predict(params, state, batch).argmax(-1) == batch[1]).mean(dtype=jnp.float32)

    return accuracy


def _runs(scores: pd.DataFrame, share: float) -> pd.DataFrame:
    """Return a row a run: the dimensions that reach a share of each accuracy; NaN if none does."""
    dense = scores[scores["strategy"] == DENSE].groupby("seed")["accuracy"].first()
    rows = []
    for (name, density, seed), of in scores.groupby(["strategy", "density", "seed"], sort=False):
        first = of.iloc[0]
        targets = {"of_dense": dense[seed], "of_own": first["accuracy"]}
        smallest = {
            target: _reaching(of["dimension"].to_numpy(float), of["score"].to_numpy(), share * accuracy)
            for target, accuracy in targets.items()
        }
        about = {"strategy": name, "family": first["family"], "density": density, "seed": seed}
        rows.append({**about, "kept": first["kept"], "accuracy": first["accuracy"], **smallest})
    return pd.DataFrame(rows)


def _reaching(dimensions: np.ndarray, scores: np.ndarray, target: float) -> float:
    """Return the dimension at which scores first reach a target, NaN if none does.

    It is interpolated in the logarithm of the dimension. If the smallest dimension reaches the target, it is
    returned.
    """
    reached = np.flatnonzero(scores >= target)
    if not len(reached):
        return np.nan
    at = reached[0]
    if not at or np.isnan(scores[at - 1]):
        return float(dimensions[at])
    before = slice(at - 1, at + 1)
    return float(np.exp(np.interp(target, scores[before], np.log(dimensions[before]))))


def _logarithms(runs: pd.DataFrame, target: str) -> pd.Series:
    """Return log2 of the dimension by seed; where none reaches the target, that of twice D."""
    return np.log2(runs[target].fillna(2 * runs["kept"]).set_axis(runs["seed"]))


def _comparisons(runs: pd.DataFrame) -> pd.DataFrame:
    """Compare dimensions seed by seed: with the dense network's, and with random masks of equal density."""
    dense = runs[runs["strategy"] == DENSE]
    rows = []
    for (name, density), of in runs[runs["strategy"] != DENSE].groupby(["strategy", "density"], sort=False):
        others = {DENSE: dense}
        if name != RANDOM:
            others[RANDOM] = runs[(runs["strategy"] == RANDOM) & (runs["density"] == density)]
        for against, other in others.items():
            for target in TARGETS if len(other) else ():
                row = paired.difference(_logarithms(of, target), _logarithms(other, target))
                about = {"strategy": name, "density": density, "against": against, "target": target}
                rows.append({**about, **row})
    # One question has all methods and densities; each target and reference is a question of its own.
    return paired.adjusted(pd.DataFrame(rows), ["against", "target"])


def _findings(runs: pd.DataFrame, compared: pd.DataFrame) -> list[dict[str, Any]]:
    """Report accuracies and dimensions, and the differences of their logarithms."""
    found = []
    for (name, density), of in runs.groupby(["strategy", "density"], sort=False):
        told = f"{name}, density {density:g}"
        found.append(finding(f"test accuracy in all weights of {told}", of["accuracy"]))
        found += [
            finding(f"dimension that reaches {words}, {told}", of[target])
            for target, words in TARGETS.items()
            if of[target].notna().any()
        ]
    return found + [
        finding(
            f"log2 of the dimension that reaches {TARGETS[row['target']]}, {row['strategy']} minus "
            f"{row['against']}, density {row['density']:g}",
            row,
        )
        for _, row in compared.iterrows()
    ]


def conclusion(results: Results) -> Iterable[str]:
    """Tell whether sparse masks need fewer dimensions than the dense network, and found ones than random."""
    settings, table, compared = results.settings, results.table, results.read(COMPARISONS)
    share, dense = settings["share"], table[table["strategy"] == DENSE]
    yield (
        f"{settings['dataset']}, {in_words(settings)}: the dense network of {int(dense['kept'].iloc[0]):,} "
        f"parameters reaches {share:g} of its accuracy {tables.inline(dense['accuracy'], '.3f')} in "
        f"{tables.inline(dense['of_dense'], '.0f')} dimensions (median [quartiles] of {settings['seeds']} "
        "seeds)."
    )
    # Where no method reaches the accuracy, nothing can be compared.
    sparse = table[table["strategy"] != DENSE]
    reach = sparse["of_dense"].notna().groupby([sparse["density"], sparse["strategy"]]).mean()
    densities = reach[reach >= 0.5].index.get_level_values("density")
    least = densities.min() if len(densities) else sparse["density"].min()
    for against, words in ((DENSE, "the dense network's"), (RANDOM, "those of random masks")):
        of = compared[(compared["against"] == against) & (compared["target"] == "of_dense")]
        if not len(of):
            continue
        factors = ", ".join(
            f"{row['strategy']} {2 ** row['median']:.2f} [{2 ** row['q25']:.2f}, {2 ** row['q75']:.2f}]"
            for _, row in of[of["density"] == least].iterrows()
        )
        yield (
            f"Dimensions that masks of density {least:g} need for the same accuracy, over {words}: {factors} "
            f"(where none suffices, twice the parameters). At all densities, p < {paired.LEVEL:g} (Wilcoxon, "
            "adjusted over methods and densities): "
            f"{paired.significant(of, 'p_adjusted', len(of))}, in log2."
        )


def report(results: Results) -> list[RenderableType]:
    """Draw accuracy against dimension and dimensions against density, and tabulate them."""
    settings, table, scores = results.settings, results.table, results.read(SCORES)
    title = f"{settings['dataset']}, {in_words(settings)}"
    dense = scores[scores["strategy"] == DENSE]
    panels = {
        f"density {density:g}": {
            str(name): _points(rows, "dimension", "dimension", "score")
            for name, rows in of.groupby("strategy", sort=False)
        }
        for density, of in scores[scores["strategy"] != DENSE].groupby("density", sort=False)
    }
    beside = {DENSE: _points(dense, "dimension", "dimension", "score")}
    label = "dimension of the subspace"
    drawn = plots.trade_offs(panels, label, "test accuracy", title, (True, False), beside=beside)
    results.draw(drawn, "accuracy")
    by_density = {
        words: {
            str(name): _points(_reached(rows, target), "density", "density", target)
            for name, rows in table.groupby("strategy", sort=False)
        }
        for target, words in (
            ("of_dense", f"{settings['share']:g} of the dense accuracy"),
            ("of_own", f"{settings['share']:g} of its own accuracy"),
        )
    }
    label = "dimension"
    results.draw(plots.trade_offs(by_density, "density", label, title, (True, True), columns=2), "dimensions")
    return [
        _table(table, settings["share"], title),
        *explain([str(name) for name in table["strategy"].unique() if name != DENSE]),
        f"- {DENSE}: all connections",
        "- parameters: connections that the mask keeps, and all biases",
        "- each mask is trained from fresh weights, the same for all masks of a seed; weights that a search "
        "found or kept are not used",
        f"- dimensions: of the random subspace in which training reaches {settings['share']:g} of an "
        "accuracy, interpolated in the logarithm between those tried",
        "- a seed that reaches it in none counts as infinite in medians, shown as -, and as twice the "
        "parameters in tests and figures, which leave out densities where less than half of the seeds reach "
        "it",
    ]


def _reached(rows: pd.DataFrame, target: str) -> pd.DataFrame:
    """Keep the densities at which half of the seeds reach a target; others count as twice the parameters."""
    most = rows[target].notna().groupby(rows["density"]).transform("mean") >= 0.5
    return rows.assign(**{target: rows[target].fillna(2 * rows["kept"]).where(most)})


def _points(rows: pd.DataFrame, at: str, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    """Return two quantities of a method, of shape (seeds, places)."""
    rows = rows.assign(place=rows[at])
    wide = {column: rows.pivot(index="seed", columns="place", values=column) for column in (x, y)}
    return wide[x].to_numpy(float), wide[y].to_numpy(float)


def _table(table: pd.DataFrame, share: float, title: str) -> Table:
    """Tabulate accuracies and dimensions by method and density."""
    rows = [
        (
            f"{name}, {density:g}",
            f"{of['kept'].median():.0f}",
            tables.spread(of["accuracy"], ".3f"),
            *(_smallest(of[target]) for target in TARGETS),
        )
        for (name, density), of in table.groupby(["strategy", "density"], sort=False)
    ]
    columns = (
        "mask, density",
        "parameters",
        "test accuracy in all",
        f"dimensions to {share:g} of dense",
        f"to {share:g} of its own",
    )
    return tables.table(f"{title}: median [quartiles] over seeds", columns, rows)


def _smallest(dimensions: pd.Series) -> str:
    """Format quartiles of dimensions in which NaN stands for more than any that was tried."""
    with np.errstate(invalid="ignore"):
        measured = np.percentile(dimensions.fillna(np.inf), [50, 25, 75])
    # Between two infinite numbers lies NaN.
    middle, low, high = np.nan_to_num(measured, nan=np.inf, posinf=np.inf)
    if np.isinf(low):
        return "-"
    return f"{_or_dash(middle)} [{_or_dash(low)} {_or_dash(high)}]"


def _or_dash(value: float) -> str:
    return "-" if np.isinf(value) else f"{value:.0f}"


def charts(results: Results) -> list[Chart]:
    """Chart the smallest dimension of every run against density."""
    title = f"{results.settings['dataset']}, {in_words(results.settings)}"
    return [
        Chart(
            f"{title}: dimension that reaches {words}, {results.settings['share']:g}",
            results.table,
            "density",
            target,
            "strategy",
            labels={target: "dimension", "strategy": "mask"},
            tells=("seed", "accuracy", "kept"),
            logarithmic=(True, True),
        )
        for target, words in TARGETS.items()
    ]


EXPERIMENT = Experiment(
    __name__,
    IntrinsicDimensionSettings,
    plan,
    run,
    report,
    conclusion,
    charts=charts,
    spreads=True,
)

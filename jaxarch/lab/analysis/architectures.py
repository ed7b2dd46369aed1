"""Agreement of the masks that a pruning method finds for different seeds, up to the order of hidden units."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import ArgumentError, Network, Problem, Progress, evaluate, plots
from jaxarch.lab.analysis.pairs import (
    AS_THEY_ARE,
    BY_MASKS,
    BY_UNITS,
    CONTROLS,
    FOUND,
    MATCHES,
    PLANTED,
    RESHUFFLED,
    UNITS_KEPT,
    comparer,
    overlaps,
)
from jaxarch.lab.analysis.rows import rows_of
from jaxarch.lab.analysis.settings import MethodSettings
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count
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
from jaxarch.lab.harness.results import failures
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.pruning.parents import in_words
from jaxarch.lab.tournament import matches
from jaxarch.lab.tournament.entrants import ENTRANTS
from jaxarch.lab.tournament.matches import READS, TEST_BATCH
from jaxarch.lab.tournament.names import explain
from jaxarch.lab.tournament.task import PictureTask, prepare
from jaxarch.lab.tournament.tuning import defaults

METHODS = (
    "two-temperature",
    "AP",
    "lottery tickets",
    "magnitude",
    "SNIP",
    "random as magnitude",
    "random",
)
OTHER, SAME = STARTS = ("other start", "same start")
"""Beginnings of a pair of runs: weights and scores that each draws for itself, or the same ones."""
COMPARISONS = "comparisons.csv"
OF = ["strategy", "start", "density"]
KEYS_OF = {"search": "search", "training": "controls"}
"""Names of the keys of each stage."""
TRAINED_CONTROL = ("magnitude", "random as magnitude")
"""A method, and the same method's masks reshuffled within layers before they are trained."""


@dataclasses.dataclass(frozen=True)
class ArchitecturesSettings(MethodSettings):
    """Settings of `jaxarch run analysis.architectures`, changed with `--set NAME=VALUE`.

    Values that are empty, 0 or `auto` become the data set's defaults.

    Attributes:
      methods: methods of the tournament; `random` is a control.
      seeds: independent runs of each method at each density, an even number: two are a pair.
      restarts: further starts of each alignment by masks, in random orders.
      draws: randomized pairs of masks for each pair and each control.
      examples: number of training examples on which units are correlated.
    """

    methods: tuple[str, ...] = METHODS
    restarts: int = 8
    draws: int = 2
    examples: int = 1000

    hidden = (100, 100)
    suits_all = MappingProxyType({"model": "mlp", "steps": 1000, "batch_size": 60, "rate": 3e-3, "seeds": 20})
    suits = MappingProxyType({"mnist": {"model": "lenet", "steps": 2000, "rate": 1.2e-3, "seeds": 12}})
    parents = ("mlp", "lenet", "cnn", "resnet20")

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "draws", "examples")
        check_count("restarts", self.restarts, 0)
        if self.seeds % 2 or self.seeds < 4:
            raise ArgumentError(
                f"seeds: expected an even number, at least 4, for two pairs or more, got {self.seeds}"
            )


Task = PictureTask[ArchitecturesSettings]


class Runs(NamedTuple):
    """Runs of a method at one density: all seeds, then the second of each pair from the first's start.

    Attributes:
      start: the seed that draws initial weights, scores and random masks; shape (runs,).
      examples: the seed that draws the rows to train on and their order.
    """

    start: np.ndarray
    examples: np.ndarray

    @classmethod
    def of(cls, seeds: int) -> Runs:
        """List the runs."""
        first, second = np.arange(0, seeds, 2), np.arange(1, seeds, 2)
        return cls(np.r_[:seeds, first], np.r_[:seeds, second])

    def at(self, index: np.ndarray) -> Runs:
        """Return some of the runs."""
        return Runs(self.start[index], self.examples[index])

    def pairs(self, seeds: int) -> Iterator[tuple[str, int, int, int]]:
        """Yield the start's kind, the pair, and both runs of each comparison."""
        for pair in range(seeds // 2):
            yield OTHER, pair, 2 * pair, 2 * pair + 1
            yield SAME, pair, 2 * pair, seeds + pair


def plan(settings: ArchitecturesSettings) -> list[str]:
    """Describe the planned searches and comparisons."""
    task = prepare(settings)
    pairs = settings.seeds // 2
    return [
        f"parent: {in_words(settings)}, {task.connections} connections; pictures of "
        f"{task.images.x.shape[1:]}",
        f"methods: {', '.join(settings.methods)}; densities {', '.join(map(str, settings.densities))}",
        f"{settings.seeds} seeds, and {pairs} more runs from another seed's start; phases of "
        f"{settings.steps} steps of batch {settings.batch_size}",
        f"{pairs} pairs of masks from other starts and {pairs} from the same; for each, {settings.draws} "
        f"pairs of every control ({', '.join(CONTROLS)}), and {settings.restarts} restarts of alignments",
    ]


def run(settings: ArchitecturesSettings, context: Context) -> Outcome:
    """Search, train, and compare the masks of each pair of runs."""
    methods = [Part(name, _compared, name) for name in settings.methods]
    table, facts = rows_of(prepare, settings, methods, context)
    compared = _comparisons(table)
    return Outcome(table, _findings(table, compared), tables={COMPARISONS: compared}, facts=facts)


def _problem(task: Task, runs: Runs) -> Problem:
    """Build the problem of runs, whose batches depend on `examples` alone.

    Batches are places in a run's rows, drawn by the key that draws the start. So each seed has its rows in an
    order of its own: from the same start, runs see other examples at every step.
    """
    orders = jax.vmap(jax.random.permutation)(task.keys("training"), jnp.asarray(task.train))
    return dataclasses.replace(
        task.problem, train=orders[runs.examples], paired=task.keys("pairs")[runs.start]
    )


def trained(task: Task, name: str, work: Work) -> Network:
    """Search and train by one method: all `Runs` at the largest density first."""
    entrant, runs = ENTRANTS[name], Runs.of(task.settings.seeds)
    size = len(runs.start)
    values = {number: np.full(size, value) for number, value in defaults(entrant, task).items()}
    options = {"name": name, "progress": work.progress, "checkpoint": work.checkpoint}
    network, _ = matches.trained(
        entrant,
        task,
        np.arange(size),
        values,
        {**options, **task.settings.width()},
        learning=lambda of: _problem(task, runs.at(of)),
        keys=lambda stage, of: task.keys(KEYS_OF[stage])[runs.start[of]],
    )
    return network


def _compared(task: Task, name: str, found: Mapping[str, Any], work: Work) -> pd.DataFrame:
    """Compare the masks of one method: a row for each pair, start, density and kind of masks."""
    settings = task.settings
    runs = Runs.of(settings.seeds)
    size = len(runs.start)
    network = trained(task, name, work)
    failed = np.asarray(network.info.failed_at)
    outputs = evaluate(
        READS,
        network,
        _problem(task, Runs(*(np.tile(of, len(settings.densities)) for of in runs))),
        task.test,
        batch_size=TEST_BATCH,
    )
    accuracy = (outputs.argmax(-1) == task.images.y[task.test]).mean(axis=-1)
    compare = comparer(task.problem, task.train[0][: settings.examples], settings.restarts, settings.draws)
    rows, done = [], 0
    for place, density in enumerate(settings.densities):
        for start, pair, *both in runs.pairs(settings.seeds):
            both = [place * size + index for index in both]
            first, second = (network.of_run(index) for index in both)
            key = jax.random.fold_in(task.keys("controls")[pair], 2 * place + STARTS.index(start))
            failed_at = int(failed[both].max())
            if failed_at < 0:
                kinds = overlaps(compare, first, second, key, plant=start == OTHER)
            else:
                kinds = {FOUND: dict.fromkeys(MATCHES, np.nan)}
            about = {"strategy": name, "start": start, "density": density, "pair": pair}
            measured = {
                "accuracy": accuracy[both].mean() if failed_at < 0 else np.nan,
                "failed_at": failed_at,
            }
            rows += [{**about, "masks": kind, **of, **measured} for kind, of in kinds.items()]
            done += 1
            if work.progress is not None:
                total = settings.seeds * len(settings.densities)
                work.progress(Progress(f"{name}, alignments", done, total, 0, 1, 1, None))
    return pd.DataFrame(rows)


def _comparisons(runs: pd.DataFrame) -> pd.DataFrame:
    """Compare overlaps of found masks with those of controls, pair by pair, for each order of units."""
    rows = []
    for about, of in runs.groupby(OF, sort=False):
        for match in MATCHES:
            by_kind = of.pivot(index="pair", columns="masks", values=match).reindex(
                columns=[FOUND, *CONTROLS]
            )
            for control in CONTROLS:
                row = paired.difference(by_kind[FOUND], by_kind[control])
                rows.append({**dict(zip(OF, about, strict=True)), "match": match, "control": control, **row})
    # One question has all methods and densities; each start, order and control is a question of its own.
    return paired.adjusted(pd.DataFrame(rows), ["start", "match", "control"])


def _findings(runs: pd.DataFrame, compared: pd.DataFrame) -> list[dict[str, Any]]:
    """Report the overlaps of found masks, and what they have beyond their controls."""
    found = [
        finding(
            f"overlap of masks of two seeds, {match}: {name}, density {density:g}, {start}",
            of[match].to_numpy(),
        )
        for (name, start, density), of in _of(runs, FOUND).groupby(OF, sort=False)
        for match in MATCHES
    ]
    beyond = [
        finding(
            f"overlap of masks of two seeds minus {row['control']}, {row['match']}: {row['strategy']}, "
            f"density {row['density']:g}, {row['start']}",
            row,
        )
        for _, row in compared.iterrows()
    ]
    return found + beyond + _against_trained_control(runs)


def _against_trained_control(runs: pd.DataFrame) -> list[dict[str, Any]]:
    """Compare magnitude pruning with its reshuffled masks, trained and aligned by units.

    Training makes units with the same inputs alike, so alignment by units finds connections in common among
    random masks as well.
    """
    first, second = TRAINED_CONTROL
    lines = []
    for density, of in _of(runs[runs["start"] == OTHER], FOUND).groupby("density", sort=False):
        by_name = of.pivot(index="pair", columns="strategy", values=BY_UNITS)
        if {first, second} <= {*by_name}:
            row = pd.Series(paired.difference(by_name[first], by_name[second]))
            what = f"overlap of masks of two seeds, {BY_UNITS}: {first} minus {second}, density {density:g}"
            lines.append(finding(what, row))
    return lines


def _of(runs: pd.DataFrame, masks: str) -> pd.DataFrame:
    return runs[runs["masks"] == masks]


def _excess(compared: pd.DataFrame, start: str, match: str = BY_MASKS) -> pd.DataFrame:
    """Select what found masks have in common beyond masks whose units keep their numbers of connections."""
    is_meant = (compared["start"] == start) & (compared["match"] == match)
    return compared[is_meant & (compared["control"] == UNITS_KEPT)]


def conclusion(results: Results) -> Iterable[str]:
    """Report the overlap beyond the control, and the overlap of runs from the same start."""
    settings, table = results.settings, results.table
    excess = _excess(results.read(COMPARISONS), OTHER)
    least, most = excess["density"].min(), excess["density"].max()

    def said(density: float) -> str:
        rows = excess[excess["density"] == density]
        return ", ".join(f"{row['strategy']} {_inline(row)}" for _, row in rows.iterrows())

    yield (
        f"{settings['dataset']}, {in_words(settings)}, density {least:g}: overlap of the masks of two seeds, "
        "hidden units in the order of most connections in common, minus the same of random masks whose "
        f"units keep their numbers of connections: {said(least)} (median [quartiles] of "
        f"{settings['seeds'] // 2} pairs)."
    )
    also = f"At density {most:g} it is: {said(most)}; p" if most > least else "P"
    yield (
        f"{also} < {paired.LEVEL:g} (Wilcoxon, adjusted over methods and densities): "
        f"{paired.significant(excess, 'p_adjusted', len(excess))}."
    )
    sparsest = _of(table[table["density"] == least], FOUND)
    medians = sparsest.groupby(["start", "strategy"], sort=False)[AS_THEY_ARE].median()
    same = ", ".join(f"{name} {value:.3f}" for name, value in medians[SAME].items())
    yield (
        "From the same initial weights and scores, trained on other examples, masks overlap without "
        f"alignment, at density {least:g}: {same}; from other starts by at most "
        f"{medians[OTHER].max():.3f} (medians)."
    )


def _inline(row: pd.Series) -> str:
    return f"{row['median']:+.3f} [{row['q25']:+.3f}, {row['q75']:+.3f}]"


def report(results: Results) -> list[RenderableType]:
    """Draw overlaps before and after alignment beside their controls, and build the tables."""
    table, compared = results.table, results.read(COMPARISONS)
    title = f"{results.settings['dataset']}, {in_words(results.settings)}"
    for start, name in zip(STARTS, ("overlaps", "same_start"), strict=True):
        figure = plots.trade_offs(
            _lines(table[table["start"] == start]),
            "density",
            "overlap of two masks (Jaccard index)",
            f"{title}, {start}",
            logarithmic=(True, False),
            columns=4,
        )
        results.draw(figure, name)
    results.draw(plots.by_strategy(_differences(table), EXCESS, title, zero=0.0, dots="pairs"), "excess")
    methods = [str(name) for name in table["strategy"].unique()]
    return [
        *(_table(table, compared, start, title) for start in STARTS),
        *explain(methods),
        f"- {AS_THEY_ARE}: no alignment; {BY_UNITS}: units matched by correlations of their values on "
        f"training examples; {BY_MASKS}: units in the order of most connections in common that was found",
        f"- {RESHUFFLED}: connections permuted within layers; {UNITS_KEPT}: drawn anew, so that each unit "
        "keeps its numbers of incoming and outgoing connections",
        f"- {PLANTED}: a mask and itself with half of its connections moved and its units mixed: overlap in "
        "the true order, and in the order that was found",
        *failures(_of(table, FOUND).groupby("strategy", sort=False)),
    ]


EXCESS = f"overlap after alignment minus that of {UNITS_KEPT}"
LINES = {
    "found, as they are": (FOUND, AS_THEY_ARE),
    "found, aligned by units": (FOUND, BY_UNITS),
    "found, aligned by masks": (FOUND, BY_MASKS),
    "reshuffled, aligned by masks": (RESHUFFLED, BY_MASKS),
    "units kept, aligned by masks": (UNITS_KEPT, BY_MASKS),
    "planted half, aligned by masks": (PLANTED, BY_MASKS),
}
COLUMNS = {
    "as they are": (FOUND, AS_THEY_ARE),
    "by units": (FOUND, BY_UNITS),
    "units kept, by units": (UNITS_KEPT, BY_UNITS),
    "by masks": (FOUND, BY_MASKS),
    "reshuffled, by masks": (RESHUFFLED, BY_MASKS),
    "units kept, by masks": (UNITS_KEPT, BY_MASKS),
}


def _lines(table: pd.DataFrame) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Return the lines of each method's panel: densities and overlaps, of shape (pairs, densities) each."""
    panels: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    for name, rows in table.groupby("strategy", sort=False):
        panels[str(name)] = {}
        for line, (masks, match) in LINES.items():
            made = _of(rows, masks).pivot(index="pair", columns="density", values=match)
            if len(made):
                densities = np.broadcast_to(made.columns.to_numpy(float), made.shape)
                panels[str(name)][line] = densities, made.to_numpy(float)
    return panels


def _differences(table: pd.DataFrame) -> dict[str, dict[str, np.ndarray]]:
    """Return each pair's overlap beyond the control, from other starts, by density and method."""
    made: dict[str, dict[str, np.ndarray]] = {}
    other = table[table["start"] == OTHER]
    for (density, name), rows in other.groupby(["density", "strategy"], sort=False):
        found, control = (_of(rows, kind).set_index("pair")[BY_MASKS] for kind in (FOUND, UNITS_KEPT))
        made.setdefault(f"density {density:g}", {})[str(name)] = (found - control).to_numpy()
    return made


def _table(table: pd.DataFrame, compared: pd.DataFrame, start: str, title: str) -> Table:
    """Tabulate overlaps of found masks and controls, and their paired differences."""
    excess = _excess(compared, start).set_index(["strategy", "density"])
    rows = []
    for (name, density), of in table[table["start"] == start].groupby(["strategy", "density"], sort=False):
        spreads = [tables.spread(_of(of, masks)[match], ".3f") for masks, match in COLUMNS.values()]
        row = excess.loc[(name, density)]
        signed = [tables.signed(row[part], ".3f") for part in ("median", "q25", "q75")]
        beyond = [f"{signed[0]} [{signed[1]} {signed[2]}]", tables.number(row["p_adjusted"], ".2g")]
        if start == OTHER:
            again = _of(of, PLANTED)
            beyond.append(" ".join(tables.median(again[match], ".3f") for match in (AS_THEY_ARE, BY_MASKS)))
        accuracy = tables.median(_of(of, FOUND)["accuracy"], ".3f")
        rows.append((f"{name}, {density:g}", *spreads, *beyond, accuracy))
    columns = ["method, density", *COLUMNS, "by masks, minus units kept", "adjusted p"]
    columns += [PLANTED] * (start == OTHER)
    return tables.table(
        f"{title}, {start}: overlap of the masks of two seeds, median [quartiles] of "
        f"{table['pair'].nunique()} pairs",
        [*columns, "accuracy"],
        rows,
    )


def charts(results: Results) -> list[Chart]:
    """Chart the overlap after alignment of every pair against density."""
    title = f"{results.settings['dataset']}, {in_words(results.settings)}: overlap after alignment by masks"
    other = results.table[results.table["start"] == OTHER]
    labels = {BY_MASKS: "overlap after alignment by masks", "strategy": "method"}
    return [
        Chart(
            f"{title}, {masks}",
            _of(other, masks),
            "density",
            BY_MASKS,
            "strategy",
            at="density",
            labels=labels,
            tells=("pair", "masks"),
            logarithmic=(True, False),
        )
        for masks in (FOUND, UNITS_KEPT)
    ]


EXPERIMENT = Experiment(
    __name__,
    ArchitecturesSettings,
    plan,
    run,
    report,
    conclusion,
    charts=charts,
    spreads=True,
)

"""Robustness of pruned networks: radii that are proven, radii that attacks leave, and slopes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from rich.console import RenderableType

from jaxarch import ArgumentError, Network, Progress, PyTree, plots
from jaxarch.lab.analysis.radii import radii
from jaxarch.lab.analysis.rows import rows_of
from jaxarch.lab.analysis.settings import MethodSettings
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count
from jaxarch.lab.data import Images
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
from jaxarch.lab.pruning.settings import check_share
from jaxarch.lab.tournament.entrants import DENSE
from jaxarch.lab.tournament.matches import entered, grid, measured, trained
from jaxarch.lab.tournament.names import explain
from jaxarch.lab.tournament.task import PictureTask, prepare
from jaxarch.lab.tournament.tuning import defaults

METHODS = (
    "random ERK",
    "SNIP",
    "SynFlow",
    "RigL",
    "gradual magnitude",
    "two-temperature trained",
    "two-temperature",
)
COMPARISONS, PICTURES = "comparisons.csv", "pictures.csv"
MEASURED = {
    "accuracy": "test accuracy",
    "proven": "proven radius",
    "attacked": "attacked radius",
    "slope": "slope",
}
"""Quantities of a run, by their columns; radii and slopes are medians over correctly classified pictures."""
BOUNDED = ("proven", "attacked", "slope")
"""Quantities that each picture has."""


@dataclasses.dataclass(frozen=True)
class RobustnessSettings(MethodSettings):
    """Settings of `jaxarch run analysis.robustness`, changed with `--set NAME=VALUE`.

    Values that are empty, 0 or `auto` become the data set's defaults.

    Attributes:
      methods: methods of the tournament. The dense network is always beside them.
      examples: test pictures whose radii are bounded.
      radius: the largest change of a pixel at which slopes are bounded, as a share of the range of pixels.
      rounds: halvings that find a radius; it is exact to `2**-rounds`.
      attacks: steps of projected gradients of each attack.
    """

    methods: tuple[str, ...] = METHODS
    densities: tuple[float, ...] = (0.5, 0.2, 0.05)
    examples: int = 50
    radius: float = 0.02
    rounds: int = 12
    attacks: int = 20

    hidden = (40, 40)
    suits_all = MappingProxyType({"model": "mlp", "steps": 1000, "batch_size": 60, "rate": 3e-3, "seeds": 10})
    suits = MappingProxyType({"mnist": {"model": "lenet", "steps": 5000, "rate": 1.2e-3, "seeds": 3}})

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "examples", "rounds", "attacks")
        self.check_each(check_share, "radius")
        if self.seeds < 2:
            raise ArgumentError(f"seeds: expected at least 2, for pairs of runs, got {self.seeds}")


Task = PictureTask[RobustnessSettings]


def plan(settings: RobustnessSettings) -> list[str]:
    """Describe the trainings, and the radii to be bounded."""
    task = prepare(settings)
    examples = len(_rows(task))
    return [
        f"parent: {in_words(settings)}, {task.connections} connections; {task.form()}",
        f"methods: {', '.join((DENSE, *settings.methods))}; densities "
        f"{', '.join(f'{density:g}' for density in settings.densities)}; {settings.seeds} seeds; phases of "
        f"{settings.steps} steps of batch {settings.batch_size}",
        f"radii of {examples} test pictures of each network: {settings.rounds} boxes bounded and "
        f"{settings.rounds} attacked by {settings.attacks} steps; slopes at radius {settings.radius:g}",
    ]


def run(settings: RobustnessSettings, context: Context) -> Outcome:
    """Train by every method, bound radii and slopes, and compare."""
    methods = [Part(name, _measured, name) for name in (DENSE, *settings.methods)]
    pictures, facts = rows_of(Study.of, settings, methods, context)
    table, compared = _runs(pictures, settings.radius), _comparisons(pictures)
    facts["examples"] = pictures["picture"].nunique()
    files = {COMPARISONS: compared, PICTURES: pictures}
    return Outcome(table, _findings(table, compared), tables=files, facts=facts)


def _rows(task: Task) -> np.ndarray:
    """Return the rows of evenly spaced test pictures."""
    count = min(task.settings.examples, len(task.test))
    return task.test[np.linspace(0, len(task.test) - 1, count).astype(int)]


class Scaled:
    """A network on pixels between 0 and 1, made of one that takes what its problem gathers.

    Args:
      task: the task. One object serves all methods, so that they share one program.
    """

    def __init__(self, task: Task) -> None:
        pixels, problem = task.images.x, task.problem
        ends = np.stack([np.full_like(pixels[0], end) for end in (pixels.min(), pixels.max())])
        low_and_high, self.labels = problem.gather(
            (jnp.asarray(ends), jnp.zeros(2, jnp.int32)), None, jnp.arange(2)
        )
        self.low, high = low_and_high[:1], low_and_high[1:]
        self.range = high - self.low
        assert problem.predict is not None
        self.predict, (_, self.state) = problem.predict, problem.init(jax.random.key(0))

    def __call__(self, params: PyTree, example: Array) -> Array:
        """Return the logits of one example."""
        batch = self.low + self.range * example[None], self.labels[:1]
        logits: Array = self.predict(params, self.state, batch)
        return logits[0]


class Study(NamedTuple):
    """Data that all parts of the study share.

    Attributes:
      task: the task.
      logits: the parent on pixels between 0 and 1.
      pixels: the test pictures, their pixels as shares of the range of all pixels.
      labels: their classes.
    """

    task: Task
    logits: Scaled
    pixels: Array
    labels: Array

    @property
    def images(self) -> Images:
        """All pictures."""
        return self.task.images

    @property
    def connections(self) -> int:
        """The number of connections of the parent."""
        return self.task.connections

    @classmethod
    def of(cls, settings: RobustnessSettings) -> Study:
        """Load the task."""
        task = prepare(settings)
        images, rows = task.images, _rows(task)
        least, most = int(images.x.min()), int(images.x.max())
        pixels = (images.x[rows].astype(np.float32) - least) / (most - least)
        return cls(task, Scaled(task), jnp.asarray(pixels), jnp.asarray(images.y[rows]))


def _measured(study: Study, name: str, found: Mapping[str, Any], work: Work) -> pd.DataFrame:
    """Train by one method, and bound each run: a row a density, seed and picture."""
    entrant, task = entered(name, study.task)
    seeds = np.arange(task.settings.seeds)
    values = {number: np.full(len(seeds), value) for number, value in defaults(entrant, task).items()}
    options = {"name": name, "progress": work.progress, "checkpoint": work.checkpoint}
    network, reports = trained(entrant, task, seeds, values, {**options, **task.settings.width()})
    runs = grid(task, seeds)
    played = measured(network, task, runs["seed"].to_numpy(), reports)
    rows = []
    for index, run in runs.iterrows():
        failed_at = int(played.failed_at[index])
        of = _radii(study, network, index) if failed_at < 0 else [np.nan] * len(BOUNDED)
        about = {"strategy": name, "family": entrant.family, **run, "failed_at": failed_at}
        by_picture = {"picture": np.arange(len(study.labels)), **dict(zip(BOUNDED, of, strict=True))}
        rows.append(pd.DataFrame({**about, "accuracy": played.accuracy[index], **by_picture}))
        if work.progress is not None:
            work.progress(Progress(f"{name}, radii", index + 1, len(runs), 0, 1, 1, None))
    return pd.concat(rows, ignore_index=True).astype({"seed": int})


def _radii(study: Study, network: Network, index: int) -> list[np.ndarray]:
    """Bound the radii and slopes of a run."""
    settings = study.task.settings
    found = radii(
        study.logits,
        jax.tree.map(lambda leaf: leaf[index], network.params),
        study.pixels,
        study.labels,
        jnp.float32(settings.radius),
        rounds=settings.rounds,
        attacks=settings.attacks,
    )
    if (found.proven > found.attacked).any():
        raise AssertionError("a proven radius is above that of a change that was found; please report this")
    return [np.asarray(of, np.float64) for of in found]


def _runs(pictures: pd.DataFrame, radius: float) -> pd.DataFrame:
    """Return a row a run: medians of its right pictures, and shares of all pictures."""
    rows = []
    for (name, density, seed), of in pictures.groupby(["strategy", "density", "seed"], sort=False):
        first = of.iloc[0]
        about = {"strategy": name, "family": first["family"], "density": density, "seed": seed}
        medians = of.loc[of["attacked"] > 0, list(BOUNDED)].median()
        failed = first["failed_at"] >= 0
        shares = {
            "certified": np.nan if failed else (of["proven"] >= radius).mean(),
            "withstanding": np.nan if failed else (of["attacked"] > radius).mean(),
        }
        rows.append(
            {**about, "accuracy": first["accuracy"], **medians, **shares, "failed_at": first["failed_at"]}
        )
    return pd.DataFrame(rows)


def _comparisons(pictures: pd.DataFrame) -> pd.DataFrame:
    """Compare each method with the dense network, seed by seed, in each quantity at each density.

    A difference of radii or slopes is the median over pictures that both networks of a seed classify right.
    """
    dense = pictures[pictures["strategy"] == DENSE].set_index(["seed", "picture"])
    sparse = pictures[pictures["strategy"] != DENSE]
    rows = []
    for (name, density), of in sparse.groupby(["strategy", "density"], sort=False):
        own = of.set_index(["seed", "picture"])
        minus = own[list(MEASURED)] - dense[list(MEASURED)].reindex(own.index)
        right = (own["attacked"] > 0) & (dense["attacked"].reindex(own.index) > 0)
        by_seed = minus.where(right).groupby("seed").median()
        by_seed["accuracy"] = minus["accuracy"].groupby("seed").first()
        for quantity in MEASURED:
            row = paired.difference(by_seed[quantity], 0 * by_seed[quantity])
            rows.append({"strategy": name, "density": density, "quantity": quantity, **row})
    # One question has all methods and densities; each quantity is a question of its own.
    return paired.adjusted(pd.DataFrame(rows), ["quantity"])


def _findings(runs: pd.DataFrame, compared: pd.DataFrame) -> list[dict[str, Any]]:
    """Report every quantity of each method and density, and its difference to the dense network."""
    found = [
        finding(f"{words} of {name}, density {density:g}", of[quantity])
        for (name, density), of in runs.groupby(["strategy", "density"], sort=False)
        for quantity, words in MEASURED.items()
        if of[quantity].notna().any()
    ]
    return found + [
        finding(
            f"{MEASURED[row['quantity']]} of {row['strategy']} minus that of the dense network, density "
            f"{row['density']:g}",
            row,
        )
        for _, row in compared.iterrows()
    ]


def conclusion(results: Results) -> Iterable[str]:
    """Compare proven radii with the dense network's, and tell how close bounds and attacks are."""
    settings, table, compared = results.settings, results.table, results.read(COMPARISONS)
    dense = table[table["strategy"] == DENSE]
    sparse = table[table["strategy"] != DENSE]
    proven, attacked = (tables.inline(dense[column], ".4f") for column in ("proven", "attacked"))
    yield (
        f"{settings['dataset']}, {in_words(settings)}: the dense network's class withstands every change of "
        f"all pixels by {proven} of their range, and attacks change it within {attacked} (medians of "
        f"correctly classified pictures, of {results.manifest['examples']}; [quartiles] of "
        f"{settings['seeds']} seeds)."
    )
    for quantity in ("proven", "attacked"):
        of = compared[compared["quantity"] == quantity]
        least = of["density"].min()
        differences = [
            f"{row['strategy']} {row['median']:+.4f} [{row['q25']:+.4f}, {row['q75']:+.4f}]"
            for _, row in of[of["density"] == least].iterrows()
        ]
        yield (
            f"{MEASURED[quantity].capitalize()} minus the dense network's, density {least:g}: "
            f"{', '.join(differences)} (medians [quartiles], pictures that both classify right). At all "
            f"densities, p < {paired.LEVEL:g} (Wilcoxon, adjusted over methods and densities): "
            f"{paired.significant(of, 'p_adjusted', len(of))}."
        )
    share = (sparse["proven"] / sparse["attacked"]).groupby(sparse["density"]).median()
    whole = (dense["proven"] / dense["attacked"]).median()
    told = ", ".join(f"{value:.2f} at {density:g}" for density, value in share[::-1].items())
    yield f"Proven radii are {whole:.2f} of attacked ones for the dense network; {told} (medians)."


def report(results: Results) -> list[RenderableType]:
    """Draw radii and slopes against density, and radii against accuracy, and tabulate them."""
    settings, table = results.settings, results.table
    title = f"{settings['dataset']}, {in_words(settings)}"
    panels = {MEASURED[column]: _points(table, "density", column) for column in ("proven", "attacked")}
    share = "radius, share of the range of pixels"
    results.draw(plots.trade_offs(panels, "density", share, title, (True, False), columns=2), "radii")
    slopes = _points(table, "density", "slope")
    label = f"slope within {settings['radius']:g}"
    results.draw(plots.trade_off(slopes, "density", label, title, logarithmic=(True, True)), "slopes")
    traded = _points(table, "accuracy", "proven")
    results.draw(plots.trade_off(traded, "test accuracy", "proven radius", title), "accuracy")
    return [
        _table(table, settings["radius"], title),
        *explain([str(name) for name in table["strategy"].unique() if name != DENSE]),
        f"- {DENSE}: the whole network, trained for as long as a method that trains once",
        "- proven radius: no change of pixels by so much, as a share of their range, alters the class",
        "- attacked radius: projected gradients found a change of the class within it, so that no larger one "
        "can be proven",
        f"- slope: no logit changes by more than this times the largest change of a pixel, within "
        f"{settings['radius']:g} of a picture",
        "- radii and slopes are medians of correctly classified pictures; shares are of all pictures",
        *failures(table.groupby("strategy", sort=False)),
    ]


def _points(table: pd.DataFrame, x: str, y: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return two quantities of each method, of shape (seeds, densities)."""
    points = {}
    for name, rows in table.assign(at=table["density"]).groupby("strategy", sort=False):
        wide = {column: rows.pivot(index="seed", columns="at", values=column) for column in (x, y)}
        points[str(name)] = wide[x].to_numpy(float), wide[y].to_numpy(float)
    return points


def _table(table: pd.DataFrame, radius: float, title: str) -> Table:
    """Tabulate radii, slopes and shares of pictures by method and density."""
    rows = [
        (
            f"{name}, {density:g}",
            tables.spread(of["accuracy"], ".3f"),
            *(tables.spread(of[column], ".4f") for column in ("proven", "attacked")),
            tables.spread(of["slope"], ".1f"),
            *(tables.median(of[column], ".2f") for column in ("certified", "withstanding")),
        )
        for (name, density), of in table.groupby(["strategy", "density"], sort=False)
    ]
    columns = (
        "method, density",
        *MEASURED.values(),
        f"proven at {radius:g}",
        f"withstands attacks at {radius:g}",
    )
    return tables.table(f"{title}: median [quartiles] over seeds", columns, rows)


def charts(results: Results) -> list[Chart]:
    """Chart the proven radius and the slope of every run against density."""
    title = f"{results.settings['dataset']}, {in_words(results.settings)}"
    return [
        Chart(
            f"{title}: {MEASURED[column]}",
            results.table,
            "density",
            column,
            "strategy",
            labels={**MEASURED, "strategy": "method"},
            tells=("seed", "accuracy"),
            logarithmic=(True, column == "slope"),
        )
        for column in ("proven", "slope")
    ]


EXPERIMENT = Experiment(
    __name__,
    RobustnessSettings,
    plan,
    run,
    report,
    conclusion,
    charts=charts,
    spreads=True,
)

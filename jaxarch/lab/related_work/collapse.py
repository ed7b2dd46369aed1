"""Layer collapse: connections left when a layer loses its last one, by pruning method."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from rich.console import RenderableType

from jaxarch import ByDensity, Problem, Progress, chain, named_leaves, plots, search, select
from jaxarch.io import digest
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count, check_distinct, check_known
from jaxarch.lab.data import load_images
from jaxarch.lab.harness import Context, Experiment, Outcome, Part, Parts, Results, Work, finding, tables
from jaxarch.lab.harness.at_worker import check_same
from jaxarch.lab.harness.results import failures
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.pruning.initial_weights import Initial, beginning
from jaxarch.lab.pruning.parents import in_words
from jaxarch.lab.pruning.tasks import classification, pooled
from jaxarch.lab.tournament.entrants import GRASP_TEMPERATURE
from jaxarch.lab.tournament.names import ORIGINS, From, explain
from jaxarch.lab.tournament.settings import PictureSettings
from jaxarch.transforms import density_name

ONE_ROUND = "SynFlow, one round"
METHODS: Mapping[str, Callable[[tuple[float, ...], CollapseSettings], Any]] = {
    "random": lambda densities, settings: search.random_mask(densities),
    "magnitude at start": lambda densities, settings: search.initial_magnitude(densities),
    "SNIP": lambda densities, settings: search.snip(densities, batches=settings.batches),
    "GraSP": lambda densities, settings: search.grasp(
        densities, batches=settings.batches, temperature=GRASP_TEMPERATURE
    ),
    ONE_ROUND: lambda densities, settings: search.synflow(densities, rounds=1),
    "SynFlow": lambda densities, settings: search.synflow(densities, rounds=settings.rounds),
}
SUITS_ALL: dict[str, Any] = {"model": "cnn", "batch_size": 60, "seeds": 5}
SUITS: dict[str, dict[str, Any]] = {"mnist": {"model": "lenet"}, "cifar10": {"model": "vgg16", "seeds": 3}}
"""Defaults per data set, used where the user sets nothing; `SUITS_ALL` covers data sets without an entry."""


@dataclasses.dataclass(frozen=True)
class CollapseSettings(PictureSettings):
    """Settings of `jaxarch run related_work.collapse`, changed with `--set NAME=VALUE`.

    Nothing is trained.

    Attributes:
      methods: methods that choose connections; empty for all of them.
      batches: batches of examples by which SNIP and GraSP judge connections.
      initial: weights of the parent: its `model`'s own, or `normal` ones of the same standard deviations.
      rounds: rounds of SynFlow on the way to each density.
      each_tenfold: number of densities per factor of ten.
    """

    # Placeholders: the problem needs these settings, but is not trained on.
    augment: ClassVar[bool] = False
    rate: ClassVar[float] = 1.0

    methods: tuple[str, ...] = ()
    initial: Initial = "model"
    batches: int = 10
    rounds: int = 100
    each_tenfold: int = 4

    def complete(self) -> Self:
        """Fill in the data set's defaults."""
        settings = self.suited(SUITS_ALL | SUITS.get(self.dataset, {}))
        return dataclasses.replace(settings, methods=settings.methods or tuple(METHODS))

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "batches", "rounds", "each_tenfold")
        check_known("methods", self.methods, METHODS)
        check_distinct("methods", self.methods)


class Task(NamedTuple):
    """The pruning task, ready to prune.

    Attributes:
      settings: settings with all defaults filled in.
      problem: the problem of the training pictures.
      sizes: connections of each masked leaf, by path.
      densities: the largest first; the last leaves as many connections as there are leaves.
      pictures: a digest of the data.
    """

    settings: CollapseSettings
    problem: Problem
    sizes: Mapping[str, int]
    densities: tuple[float, ...]
    pictures: str

    @property
    def connections(self) -> int:
        """Count the connections of the parent."""
        return sum(self.sizes.values())

    @property
    def most(self) -> float:
        """Return the largest compression that leaves a connection in each layer."""
        return self.connections / len(self.sizes)


def prepare(settings: CollapseSettings) -> Task:
    """Load the pictures and build the problem, from settings with defaults filled in."""
    images = pooled(load_images(settings.dataset), settings.pool)
    rows = np.arange(images.train)
    trained_on = images._replace(x=images.x[rows], y=images.y[rows])
    problem = classification(settings, settings.model, images, rows, settings.batches, trained_on.moments())
    problem = beginning(problem, settings.initial)
    params, _ = jax.eval_shape(problem.init, jax.random.key(0))
    sizes = {path: leaf.size for path, leaf in named_leaves(select(params)).items()}
    fewest = len(sizes) / sum(sizes.values())
    # Without the small number, rounding could add a density equal to `fewest`.
    tenths = int(np.ceil(-np.log10(fewest) * settings.each_tenfold - 1e-9))
    above = [10 ** (-k / settings.each_tenfold) for k in range(1, tenths)]
    return Task(settings, problem, sizes, (*above, fewest), digest(images.x, images.y))


def plan(settings: CollapseSettings) -> list[str]:
    """Describe the planned pruning."""
    task = prepare(settings)
    return [
        f"parent: {in_words(settings)}, {task.connections} connections in {len(task.sizes)} layers: "
        f"compression up to {task.most:,.0f}",
        f"methods: {', '.join(settings.methods)}; {len(task.densities)} densities, {settings.seeds} seeds; "
        "nothing is trained",
    ]


def run(settings: CollapseSettings, context: Context) -> Outcome:
    """Choose connections at all densities, and count the connections that each layer keeps."""
    task = prepare(settings)
    parts = Parts(settings, experiment=context.experiment, pictures=task.pictures)
    methods = [Part(name, _counted, name) for name in settings.methods]
    load = partial(_load, settings, task.pictures)
    made = parts.run(methods, task, load, progress=context.progress, spread=context.spread)
    table = pd.concat([counts for _, counts in made], ignore_index=True)
    return Outcome(
        table,
        _findings(table, task.most),
        facts={
            "pictures": {"name": settings.dataset, "sha256": task.pictures},
            "layers": dict(task.sizes),
            "largest compression": task.most,
        },
    )


def _load(settings: CollapseSettings, pictures: str) -> Task:
    """Load the task that the parts need, in another process.

    Raises:
      ArgumentError: the pictures loaded here differ.
    """
    task = prepare(settings)
    check_same(settings.dataset, task.pictures, pictures)
    return task


def _counted(task: Task, name: str, found: Mapping[str, Any], work: Work) -> pd.DataFrame:
    """Count the connections that a method leaves in each layer: one row a seed and density."""
    settings = task.settings
    strategy = chain(METHODS[name](task.densities, settings))

    @jax.jit
    def kept(key: Array, problem: Problem) -> tuple[Array, Array]:
        network = strategy(key, problem)
        several = network[ByDensity]
        masks = [several.masks[density_name(density)] for density in task.densities]
        counts = [[leaf.sum() for leaf in named_leaves(mask).values()] for mask in masks]
        failed_at = network.info.failed_at
        return jnp.asarray(counts), jnp.asarray(-1 if failed_at is None else failed_at)

    rows = []
    for seed, key in enumerate(settings.seed_keys()):
        begun = time.perf_counter()
        counts, failed_at = jax.device_get(kept(key, task.problem))
        rows.append(
            pd.DataFrame(
                {
                    "strategy": name,
                    "seed": seed,
                    "density": task.densities,
                    "compression": 1 / np.asarray(task.densities),
                    "emptiest": counts.min(axis=1),
                    "empty_layers": (counts == 0).sum(axis=1),
                    **{path: counts[:, layer] for layer, path in enumerate(task.sizes)},
                    "failed_at": failed_at,
                    "seconds": time.perf_counter() - begun,
                }
            )
        )
        if work.progress is not None:
            seeds = settings.seeds
            work.progress(Progress(name, seed + 1, seeds, 0, 1, 1, None))
    return pd.concat(rows, ignore_index=True)


def critical(rows: pd.DataFrame) -> np.ndarray:
    """Return each seed's largest compression up to which no layer is empty; 1 if there is none."""
    reached = []
    for _, of in rows.sort_values("compression").groupby("seed"):
        whole = np.cumprod(of["empty_layers"].to_numpy() == 0).astype(bool)
        reached.append(of["compression"].to_numpy()[whole].max(initial=1.0))
    return np.asarray(reached)


def _findings(table: pd.DataFrame, most: float) -> list[dict[str, Any]]:
    """Report the largest compression at which no layer is empty."""
    return [
        finding(
            f"largest compression by {name} without an empty layer; {most:,.0f} is possible", critical(rows)
        )
        for name, rows in table.groupby("strategy", sort=False)
    ]


def conclusion(results: Results) -> Iterable[str]:
    """Tell how far each method compresses the parent before a layer is empty."""
    settings, table = results.settings, results.table
    most = results.manifest["largest compression"]
    reached = {str(name): critical(rows) for name, rows in table.groupby("strategy", sort=False)}
    medians = {name: float(np.median(of)) for name, of in reached.items()}
    farthest = max(medians.values())
    first = [name for name, median in medians.items() if median == farthest]
    said = "; ".join(f"{name} {tables.inline(reached[name], ',.0f')}" for name in first)
    yield (
        f"{settings['dataset']}, {in_words(settings)}: the largest compression without an empty layer is "
        f"{said} (median [quartiles] of {settings['seeds']} seeds); {most:,.0f} would leave one connection "
        "a layer."
    )
    others = sorted((name for name in medians if name not in first), key=medians.__getitem__, reverse=True)
    if others:
        said = ", ".join(f"{name} {medians[name]:,.0f}" for name in others)
        yield f"The medians of the others are: {said}."


def report(results: Results) -> list[RenderableType]:
    """Draw the emptiest layer against compression, and build the table."""
    settings, table = results.settings, results.table
    most = results.manifest["largest compression"]
    title = f"{settings['dataset']}, {in_words(settings)}"
    groups = [(str(name), rows) for name, rows in table.groupby("strategy", sort=False)]
    points = {}
    for name, rows in groups:
        compression, emptiest = (
            rows.pivot(index="seed", columns="density", values=column).to_numpy(float)[:, ::-1]
            for column in ("compression", "emptiest")
        )
        # A logarithmic axis cannot show an empty layer, so a line ends where some seed has one.
        whole = np.cumprod((emptiest > 0).all(axis=0)).astype(bool)
        points[name] = (compression[:, whole], emptiest[:, whole])
    label = "compression: connections of the parent per connection left"
    figure = plots.trade_off(
        points,
        label,
        "connections in the emptiest layer",
        title,
        logarithmic=(True, True),
        marked={"one connection a layer": most},
    )
    results.draw(figure, "collapse")
    names = [name for name, _ in groups]
    return [
        _table(groups, results.manifest["layers"], title, most),
        *explain(names, {**ORIGINS, **_rounds(settings["rounds"])}),
        "- compression: connections of the parent for each one left",
        *failures(groups),
    ]


def _rounds(rounds: int) -> dict[str, From]:
    """Return the origins of both kinds of SynFlow."""
    return {
        ONE_ROUND: From(search.synflow, "in one round"),
        "SynFlow": From(search.synflow, f"in {rounds} rounds"),
    }


def _table(groups: list[tuple[str, pd.DataFrame]], layers: Iterable[str], title: str, most: float) -> Table:
    """Tabulate the compressions at which layers collapse, and the first layers to collapse."""
    rows = [
        (
            name,
            tables.spread(critical(of), ",.0f"),
            first_empty(of, layers),
            tables.median(of["seconds"], ".1f"),
        )
        for name, of in groups
    ]
    columns = ("method", "largest compression", "first empty layers", "seconds")
    return tables.table(
        f"{title}: largest compression without an empty layer, median [quartiles]; at most {most:,.0f}",
        columns,
        rows,
    )


def first_empty(rows: pd.DataFrame, layers: Iterable[str]) -> str:
    """Name one of the layers that are empty first, in any seed, and count the others."""
    found: dict[str, None] = {}
    for _, of in rows[rows["empty_layers"] > 0].sort_values("compression").groupby("seed"):
        found |= dict.fromkeys(layer for layer in layers if of.iloc[0][layer] == 0)
    # A deep network has many long layer names; the table of runs lists all of them.
    first, others = next(iter(found), "-"), len(found) - 1
    return f"{first} and {others} more" if others > 0 else first


def charts(results: Results) -> list[Chart]:
    """Chart the emptiest layer of every run against compression; empty layers cannot be shown."""
    settings = results.settings
    title = f"{settings['dataset']}, {in_words(settings)}: connections in the emptiest layer"
    labels = {"emptiest": "connections in the emptiest layer", "strategy": "method"}
    return [
        Chart(
            title,
            results.table,
            "compression",
            "emptiest",
            "strategy",
            at="density",
            labels=labels,
            tells=("seed", "density"),
            logarithmic=(True, True),
        )
    ]


EXPERIMENT = Experiment(
    __name__, CollapseSettings, plan, run, report, conclusion, charts=charts, spreads=True, trains=False
)

"""[D] figures 5 and 10: Laplacian spectra of the networks found, their distances, and their plane.

Footnote 14 gives every unit an edge of weight 1 to itself, which ties the spectrum to the size of the
weights. Without these loops the spectrum is invariant to scaling all weights. Both are measured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import ArgumentError, Network, compare, plots
from jaxarch.lab.checks import check_count, check_distinct
from jaxarch.lab.disentangling import measuring, trial
from jaxarch.lab.disentangling.settings import StrategySettings
from jaxarch.lab.harness import Context, Experiment, Outcome, Results, costs, finding, tables
from jaxarch.lab.harness.tables import Table
from jaxarch.masks import reshuffle
from jaxarch.structure import distances, graphs

SPECTRA, BETWEEN, WITHIN = "spectra.npz", "between.csv", "within.csv"
ROW = ["task", "flipped", "graph"]
SHUFFLED = "bin shuffled"
"""The architectures of bin, each layer's connections permuted at random: a yardstick of equal density."""
PAIRS = (
    *(("real->bin", "bin"), ("lottery->bin", "bin"), ("agnostic", "bin"), (SHUFFLED, "bin")),
    *(("real", "lottery"), ("real", "bin->real warm"), ("real", "bin->real cold")),
)
"""Pairs in the paper's conclusion: architectures with bin, and real-valued networks with real."""
REAL = ("real", "bin->real warm", "bin->real cold", "lottery", "random")
BINARY = ("real->bin", "bin", "lottery->bin", "agnostic", "random->bin")
GRAPHS = {"self-loops": True, "no self-loops": False}
TASKS = {"digits": ("1v2", "4v9"), "mnist": ("1v2", "4v9"), "citeseer": ("0v1", "2v3")}


@dataclasses.dataclass(frozen=True)
class Settings(StrategySettings):
    """Settings of `jaxarch run disentangling.fig5`, changed with `--set NAME=VALUE`.

    Attributes:
      tasks: groups of classes, written 1+2v3+4; if empty, two tasks of single classes.
      train_per_class: examples of each class to train on; [D] has 150.
    """

    strategies: tuple[str, ...] = (*REAL, *BINARY)
    tasks: tuple[str, ...] = ()
    train_per_class: int = 120

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_count("train_per_class", self.train_per_class)
        if len(self.strategies) < 2:
            raise ArgumentError(f"strategies: expected at least two to compare, got {self.strategies}")
        check_distinct("tasks", self.tasks)
        if "logistic regression" in self.strategies:
            raise ArgumentError("strategies: logistic regression has no graph to compare; leave it out")

    def groups(self) -> list[trial.Groups]:
        """Return the tasks' groups of classes; the data set's default tasks if none are named."""
        return [trial.read_groups(text) for text in self.or_known("tasks", TASKS, "0v1")]


def plan(settings: Settings) -> list[str]:
    """Describe the trainings to be compiled and run."""
    data, runs = settings.data(), 2 * settings.seeds
    tasks = [trial.split(settings, data, groups, settings.train_per_class) for groups in settings.groups()]
    nodes = (settings.depth + 1) * data.x.shape[1]
    return [
        f"data: {data.name}, {data.x.shape[0]} x {data.x.shape[1]}",
        f"tasks: {'; '.join(task.name for task in tasks)}; both orientations, {settings.seeds} seeds each",
        f"strategies: {', '.join(settings.chosen())}",
        f"trainings: {len(measuring.trainings(settings.chosen()))}, each {settings.steps} steps of batch "
        f"{settings.batch_size} x {runs} runs x {len(tasks)} tasks, compiled once",
        f"spectra: {nodes} eigenvalues for each run and strategy",
    ]


def run(settings: Settings, context: Context) -> Outcome:
    """Train all strategies on all tasks, and measure the distances between their spectra."""
    data, chosen = settings.data(), settings.chosen()
    tasks = [trial.split(settings, data, groups, settings.train_per_class) for groups in settings.groups()]
    learning, rows = trial.problem(settings, data, tasks[0]), max(task.train.shape[1] for task in tasks)
    measured, spectra, between, within, spent = [], {}, [], [], {}
    for task in tasks:
        moved = trial.move(learning, task, rows)
        options = context.within(task.name).options
        done = compare(chosen, settings.run_keys(task), moved, labels=trial.labels(task), **options)
        measured.append(measuring.measure(data, task, moved, chosen, done))
        spent[task.name] = costs(done)
        networks = {name: without_failed(network) for name, (network, _) in done.items()}
        if "bin" in networks:
            shuffle = jax.random.fold_in(jax.random.key(settings.key), 2)
            networks[SHUFFLED] = shuffled(shuffle, networks["bin"])
        for graph, self_loops in GRAPHS.items():
            of_all = {name: network_spectra(params, self_loops) for name, params in networks.items()}
            for flipped in (False, True):
                groups = {name: values[task.flipped == flipped] for name, values in of_all.items()}
                spectra[_row(task.name, flipped, graph)] = groups
                where = {"task": task.name, "flipped": flipped, "graph": graph}
                between.append(distances.between(groups).assign(**where))
                within.append(distances.within(groups).assign(**where))
    distances_ = {
        BETWEEN: pd.concat(between, ignore_index=True),
        WITHIN: pd.concat(within, ignore_index=True),
    }
    return Outcome(
        pd.concat(measured, ignore_index=True),
        _findings(data.name, distances_[BETWEEN]),
        data,
        spent,
        tables=distances_,
        arrays={SPECTRA: spectra},
    )


def without_failed(network: Network) -> dict[str, jax.Array]:
    """Return the weights of every run, all NaN where a training failed.

    Once thresholded, failed weights would look sound.
    """
    runs = jax.tree.leaves(network.params)[0].shape[0]
    failed_at = network.info.failed_at
    failed = np.full(runs, False) if failed_at is None else np.asarray(failed_at) >= 0
    return jax.tree.map(lambda leaf: jnp.where(failed[:, None, None], jnp.nan, leaf), network.params)


def shuffled(key: jax.Array, params: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Permute the weights of every run at random, each layer separately."""
    return jax.vmap(reshuffle)(jax.random.split(key, params["w1"].shape[0]), params)


def network_spectra(params: dict[str, jax.Array], self_loops: bool) -> np.ndarray:
    """Return the spectrum of every run's network (11), shape (runs, nodes); NaN where weights are NaN."""
    return np.asarray(_spectra([params[f"w{i + 1}"] for i in range(len(params))], self_loops))


@partial(jax.jit, static_argnums=1)
def _spectra(weights: list[jax.Array], self_loops: bool) -> jax.Array:
    return jax.vmap(partial(graphs.spectrum, self_loops=self_loops))(weights)


def conclusion(results: Results) -> Iterable[str]:
    """Compare the spectra of a thresholded network with those of bin, and with shuffled architectures."""
    measured = similarity(results.read(BETWEEN))
    where = f"{results.manifest['data']['name']}, {len(measured)} graphs (task x orientation x self-loops)"
    said = {
        pair: f"{pair[0]} and {pair[1]} {tables.inline(measured[pair], '.2f')}"
        for pair in (("real->bin", "bin"), ("real", "lottery"))
        if measured[pair].notna().any()
    }
    if not said:
        yield f"{where}: the strategies are not a pair that [D] compares."
        return
    yield (
        f"{where}: distances between the centroids of Laplacian spectra are {'; '.join(said.values())} "
        "(median [quartiles] over graphs)."
    )
    yardstick = measured[(SHUFFLED, "bin")]
    if ("real->bin", "bin") in said and yardstick.notna().any():
        yield (
            f"Architectures of bin whose connections are permuted at random within each layer are "
            f"{tables.inline(yardstick, '.2f')} from bin."
        )


def report(results: Results) -> list[RenderableType]:
    """Draw the figure and build the tables."""
    between, within, values = results.read(BETWEEN), results.read(WITHIN), results.arrays(SPECTRA)
    dataset = results.manifest["data"]["name"]
    names = list(dict.fromkeys(within["group"]))
    binary = [name for name in names if name in (*BINARY, SHUFFLED)]
    real = [name for name in names if name not in binary]
    panels: dict[str, Any] = {graph: {} for graph in GRAPHS}
    rendered: list[RenderableType] = []
    for (task, flipped, graph), part in between.groupby(ROW, sort=False):
        row = _row(str(task), bool(flipped), str(graph))
        panels[str(graph)][f"{dataset}, {row}"] = {
            panel: {name: values[f"{row}/{name}"] for name in shown}
            for panel, shown in {"real-valued networks": real, "binary networks": binary}.items()
            if shown
        }
        spreads = within[(within[ROW] == [task, flipped, graph]).all(axis=1)]
        if GRAPHS[str(graph)]:
            rendered.append(_table(part, spreads, f"{dataset}, {row}"))
    for graph, rows in panels.items():
        results.draw(plots.spectral_comparison(rows), f"spectra-{graph.replace(' ', '-')}")
    permuted = f"- {SHUFFLED}: bin, the connections of each layer permuted at random"
    rendered[1:1] = [*measuring.explain(names), *[permuted] * (SHUFFLED in names)]
    rendered += _similarity(between)
    return [*rendered, *measuring.remarks(results)]


def _row(task: str, flipped: bool, graph: str) -> str:
    return f"{task}, {trial.orientation(flipped)}, {graph}"


def _table(between: pd.DataFrame, within: pd.DataFrame, title: str) -> Table:
    names = list(within["group"])
    distance = {
        frozenset((str(pair["first"]), str(pair["second"]))): pair["distance"]
        for _, pair in between.iterrows()
    }
    rows = []
    for index, name in enumerate(names):
        per_run = tables.number(within.iloc[index]["spread"], ".2f")
        others = [tables.number(distance[frozenset((name, other))], ".2f") for other in names[:index]]
        rows.append((f"{index + 1} {name}", per_run, *others, *[""] * (len(names) - index - 1)))
    return tables.table(
        f"{title}: distances between centroids of spectra (own: median distance of runs to their centroid)",
        ("", "own", *(str(index + 1) for index in range(len(names) - 1))),
        [row[: len(names) + 1] for row in rows],
    )


def similarity(between: pd.DataFrame) -> pd.DataFrame:
    """Select the distances discussed in [D] section 6, for each task, orientation and graph."""
    rows = []
    for (task, flipped, graph), part in between.groupby(ROW, sort=False):
        distance = {frozenset((str(p["first"]), str(p["second"]))): p["distance"] for _, p in part.iterrows()}
        measured: dict[Any, float] = {pair: distance.get(frozenset(pair), np.nan) for pair in PAIRS}
        rows.append({"task": task, "flipped": flipped, "graph": graph, **measured})
    return pd.DataFrame(rows)


def _similarity(between: pd.DataFrame) -> list[RenderableType]:
    measured = similarity(between)
    made: list[RenderableType] = []
    for common, what in (
        ("bin", "architectures: from bin to"),
        ("real", "real-valued networks: from real to"),
    ):
        pairs = [pair for pair in PAIRS if common in pair and not measured[pair].isna().all()]
        columns = [first if second == common else second for first, second in pairs]
        rows = [
            (
                _row(row["task"], row["flipped"], row["graph"]).replace("y = 1: ", ""),
                *(tables.number(row[pair], ".2f") for pair in pairs),
            )
            for _, row in measured.iterrows()
        ]
        if pairs:
            made.append(tables.table(f"distances between {what}", ("", *columns), rows))
    return made


def _findings(dataset: str, between: pd.DataFrame) -> list[dict[str, Any]]:
    """Report every distance, beside the distance expected between two groups of equal mean."""
    return [
        finding(
            f"distance of the spectra's centroids, {pair['first']} and {pair['second']} (at one mean "
            f"{pair['standard_error']:.2f}); {dataset} {trial.versus(pair['task'], pair['flipped'])}, "
            f"{pair['graph']}",
            pair["distance"],
        )
        for _, pair in between.iterrows()
    ]


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion)

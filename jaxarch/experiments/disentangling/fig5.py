"""[D] figures 5 and 10: Laplacian spectra of the networks found, their distances, and their plane.

Footnote 14 gives every unit an edge of weight 1 to itself, which ties the spectrum to the size of the
weights. Without these loops it does not change if all weights are scaled: both are measured.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from rich.console import RenderableType
from rich.table import Table

from jaxarch import distances, graphs, plots, results
from jaxarch.errors import ArgumentError, check_count
from jaxarch.experiments import tables
from jaxarch.experiments.disentangling import trial
from jaxarch.experiments.experiment import Experiment
from jaxarch.fit import Progress
from jaxarch.problem import Found, Problem
from jaxarch.storage import read_npz, save_tree
from jaxarch.strategy import compare

NAME = "disentangling.fig5"
SPECTRA, BETWEEN, WITHIN = "spectra.npz", "between.csv", "within.csv"
ROW = ["task", "flipped", "graph"]
PAIRS = (("real->bin", "bin"), ("real", "bin->real warm"), ("real", "bin->real cold"), ("bin", "random->bin"))
"""Those that the paper's conclusion is about: architectures, real-valued networks, and a yardstick."""
REAL = ("real", "bin->real warm", "bin->real cold", "lottery", "random")
BINARY = ("real->bin", "bin", "lottery->bin", "agnostic", "random->bin")
GRAPHS = {"self-loops": True, "no self-loops": False}
TASKS = {"digits": ("1v2", "4v9"), "mnist": ("1v2", "4v9"), "citeseer": ("0v1", "2v3")}


@dataclasses.dataclass(frozen=True)
class Settings(trial.Settings):
    """What can be set with `jaxarch run disentangling.fig5 --set NAME=VALUE`.

    Tasks are written `1+2v3+4`; by default two of single classes. [D] has 150 training examples a class.
    """

    strategies: tuple[str, ...] = (*REAL, *BINARY)
    tasks: tuple[str, ...] = ()
    train_per_class: int = 120

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_count("train_per_class", self.train_per_class)
        if not self.strategies:
            raise ArgumentError("strategies: expected at least one")
        if "logistic regression" in self.strategies:
            raise ArgumentError("strategies: logistic regression is no network; it has no graph")

    def groups(self) -> list[trial.Groups]:
        """The tasks' groups of classes, those of the data set where none are named."""
        texts = self.tasks or TASKS.get(self.dataset, ())
        if not texts:
            raise ArgumentError(f"tasks: none are known for {self.dataset}; name them, as in --set tasks=0v1")
        return [trial.read_groups(text) for text in texts]


def plan(settings: Settings) -> list[str]:
    """What would be compiled and trained."""
    settings.check()
    data, runs = settings.data(), 2 * settings.seeds
    tasks = [trial.split(settings, data, groups, settings.train_per_class) for groups in settings.groups()]
    nodes = (settings.depth + 1) * data.x.shape[1]
    return [
        f"data: {data.name}, {data.x.shape[0]} x {data.x.shape[1]}",
        f"tasks: {'; '.join(task.name for task in tasks)}; both orientations, {settings.seeds} seeds each",
        f"strategies: {', '.join(settings.chosen())}",
        f"trainings: {len(trial.trainings(settings.chosen()))}, each {settings.steps} steps of batch "
        f"{settings.batch_size} x {runs} runs x {len(tasks)} tasks, compiled once",
        f"spectra: {nodes} eigenvalues for each run and strategy",
    ]


def run(settings: Settings, folder: Path, progress: Callable[[Progress], None] | None = None) -> None:
    """Train all strategies on all tasks; write results, spectra, distances and manifest."""
    started = time.time()
    settings.check()
    data, chosen = settings.data(), settings.chosen()
    tasks = [trial.split(settings, data, groups, settings.train_per_class) for groups in settings.groups()]
    learning, rows = trial.problem(settings, data, tasks[0]), max(task.train.shape[1] for task in tasks)
    measured, spectra, between, within, costs = [], {}, [], [], {}
    for task in tasks:
        moved = trial.move(learning, task, rows)
        told, labels = trial.titled(task.name, progress), trial.labels(task)
        done = compare(chosen, settings.run_keys(task), moved, progress=told, labels=labels)
        measured.append(trial.measure(data, task, moved, chosen, done))
        costs[task.name] = trial.costs(done)
        for graph, self_loops in GRAPHS.items():
            of_all = {name: network_spectra(moved, found, self_loops) for name, (found, _) in done.items()}
            for flipped in (False, True):
                groups = {name: values[task.flipped == flipped] for name, values in of_all.items()}
                spectra[_row(task.name, flipped, graph)] = groups
                where = {"task": task.name, "flipped": flipped, "graph": graph}
                between.append(distances.between(groups).assign(**where))
                within.append(distances.within(groups).assign(**where))
    table = pd.concat(measured, ignore_index=True)
    table.insert(0, "experiment", NAME)
    table.insert(4, "train_per_class", settings.train_per_class)
    table.to_csv(folder / results.RESULTS, index=False)
    pd.concat(between, ignore_index=True).to_csv(folder / BETWEEN, index=False)
    pd.concat(within, ignore_index=True).to_csv(folder / WITHIN, index=False)
    _findings(pd.concat(between), settings.seeds).to_csv(folder / results.FINDINGS, index=False)
    save_tree(folder / SPECTRA, spectra)
    results.write_manifest(
        folder,
        results.manifest(
            dataclasses.asdict(settings),
            experiment=NAME,
            command=results.command_line(),
            key=results.key_description(settings.key),
            data={"name": data.name, "sha256": results.digest(data.x, data.y)},
            costs=costs,
            wall_seconds=time.time() - started,
        ),
    )


def network_spectra(learning: Problem, found: Found, self_loops: bool) -> np.ndarray:
    """The spectrum of every run's network (11), shape (runs, nodes); NaN where its training failed."""
    layers = jax.eval_shape(learning.init, jax.random.key(0))[0]
    return np.asarray(_spectra([found.params[f"w{i + 1}"] for i in range(len(layers))], self_loops))


@partial(jax.jit, static_argnums=1)
def _spectra(weights: list[jax.Array], self_loops: bool) -> jax.Array:
    return jax.vmap(partial(graphs.spectrum, self_loops=self_loops))(weights)


def report(folder: Path) -> list[RenderableType]:
    """Draw the figure of a folder from its files, and make its tables."""
    manifest, table = results.read_manifest(folder), results.read_table(folder)
    between, within = results.read_table(folder, BETWEEN), results.read_table(folder, WITHIN)
    values = read_npz(folder / SPECTRA, "folder")
    names = list(dict.fromkeys(table["strategy"]))
    panels: dict[str, Any] = {graph: {} for graph in GRAPHS}
    rendered: list[RenderableType] = []
    for (task, flipped, graph), part in between.groupby(ROW, sort=False):
        row = _row(str(task), bool(flipped), str(graph))
        panels[str(graph)][f"{manifest['data']['name']}, {row}"] = {
            panel: {name: values[f"{row}/{name}"] for name in names if (name in BINARY) == is_binary}
            for panel, is_binary in (("real-valued networks", False), ("binary networks", True))
            if any((name in BINARY) == is_binary for name in names)
        }
        spreads = within[(within[ROW] == [task, flipped, graph]).all(axis=1)]
        if GRAPHS[str(graph)]:
            rendered.append(_table(part, spreads, f"{manifest['data']['name']}, {row}"))
    for graph, rows in panels.items():
        plots.save(plots.spectral_comparison(rows), folder, f"spectra-{graph.replace(' ', '-')}")
    rendered.append(_similarity(between))
    return [*rendered, *trial.notes(manifest["costs"].values()), *trial.remarks(table)]


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
        own = tables.number(within.iloc[index]["spread"], ".2f")
        others = [tables.number(distance[frozenset((name, other))], ".2f") for other in names[:index]]
        rows.append((f"{index + 1} {name}", own, *others, *[""] * (len(names) - index - 1)))
    return tables.table(
        f"{title}: distances between centroids of spectra (own: of runs to theirs, median)",
        ("", "own", *(str(index + 1) for index in range(len(names) - 1))),
        [row[: len(names) + 1] for row in rows],
    )


def similarity(between: pd.DataFrame) -> pd.DataFrame:
    """For each task, orientation and graph, the distances that [D] section 6 is about."""
    rows = []
    for (task, flipped, graph), part in between.groupby(ROW, sort=False):
        distance = {frozenset((str(p["first"]), str(p["second"]))): p["distance"] for _, p in part.iterrows()}
        measured: dict[Any, float] = {pair: distance.get(frozenset(pair), np.nan) for pair in PAIRS}
        rows.append({"task": task, "flipped": flipped, "graph": graph, **measured})
    return pd.DataFrame(rows)


def _similarity(between: pd.DataFrame) -> Table:
    rows = [
        (
            _row(row["task"], row["flipped"], row["graph"]).replace("y = 1: ", ""),
            *(tables.number(row[pair], ".2f") for pair in PAIRS),
        )
        for _, row in similarity(between).iterrows()
    ]
    columns = ("distance", *(f"{first}\n{second}" for first, second in PAIRS))
    return tables.table("'different real models, spectrally similar architectures'", columns, rows)


def _findings(between: pd.DataFrame, seeds: int) -> pd.DataFrame:
    return pd.DataFrame(
        [
            results.finding(
                f"distance of the spectra's centroids, {pair[0]} and {pair[1]}: "
                f"{_row(row['task'], row['flipped'], row['graph'])}, {seeds} runs each",
                row[pair],
            )
            for _, row in similarity(between).iterrows()
            for pair in PAIRS
            if not np.isnan(row[pair])
        ]
    )


EXPERIMENT = Experiment(
    NAME,
    "figures 5 and 10 of [D]: Laplacian spectra of real and binary networks, distances, PCA",
    Settings,
    plan,
    run,
    report,
)

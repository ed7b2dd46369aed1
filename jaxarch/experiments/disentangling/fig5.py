"""[D] figures 5 and 10: Laplacian spectra of the networks found, their distances, and their plane."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

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
REAL = ("real", "bin->real warm", "bin->real cold", "lottery", "random")
BINARY = ("real->bin", "bin", "lottery->bin", "agnostic", "random->bin")
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
        all_spectra = {name: network_spectra(moved, found) for name, (found, _) in done.items()}
        for flipped in (False, True):
            groups = {name: values[task.flipped == flipped] for name, values in all_spectra.items()}
            spectra[_row(task.name, flipped)] = groups
            where = {"task": task.name, "flipped": flipped}
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


def network_spectra(learning: Problem, found: Found) -> np.ndarray:
    """The spectrum of every run's network (11), shape (runs, nodes); NaN where its training failed."""
    layers = jax.eval_shape(learning.init, jax.random.key(0))[0]
    return np.asarray(_spectra([found.params[f"w{i + 1}"] for i in range(len(layers))]))


_spectra = jax.jit(jax.vmap(graphs.spectrum))


def report(folder: Path) -> list[RenderableType]:
    """Draw the figure of a folder from its files, and make its tables."""
    manifest, table = results.read_manifest(folder), results.read_table(folder)
    between, within = results.read_table(folder, BETWEEN), results.read_table(folder, WITHIN)
    values = read_npz(folder / SPECTRA, "folder")
    names = list(dict.fromkeys(table["strategy"]))
    panels, rendered = {}, []
    for (task, flipped), part in between.groupby(["task", "flipped"], sort=False):
        row = _row(str(task), bool(flipped))
        panels[f"{manifest['data']['name']}, {row}"] = {
            panel: {name: values[f"{row}/{name}"] for name in names if (name in BINARY) == is_binary}
            for panel, is_binary in (("real-valued networks", False), ("binary networks", True))
            if any((name in BINARY) == is_binary for name in names)
        }
        spreads = within[(within["task"] == task) & (within["flipped"] == flipped)]
        rendered.append(_table(part, spreads, f"{manifest['data']['name']}, {row}"))
    plots.save(plots.spectral_comparison(panels), folder, "spectra")
    rendered += _similarity(between)
    return [*rendered, *trial.remarks(table)]


def _row(task: str, flipped: bool) -> str:
    return f"{task}, {trial.orientation(flipped)}"


def _table(between: pd.DataFrame, within: pd.DataFrame, title: str) -> Table:
    names = list(within["group"])
    distance = {
        frozenset((str(pair["first"]), str(pair["second"]))): pair["distance"]
        for _, pair in between.iterrows()
    }
    rows = []
    for index, name in enumerate(names):
        cells = [tables.number(distance[frozenset((name, other))], ".2f") for other in names[:index]]
        own = within.iloc[index]["spread"]
        rows.append((f"{index + 1} {name}", *cells, f"({own:.2f})", *[""] * (len(names) - index - 1)))
    return tables.table(
        f"{title}: distances between centroids of spectra (of runs to their own)",
        ("", *(str(index + 1) for index in range(len(names)))),
        rows,
    )


def similarity(between: pd.DataFrame) -> pd.DataFrame:
    """For each task and orientation, the distances that [D] section 6 is about."""
    rows = []
    for (task, flipped), part in between.groupby(["task", "flipped"], sort=False):
        distance = {frozenset((str(p["first"]), str(p["second"]))): p["distance"] for _, p in part.iterrows()}
        pairs = {
            "architectures": ("real->bin", "bin"),
            "real_warm": ("real", "bin->real warm"),
            "real_cold": ("real", "bin->real cold"),
            "untrained": ("bin", "random->bin"),
        }
        measured = {name: distance.get(frozenset(pair), np.nan) for name, pair in pairs.items()}
        rows.append({"task": task, "flipped": flipped, **measured})
    return pd.DataFrame(rows)


def _similarity(between: pd.DataFrame) -> list[RenderableType]:
    rows = [
        (
            _row(row["task"], row["flipped"]),
            *(tables.number(row[name], ".2f") for name in ("architectures", "real_warm", "real_cold")),
            tables.number(row["untrained"], ".2f"),
        )
        for _, row in similarity(between).iterrows()
    ]
    columns = ("distance", "real->bin: bin", "real: bin->real warm", "real: cold", "bin: random->bin")
    return [tables.table("'different real models, spectrally similar architectures'", columns, rows)]


def _findings(between: pd.DataFrame, seeds: int) -> pd.DataFrame:
    words = {
        "architectures": "real->bin and bin",
        "real_warm": "real and bin->real warm",
        "real_cold": "real and bin->real cold",
        "untrained": "bin and random->bin",
    }
    return pd.DataFrame(
        [
            results.finding(
                f"{_row(row['task'], row['flipped'])}: distance of the spectra's centroids, {pair}, "
                f"{seeds} runs each",
                row[name],
            )
            for _, row in similarity(between).iterrows()
            for name, pair in words.items()
            if not np.isnan(row[name])
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

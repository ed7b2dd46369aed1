"""Stored tournaments of several tasks, side by side: regrets, and differences on a task yet to come."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import ArgumentError, plots
from jaxarch.io import read_npz
from jaxarch.lab.checks import as_folder, check_distinct, check_positive, did_you_mean, shown
from jaxarch.lab.harness import Context, Experiment, ExperimentSettings, Outcome, Results, finding, tables
from jaxarch.lab.harness.parts import SETTINGS, file_name
from jaxarch.lab.pruning.parents import in_words
from jaxarch.lab.tournament.entrants import ENTRANTS
from jaxarch.lab.tournament.names import explain
from jaxarch.lab.tournament.own import FAMILY
from jaxarch.metrics import AcrossTasks, across_tasks, regret

STORED = tuple(
    f"docs/results/tournament_{name}" for name in ("digits", "digits_cnn", "citeseer", "mnist", "shakespeare")
)
"""Folders of a checkout with most methods, read if the user names none."""
REGRETS, DIFFERENCES = "regrets.csv", "differences.csv"
_OWN = re.compile(r"own-(.+)-([0-9a-f]{8})")
"""File name of the results of a user's own method: its name and the digest of its file."""


@dataclasses.dataclass(frozen=True)
class AcrossTasksSettings(ExperimentSettings):
    """Settings of `jaxarch run tournament.across_tasks`, changed with `--set NAME=VALUE`.

    Attributes:
      folders: folders that tournaments were resumed in (`--set resume=`), one a task.
      reference: the method that all others are compared with; empty for the least mean regret of those that
        took part in every task.
      equivalent: a difference in accuracy up to this size makes no difference in practice.
      scale: median of the prior on the standard deviation of a difference between tasks.
    """

    folders: tuple[str, ...] = STORED
    reference: str = ""
    equivalent: float = 0.01
    scale: float = 0.05

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        if len(self.folders) < 2:
            raise ArgumentError(
                f"folders: expected two folders of `resume` or more, got {shown(self.folders)}"
            )
        check_distinct("folders", self.folders)
        check_positive("scale", self.scale)
        if not self.equivalent >= 0:
            raise ArgumentError(f"equivalent: expected at least 0, got {self.equivalent}")


class Stored(NamedTuple):
    """One task's results, as a folder of `resume` keeps them.

    Attributes:
      task: data, parent and budget in words.
      densities: the largest first.
      accuracy: by method, test accuracy of shape (seeds, densities).
    """

    task: str
    densities: tuple[float, ...]
    accuracy: Mapping[str, np.ndarray]


def stored(folder: str) -> Stored:
    """Read what the methods of a tournament found, from the folder that it was resumed in.

    Raises:
      ArgumentError: a folder that no tournament was resumed in, or fewer than two methods in it.
    """
    path = as_folder(folder, "folders")
    try:
        settings = json.loads((path / SETTINGS).read_text())
    except (OSError, ValueError):
        raise ArgumentError(
            f"folders: {shown(folder)} has no readable {SETTINGS}; expected a folder of "
            "`jaxarch run tournament --set resume=FOLDER`"
        ) from None
    if not isinstance(settings, dict) or settings.get("experiment") != "tournament":
        raise ArgumentError(f"folders: {shown(folder)} is of another experiment, not of tournament")
    try:
        densities, seeds = tuple(map(float, settings["densities"])), int(settings["seeds"])
        budget = "" if settings["budget"] == "equal" else f", budget {settings['budget']}"
        task = f"{settings['dataset']}, {in_words(settings)}{budget}"
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(f"folders: {shown(folder)}: {SETTINGS} is damaged ({error!r})") from None
    names = {file_name(name): name for name in ENTRANTS}
    accuracy = {}
    for file in sorted(path.glob("*.npz")):
        own = _OWN.fullmatch(file.stem)
        name = f"{own[1]} ({own[2]})" if own else names.get(file.stem)
        if name is not None:
            accuracy[name] = _accuracy(file, len(densities), seeds)
    if len(accuracy) < 2:
        raise ArgumentError(f"folders: {shown(folder)} has {len(accuracy)} methods; expected two or more")
    return Stored(task, densities, accuracy)


def _accuracy(file: Path, densities: int, seeds: int) -> np.ndarray:
    """Read the accuracies of a method, shape (seeds, densities)."""
    found = read_npz(file, "folders").get("accuracy")
    if found is None or found.shape != (densities * seeds,):
        raise ArgumentError(
            f"folders: {shown(str(file))} has no accuracies of {densities} densities and {seeds} seeds"
        )
    return found.reshape(densities, seeds).T


def _tasks(settings: AcrossTasksSettings) -> list[Stored]:
    """Read all folders.

    Raises:
      ArgumentError: also two folders of one task; a reference that took part in fewer than two tasks.
    """
    found = [stored(folder) for folder in settings.folders]
    names = [one.task for one in found]
    for folder, name in zip(settings.folders, names, strict=True):
        if names.count(name) > 1:
            raise ArgumentError(
                f"folders: {shown(folder)} has the task of another folder, {name}; leave one out"
            )
    if settings.reference:
        of = [name for one in found for name in one.accuracy]
        if of.count(settings.reference) < 2:
            raise ArgumentError(
                f"reference: {shown(settings.reference)} took part in fewer than two tasks; "
                f"{did_you_mean(settings.reference, dict.fromkeys(of))}"
            )
    return found


def plan(settings: AcrossTasksSettings) -> list[str]:
    """Describe what is stored; nothing is trained."""
    return [
        f"{one.task}: {len(one.accuracy)} methods at densities "
        f"{', '.join(f'{density:g}' for density in one.densities)}, "
        f"{len(next(iter(one.accuracy.values())))} seeds"
        for one in _tasks(settings)
    ]


def run(settings: AcrossTasksSettings, context: Context) -> Outcome:
    """Compute the regrets of all methods, and compare them with the reference over tasks."""
    found = _tasks(settings)
    table = pd.concat([_runs(one) for one in found], ignore_index=True)
    regrets = pd.concat([_regrets(one) for one in found], ignore_index=True)
    mean = mean_regrets(regrets)
    reference = settings.reference or str(mean.index[0])
    differences = _differences(found, reference, settings)
    regretted = [finding(f"mean regret of {name} over {len(found)} tasks", of) for name, of in mean.items()]
    compared = [
        finding(f"accuracy of {row.method} minus {reference}, mean over {row.tasks} tasks", row.mean)
        for row in differences.itertuples()
    ]
    return Outcome(
        table,
        [*regretted, *compared],
        tables={REGRETS: regrets, DIFFERENCES: differences},
        facts={"reference": reference},
    )


def _runs(one: Stored) -> pd.DataFrame:
    """Return one row a method, seed and density."""
    rows = []
    for name, accuracy in one.accuracy.items():
        seeds, densities = accuracy.shape
        rows.append(
            pd.DataFrame(
                {
                    "task": one.task,
                    "strategy": name,
                    "family": _family(name),
                    "density": np.tile(one.densities, seeds),
                    "seed": np.repeat(np.arange(seeds), densities),
                    "accuracy": accuracy.ravel(),
                }
            )
        )
    return pd.concat(rows, ignore_index=True)


def _family(name: str) -> str:
    return ENTRANTS[name].family if name in ENTRANTS else FAMILY


def _regrets(one: Stored) -> pd.DataFrame:
    """Return one row a method and density of a task."""
    rows = [
        {"task": one.task, "strategy": name, "family": _family(name), "density": density, "regret": value}
        for name, of in regret(one.accuracy).items()
        for density, value in zip(one.densities, of, strict=True)
    ]
    return pd.DataFrame(rows)


def mean_regrets(regrets: pd.DataFrame) -> pd.Series:
    """Average the regrets of the methods that took part in every task, over densities, then over tasks.

    Raises:
      ArgumentError: no method took part in every task.
    """
    took_part = regrets.groupby("strategy")["task"].nunique() == regrets["task"].nunique()
    by_task = regrets.groupby(["strategy", "task"])["regret"].mean()
    # Where all methods failed there is nothing to regret, so such a task counts for none.
    everywhere = by_task.groupby("strategy").mean()[took_part]
    if everywhere.empty:
        raise ArgumentError("folders: no method took part in every task, so no mean regret can be compared")
    return everywhere.sort_values(kind="stable")


def _differences(found: list[Stored], reference: str, settings: AcrossTasksSettings) -> pd.DataFrame:
    """Compare each method with the reference over the tasks of both, by the means over densities."""
    rows = []
    others = dict.fromkeys(name for one in found for name in one.accuracy if name != reference)
    for name in others:
        both = [one for one in found if {name, reference} <= set(one.accuracy)]
        # A failed run has no mean; it counts in the regrets.
        of = {one.task: (one.accuracy[name] - one.accuracy[reference]).mean(axis=1) for one in both}
        of = {task: runs for task, runs in of.items() if np.isfinite(runs).sum() > 1}
        if len(of) > 1:
            compared = across_tasks(of, settings.equivalent, settings.scale)
            rows.append({"method": name, **dataclasses.asdict(compared)})
    columns = ["method", *(field.name for field in dataclasses.fields(AcrossTasks))]
    return pd.DataFrame(rows, columns=columns)


def conclusion(results: Results) -> Iterable[str]:
    """Name the method of the least mean regret, its worst cell, and the nearest rival on a new task."""
    regrets, differences = results.read(REGRETS), results.read(DIFFERENCES)
    mean = mean_regrets(regrets)
    best = str(mean.index[0])
    of_best = regrets[regrets["strategy"] == best]
    worst = of_best.loc[of_best["regret"].idxmax()]
    yield (
        f"Over {regrets['task'].nunique()} tasks, {best} has the least mean regret of the {len(mean)} "
        f"methods that took part in each: {mean.iloc[0]:.3f} (a median's distance to the best one, averaged "
        f"over densities, then tasks). Its largest is {worst['regret']:.3f}, at density "
        f"{worst['density']:g} on {worst['task']}."
    )
    if not differences.empty:
        rival = differences.loc[differences["mean"].idxmax()]
        equivalent = results.settings["equivalent"]
        yield (
            f"Among the others, {rival['method']} comes closest to {results.manifest['reference']}, or "
            f"surpasses it the most: {rival['mean']:+.3f} [{rival['low']:+.3f}, {rival['high']:+.3f}] (mean "
            f"over {rival['tasks']} tasks, 95%). On a new task it is ahead by more than {equivalent:g} with "
            f"probability {rival['better']:.2f}, and behind by more with {rival['worse']:.2f}."
        )


def report(results: Results) -> list[RenderableType]:
    """Draw the map of regrets, and tabulate regrets and differences."""
    regrets, differences = results.read(REGRETS), results.read(DIFFERENCES)
    mean = mean_regrets(regrets)
    anywhere = regrets.groupby("strategy")["regret"].mean().sort_values(kind="stable")
    # Methods that some task lacks come after those that can be compared.
    order = [*map(str, mean.index), *(str(name) for name in anywhere.index if name not in mean.index)]
    results.draw(plots.regrets(_groups(regrets, order)), "regrets")
    return [_table(regrets, differences, mean, order, results), *explain(order)]


def _groups(regrets: pd.DataFrame, order: list[str]) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Arrange the regrets for the figure: by family, method, task and density."""
    groups: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for name in order:
        of = regrets[regrets["strategy"] == name]
        tasks = {
            str(task).replace(", ", "\n", 1): {
                f"{row.density:g}".lstrip("0"): row.regret for row in rows.itertuples()
            }
            for task, rows in of.groupby("task", sort=False)
        }
        groups.setdefault(str(of["family"].iloc[0]), {})[name] = tasks
    return groups


def _table(
    regrets: pd.DataFrame, differences: pd.DataFrame, mean: pd.Series, order: list[str], results: Results
) -> tables.Table:
    """Tabulate the regrets of each method, and its difference to the reference on a new task."""
    tasks, reference = regrets["task"].nunique(), results.manifest["reference"]
    compared = differences.set_index("method").to_dict("index")
    rows = []
    for name in order:
        of = regrets[regrets["strategy"] == name]
        one = compared.get(name)
        cells = ["-"] * 5
        if one is not None:
            cells = [
                f"{tables.signed(one['mean'], '.3f')} [{one['low']:+.3f} {one['high']:+.3f}]",
                f"{one['spread']:.3f}",
                *(f"{one[column]:.2f}" for column in ("better", "alike", "worse")),
            ]
        rows.append(
            (
                name,
                f"{of['task'].nunique()} of {tasks}",
                tables.number(float(mean.get(name, np.nan)), ".3f"),
                tables.number(float(of["regret"].max()), ".3f"),
                *cells,
            )
        )
    equivalent = results.settings["equivalent"]
    columns = (
        "method",
        "tasks",
        "mean regret",
        "largest",
        f"minus {reference}",
        "between tasks",
        f"better by {equivalent:g}",
        "alike",
        "worse",
    )
    return tables.table(
        "regrets of medians; differences in accuracy over tasks (mean [95%], standard deviation between "
        "tasks), and what they are on a new task, as probabilities",
        columns,
        rows,
    )


EXPERIMENT = Experiment(__name__, AcrossTasksSettings, plan, run, report, conclusion, trains=False)

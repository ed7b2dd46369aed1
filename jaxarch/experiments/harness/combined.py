"""Runs of several result folders as one result: the same experiment and settings, other keys."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jaxarch.errors import ArgumentError, shown
from jaxarch.experiments.harness.experiment import Experiment
from jaxarch.experiments.harness.results import Results
from jaxarch.experiments.harness.written import write

COMBINED = "combined"
"""The entry of a manifest that says whose runs were combined, and where they are in the tables."""
APART = ("key", "seeds", "resume", "devices", "at_once")
"""Settings in which folders may differ: which runs they are of, where these go on from, how they spread."""
OF_THE_DATA = ("data", "pictures", "own file", "chance")
"""Entries of a manifest that are the same wherever the data are, and the user's own methods."""


def combine_in(folder: Path, experiment: Experiment, parts: Sequence[Results]) -> None:
    """Write the runs of several folders to one, with the statistics of all of them together.

    Seeds are numbered on, folder by folder; the entry `combined` of the manifest says whose they were.

    Args:
      folder: where all is written.
      experiment: whose runs they are.
      parts: the folders, as `check_combinable` takes them.

    Raises:
      ArgumentError: folders that cannot be combined.
    """
    started = time.time()
    settings = check_combinable(experiment, parts)
    assert experiment.statistics is not None
    counts = [part.settings["seeds"] for part in parts]
    firsts = np.cumsum([0, *counts[:-1]]).tolist()

    def joined(read: Callable[[Results], pd.DataFrame]) -> pd.DataFrame:
        tables = [read(part) for part in parts]
        moved = [
            table.assign(seed=table["seed"] + first) for table, first in zip(tables, firsts, strict=True)
        ]
        return pd.concat(moved, ignore_index=True)

    runs = joined(lambda part: part.table.drop(columns="experiment"))
    further = {
        name: joined(lambda part, name=name: part.read(name))  # type: ignore[misc]
        for name in experiment.run_tables
        if (parts[0].folder / name).exists()
    }
    outcome = experiment.statistics(settings, runs, further)
    costs = {
        f"{name}, {shown(part.folder)}": cost
        for part in parts
        for name, cost in part.manifest.get("costs", {}).items()
    }
    write(
        folder,
        experiment,
        dataclasses.replace(outcome, facts={**_of_the_data(parts[0]), **outcome.facts}, costs=costs),
        dataclasses.asdict(settings) | {"key": [key for part in parts for key in _keys(part)]},
        started,
        **{COMBINED: [line for part, first in zip(parts, firsts, strict=True) for line in _of(part, first)]},
    )


def check_combinable(experiment: Experiment, parts: Sequence[Results]) -> Any:
    """The settings of all runs together, with the key of the first.

    Raises:
      ArgumentError: an experiment whose runs cannot be combined; fewer than two folders; one of another
        experiment or release, with other settings or data, or with a key that another one has, and so the
        same runs.
    """
    if experiment.statistics is None:
        from jaxarch.experiments import catalogue

        able = [name for name in catalogue.EXPERIMENTS if catalogue.experiment(name).statistics is not None]
        raise ArgumentError(
            f"folders: runs of {experiment.name} cannot be combined; those of {', '.join(able)} can"
        )
    if len(parts) < 2:
        raise ArgumentError("folders: expected two or more to combine")
    first, *others = parts
    if first.settings.get("tune"):
        raise ArgumentError("tune: each folder has chosen settings of its own; combine runs without it")
    for other in others:
        _check_alike(first, other)
    seen: dict[int, Results] = {}
    for part in parts:
        for key in _keys(part):
            if key in seen:
                raise ArgumentError(
                    f"key: {shown(seen[key].folder)} and {shown(part.folder)} both have key {key}, and so "
                    "the same runs; give each run a key of its own: --set key=N"
                )
            seen[key] = part
    kept = {name: tuple(v) if isinstance(v, list) else v for name, v in first.settings.items()}
    seeds = sum(part.settings["seeds"] for part in parts)
    return experiment.settings(**kept | {"key": _keys(first)[0], "seeds": seeds, "resume": ""})


def _check_alike(first: Results, other: Results) -> None:
    """Raise unless two folders differ in nothing but which runs they are of, and where these were made."""
    names = f"{shown(first.folder)} and {shown(other.folder)}"
    experiments = [part.manifest["experiment"] for part in (first, other)]
    if experiments[0] != experiments[1]:
        raise ArgumentError(f"folders: {names} are of different experiments: {' and '.join(experiments)}")
    for what, ours, theirs in (
        ("release of jaxarch", _release(first), _release(other)),
        ("settings", _without(first.settings, APART), _without(other.settings, APART)),
        ("data", _of_the_data(first), _of_the_data(other)),
    ):
        differing = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        if differing:
            name = differing[0]
            raise ArgumentError(
                f"folders: {names} differ in {what}: {name} is {shown(ours.get(name))} in the one and "
                f"{shown(theirs.get(name))} in the other"
            )


def _release(part: Results) -> dict[str, Any]:
    return {"jaxarch": part.manifest.get("jaxarch")}


def _of_the_data(part: Results) -> dict[str, Any]:
    return {name: part.manifest[name] for name in OF_THE_DATA if name in part.manifest}


def _without(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _keys(part: Results) -> list[int]:
    """Of the runs of a folder: several, where it is one of combined runs."""
    key = part.settings["key"]
    return key if isinstance(key, list) else [key]


def _of(part: Results, first: int) -> list[dict[str, Any]]:
    """Whose the runs of a folder were, and the first seed that they have now."""
    if COMBINED in part.manifest:
        return [line | {"first_seed": line["first_seed"] + first} for line in part.manifest[COMBINED]]
    told = ("command", "git_commit", "devices", "versions", "wall_seconds")
    return [
        {
            "folder": str(part.folder),
            "key": part.settings["key"],
            "seeds": part.settings["seeds"],
            "first_seed": first,
            **{name: part.manifest[name] for name in told if name in part.manifest},
        }
    ]

"""Combine the runs of several result folders: same experiment, settings and data, different keys."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from jaxarch import ArgumentError
from jaxarch.lab import results
from jaxarch.lab.checks import shown
from jaxarch.lab.harness.experiment import Experiment, Outcome
from jaxarch.lab.harness.results import Results

COMBINED = "combined"
"""Entry of a manifest with the manifests of the combined folders."""
APART = ("key", "seeds", "resume", "devices", "max_parallel_runs", "own")
"""Settings in which folders may differ: keys and seeds, how runs are spread, where a file is."""
INPUTS = ("data", "pictures", "own file", "chance")
"""Entries of a manifest that come from the data or from the user's own methods."""
CIRCUMSTANCES = ("git_commit", "python", "platform", "versions", "devices")
"""Entries of a manifest about the machine and software that made a run."""


class Combined(NamedTuple):
    """Combined result of several folders, as arguments of `written.write`.

    Attributes:
      outcome: the statistics of all runs.
      settings: the settings of all runs, with a list of keys.
      facts: shared circumstances, total time, and the manifests of the folders.
    """

    outcome: Outcome
    settings: dict[str, Any]
    facts: dict[str, Any]


def combined(experiment: Experiment, parts: Sequence[Results]) -> Combined:
    """Combine the runs of several folders and compute their statistics; seeds are renumbered consecutively.

    Args:
      experiment: the experiment of the runs.
      parts: the folders.

    Raises:
      ArgumentError: an experiment whose runs cannot be combined; fewer than two folders. Also a folder of
        another experiment or release, with other settings or data, or with a key that occurs twice (equal
        keys give equal runs).
    """
    _check(experiment, parts)
    assert experiment.statistics is not None
    first = parts[0].manifest
    counts = [part.settings["seeds"] for part in parts]
    begins = np.cumsum([0, *counts[:-1]]).tolist()

    def joined(name: str) -> pd.DataFrame:
        tables = [part.read(name) for part in parts]
        moved = [
            table.assign(seed=table["seed"] + begin) for table, begin in zip(tables, begins, strict=True)
        ]
        return pd.concat(moved, ignore_index=True)

    kept = {name: tuple(v) if isinstance(v, list) else v for name, v in _compared(parts[0]).items()}
    own = {"own": first["settings"]["own"]} if "own" in first["settings"] else {}
    keys = [key for part in parts for key in _keys(part)]
    settings = experiment.settings(**kept, **own, key=keys[0], seeds=sum(counts))
    further = [name for name in experiment.run_tables if (parts[0].folder / name).exists()]
    # `write` inserts the column of the experiment again.
    runs = joined(results.RESULTS).drop(columns="experiment")
    outcome = experiment.statistics(settings, runs, {name: joined(name) for name in further})
    facts = {name: value for name, value in first.items() if name in INPUTS}
    for name in CIRCUMSTANCES:
        values = [part.manifest.get(name) for part in parts]
        facts[name] = values[0] if all(value == values[0] for value in values) else None
    told = [line for part, begin in zip(parts, begins, strict=True) for line in _manifests(part, begin)]
    facts |= {"wall_seconds": sum(line["wall_seconds"] for line in told), COMBINED: told}
    return Combined(outcome, vars(settings) | {"key": keys}, facts)


def _check(experiment: Experiment, parts: Sequence[Results]) -> None:
    if experiment.statistics is None:
        from jaxarch.lab.harness import catalogue

        able = [name for name in catalogue.EXPERIMENTS if catalogue.experiment(name).statistics is not None]
        raise ArgumentError(
            f"folders: runs of {experiment.name} cannot be combined; those of {', '.join(able)} can"
        )
    if len(parts) < 2:
        raise ArgumentError("folders: expected two or more to combine")
    here = importlib.metadata.version("jaxarch")
    for part in parts:
        if (release := part.manifest.get("jaxarch")) != here:
            raise ArgumentError(
                f"folders: {shown(part.folder)} is of jaxarch {shown(release)}, and this is {here}"
            )
        _check_alike(parts[0], part)
        if part.settings.get("tune"):
            raise ArgumentError("tune: each folder has chosen settings of its own; combine runs without it")
    seen: dict[int, Results] = {}
    for part in parts:
        for key in _keys(part):
            if key not in seen:
                seen[key] = part
            elif seen[key].folder.resolve() == part.folder.resolve():
                raise ArgumentError(f"folders: {shown(part.folder)} is given twice")
            else:
                raise ArgumentError(
                    f"key: {shown(seen[key].folder)} and {shown(part.folder)} both have key {key}, and so "
                    "the same runs; give each run a key of its own: --set key=N"
                )


def _check_alike(first: Results, other: Results) -> None:
    """Raise unless two folders agree in experiment, settings (except those in `APART`) and data."""
    names = f"{shown(first.folder)} and {shown(other.folder)}"
    experiments = [part.manifest["experiment"] for part in (first, other)]
    if experiments[0] != experiments[1]:
        raise ArgumentError(f"folders: {names} are of different experiments: {' and '.join(experiments)}")

    def inputs(part: Results) -> dict[str, Any]:
        return {name: value for name, value in part.manifest.items() if name in INPUTS}

    compared: dict[str, Callable[[Results], Mapping[str, Any]]] = {"settings": _compared, "data": inputs}
    for what, of in compared.items():
        ours, theirs = of(first), of(other)
        for name in {**ours, **theirs}:
            if ours.get(name) != theirs.get(name):
                raise ArgumentError(
                    f"folders: {names} differ in {what}: {name} is {shown(ours.get(name))} in the one and "
                    f"{shown(theirs.get(name))} in the other"
                )


def _compared(part: Results) -> dict[str, Any]:
    """Return the settings in which all folders must agree."""
    return {name: value for name, value in part.settings.items() if name not in APART}


def _keys(part: Results) -> list[int]:
    """Return the keys of the runs in a folder; a folder of combined runs has several."""
    key = part.settings["key"]
    return key if isinstance(key, list) else [key]


def _manifests(part: Results, begin: int) -> list[dict[str, Any]]:
    """Return the manifests of a folder's runs without shared entries, each with its new first seed."""
    if COMBINED in part.manifest:
        return [line | {"first_seed": line["first_seed"] + begin} for line in part.manifest[COMBINED]]
    left_out = ("experiment", "settings", *INPUTS)
    own = {name: value for name, value in part.manifest.items() if name not in left_out}
    apart = {name: part.settings[name] for name in APART if name in part.settings}
    folder = str(Path(part.folder).resolve())
    return [{"folder": folder, "first_seed": begin, "settings": apart, **own}]

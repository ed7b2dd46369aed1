"""What every experiment leaves in its folder, and what its report says of how the runs went."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from jaxarch import results
from jaxarch.data.dataset import Dataset


def write(
    folder: Path,
    experiment: str,
    settings: Any,
    started: float,
    table: pd.DataFrame,
    findings: Iterable[Mapping[str, Any]],
    data: Dataset | None = None,
    **facts: Any,
) -> None:
    """Write results.csv, findings.csv and the manifest.

    Args:
      folder: that all is written to.
      experiment: its name.
      settings: a dataclass. If it has a `key`, the manifest says which one all keys derive from.
      started: when the experiment began, as of `time.time`.
      table: of results, without the experiment's name.
      findings: lines as of `results.finding`.
      data: that the experiment was run on, if it was given any.
      **facts: for the manifest: `costs`, for instance.
    """
    table.insert(0, "experiment", experiment)
    table.to_csv(folder / results.RESULTS, index=False)
    results.write_findings(folder, findings)
    if hasattr(settings, "key"):
        facts["key"] = results.key_description(settings.key)
    if data is not None:
        facts["data"] = {"name": data.name, "sha256": results.digest(data.x, data.y)}
    manifest = results.manifest(
        dataclasses.asdict(settings),
        experiment=experiment,
        command=results.command_line(),
        wall_seconds=time.time() - started,
        **facts,
    )
    results.write_manifest(folder, manifest)


def costs(done: dict[str, Any]) -> dict[str, Any]:
    """What running the strategies took, and what happened on the way, for a manifest."""
    return {
        "vmap_width": {name: report.width for name, (_, report) in done.items()},
        "compile_seconds": {name: report.compile_seconds for name, (_, report) in done.items()},
        "notes": {name: report.notes for name, (_, report) in done.items() if report.notes},
    }


def notes(costs: Iterable[dict[str, Any]]) -> list[str]:
    """What happened in training, out of the costs that a manifest has, as lines of a report."""
    return [f"! {note}" for cost in costs for of_strategy in cost["notes"].values() for note in of_strategy]


def failures(groups: Iterable[tuple[str, pd.DataFrame]]) -> list[str]:
    """How many runs of each group failed, as lines of a report."""
    counts = [(name, int((runs["failed_at"] >= 0).sum()), len(runs)) for name, runs in groups]
    return [
        f"! {name}: {failed} of {runs} runs met NaN or infinity; they are left out"
        for name, failed, runs in counts
        if failed
    ]

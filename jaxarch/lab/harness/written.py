"""Write an experiment's outcome to a folder: tables, arrays, findings, and a manifest of them all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxarch.io import digest, save_tree
from jaxarch.lab import results
from jaxarch.lab.harness.experiment import Experiment, Outcome


def write(
    folder: Path,
    experiment: Experiment,
    outcome: Outcome,
    settings: Mapping[str, Any],
    **facts: Any,
) -> None:
    """Write an outcome to a folder; files of the same names are replaced.

    Args:
      folder: the folder to write to.
      experiment: the experiment of the outcome.
      outcome: the outcome.
      settings: the settings of the run, for the manifest.
      **facts: further entries of the manifest, such as `wall_seconds`.

    Raises:
      OSError: a folder that cannot be written to.
    """
    for name, table in outcome.tables.items():
        table.to_csv(folder / name, index=False)
    for name, arrays in outcome.arrays.items():
        save_tree(folder / name, arrays)
    runs = outcome.table.copy()
    runs.insert(0, "experiment", experiment.name)
    runs.to_csv(folder / results.RESULTS, index=False)
    results.write_findings(folder, outcome.findings)
    manifest = results.manifest(
        settings,
        experiment=experiment.name,
        command=results.command_line(),
        **_facts(outcome),
        **facts,
    )
    results.write_manifest(folder, manifest)


def _facts(outcome: Outcome) -> dict[str, Any]:
    facts = dict(outcome.facts)
    if outcome.costs:
        facts["costs"] = outcome.costs
    if (data := outcome.data) is not None:
        facts["data"] = {"name": data.name, "sha256": digest(data.x, data.y)}
    return facts

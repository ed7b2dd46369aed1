"""How experiments are run: their settings are checked, what they found is written, reports are drawn."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from jaxarch import results
from jaxarch.errors import ArgumentError, shown
from jaxarch.experiments.harness.experiment import Context, Experiment, Outcome
from jaxarch.experiments.harness.parts import check_parts
from jaxarch.experiments.harness.results import Results
from jaxarch.running.options import Progress
from jaxarch.storage import save_tree


def plan_of(experiment: Experiment, settings: Any) -> list[str]:
    """What would be compiled and trained, in lines.

    Raises:
      ArgumentError: settings that cannot be used.
    """
    return experiment.plan(_ready(settings))


def check_resumed(experiment: Experiment, settings: Any) -> None:
    """Raise if a run would refuse the folder of the setting `resume`, and leave it as it is."""
    check_parts(_ready(settings), experiment.name)


def time_of(experiment: Experiment, settings: Any) -> list[str]:
    """How long it would take here, in lines; none where it cannot take long."""
    return [] if experiment.estimate is None else experiment.estimate(_ready(settings))


def run_in(
    folder: Path,
    experiment: Experiment,
    settings: Any,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Run an experiment, and write what it found to a folder: tables, arrays, findings and the manifest.

    Args:
      folder: where all is written; what is there under the same names is replaced.
      experiment: what to run.
      settings: its settings.
      progress: called at the chunk borders of every training.

    Raises:
      ArgumentError: settings that cannot be used; a folder that cannot be written to in the end, of a disk
        that is full: all that was found is then in a temporary folder, which the message names.
    """
    started = time.time()
    settings = _ready(settings)
    outcome = experiment.run(settings, Context(experiment.name, settings, progress))
    try:
        _write(folder, experiment, outcome.settings or settings, outcome, started)
    except OSError as error:
        elsewhere = Path(tempfile.mkdtemp(prefix="jaxarch-"))
        try:
            _write(elsewhere, experiment, outcome.settings or settings, outcome, started)
        except OSError:
            shutil.rmtree(elsewhere, ignore_errors=True)
            raise error from None
        raise ArgumentError(
            f"results: they could not be written where they belong ({error.strerror}); they are in "
            f"{shown(elsewhere, 200)}"
        ) from error


def _write(folder: Path, experiment: Experiment, settings: Any, outcome: Outcome, started: float) -> None:
    for name, table in outcome.tables.items():
        table.to_csv(folder / name, index=False)
    for name, arrays in outcome.arrays.items():
        save_tree(folder / name, arrays)
    runs = outcome.table.copy()
    runs.insert(0, "experiment", experiment.name)
    runs.to_csv(folder / results.RESULTS, index=False)
    results.write_findings(folder, outcome.findings)
    manifest = results.manifest(
        dataclasses.asdict(settings),
        experiment=experiment.name,
        command=results.command_line(),
        wall_seconds=time.time() - started,
        **_facts(settings, outcome),
    )
    results.write_manifest(folder, manifest)


def report_on(folder: Path, experiment: Experiment) -> list[RenderableType]:
    """The tables of an experiment from the files of a folder; its figures are drawn there again.

    Raises:
      ArgumentError: a folder that lacks a file.
    """
    return list(experiment.report(Results(folder)))


def _ready(settings: Any) -> Any:
    settings = settings.complete()
    settings.check()
    return settings


def _facts(settings: Any, outcome: Outcome) -> dict[str, Any]:
    facts = dict(outcome.facts)
    if outcome.costs:
        facts["costs"] = outcome.costs
    if hasattr(settings, "key"):
        facts["key"] = results.key_description(settings.key)
    if (data := outcome.data) is not None:
        facts["data"] = {"name": data.name, "sha256": results.digest(data.x, data.y)}
    return facts

"""Functions that run experiments: they check settings, run, and write outcomes."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from jaxarch import ArgumentError, Progress
from jaxarch.lab import results
from jaxarch.lab.checks import shown
from jaxarch.lab.harness.experiment import Context, Experiment
from jaxarch.lab.harness.memory import first_memory
from jaxarch.lab.harness.parts import check_parts
from jaxarch.lab.harness.spread import Spread
from jaxarch.lab.harness.written import write


def plan_of(experiment: Experiment, settings: Any) -> list[str]:
    """Return lines that say what would be compiled and trained.

    Raises:
      ArgumentError: settings that cannot be used.
    """
    return experiment.plan(_ready(settings))


def check_resumed(experiment: Experiment, settings: Any) -> None:
    """Raise if a run would refuse the folder of the setting `resume`; change nothing in it."""
    check_parts(_ready(settings), experiment.name)


def memory_of(experiment: Experiment, settings: Any) -> list[str]:
    """Return lines on the memory of the first training on each device; none if nothing is trained."""
    return first_memory(experiment, _ready(settings))


def time_of(experiment: Experiment, settings: Any) -> list[str]:
    """Return lines on the time that a run would take here; none if it cannot take long."""
    return [] if experiment.estimate is None else experiment.estimate(_ready(settings))


def run_in(
    folder: Path,
    experiment: Experiment,
    settings: Any,
    progress: Callable[[Progress], None] | None = None,
    executor: Executor | Callable[[], Executor] | None = None,
) -> None:
    """Run an experiment and write its outcome to a folder: tables, arrays, findings and the manifest.

    Args:
      folder: the folder to write to; files of the same names are replaced.
      experiment: what to run.
      settings: its settings.
      progress: called at the end of every chunk of every training.
      executor: makes the experiment's parts in other processes: any executor with the interface of
        `concurrent.futures`, or a function without arguments that makes one; see docs/over_a_cluster.md.

    Raises:
      ArgumentError: settings that cannot be used; a folder that cannot be written to in the end, for example
        because the disk is full. The outcome is then in a temporary folder, which the message names.
    """
    started = time.time()
    settings = _ready(settings)
    spread = None
    if executor is not None:
        check_spreads(experiment)
        spread = Spread(executor)
    outcome = experiment.run(settings, Context(experiment.name, settings, progress, spread=spread))
    if spread is not None:
        outcome = dataclasses.replace(outcome, facts={**outcome.facts, "cluster": spread.facts()})
    settings = outcome.settings or settings
    said = dataclasses.asdict(settings)
    facts: dict[str, Any] = {"wall_seconds": time.time() - started}
    if hasattr(settings, "key"):
        facts["key"] = results.key_description(settings.key)
    try:
        write(folder, experiment, outcome, said, **facts)
    except OSError as error:
        elsewhere = Path(tempfile.mkdtemp(prefix="jaxarch-"))
        try:
            write(elsewhere, experiment, outcome, said, **facts)
        except OSError:
            shutil.rmtree(elsewhere, ignore_errors=True)
            raise error from None
        raise ArgumentError(
            f"results: they could not be written where they belong ({error.strerror}); they are in "
            f"{shown(elsewhere, 200)}"
        ) from error


def check_spreads(experiment: Experiment) -> None:
    """Raise unless other processes can make an experiment's parts.

    Raises:
      ArgumentError: names the experiments whose parts other processes can make.
    """
    if not experiment.spreads:
        from jaxarch.lab.harness import catalogue

        others = ", ".join(name for name in catalogue.EXPERIMENTS if catalogue.experiment(name).spreads)
        raise ArgumentError(
            f"cluster: {experiment.name} is made by one process; the experiments with parts that others can "
            f"make are {others}"
        )


def _ready(settings: Any) -> Any:
    settings = settings.complete()
    settings.check()
    return settings

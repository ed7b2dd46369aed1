"""Experiments: settings, a plan, a run from settings to an outcome, a report on the results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import pandas as pd
from rich.console import RenderableType

from jaxarch import Progress, PyTree, RunPlan
from jaxarch.lab.charts import Chart
from jaxarch.lab.data import Dataset
from jaxarch.lab.harness.parts import Parts, file_name
from jaxarch.lab.harness.results import Results
from jaxarch.lab.harness.settings import checkpoints, devices
from jaxarch.lab.harness.spread import Spread


@dataclasses.dataclass(frozen=True)
class Context:
    """Run context: progress, checkpoints, and the executor of parts.

    Attributes:
      experiment: the name of the experiment that is run.
      settings: its settings.
      progress: called with a `Progress` at the end of every chunk of a training; or `None`.
      folder: a subfolder of the setting `resume`, for the checkpoints of one part.
      spread: the executor that makes the parts, if it is not this process.
    """

    experiment: str
    settings: Any
    progress: Callable[[Progress], None] | None = None
    folder: str = ""
    spread: Spread | None = None

    @cached_property
    def options(self) -> dict[str, Any]:
        """Options of `over_seeds` and `compare`: progress, checkpoints, devices.

        Raises:
          ArgumentError: the folder was begun by another experiment, or with other settings.
        """
        folder = self._parts.folder
        where = "" if folder is None else str(folder / self.folder)
        return {"progress": self.progress, "checkpoint": checkpoints(where), "devices": devices()}

    def within(self, title: str) -> Context:
        """Return the context of one of many tasks: its title in the progress, its checkpoints apart."""
        _ = self._parts  # Claim the whole folder for this run, not only the task's subfolder.
        progress = None if self.progress is None else _Titled(self.progress, title)
        return dataclasses.replace(self, progress=progress, folder=file_name(title))

    def doing(self, words: str) -> None:
        """Let the progress show what is waited for, until something else begins."""
        if self.progress is not None and hasattr(self.progress, "doing"):
            self.progress.doing(words)

    @cached_property
    def _parts(self) -> Parts:
        """Claim on the folder of the setting `resume`, for this experiment with these settings only."""
        return Parts(self.settings, experiment=self.experiment)


@dataclasses.dataclass(frozen=True)
class _Titled:
    """Progress callback that puts the title of a task before the names of its trainings."""

    told: Callable[[Progress], None]
    title: str

    def __call__(self, told: Progress) -> None:
        self.told(dataclasses.replace(told, name=f"{self.title}: {told.name}"))

    def begins(self, plan: RunPlan) -> None:
        if hasattr(self.told, "begins"):
            self.told.begins(dataclasses.replace(plan, name=f"{self.title}: {plan.name}"))

    def doing(self, words: str) -> None:
        if hasattr(self.told, "doing"):
            self.told.doing(words and f"{self.title}: {words}")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Outcome of a run; the harness writes all of it.

    Attributes:
      table: results.csv, one row per run.
      findings: findings.csv, with lines made by `finding`.
      data: the data set of the experiment, if it was a single one; the manifest has its digest.
      costs: the result of `costs` for each training or task, for the manifest.
      tables: further tables, by file name.
      arrays: pytrees of arrays, by file name: masks, losses, weights.
      facts: further entries of the manifest.
      settings: the settings as used, if some of them were derived from the data.
    """

    table: pd.DataFrame
    findings: Iterable[Mapping[str, Any]]
    data: Dataset | None = None
    costs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = dataclasses.field(default_factory=dict)
    arrays: Mapping[str, PyTree] = dataclasses.field(default_factory=dict)
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: Any = None


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Experiment, such as a figure or table of a paper, for `plan_of`, `run_in` and `report_on`.

    Attributes:
      module: `__name__` of its module.
      settings: a frozen dataclass that extends `ExperimentSettings`; its defaults are the experiment's.
      plan: `settings -> lines`: what would be compiled and trained. Raises on bad settings; trains nothing.
      run: `(settings, context) -> outcome`. It writes nothing but checkpoints.
      report: `results -> tables`: redraws the figures of a folder, and makes its tables. A line that begins
        with `! ` is a warning, and is shown after all tables.
      conclusion: `results -> sentences`: the finding that a report opens with, one to three sentences. They
        give the numbers, with their spread and number of runs, and what these were compared with.
      estimate: `settings -> lines`: the time on this machine, measured on a few steps; for long experiments.
      charts: `results -> charts`: the interactive charts for the page of a folder.
      statistics: `(settings, runs, tables) -> outcome`: the statistics over all runs, if tables suffice to
        compute them. `run` and the combination of folders both end with this call. `tables` has the files of
        `run_tables` that exist, by file name.
      run_tables: further tables with one or several rows per run.
      spreads: whether other processes can make its parts.
      trains: whether it trains by `over_seeds`; if so, `memory_of` measures its first training.
    """

    module: str
    settings: type
    plan: Callable[[Any], list[str]]
    run: Callable[[Any, Context], Outcome]
    report: Callable[[Results], Iterable[RenderableType]]
    conclusion: Callable[[Results], Iterable[str]]
    estimate: Callable[[Any], list[str]] | None = None
    charts: Callable[[Results], Iterable[Chart]] | None = None
    statistics: Callable[[Any, pd.DataFrame, Mapping[str, pd.DataFrame]], Outcome] | None = None
    run_tables: tuple[str, ...] = ()
    spreads: bool = False
    trains: bool = True

    @property
    def name(self) -> str:
        """Name in `jaxarch run NAME`: the path of its module within `jaxarch.lab`."""
        return self.module.removeprefix("jaxarch.lab.")

"""What an experiment is: settings, a plan, a run from settings to an outcome, a report on its results."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import pandas as pd
from rich.console import RenderableType

from jaxarch import Progress, PyTree, RunPlan
from jaxarch.lab.charts import Chart
from jaxarch.lab.data import Dataset
from jaxarch.lab.harness.parts import Parts
from jaxarch.lab.harness.results import Results
from jaxarch.lab.harness.settings import checkpoints, devices
from jaxarch.lab.harness.spread import Spread


@dataclasses.dataclass(frozen=True)
class Context:
    """What a run has beside what it is about: whom to tell how far it is, and where to go on from.

    Attributes:
      experiment: the name of the experiment that is run.
      settings: its settings.
      progress: called at every chunk's end of a training, with a `Progress`; or `None`.
      folder: a folder below that of the setting `resume`, for checkpoints of a part.
      spread: what makes the parts, where it is not this process.
    """

    experiment: str
    settings: Any
    progress: Callable[[Progress], None] | None = None
    folder: str = ""
    spread: Spread | None = None

    @cached_property
    def options(self) -> dict[str, Any]:
        """What `over_seeds` and `compare` are told: whom to tell of progress, where to keep checkpoints.

        Raises:
          ArgumentError: a folder that was begun by another experiment, or with other settings.
        """
        folder = self._parts.folder
        where = "" if folder is None else str(folder / self.folder)
        return {"progress": self.progress, "checkpoint": checkpoints(where), "devices": devices()}

    def within(self, title: str) -> Context:
        """The same for one of many tasks: its title is told, and its checkpoints are apart."""
        _ = self._parts  # The whole folder is this run's, and not the task's alone.
        progress = None if self.progress is None else _Titled(self.progress, title)
        return dataclasses.replace(self, progress=progress, folder=re.sub(r"\W+", "-", title))

    @cached_property
    def _parts(self) -> Parts:
        """What keeps the folder of the setting `resume` to this experiment with these settings."""
        return Parts(self.settings, experiment=self.experiment)


@dataclasses.dataclass(frozen=True)
class _Titled:
    """Tells whom it is given of the trainings of one task, by a title."""

    told: Callable[[Progress], None]
    title: str

    def __call__(self, told: Progress) -> None:
        self.told(dataclasses.replace(told, name=f"{self.title}: {told.name}"))

    def begins(self, plan: RunPlan) -> None:
        if hasattr(self.told, "begins"):
            self.told.begins(dataclasses.replace(plan, name=f"{self.title}: {plan.name}"))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a run found, all of which the harness writes.

    Attributes:
      table: results.csv, a row a run.
      findings: findings.csv, lines as of `finding`.
      data: what the experiment was run on, if it was one data set; the manifest has its digest.
      costs: by training or by task, what `costs` says of it; for the manifest.
      tables: further tables, by file name.
      arrays: pytrees of arrays, by file name: masks, losses, weights.
      facts: what else belongs in the manifest.
      settings: as they were used, where some could only be told from the data.
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
    """A figure or table of a paper, as something to run: `plan_of`, `run_in` and `report_on` do so.

    Attributes:
      module: `__name__` of the module that it is in.
      settings: a frozen dataclass, which extends `ExperimentSettings`; its defaults are the experiment's.
      plan: `settings -> lines`: what would be compiled and trained. Raises on bad settings; trains nothing.
      run: `(settings, context) -> outcome`. It writes nothing but checkpoints.
      report: `results -> tables`: draws the figures of a folder again, and makes its tables.
      estimate: `settings -> lines`: how long it would take here, measured on a few steps; of long ones.
      charts: `results -> charts`: what the page of a folder shows for the mouse.
      statistics: `(settings, runs, tables) -> outcome`: what runs say together, where tables are enough to
        say it. `run` ends with it, and so does combining several folders. `tables` are those of `run_tables`
        by file name, as far as there are any.
      run_tables: further tables that have a row a run, or several.
      spreads: whether other processes can make its parts.
      trains: whether it has trainings by `over_seeds`, of which the first is asked what it takes.
    """

    module: str
    settings: type
    plan: Callable[[Any], list[str]]
    run: Callable[[Any, Context], Outcome]
    report: Callable[[Results], Iterable[RenderableType]]
    estimate: Callable[[Any], list[str]] | None = None
    charts: Callable[[Results], Iterable[Chart]] | None = None
    statistics: Callable[[Any, pd.DataFrame, Mapping[str, pd.DataFrame]], Outcome] | None = None
    run_tables: tuple[str, ...] = ()
    spreads: bool = False
    trains: bool = True

    @property
    def name(self) -> str:
        """As in `jaxarch run NAME`: that of its module among the experiments."""
        return self.module.removeprefix("jaxarch.lab.")

"""What a run leaves in its folder, and what a report reads from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from jaxarch import ArgumentError, plots
from jaxarch.io import read_npz
from jaxarch.lab import results
from jaxarch.lab.checks import shown
from jaxarch.plots._descriptions import described
from jaxarch.run import Report


class Results:
    """The folder of a result as its report takes it: settings, manifest, tables, arrays.

    Args:
      folder: that a run was written to.
      figures: where figures are drawn; by default there.

    Attributes:
      drawn: the figures that were put there, by name: what they show, in words.

    Raises:
      ArgumentError: a folder that lacks a file which is asked for.
    """

    def __init__(self, folder: Path, figures: Path | None = None) -> None:
        self.folder = folder
        self._figures = figures
        self.drawn: dict[str, str] = {}

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest."""
        return results.read_manifest(self.folder)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the experiment was run with."""
        settings: dict[str, Any] = self.manifest["settings"]
        return settings

    @cached_property
    def table(self) -> pd.DataFrame:
        """results.csv."""
        return self.read(results.RESULTS)

    def read(self, name: str) -> pd.DataFrame:
        """Another table."""
        return results.read_table(self.folder, name)

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """A file of arrays, by their paths in the pytree that it was."""
        return read_npz(self.folder / name, "folder")

    @property
    def figures(self) -> Path:
        """The folder of the figures."""
        return self.folder if self._figures is None else self._figures

    def draw(self, figure: Figure, name: str) -> None:
        """Put a figure beside the tables, or where figures are drawn."""
        plots.save(figure, self.figures, name)
        self.drawn[name] = described(figure)

    def remarks(self, groups: Iterable[tuple[Any, pd.DataFrame]]) -> list[str]:
        """What a reader of the tables has to know: what happened in training, and which runs failed.

        Args:
          groups: the runs by what they are called.
        """
        return [*self._notes(), *failures(groups)]

    def _notes(self) -> Iterator[str]:
        # An experiment of one comparison has its costs in the manifest itself.
        parts = self.manifest.get("costs", {"": self.manifest})
        for cost in self._object("costs", parts).values():
            for notes in self._object("notes", self._object("costs", cost).get("notes")).values():
                if not isinstance(notes, list):
                    raise self._odd("notes", "a list of texts for each strategy", notes)
                yield from (f"! {note}" for note in notes)

    def _object(self, name: str, value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._odd(name, "an object", value)
        return value

    def _odd(self, name: str, words: str, value: object) -> ArgumentError:
        path = shown(self.folder / results.MANIFEST)
        return ArgumentError(f"folder: {path} is damaged: expected {words} as {name!r}, got {shown(value)}")


def costs(done: dict[str, tuple[Any, Report]]) -> dict[str, Any]:
    """What running the strategies took, and what happened on the way, for a manifest."""
    reports = {name: report for name, (_, report) in done.items()}
    return {
        "vmap_width": {name: report.width for name, report in reports.items()},
        "compile_seconds": {name: report.compile_seconds for name, report in reports.items()},
        "notes": {name: report.notes for name, report in reports.items() if report.notes},
    }


def failures(groups: Iterable[tuple[Any, pd.DataFrame]]) -> Iterator[str]:
    """How many runs of each group failed, as lines of a report."""
    for name, runs in groups:
        failed = int((runs["failed_at"] >= 0).sum())
        if failed:
            yield f"! {name}: {failed} of {len(runs)} runs met NaN or infinity; they are left out"

"""Files that a run leaves in its folder, as a report reads them."""

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
    """Result folder as a report reads it: settings, manifest, tables, arrays.

    Args:
      folder: the folder that a run was written to.
      figures: the folder that figures are drawn to; by default `folder`.

    Attributes:
      drawn: a description in words of each figure that was drawn, by name.

    Raises:
      ArgumentError: the folder lacks a file that is read.
    """

    def __init__(self, folder: Path, figures: Path | None = None) -> None:
        self.folder = folder
        self._figures = figures
        self.drawn: dict[str, str] = {}

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Manifest of the run."""
        return results.read_manifest(self.folder)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that the experiment was run with."""
        settings: dict[str, Any] = self.manifest["settings"]
        return settings

    @cached_property
    def table(self) -> pd.DataFrame:
        """results.csv."""
        return self.read(results.RESULTS)

    def read(self, name: str) -> pd.DataFrame:
        """Read a table by its file name."""
        return results.read_table(self.folder, name)

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Read a file of arrays, by their paths in the pytree that was saved."""
        return read_npz(self.folder / name, "folder")

    @property
    def figures(self) -> Path:
        """Folder of the figures."""
        return self.folder if self._figures is None else self._figures

    def draw(self, figure: Figure, name: str) -> None:
        """Save a figure to the folder `figures`."""
        plots.save(figure, self.figures, name)
        self.drawn[name] = described(figure)

    def remarks(self, groups: Iterable[tuple[Any, pd.DataFrame]]) -> list[str]:
        """Return warnings for readers of the tables: notes on the training, and failed runs.

        Args:
          groups: the names of groups, each with its runs.
        """
        return [*self._notes(), *failures(groups)]

    def _notes(self) -> Iterator[str]:
        # An experiment with a single comparison keeps its costs at the top level of the manifest.
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
    """Return width, compile seconds and notes of each strategy's training, for the manifest."""
    reports = {name: report for name, (_, report) in done.items()}
    return {
        "vmap_width": {name: report.width for name, report in reports.items()},
        "compile_seconds": {name: report.compile_seconds for name, report in reports.items()},
        "notes": {name: report.notes for name, report in reports.items() if report.notes},
    }


def failures(groups: Iterable[tuple[Any, pd.DataFrame]]) -> Iterator[str]:
    """Yield a line of a report for each group with failed runs, with their number."""
    for name, runs in groups:
        failed = int((runs["failed_at"] >= 0).sum())
        if failed:
            yield f"! {name}: {failed} of {len(runs)} runs met NaN or infinity; they are left out"

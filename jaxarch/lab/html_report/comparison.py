"""Comparison of two folders of one experiment: settings that differ, and differences of medians."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from jaxarch import ArgumentError
from jaxarch.lab.checks import shown
from jaxarch.lab.harness import tables
from jaxarch.lab.harness.catalogue import EXPERIMENTS
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.html_report import grids
from jaxarch.lab.html_report.grids import Grid
from jaxarch.lab.html_report.pages import page
from jaxarch.lab.html_report.report import Figure, Reported, device, spread, summary
from jaxarch.lab.results import read_manifest

FACTS = {
    "jaxarch": lambda manifest: manifest.get("jaxarch"),
    "commit": lambda manifest: manifest.get("git_commit"),
    "data digest": lambda manifest: _within(manifest, "data", "sha256"),
    "device": device,
    "python": lambda manifest: manifest.get("python"),
    "jax": lambda manifest: _within(manifest, "versions", "jax"),
    "wall seconds": lambda manifest: manifest.get("wall_seconds"),
}
"""Facts other than settings that may differ and change numbers or time."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Comparison of two folders of one experiment.

    Attributes:
      first: the first folder.
      second: the second folder; differences are first minus second.
      names: the names of the two, which are distinct.
    """

    first: Reported
    second: Reported
    names: tuple[str, str]

    @property
    def file_name(self) -> str:
        """File name of its page, in the first folder."""
        return f"against-{self.second.results.folder.resolve().name}.html"

    @property
    def made(self) -> Iterator[RenderableType]:
        """The conclusion, tables, and lines on the findings of only one folder."""
        yield f"\n{self.conclusion}"
        yield self.settings
        if len(self.findings.rows):
            yield self.findings
        yield from self.apart

    @property
    def conclusion(self) -> str:
        """Number of findings of the first folder outside the quartiles of the second."""
        ours, theirs = self.first.findings, self.second.findings
        within = [
            of.q25 <= ours[what].median <= of.q75
            for what, of in theirs.items()
            if what in ours and of.q25 is not None and of.q75 is not None
        ]
        if not within:
            return "No finding with quartiles is in both folders."
        return (
            f"For {within.count(False)} of the {len(within)} findings with quartiles in both folders, the "
            f"median of {self.names[0]} is outside the quartiles of {self.names[1]}."
        )

    @property
    def settings(self) -> Table:
        """Settings and facts that differ."""
        ours, theirs = self.first.results, self.second.results
        pairs = {
            name: (ours.settings.get(name), theirs.settings.get(name))
            for name in dict.fromkeys((*ours.settings, *theirs.settings))
        }
        pairs |= {name: (of(ours.manifest), of(theirs.manifest)) for name, of in FACTS.items()}
        rows = [(name, _said(one), _said(other)) for name, (one, other) in pairs.items() if one != other]
        return tables.table("settings and circumstances that differ", ("setting", *self.names), rows)

    @property
    def findings(self) -> Table:
        """Findings measured in both: medians with quartiles, and their difference."""
        ours, theirs = self.first.findings, self.second.findings
        rows = [
            (
                what,
                spread(ours[what]),
                spread(theirs[what]),
                f"{ours[what].median - theirs[what].median:+.4g}",
            )
            for what in ours
            if what in theirs
        ]
        columns = ("measured", *self.names, "difference")
        title = f"findings, median [quartiles]; difference: {self.names[0]} minus {self.names[1]}"
        return tables.table(title, columns, rows)

    @property
    def apart(self) -> list[str]:
        """Lines with the number of findings that only one folder has."""
        ours, theirs = set(self.first.findings), set(self.second.findings)
        found = zip(self.names, (ours - theirs, theirs - ours), strict=True)
        return [f"measured in {name} alone: {len(of)} findings" for name, of in found if of]

    @property
    def beside(self) -> list[tuple[Grid | None, Grid | None]]:
        """Tables of both reports, in pairs."""
        return list(zip_longest(self.first.tables, self.second.tables))

    @property
    def figures(self) -> list[tuple[str, Figure | None, Figure | None]]:
        """Figures of both, by name."""
        ours, theirs = ({of.name: of for of in side.figures} for side in (self.first, self.second))
        return [(name, ours.get(name), theirs.get(name)) for name in dict.fromkeys((*ours, *theirs))]


def check_comparable(folder: str | os.PathLike[str], other: str | os.PathLike[str]) -> None:
    """Raise unless two folders are of the same experiment.

    Raises:
      ArgumentError: folders of different experiments, one folder twice, or not a result folder.
    """
    name, another = (read_manifest(which)["experiment"] for which in (folder, other))
    if name != another:
        raise ArgumentError(
            f"against: expected a folder of {name}, as {shown(Path(folder))} is, got one of {another}"
        )
    if os.path.samefile(folder, other):
        raise ArgumentError(f"against: expected another folder, got {shown(Path(other))} again")


def compare(first: Reported, second: Reported) -> Comparison:
    """Compare two folders of the same experiment.

    Raises:
      ArgumentError: as `check_comparable`.
    """
    check_comparable(first.results.folder, second.results.folder)
    return Comparison(first, second, _names(first, second))


def comparison_page(compared: Comparison) -> str:
    """Return the page of two folders, in HTML."""
    sides = (compared.first, compared.second)
    return page(
        "comparison.html",
        title=compared.first.experiment.name,
        what=EXPERIMENTS.get(compared.first.experiment.name, ""),
        compared=compared,
        settings=grids.of_terminal(compared.settings),
        findings=dataclasses.replace(grids.of_terminal(compared.findings), many=True),
        sides=[_side(name, side) for name, side in zip(compared.names, sides, strict=True)],
    )


def _side(name: str, side: Reported) -> tuple[str, list[tuple[str, str]], str, tuple[str, ...]]:
    """Return the top of the page for one folder: name, summary, command, warnings."""
    manifest = side.results.manifest
    return name, summary(manifest), str(manifest.get("command", "")), side.report.warnings


def _names(first: Reported, second: Reported) -> tuple[str, str]:
    """Return the folders' names; if these are equal, their paths as given."""
    ours, theirs = (side.results.folder.resolve() for side in (first, second))
    if ours.name != theirs.name:
        return ours.name, theirs.name
    return str(first.results.folder), str(second.results.folder)


def _within(manifest: Mapping[str, Any], *path: str) -> Any:
    value: Any = manifest
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _said(value: Any) -> str:
    return grids.plain(value) or "(empty)"

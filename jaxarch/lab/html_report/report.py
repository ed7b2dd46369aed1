"""Page of one result folder: findings, how they were made, and the lines of the record that they bear on."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from jaxarch import ArgumentError
from jaxarch.lab import reproduction, results
from jaxarch.lab.charts import Chart
from jaxarch.lab.harness import Experiment, FolderReport, Results, report_on
from jaxarch.lab.harness.catalogue import EXPERIMENTS
from jaxarch.lab.harness.combined import COMBINED
from jaxarch.lab.harness.report import ITEM
from jaxarch.lab.harness.setting_help import setting_help
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.html_report import citation, grids, ledger
from jaxarch.lab.html_report.grids import Grid
from jaxarch.lab.html_report.pages import page

NAME = "report.html"
"""File name of the page of a result folder."""
SHOWN_APART = ("experiment", "command", "settings", "wall_seconds", "devices", "key", "data", "versions")
"""Facts of a manifest that the page shows in a place of their own."""


@dataclasses.dataclass(frozen=True)
class Figure:
    """Figure of a report, with a description in words and the image as a data address."""

    name: str
    description: str
    source: str


@dataclasses.dataclass(frozen=True)
class Remark:
    """Line of a report, and whether it is an item of a list."""

    text: str
    item: bool = False


@dataclasses.dataclass(frozen=True)
class Reported:
    """Report of an experiment on a folder, with redrawn figures.

    Attributes:
      results: the folder.
      experiment: the experiment of the folder.
      report: the conclusion, tables and warnings.
    """

    results: Results
    experiment: Experiment
    report: FolderReport

    @classmethod
    def on(cls, folder: Path, experiment: Experiment, figures: Path | None = None) -> Reported:
        """Make the report of a folder; draw its figures there, or in the folder `figures`.

        Raises:
          ArgumentError: the folder lacks a file.
        """
        of = Results(folder, figures)
        return cls(of, experiment, report_on(of, experiment))

    @property
    def tables(self) -> list[Grid]:
        """Tables of the printed report."""
        return [grids.of_terminal(made) for made in self.report.body if isinstance(made, Table)]

    @property
    def parts(self) -> Iterator[Grid | Remark]:
        """Tables and lines in their printed order."""
        for made in self.report.body:
            if isinstance(made, Table):
                yield grids.of_terminal(made)
            else:
                yield Remark(str(made).removeprefix(ITEM), item=str(made).startswith(ITEM))

    @property
    def charts(self) -> list[Chart]:
        """Interactive charts of the experiment that have at least one point."""
        made = () if self.experiment.charts is None else self.experiment.charts(self.results)
        return [chart for chart in made if len(chart.points)]

    @cached_property
    def figures(self) -> list[Figure]:
        """Figures that the report drew."""
        return [
            Figure(name, words, image(self.results.figures, name))
            for name, words in self.results.drawn.items()
        ]

    @property
    def files(self) -> list[Grid]:
        """Tables of the folder: findings, results, then the others by name."""
        first = (results.FINDINGS, results.RESULTS)
        names = sorted(path.name for path in self.results.folder.glob("*.csv") if path.is_file())
        ordered = [name for name in first if name in names] + [name for name in names if name not in first]
        return [grids.of_file(name, self.results.read(name)) for name in ordered]

    @property
    def findings(self) -> dict[str, reproduction.Measurement]:
        """Measurements of findings.csv by name; none if it cannot be read."""
        try:
            found = reproduction.read_findings(self.results.folder)
        except ArgumentError:
            return {}
        return {measurement.what: measurement for measurement in found}


def report_page(reported: Reported) -> str:
    """Return the page of a folder, in HTML."""
    manifest, experiment = reported.results.manifest, reported.experiment
    spoken = ledger.spoken_to(experiment, reported.results.settings)
    papers = ledger.papers_of(experiment.name, spoken)
    found, version = reported.findings, str(manifest.get("jaxarch", ""))
    return page(
        "report.html",
        reported.charts,
        title=experiment.name,
        what=EXPERIMENTS.get(experiment.name, ""),
        summary=summary(manifest),
        reported=reported,
        spoken=[(of, _differences(of), _measured(of, found)) for of in spoken],
        command=str(manifest.get("command", "")),
        settings=settings_grid(experiment, reported.results.settings),
        facts_of=facts_grid(manifest),
        papers=papers,
        bibtex="\n\n".join([citation.program(version), *map(citation.paper, papers)]),
    )


def summary(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what readers ask first: data, seeds, device, time, version."""
    settings, data = manifest["settings"], _object(manifest, "data")
    asked = {
        "data": data.get("name", settings.get("dataset")),
        "seeds": settings.get("seeds"),
        "device": device(manifest),
        "took": duration(manifest.get("wall_seconds")),
        "jaxarch": manifest.get("jaxarch"),
    }
    return [(name, grids.plain(value)) for name, value in asked.items() if value not in (None, "")]


def device(manifest: Mapping[str, Any]) -> str:
    """Return the devices of the run, as in `2 x cpu`; the workers' devices if it ran on a cluster.

    For combined runs, return the devices of each.
    """
    if isinstance(parts := manifest.get(COMBINED), list):
        return "; ".join(dict.fromkeys(device(part) for part in parts if isinstance(part, dict)))
    of_workers = _object(_object(manifest, "cluster"), "devices")
    return "; ".join(of_workers) or results.devices_in_words(_object(manifest, "devices"))


def duration(seconds: Any) -> str:
    """Format seconds as hours, minutes and seconds."""
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s"


def settings_grid(experiment: Experiment, settings: Mapping[str, Any]) -> Grid:
    """Return a table of every setting: its value, its default and its meaning."""
    meaning = setting_help(experiment.settings)
    defaults = {field.name: field.default for field in dataclasses.fields(experiment.settings)}
    rows = [
        (name, grids.plain(value), grids.plain(defaults.get(name)), meaning.get(name, ""))
        for name, value in settings.items()
    ]
    return grids.grid("settings", ("setting", "value", "default", "meaning"), rows)


def facts_grid(manifest: Mapping[str, Any]) -> Grid:
    """Return a table of key, data, machine, versions, and all other short facts of the manifest."""
    key, data = _object(manifest, "key"), _object(manifest, "data")
    devices, versions = _object(manifest, "devices"), _object(manifest, "versions")
    rest = {name: value for name, value in manifest.items() if name not in SHOWN_APART}
    facts = [
        *((f"key: {name}", value) for name, value in key.items()),
        *((f"data: {name}", value) for name, value in data.items()),
        ("wall seconds", manifest.get("wall_seconds", "")),
        *((f"device: {name}", value) for name, value in devices.items()),
        *((name, value) for name, value in versions.items()),
        *_leaves(rest),
    ]
    return grids.grid("facts", ("fact", "value"), [(name, grids.plain(value)) for name, value in facts])


def image(folder: Path, name: str) -> str:
    """Return a figure as a data address for the page: its SVG or its PNG, whichever is smaller."""
    kinds = {"svg": "svg+xml", "png": "png"}
    files = {kind: (folder / f"{name}.{ending}").read_bytes() for ending, kind in kinds.items()}
    kind = min(files, key=lambda kind: len(files[kind]))
    return f"data:image/{kind};base64,{base64.b64encode(files[kind]).decode('ascii')}"


def _differences(spoken: ledger.Spoken) -> str:
    """Return in words the settings in which a line's command differs from the run."""
    return "; ".join(
        f"{name} {grids.plain(there) or '(empty)'} there, {grids.plain(here) or '(empty)'} here"
        for name, (there, here) in spoken.differing.items()
    )


def _measured(spoken: ledger.Spoken, found: Mapping[str, reproduction.Measurement]) -> Grid | None:
    """Return a table of a line's measurements beside those of this folder."""
    pairs = spoken.measured(found)
    rows = [(there.what, spread(there), spread(here)) for there, here in pairs]
    title = f"{spoken.line.id}: the record, and this folder"
    return grids.grid(title, ("measured", "record", "here"), rows) if rows else None


def spread(measurement: reproduction.Measurement) -> str:
    """Format median and quartiles."""
    median = f"{measurement.median:.4g}"
    if measurement.q25 is None or measurement.q75 is None:
        return median
    return f"{median} [{measurement.q25:.4g} {measurement.q75:.4g}]"


def _object(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = manifest.get(name)
    return value if isinstance(value, dict) else {}


def _leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested values by their paths; for long lists, their length."""
    for name, value in values.items():
        where = f"{path}: {name}" if path else str(name).replace("_", " ")
        if isinstance(value, dict):
            yield from _leaves(value, where)
        elif isinstance(value, list) and (len(value) > 12 or any(isinstance(v, (dict, list)) for v in value)):
            yield where, f"{len(value)} entries, in {results.MANIFEST}"
        else:
            yield where, value

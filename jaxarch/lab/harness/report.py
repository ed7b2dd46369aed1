"""Report on a result folder: its conclusion, its tables, then its warnings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from jaxarch import ArgumentError
from jaxarch.lab.checks import one_line
from jaxarch.lab.harness.combined import COMBINED
from jaxarch.lab.harness.experiment import Experiment
from jaxarch.lab.harness.results import Results

WARNING, ITEM = "! ", "- "
"""Prefixes of lines of `Experiment.report`: a warning, an item of a list."""


@dataclasses.dataclass(frozen=True)
class FolderReport:
    """Report on a result folder, which a console prints in this order.

    Attributes:
      conclusion: one to three sentences: what came out, and what it was compared with.
      body: tables and lines.
      warnings: sentences on failed runs, ties, and what else a reader of the tables must know.
    """

    conclusion: str
    body: tuple[RenderableType, ...]
    warnings: tuple[str, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the conclusion, the body, then the warnings under a heading of their own."""
        yield Text(f"\n{self.conclusion}")
        after_table = False
        for part in self.body:
            if isinstance(part, str):
                if after_table:
                    yield ""
                is_item = part.startswith(ITEM)
                yield _hanging(ITEM, part.removeprefix(ITEM)) if is_item else Text(part)
            else:
                yield part
            after_table = not isinstance(part, str)
        if self.warnings:
            yield Text("\nwarnings", "bold")
        yield from (_hanging(WARNING, warning) for warning in self.warnings)


def _hanging(mark: str, text: str) -> Table:
    """Return a line whose further lines are indented under its text."""
    line = Table.grid(padding=(0, 1, 0, 0))
    line.add_row(Text(mark.strip()), Text(text))
    return line


def report_on(folder: Path | Results, experiment: Experiment) -> FolderReport:
    """Report on a folder from its files, and redraw its figures.

    Raises:
      ArgumentError: a folder that lacks a file.
    """
    results = folder if isinstance(folder, Results) else Results(folder)
    body: list[RenderableType] = []
    warnings = []
    for part in (*experiment.report(results), *_of_workers(results.manifest)):
        if isinstance(part, str) and part.startswith(WARNING):
            warnings.append(part.removeprefix(WARNING))
        else:
            body.append(part)
    try:
        conclusion = " ".join(experiment.conclusion(results))
    except ArgumentError:
        raise
    except Exception as error:
        # The tables are worth more than the sentences above them.
        conclusion = "See the tables."
        warnings.append(f"the conclusion could not be written ({type(error).__name__}: {one_line(error)})")
    return FolderReport(conclusion, tuple(body), tuple(warnings))


def _of_workers(manifest: dict[str, Any]) -> Iterable[str]:
    """Yield lines on restarted parts and on the warnings of worker processes, if there were any."""
    for of in manifest.get(COMBINED, [manifest]):
        facts = of.get("cluster", {"made again": {}, "warnings": []})
        for name, times in facts["made again"].items():
            yield f"{WARNING}{name} was begun {times + 1} times, since its worker died"
        yield from (f"{WARNING}{warning}" for warning in facts["warnings"])

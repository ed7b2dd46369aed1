"""Tables of a page: cells as texts, with the number that their column is sorted by."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from jaxarch.lab.harness.tables import Table

MOST_ROWS = 1000
"""Maximum number of rows of a file that a page shows."""
_NUMBER = re.compile(r"[+-]?(\d[\d,]*\.?\d*|\.\d+)(e[+-]?\d+)?(?![\w.])", re.IGNORECASE)
_MISSING = ("", "-")


class Cell(NamedTuple):
    """Text of a cell, and the number that it begins with if its column is numeric."""

    text: str
    order: float | None = None


@dataclasses.dataclass(frozen=True)
class Grid:
    """Table of a page.

    Attributes:
      title: the title above the table.
      columns: the headings.
      numeric: whether each column is numeric; numbers are right-aligned and sorted by value.
      rows: the cells, one per column; the first one names the row.
      note: a note on rows that are left out, if any are.
      many: whether the table is long, and shown a part at a time.
    """

    title: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    many: bool = False


def grid(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]], note: str = "") -> Grid:
    """Make a table of texts; a column is numeric if each text begins with a number or is missing.

    Example:
      >>> from jaxarch.lab.html_report.grids import grid
      >>> made = grid("AUC", ("strategy", "median"), [("bin", ".91 [.90 .92]"), ("real", "-")])
      >>> made.numeric, [row[1].order for row in made.rows]
      ((False, True), [0.91, None])
    """
    headings, texts = tuple(columns), [tuple(row) for row in rows]
    by_column = [[row[j] for row in texts] for j in range(len(headings))]
    numbers = [[leading_number(text) for text in column] for column in by_column]
    numeric = tuple(
        any(number is not None for number in of)
        and all(number is not None or text in _MISSING for number, text in zip(of, column, strict=True))
        for of, column in zip(numbers, by_column, strict=True)
    )
    cells = tuple(
        tuple(Cell(text, numbers[j][i] if numeric[j] else None) for j, text in enumerate(row))
        for i, row in enumerate(texts)
    )
    return Grid(title, headings, numeric, cells, note)


def leading_number(text: str) -> float | None:
    """Return the finite number that a text begins with, or `None`."""
    found = _NUMBER.match(text.strip())
    if found is None:
        return None
    number = float(found[0].replace(",", ""))
    return number if math.isfinite(number) else None


def of_terminal(table: Table) -> Grid:
    """Convert a printed table of a report."""
    return grid(table.title, table.columns, table.rows)


def of_file(name: str, table: pd.DataFrame) -> Grid:
    """Convert a table of a result folder, at most `MOST_ROWS` of its rows."""
    rows = table.head(MOST_ROWS)
    columns = [[plain(value) for value in rows[column]] for column in rows]
    left_out = f"The first {MOST_ROWS:,} of {len(table):,} rows; {name} has all of them."
    made = grid(name, map(str, table.columns), zip(*columns, strict=True))
    return dataclasses.replace(made, many=True, note=left_out if len(table) > len(rows) else "")


def plain(value: Any) -> str:
    """Format a value for a cell: numbers to six significant digits, nothing for a missing one."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if value is None or (isinstance(value, (float, np.floating)) and math.isnan(value)):
        return ""
    if isinstance(value, (float, np.floating)):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(plain, value))
    return str(value)

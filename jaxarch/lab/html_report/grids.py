"""Tables of a page: cells as texts, with the number that a column is sorted by."""

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
"""Rows of a file that a page shows."""
_NUMBER = re.compile(r"[+-]?(\d[\d,]*\.?\d*|\.\d+)(e[+-]?\d+)?(?![\w.])", re.IGNORECASE)
_MISSING = ("", "-")


class Cell(NamedTuple):
    """A text, and the number that it begins with, if its column has numbers."""

    text: str
    order: float | None = None


@dataclasses.dataclass(frozen=True)
class Grid:
    """A table of a page.

    Attributes:
      title: above it.
      columns: headings.
      numeric: whether each column has numbers, which stand on the right and are sorted as such.
      rows: cells, one a column; the first one names the row.
      note: what is left out, if anything is.
      many: whether it is long, and shown a part at a time.
    """

    title: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    many: bool = False


def grid(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]], note: str = "") -> Grid:
    """A table of texts; a column is numeric if each of its texts begins with a number, or is missing.

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
    """The finite number that a text begins with, if it does."""
    found = _NUMBER.match(text.strip())
    if found is None:
        return None
    number = float(found[0].replace(",", ""))
    return number if math.isfinite(number) else None


def of_terminal(table: Table) -> Grid:
    """A table of a report as it is printed."""
    return grid(table.title, table.columns, table.rows)


def of_file(name: str, table: pd.DataFrame) -> Grid:
    """A table of a result folder: at most `MOST_ROWS` of its rows."""
    rows = table.head(MOST_ROWS)
    columns = [[plain(value) for value in rows[column]] for column in rows]
    left_out = f"The first {MOST_ROWS:,} of {len(table):,} rows; {name} has all of them."
    made = grid(name, map(str, table.columns), zip(*columns, strict=True))
    return dataclasses.replace(made, many=True, note=left_out if len(table) > len(rows) else "")


def plain(value: Any) -> str:
    """A value as a cell says it: numbers to six significant digits, nothing where there is none."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if value is None or (isinstance(value, (float, np.floating)) and math.isnan(value)):
        return ""
    if isinstance(value, (float, np.floating)):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(plain, value))
    return str(value)

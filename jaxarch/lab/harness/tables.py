"""Tables for the terminal, all in one style; columns that do not fit go into blocks below each other."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as Block
from rich.text import Text

from jaxarch.metrics import quartiles

GAPS = (2, 1)
"""Spaces between two columns: the preferred number, and the minimum."""


@dataclass(frozen=True)
class Table:
    """Table whose first column names the rows; the other columns are numbers, which are never broken.

    If the columns are wider than the terminal, headings are broken between words. If that is not enough,
    columns move closer together. If that is not enough either, the table is shown in blocks that each repeat
    the first column. The first column is broken only if a number does not fit beside it.

    Attributes:
      title: the title above the table.
      columns: the headings.
      rows: the cells, one per column.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the title and as many blocks as it takes."""
        yield Text(f"\n{self.title}", "bold")
        everything, most = range(len(self.columns)), options.max_width
        whole = [max(map(cell_len, column)) for column in self._by_column()]
        broken = [max(map(cell_len, [*heading.split(), "", *cells])) for heading, *cells in self._by_column()]
        for widths, gap in ((whole, GAPS[0]), *((broken, gap) for gap in GAPS)):
            if _length(widths, gap) <= most:
                yield self._block(everything, widths, gap)
                return
        broken[0] = max(min(broken[0], most - max(broken[1:], default=0) - GAPS[0]), 1)
        for turn, shown in enumerate(_blocks(broken, most)):
            if turn:
                yield ""
            yield self._block(shown, broken, GAPS[0])

    def _by_column(self) -> list[tuple[str, ...]]:
        """Return the heading and the cells of each column."""
        return list(zip(self.columns, *self.rows, strict=True))

    def _block(self, shown: Iterable[int], widths: Sequence[int], gap: int) -> Block:
        """Return a block of the columns `shown`, each with its width."""
        made = Block(box=box.SIMPLE_HEAD, padding=(0, gap - 1, 0, 0), show_edge=False, pad_edge=False)
        for j in shown:
            heading = "\n".join(textwrap.wrap(self.columns[j], max(widths[j], 1), break_on_hyphens=False))
            made.add_column(Text(heading), justify="right" if j else "left", width=widths[j], no_wrap=j > 0)
        for row in self.rows:
            made.add_row(*(Text(row[j]) for j in shown))
        return made


def _length(widths: Sequence[int], gap: int) -> int:
    """Return the length of a line of columns."""
    return sum(widths) + gap * (len(widths) - 1)


def _blocks(widths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield the columns of each block: the first column, and those that fit beside it."""
    shown = [0]
    for j in range(1, len(widths)):
        if len(shown) > 1 and _length([widths[i] for i in (*shown, j)], GAPS[0]) > most:
            yield shown
            shown = [0]
        shown.append(j)
    yield shown


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """Return a table; the first column names the rows, the others are numbers."""
    return Table(title, tuple(columns), tuple(tuple(row) for row in rows))


def number(value: float, form: str) -> str:
    """Format a number; NaN becomes a dash."""
    return "-" if np.isnan(value) else format(value, form)


def signed(value: float, form: str) -> str:
    """Format a difference, as in +.014; NaN becomes a dash."""
    return "-" if np.isnan(value) else _without_zero(format(value, f"+{form}"))


def median(values: Iterable[float], form: str) -> str:
    """Format the median of the finite values."""
    return number(quartiles(np.asarray(values))[0], form)


def spread(values: Iterable[float], form: str) -> str:
    """Format median and quartiles, as in .947 [.944 .955]."""
    parts = [_without_zero(part) for part in _quartiles(values, form)]
    return f"{parts[0]} [{parts[1]} {parts[2]}]" if parts else "-"


def inline(values: Iterable[float], form: str) -> str:
    """Format median and quartiles for a sentence, as in 0.947 [0.944, 0.955]."""
    parts = _quartiles(values, form)
    return f"{parts[0]} [{parts[1]}, {parts[2]}]" if parts else "-"


def _quartiles(values: Iterable[float], form: str) -> list[str]:
    """Format the median and both quartiles of the finite values; none if no value is finite."""
    measured = quartiles(np.asarray(values))
    return [] if np.isnan(measured[0]) else [format(value, form) for value in measured]


def counted(groups: Iterable[Iterable[float]]) -> str:
    """Name the statistics of several groups, and how many runs of each are finite."""
    sizes = sorted({int(np.isfinite(np.asarray(values)).sum()) for values in groups}) or [0]
    if sizes[0] == sizes[-1]:
        return f"median [quartiles] of {sizes[0]} run{'s' * (sizes[0] != 1)}"
    return f"median [quartiles] of {sizes[0]} to {sizes[-1]} runs"


def _without_zero(text: str) -> str:
    """Drop the leading zero: .5 for 0.5, -.5 for -0.5."""
    return text.replace("0.", ".", 1) if text.lstrip("+-").startswith("0.") else text

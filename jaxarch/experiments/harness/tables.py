"""Tables for the terminal, all of one look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from rich import box
from rich.table import Table

from jaxarch.metrics import quartiles


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table: the first column names the rows, the others are numbers."""
    made = Table(
        title=f"\n{title}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        min_width=min(len(title), 80),
    )
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left", no_wrap=not index)
    for row in rows:
        made.add_row(*row)
    return made


def number(value: float, form: str) -> str:
    """A number as text, a dash where there is none."""
    return "-" if np.isnan(value) else format(value, form)


def signed(value: float, form: str) -> str:
    """A difference as text, as in +.014; a dash where there is none."""
    return "-" if np.isnan(value) else _without_zero(format(value, f"+{form}"))


def median(values: Iterable[float], form: str) -> str:
    """The median of the finite values."""
    return number(quartiles(np.asarray(values))[0], form)


def spread(values: Iterable[float], form: str) -> str:
    """Median and quartiles, as in .947 [.944 .955]."""
    measured = quartiles(np.asarray(values))
    if np.isnan(measured[0]):
        return "-"
    middle, low, high = (_without_zero(format(value, form)) for value in measured)
    return f"{middle} [{low} {high}]"


def _without_zero(text: str) -> str:
    """.5 for 0.5, -.5 for -0.5."""
    return text.replace("0.", ".", 1) if text.lstrip("+-").startswith("0.") else text

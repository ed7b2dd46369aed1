"""Figures that compare strategies: by a measure of quality, and by quality against run time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxarch._internal.errors import check_instance, real_number
from jaxarch.metrics import quartiles
from jaxarch.plots import _arguments as arguments
from jaxarch.plots._arguments import array, nested, optional, pair
from jaxarch.plots._style import STYLE, NotebookFigure, log_scale, look, looks_of, panel_grid

LEAST_MAGNIFICATION = 3.0
"""Minimum magnification of the second panel: below it, the panel shows little that the first does not."""
MOST_MAGNIFICATION = 100.0
"""Maximum magnification of the second panel: values that are closer are the same for the reader."""


def by_strategy(
    values: Mapping[str, Mapping[str, np.ndarray]],
    label: str,
    title: str = "",
    chance: float | None = None,
    zero: float | None = None,
    dots: str = "runs",
) -> Figure:
    """Draw one line per strategy: every run as a dot, and the median with its quartiles beside it.

    If strategies crowd together, a second panel shows the crowded part on its own scale: the part that
    magnifies the most markers the most, by the sum of the logarithms. There is no second panel if it would
    magnify less than three times.

    Args:
      values: by series (an orientation, a data set), by strategy: one value per run; NaN is left out.
      label: label of the axis.
      title: title of the figure.
      chance: the value of guessing, which is marked.
      zero: a reference value; its side matters. It is marked, and the second panel includes it.
      dots: the meaning of a dot, for the legend.

    Example:
      >>> import jaxarch, numpy as np
      >>> values = {"digits": {"dense": np.array([0.9, 0.95, 1.0]), "random": np.array([0.4, 0.5, np.nan])}}
      >>> figure = jaxarch.plots.by_strategy(values, "AUC", chance=0.5)
      >>> [label.get_text() for label in figure.axes[0].get_yticklabels()], figure.axes[0].get_xlabel()
      (['dense', 'random'], 'AUC')
    """
    values = nested("values", values, "series, strategy", array())
    chance, zero = optional(real_number, "chance", chance), optional(real_number, "zero", zero)
    check_instance("dots", dots, str, "a text")
    strategies = list(dict.fromkeys(name for series in values.values() for name in series))
    runs = {
        (index, at): _finite(series.get(name, ()))
        for index, series in enumerate(values.values())
        for at, name in enumerate(strategies)
    }
    marked = [value for value in (chance, zero) if value is not None]
    apart = min(0.34, 0.7 / max(len(values), 1))
    whole = _with_margin(np.concatenate([marked, *runs.values()]))
    enlarged = crowd([quartiles(of) for of in runs.values() if of.size], whole, zero)
    with matplotlib.rc_context(STYLE):
        size = (5.6 if enlarged is None else 6.8, 0.42 * len(strategies) + 1.5)
        figure = NotebookFigure(figsize=size, layout="constrained")
        row = figure.subplots(1, 1 if enlarged is None else 2, sharey=True, squeeze=False)[0]
        for axes in row:
            for (index, at), of in runs.items():
                _dots(axes, of, at + (index - (len(values) - 1) / 2) * apart, look(index))
            axes.grid(axis="y", visible=False)
            axes.set_xlabel(label)
            if chance is not None:
                axes.axvline(chance, color="#666666", lw=0.9, ls=":")
            if zero is not None:
                axes.axvline(zero, color="#666666", lw=0.9)
        row[0].set_yticks(range(len(strategies)), strategies)
        row[0].set_ylim(len(strategies) - 0.4, -0.6)
        row[0].set_xlim(*whole)
        if chance is not None:
            row[0].text(chance, -0.55, " chance", color="#666666", fontsize=7, va="top")
        if enlarged is not None:
            row[0].axvspan(*enlarged, color="#000000", alpha=0.06, lw=0, zorder=0)
            row[1].set_xlim(*enlarged)
            times = (whole[1] - whole[0]) / (enlarged[1] - enlarged[0])
            row[1].set_title(f"shaded part, enlarged {times:.0f} times", loc="left", size=9)
        figure.suptitle(title, x=0.01, ha="left")
        handles = [
            Line2D([], [], **look(index) | {"ls": "-"}, lw=1.8, mec="white", label=series)
            for index, series in enumerate(values)
        ]
        meaning = Line2D([], [], ls="", label=f"(dots: {dots}; markers: medians, quartiles)")
        # A long explanation gets its own line.
        columns = len(values) + (len(dots) < 10)
        figure.legend(handles=[*handles, meaning], loc="outside lower center", ncols=columns)
    return figure


def crowd(
    markers: Sequence[tuple[float, float, float]],
    whole: tuple[float, float],
    including: float | None = None,
) -> tuple[float, float] | None:
    """Return the part of an axis that is most worth enlarging, or `None`.

    Args:
      markers: medians and first and third quartiles.
      whole: the limits of the axis.
      including: a value that the part must include.

    Returns:
      The limits of the part with the largest `n log(m)`. n is the number of markers, at least two, that lie
      in it with their quartiles. m is its magnification, at least `LEAST_MAGNIFICATION` and at most
      `MOST_MAGNIFICATION`.
    """
    length = whole[1] - whole[0]
    best, most = None, 0.0
    for low, high in itertools.product({q25 for _, q25, _ in markers}, {q75 for _, _, q75 in markers}):
        if including is not None:
            low, high = min(low, including), max(high, including)
        inside = sum(low <= q25 and q75 <= high for _, q25, q75 in markers)
        if low >= high or inside < 2:
            continue
        limits = _with_margin(np.asarray([low, high]), length / MOST_MAGNIFICATION)
        times = length / (limits[1] - limits[0])
        if times >= LEAST_MAGNIFICATION and inside * math.log(times) > most:
            best, most = limits, inside * math.log(times)
    return best


def _finite(runs: Any) -> np.ndarray:
    array = np.asarray(runs, np.float64)
    return array[np.isfinite(array)]


def _with_margin(values: np.ndarray, least: float = 1e-3) -> tuple[float, float]:
    """Return axis limits that show all values with markers, at least `least` apart; 0 to 1 without values."""
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    margin = max(0.06 * (high - low), (least - (high - low)) / 2)
    return low - margin, high + margin


def _dots(axes: Any, runs: np.ndarray, at: float, look: dict[str, Any]) -> None:
    """Draw the runs, median and quartiles of one strategy in one series."""
    median, q25, q75 = quartiles(runs)
    spread = np.linspace(-0.07, 0.07, len(runs)) if len(runs) > 1 else np.zeros(len(runs))
    axes.plot(runs, at + spread, ".", color=look["color"], alpha=0.3, ms=4, mew=0)
    bars = [[median - q25], [q75 - median]]
    axes.errorbar([median], [at], xerr=bars, **look | {"ls": ""}, ms=5, mec="white", mew=0.6, lw=1.8)


def runtime(
    panels: Mapping[str, Mapping[str, Mapping[str, tuple[float, np.ndarray]]]],
    label: str,
    title: str = "",
    chance: float | None = None,
) -> Figure:
    """Draw run time against quality, a panel for each row and column: medians and quartiles over runs.

    A color is a family of strategies, named by the part before `->`; a marker is the part after it.

    Args:
      panels: by row, by column, by strategy: seconds per run, and one value for each run; NaN is left out.
      label: label of the vertical axis.
      title: title of the figure.
      chance: the value of guessing, which is marked.

    Example:
      >>> import jaxarch, numpy as np
      >>> cell = {"snip": (2.0, np.array([0.8, 0.9])), "snip->retrain": (3.0, np.array([0.9, 1.0]))}
      >>> figure = jaxarch.plots.runtime({"digits": {"5 per class": cell}}, "AUC", chance=0.5)
      >>> [text.get_text() for text in figure.legends[0].get_texts()], figure.axes[0].get_xscale()
      (['snip', 'snip->retrain'], 'log')
    """
    panels = arguments.panels("panels", panels, "row, column, strategy", pair("", "runs"))
    chance = optional(real_number, "chance", chance)
    strategies = list(
        dict.fromkeys(name for row in panels.values() for cell in row.values() for name in cell)
    )
    looks = looks_of(strategies)
    with matplotlib.rc_context(STYLE):
        label_x = "seconds per run and device"
        figure, grid, columns = panel_grid(panels, (2.3, 1.9), (0.9, 1.5), title, label_x)
        for axes_row, (row_name, row) in zip(grid, panels.items(), strict=True):
            for axes, column in zip(axes_row, columns, strict=True):
                for name, (seconds, runs) in row.get(column, {}).items():
                    median, q25, q75 = quartiles(runs)
                    bars = [[median - q25], [q75 - median]]
                    axes.errorbar([seconds], [median], yerr=bars, lw=1, ms=5.5, **looks[name] | {"ls": ""})
                log_scale(axes, "x")
                if chance is not None:
                    axes.axhline(chance, color="#666666", lw=0.9, ls=":")
            axes_row[0].set_ylabel(f"{row_name}\n\n{label}")
        handles = [Line2D([], [], ms=5.5, label=name, **looks[name] | {"ls": ""}) for name in strategies]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(columns) + 1, 4))
    return figure

"""Figures that compare strategies: by a measure of quality, and by quality against run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxarch.metrics import quartiles
from jaxarch.plots.style import COLOURS, MARKERS, STYLE, NotebookFigure, looks_of, panel_grid


def by_strategy(
    values: Mapping[str, Mapping[str, np.ndarray]],
    label: str,
    title: str = "",
    chance: float | None = None,
    zero: float | None = None,
    dots: str = "runs",
) -> Figure:
    """One line a strategy: every run as a dot, the median with its quartiles beside it.

    Args:
      values: by series (an orientation, a data set), by strategy: one value a run; NaN is left out.
      label: of the axis.
      title: of the figure.
      chance: the value of guessing. It is marked, and a second panel shows the strategies that are clear of
        it on a scale of their own.
      zero: a value that it matters to be on one side of. It is marked, and a second panel shows the half of
        the strategies that are nearest to it on a scale of their own.
      dots: what a dot is, for the legend.
    """
    strategies = list(dict.fromkeys(name for series in values.values() for name in series))
    with matplotlib.rc_context(STYLE):
        panels = 1 if chance is None and zero is None else 2
        figure = NotebookFigure(
            figsize=(5.6 if panels == 1 else 6.8, 0.42 * len(strategies) + 1.3), layout="constrained"
        )
        row = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
        for axes in row:
            for index, by_name in enumerate(values.values()):
                shift = (index - (len(values) - 1) / 2) * 0.34
                for at, name in enumerate(strategies):
                    _dots(axes, np.asarray(by_name.get(name, ()), np.float64), at + shift, index)
            axes.grid(axis="y", visible=False)
            axes.set_xlabel(label)
        row[0].set_yticks(range(len(strategies)), strategies)
        row[0].set_ylim(len(strategies) - 0.4, -0.6)
        row[0].set_title(title, loc="left")
        if chance is not None:
            row[0].axvline(chance, color="#666666", lw=0.9, ls=":")
            row[0].text(chance, -0.55, " chance", color="#666666", fontsize=7, va="top")
            row[1].set_xlim(*_clear_of(chance, values))
        if zero is not None:
            for axes in row:
                axes.axvline(zero, color="#666666", lw=0.9)
            row[1].set_xlim(*_near(zero, values))
        if panels == 2:
            row[1].set_title("the same, enlarged", loc="left")
        handles = [
            Line2D([], [], color=COLOURS[i], marker=MARKERS[i], lw=1.8, mec="white", label=series)
            for i, series in enumerate(values)
        ]
        meaning = Line2D([], [], ls="", label=f"(dots: {dots}; markers: medians, quartiles)")
        # A long explanation gets a line of its own.
        columns = len(values) + (len(dots) < 10)
        figure.legend(handles=[*handles, meaning], loc="outside lower center", ncols=columns)
    return figure


def _dots(axes: Any, runs: np.ndarray, at: float, index: int) -> None:
    """Runs, median and quartiles of one strategy in one series."""
    runs = runs[np.isfinite(runs)]
    median, q25, q75 = quartiles(runs)
    spread = np.linspace(-0.07, 0.07, len(runs)) if len(runs) > 1 else np.zeros(len(runs))
    axes.plot(runs, at + spread, ".", color=COLOURS[index], alpha=0.3, ms=4, mew=0)
    axes.errorbar(
        [median],
        [at],
        xerr=[[median - q25], [q75 - median]],
        fmt=MARKERS[index],
        color=COLOURS[index],
        ms=5,
        mec="white",
        mew=0.6,
        lw=1.8,
    )


def _clear_of(chance: float, values: Mapping[str, Mapping[str, np.ndarray]]) -> tuple[float, float]:
    """The range of the runs of those strategies whose lower quartile is well above chance."""
    spans = [runs for series in values.values() for runs in series.values() if len(runs)]
    return _range([runs for runs in spans if quartiles(runs)[1] > chance + 0.2] or spans)


def _near(zero: float, values: Mapping[str, Mapping[str, np.ndarray]]) -> tuple[float, float]:
    """The range of the half of the strategies whose medians are nearest to a value."""
    spans = [runs for series in values.values() for runs in series.values() if len(runs)]
    spans.sort(key=lambda runs: abs(quartiles(runs)[0] - zero))
    return _range([np.asarray([zero]), *spans[: max(len(spans) // 2, 1)]])


def _range(spans: Sequence[np.ndarray]) -> tuple[float, float]:
    """Limits of an axis that shows all finite values."""
    values = np.concatenate(list(spans))
    values = values[np.isfinite(values)]
    low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
    margin = max(0.04 * (high - low), 1e-3)
    return float(low - margin), float(high + margin)


def runtime(
    panels: Mapping[str, Mapping[str, Mapping[str, tuple[float, np.ndarray]]]],
    label: str,
    title: str = "",
    chance: float | None = None,
) -> Figure:
    """Run time against quality, a panel for each row and column: the median of runs, and their quartiles.

    A colour is a family of strategies, named by what is before `->`; a marker is what was made of it.

    Args:
      panels: by row, by column, by strategy: seconds a run, and one value for each run; NaN is left out.
      label: of the vertical axis.
      title: of the figure.
      chance: the value of guessing, marked.
    """
    strategies = list(
        dict.fromkeys(name for row in panels.values() for cell in row.values() for name in cell)
    )
    looks = looks_of(strategies)
    with matplotlib.rc_context(STYLE):
        label_x = "seconds a run and device"
        figure, grid, columns = panel_grid(panels, (2.3, 1.9), (0.9, 1.5), title, label_x)
        for axes_row, (row_name, row) in zip(grid, panels.items(), strict=True):
            for axes, column in zip(axes_row, columns, strict=True):
                for name, (seconds, runs) in row.get(column, {}).items():
                    median, q25, q75 = quartiles(runs)
                    bars = [[median - q25], [q75 - median]]
                    axes.errorbar([seconds], [median], yerr=bars, lw=1, ms=5.5, **looks[name] | {"ls": ""})
                axes.set_xscale("log")
                if chance is not None:
                    axes.axhline(chance, color="#666666", lw=0.9, ls=":")
            axes_row[0].set_ylabel(f"{row_name}\n\n{label}")
        handles = [Line2D([], [], ms=5.5, label=name, **looks[name] | {"ls": ""}) for name in strategies]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(columns) + 1, 4))
    return figure

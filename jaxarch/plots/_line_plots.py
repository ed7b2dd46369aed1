"""Figures of curves: the loss against the step, and functions of one variable."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from jaxarch._internal.errors import check_count, positive_number
from jaxarch.plots import _arguments as arguments
from jaxarch.plots._arguments import array, nested, pair
from jaxarch.plots._style import (
    COLOURS,
    LINES,
    STYLE,
    NotebookFigure,
    log_scale,
    medians,
    named_handles,
    panel_grid,
)


def convergence(
    histories: Mapping[str, np.ndarray], label: str = "training loss", title: str = "", smooth: int = 10
) -> Figure:
    """Draw the loss against the step: the median over runs, with a band between the quartiles.

    Args:
      histories: by strategy, shape (runs, steps); NaN is left out.
      label: label of the vertical axis.
      title: title of the figure.
      smooth: number of steps averaged to one point, so that batches do not hide the trend.

    Example:
      >>> import jaxarch, numpy as np
      >>> figure = jaxarch.plots.convergence({"dense": np.array([[8.0, 6.0, 4.0, 2.0]])}, smooth=2)
      >>> figure.axes[0].lines[0].get_xdata().tolist(), figure.axes[0].lines[0].get_ydata().tolist()
      ([1.0, 3.0], [7.0, 3.0])
    """
    histories = nested("histories", histories, "strategy", array("runs, steps"))
    check_count("smooth", smooth)
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.subplots()
        for index, (name, history) in enumerate(histories.items()):
            _history(axes, history, smooth, index, name)
        axes.set_xlabel(f"step (averaged over {smooth}; line: median over runs, band: quartiles)")
        axes.set_ylabel(label)
        axes.set_title(title, loc="left")
        if axes.lines:
            axes.legend()
    return figure


def convergence_grid(
    panels: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]],
    label: str = "training loss",
    title: str = "",
    smooth: int = 10,
) -> Figure:
    """Draw `convergence` in a grid of panels that share their axes.

    Args:
      panels: by row, by column, by line: losses of shape (runs, steps); NaN is left out.
      label: label of the vertical axis.
      title: title of the figure.
      smooth: number of steps averaged to one point.

    Example:
      >>> import jaxarch, numpy as np
      >>> losses = np.array([[3.0, 2.0, 1.0], [4.0, 3.0, 2.0]])
      >>> panels = {"digits": {"5 per class": {"dense": losses}, "50 per class": {"dense": losses / 2}}}
      >>> figure = jaxarch.plots.convergence_grid(panels, smooth=1)
      >>> [(axes.get_title(loc="left"), axes.lines[0].get_ydata().tolist()) for axes in figure.axes]
      [('5 per class', [3.5, 2.5, 1.5]), ('50 per class', [1.75, 1.25, 0.75])]
    """
    panels = arguments.panels("panels", panels, "row, column, line", array("runs, steps"))
    check_count("smooth", smooth)
    lines = list(dict.fromkeys(n for row in panels.values() for cell in row.values() for n in cell))
    with matplotlib.rc_context(STYLE):
        label_x = f"step (averaged over {smooth})"
        figure, grid, columns = panel_grid(panels, (2.4, 2.1), (0.8, 1.1), title, label_x, sharey=True)
        for axes_row, (row_name, row) in zip(grid, panels.items(), strict=True):
            for axes, column in zip(axes_row, columns, strict=True):
                for name, history in row.get(column, {}).items():
                    _history(axes, history, smooth, lines.index(name), name)
            axes_row[0].set_ylabel(f"{textwrap.fill(row_name, 22)}\n\n{label}")
        handles = [
            Line2D([], [], color=COLOURS[i % len(COLOURS)], ls=LINES[i % len(LINES)], lw=1.6, label=name)
            for i, name in enumerate(lines)
        ]
        meaning = Line2D([], [], ls="", label="(median and quartiles over runs)")
        figure.legend(handles=[*handles, meaning], loc="outside lower center", ncols=len(lines) + 1)
    return figure


def _history(axes: Any, history: np.ndarray, smooth: int, index: int, name: str) -> None:
    """Draw one line of a convergence plot, with its band."""
    runs, steps = history.shape
    block = max(min(smooth, steps), 1)
    points = steps // block
    means = history[:, : points * block].reshape(runs, points, block).mean(axis=2)
    means = means[np.isfinite(means).all(axis=1)]
    at = (np.arange(points) + 0.5) * block
    colour, line = COLOURS[index % len(COLOURS)], LINES[index % len(LINES)]
    medians(axes, at, means, color=colour, ls=line, lw=1.6, label=name)


def curves(
    panels: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]],
    label: str,
    logarithmic: Mapping[str, float] | None = None,
) -> Figure:
    """Draw lines in panels below each other, on one horizontal axis; a name looks the same in all of them.

    Args:
      panels: by title, by line: horizontal and vertical values.
      label: label of the horizontal axis.
      logarithmic: the panels with a logarithmic vertical axis, and the lowest value that it shows.

    Example:
      >>> import jaxarch, numpy as np
      >>> x = np.arange(4)
      >>> panels = {"values": {"x": (x, x), "x squared": (x, x**2)}, "growth": {"2 to the x": (x, 2**x)}}
      >>> figure = jaxarch.plots.curves(panels, "x", logarithmic={"growth": 0.5})
      >>> [(len(axes.lines), axes.get_yscale()) for axes in figure.axes]
      [(2, 'linear'), (1, 'log')]
      >>> [text.get_text() for text in figure.legends[0].get_texts()]
      ['x', 'x squared', '2 to the x']
    """
    panels = arguments.panels("panels", panels, "panel, line", pair("n", "n"))
    logarithmic = {} if logarithmic is None else nested("logarithmic", logarithmic, "panel", positive_number)
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    with matplotlib.rc_context(STYLE):
        size = (6.4, 1.8 * len(panels) + 0.6)
        figure = NotebookFigure(figsize=size, layout="constrained")
        column = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (title, lines) in zip(column, panels.items(), strict=True):
            for name, (x, y) in lines.items():
                index = names.index(name)
                look = {"color": COLOURS[index % len(COLOURS)], "ls": LINES[index % len(LINES)]}
                axes.plot(x, y, lw=1.6, label=name, **look)
            axes.set_title(title, loc="left")
            if title in logarithmic:
                log_scale(axes, "y")
                axes.set_ylim(bottom=logarithmic[title])
        column[-1].set_xlabel(label)
        if all(np.asarray(x).dtype.kind == "i" for lines in panels.values() for x, _ in lines.values()):
            column[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        handles = named_handles(figure)
        figure.legend(list(handles.values()), list(handles), loc="outside right center")
    return figure

"""Figures of a gain against its price, as a setting varies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from jaxarch._internal.errors import ArgumentError, check_count, check_flag, real_number
from jaxarch.metrics import quartiles
from jaxarch.plots import _arguments as arguments
from jaxarch.plots._arguments import flags, nested, numbers, optional
from jaxarch.plots._style import STYLE, NotebookFigure, log_scale, logit_scale, look


def _quantities(name: str, value: Any) -> tuple[np.ndarray, np.ndarray]:
    """Read two quantities with at least one run each."""
    first, second = arguments.pair("runs, settings", "runs, settings")(name, value)
    if not len(first) or not len(second):
        raise ArgumentError(f"{name}: expected at least one run, got {first.shape} and {second.shape}")
    return first, second


def trade_off(
    points: Mapping[str, tuple[np.ndarray, np.ndarray]],
    x: str,
    y: str,
    title: str = "",
    logarithmic: tuple[bool, bool] = (False, False),
    marked: Mapping[str, float] | None = None,
) -> Figure:
    """Draw two measured quantities against each other: medians over runs, with bars between the quartiles.

    Args:
      points: by line, both quantities, shape (runs, settings) each; NaN runs are left out. A line joins its
        points in the order of the settings.
      x: name of the first quantity.
      y: name of the second quantity.
      title: title of the figure.
      logarithmic: whether x and y have logarithmic axes.
      marked: by name, values of x to mark.

    Example:
      >>> import jaxarch, numpy as np
      >>> densities, accuracies = np.array([[0.1, 0.5], [0.3, 0.7]]), np.array([[0.8, 0.9], [0.6, 0.9]])
      >>> figure = jaxarch.plots.trade_off({"ours": (densities, accuracies)}, "density", "accuracy")
      >>> line = figure.axes[0].lines[0]  # two runs, two settings: a point is the median of a setting
      >>> line.get_xdata().round(3).tolist(), line.get_ydata().round(3).tolist()
      ([0.2, 0.6], [0.7, 0.9])
    """
    points = nested("points", points, "line", _quantities)
    logarithmic = flags("logarithmic", logarithmic)
    marked = optional(numbers, "marked", marked)
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(5.6, 3.6), layout="constrained")
        axes = figure.subplots()
        _fill(axes, points, marked or {})
        _scale(axes, logarithmic)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.set_title(title, loc="left")
        figure.legend(loc="outside right upper", title="median, quartiles over runs", alignment="left")
    return figure


def trade_offs(
    panels: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]],
    x: str,
    y: str,
    title: str = "",
    logarithmic: tuple[bool, bool] = (False, False),
    beside: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None,
    columns: int = 3,
    marked: Mapping[str, Mapping[str, float]] | None = None,
    shares: bool = False,
) -> Figure:
    """Draw `trade_off` for more lines than one panel can hold: one panel per group of lines.

    Args:
      panels: by title, the points of a panel, see `trade_off`.
      x: name of the first quantity.
      y: name of the second quantity.
      title: title of the figure.
      logarithmic: whether x and y have logarithmic axes.
      beside: points for comparison, drawn in gray in every panel that does not have them anyway.
      columns: number of columns of panels.
      marked: by name, values of x to mark, one per panel, by its title.
      shares: whether y are shares. Their axis then shows log(y / (1 - y)), so that .97 and .98 can be told
        apart as well as .3 and .4. If a share is 0 or 1, the axis is the ordinary one.

    If all panels have the same lines, they share one legend.

    Example:
      >>> import jaxarch, numpy as np
      >>> ours, theirs = (np.array([[0.1, 0.5]]), np.array([[0.8, 0.9]])), (np.ones((1, 1)), np.ones((1, 1)))
      >>> figure = jaxarch.plots.trade_offs({"one": {"ours": ours}, "two": {"theirs": theirs}}, "x", "y")
      >>> [axes.get_title(loc="left") for axes in figure.axes if axes.lines]
      ['one', 'two']
    """
    panels = arguments.panels("panels", panels, "panel, line", _quantities)
    logarithmic = flags("logarithmic", logarithmic)
    beside = {} if beside is None else nested("beside", beside, "line", _quantities)
    marked = {} if marked is None else nested("marked", marked, "name, panel", real_number)
    check_count("columns", columns)
    check_flag("shares", shares)
    rows = math.ceil(len(panels) / columns)
    alike = len(panels) > 1 and len({tuple(points) for points in panels.values()}) == 1
    with matplotlib.rc_context(STYLE):
        size = (3.4 * min(columns, len(panels)) + 0.4, 3.3 * rows + 0.4)
        figure = NotebookFigure(figsize=size, layout="constrained")
        grid = figure.subplots(rows, min(columns, len(panels)), sharex=True, sharey=True, squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        for axes, (name, points) in zip(grid.flat, panels.items(), strict=False):
            for index, (reference, quantities) in enumerate(beside.items()):
                if reference not in points:
                    _draw(axes, reference, quantities, **look(index) | {"color": "#999999"})
            _fill(axes, points, {of: values[name] for of, values in marked.items() if name in values})
            axes.set_title(name, loc="left")
            axes.set_xlabel(x)
            axes.xaxis.set_tick_params(labelbottom=True)
            if not alike:
                axes.legend(fontsize="x-small", loc="best")
        if alike:
            figure.legend(
                *grid[0, 0].get_legend_handles_labels(), loc="outside right upper", alignment="left"
            )
        for axes in grid[:, 0]:
            axes.set_ylabel(y)
        _scale(grid[0, 0], logarithmic)
        if shares and _inside([*panels.values(), beside]):
            logit_scale(grid[0, 0], "y")
        figure.suptitle(f"{title}: median, quartiles over runs".lstrip(": "), x=0.01, ha="left")
    return figure


def _inside(panels: Iterable[Mapping[str, tuple[np.ndarray, np.ndarray]]]) -> bool:
    """Return whether all y except NaN are above 0 and below 1."""
    y = np.concatenate([np.ravel(runs) for points in panels for _, runs in points.values()])
    return not ((y <= 0) | (y >= 1)).any()


def _fill(
    axes: Any, points: Mapping[str, tuple[np.ndarray, np.ndarray]], marked: Mapping[str, float]
) -> None:
    """Draw the lines and marks of a panel."""
    for index, (name, quantities) in enumerate(points.items()):
        _draw(axes, name, quantities, **look(index))
    for name, value in marked.items():
        axes.axvline(value, color="#666666", lw=1.0, ls=":", label=name)


def _scale(axes: Any, logarithmic: tuple[bool, bool]) -> None:
    for which, is_logarithmic in zip("xy", logarithmic, strict=True):
        if is_logarithmic:
            log_scale(axes, which)


def _draw(axes: Any, name: str, quantities: tuple[np.ndarray, np.ndarray], **line: Any) -> None:
    """Draw medians as joined points, with bars between the quartiles."""
    (at_x, low_x, high_x), (at_y, low_y, high_y) = (
        np.transpose([quartiles(setting) for setting in runs.T]) for runs in quantities
    )
    axes.errorbar(
        at_x,
        at_y,
        xerr=(at_x - low_x, high_x - at_x),
        yerr=(at_y - low_y, high_y - at_y),
        ms=5,
        lw=1.2,
        elinewidth=0.9,
        capsize=2,
        label=name,
        **line,
    )

"""Figures of what is gained against what is given up, as a setting is varied."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from jaxarch.plots.style import COLOURS, LINES, MARKERS, STYLE, NotebookFigure, log_scale


def trade_off(
    points: Mapping[str, tuple[np.ndarray, np.ndarray]],
    x: str,
    y: str,
    title: str = "",
    logarithmic: tuple[bool, bool] = (False, False),
    marked: Mapping[str, float] | None = None,
) -> Figure:
    """Two measured quantities against one another: medians over runs, with bars between the quartiles.

    Args:
      points: by line, both quantities, shape (runs, settings) each; runs that are NaN are left out. A line's
        points are joined in the order of the settings.
      x: name of the first quantity.
      y: name of the second one.
      title: of the figure.
      logarithmic: whether x and y have logarithmic axes.
      marked: by name, values of x that are marked.

    Example:
      >>> import jaxarch, numpy as np
      >>> densities, accuracies = np.array([[0.1, 0.5], [0.3, 0.7]]), np.array([[0.8, 0.9], [0.6, 0.9]])
      >>> figure = jaxarch.plots.trade_off({"ours": (densities, accuracies)}, "density", "accuracy")
      >>> line = figure.axes[0].lines[0]  # two runs, two settings: a point is the median of a setting
      >>> line.get_xdata().round(3).tolist(), line.get_ydata().round(3).tolist()
      ([0.2, 0.6], [0.7, 0.9])
    """
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(5.6, 3.6), layout="constrained")
        axes = figure.subplots()
        for index, (name, quantities) in enumerate(points.items()):
            (low_x, at_x, high_x), (low_y, at_y, high_y) = (
                np.nanpercentile(runs, (25, 50, 75), axis=0) for runs in quantities
            )
            axes.errorbar(
                at_x,
                at_y,
                xerr=(at_x - low_x, high_x - at_x),
                yerr=(at_y - low_y, high_y - at_y),
                color=COLOURS[index % len(COLOURS)],
                ls=LINES[index % len(LINES)],
                marker=MARKERS[index % len(MARKERS)],
                ms=5,
                lw=1.2,
                elinewidth=0.9,
                capsize=2,
                label=name,
            )
        for name, value in (marked or {}).items():
            axes.axvline(value, color="#666666", lw=1.0, ls=":", label=name)
        for which, scale in (("x", logarithmic[0]), ("y", logarithmic[1])):
            if scale:
                log_scale(axes, which)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.set_title(title, loc="left")
        figure.legend(loc="outside right upper", title="median, quartiles over runs", alignment="left")
    return figure

"""Figures of quantities against a setting that varies, with many runs at each of its values."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from jaxarch._internal.errors import check_flag, items
from jaxarch.plots._arguments import numbers, pair, panels
from jaxarch.plots._style import STYLE, legend_below, log_scale, look, medians, panel_grid

MOST_MARKERS = 25


def sweep(
    rows: Mapping[str, Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]]],
    label: str,
    title: str = "",
    logarithmic: Collection[str] = (),
    marked: Mapping[str, float] | None = None,
    logarithmic_setting: bool = False,
) -> Figure:
    """Draw medians over runs against a setting, with bands between the quartiles, in a grid of panels.

    Args:
      rows: by quantity, by panel, by line: values of the setting, shape (n,), and the measurements there,
        shape (runs, n). A quantity has one scale in all its panels.
      label: label of the setting.
      title: title of the figure.
      logarithmic: the quantities with a logarithmic axis.
      marked: by quantity, a value to mark in its panels.
      logarithmic_setting: whether the setting's axis is logarithmic.

    Example:
      >>> import jaxarch, numpy as np
      >>> densities, accuracies = np.array([0.01, 0.1, 1.0]), np.array([[0.5, 0.8, 0.9], [0.7, 0.9, 0.9]])
      >>> rows = {"accuracy": {"digits": {"snip": (densities, accuracies)}}}
      >>> figure = jaxarch.plots.sweep(rows, "density", logarithmic_setting=True)
      >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel(), figure.axes[0].get_xscale()
      ('density', 'accuracy', 'log')
      >>> figure.axes[0].lines[0].get_ydata().round(3).tolist()  # medians
      [0.6, 0.85, 0.9]
    """
    rows = panels("rows", rows, "quantity, panel, line", pair("n", "runs, n"))
    logarithmic = items("logarithmic", logarithmic, str, "quantities")
    check_flag("logarithmic_setting", logarithmic_setting)
    marked = {} if marked is None else numbers("marked", marked)
    lines = list(dict.fromkeys(n for row in rows.values() for panel in row.values() for n in panel))
    with matplotlib.rc_context(STYLE):
        figure, grid, columns = panel_grid(rows, (3.1, 1.8), (0.5, 0.9), title, label)
        for axes_row, (quantity, row) in zip(grid, rows.items(), strict=True):
            for axes, column in zip(axes_row, columns, strict=True):
                for name, (at, runs) in row.get(column, {}).items():
                    line = look(lines.index(name)) | {"ms": 4, "mec": "white", "mew": 0.4}
                    if len(at) > MOST_MARKERS:
                        line["marker"] = ""
                    medians(axes, at, runs, **line, lw=1.4, label=name)
                if logarithmic_setting:
                    log_scale(axes, "x")
                if quantity in logarithmic:
                    log_scale(axes, "y")
                if quantity in marked:
                    axes.axhline(marked[quantity], color="#666666", lw=1.0, ls=":")
            axes_row[0].set_ylabel(quantity)
        figure.align_ylabels(grid[:, 0])
        legend_below(figure, lines)
    return figure

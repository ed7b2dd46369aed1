"""Figures of functions of two variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch.plots._arguments import array, panels
from jaxarch.plots._style import STYLE, panel_grid


def fields(
    rows: Mapping[str, Mapping[str, np.ndarray]],
    extent: tuple[float, float, float, float] = (-1.0, 1.0, -1.0, 1.0),
    title: str = "",
) -> Figure:
    """Draw functions of two variables as colors, in a grid of panels; a row has one scale, symmetric about 0.

    Args:
      rows: by row, by column: values of shape (n, m), the second variable upward along the first axis.
      extent: ranges of the variables: first from and to, second from and to.
      title: title of the figure.

    Example:
      >>> import jaxarch, numpy as np
      >>> first, second = np.meshgrid(np.linspace(-1, 1, 9), np.linspace(-1, 1, 9))
      >>> figure = jaxarch.plots.fields({"f": {"saddle": first * second, "plane": first + second}})
      >>> [axes.images[0].get_clim() for axes in figure.axes[:2]]  # one scale for the row
      [(-2.0, 2.0), (-2.0, 2.0)]
    """
    rows = panels("rows", rows, "row, column", array("n, m"))
    left, right, bottom, top = _extent("extent", extent)
    with matplotlib.rc_context({**STYLE, "axes.grid": False, "axes.titlesize": 9}):
        figure, grid, columns = panel_grid(rows, (1.3, 1.35), (1.4, 0.7), title, sharey=True)
        for axes_row, (name, row) in zip(grid, rows.items(), strict=True):
            largest = (
                max(np.abs(values[np.isfinite(values)]).max(initial=0) for values in row.values()) or 1.0
            )
            for axes, column in zip(axes_row, columns, strict=True):
                image = axes.imshow(
                    row[column],
                    cmap="RdBu_r",
                    vmin=-largest,
                    vmax=largest,
                    origin="lower",
                    extent=(left, right, bottom, top),
                    interpolation="bilinear",
                )
            axes_row[0].set_ylabel(name)
            axes_row[0].set_xticks(np.linspace(left, right, 3))
            axes_row[0].set_yticks(np.linspace(bottom, top, 3))
            figure.colorbar(image, ax=axes_row, aspect=12, pad=0.01)
    return figure


def _extent(name: str, value: Any) -> list[float]:
    """Read the ranges of two variables: first from and to, second from and to."""
    ends: list[float] = array("4")(name, value).tolist()
    if len(ends) != 4 or not np.isfinite(ends).all():
        raise ArgumentError(f"{name}: expected four finite numbers, got {shown(value)}")
    return ends

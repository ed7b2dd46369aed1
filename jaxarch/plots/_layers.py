"""Figures of the density of an architecture in each layer of a network."""

from __future__ import annotations

import math
from collections.abc import Mapping

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from jaxarch._internal.errors import positive_number
from jaxarch.metrics import quartiles
from jaxarch.plots import _arguments as arguments
from jaxarch.plots._arguments import array
from jaxarch.plots._style import STYLE, legend_below, log_scale, look, panel_grid


def layer_densities(
    panels: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]], title: str = "", floor: float = 1e-4
) -> Figure:
    """Draw the density of each layer on a logarithmic axis: medians over runs, bars between the quartiles.

    `masks.layer_density` measures it. According to [A] section 3.3 it makes an architecture transferable.

    Args:
      panels: by panel (such as a sparsity), by line (a search), by layer in the order of the data flow: the
        densities of all runs, shape (runs,).
      title: title of the figure.
      floor: the density at which an empty layer is drawn, since 0 has no logarithm.

    Example:
      >>> import jaxarch, numpy as np
      >>> densities = {"hidden/kernel": np.array([0.1, 0.2, 0.3]), "head/kernel": np.array([0.0, 0.0, 0.0])}
      >>> figure = jaxarch.plots.layer_densities({"sparsity 0.9": {"snip": densities}})
      >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
      ['hidden', 'head']
      >>> figure.axes[0].lines[0].get_ydata().tolist()  # the median, and the floor in place of 0
      [0.2, 0.0001]
    """
    panels = arguments.panels("panels", panels, "panel, line, layer", array("runs"))
    floor = positive_number("floor", floor)
    lines = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    layers = list(dict.fromkeys(layer for panel in panels.values() for of in panel.values() for layer in of))
    width = max(0.28 * len(layers) * math.sqrt(len(lines)), 2.0)
    with matplotlib.rc_context(STYLE):
        figure, grid, columns = panel_grid({"": panels}, (width, 2.6), (0.8, 0.9), title)
        for axes, column in zip(grid[0], columns, strict=True):
            for index, name in enumerate(lines):
                of = panels[column].get(name, {})
                spread = np.asarray([quartiles(np.maximum(of[layer], floor)) for layer in of])
                if not len(spread):
                    continue
                at = np.asarray([layers.index(layer) for layer in of]) + _beside(index, len(lines))
                median, low, high = spread.T
                axes.errorbar(
                    at,
                    median,
                    yerr=(median - low, high - median),
                    **look(index),
                    ms=4.5,
                    lw=0.9,
                    elinewidth=1.2,
                    label=name,
                )
            log_scale(axes, "y")
            axes.set_xticks(
                range(len(layers)), [name.removesuffix("/kernel") for name in layers], rotation=90
            )
        grid[0, 0].set_ylabel("share of connections left")
        legend_below(figure, lines)
    return figure


def _beside(index: int, lines: int) -> float:
    """Return the sideways offset of a line, so that bars do not cover one another."""
    return 0.5 * (index - (lines - 1) / 2) / max(lines, 1)

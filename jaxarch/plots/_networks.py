"""Drawings of networks: their neurons, and the connections that carry something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxarch._internal.errors import ArgumentError, check_mapping, real_number, shown
from jaxarch.plots._arguments import array, panels
from jaxarch.plots._style import COLOURS, STYLE, NotebookFigure
from jaxarch.spectral._direct_names import direct_bundles

Bundles = Mapping[tuple[int, int], np.ndarray]
"""W_ij by (i, j), shape (neurons of layer i, neurons of layer j), layers numbered from 1."""
Weights = Mapping[str, np.ndarray]
"""The same bundles by name, W2_1 and so on, as in `spectral.direct_weights`."""


def architectures(
    rows: Mapping[str, Mapping[str, Bundles | Weights]], cutoff: float = 0.01, title: str = ""
) -> Figure:
    """Draw networks with skip connections: neurons, and the connections above a cutoff ([S] Fig. 15).

    Layers go from left to right, hidden ones raised, so that connections that skip them pass below. A line is
    wider and darker the larger its weight is, relative to the largest one of its network. A hidden neuron
    without an incoming connection is drawn pale, and its outgoing connections are not drawn, since they carry
    nothing. At the perceptron start of a spectral network, this holds for all hidden neurons.

    Args:
      rows: by row, by column: the bundles of a network, as in `spectral.algebra.connections`, or its weights,
        as in `spectral.direct_weights`; biases are not drawn.
      cutoff: absolute weight up to which connections are not drawn.
      title: title of the figure.

    Example:
      >>> import jaxarch, numpy as np
      >>> bundles = {(2, 1): np.array([[-9, 0]]), (3, 1): np.array([[8, 3]]), (3, 2): np.array([[-6]])}
      >>> figure = jaxarch.plots.architectures({"ours": {"start": bundles}})
      >>> [len(lines.get_segments()) for lines in figure.axes[0].collections]  # the weight of 0 is not drawn
      [1, 2, 1]
    """
    rows = panels("rows", rows, "row, column", _bundles)
    cutoff = real_number("cutoff", cutoff)
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    with matplotlib.rc_context(STYLE):
        size = (max(1.6 * len(columns) + 0.3, 4.2), 1.9 * len(rows) + 0.9)
        figure = NotebookFigure(figsize=size, layout="constrained")
        grid = figure.subplots(len(rows), len(columns), squeeze=False)
        for axes_row, (name, row) in zip(grid, rows.items(), strict=True):
            for axes, column in zip(axes_row, columns, strict=True):
                axes.set_axis_off()
                if column in row:
                    _network(axes, row[column], cutoff)
            axes_row[0].set_title(f"{name}\n{columns[0]}", loc="left", size=9)
            for axes, column in zip(axes_row[1:], columns[1:], strict=True):
                axes.set_title(f"\n{column}", loc="left", size=9)
        figure.suptitle(title, x=0.01, ha="left")
        handles = [
            Line2D([], [], color=COLOURS[0], label="between neighbouring layers"),
            Line2D([], [], color=COLOURS[1], label="skipping a layer"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _bundles(name: str, network: Any) -> Bundles:
    """Read the bundles of a network, and check that they lead from layer to layer."""
    check_mapping(name, network, "the bundles or the weights of a network")
    found = direct_bundles({key: leaf for key, leaf in network.items() if isinstance(key, str)})
    found |= {ends: leaf for ends, leaf in network.items() if _is_pair(ends)}
    read = array("outputs, inputs")
    bundles = {ends: read(f"{name}: {shown(ends)}", leaf) for ends, leaf in found.items()}
    layers = max(map(max, bundles), default=0)
    needed = {(i, i - 1) for i in range(2, layers + 1)}
    if not needed or needed - set(bundles) or any(not 0 < j < i for i, j in bundles):
        raise ArgumentError(f"{name}: expected the bundles (2, 1), (3, 2), ..., got {shown(list(bundles))}")
    widths = _widths(bundles)
    for (i, j), leaf in bundles.items():
        if leaf.shape != (widths[i - 1], widths[j - 1]):
            raise ArgumentError(
                f"{name}: expected ({i}, {j}) to fit layers of {widths} neurons, got shape {leaf.shape}"
            )
    return bundles


def _is_pair(key: Any) -> bool:
    return isinstance(key, tuple) and len(key) == 2 and all(isinstance(layer, int) for layer in key)


def _network(axes: Any, bundles: Bundles, cutoff: float) -> None:
    places = _places(_widths(bundles))
    largest = max(float(np.abs(weights).max()) for weights in bundles.values())
    reached = [np.full(len(layer), i == 0) for i, layer in enumerate(places)]
    for (i, j), weights in sorted(bundles.items()):
        ends, starts = np.nonzero((np.abs(weights) > cutoff) & reached[j - 1])
        reached[i - 1][ends] = True
        size = np.abs(weights[ends, starts]) / (largest or 1.0)
        segments = np.stack([places[j - 1][starts], places[i - 1][ends]], axis=1)
        colour = to_rgb(COLOURS[0] if i == j + 1 else COLOURS[1])
        colours = [(*colour, 0.15 + 0.85 * share) for share in size]
        lines = LineCollection(list(segments), colors=colours, linewidths=0.2 + 1.6 * size)
        axes.add_collection(lines)
    for layer, used in zip(places, reached, strict=True):
        dot = 4 if len(layer) < 50 else 1.6
        axes.plot(*layer[~used].T, "o", ms=dot, mew=0, color="#cccccc", zorder=3)
        axes.plot(*layer[used].T, "o", ms=dot, mew=0, color="#222222", zorder=4)
    axes.set_xlim(-0.1, 1.1)
    axes.set_ylim(-0.25, 1.15)


def _widths(bundles: Bundles) -> list[int]:
    layers = max(i for i, _ in bundles)
    return [bundles[2, 1].shape[1], *(bundles[i, i - 1].shape[0] for i in range(2, layers + 1))]


def _places(widths: Sequence[int]) -> list[np.ndarray]:
    """Return the places of all neurons, one array (N_i, 2) per layer; the larger a layer, the taller."""
    places = []
    for i, width in enumerate(widths):
        inner = 0 < i < len(widths) - 1
        height = (0.7 if inner else 0.3) * (width - 1) / max(width, 2)
        offset = np.linspace(height / 2, -height / 2, width)
        places.append(np.stack([np.full(width, i / (len(widths) - 1)), offset + (0.7 if inner else 0.0)], 1))
    return places

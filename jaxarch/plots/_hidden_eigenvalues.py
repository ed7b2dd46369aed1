"""Figures of the hidden eigenvalues of spectral networks, and of the neurons that they stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxarch._internal.errors import ArgumentError, check_concrete, check_instance, positive_number
from jaxarch._internal.trees import named_leaves
from jaxarch.plots._arguments import nested
from jaxarch.plots._style import COLOURS, STYLE, log_scale, panel_grid
from jaxarch.run._network import Network
from jaxarch.run._records import NeuronMask
from jaxarch.spectral._network import hidden_eigenvalues

_LAYER = re.compile(r"L(\d+)$")
_LEFT, _REMOVED = COLOURS[0], "#bbbbbb"


def recruited(networks: Mapping[str, Network], title: str = "", floor: float = 1e-6) -> Figure:
    """Draw the hidden eigenvalues of spectral networks by layer, and which of their neurons are left.

    Each layer shows `|L_i|` from the largest to the smallest, on a logarithmic axis shared by all panels. A
    layer has found its width if the curve falls off a cliff, and not if it slopes. Neurons removed by
    `jaxarch.recruit`, or by a proximal step, are pale.

    Args:
      networks: by row: one network each, such as `network.of_run(0)`. A model that contains several spectral
        networks shows the layers of all.
      title: title of the figure.
      floor: the size at which smaller eigenvalues, 0 included, are drawn.

    Raises:
      ArgumentError: no networks, many runs at once, or a network without hidden eigenvalues.

    Example:
      >>> import jax, jaxarch
      >>> from jaxarch.run._network import Network
      >>> params, state = jaxarch.spectral_network((2, 5, 4, 1), form="gated").init(jax.random.key(0))
      >>> figure = jaxarch.plots.recruited({"at first": Network(params, state=state)})
      >>> [axes.get_title(loc="left") for axes in figure.axes]
      ['L_2: 5 of 5 kept', 'L_3: 4 of 4 kept']
    """
    networks = nested("networks", networks, "row", _network)
    if not networks:
        raise ArgumentError("networks: expected at least one, got none")
    floor = positive_number("floor", floor)
    rows = {name: _layers(name, network) for name, network in networks.items()}
    with matplotlib.rc_context(STYLE):
        figure, grid, columns = panel_grid(rows, (2.5, 2.0), (0.6, 0.7), title, sharey=True)
        for panels, (name, row) in zip(grid, rows.items(), strict=True):
            for axes, column in zip(panels, columns, strict=True):
                if column not in row:
                    axes.set_axis_off()
                    continue
                values, left = row[column]
                order = np.argsort(-values, kind="stable")
                sizes, stays = np.maximum(values[order], floor), left[order]
                at = np.arange(1, len(sizes) + 1)
                axes.plot(at[~stays], sizes[~stays], "o", ms=3, mew=0, color=_REMOVED)
                axes.plot(at[stays], sizes[stays], "o", ms=4, mew=0, color=_LEFT)
                axes.set_title(f"{column}: {left.sum()} of {left.size} kept", loc="left")
            panels[0].set_ylabel(f"{name}\n|eigenvalue|")
        for axes in grid[-1]:
            axes.set_xlabel("neurons, sorted by |eigenvalue|")
        log_scale(grid[0, 0], "y")
        handles = [
            Line2D([], [], marker="o", ls="", ms=size, mew=0, color=colour, label=label)
            for label, colour, size in (("kept", _LEFT, 4), ("removed", _REMOVED, 3))
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _network(name: str, value: Any) -> Network:
    check_instance(name, value, Network, "a jaxarch.Network")
    check_concrete(name, value.params)
    return value


def _layers(name: str, network: Network) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return, by layer, the sizes of a network's hidden eigenvalues, and which of its neurons are left."""
    leaves = {
        path: np.abs(np.asarray(leaf, np.float32))
        for path, leaf in named_leaves(hidden_eigenvalues(network.params)).items()
    }
    if any(values.ndim != 1 for values in leaves.values()):
        raise ArgumentError(f"networks: {name!r} holds many runs; pass one, network.of_run(i)")
    neurons = network.get(NeuronMask)
    kept = {} if neurons is None else named_leaves(neurons.kept)
    alone = len({path.rpartition("/")[0] for path in leaves}) == 1
    return {
        _LAYER.sub(r"L_\1", path.rpartition("/")[2] if alone else path): (
            values,
            np.asarray(kept.get(path, np.ones(values.shape, bool))),
        )
        for path, values in leaves.items()
    }

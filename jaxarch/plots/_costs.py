"""Figures of the costs of a model."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from jaxarch._internal.errors import check_instance, real_number
from jaxarch.plots._style import COLOURS, STYLE, NotebookFigure, named_handles
from jaxarch.structure import Cost, LayerCost

_PANELS = {"parameters": "parameters", "multiply_adds": "multiply-adds of {}"}


def cost(cost: Cost, title: str = "", least: float = 1e-3) -> Figure:
    """Draw parameters and multiply-adds per layer, a bar for each kind of connections (see `jaxarch.cost`).

    Args:
      cost: cost of a model.
      title: title of the figure.
      least: layers with a smaller share of both totals, such as most norms, are left out.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {"in": jnp.ones((3, 8)), "out": jnp.ones((8, 2))}
      >>> cost = jaxarch.cost(lambda p, x: jnp.tanh(x @ p["in"]) @ p["out"], params, jnp.ones((1, 3)))
      >>> figure = jaxarch.plots.cost(cost)
      >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
      ['in', 'out']
      >>> [int(bar.get_width()) for bar in figure.axes[1].containers[0]]
      [24, 16]
    """
    check_instance("cost", cost, Cost, "what jaxarch.cost returns")
    least = real_number("least", least)
    kinds = cost.kinds()
    names = [name for name, layer in cost.layers.items() if _share(layer, cost.total) >= least]
    height = 0.8 / len(kinds)
    with matplotlib.rc_context(STYLE):
        size = (7.5, max(0.1 + 0.085 * len(kinds), 0.2) * len(names) + 1.1)
        figure = NotebookFigure(figsize=size, layout="constrained")
        for axes, (field, label) in zip(figure.subplots(1, 2, sharey=True), _PANELS.items(), strict=True):
            for index, kind in enumerate(kinds):
                axes.barh(
                    np.arange(len(names)) + (index - (len(kinds) - 1) / 2) * height,
                    [getattr(getattr(cost.layers[name], kind), field) for name in names],
                    height,
                    color=COLOURS[index],
                    label=kind,
                )
            axes.set_xlabel(label.format(cost.of))
            axes.xaxis.set_major_locator(MaxNLocator(4))
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.grid(False, axis="y")
        figure.axes[0].set_yticks(range(len(names)), names)
        figure.axes[0].set_ylim(len(names) - 0.4, -0.6)
        handles = named_handles(figure)
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles))
        figure.suptitle(title, x=0.01, ha="left")
    return figure


def _share(layer: LayerCost, total: LayerCost) -> float:
    """Return the larger of a layer's shares of the totals."""
    return max(getattr(layer.dense, field) / max(getattr(total.dense, field), 1) for field in _PANELS)

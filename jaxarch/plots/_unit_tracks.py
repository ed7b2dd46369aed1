"""Figures of the units of a model, and of the layers that read, make and carry them."""

from __future__ import annotations

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxarch._internal.errors import check_instance
from jaxarch.plots._style import COLOURS, STYLE, NotebookFigure
from jaxarch.structure import Groups, layer_units

_KINDS = {
    "neurons": COLOURS[0],
    "channels": COLOURS[1],
    "heads": COLOURS[2],
    "experts": COLOURS[3],
    "features": COLOURS[6],
}
_MARKS = {"makes": ("o", "full"), "reads": ("o", "none"), "carries": ("_", "full")}


def units(groups: Groups, title: str = "") -> Figure:
    """Draw the groups of a model as tracks through its layers, from top to bottom.

    A track is a group of units that must be cut together. On it, a layer that makes the units has a full
    mark, and a layer that reads them an open one. A layer that only has numbers for them, such as a norm or a
    bias, has a dash. A residual stream is a track with many marks, and a hidden layer is one with two.

    Args:
      groups: groups of a model, as found by `structure.axis_groups`.
      title: title of the figure.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {"in": jnp.ones((3, 8)), "out": jnp.ones((8, 2))}
      >>> def model(params, x):
      ...     return jnp.tanh(x @ params["in"]) @ params["out"]
      >>> groups = jaxarch.structure.axis_groups(model, params, jnp.ones((1, 3)))
      >>> figure = jaxarch.plots.units(groups)
      >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
      ['in', 'out']
    """
    check_instance("groups", groups, Groups, "what jaxarch.structure.axis_groups returns")
    layers = layer_units(groups)
    layers = tuple(layer for layer in layers if layer.reads | layer.makes | layer.carries)
    with matplotlib.rc_context(STYLE):
        size = (0.62 * len(groups.groups) + 3.2, 0.2 * len(layers) + 1.2)
        figure = NotebookFigure(figsize=size, layout="constrained")
        axes = figure.subplots()
        for column, (name, group) in enumerate(groups.groups.items()):
            colour = _KINDS[group.kind]
            rows = {
                role: [row for row, layer in enumerate(layers) if name in getattr(layer, role)]
                for role in _MARKS
            }
            involved = [row for of_role in rows.values() for row in of_role]
            axes.plot([column] * 2, [min(involved), max(involved)], color=colour, lw=1.5, alpha=0.35)
            for role, (marker, fill) in _MARKS.items():
                axes.plot(
                    [column] * len(rows[role]), rows[role], marker, color=colour, fillstyle=fill,
                    ms=6, mew=1.4, markerfacecolor=colour if fill == "full" else "white",
                )  # fmt: skip
        axes.set_yticks(range(len(layers)), [layer.layer for layer in layers])
        axes.set_ylim(len(layers) - 0.4, -0.6)
        axes.set_xticks(range(len(groups.groups)), [str(group.size) for group in groups.groups.values()])
        axes.set_xlim(-0.6, len(groups.groups) - 0.4)
        axes.set_xlabel("units of each group")
        axes.grid(False, axis="x")
        axes.tick_params(length=0)
        figure.suptitle(title, x=0.01, ha="left")
        figure.legend(handles=_handles(groups), loc="outside right upper")
    return figure


def _handles(groups: Groups) -> list[Line2D]:
    kinds = {group.kind for group in groups.groups.values()}
    of_kinds = [Line2D([], [], color=_KINDS[kind], lw=3, label=kind) for kind in _KINDS if kind in kinds]
    of_marks = [
        Line2D(
            [], [], color="grey", marker=marker, ls="", ms=6, mew=1.4, label=role,
            markerfacecolor="grey" if fill == "full" else "white",
        )
        for role, (marker, fill) in _MARKS.items()
    ]  # fmt: skip
    return [*of_kinds, *of_marks]

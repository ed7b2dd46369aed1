"""Figures of the sizes of numbers, over many orders of magnitude."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from jaxarch._internal.errors import positive_number
from jaxarch.plots import _arguments as arguments
from jaxarch.plots._arguments import array
from jaxarch.plots._style import COLOURS, LINES, STYLE, NotebookFigure, log_scale, named_handles

BINS = 40


def magnitudes(
    panels: Mapping[str, Mapping[str, np.ndarray]], label: str, title: str = "", least: float = 1e-6
) -> Figure:
    """Draw histograms of numbers on a logarithmic axis, panels side by side.

    Args:
      panels: by title, by group: numbers of at least 0; NaN is left out.
      label: label of the axis.
      title: title of the figure.
      least: smaller numbers, zeros included, are counted in the first bin.

    Example:
      >>> import jaxarch, numpy as np
      >>> panels = {"hidden layer": {"start": np.array([0.0, 1e-8]), "end": np.array([0.5, 2.0, np.nan])}}
      >>> figure = jaxarch.plots.magnitudes(panels, label="|eigenvalue|")
      >>> figure.axes[0].get_xlabel()
      '|eigenvalue| (first bin: at most 1e-06)'
      >>> [text.get_text() for text in figure.legends[0].get_texts()]
      ['start', 'end']
    """
    panels = arguments.panels("panels", panels, "panel, group", array())
    least = positive_number("least", least)
    names = list(dict.fromkeys(name for groups in panels.values() for name in groups))
    largest = max(
        float(v[np.isfinite(v)].max(initial=0)) for groups in panels.values() for v in groups.values()
    )
    bins = np.geomspace(least, max(largest, 10 * least) * 1.1, BINS + 1)
    with matplotlib.rc_context(STYLE):
        size = (2.7 * len(panels) + 0.4, 2.9)
        figure = NotebookFigure(figsize=size, layout="constrained")
        row = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (panel, groups) in zip(row, panels.items(), strict=True):
            for name, values in groups.items():
                index = names.index(name)
                axes.hist(
                    np.clip(values[np.isfinite(values)], least, None),
                    bins,
                    histtype="stepfilled",
                    fc=(*to_rgb(COLOURS[index % len(COLOURS)]), 0.25),
                    ec=COLOURS[index % len(COLOURS)],
                    ls=LINES[index % len(LINES)],
                    lw=1.2,
                    label=name,
                )
            log_scale(axes, "x")
            axes.set_xlabel(f"{label} (first bin: at most {least:g})")
            axes.set_title(panel, loc="left", size=9)
        row[0].set_ylabel("neurons")
        figure.suptitle(title, x=0.01, ha="left")
        handles = named_handles(figure)
        figure.legend([handles[name] for name in names], names, loc="outside lower center", ncols=len(names))
    return figure

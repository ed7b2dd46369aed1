"""Figures of mean ranks, with bars that join strategies that cannot be told apart."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from jaxarch._internal.errors import check_instance
from jaxarch.metrics import Ranking
from jaxarch.plots._style import COLOURS, STYLE, NotebookFigure

ROW, GROUP = 0.24, 0.1
"""Inches per strategy, and per bar of a group."""


def ranks(ranking: Ranking, title: str = "") -> Figure:
    """Draw the mean rank of every strategy with its interval, the best on top: a critical-difference diagram.

    Vertical bars on the right join strategies that cannot be told apart, since their mean ranks are closer
    than the critical difference (see `metrics.ranking`). The critical difference is drawn to scale.

    Args:
      ranking: the result of `metrics.ranking`.
      title: title of the figure.

    Example:
      >>> import jaxarch, numpy as np
      >>> values = {name: np.random.default_rng(i).normal(i, 1, 8) for i, name in enumerate("abc")}
      >>> figure = jaxarch.plots.ranks(jaxarch.metrics.ranking(values))
      >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
      ['c', 'b', 'a']
    """
    check_instance("ranking", ranking, Ranking, "what jaxarch.metrics.ranking returns")
    table, groups = ranking.table, ranking.alike()
    at = np.arange(len(table))
    with matplotlib.rc_context(STYLE):
        height = 1.3 + ROW * len(table)
        figure = NotebookFigure(figsize=(6.0 + GROUP * len(groups), height), layout="constrained")
        axes, bars = figure.subplots(1, 2, sharey=True, width_ratios=(6, max(GROUP * len(groups), 0.2)))
        around = np.stack([table["rank"] - table["low"], table["high"] - table["rank"]])
        axes.errorbar(
            table["rank"], at, xerr=around.clip(0), color=COLOURS[0], ls="", marker="o", ms=5, capsize=2
        )
        least = float(table["low"].min())
        axes.errorbar(
            [least + ranking.critical_difference / 2],
            [-1.1],
            xerr=ranking.critical_difference / 2,
            color="black",
            lw=1.2,
            capsize=4,
        )
        axes.annotate(
            f"critical difference {ranking.critical_difference:.2f}",
            (least + ranking.critical_difference, -1.1),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
        )
        axes.set_yticks(at, table["strategy"])
        axes.set_ylim(len(table) - 0.4, -1.7)
        axes.set_xlabel(f"mean rank over {ranking.runs} runs, with 95% intervals; 1 is the best")
        axes.grid(axis="x", color="#dddddd", lw=0.6)
        axes.set_axisbelow(True)
        rows = {name: row for row, name in enumerate(table["strategy"])}
        for place, group in enumerate(groups):
            first, last = rows[group[0]], rows[group[-1]]
            bars.plot([place, place], [first - 0.25, last + 0.25], color="black", lw=2.5)
        bars.set_xlim(-0.5, max(len(groups), 1) - 0.5)
        bars.set_axis_off()
        figure.suptitle(title, x=0.01, ha="left")
    return figure

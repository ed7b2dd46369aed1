"""Figures of the regret of many strategies over many tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from jaxarch._internal.errors import ArgumentError, real_numbers, shown
from jaxarch.plots._arguments import panels
from jaxarch.plots._style import STYLE, NotebookFigure

LEAST, MOST = 1e-3, 0.5
"""Regrets at the ends of the color scale, in the units of accuracies."""
CELL, ROW = 0.4, 0.2
"""Inches per cell, and per row."""


def regrets(groups: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]], title: str = "") -> Figure:
    """Draw the regret of every strategy in every cell of every task, as colors with their numbers.

    Rows are strategies, in the order given, group by group; columns are the cells of each task. The best of a
    cell is framed. Cells of tasks in which a strategy took no part stay empty, and `-` marks one that failed.
    Colors go from .001 to .5 on a logarithmic scale.

    Args:
      groups: by group of strategies, by strategy, by task, by cell (such as a density): a regret from
        `metrics.regret`, at least 0.
      title: title of the figure.

    Raises:
      ArgumentError: nothing to draw, or a regret that is not a number, or is negative.

    Example:
      >>> import jaxarch
      >>> learned = {"two-temperature": {"digits": {".1": 0.0, ".02": 0.003}}}
      >>> drawn = {"digits": {".1": 0.01, ".02": 0.6}}
      >>> figure = jaxarch.plots.regrets({"learned": learned, "drawn": {"random": drawn}})
      >>> [text.get_text() for text in figure.axes[0].texts], figure.axes[0].get_title()
      (['0', '.003', 'learned'], 'digits')
    """
    groups = _filled(panels("groups", groups, "group, strategy, task, cell", _regret))
    if not groups:
        raise ArgumentError("groups: nothing to draw")
    tasks: dict[str, dict[str, None]] = {}
    for rows in groups.values():
        for by_task in rows.values():
            for task, of in by_task.items():
                tasks.setdefault(task, {}).update(dict.fromkeys(of))
    longest = max(len(name) for rows in groups.values() for name in rows)
    width = 0.6 + 0.07 * longest + CELL * sum(map(len, tasks.values())) + 0.15 * len(tasks)
    height = 1.1 + ROW * sum(map(len, groups.values())) + 0.2 * len(groups)
    with matplotlib.rc_context({**STYLE, "axes.grid": False, "font.size": 7}):
        figure = NotebookFigure(figsize=(width, height), layout="constrained")
        grid = figure.subplots(
            len(groups),
            len(tasks),
            squeeze=False,
            width_ratios=[len(columns) for columns in tasks.values()],
            height_ratios=[len(rows) for rows in groups.values()],
        )
        for axes_row, (group, rows) in zip(grid, groups.items(), strict=True):
            for axes, (task, columns) in zip(axes_row, tasks.items(), strict=True):
                image = _fill(axes, [by_task.get(task, {}) for by_task in rows.values()], list(columns))
            axes_row[0].set_yticks(range(len(rows)), list(rows))
            axes_row[0].annotate(
                group,
                (0, 1),
                (-3, 2),
                xycoords="axes fraction",
                textcoords="offset points",
                ha="right",
                weight="bold",
            )
        for axes, task in zip(grid[0], tasks, strict=True):
            axes.set_title(task, fontsize=8)
        for axes, columns in zip(grid[-1], tasks.values(), strict=True):
            axes.set_xticks(range(len(columns)), list(columns))
        figure.colorbar(
            image, ax=grid, aspect=60, shrink=0.5, pad=0.01, label="regret: best median minus this median"
        )
        figure.suptitle(title, x=0.01, ha="left")
    return figure


def _filled(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Drop groups, strategies and tasks without any cell."""
    inner = {key: _filled(of) if isinstance(of, Mapping) else of for key, of in nested.items()}
    return {key: of for key, of in inner.items() if of != {}}


def _regret(name: str, value: Any) -> float:
    """Read one regret; infinite or NaN means that a strategy failed."""
    found = real_numbers(name, value)
    if found.shape != () or found < 0:
        raise ArgumentError(f"{name}: expected a regret of at least 0, got {shown(value)}")
    return float(found)


def _fill(axes: Any, rows: Sequence[Mapping[str, float]], cells: Sequence[str]) -> Any:
    """Draw the cells of a group of strategies and a task; return the image, for the scale of colors."""
    values = np.asarray([[row.get(cell, np.nan) for cell in cells] for row in rows])
    failed = ~np.isfinite(values) & [[cell in row for cell in cells] for row in rows]
    image = axes.imshow(
        np.where(failed, MOST, np.clip(values, LEAST, MOST)),
        cmap="YlOrRd",
        norm=LogNorm(LEAST, MOST),
        aspect="auto",
    )
    for row, column in np.argwhere(np.isfinite(values) | failed):
        value = values[row, column]
        dark = failed[row, column] or value > 0.1
        axes.text(
            column,
            row,
            "-" if failed[row, column] else _short(value),
            ha="center",
            va="center",
            color="white" if dark else "black",
            weight="bold" if value == 0 else "normal",
            fontsize=6,
        )
        if value == 0:
            axes.add_patch(
                matplotlib.patches.Rectangle(
                    (column - 0.47, row - 0.44), 0.94, 0.88, fill=False, edgecolor="black", lw=1.2
                )
            )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return image


def _short(value: float) -> str:
    """Format a regret with three decimals, without the leading zero."""
    return f"{value:.3f}".removeprefix("0") if value else "0"

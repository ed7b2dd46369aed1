"""Maps of many strategies over many tasks or layers: a colored cell with its number for each pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from jaxarch._internal.errors import ArgumentError, real_numbers, shown
from jaxarch.plots._arguments import array, panels
from jaxarch.plots._style import STYLE, NotebookFigure

LEAST, MOST = 1e-3, 0.5
"""Regrets at the ends of the color scale, in the units of accuracies."""
CELL, ROW = 0.4, 0.2
"""Inches per cell, and per row."""


class Cell(NamedTuple):
    """A cell as it is drawn: its place on the color scale, its text, and its emphasis."""

    color: float
    text: str
    bold: bool = False
    framed: bool = False


class Scale(NamedTuple):
    """Colors of all cells; text is white from `dark` on."""

    least: float
    most: float
    cmap: str
    dark: float
    label: str


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
    read = panels("groups", groups, "group, strategy, task, cell", _regret)
    return _map(read, Scale(LEAST, MOST, "YlOrRd", 0.1, "regret: best median minus this median"), title)


def connections_by_layer(
    groups: Mapping[str, Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]], title: str = ""
) -> Figure:
    """Draw the number of connections that every strategy leaves in every layer, as colors with their numbers.

    A layer without connections passes nothing on, so a network often fails where one is empty. Rows are
    strategies, in the order given, group by group; columns are the layers at each density. A number is the
    median over runs. A layer that is empty in at least one run is framed, with the share of such runs: `4
    (20%)`. Colors are on a logarithmic scale.

    Args:
      groups: by group of strategies, by strategy, by panel (such as a density), by layer in the order of the
        data flow: the connections left in each run, shape (runs,); see `masks.layer_density`.
      title: title of the figure.

    Raises:
      ArgumentError: nothing to draw, or numbers that are negative or of another shape.

    Example:
      >>> import jaxarch, numpy as np
      >>> snip = {"density .02": {"hidden": np.array([60, 62]), "head": np.array([0, 3])}}
      >>> figure = jaxarch.plots.connections_by_layer({"at initialization": {"SNIP": snip}})
      >>> [text.get_text() for text in figure.axes[0].texts][:2]
      ['61', '1.5 (50%)']
    """
    read = panels("groups", groups, "group, strategy, panel, layer", _counts)
    most = max((cell.color for cell in _cells(read)), default=1.0)
    scale = Scale(0.5, max(most, 1.0), "viridis_r", np.sqrt(0.5 * max(most, 1.0)), "connections left, median")
    return _map(read, scale, title, wide=1.9)


def _map(groups: Mapping[str, Any], scale: Scale, title: str, wide: float = 1.0) -> Figure:
    """Draw cells by group, strategy, panel and column; a cell is `wide` times as wide as a regret's."""
    groups = _filled(groups)
    if not groups:
        raise ArgumentError("groups: nothing to draw")
    tasks: dict[str, dict[str, None]] = {}
    for rows in groups.values():
        for by_task in rows.values():
            for task, of in by_task.items():
                tasks.setdefault(task, {}).update(dict.fromkeys(of))
    longest = max(len(name) for rows in groups.values() for name in rows)
    width = 0.6 + 0.07 * longest + wide * CELL * sum(map(len, tasks.values())) + 0.15 * len(tasks)
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
                image = _fill(
                    axes, [by_task.get(task, {}) for by_task in rows.values()], list(columns), scale
                )
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
        turned = 90 if max(len(column) for columns in tasks.values() for column in columns) > 5 * wide else 0
        for axes, columns in zip(grid[-1], tasks.values(), strict=True):
            axes.set_xticks(range(len(columns)), list(columns), rotation=turned)
        figure.colorbar(image, ax=grid, aspect=60, shrink=0.5, pad=0.01, label=scale.label)
        figure.suptitle(title, x=0.01, ha="left")
    return figure


def _filled(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Drop groups, strategies and tasks without any cell."""
    inner = {key: _filled(of) if isinstance(of, Mapping) else of for key, of in nested.items()}
    return {key: of for key, of in inner.items() if of != {}}


def _cells(nested: Any) -> list[Cell]:
    return [nested] if isinstance(nested, Cell) else [cell for of in nested.values() for cell in _cells(of)]


def _regret(name: str, value: Any) -> Cell:
    """Read one regret; infinite or NaN means that a strategy failed."""
    found = real_numbers(name, value)
    if found.shape != () or found < 0:
        raise ArgumentError(f"{name}: expected a regret of at least 0, got {shown(value)}")
    regret = float(found)
    if not np.isfinite(regret):
        return Cell(MOST, "-")
    text = f"{regret:.3f}".removeprefix("0") if regret else "0"
    return Cell(regret, text, bold=regret == 0, framed=regret == 0)


def _counts(name: str, value: Any) -> Cell:
    """Read the connections of all runs."""
    found = array("runs")(name, value)
    if not found.size or not ((found >= 0) & (found < np.inf)).all():
        raise ArgumentError(f"{name}: expected numbers of connections of at least 0, got {shown(value)}")
    median, empty = float(np.median(found)), float((found == 0).mean())
    share = "100%" if empty == 1 else "<1%" if empty < 0.01 else f"{min(empty, 0.99):.0%}"
    text = f"{median:,.10g}" + (f" ({share})" if empty else "")
    return Cell(median, text, bold=empty > 0, framed=empty > 0)


def _fill(axes: Any, rows: Sequence[Mapping[str, Cell]], columns: Sequence[str], scale: Scale) -> Any:
    """Draw the cells of a group of strategies and a panel; return the image, for the scale of colors."""
    values = np.asarray([[row[name].color if name in row else np.nan for name in columns] for row in rows])
    image = axes.imshow(
        np.clip(values, scale.least, scale.most),
        cmap=scale.cmap,
        norm=LogNorm(scale.least, scale.most),
        aspect="auto",
    )
    for row, column in np.argwhere(np.isfinite(values)):
        cell = rows[row][columns[column]]
        axes.text(
            column,
            row,
            cell.text,
            ha="center",
            va="center",
            color="white" if cell.color > scale.dark else "black",
            weight="bold" if cell.bold else "normal",
            fontsize=6,
        )
        if cell.framed:
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

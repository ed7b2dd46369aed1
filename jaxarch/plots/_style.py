"""Common look of all figures, and the function that saves them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, LogFormatterSciNotation, NullLocator

from jaxarch._internal.errors import check_instance, check_known, items
from jaxarch.io._files import as_folder, as_path

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette: color-blind readers can tell the colors apart, and so can readers of prints."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))

WEIGHT_FREE = ("bin", "agnostic")
"""Names in [D] of networks with weights 0 and 1, which are drawn with open markers."""

STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.dpi": 150,
    "svg.hashsalt": "jaxarch",
}


class NotebookFigure(Figure):
    """A figure that notebooks display without any global state (`pyplot`, a backend).

    Letters with an index are typeset wherever they occur: L_1 in a title, M_hard in a legend.
    """

    def draw(self, renderer: Any) -> None:
        """Draw the figure, with indices typeset in all texts."""
        for text in self.findobj(Text):
            text.set_text(with_indices(text.get_text()))
        super().draw(renderer)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def with_indices(text: str) -> str:
    """Typeset letters with an index, such as L_1, M_hard or R^2; keep existing mathematics."""
    plain = text.split("$")
    if len(plain) % 2 == 0:
        return text
    plain[::2] = [_INDEX.sub(_set, part) for part in plain[::2]]
    return "$".join(plain)


_INDEX = re.compile(r"(?<![\w\\])([A-Za-z])([_^])([A-Za-z]+|\d+)(?!\w)")


def _set(found: re.Match[str]) -> str:
    letter, kind, index = found.groups()
    return f"${letter}{kind}{{{index}}}$" if len(index) == 1 else rf"${letter}{kind}\mathrm{{{index}}}$"


class _Decimals(LogFormatterSciNotation):
    """Plain decimals if the whole axis lies between a thousandth and ten thousand."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        label = super().__call__(x, pos)
        if self.axis is None:
            return label
        low, high = sorted(self.axis.get_view_interval())
        return f"{x:g}" if label and low >= 1e-3 and high < 1e4 else label


def log_scale(axes: Any, which: str) -> None:
    """Make an axis, `x` or `y`, logarithmic, with readable labels."""
    getattr(axes, f"set_{which}scale")("log")
    axis = getattr(axes, f"{which}axis")
    axis.set_major_formatter(_Decimals())
    axis.set_minor_formatter(_Decimals())


SHARES = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
"""Labels of an axis of shares."""


def logit_scale(axes: Any, which: str) -> None:
    """Make an axis of shares, `x` or `y`, show log(p / (1 - p)): .98 is as far from .99 as .5 from about .67.

    Shares of 0 and 1 cannot be shown on it.
    """
    getattr(axes, f"set_{which}scale")("logit")
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(FixedLocator(SHARES))
    axis.set_major_formatter(FuncFormatter(lambda share, position: f"{share:g}"))
    axis.set_minor_locator(NullLocator())


def panel_grid(
    rows: Mapping[str, Mapping[str, Any]],
    panel: tuple[float, float],
    margin: tuple[float, float],
    title: str,
    label: str = "",
    sharey: Literal["row", True] = "row",
) -> tuple[Figure, np.ndarray, list[str]]:
    """Make a figure with a panel for each row and each column that occurs in any row; columns have titles.

    Args:
      rows: by row, by column: the data to draw.
      panel: width and height of a panel, in inches.
      margin: extra width and height of the figure, beyond its panels.
      title: title of the figure.
      label: label of the horizontal axis, which all panels share.
      sharey: whether the panels of a row, or all panels, share the vertical axis.

    Returns:
      The figure, its axes of shape (rows, columns), and the columns.
    """
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    size = (panel[0] * len(columns) + margin[0], panel[1] * len(rows) + margin[1])
    figure = NotebookFigure(figsize=size, layout="constrained")
    grid = figure.subplots(len(rows), len(columns), sharex=True, sharey=sharey, squeeze=False)
    for axes, column in zip(grid[0], columns, strict=True):
        axes.set_title(column, loc="left")
    for axes in grid[-1]:
        axes.set_xlabel(label)
    figure.suptitle(title, x=0.01, ha="left")
    return figure, grid, columns


def medians(axes: Any, at: np.ndarray, runs: np.ndarray, **line: Any) -> None:
    """Draw the median over runs as a line, with a band between the quartiles; NaN runs are left out."""
    seen = ~np.isnan(runs).all(axis=0)
    if len(runs) and seen.any():
        at, runs = at[seen], runs[:, seen]
        q25, median, q75 = np.nanpercentile(runs, [25, 50, 75], axis=0)
        axes.plot(at, median, **line)
        axes.fill_between(at, q25, q75, color=line["color"], alpha=0.18, lw=0)


def look(index: int) -> dict[str, Any]:
    """Return color, line style and marker of a line; when colors repeat, style and marker differ."""
    turn = index + index // len(COLOURS)
    return {
        "color": COLOURS[index % len(COLOURS)],
        "ls": LINES[turn % len(LINES)],
        "marker": MARKERS[turn % len(MARKERS)],
    }


def named_handles(figure: Figure) -> dict[str, Any]:
    """Return the handles of all panels of a figure by name, each from the first panel that has it."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    return handles


def legend_below(figure: Figure, names: Sequence[str]) -> None:
    """Add a legend below a figure for the lines of all panels, in as many columns as fit.

    Its title explains lines and bands.

    Args:
      figure: the figure whose panels have the lines.
      names: names of the lines, in order; names that no panel has are left out.
    """
    lines = named_handles(figure)
    labels = [name for name in names if name in lines]
    longest = max((len(label) for label in labels), default=0)
    fit = int(figure.get_figwidth() / (0.5 + 0.075 * longest))
    figure.legend(
        [lines[name] for name in labels],
        labels,
        loc="outside lower center",
        ncols=max(min(fit, len(labels)), 1),
        title="median and quartiles over runs",
        title_fontsize="small",
    )


def looks_of(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the line style and marker of each strategy: one color per family, the part before `->`.

    Within a family, markers and line styles differ; strategies without weights have open markers.
    """
    strategies = list(dict.fromkeys(names))
    families = list(dict.fromkeys(name.split("->")[0] for name in strategies))
    looks = {}
    for name in strategies:
        family, _, made = name.partition("->")
        siblings = [other for other in strategies if other.split("->")[0] == family]
        index, turn = families.index(family), families.index(family) // len(COLOURS)
        colour, place = COLOURS[index % len(COLOURS)], siblings.index(name) + turn
        looks[name] = {
            "color": colour,
            "ls": LINES[place % len(LINES)],
            "marker": MARKERS[place % len(MARKERS)],
            "mfc": "white" if (made or family) in WEIGHT_FREE else colour,
            "mew": 1.2,
        }
    return looks


def save(figure: Figure, folder: Path, name: str, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write a figure in several formats; equal figures give equal files. Existing links are replaced.

    Raises:
      ArgumentError: a value that is not a figure, a missing folder, a format that Matplotlib does not write.

    Example:
      >>> import jaxarch, numpy as np, pathlib, tempfile
      >>> figure = jaxarch.plots.convergence({"dense": np.array([[3.0, 2.0, 1.0]])}, smooth=1)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     paths = jaxarch.plots.save(figure, pathlib.Path(folder), "loss")
      ...     print([path.name for path in paths], all(path.is_file() for path in paths))
      ['loss.png', 'loss.svg'] True
    """
    check_instance("figure", figure, Figure, "a figure of Matplotlib")
    folder, name = as_folder(folder), str(as_path(name, "name"))
    formats = items("formats", formats, str, "formats such as 'png'")
    check_known("formats", formats, figure.canvas.get_supported_filetypes())
    paths = [folder / f"{name}.{kind}" for kind in formats]
    with matplotlib.rc_context(STYLE):
        for path, kind in zip(paths, formats, strict=True):
            metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
            drawn = io.BytesIO()
            figure.savefig(drawn, format=kind, metadata=metadata, dpi=200)
            path.unlink(missing_ok=True)
            with path.open("xb") as file:
                file.write(drawn.getbuffer())
    return paths

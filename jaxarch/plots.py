"""Figures, for the command line and for library users alike: each function draws one and returns it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxarch.metrics import quartiles

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette: told apart by colour-blind readers, and distinct in print."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))

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
    """A figure that notebooks show as it is: nothing global (`pyplot`, a backend) is touched."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def by_strategy(
    values: Mapping[str, Mapping[str, np.ndarray]],
    label: str,
    title: str = "",
    chance: float | None = None,
) -> Figure:
    """One line a strategy: every run as a dot, the median with its quartiles beside it.

    Args:
      values: by series (an orientation, a data set), by strategy: one value a run; NaN is left out.
      label: of the axis.
      title: of the figure.
      chance: the value of guessing. It is marked, and a second panel shows the strategies that are clear of
        it on a scale of their own.
    """
    strategies = list(dict.fromkeys(name for series in values.values() for name in series))
    with matplotlib.rc_context(STYLE):
        panels = 1 if chance is None else 2
        figure = NotebookFigure(
            figsize=(5.6 if panels == 1 else 6.8, 0.42 * len(strategies) + 1.3), layout="constrained"
        )
        row = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
        for axes in row:
            for index, by_name in enumerate(values.values()):
                shift = (index - (len(values) - 1) / 2) * 0.34
                for at, name in enumerate(strategies):
                    _dots(axes, np.asarray(by_name.get(name, ()), np.float64), at + shift, index)
            axes.grid(axis="y", visible=False)
            axes.set_xlabel(label)
        row[0].set_yticks(range(len(strategies)), strategies)
        row[0].set_ylim(len(strategies) - 0.4, -0.6)
        row[0].set_title(title, loc="left")
        if chance is not None:
            row[0].axvline(chance, color="#666666", lw=0.9, ls=":")
            row[0].text(chance, -0.55, " chance", color="#666666", fontsize=7, va="top")
            row[1].set_xlim(*_clear_of(chance, values))
            row[1].set_title("the same, enlarged", loc="left")
        handles = [
            Line2D([], [], color=COLOURS[i], marker=MARKERS[i], lw=1.8, mec="white", label=series)
            for i, series in enumerate(values)
        ]
        meaning = Line2D([], [], ls="", label="(dots: runs; markers: medians, quartiles)")
        figure.legend(handles=[*handles, meaning], loc="outside lower center", ncols=len(values) + 1)
    return figure


def _dots(axes: Any, runs: np.ndarray, at: float, index: int) -> None:
    """Runs, median and quartiles of one strategy in one series."""
    runs = runs[np.isfinite(runs)]
    median, q25, q75 = quartiles(runs)
    spread = np.linspace(-0.07, 0.07, len(runs)) if len(runs) > 1 else np.zeros(len(runs))
    axes.plot(runs, at + spread, ".", color=COLOURS[index], alpha=0.3, ms=4, mew=0)
    axes.errorbar(
        [median],
        [at],
        xerr=[[median - q25], [q75 - median]],
        fmt=MARKERS[index],
        color=COLOURS[index],
        ms=5,
        mec="white",
        mew=0.6,
        lw=1.8,
    )


def _clear_of(chance: float, values: Mapping[str, Mapping[str, np.ndarray]]) -> tuple[float, float]:
    """The range of the runs of those strategies whose lower quartile is well above chance."""
    spans = [runs for series in values.values() for runs in series.values() if len(runs)]
    clear = np.concatenate([runs for runs in spans if quartiles(runs)[1] > chance + 0.2] or spans)
    clear = clear[np.isfinite(clear)]
    low, high = (clear.min(), clear.max()) if clear.size else (0.0, 1.0)
    margin = max(0.04 * (high - low), 1e-3)
    return float(low - margin), float(high + margin)


def convergence(
    histories: Mapping[str, np.ndarray], label: str = "training loss", title: str = "", smooth: int = 10
) -> Figure:
    """Loss against step: the median over runs, with a band between the quartiles.

    Args:
      histories: by strategy, shape (runs, steps); NaN is left out.
      label: of the vertical axis.
      title: of the figure.
      smooth: steps that are averaged to one point, so that batches do not hide the trend.
    """
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.subplots()
        for index, (name, history) in enumerate(histories.items()):
            runs, steps = history.shape
            block = max(min(smooth, steps), 1)
            points = steps // block
            means = history[:, : points * block].reshape(runs, points, block).mean(axis=2)
            means = means[np.isfinite(means).all(axis=1)]
            if not len(means):
                continue
            q25, median, q75 = np.percentile(means, [25, 50, 75], axis=0)
            at = (np.arange(points) + 0.5) * block
            colour = COLOURS[index % len(COLOURS)]
            axes.plot(at, median, color=colour, ls=LINES[index % len(LINES)], lw=1.6, label=name)
            axes.fill_between(at, q25, q75, color=colour, alpha=0.18, lw=0)
        axes.set_xlabel(f"step (averaged over {smooth}; line: median over runs, band: quartiles)")
        axes.set_ylabel(label)
        axes.set_title(title, loc="left")
        if axes.lines:
            axes.legend()
    return figure


def save(figure: Figure, folder: Path, name: str, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write a figure in several formats; equal figures give equal files."""
    paths = [folder / f"{name}.{kind}" for kind in formats]
    with matplotlib.rc_context(STYLE):
        for path in paths:
            metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {"Software": None}
            figure.savefig(path, metadata=metadata, dpi=200)
    return paths

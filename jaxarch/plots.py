"""Figures, for the command line and for library users alike: each function draws one and returns it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxarch.distances import finite_runs, principal_plane
from jaxarch.errors import ArgumentError
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
            at = (np.arange(points) + 0.5) * block
            colour, line = COLOURS[index % len(COLOURS)], LINES[index % len(LINES)]
            _medians(axes, at, means, color=colour, ls=line, lw=1.6, label=name)
        axes.set_xlabel(f"step (averaged over {smooth}; line: median over runs, band: quartiles)")
        axes.set_ylabel(label)
        axes.set_title(title, loc="left")
        if axes.lines:
            axes.legend()
    return figure


def spectra(values: Mapping[str, np.ndarray], label: str = "eigenvalue", title: str = "") -> Figure:
    """Eigenvalues against their index: the median over runs, with a band between the quartiles.

    Args:
      values: by name, ascending eigenvalues of shape (runs, nodes), such as `graphs.spectrum`'s; a run with
        NaN is left out.
      label: of the vertical axis.
      title: of the figure.
    """
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(5.6, 3.6), layout="constrained")
        axes = figure.subplots()
        _spectra(axes, values, _looks(values))
        axes.set_ylabel(label)
        axes.set_title(title, loc="left")
        axes.legend(handles=_handles(_looks(values)))
    return figure


def plane(values: Mapping[str, np.ndarray], title: str = "") -> Figure:
    """The runs of several groups in the plane of their two principal components, and the groups' centroids.

    Both axes have one scale, so that distances can be read off; `distances.between` has the true ones.

    Args:
      values: by name, shape (runs, entries); a run with NaN is left out. See `distances.principal_plane`.
      title: of the figure.
    """
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(5.6, 3.8), layout="constrained")
        axes = figure.subplots()
        _plane(axes, values, _looks(values))
        axes.set_title(title, loc="left")
        figure.legend(handles=_handles(_looks(values)), loc="outside right upper")
    return figure


def spectral_comparison(rows: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]) -> Figure:
    """Laplacian spectra of networks, and the plane of their principal components ([D] Fig. 5 and 10).

    One row a task: the spectra in panels of their own (real-valued networks, binary networks), then all of
    them together in the plane. A strategy looks the same in all rows.

    Args:
      rows: by task, by panel, by strategy: ascending eigenvalues of shape (runs, nodes); a run with NaN is
        left out. Within a task, every strategy has a name of its own and the same number of nodes.

    Raises:
      ArgumentError: no tasks, a task without panels, a panel without strategies, or a strategy in two panels
        of one task; spectra that `distances.principal_plane` refuses.
    """
    if not rows:
        raise ArgumentError("rows: expected at least one task, got none")
    together = {task: _together(task, panels) for task, panels in rows.items()}
    looks = _looks(name for values in together.values() for name in values)
    columns = max(len(panels) for panels in rows.values()) + 1
    width = 2.7 * columns + 0.4
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(width, 2.7 * len(rows) + 0.5), layout="constrained")
        grid = figure.subplots(len(rows), columns, squeeze=False)
        for (*left, right), (task, panels) in zip(grid, rows.items(), strict=True):
            for axes in left[len(panels) :]:
                axes.remove()
            for axes, (panel, values) in zip(left, panels.items(), strict=False):
                axes.sharey(grid[0, 0])
                axes.set_title(panel, loc="left", size=9)
                _spectra(axes, values, looks)
            left[0].set_ylabel("eigenvalue (median, quartiles)")
            left[0].annotate(
                task, (0, 1), (0, 20), "axes fraction", textcoords="offset points", size=10, weight="bold"
            )
            right.set_title("runs (filled), centroids (hollow)", loc="left", size=9)
            _plane(right, together[task], looks)
        figure.legend(handles=_handles(looks), loc="outside lower center", ncols=int(width / 1.5))
    return figure


def _together(task: str, panels: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The strategies of all panels of a task."""
    together: dict[str, np.ndarray] = {}
    for panel, values in panels.items():
        if not values:
            raise ArgumentError(f"rows: {task!r} has no spectra in {panel!r}; leave the panel out")
        for name in values:
            if name in together:
                raise ArgumentError(f"rows: {task!r} has {name!r} in {panel!r} and in a panel before it")
        together.update(values)
    if not together:
        raise ArgumentError(f"rows: {task!r} has no panels")
    return together


def _spectra(axes: Any, values: Mapping[str, np.ndarray], looks: Mapping[str, Any]) -> None:
    """Medians and quartiles, with a few markers so that colour is not needed to tell the lines apart."""
    for index, (name, runs) in enumerate(finite_runs(values).items()):
        nodes = runs.shape[1]
        apart = max(nodes // 6, 1)
        first = (2 * index + 1) * apart // (2 * len(values))
        marked = {"ms": 5, "mec": "white", "mew": 0.4, "markevery": (first, apart)}
        _medians(axes, np.arange(1, nodes + 1), runs, **looks[name], lw=1.4, **marked)
    axes.set_xlabel("index of the eigenvalue")


def _medians(axes: Any, at: np.ndarray, runs: np.ndarray, **line: Any) -> None:
    """The median over runs as a line, with a band between the quartiles; nothing without runs."""
    if len(runs):
        q25, median, q75 = np.percentile(runs, [25, 50, 75], axis=0)
        axes.plot(at, median, **line)
        axes.fill_between(at, q25, q75, color=line["color"], alpha=0.18, lw=0)


def _plane(axes: Any, values: Mapping[str, np.ndarray], looks: Mapping[str, Any]) -> None:
    """Runs as small filled markers and centroids as large hollow ones, on one scale."""
    found = principal_plane(values)
    for name, points in found.points.items():
        look = {**looks[name], "ls": ""}
        axes.plot(*points.T, **look, ms=4, mew=0, alpha=0.5)
        axes.plot(*found.centroids[name], **look, ms=9, mfc="none", mew=1.4)
    first, second = (f" ({share:.0%})" if np.isfinite(share) else "" for share in found.explained)
    axes.set_xlabel(f"first component{first}")
    axes.set_ylabel(f"second component{second}")
    axes.set_aspect("equal", adjustable="datalim")


def _looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour, line and marker of each name; in the second round of colours the others are shifted."""
    looks = {}
    for index, name in enumerate(dict.fromkeys(names)):
        colour, turn = index % len(COLOURS), index // len(COLOURS)
        look = {"color": COLOURS[colour], "ls": LINES[(index + turn) % len(LINES)]}
        looks[name] = look | {"marker": MARKERS[(index + turn) % len(MARKERS)]}
    return looks


def _handles(looks: Mapping[str, Any]) -> list[Line2D]:
    """The legend's entries."""
    return [
        Line2D([], [], **look, lw=1.4, ms=5, mec="white", mew=0.4, label=name) for name, look in looks.items()
    ]


def save(figure: Figure, folder: Path, name: str, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write a figure in several formats; equal figures give equal files."""
    paths = [folder / f"{name}.{kind}" for kind in formats]
    with matplotlib.rc_context(STYLE):
        for path in paths:
            metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {"Software": None}
            figure.savefig(path, metadata=metadata, dpi=200)
    return paths

"""Figures of Laplacian spectra, and of the plane that shows their distances best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch.plots._arguments import array, nested
from jaxarch.plots._style import STYLE, NotebookFigure, looks_of, medians
from jaxarch.structure.distances import finite_runs, principal_plane


def spectra(values: Mapping[str, np.ndarray], label: str = "eigenvalue", title: str = "") -> Figure:
    """Draw eigenvalues against their index: the median over runs, with a band between the quartiles.

    Args:
      values: by name, ascending eigenvalues of shape (runs, nodes), such as from `graphs.spectrum`; a run
        with NaN is left out.
      label: label of the vertical axis.
      title: title of the figure.

    Example:
      >>> import jaxarch, numpy as np
      >>> values = {"star": np.array([[0.0, 1.0, 2.0]]), "triangle": np.array([[0.0, 1.5, 1.5]])}
      >>> figure = jaxarch.plots.spectra(values)
      >>> [line.get_ydata().tolist() for line in figure.axes[0].lines], figure.axes[0].get_ylabel()
      ([[0.0, 1.0, 2.0], [0.0, 1.5, 1.5]], 'eigenvalue')
    """
    values = nested("values", values, "name", array("runs, entries"))
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(5.6, 3.6), layout="constrained")
        axes = figure.subplots()
        _spectra(axes, values, looks_of(values))
        axes.set_ylabel(label)
        axes.set_title(title, loc="left")
        axes.legend(handles=_handles(looks_of(values)))
    return figure


def plane(values: Mapping[str, np.ndarray], title: str = "") -> Figure:
    """Draw the runs of several groups in the plane of their two principal components, with their centroids.

    Both axes have one scale, so that distances can be read off; `distances.between` has the true ones.

    Args:
      values: by name, shape (runs, entries); a run with NaN is left out. See `distances.principal_plane`.
      title: title of the figure.

    Example:
      >>> import jaxarch, numpy as np
      >>> values = {"ours": np.array([[0, 0, 0], [2, 0, 0]]), "theirs": np.array([[0, 1, 0], [2, 1, 0]])}
      >>> figure = jaxarch.plots.plane(values)  # the corners of a rectangle, 2 by 1
      >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
      ('first component (80%)', 'second component (20%)')
    """
    values = nested("values", values, "name", array("runs, entries"))
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(5.6, 3.8), layout="constrained")
        axes = figure.subplots()
        _plane(axes, values, looks_of(values))
        axes.set_title(title, loc="left")
        figure.legend(handles=_handles(looks_of(values)), loc="outside right upper")
    return figure


def spectral_comparison(rows: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]) -> Figure:
    """Draw Laplacian spectra of networks, and the plane of their principal components ([D] Fig. 5 and 10).

    One row per task: spectra in separate panels (real-valued networks, binary networks), then all of them
    together in the plane. A strategy looks the same in all rows.

    Args:
      rows: by task, by panel, by strategy: ascending eigenvalues of shape (runs, nodes); a run with NaN is
        left out. Within a task, every strategy has its own name, and all have the same number of nodes.

    Raises:
      ArgumentError: no tasks, a task without panels, a panel without strategies, or a strategy in two panels
        of one task; spectra that `distances.principal_plane` refuses.

    Example:
      >>> import jaxarch, numpy as np
      >>> ours, theirs = np.array([[0.0, 1.0, 2.0], [0.0, 1.2, 1.8]]), np.array([[0.0, 1.5, 1.5]])
      >>> rows = {"0 v 1": {"real-valued networks": {"ours": ours}, "binary networks": {"theirs": theirs}}}
      >>> figure = jaxarch.plots.spectral_comparison(rows)
      >>> [axes.get_title(loc="left").strip() for axes in figure.axes]
      ['real-valued networks', 'binary networks', 'runs (filled), centroids (hollow)']
    """
    rows = nested("rows", rows, "task, panel, strategy", array("runs, entries"))
    if not rows:
        raise ArgumentError("rows: expected at least one task, got none")
    together = {task: _together(task, panels) for task, panels in rows.items()}
    looks = looks_of(name for values in together.values() for name in values)
    columns = max(len(panels) for panels in rows.values()) + 1
    width = 2.7 * columns + 0.4
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(width, 2.85 * len(rows) + 0.5), layout="constrained")
        grid = figure.subplots(len(rows), columns, squeeze=False)
        for (*left, right), (task, panels) in zip(grid, rows.items(), strict=True):
            for axes in left[len(panels) :]:
                axes.remove()
            for axes, (panel, values) in zip(left, panels.items(), strict=False):
                axes.sharey(grid[0, 0])
                axes.set_title(f"\n\n{panel}", loc="left", size=9)
                _spectra(axes, values, looks)
            left[0].set_ylabel("eigenvalue (median, quartiles)")
            # The task goes into the empty lines of the titles, clear of the row above; it may be wider than
            # its panel.
            name = left[0].annotate(task, (0, 1), (0, 20), "axes fraction", textcoords="offset points")
            name.set(size=10, weight="bold", in_layout=False)
            right.set_title("\n\nruns (filled), centroids (hollow)", loc="left", size=9)
            _plane(right, together[task], looks)
        figure.legend(handles=_handles(looks), loc="outside lower center", ncols=int(width / 1.5))
    return figure


def _together(task: str, panels: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the strategies of all panels of a task."""
    together: dict[str, np.ndarray] = {}
    for panel, values in panels.items():
        if not values:
            raise ArgumentError(f"rows: {shown(task)} has no spectra in {shown(panel)}; leave this panel out")
        for name in values:
            if name in together:
                raise ArgumentError(
                    f"rows: {shown(task)} has {shown(name)} in {shown(panel)} and in an earlier panel; "
                    "leave one out"
                )
        together.update(values)
    if not together:
        raise ArgumentError(f"rows: {shown(task)} has no panels; leave it out")
    return together


def _spectra(axes: Any, values: Mapping[str, np.ndarray], looks: Mapping[str, Any]) -> None:
    """Draw medians and quartiles, with a few markers so that color is not needed to tell the lines apart."""
    for index, (name, runs) in enumerate(finite_runs(values).items()):
        nodes = runs.shape[1]
        apart = max(nodes // 6, 1)
        first = (2 * index + 1) * apart // (2 * len(values))
        marked = {"ms": 4.5, "markevery": (first, apart)}
        medians(axes, np.arange(1, nodes + 1), runs, **looks[name], lw=1.4, **marked)
    axes.set_xlabel("eigenvalue index")


def _plane(axes: Any, values: Mapping[str, np.ndarray], looks: Mapping[str, Any]) -> None:
    """Draw runs as small filled markers and centroids as large hollow ones, on one scale."""
    found = principal_plane(values)
    for name, points in found.points.items():
        look = {**looks[name], "ls": ""}
        axes.plot(*points.T, **look | {"mew": 0, "mfc": look["color"]}, ms=4, alpha=0.5)
        axes.plot(*found.centroids[name], **look | {"mew": 1.6, "mfc": "none"}, ms=9)
    first, second = (f" ({share:.0%})" if np.isfinite(share) else "" for share in found.explained)
    axes.set_xlabel(f"first component{first}")
    axes.set_ylabel(f"second component{second}")
    axes.set_aspect("equal", adjustable="datalim")


def _handles(looks: Mapping[str, Any]) -> list[Line2D]:
    """Return the entries of the legend."""
    return [Line2D([], [], **look, lw=1.4, ms=5, label=name) for name, look in looks.items()]

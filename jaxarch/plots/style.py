"""How all figures look, and how they are saved."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

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


def medians(axes: Any, at: np.ndarray, runs: np.ndarray, **line: Any) -> None:
    """The median over runs as a line, with a band between the quartiles; nothing without runs."""
    if len(runs):
        q25, median, q75 = np.percentile(runs, [25, 50, 75], axis=0)
        axes.plot(at, median, **line)
        axes.fill_between(at, q25, q75, color=line["color"], alpha=0.18, lw=0)


def save(figure: Figure, folder: Path, name: str, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write a figure in several formats; equal figures give equal files."""
    paths = [folder / f"{name}.{kind}" for kind in formats]
    with matplotlib.rc_context(STYLE):
        for path in paths:
            metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {"Software": None}
            figure.savefig(path, metadata=metadata, dpi=200)
    return paths

"""Figures, for the command line and for library users alike: each function draws one and returns it."""

from jaxarch.plots.curves import convergence, convergence_grid, curves
from jaxarch.plots.spectra import plane, spectra, spectral_comparison
from jaxarch.plots.strategies import by_strategy, runtime
from jaxarch.plots.style import NotebookFigure, save

__all__ = [
    "NotebookFigure",
    "by_strategy",
    "convergence",
    "convergence_grid",
    "curves",
    "plane",
    "runtime",
    "save",
    "spectra",
    "spectral_comparison",
]

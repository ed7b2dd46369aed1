"""Figures, for the command line and for library users alike: each function draws one and returns it."""

from jaxarch.plots.curves import convergence, convergence_grid, curves
from jaxarch.plots.fields import fields
from jaxarch.plots.layers import layer_densities
from jaxarch.plots.magnitudes import magnitudes
from jaxarch.plots.networks import architectures
from jaxarch.plots.spectra import plane, spectra, spectral_comparison
from jaxarch.plots.strategies import by_strategy, runtime
from jaxarch.plots.style import NotebookFigure, save
from jaxarch.plots.sweeps import sweep
from jaxarch.plots.trade_offs import trade_off

__all__ = [
    "NotebookFigure",
    "architectures",
    "by_strategy",
    "convergence",
    "convergence_grid",
    "curves",
    "fields",
    "layer_densities",
    "magnitudes",
    "plane",
    "runtime",
    "save",
    "spectra",
    "spectral_comparison",
    "sweep",
    "trade_off",
]

"""Figures, for the command line and for library users alike: each function draws one and returns it.

Matplotlib is imported with the first of them that is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jaxarch.errors import from_extra

if TYPE_CHECKING:
    from jaxarch.plots.colour_maps import fields
    from jaxarch.plots.costs import cost
    from jaxarch.plots.critical_differences import ranks
    from jaxarch.plots.gains import trade_off, trade_offs
    from jaxarch.plots.hidden_eigenvalues import recruited
    from jaxarch.plots.histograms import magnitudes
    from jaxarch.plots.laplacian_spectra import plane, spectra, spectral_comparison
    from jaxarch.plots.layers import layer_densities
    from jaxarch.plots.line_plots import convergence, convergence_grid, curves
    from jaxarch.plots.networks import architectures
    from jaxarch.plots.strategies import by_strategy, runtime
    from jaxarch.plots.style import NotebookFigure, save
    from jaxarch.plots.sweeps import sweep
    from jaxarch.plots.unit_tracks import units

__all__ = [
    "NotebookFigure",
    "architectures",
    "by_strategy",
    "convergence",
    "convergence_grid",
    "cost",
    "curves",
    "fields",
    "layer_densities",
    "magnitudes",
    "plane",
    "ranks",
    "recruited",
    "runtime",
    "save",
    "spectra",
    "spectral_comparison",
    "sweep",
    "trade_off",
    "trade_offs",
    "units",
]

# No file has the name of a function, which importing the file would replace.
_FILES = {
    "colour_maps": ("fields",),
    "costs": ("cost",),
    "critical_differences": ("ranks",),
    "gains": ("trade_off", "trade_offs"),
    "hidden_eigenvalues": ("recruited",),
    "histograms": ("magnitudes",),
    "laplacian_spectra": ("plane", "spectra", "spectral_comparison"),
    "layers": ("layer_densities",),
    "line_plots": ("convergence", "convergence_grid", "curves"),
    "networks": ("architectures",),
    "strategies": ("by_strategy", "runtime"),
    "style": ("NotebookFigure", "save"),
    "sweeps": ("sweep",),
    "unit_tracks": ("units",),
}
_FILE_OF = {name: file for file, names in _FILES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _FILE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with from_extra("plots", f"{name}: a figure"):
        value = globals()[name] = getattr(import_module(f"{__name__}.{_FILE_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

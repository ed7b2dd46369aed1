"""Figures for the command line and for library users: each function draws one figure and returns it.

Matplotlib is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jaxarch._internal.errors import from_extra

if TYPE_CHECKING:
    from jaxarch.plots._colour_maps import fields
    from jaxarch.plots._compared_networks import (
        alignment,
        barriers,
        connectivity,
        intrinsic_dimension,
        kernel_spectra,
        similarity,
    )
    from jaxarch.plots._costs import cost
    from jaxarch.plots._critical_differences import ranks
    from jaxarch.plots._gains import trade_off, trade_offs
    from jaxarch.plots._hidden_eigenvalues import recruited
    from jaxarch.plots._histograms import magnitudes
    from jaxarch.plots._laplacian_spectra import plane, spectra, spectral_comparison
    from jaxarch.plots._layers import layer_densities
    from jaxarch.plots._line_plots import convergence, convergence_grid, curves
    from jaxarch.plots._networks import architectures
    from jaxarch.plots._strategies import by_strategy, runtime
    from jaxarch.plots._strategy_maps import connections_by_layer, regrets
    from jaxarch.plots._style import NotebookFigure, save
    from jaxarch.plots._sweeps import sweep
    from jaxarch.plots._unit_tracks import units

__all__ = [
    "NotebookFigure",
    "alignment",
    "architectures",
    "barriers",
    "by_strategy",
    "connectivity",
    "connections_by_layer",
    "convergence",
    "convergence_grid",
    "cost",
    "curves",
    "fields",
    "intrinsic_dimension",
    "kernel_spectra",
    "layer_densities",
    "magnitudes",
    "plane",
    "ranks",
    "recruited",
    "regrets",
    "runtime",
    "save",
    "similarity",
    "spectra",
    "spectral_comparison",
    "sweep",
    "trade_off",
    "trade_offs",
    "units",
]

# No file has the name of a function: importing the file would replace the function.
_FILES = {
    "_colour_maps": ("fields",),
    "_compared_networks": (
        "alignment",
        "barriers",
        "connectivity",
        "intrinsic_dimension",
        "kernel_spectra",
        "similarity",
    ),
    "_costs": ("cost",),
    "_critical_differences": ("ranks",),
    "_gains": ("trade_off", "trade_offs"),
    "_hidden_eigenvalues": ("recruited",),
    "_histograms": ("magnitudes",),
    "_laplacian_spectra": ("plane", "spectra", "spectral_comparison"),
    "_layers": ("layer_densities",),
    "_line_plots": ("convergence", "convergence_grid", "curves"),
    "_networks": ("architectures",),
    "_strategies": ("by_strategy", "runtime"),
    "_strategy_maps": ("connections_by_layer", "regrets"),
    "_style": ("NotebookFigure", "save"),
    "_sweeps": ("sweep",),
    "_unit_tracks": ("units",),
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

"""Spectral networks: their algebra, what they compute, and what keeps them small."""

from jaxarch.spectral import algebra, error_bounds, penalty
from jaxarch.spectral.activations import half_slope_relu
from jaxarch.spectral.convolution import (
    Convolutions,
    convolutional_feedforward,
    convolutional_weights,
    direct_convolution,
)
from jaxarch.spectral.direct import direct_feedforward, direct_weights, direct_widths
from jaxarch.spectral.network import (
    feedforward,
    form_of,
    hidden_eigenvalues,
    init,
    layer_by_layer,
    recursive,
    unpack,
)
from jaxarch.spectral.readout import gamma_norm, neuron_order, parameter_counts, path_norms
from jaxarch.spectral.unused import without_unused

__all__ = [
    "Convolutions",
    "algebra",
    "convolutional_feedforward",
    "convolutional_weights",
    "direct_convolution",
    "direct_feedforward",
    "direct_weights",
    "direct_widths",
    "error_bounds",
    "feedforward",
    "form_of",
    "gamma_norm",
    "half_slope_relu",
    "hidden_eigenvalues",
    "init",
    "layer_by_layer",
    "neuron_order",
    "parameter_counts",
    "path_norms",
    "penalty",
    "recursive",
    "unpack",
    "without_unused",
]

"""Spectral networks: their algebra, their forward passes, and the penalties that keep them small."""

from jaxarch.spectral import algebra, error_bounds, penalty
from jaxarch.spectral._activations import half_slope_relu
from jaxarch.spectral._convolution import (
    Convolutions,
    convolutional_feedforward,
    convolutional_weights,
    direct_convolution,
)
from jaxarch.spectral._direct import (
    direct_feedforward,
    direct_weights,
    direct_widths,
    neuron_norms,
)
from jaxarch.spectral._direct_names import is_direct
from jaxarch.spectral._network import (
    Activation,
    Method,
    feedforward,
    form_of,
    hidden_eigenvalues,
    init,
    layer_by_layer,
    recursive,
    unpack,
    with_neurons,
)
from jaxarch.spectral._readout import bundles, gamma_norm, neuron_order, parameter_counts, path_norms
from jaxarch.spectral._unused import without_unused

__all__ = [
    "Convolutions",
    "Activation",
    "Method",
    "bundles",
    "is_direct",
    "neuron_norms",
    "with_neurons",
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

"""Convolutional networks that are made small channel by channel, the rivals of `spectral.pictures`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxarch import Model, Network, SpectralCNN, Strategy, chain, recruit, retrain, slim
from jaxarch.experiments.spectral.rivals import EXAMPLE, RIVALS, Rival
from jaxarch.models import as_model
from jaxarch.models.parents.normalised import NormalisedCNN
from jaxarch.models.parents.spectral_cnn import strides_of
from jaxarch.search import network_slimming, spectral
from jaxarch.spectral.direct import is_direct, neuron_norms
from jaxarch.trees import named_leaves, natural_order


def _of_channels(kind: Callable[..., Any]) -> Callable[[Sequence[int]], Model]:
    def network(widths: Sequence[int]) -> Model:
        inputs, *channels, outputs = widths
        sizes = {"strides": strides_of(channels), "inputs": inputs, "outputs": outputs}
        return as_model(lambda rngs: kind(channels, rngs=rngs, **sizes), EXAMPLE)

    return network


def _spectral(strength: Any, tolerance: float) -> Strategy:
    return chain(spectral(strength), recruit(tolerance, removals="bisection"), spectral(0.0))


def _slimmed(strength: Any, tolerance: float) -> Strategy:
    refit = retrain("warm", nonnegative=False)
    return chain(network_slimming(strength), slim(tolerance, removals="bisection"), refit)


ON_PICTURES = RIVALS | {
    "gated channels": Rival(_of_channels(SpectralCNN), _spectral, of_pictures=True),
    "batch norm channels": Rival(_of_channels(NormalisedCNN), _slimmed, of_pictures=True),
}
"""Those of channels try few removals, since each is a pass of a network over rows held out."""


def left_by_layer(network: Network) -> np.ndarray:
    """How many neurons or channels of each hidden layer are left, shape (runs, layers)."""
    if network.neurons is not None:
        kept = named_leaves(network.neurons.kept)
    elif is_direct(network.params):
        kept = {name: norms > 0 for name, norms in jax.vmap(neuron_norms)(network.params).items()}
    else:
        kept = {path: of for path, of in named_leaves(network.mask).items() if path.endswith("scale")}
    layers = [np.asarray(kept[path]).sum(axis=-1) for path in sorted(kept, key=natural_order)]
    return np.stack(layers, axis=-1)

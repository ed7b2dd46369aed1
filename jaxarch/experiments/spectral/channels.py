"""Convolutional networks that are made small channel by channel, the rivals of `spectral.pictures`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxarch import Model, SpectralCNN, Strategy, chain, recruit, retrain, slim
from jaxarch.experiments.spectral.rivals import EXAMPLE, RIVALS, Rival
from jaxarch.models import as_model
from jaxarch.models.parents.normalised import NormalisedCNN
from jaxarch.models.parents.spectral_cnn import strides_of
from jaxarch.search import network_slimming, spectral


def _of_channels(kind: Callable[..., Any]) -> Callable[[Sequence[int]], Model]:
    def network(widths: Sequence[int]) -> Model:
        inputs, *channels, outputs = widths
        sizes = {"strides": strides_of(channels), "inputs": inputs, "outputs": outputs}
        return as_model(lambda rngs: kind(channels, rngs=rngs, **sizes), EXAMPLE)

    return network


def _spectral(strength: Any, tolerance: float, batch_size: int | None = None) -> Strategy:
    recruited = recruit(tolerance, removals="bisection", batch_size=batch_size)
    return chain(spectral(strength), recruited, spectral(0.0))


def _slimmed(strength: Any, tolerance: float, batch_size: int | None = None) -> Strategy:
    slimmed = slim(tolerance, removals="bisection", batch_size=batch_size)
    return chain(network_slimming(strength), slimmed, retrain("warm", nonnegative=False))


ON_PICTURES = RIVALS | {
    "gated channels": Rival(_of_channels(SpectralCNN), _spectral, of_pictures=True),
    "batch norm channels": Rival(_of_channels(NormalisedCNN), _slimmed, of_pictures=True),
}
"""Those of channels try few removals, since each is a pass of a network over rows held out."""

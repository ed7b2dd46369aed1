"""Convolutional networks that are pruned channel by channel, the rivals of `spectral.pictures`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jaxarch import Model, SpectralCNN
from jaxarch.lab.spectral.normalised import NormalisedCNN
from jaxarch.lab.spectral.rivals import EXAMPLE, RIVALS, Rival, of_eigenvalues, of_scales
from jaxarch.models import as_model


def _of_channels(kind: Callable[..., Any]) -> Callable[[Sequence[int]], Model]:
    def network(widths: Sequence[int]) -> Model:
        inputs, *channels, outputs = widths
        sizes = {"inputs": inputs, "outputs": outputs}
        return as_model(lambda rngs: kind(channels, rngs=rngs, **sizes), EXAMPLE)

    return network


FEW: dict[str, Any] = {"removals": "bisection"}
"""Options that try few removals, because each one costs a forward pass over the held-out rows."""
ON_PICTURES = RIVALS | {
    "gated channels": Rival(_of_channels(SpectralCNN), partial(of_eigenvalues, **FEW), of_pictures=True),
    "batch norm channels": Rival(_of_channels(NormalisedCNN), partial(of_scales, **FEW), of_pictures=True),
}

"""Names of weights in direct space: `W3_1` leads from layer 1 to layer 3."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jaxarch._internal.trees import PyTree

BUNDLE = re.compile(r"W(\d+)_(\d+)")


def is_direct(params: PyTree) -> bool:
    """Return whether parameters have the names of a network in direct space.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> jaxarch.spectral.is_direct({"W2_1": jnp.ones((1, 2))})
      True
    """
    return isinstance(params, Mapping) and any(BUNDLE.fullmatch(str(name)) for name in params)


def direct_bundles(weights: Mapping[str, Any]) -> dict[tuple[int, int], Any]:
    """Return the bundles W_ij of a network in direct space by (i, j), without its biases."""
    named = [(BUNDLE.fullmatch(name), leaf) for name, leaf in weights.items()]
    return {(int(match[1]), int(match[2])): leaf for match, leaf in named if match}

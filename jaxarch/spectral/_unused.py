"""Networks in direct space without the neurons that lead nowhere."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jax import Array

from jaxarch._internal.errors import ArgumentError, is_traced
from jaxarch.spectral._direct import direct_widths, of_neurons
from jaxarch.spectral._direct_names import direct_bundles


def without_unused(weights: Mapping[str, Array]) -> dict[str, Array]:
    r"""Remove hidden neurons that lead nowhere from a network in direct space, for smaller matrices.

    A hidden neuron is removed if all its weights to kept later neurons are 0, as after `jaxarch.recruit` on a
    `direct_network`. A layer without neurons is left out, and later layers are renumbered. The outputs are
    the same, whatever the activation. Compute them with `direct_feedforward`, or `jaxarch.direct_network` of
    the remaining widths.

    Args:
      weights: `{"W2_1": ..., "W3_1": ..., "b2": ...}`, concrete: the shapes of the result depend on them.

    Returns:
      Weights with the same kind of names, for a network that may have fewer layers.

    Raises:
      ArgumentError: weights of another form, or traced; a layer without an incoming bundle, because a layer
        before it has no neurons left and no skip connection bypasses that one.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> weights = {"W2_1": jnp.ones((3, 2)), "W3_1": jnp.ones((1, 2)), "W3_2": jnp.array([[0.0, 4.0, 0.0]])}
      >>> {name: w.tolist() for name, w in jaxarch.spectral.without_unused(weights).items()}
      {'W2_1': [[1.0, 1.0]], 'W3_1': [[1.0, 1.0]], 'W3_2': [[4.0]]}
      >>> nothing = {**weights, "W3_2": jnp.zeros((1, 3))}  # the one hidden layer is left out
      >>> {name: w.tolist() for name, w in jaxarch.spectral.without_unused(nothing).items()}
      {'W2_1': [[1.0, 1.0]]}
    """
    if is_traced(weights):
        raise ArgumentError("weights: they are traced, but decide shapes; call this outside of jit and vmap")
    widths = direct_widths(weights)
    layers = range(1, len(widths) + 1)
    bundles = direct_bundles(weights)
    kept = {i: np.arange(width) for i, width in enumerate(widths, 1)}
    for layer in reversed(layers[1:-1]):
        out = [np.asarray(bundle)[kept[i]] for (i, j), bundle in bundles.items() if j == layer]
        used = [matrix.any(axis=0) for matrix in out] or [np.zeros(widths[layer - 1], bool)]
        kept[layer] = np.flatnonzero(np.any(used, axis=0))
    left = [i for i in layers if kept[i].size]
    for i in left[1:]:
        if not any((i, j) in bundles for j in left):
            raise ArgumentError(
                f"weights: nothing leads into layer {i}: a layer before it has no neurons left, and no skip "
                "connections bypass that layer"
            )
    return of_neurons(bundles, {i: weights[f"b{i}"] for i in layers if f"b{i}" in weights}, kept)

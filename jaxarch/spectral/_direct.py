r"""Networks in direct space: a weight matrix for every bundle, with or without skip connections.

Weights are a flat dict: `{"W2_1": (N_2, N_1), "W3_1": (N_3, N_1), "W3_2": (N_3, N_2), ..., "b2": (N_2,)}`.
W_ij leads from layer j to layer i, and a missing bundle or bias is 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import (
    ArgumentError,
    check_array,
    check_callable,
    check_flag,
    check_mapping,
    did_you_mean,
    is_traced,
    shortened,
    shown,
)
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.spectral._direct_names import BUNDLE
from jaxarch.spectral._network import FACTORS, Activation, form_of, unpack, unpack_neurons
from jaxarch.spectral._readout import bundles


def direct_weights(
    params: PyTree, state: PyTree | None = None, *, bias: bool = False, skips: bool = True
) -> dict[str, Array]:
    r"""Export a spectral network as ordinary weight matrices over the hidden neurons that are left.

    The weights are the W_ij of [S] eq. (4.3), or of the gated form, without the rows and columns of neurons
    that the state has removed. A layer without neurons is left out, and later layers are renumbered. The
    outputs are those of the given network under the feed-forward rule. Compute them with
    `direct_feedforward`, or `jaxarch.direct_network` of the remaining widths. `jaxarch.save_tree` and
    `load_tree` store the weights.

    Args:
      params: parameters of one spectral network, concrete: the shapes of the result depend on the state's
        values.
      state: the network's state.
      bias: whether it has a bias neuron, `spectral_network(bias=True)`: its weights become biases.
      skips: whether it has skip connections; without them, every layer must keep a neuron.

    Returns:
      `{"W2_1": ..., "W3_1": ..., "W3_2": ...}`, and with a bias `"b2", "b3", ...`.

    Raises:
      ArgumentError: many networks at once (take one with `Network.of_run`), a module in place of its
        parameters, or traced values; a layer without neurons, if there are no skip connections past it.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {
      ...     "eigenvectors": {"phi1": jnp.array([[2.0]]), "phi2": jnp.array([[3.0]])},
      ...     "eigenvalues": {"L2": jnp.array([5.0]), "L3": jnp.array([7.0])},
      ... }
      >>> {name: w.item() for name, w in sorted(jaxarch.spectral.direct_weights(params).items())}
      {'W2_1': -10.0, 'W3_1': 12.0, 'W3_2': -6.0}
      >>> removed = {"neurons": {"L2": jnp.array([False])}}  # the one hidden neuron, and with it the layer
      >>> {name: w.item() for name, w in jaxarch.spectral.direct_weights(params, removed).items()}
      {'W2_1': 12.0}
    """
    if is_traced((params, state)):
        raise ArgumentError(
            "params: they are traced, but the neurons that are left decide shapes; call this outside of jit "
            "and vmap"
        )
    check_flag("bias", bias)
    check_flag("skips", skips)
    _check_one_network(params)
    blocks = bundles(params, state, skips)
    phi, values = unpack(params, form_of(params))
    masks = unpack_neurons({} if state is None else state, len(values))
    kept = {i: np.arange(vector.shape[0]) for i, vector in enumerate(values, 1)}
    kept |= {i: np.flatnonzero(np.asarray(mask)) for i, mask in enumerate(masks, 2) if mask is not None}
    if bias:
        kept[1] = kept[1][:-1]
    if not skips and not all(neurons.size for neurons in kept.values()):
        raise ArgumentError(
            "state: a layer has no neurons left, and no skip connections bypass it; keep at least one neuron"
        )
    biases = {}
    if bias:
        biases = {
            i: blocks[i, 1][:, -1] if (i, 1) in blocks else jnp.zeros_like(phi[i - 2][:, 0])
            for i in range(2, len(values) + 1)
        }
    return of_neurons(blocks, biases, kept)


def of_neurons(
    bundles: Mapping[tuple[int, int], Array], biases: Mapping[int, Array], kept: Mapping[int, np.ndarray]
) -> dict[str, Array]:
    """Return the weights of some neurons alone. Layers without any are left out, and later ones renumbered.

    Args:
      bundles: W_ij by (i, j), over all neurons.
      biases: biases by layer, over all neurons.
      kept: the indices of each layer's neurons, in the order of layers.
    """
    left = [i for i, neurons in kept.items() if neurons.size]
    place = {i: to for to, i in enumerate(left, 1)}
    weights = {
        f"W{place[i]}_{place[j]}": jnp.asarray(bundles[i, j])[kept[i]][:, kept[j]]
        for i in left
        for j in left
        if (i, j) in bundles
    }
    return weights | {f"b{place[i]}": jnp.asarray(biases[i])[kept[i]] for i in left if i in biases}


def _check_one_network(params: PyTree) -> None:
    """Raise if parameters are a module, or belong to many runs."""
    if not isinstance(params, Mapping) and any(hasattr(params, name) for name in FACTORS.values()):
        raise ArgumentError(
            f"params: expected parameters, got the module {type(params).__name__}; for an NNX module, pass "
            "nnx.state(module, nnx.Param), and nnx.state(module) as the state"
        )
    depths = {jnp.ndim(leaf) for path, leaf in named_leaves(params).items() if "/phi" in path}
    if 4 in depths:
        raise ArgumentError(
            "params: they belong to a convolutional network; use spectral.convolutional_weights"
        )
    if depths == {3}:
        raise ArgumentError(
            "params: they have a leading axis of runs; pass those of one run, network.of_run(i)"
        )


def direct_feedforward(weights: Mapping[str, Array], x: Array, activation: Activation = jax.nn.relu) -> Array:
    r"""Apply the update rule `a_i = f(sum_{j<i} W_ij a_j + b_i)`, without f in the last layer.

    Args:
      weights: `{"W2_1": ..., "W3_1": ..., ...}`, for instance from `direct_weights`.
      x: shape (..., N_1).
      activation: f, elementwise.

    Returns:
      Outputs of shape (..., N) of the last layer.

    Raises:
      ArgumentError: weights of another form, or that do not fit one another or the input.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> weights = {"W2_1": jnp.array([[-10.0]]), "W3_1": jnp.array([[12.0]]), "W3_2": jnp.array([[-6.0]])}
      >>> x = jnp.array([[1.0], [-1.0]])
      >>> print(jaxarch.spectral.direct_feedforward(weights, x))  # 12, and -12 - 6 * 10
      [[ 12.]
       [-72.]]
    """
    widths = direct_widths(weights)
    check_callable("activation", activation, "z")
    check_array("x", x)
    if jnp.ndim(x) == 0 or x.shape[-1] != widths[0]:
        raise ArgumentError(f"x: the network has {widths[0]} inputs, got an array of shape {jnp.shape(x)}")
    a = [x]
    for i in range(2, len(widths) + 1):
        terms = [a[j - 1] @ weights[f"W{i}_{j}"].T for j in range(1, i) if f"W{i}_{j}" in weights]
        z = sum(terms[1:], terms[0])
        if f"b{i}" in weights:
            z = z + jnp.broadcast_to(weights[f"b{i}"], z.shape)
        a.append(activation(z))
    return z


def direct_widths(weights: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the widths N_1, ..., N_{B+1} of a network in direct space.

    Raises:
      ArgumentError: weights of another form, or that do not fit one another.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> weights = {"W2_1": jnp.ones((3, 4)), "W3_2": jnp.ones((2, 3)), "b2": jnp.ones(3)}
      >>> jaxarch.spectral.direct_widths(weights)
      (4, 3, 2)
    """
    wrong = "weights: expected the weights of a network in direct space, "
    check_mapping("weights", weights, 'the weights of a network in direct space, {"W2_1": ...}')
    named = [(str(name), BUNDLE.fullmatch(str(name))) for name in weights]
    names = [(name, match) for name, match in named if not re.fullmatch(r"b\d+", name)]
    given = shortened(", ".join(name for name, _ in named), 160)
    if not names or any(match is None for _, match in names):
        raise ArgumentError(wrong + f'{{"W2_1": ...}}; got {given or "none"}')
    sizes: dict[int, int] = {}
    for name, match in names:
        assert match is not None
        check_array(f"weights: {name}", weights[name])
        if weights[name].ndim != 2:
            raise ArgumentError(f"weights: {name} must be a matrix, got shape {weights[name].shape}")
        for layer, size in zip(map(int, match.groups()), weights[name].shape, strict=True):
            if sizes.setdefault(layer, size) != size:
                raise ArgumentError(
                    f"weights: {name} has {size} neurons in layer {layer}, but other weights have "
                    f"{sizes[layer]}"
                )
    layers = range(1, max(sizes) + 1)
    if any(i not in sizes for i in layers) or any(
        not any(f"W{i}_{j}" in weights for j in range(1, i)) for i in layers[1:]
    ):
        raise ArgumentError(wrong + f"with a bundle into every layer; got {given}")
    for i in layers:
        bias = weights.get(f"b{i}")
        if bias is not None and getattr(bias, "shape", None) not in ((sizes[i],), (1,), ()):
            raise ArgumentError(f"weights: b{i} must have shape ({sizes[i]},), got {shown(bias)}")
    return tuple(sizes[i] for i in layers)


def neuron_norms(weights: Mapping[str, Array]) -> dict[str, Array]:
    r"""Return the norm of all weights of each hidden neuron, incoming and outgoing, without its bias.

    Returns:
      `{"L2": (N_2,), ..., "LB": (N_B,)}`. The gradient at a neuron without weights is 0.

    Raises:
      ArgumentError: weights of another form, or of a network without hidden neurons.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> print(jaxarch.spectral.neuron_norms({"W2_1": jnp.ones((1, 2)), "W3_2": jnp.zeros((2, 1))}))
      {'L2': Array([1.4142135], dtype=float32)}
    """
    layers = len(direct_widths(weights))
    if layers < 3:
        raise ArgumentError("weights: the network has no hidden neurons")
    norms = {}
    for k in range(2, layers):
        into = [jnp.sum(jnp.square(weights[n]), axis=1) for n in weights if n.startswith(f"W{k}_")]
        out = [jnp.sum(jnp.square(weights[n]), axis=0) for n in weights if n.endswith(f"_{k}")]
        squares = sum([*into, *out[1:]], out[0])
        # The derivative of a square root at 0 is infinite, so it is taken at 1 there and not used.
        norms[f"L{k}"] = jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)
    return norms


def neuron_mask(weights: Mapping[str, Array], kept: Mapping[str, Array]) -> dict[str, Array | None]:
    """Return the mask of weights that removes neurons: False in their rows and columns; `None` for biases.

    Args:
      weights: weights of a network in direct space.
      kept: booleans for each hidden layer, `{"L2": (N_2,), ...}`.

    Raises:
      ArgumentError: a layer that does not exist, or has another number of neurons.
    """
    widths = direct_widths(weights)
    for name, neurons in kept.items():
        sizes = {f"L{i}": width for i, width in enumerate(widths[1:-1], 2)}
        if name not in sizes:
            raise ArgumentError(f"kept: unknown layer {shown(name)}; {did_you_mean(name, sizes)}")
        if jnp.shape(neurons) != (sizes[name],):
            raise ArgumentError(f"kept: {name} has {sizes[name]} neurons, got shape {jnp.shape(neurons)}")

    def mask(name: str, leaf: Array) -> Array | None:
        match = BUNDLE.fullmatch(name)
        if match is None:
            return None
        to, of = (kept.get(f"L{i}") for i in match.groups())
        rows = jnp.ones(leaf.shape[0], bool) if to is None else to
        columns = jnp.ones(leaf.shape[1], bool) if of is None else of
        return rows[:, None] & columns[None, :]

    return {name: mask(name, leaf) for name, leaf in weights.items()}

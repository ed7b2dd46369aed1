r"""Gated spectral networks for images: one eigenvalue per channel, kernels between neighbors, 1x1 skips.

Layers 1, ..., B are images of N_i channels, and layer B + 1 holds the outputs. A parameter phi_i is a kernel
of shape (k, k, N_i, N_{i+1}), k odd. Its convolution has stride t_i, and is padded with zeros by k // 2. The
last one has shape (1, 1, N_B, N_{B+1}), and is applied to the mean over the image. The center of a kernel is
a matrix, the 1x1 kernel c_i. The bundles are

    W_{i,i-1} = -L_i phi_{i-1},    W_ij = (-1)^(i-j) L_i c_{i-1} ... c_j,    j < i - 1,

with L_i one number per channel. They are the bundles of the gated form, `A' = Lambda Phi^-1`
(`spectral.algebra`), with one difference: kernels between neighbors see the surroundings of a pixel, and skip
connections only the pixel itself, at the stride t_j ... t_{i-1}. If all kernels are 1x1, this is the gated
form at each pixel.

Skips are 1x1 because kernels with zero padding do not compose to kernels, and 1x1 kernels do. So each bundle
is one convolution, and a removed channel is in none of them: it is gone from the network.

A' is Lambda times a unit lower triangular matrix, whatever the blocks of that matrix are. Its spectrum is
therefore Lambda, each eigenvalue once per pixel. The spectrum does not change under the rescaling symmetry of
ReLU: scale the kernels into a channel by a positive number, and those out of it by the inverse. For f(0) = 0,
an eigenvalue of 0 silences its channel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import (
    ArgumentError,
    check_array,
    check_callable,
    check_count,
    check_list,
    check_mapping,
    is_traced,
    shown,
)
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.spectral._network import FACTORS, Activation, Neurons, unpack_neurons


class Convolutions(NamedTuple):
    """A network for images with all skip connections, as ordinary convolutions.

    Attributes:
      kernels: `{"W2_1": (k, k, n_1, n_2), "W3_1": (1, 1, n_1, n_3), "W3_2": ..., ...}`; the last layer's
        kernels are 1x1, and are applied to means over images.
      strides: from each image to the next, and from the last one to the image whose mean is taken.
    """

    kernels: Mapping[str, Array]
    strides: tuple[int, ...]


def convolutional_feedforward(
    factors: Sequence[Array],
    eigenvalues: Sequence[Array],
    x: Array,
    strides: Sequence[int],
    activation: Activation = jax.nn.relu,
    neurons: Neurons | None = None,
) -> Array:
    r"""Apply the update rule `a_i = f(sum_{j<i} W_ij a_j)`, without f in the last layer, for images.

    It is computed by substitution: with `s_1 = a_1 = x`, and phi' the kernels with their center set to 0,

        v_i = c_{i-1} s_{i-1},    u_i = phi'_{i-1} * a_{i-1} + v_i,    a_i = f(-L_i u_i),    s_i = a_i - v_i,

    and the outputs are `-L_{B+1} c_B mean(s_B)`. All skip connections together thus cost one 1x1 convolution
    per layer on top of an ordinary network.

    Args:
      factors: phi_1, ..., phi_B, shapes (k, k, N_i, N_{i+1}); the last (1, 1, N_B, N_{B+1}).
      eigenvalues: L_2, ..., L_{B+1}, shapes (N_i,).
      x: images of shape (batch, height, width, N_1).
      strides: t_1, ..., t_{B-1}.
      activation: f, elementwise.
      neurons: which channels of layers 2, ..., B are left, one mask per layer; the others have activation 0.

    Returns:
      Outputs of shape (batch, N_{B+1}).

    Raises:
      ArgumentError: kernels, eigenvalues or strides that do not fit one another or the images.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> factors = [jnp.ones((3, 3, 1, 1)), jnp.full((1, 1, 1, 1), 3.0)]
      >>> eigenvalues = [jnp.array([-1.0]), jnp.array([-1.0])]
      >>> x = jnp.ones((1, 2, 2, 1))  # 4 of the 9 weights see the picture; the skip is minus the centre
      >>> print(jaxarch.spectral.convolutional_feedforward(factors, eigenvalues, x, (1,)))  # 3 (4 - 1)
      [[9.]]
    """
    _check(factors, eigenvalues, strides)
    check_callable("activation", activation, "z")
    _check_pictures(x, factors[:-1])
    hidden = len(factors) - 1
    masks = [None] * hidden if neurons is None else neurons
    check_list("neurons", masks, f"{hidden} masks, one per hidden layer")
    if len(masks) != hidden:
        raise ArgumentError(f"neurons: expected {hidden} masks, one per hidden layer, got {len(masks)}")
    for kept, phi in zip(masks, factors[:-1], strict=True):
        if kept is not None and jnp.shape(kept) != phi.shape[3:]:
            raise ArgumentError(f"neurons: expected a mask of shape {phi.shape[3:]}, got {shown(kept)}")
    a = s = x
    *between, last = factors
    for phi, values, stride, kept in zip(between, eigenvalues[:-1], strides, masks, strict=True):
        # Skips act at the center of a window alone, so the center reads s and its surroundings read a.
        skipped = s[:, ::stride, ::stride] @ centre(phi)
        z = -_by_channel(values, x) * (_convolve(a, without_centre(phi), stride) + skipped)
        a = activation(z)
        if kept is not None:
            # Mask inside as well: if the activation of a removed channel overflows, 0 times its slope is NaN.
            there = _by_channel(kept, x)
            a = jnp.where(there, activation(jnp.where(there, z, 0)), 0)
        s = a - skipped
    return s.mean((1, 2)) @ (-_by_channel(eigenvalues[-1], centre(last)) * centre(last))


def convolutional_weights(
    params: PyTree, strides: Sequence[int], state: PyTree | None = None
) -> Convolutions:
    r"""Export a spectral network for images as ordinary convolutions over the channels that are left.

    Channels that the state has removed are left out. A layer without channels is left out, and later layers
    are renumbered. The outputs are those of the given network; `direct_convolution` computes them. A bundle
    between layers that were not neighbors is a 1x1 kernel, and so is one that leads past a layer. A channel
    whose eigenvalue is 0 is removed if the state says so, as after `jaxarch.recruit` and
    `search.spectral(proximal=True)`: it is silent only if f(0) = 0.

    Args:
      params: `{"factors": {"phi1": ...}, "eigenvalues": {"L2": ...}}` of one network, concrete: the shapes of
        the result depend on the values.
      strides: t_1, ..., t_{B-1}; a `SpectralCNN` has them as its `strides`.
      state: the network's state.

    Raises:
      ArgumentError: parameters of another network, of many networks at once, or traced.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> from flax import nnx
      >>> net = jaxarch.SpectralCNN((8, 16), inputs=3, outputs=10, rngs=nnx.Rngs(0))
      >>> params = jaxarch.models.as_model(net, jnp.ones((1, 8, 8, 3))).init(jax.random.key(0))[0]
      >>> state = {"neurons": {"L2": jnp.arange(8) < 2}}
      >>> kernels, strides = jaxarch.spectral.convolutional_weights(params, net.strides, state)
      >>> {name: kernel.shape for name, kernel in sorted(kernels.items())[:3]}, strides
      ({'W2_1': (3, 3, 3, 2), 'W3_1': (1, 1, 3, 16), 'W3_2': (3, 3, 2, 16)}, (1, 2, 1))
    """
    if is_traced((params, state)):
        raise ArgumentError(
            "params: they are traced, but the channels that are left decide shapes; call this outside of "
            "jit and vmap"
        )
    factors, eigenvalues = unpack_convolutions(params)
    _check(factors, eigenvalues, strides)
    layers = len(factors) + 1
    masks = unpack_neurons({} if state is None else state, layers)
    kept = {1: np.arange(factors[0].shape[2]), layers: np.arange(factors[-1].shape[3])}
    for i, (values, mask) in enumerate(zip(eigenvalues[:-1], masks, strict=True), 2):
        kept[i] = np.arange(len(values)) if mask is None else np.flatnonzero(np.asarray(mask))
    left = [i for i in range(1, layers + 1) if kept[i].size]
    place = {i: to for to, i in enumerate(left, 1)}
    kernels = {}
    for i in left[1:]:
        signed = -_by_channel(eigenvalues[i - 2], factors[i - 2]) * factors[i - 2]
        for j in range(i - 1, 0, -1):
            if j in place:
                kernels[f"W{place[i]}_{place[j]}"] = signed[:, :, kept[j]][..., kept[i]]
            if j > 1:
                # Past layer j: the product of all centers in between, in the order in which images pass them.
                signed = -(centre(factors[j - 2]) @ centre(signed))[None, None]
    pictures = [*left[:-1], layers - 1]
    steps = [math.prod(strides[i - 1 : to - 1]) for i, to in itertools.pairwise(pictures)]
    return Convolutions(kernels, tuple(steps))


def direct_convolution(weights: Convolutions, x: Array, activation: Activation = jax.nn.relu) -> Array:
    r"""Apply the update rule `a_i = f(sum_{j<i} W_ij * a_j)` of ordinary convolutions, last layer without f.

    Args:
      weights: the result of `convolutional_weights`.
      x: images of shape (batch, height, width, n_1).
      activation: f, elementwise.

    Returns:
      Outputs of shape (batch, n) of the last layer.

    Raises:
      ArgumentError: kernels that are missing, or that do not fit the images.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> kernels = {"W2_1": jnp.full((1, 1, 1, 1), 2.0), "W3_1": jnp.full((1, 1, 1, 1), 3.0)}
      >>> kernels["W3_2"] = jnp.ones((1, 1, 1, 1))
      >>> weights = jaxarch.spectral.Convolutions(kernels, (1, 1))
      >>> print(jaxarch.spectral.direct_convolution(weights, jnp.ones((1, 4, 4, 1))))  # 3 + 2
      [[5.]]
    """
    if not isinstance(weights, Convolutions):
        raise ArgumentError(f"weights: expected the result of convolutional_weights, got {shown(weights)}")
    kernels, strides = weights
    check_callable("activation", activation, "z")
    check_mapping("weights", kernels, "a dict of kernels by name")
    _check_strides(strides)
    a, last = [x], len(strides) + 1
    expected = {f"W{i}_{j}" for i in range(2, last + 1) for j in range(1, i)}
    if missing := expected - kernels.keys():
        raise ArgumentError(f"weights: expected a kernel for each pair of layers; {min(missing)} is missing")
    for name in sorted(expected):
        _check_kernel(f"weights: {name}", kernels[name], "inputs, outputs")
    between = [kernels[name] for name in sorted(expected) if not name.startswith(f"W{last}_")]
    _check_pictures(x, between or [kernels["W2_1"]])
    widths = {1: x.shape[3], **{i: kernels[f"W{i}_1"].shape[3] for i in range(2, last + 1)}}
    for i, j in itertools.combinations(range(last, 0, -1), 2):
        if kernels[f"W{i}_{j}"].shape[2:] != (widths[j], widths[i]):
            raise ArgumentError(
                f"weights: W{i}_{j} must have shape (k, k, {widths[j]}, {widths[i]}), got "
                f"{kernels[f'W{i}_{j}'].shape}"
            )
    for i in range(2, last):
        terms = [
            _convolve(a[j - 1], kernels[f"W{i}_{j}"], math.prod(strides[j - 1 : i - 1])) for j in range(1, i)
        ]
        a.append(activation(sum(terms[1:], terms[0])))
    outputs = []
    for j, picture in enumerate(a, 1):
        stride = math.prod(strides[j - 1 :])
        outputs.append(picture[:, ::stride, ::stride].mean((1, 2)) @ centre(kernels[f"W{last}_{j}"]))
    return sum(outputs[1:], outputs[0])


def centre(kernel: Array) -> Array:
    """Return the 1x1 kernel at the center of a kernel, as a matrix of shape (N_i, N_{i+1})."""
    return kernel[kernel.shape[0] // 2, kernel.shape[1] // 2]


def without_centre(kernel: Array) -> Array:
    """Return a kernel with its center set to 0."""
    return jnp.asarray(kernel).at[kernel.shape[0] // 2, kernel.shape[1] // 2].set(0)


def unpack_convolutions(params: PyTree) -> tuple[list[Array], list[Array]]:
    """Return the sequences phi_1, ..., phi_B and L_2, ..., L_{B+1} of the parameters of an image network.

    Raises:
      ArgumentError: parameters of another kind of model.
    """
    try:
        kernels, values = (named_leaves(params[kind]) for kind in (FACTORS["gated"], "eigenvalues"))
        factors = [kernels[f"phi{i + 1}"] for i in range(len(kernels))]
        return factors, [values[f"L{i + 2}"] for i in range(len(values))]
    except (KeyError, TypeError, IndexError, AttributeError):
        raise ArgumentError(
            'params: expected parameters of a convolutional spectral network, {"factors": {"phi1": ...}, '
            '"eigenvalues": {"L2": ...}}'
        ) from None


def _by_channel(values: Array, like: Array) -> Array:
    """Reshape one number per channel to as many axes as an array whose last axis holds channels."""
    return values.reshape((1,) * (like.ndim - 1) + (-1,))


def _convolve(x: Array, kernel: Array, stride: int) -> Array:
    """Convolve with zero padding: the first pixel is the center of the first window, whatever the stride."""
    around = [(size // 2, size // 2) for size in kernel.shape[:2]]
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), around, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _check(factors: Sequence[Array], eigenvalues: Sequence[Array], strides: Sequence[int]) -> None:
    """Raise unless kernels, eigenvalues and strides fit one another."""
    check_list("factors", factors, "kernels phi_1, ..., phi_B")
    check_list("eigenvalues", eigenvalues, "vectors L_2, ..., L_{B+1}")
    if len(factors) < 2:
        raise ArgumentError(
            f"factors: expected at least two kernels, the last one over means, got {len(factors)}"
        )
    for i, phi in enumerate(factors, 1):
        _check_kernel(f"factors: phi_{i}", phi, f"N_{i}, N_{i + 1}")
        shape = phi.shape
        if i > 1 and shape[2] != factors[i - 2].shape[3]:
            raise ArgumentError(
                f"factors: phi_{i} must have {factors[i - 2].shape[3]} inputs, as many as phi_{i - 1} has "
                f"outputs; got shape {shape}"
            )
    if factors[-1].shape[0] != 1:
        raise ArgumentError(
            f"factors: expected a last kernel of window 1x1, applied to means, got shape {factors[-1].shape}"
        )
    if len(eigenvalues) != len(factors):
        raise ArgumentError(
            f"eigenvalues: expected {len(factors)} vectors, L_2 to L_{len(factors) + 1}, got "
            f"{len(eigenvalues)}"
        )
    for i, (values, phi) in enumerate(zip(eigenvalues, factors, strict=True), 2):
        check_array(f"eigenvalues: L_{i}", values)
        if jnp.shape(values) != (phi.shape[3],):
            raise ArgumentError(
                f"eigenvalues: L_{i} must have shape ({phi.shape[3]},), got {jnp.shape(values)}"
            )
    check_list("strides", strides, "integers, one for each convolution but the last")
    if len(strides) != len(factors) - 1:
        raise ArgumentError(
            f"strides: expected {len(factors) - 1}, one for each convolution but the last, got "
            f"{shown(strides)}"
        )
    _check_strides(strides)


def _check_strides(strides: Sequence[int]) -> None:
    check_list("strides", strides, "integers")
    for stride in strides:
        check_count("strides", stride)


def _check_kernel(name: str, kernel: Array, channels: str) -> None:
    """Raise unless it is one kernel, square and with a center."""
    check_array(name, kernel)
    shape = kernel.shape
    if len(shape) != 4 or shape[0] != shape[1] or shape[0] % 2 == 0:
        raise ArgumentError(
            f"{name} must have shape (k, k, {channels}), k odd, got {shape}; for many networks at once use "
            "vmap"
        )


def _check_pictures(x: Array, kernels: Sequence[Array]) -> None:
    """Raise unless images have the channels and the dtype of the kernels that they are convolved with."""
    check_array("x", x)
    channels = kernels[0].shape[2]
    if x.ndim != 4 or x.shape[-1] != channels:
        raise ArgumentError(f"x: expected images of shape (batch, height, width, {channels}), got {x.shape}")
    for kernel in kernels:
        if kernel.dtype != x.dtype:
            raise ArgumentError(f"x: expected the dtype of the kernels, {kernel.dtype}, got {x.dtype}")

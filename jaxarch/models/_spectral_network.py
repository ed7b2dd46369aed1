"""Spectral networks ([S]) as models: they start as perceptrons, and recruit hidden neurons as data demand."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import (
    ArgumentError,
    DeadStartWarning,
    check_callable,
    check_choice,
    check_flag,
    check_widths,
    shown,
)
from jaxarch._internal.trees import PyTree
from jaxarch.models._model import Model
from jaxarch.run._problem import Key
from jaxarch.spectral import _network as network
from jaxarch.spectral._network import Activation, Initializer, Method, Start
from jaxarch.spectral.algebra import Form, check_form

RANDOM: Initializer = jax.nn.initializers.normal(0.5)
"""Initializer of the hidden eigenvalues of a random start."""


def spectral_network(
    widths: Sequence[int],
    *,
    form: Form = "eigendecomposition",
    activation: Activation = jax.nn.relu,
    bias: bool = False,
    eigenvalues: Literal["perceptron", "random"] | Sequence[Start] | None = None,
    eigenvectors: Initializer = network.xavier_uniform,
    train_input_eigenvalues: bool = False,
    update: Literal["feedforward", "recursive"] = "feedforward",
    method: Method = "auto",
    skips: bool = True,
) -> Model:
    r"""Make a network with weights `A_B = Phi_B Lambda_B Phi_B^-1` and all skip connections ([S]).

    The bundle from layer j to layer i is W_ij of [S] eq. (4.3), and `a_i = f(sum_{j<i} W_ij a_j)` (4.5),
    without f in the last layer. The network has hardly more parameters than an ordinary network of its
    widths, and takes at most about twice its time.

    It starts as a perceptron, L_1 = ... = L_B = 0 and L_{B+1} = 1: only the bundles to the output carry
    anything. Training recruits a hidden neuron by moving its eigenvalue away from 0. Contrary to [S] section
    4, the gradient in L_2, ..., L_{B-1} is exactly 0 at this start, for every f with f(0) = 0. The last
    hidden layer is recruited first, and every other layer one step after the layer that follows it.

    This start needs a kink at 0, as in ReLU. If f is smooth, each hidden eigenvalue changes the output by a
    linear (or affine) function of the input, to first order. Once the perceptron fits as well as it can, the
    gradient is 0 in all of them, and nothing is recruited. In L_B the gradient also carries the factor
    `1 - f'(0) L_{B+1}`: for tanh it is 0 from the first step on. In that case start at `random`, with L_2,
    ..., L_B from N(0, .5), or at your own values. As an example, take `y = |x|^2` in two dimensions, and 3000
    steps of Adam on widths (3, 100, 1) with tanh, SiLU or ELU. From the perceptron they got no further than a
    linear fit, and from the random start to about 2% of that fit's error (medians of 3 runs).

    With `form="gated"` the weights come from `A'_B = Lambda_B Phi_B^-1`, which is this library's and not in
    [S]: `W_ij = (-1)^(i-j) L_i phi_{i-1} ... phi_j`. The eigenvalues of A'_B are again those of Lambda_B, but
    a bundle contains only the eigenvalues of the layer that it leads to. An eigenvalue thus stands for a
    neuron at every depth: for f(0) = 0, an eigenvalue of 0 silences it. In the form of [S] this holds with
    one hidden layer; with more, an eigenvalue feeds the next layer as well, and most neurons stay. The gated
    form takes one product per layer instead of two. It is an ordinary network with the weights phi_i. Each
    neuron has the activation `u -> f(-lambda u) - u`, linear where lambda is 0.

    The gated form starts at `random`. At a perceptron, the derivative in every hidden eigenvalue carries the
    factor f'(0), which JAX takes to be 0 for `jax.nn.relu`: no neuron would ever be recruited. To start
    there, use `activation=jaxarch.spectral.half_slope_relu`. For the same reason an eigenvalue that becomes
    exactly 0 stays 0 with `jax.nn.relu`.

    Args:
      widths: neurons per layer, N_1, ..., N_{B+1}, from the input to the output.
      form: `eigendecomposition`, `A_B = Phi_B Lambda_B Phi_B^-1` as in [S], or `gated`,
        `A'_B = Lambda_B Phi_B^-1`.
      activation: f, elementwise.
      bias: whether the input layer has one more neuron that is always 1. The skip connections carry it to
        every layer.
      eigenvalues: `perceptron`, `random`, or one start per layer: a number, an array of shape (N_i,), or
        `(key, shape) -> values`, such as `jax.nn.initializers.normal(0.1)`. By default `perceptron`, and
        `random` in the gated form.
      eigenvectors: an initializer of phi_i^T, shape (N_i, N_{i+1}); by default Xavier uniform, as in [S].
      train_input_eigenvalues: whether L_1 is a parameter. By default it is the constant 0 ([S] section 4):
        a hidden eigenvalue then stands for a neuron, if the layer before has none. The code of [S] trains
        L_1 in experiment 1, and the hidden layer is then recruited as a whole through the few input
        eigenvalues. The feed-forward rule of the gated form does not read L_1.
      update: `feedforward`, eq. (4.5), or `recursive`, the rule `a <- f(A_B a)` of [S] section 4 (see
        `spectral.recursive`).
      method: how the feed-forward rule is computed; see `spectral.feedforward`.
      skips: without skip connections every layer is joined only to the next (`spectral.layer_by_layer`), as a
        rival for comparison. It does not start as a perceptron, but at 0 with a gradient of exactly 0, so
        start it at `random`.

    Returns:
      A model for inputs of shape (..., widths[0]), with outputs of shape (..., widths[-1]) and parameters
      `{"eigenvectors": {"phi1": ..., "phi2": ...}, "eigenvalues": {"L2": ..., "L3": ...}}`, phi_i of shape
      (N_{i+1}, N_i) and L_i of shape (N_i,); with a bias N_1 is one more. In the gated form phi_i are not
      eigenvectors, and the key is "factors" instead of "eigenvectors". Training can keep any of them fixed:
      `jaxarch.search.spectral(trainable=...)`. The state is `{}`, until `jaxarch.recruit` stores there which
      hidden neurons are left.

    Raises:
      ArgumentError: widths that are not at least two positive integers; starts of another number or shape, or
        not finite; an L_1 other than 0 that is not trained; an unknown word; an activation that is not
        elementwise.

    Example:
      >>> import jax, jaxarch
      >>> params, state = jaxarch.spectral_network((2, 3, 1)).init(jax.random.key(0))
      >>> [f"{path} {leaf.shape}" for path, leaf in jaxarch.named_leaves(params).items()]
      ['eigenvalues/L2 (3,)', 'eigenvalues/L3 (1,)', 'eigenvectors/phi1 (3, 2)', 'eigenvectors/phi2 (1, 3)']
      >>> weights = jaxarch.spectral.direct_weights(params)  # a perceptron at first
      >>> {name: bool(matrix.any()) for name, matrix in weights.items()}
      {'W2_1': False, 'W3_1': True, 'W3_2': True}
    """
    check_widths(widths)
    check_form(form)
    check_choice("update", update, ("feedforward", "recursive"))
    flags = {"bias": bias, "train_input_eigenvalues": train_input_eigenvalues, "skips": skips}
    for name, flag in flags.items():
        check_flag(name, flag)
    check_callable("eigenvectors", eigenvectors, "key", "shape")
    network.check_method(method)
    _check_rule(form, update, method, train_input_eigenvalues, skips)
    if eigenvalues is None:
        eigenvalues = "random" if form == "gated" else "perceptron"
    sizes = (widths[0] + bool(bias), *widths[1:])
    starts = _starts(eigenvalues, sizes, train_input_eigenvalues)
    network.check_activation(activation)
    _warn_of_dead_start(activation, starts, skips, form)

    def init(key: Array) -> tuple[PyTree, PyTree]:
        return network.init(key, sizes, starts, eigenvectors, train_input_eigenvalues, form), {}

    def apply(params: PyTree, state: PyTree, x: Array, key: Key) -> tuple[Array, PyTree]:
        if x.shape[-1] != widths[0]:
            raise ArgumentError(f"x: the network has {widths[0]} inputs, got examples of shape {x.shape[1:]}")
        if bias:
            x = jnp.concatenate([x, jnp.ones((*x.shape[:-1], 1), x.dtype)], axis=-1)
        phi, values = network.unpack(params, form)
        neurons = network.unpack_neurons(state, len(values))
        if update == "recursive":
            return network.recursive(phi, values, x, activation, neurons, form), state
        if not skips:
            return network.layer_by_layer(phi, values, x, activation, neurons, form), state
        return network.feedforward(phi, values, x, activation, method, neurons, form), state

    return Model(init, apply)


def _check_rule(form: Form, update: str, method: Method, train_input_eigenvalues: bool, skips: bool) -> None:
    """Raise if some arguments have no effect in combination with the others."""
    if update == "recursive" and method != "auto":
        raise ArgumentError(f"method: {shown(method)} applies only to update='feedforward'; leave it out")
    if not skips and (update, method) != ("feedforward", "auto"):
        raise ArgumentError("skips: with skips=False, update and method have no effect; leave them out")
    if form == "gated" and update == "feedforward" and train_input_eigenvalues:
        raise ArgumentError(
            "train_input_eigenvalues: it has no effect in the gated form with the feedforward update; leave "
            "it out"
        )


def _starts(eigenvalues: str | Sequence[Start], sizes: Sequence[int], trains_input: bool) -> Sequence[Start]:
    """Return one start per layer."""
    layers = len(sizes)
    if isinstance(eigenvalues, str):
        hidden: dict[str, Start] = {"perceptron": 0.0, "random": RANDOM}
        if eigenvalues not in hidden:
            raise ArgumentError(
                f"eigenvalues: expected 'perceptron', 'random' or {layers} starts, got {shown(eigenvalues)}"
            )
        return [0.0, *[hidden[eigenvalues]] * (layers - 2), 1.0]
    network.check_starts(eigenvalues, sizes)
    starts = list(eigenvalues)
    for i, start in enumerate(starts, 1):
        if not callable(start) and not np.isfinite(start).all():
            raise ArgumentError(f"eigenvalues: expected finite starts, got L_{i} = {shown(start)}")
    if not trains_input and (callable(starts[0]) or np.any(starts[0])):
        raise ArgumentError(
            "eigenvalues: L_1 is fixed at 0; pass train_input_eigenvalues=True to start it elsewhere"
        )
    return starts


def _warn_of_dead_start(activation: Activation, starts: Sequence[Start], skips: bool, form: Form) -> None:
    """Warn if no hidden neuron can be recruited: hidden eigenvalues of 0 without a kink there, or a slope."""
    if len(starts) < 3 or any(callable(start) or np.any(np.asarray(start)) for start in starts[:-1]):
        return
    if not skips:
        warnings.warn(
            "eigenvalues: dead start: without skip connections no signal passes hidden eigenvalues of 0; "
            "use eigenvalues='random'",
            DeadStartWarning,
            stacklevel=3,
        )
        return
    # The slopes must be concrete numbers also if the model is made inside jit.
    with jax.ensure_compile_time_eval():
        below, at_0, above = (float(jax.grad(activation)(x)) for x in (-1e-6, 0.0, 1e-6))
    if form == "gated" and at_0 == 0:
        warnings.warn(
            "eigenvalues: dead start: in the gated form hidden eigenvalues of 0 stay 0 if the activation's "
            "derivative at 0 is 0, as for ReLU in JAX; use eigenvalues='random', or "
            "activation=jaxarch.spectral.half_slope_relu",
            DeadStartWarning,
            stacklevel=3,
        )
        return
    if abs(above - below) < 1e-3:
        warnings.warn(
            "eigenvalues: dead start: at hidden eigenvalues of 0, an activation without a kink at 0 acts "
            "like a linear one, so no neuron is recruited; use eigenvalues='random', or ReLU",
            DeadStartWarning,
            stacklevel=3,
        )

r"""Eigenvalues of 0 in a gated network, and the layers recruited from there (docs/theory.md).

At L_2 = ... = L_B = 0 the derivative of the output as L_k moves by q is, for every 2 <= k <= B,

    (-1)^B f'(0) L_{B+1} phi_B ... phi_k q phi_{k-1} ... phi_1 x.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.core import Claim, Sides
from jaxarch.lab.claims.checks.cube import choice
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.drawn_networks import (
    all_of,
    at_the_start,
    kinked,
    networks,
    output_derivative,
    parts,
    residual,
    smooth,
    whole,
)
from jaxarch.lab.claims.checks.exact import Exact
from jaxarch.lab.claims.checks.exact_networks import DEPTHS, chain, depths, same, symbols
from jaxarch.lab.claims.checks.free_algebra import linear_in, symbol
from jaxarch.lab.claims.spectral.neurons import sparse_networks
from jaxarch.lab.claims.spectral.perceptron_start import some_activation
from jaxarch.spectral import Activation, algebra, feedforward, half_slope_relu

gated = functools.partial(feedforward, form="gated")


def gated_silence(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], only_zero: bool = False) -> bool:
    """No connection enters a neuron if and only if its eigenvalue is 0, or its row of phi."""
    bundles = algebra.connections(eigenvectors, eigenvalues, "gated")
    return all(
        any(bundles[k, j][n].any() for j in range(1, k))
        == bool(value != 0 and (only_zero or eigenvectors[k - 2][n].any()))
        for k, own in enumerate(eigenvalues[1:], 2)
        for n, value in enumerate(own)
    )


def zeroing_removes(
    c: Array, d: Array, kept: Array, offset: float = 0.0, rule: Any = gated, **case: Array
) -> Sides:
    """`y(eigenvalues zeroed) = y(neurons removed)`, in each hidden layer and in all; `offset` is f(0)."""
    phi, values, x = parts(case)
    f = kinked(c, d)
    hidden = range(1, len(phi))
    found = []
    for layers in [*([k] for k in hidden), list(hidden)]:
        zeroed = [kept * own if k in layers else own for k, own in enumerate(values)]
        neurons = [kept == 1 if k in layers else None for k in hidden]
        activations: Activation = lambda z: f(z) + offset  # noqa: E731
        found.append(
            residual(rule(phi, zeroed, x, activations), rule(phi, values, x, activations, neurons=neurons))
        )
    return all_of(found)


GATED_SILENCE = Claim(
    id="spectral.gated-silence",
    source="this library; beside [S] section 5 on figure 10",
    statement="in the gated form neuron n of layer k has no incoming connections, from any layer, if and "
    "only if its eigenvalue is 0 or row n of phi_{k-1} is; so if f(0) = 0, setting eigenvalues to 0 removes "
    "their neurons, in any layers, and changes nothing else",
    latex=r"[W_{kj}]_{n \cdot} = 0 \;\forall j \iff \lambda_{k,n} = 0 \;\text{or}\; "
    r"[\phi_{k-1}]_{n \cdot} = 0",
    verdict="holds",
    assumptions="f(0) = 0 for the second half",
    remark="With f(0) other than 0 the neuron becomes a bias. In the form of [S] the same holds only where "
    "the layer before has zero eigenvalues, and zeroing changes the skip connections past the neuron.",
    checks=(
        Exact(
            gated_silence,
            sparse_networks,
            {"if and only if the eigenvalue is 0": functools.partial(gated_silence, only_zero=True)},
        ),
        Inequality(
            zeroing_removes,
            networks(2, 2, 2, 2, 2, c=whole(), d=whole(), kept=choice(0.0, 1.0, shape=(2,))),
            {
                "f(0) = 1": functools.partial(zeroing_removes, offset=1.0),
                "the form of [S]": functools.partial(zeroing_removes, rule=feedforward),
            },
        ),
    ),
    see=("S.one-eigenvalue-one-neuron", "S.removed-neurons"),
)


def gated_start_derivative(
    phi: Sequence[Any], last: Any, x: Any, slope: Any, layer: int, direction: Any
) -> Any:
    """Compute the claimed derivative of the output at the perceptron start in L_layer, 2 <= layer <= B."""
    depth = len(phi)
    moved = direction * chain(phi, x, 1, layer - 1)
    return (-1) ** depth * slope * (last * chain(phi, moved, layer, depth))


def gated_preactivations(
    phi: Sequence[Any], values: Sequence[Any], x: Any, activation: Any
) -> tuple[list[Any], list[Any]]:
    """Compute `z_2, ..., z_{B+1}` and `s_1, ..., s_B` of a one-column input, in the gated form."""
    z, s = [], [x]
    for block, own in zip(phi, values[1:], strict=True):
        z.append(-own[:, None] * (block @ s[-1]))
        s.append(activation(z[-1]) - block @ s[-1])
    return z, s[:-1]


def gated_perceptron_of_symbols(depth: int, zero: int = 0) -> bool:
    """The perceptron in symbols, for any f with f(0) = 0; `zero` layers are not at their start."""
    network = symbols(depth)
    phi, values, x = network["eigenvectors"], network["eigenvalues"], symbol("x", 1, 1)
    start = [0 * layer for layer in values[: depth - zero]] + values[depth - zero :]
    z, _ = gated_preactivations(phi, start, x, some_activation)
    return same(z[-1], (-1) ** depth * values[-1][:, None] * chain(phi, x, 1, depth))


def gated_recruitment_of_symbols(depth: int, layer: int, slope: int, sign: int = 1) -> bool:
    """The derivative in symbols, with `f(z) = slope z`: the rest of f is of second order at z = 0."""
    network = symbols(depth)
    phi, last, x = network["eigenvectors"], network["eigenvalues"][-1], symbol("x", 1, 1)
    direction = symbol("q", 1)
    values = [direction if i == layer else 0 * direction for i in range(1, depth + 1)]
    z, _ = gated_preactivations(phi, [*values, last], x, lambda z: slope * z)
    expected = gated_start_derivative(phi, last[:, None], x, slope, layer, direction[:, None])
    return same(linear_in("q")(z[-1]), sign * expected)


def hidden_layers() -> Iterator[dict[str, int]]:
    """Every hidden layer at every depth; the derivative is of degree 1 in f'(0), so 2 values prove it."""
    for depth in DEPTHS:
        for layer in range(2, depth + 1):
            yield from ({"depth": depth, "layer": layer, "slope": slope} for slope in (0, 1))


def gated_recruitment(c: Array, d: Array, direction: Array, rule: Any = gated, **case: Array) -> Sides:
    """The derivative by automatic differentiation in the library's network, all widths being equal."""
    phi, values, x = parts(case)
    start = at_the_start(phi, values[-1])
    return all_of(
        [
            residual(
                output_derivative(phi, start, x, smooth(c, d), layer, direction, rule),
                gated_start_derivative(phi, values[-1], x, c, layer, direction),
            )
            for layer in range(2, len(phi) + 1)
        ]
    )


def zero_eigenvalues(
    c: Array, d: Array, kept: Array, direction: Array, share: float = 0.5, **case: Array
) -> Sides:
    """`dy/dL_k` along zeros of L_k is `f'(0)` times the derivative of y as `-q u_k` is added to a_k.

    The other eigenvalues are anything. Automatic differentiation takes the mean of two slopes,
    `f'(0) = share (c + d)`.
    """
    phi, values, x = parts(case)
    f = kinked(c, d)
    found = []
    for layer in range(2, len(phi) + 1):
        at = [kept * own if k == layer else own for k, own in enumerate(values, 1)]
        q = (1 - kept) * direction

        def moved(t: Array, layer: int = layer, at: Any = at, q: Any = q) -> Array:
            return _with_activity(phi, at, x, f, layer, lambda u: -t * q * u)

        expected = share * (c + d) * jax.jvp(moved, (jnp.zeros(()),), (jnp.ones(()),))[1]
        found.append(residual(output_derivative(phi, at, x, f, layer, q, gated), expected))
    return all_of(found)


def _with_activity(
    phi: Sequence[Array], values: Sequence[Array], x: Array, f: Activation, layer: int, added: Any
) -> Array:
    """Compute the output with `added`, a function of u in a layer, added to the layer's activity."""
    s = x
    for k, (block, own) in enumerate(zip(phi, values[1:], strict=True), 2):
        u = block @ s
        z = -own * u
        s = f(z) - u + (added(u) if k == layer else 0.0)
    return jnp.asarray(z)


def zeros_stay(d: Array, kept: Array, direction: Array, slope: float = 0.0, **case: Array) -> Sides:
    """With f'(0) = 0 the output has no derivative in eigenvalues that are 0, whatever the others are."""
    phi, values, x = parts(case)
    found = []
    for layer in range(2, len(phi) + 1):
        at = [kept * own if k == layer else own for k, own in enumerate(values, 1)]
        derivative = output_derivative(phi, at, x, smooth(slope, d), layer, (1 - kept) * direction, gated)
        found.append(residual(derivative, jnp.zeros_like(derivative)))
    return all_of(found)


GATED_RECRUITMENT = Claim(
    id="spectral.gated-recruitment",
    source="this library; beside [S] section 4, (ii)",
    statement="in the gated form the derivative of the output in an eigenvalue that is 0 is -f'(0) u times "
    "that in its neuron's activation, whatever the other eigenvalues are; at L_2 = ... = L_B = 0, where the "
    "output is (-1)^B L_{B+1} phi_B ... phi_1 x, it is (-1)^B f'(0) L_{B+1} phi_B ... phi_k q phi_{k-1} ... "
    "phi_1 x as L_k moves by q, for every 2 <= k <= B",
    latex=r"\frac{\partial y}{\partial L_k} q = (-1)^B f'(0) L_{B+1} \phi_B \cdots \phi_k \, q \, "
    r"\phi_{k-1} \cdots \phi_1 x",
    verdict="holds",
    assumptions="f(0) = 0, f differentiable at 0",
    remark="So all hidden layers can be recruited at once if f'(0) is not 0, and none ever if it is: an "
    "eigenvalue of 0 then stays 0, at the start and after. Automatic differentiation takes 0 for ReLU's "
    "slope at 0, and follows this theorem. The derivatives at the start are linear in x: as in the form of "
    "[S], the best linear fit is stationary in all hidden eigenvalues.",
    checks=(
        Exact(
            gated_perceptron_of_symbols,
            depths,
            {"L_B not 0": functools.partial(gated_perceptron_of_symbols, zero=1)},
            kind="formal",
        ),
        Exact(
            gated_recruitment_of_symbols,
            hidden_layers,
            {"a flipped sign": functools.partial(gated_recruitment_of_symbols, sign=-1)},
            kind="formal",
        ),
        Inequality(
            gated_recruitment,
            networks(2, 2, 2, 2, 2, c=whole(), d=whole(), direction=whole(2)),
            {"the form of [S]": functools.partial(gated_recruitment, rule=feedforward)},
        ),
        Inequality(
            zero_eigenvalues,
            networks(2, 2, 2, 2, c=whole(), d=whole(), direction=whole(2), kept=choice(0.0, 1.0, shape=(2,))),
            {"9/10 of f'(0)": functools.partial(zero_eigenvalues, share=0.45)},
        ),
        Inequality(
            zeros_stay,
            networks(2, 2, 2, 2, d=whole(), direction=whole(2), kept=choice(0.0, 1.0, shape=(2,))),
            {"f'(0) = 1/100": functools.partial(zeros_stay, slope=0.01)},
        ),
    ),
    see=("spectral.recruitment-order", "spectral.gated-at-a-kink"),
)


def gated_one_sided(
    c: Array, d: Array, direction: Array, t: Array, outside: bool = False, **case: Array
) -> Sides:
    """`y(L_k = t q) - y(0)` at the perceptron start, exactly, for t of either sign.

    If `outside`, the activation is taken after phi_k and not before.
    """
    phi, values, x = parts(case)
    depth, last, f = len(phi), values[-1], kinked(c, d)
    start = at_the_start(phi, last)
    found = []
    for layer in range(2, depth + 1):
        moved = gated(phi, [*start[: layer - 1], t * direction, *start[layer:]], x, f)
        r = (-1.0) ** (layer - 1) * t * direction * chain(phi, x, 1, layer - 1)
        into = f(phi[layer - 1] @ r) if outside else phi[layer - 1] @ f(r)
        expected = (-1.0) ** (depth + 1 - layer) * last * chain(phi, into, layer + 1, depth)
        found.append(residual(moved - gated(phi, start, x, f), expected))
    return all_of(found)


def half_slope_is_the_mean(direction: Array, f: Activation = half_slope_relu, **case: Array) -> Sides:
    """Automatic differentiation with the slope 1/2 finds the mean of both one-sided derivatives."""
    phi, values, x = parts(case)
    start = at_the_start(phi, values[-1])
    found = []
    for layer in range(2, len(phi) + 1):
        forwards, backwards = (
            gated(phi, [*start[: layer - 1], t * direction, *start[layer:]], x, jax.nn.relu)
            for t in (1.0, -1.0)
        )
        derivative = output_derivative(phi, start, x, f, layer, direction, gated)
        found.append(residual(derivative, (forwards - backwards) / 2))
    return all_of(found)


GATED_AT_A_KINK = Claim(
    id="spectral.gated-at-a-kink",
    source="this library; beside [S] section 3 on ReLU",
    statement="in the gated form, at L_2 = ... = L_B = 0 but L_k = t q, 2 <= k <= B, with r = (-1)^(k-1) t "
    "q phi_{k-1} ... phi_1 x the output is what it is at t = 0, plus (-1)^(B+1-k) L_{B+1} phi_B ... phi_k "
    "f(r); the mean of its derivatives from both sides of t = 0 is that of f'(0) = (b + c)/2, for ReLU 1/2",
    latex=r"y(t q) = y(0) + (-1)^{B+1-k} L_{B+1} \phi_B \cdots \phi_k f(r)",
    verdict="holds",
    assumptions="f(z) = b max(z, 0) + c min(z, 0), ReLU being b = 1, c = 0",
    remark="Exact, and linear in t on either side of 0, for any t. Neurons are recruited at once by the "
    "functions that they can compute from the input, of which automatic differentiation with JAX's slope 0 "
    "sees nothing, and with 1/2 the linear part.",
    checks=(
        Inequality(
            gated_one_sided,
            networks(2, 2, 2, 2, 2, c=whole(), d=whole(), direction=whole(2), t=whole()),
            {"f after phi_k": functools.partial(gated_one_sided, outside=True)},
        ),
        Inequality(
            half_slope_is_the_mean,
            networks(2, 2, 2, 2, 2, direction=whole(2)),
            {"the slope that JAX takes": functools.partial(half_slope_is_the_mean, f=jax.nn.relu)},
        ),
    ),
    see=("spectral.gated-recruitment", "spectral.recruitment-at-a-kink"),
)

CLAIMS = (
    GATED_SILENCE,
    GATED_RECRUITMENT,
    GATED_AT_A_KINK,
)

"""The perceptron at the start of a spectral network, and the gradients there ([S] sections 3 and 4).

y = (-1)^B L_{B+1} phi_B ... phi_1 x        at L_1 = ... = L_B = 0
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch.lab.claims.checks.core import Claim, Control, Counterexample, Sides
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.drawn_networks import (
    at_the_start,
    networks,
    output_derivative,
    parts,
    residual,
    smooth,
    whole,
)
from jaxarch.lab.claims.checks.exact import Exact
from jaxarch.lab.claims.checks.exact_networks import chain, depths, preactivations, same, symbols
from jaxarch.lab.claims.checks.free_algebra import Polynomial, symbol
from jaxarch.spectral import feedforward

some_activation = np.vectorize(lambda z: Polynomial({(f"f({z!r})",): 1}) if z != 0 else 0, otypes=[object])
"""A function in symbols with no property but f(0) = 0."""


def perceptron_of_symbols(depth: int, zero: int = 0) -> bool:
    """The perceptron in symbols, for any f with f(0) = 0; `zero` layers are not at their start."""
    network = symbols(depth)
    phi, values, x = network["eigenvectors"], network["eigenvalues"], symbol("x", 1, 1)
    start = [0 * layer for layer in values[: depth - zero]] + values[depth - zero :]
    z, _ = preactivations(phi, start, x, some_activation)
    return same(z[-1], (-1) ** depth * values[-1][:, None] * chain(phi, x, 1, depth))


def perceptron(c: Array, d: Array, offset: float = 0.0, **case: Array) -> Sides:
    """At L_1 = ... = L_B = 0, the output is `(-1)^B L_{B+1} phi_B ... phi_1 x`; `offset` is f(0)."""
    phi, values, x = parts(case)
    f, start = smooth(c, d), at_the_start(phi, values[-1])
    found = feedforward(phi, start, x, lambda z: f(z) + offset)
    return residual(found, (-1.0) ** len(phi) * values[-1] * chain(phi, x, 1, len(phi)))


PERCEPTRON = Claim(
    id="S.perceptron",
    source="[S] sections 3 and 4, figure 6",
    statement="at L_1 = ... = L_B = 0 the output is (-1)^B L_{B+1} phi_B ... phi_1 x, linear in the input",
    latex=r"y = (-1)^B L_{B+1} \phi_B \cdots \phi_1 x",
    verdict="holds",
    assumptions="f(0) = 0; the feed-forward rule (4.5), without f in the last layer",
    remark="Not for the sigmoid: the last layer receives W_{B+1,k} f(0) from each hidden layer. The "
    "recursive rule applies f to it B - 1 times. No hidden layer may be narrower than the rank that is "
    "wanted.",
    checks=(
        Exact(
            perceptron_of_symbols,
            depths,
            {"L_B not 0": functools.partial(perceptron_of_symbols, zero=1)},
            kind="formal",
        ),
        Inequality(
            perceptron,
            networks(2, 3, 1, 2, c=whole(), d=whole()),
            {"f(0) = 1": functools.partial(perceptron, offset=1.0)},
        ),
    ),
)


def derivative_at_the_start(layer: int, weights: tuple[float, ...], x: float, last: float = 1.0) -> Sides:
    """`0 < |dy / dL_layer|` at L_1 = ... = L_B = 0, L_{B+1} = `last` with tanh, one neuron a layer."""
    phi = [jnp.full((1, 1), weight) for weight in weights]
    derivative = output_derivative(
        phi, at_the_start(phi, jnp.full(1, last)), jnp.asarray([x]), jnp.tanh, layer, jnp.ones(1)
    )
    return Sides(jnp.asarray(1e-30), jnp.abs(derivative).max())


REACTIVATION = Claim(
    id="S.reactivation",
    source="[S] section 4, (ii) after eq. (4.3); section 3 on ReLU",
    statement="at L_1 = ... = L_B = 0, L_{B+1} = I, the gradient with respect to L_k is not zero",
    latex=r"\nabla_{L_k} \neq 0",
    verdict="refuted",
    remark="For 2 <= k < B it is 0 whatever the differentiable activation, the data and the loss are; for k "
    "= B it is 0 where f'(0) = 1, as for tanh; for k = 1 where f'(0) = 0, which automatic differentiation "
    "takes for ReLU. What a deep network can recruit from this start is its last hidden layer, and with "
    "ReLU at that.",
    printed=(Counterexample(derivative_at_the_start, {"layer": 2, "weights": (1.0, 1.0, 1.0), "x": 1.0}),),
    controls=(
        Control(derivative_at_the_start, {"layer": 3, "weights": (1.0, 1.0, 1.0), "x": 1.0, "last": 0.5}),
    ),
    see=("spectral.recruitment-order", "spectral.one-layer-at-a-time", "spectral.recruitment-at-a-kink"),
)

CLAIMS = (
    PERCEPTRON,
    REACTIVATION,
)

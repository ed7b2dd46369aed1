r"""The order in which gradients recruit hidden layers from the perceptron start (docs/theory.md).

At L_1 = ... = L_B = 0 the derivative of the output as L_k moves is 0 for 2 <= k < B, and for k = B

    (-1)^(B-1) (I - f'(0) L_{B+1}) phi_B q phi_{B-1} ... phi_1 x.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.core import Claim, Sides
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.drawn_networks import (
    all_of,
    at_the_start,
    networks,
    output_derivative,
    parts,
    residual,
    smooth,
    whole,
)
from jaxarch.lab.claims.checks.exact import Exact
from jaxarch.lab.claims.checks.exact_networks import DEPTHS, chain, preactivations, same, symbols
from jaxarch.lab.claims.checks.free_algebra import linear_in, symbol


def start_derivative(
    phi: Sequence[Any], last: Any, x: Any, slope: Any, layer: int, direction: Any, sign: int = -1
) -> Any:
    """Compute the claimed derivative of the output at the perceptron start as L_layer moves in a direction.

    Args:
      phi: the eigenvectors.
      last: L_{B+1}, a column.
      x: the input, a column.
      slope: f'(0).
      layer: the layer whose eigenvalues move, 1, ..., B.
      direction: the direction of the eigenvalues, a column.
      sign: the sign of the second term for the last hidden layer.
    """
    depth = len(phi)
    signs = (-1) ** (depth - 1)
    if layer == 1:
        moved = chain(phi, direction * x, 1, depth)
        return moved if depth == 1 else signs * slope * (last * moved)
    if layer < depth:
        return 0 * (last * chain(phi, x, 1, depth))
    moved = phi[-1] @ (direction * chain(phi, x, 1, depth - 1))
    return signs * (moved + sign * slope * (last * moved))


def recruitment_of_symbols(depth: int, layer: int, slope: int, sign: int = -1) -> bool:
    """The derivative in symbols, with `f(z) = slope z`: the rest of f is of second order at z = 0."""
    network = symbols(depth)
    phi, last, x = network["eigenvectors"], network["eigenvalues"][-1], symbol("x", 1, 1)
    direction = symbol("q", 1)
    values = [direction if i == layer else 0 * direction for i in range(1, depth + 1)]
    z, _ = preactivations(phi, [*values, last], x, lambda z: slope * z)
    expected = start_derivative(phi, last[:, None], x, slope, layer, direction[:, None], sign)
    return same(linear_in("q")(z[-1]), expected)


def recruitment_cases() -> Iterator[dict[str, int]]:
    """Every layer at every depth; the derivative is of degree B in f'(0), so B + 1 values of it prove it."""
    for depth in DEPTHS:
        for layer in range(1, depth + 1):
            yield from ({"depth": depth, "layer": layer, "slope": slope} for slope in range(depth + 1))


def recruitment(c: Array, d: Array, direction: Array, sign: int = -1, **case: Array) -> Sides:
    """The derivative by automatic differentiation in the library's network, all widths being equal."""
    phi, values, x = parts(case)
    start = at_the_start(phi, values[-1])
    return all_of(
        [
            residual(
                output_derivative(phi, start, x, smooth(c, d), layer, direction),
                start_derivative(phi, values[-1], x, c, layer, direction, sign),
            )
            for layer in range(1, len(phi) + 1)
        ]
    )


def dead_start(d: Array, direction: Array, slope: float = 1.0, **case: Array) -> Sides:
    """With f'(0) = 1 and L_{B+1} = I, no hidden layer's eigenvalues have a derivative."""
    phi, values, x = parts(case)
    start = at_the_start(phi, jnp.ones_like(values[-1]))
    found = [
        output_derivative(phi, start, x, smooth(slope, d), layer, direction)
        for layer in range(2, len(phi) + 1)
    ]
    return all_of([residual(derivative, jnp.zeros_like(derivative)) for derivative in found])


RECRUITMENT_ORDER = Claim(
    id="spectral.recruitment-order",
    source="this library; of [S] section 4, (ii)",
    statement="at L_1 = ... = L_B = 0 and any L_{B+1}, the derivative of the output as L_k moves by q is 0 "
    "for 2 <= k < B; (-1)^(B-1) (I - f'(0) L_{B+1}) phi_B q phi_{B-1} ... phi_1 x for k = B >= 2; "
    "(-1)^(B-1) f'(0) L_{B+1} phi_B ... phi_1 q x for k = 1 < B",
    latex=r"\frac{\partial y}{\partial L_B} q = (-1)^{B-1} (I - f'(0) L_{B+1}) \phi_B \, q \, \phi_{B-1} "
    r"\cdots \phi_1 x",
    verdict="holds",
    assumptions="f(0) = 0, f differentiable at 0",
    remark="So from a perceptron the last hidden layer is recruited first. With tanh and L_{B+1} = I not "
    "even that one is, until L_{B+1} has moved. Where f has a kink at 0, automatic differentiation takes "
    "some number for f'(0), for ReLU 0, and training follows this theorem; the true one-sided derivatives "
    "do not.",
    checks=(
        Exact(
            recruitment_of_symbols,
            recruitment_cases,
            {"a flipped sign": functools.partial(recruitment_of_symbols, sign=1)},
            kind="formal",
        ),
        Inequality(
            recruitment,
            networks(2, 2, 2, 2, 2, c=whole(), d=whole(), direction=whole(2)),
            {"a flipped sign": functools.partial(recruitment, sign=1)},
        ),
        Inequality(
            dead_start,
            networks(2, 2, 2, 2, d=whole(), direction=whole(2)),
            {"f'(0) = 2": functools.partial(dead_start, slope=2.0)},
        ),
    ),
    see=("spectral.one-layer-at-a-time", "spectral.recruitment-at-a-kink"),
)


def next_layer_of_symbols(depth: int, slope: int, following: int = 0) -> bool:
    """At L_1 = ... = L_{k+1} = 0, moving L_k leaves `s_{k+1}` the same to first order; k is `depth`.

    If `following` is 1, L_{k+1} is a symbol.
    """
    phi = [*symbols(depth)["eigenvectors"], symbol("next", 1, 1)]
    direction = symbol("q", 1)
    values = [0 * direction] * (depth - 1) + [direction, following * symbol("L", 1), 0 * direction]
    _, s = preactivations(phi, values, symbol("x", 1, 1), lambda z: slope * z)
    return same(linear_in("q")(s[depth]), 0)


def silent_layers() -> Iterator[dict[str, int]]:
    """Layers 2 to 12; the derivative is of degree k in f'(0), so k + 1 values of it prove it."""
    return ({"depth": depth, "slope": slope} for depth in DEPTHS[1:] for slope in range(1, depth + 2))


def later_layers(c: Array, d: Array, direction: Array, reach: int = 1, **case: Array) -> Sides:
    """The derivative in L_k is 0 while L_1 = ... = L_{k+`reach`} = 0, 2 <= k, k + reach <= B."""
    phi, values, x = parts(case)
    depth, found = len(phi), []
    for layer in range(2, depth + 1 - reach):
        zeros = layer + reach
        at = [*(jnp.zeros_like(layer) for layer in values[:zeros]), *values[zeros:]]
        found.append(output_derivative(phi, at, x, smooth(c, d), layer, direction))
    return all_of([residual(derivative, jnp.zeros_like(derivative)) for derivative in found])


ONE_LAYER_AT_A_TIME = Claim(
    id="spectral.one-layer-at-a-time",
    source="this library; of [S] section 4",
    statement="while L_1 = ... = L_{k+1} = 0, 2 <= k < B, the derivative of the output in L_k is 0, "
    "whatever the later eigenvalues and all eigenvectors are",
    latex=r"L_1 = \cdots = L_{k+1} = 0 \;\Rightarrow\; \frac{\partial y}{\partial L_k} = 0",
    verdict="holds",
    assumptions="f(0) = 0, f differentiable at 0",
    remark="So the gradient of any loss in L_2, ..., L_{B-1} is 0 at the perceptron start and stays 0 while "
    "eigenvectors, L_B and L_{B+1} are trained, until L_B is no longer 0; then that in L_{B-1} is not 0, "
    "and so on backwards: hidden layers can be recruited only in the order B, B - 1, ..., 2. That shallow "
    "networks are found first needs no regularisation. In floating point the gradient is some rounding "
    "errors, of which Adam, blind to scale, makes steps of full size. Proof: L_k moves by q, then z_k by -q "
    "phi_{k-1} s_{k-1} =: r, s_k by f'(0) r, and s_{k+1} by f'(0) phi_k r - phi_k f'(0) r = 0; nothing "
    "behind layer k + 1 sees anything else.",
    checks=(
        Exact(
            next_layer_of_symbols,
            silent_layers,
            {"L_{k+1} not 0": functools.partial(next_layer_of_symbols, following=1)},
            kind="formal",
        ),
        Inequality(
            later_layers,
            networks(2, 2, 2, 2, 2, 2, c=whole(), d=whole(), direction=whole(2)),
            {"L_{k+1} not 0": functools.partial(later_layers, reach=0)},
        ),
    ),
)


def slopes_of_a_linear_fit(
    c: Array, d: Array, direction: Array, residuals: Array, odd: int = 0, **case: Array
) -> Sides:
    """The loss's derivatives in L_1, ..., L_B, with residuals orthogonal to all linear functions of x.

    The examples are x and -x, with the same residual; if `odd` is 1, with opposite residuals.
    """
    phi, values, x = parts(case)
    start = at_the_start(phi, values[-1])
    found = []
    for layer in range(1, len(phi) + 1):
        moved, mirrored = (
            output_derivative(phi, start, at, smooth(c, d), layer, direction) for at in (x, -x)
        )
        found.append(residual(residuals @ moved, -((-1) ** odd) * (residuals @ mirrored)))
    return all_of(found)


LINEAR_FIT = Claim(
    id="spectral.linear-fit-is-stationary",
    source="this library; of [S] sections 4 and 5",
    statement="at L_1 = ... = L_B = 0, the derivatives of the output in all L_k are linear functions of the "
    "input; so where the perceptron's residuals are orthogonal to these, the loss has gradient 0 in L_1, "
    "..., L_B",
    latex=r"E[\nabla_y \ell \; x^T] = 0 \;\Rightarrow\; \nabla_{L_k} E[\ell] = 0, \quad k = 1, \ldots, B",
    verdict="holds",
    assumptions="f(0) = 0, f differentiable at 0",
    remark="So if the eigenvectors and L_{B+1} first learn the best linear fit, gradient descent stops "
    "there: no hidden neuron is recruited, however poor the fit is. What it takes is a kink, another start, "
    "or to have left 0 before. Checked on pairs x, -x of equal residuals.",
    checks=(
        Inequality(
            slopes_of_a_linear_fit,
            networks(2, 2, 2, 2, c=whole(), d=whole(), direction=whole(2), residuals=whole(2)),
            {"opposite residuals": functools.partial(slopes_of_a_linear_fit, odd=1)},
        ),
    ),
    see=("spectral.recruitment-order",),
)

CLAIMS = (
    RECRUITMENT_ORDER,
    ONE_LAYER_AT_A_TIME,
    LINEAR_FIT,
)

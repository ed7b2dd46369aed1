r"""Recruitment from the perceptron start by activations with a kink at 0, such as ReLU (docs/theory.md).

The activation is `f(z) = c max(z, 0) + d min(z, 0)`, and derivatives are one-sided.
"""

from __future__ import annotations

import functools

from jax import Array

from jaxarch.lab.claims.checks.core import Claim, Sides
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.drawn_networks import (
    all_of,
    at_the_start,
    kinked,
    networks,
    parts,
    residual,
    whole,
)
from jaxarch.lab.claims.checks.exact_networks import chain
from jaxarch.spectral import feedforward


def one_sided(c: Array, d: Array, direction: Array, both: bool = True, **case: Array) -> Sides:
    """With two slopes at 0, `dy/dt` at t = 0+ as L_k is t q, for 1 <= k <= B."""
    phi, values, x = parts(case)
    depth, last, f = len(phi), values[-1], kinked(c, d)
    start = at_the_start(phi, last)
    found = []
    # Near 0 the output is a polynomial of degree 2 in t, computed without rounding. Two differences give its
    # derivative at 0 exactly.
    step = 2.0**-16
    for layer in range(1, depth + 1):

        def output(t: float, layer: int = layer) -> Array:
            return feedforward(
                phi, [*start[: layer - 1], t * direction, *start[layer:]], x, f, "substitution"
            )

        whole_step, half_step = output(step) - output(0.0), output(step / 2) - output(0.0)
        derivative = (4 * half_step - whole_step) / step
        moved = (-1.0) ** (layer - 1) * direction * chain(phi, x, 1, layer - 1)
        if layer == 1:
            expected = (-1.0) ** (depth - 1) * last * chain(phi, f(phi[0] @ moved), 2, depth)
        elif layer < depth:
            kink = f(phi[layer - 1] @ moved) - phi[layer - 1] @ f(moved)
            expected = both * (-1.0) ** (depth - layer) * last * chain(phi, kink, layer + 1, depth)
        else:
            expected = phi[-1] @ moved - last * (phi[-1] @ f(moved))
        found.append(residual(derivative, expected))
    return all_of(found)


RECRUITMENT_AT_A_KINK = Claim(
    id="spectral.recruitment-at-a-kink",
    source="this library; of [S] section 3 on ReLU",
    statement="at L_1 = ... = L_B = 0, as L_k becomes t q, t > 0, with r = (-1)^(k-1) q phi_{k-1} ... phi_1 "
    "x the output moves at the rate (-1)^(B-k) L_{B+1} phi_B ... phi_{k+1} (f(phi_k r) - phi_k f(r)) for 2 "
    "<= k < B, and phi_B r - L_{B+1} phi_B f(r) for k = B",
    latex=r"\left. \frac{dy}{dt} \right|_{0+} = (-1)^{B-k} L_{B+1} \phi_B \cdots \phi_{k+1} (f(\phi_k r) - "
    r"\phi_k f(r))",
    verdict="holds",
    assumptions="f(z) = c max(z, 0) + d min(z, 0), ReLU being c = 1, d = 0",
    remark="For c = d it is the theorem on smooth activations. With ReLU the middle layers could be "
    "recruited from the start, but automatic differentiation, which takes 0 for ReLU's slope at 0, reports "
    "0.",
    checks=(
        Inequality(
            one_sided,
            networks(2, 2, 2, 2, 2, c=whole(), d=whole(), direction=whole(2)),
            {"0 for 2 <= k < B": functools.partial(one_sided, both=False)},
        ),
    ),
)

CLAIMS = (RECRUITMENT_AT_A_KINK,)

r"""Projected SGD on convex losses: the valid part of [A] theorem 2.1.

    v <- P(v - alpha_t (g - r)),        alpha_t = c/sqrt t

P is the projection on [0, 1]^d, g the gradient of one example's loss, r an error of mean 0.
"""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import Field, cube, integer, log_uniform, normal, often, uniform
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.projected_sgd import (
    LONGEST,
    ONE_STEP,
    OUTCOMES,
    decaying_rates,
    expected_gap,
    largest_gradient,
    met_losses,
    regret_of_projected_sgd,
    step_of_projected_sgd,
)
from jaxarch.lab.claims.checks.sums import COUNTS, first_terms


def bound_of_the_gap(
    c: ArrayLike, bound: ArrayLike, steps: Array, dimension: ArrayLike, factor: ArrayLike = 1.0
) -> Array:
    """Compute `(d/(2c) + c G^2 (1 + C) (1 - 1/(2 sqrt T)))/sqrt T`; `factor` is `1 + C`."""
    noise = jnp.multiply(c, jnp.square(bound)) * factor
    return (jnp.divide(dimension, c) / 2 + noise * (1 - 1 / (2 * jnp.sqrt(steps)))) / jnp.sqrt(steps)


def one_step(rate: Array, error: Array, spread: float = 1.0, **step: Any) -> Sides:
    """`F(v) - F(u) <= (|v - u|^2 - E |v+ - u|^2)/(2 alpha) + alpha (1 + C) E |g|^2/2`, at any rate alpha."""
    found = step_of_projected_sgd(rate=rate, error=error, **step)
    right = (found.near - found.far) / (2 * rate) + rate * (1 + spread * error**2) * found.square / 2
    return Sides(found.gap, right, found.rounding(rate) * (1 + error**2))


def sum_of_the_steps(c: Array, steps: Array, growth: float = 0.5) -> Sides:
    """The steps' sum, `1/T (sqrt T d/(2c) + sum_t c G^2/(2 sqrt t))`, is at most the bound; d = G = 1."""
    total = steps**growth / (2 * c) + c * first_terms(steps, 0.5) / 2
    right = bound_of_the_gap(c, 1.0, steps, 1.0)
    return Sides(total / steps, right, 100 * EPS * right)


def _convex(
    left: Array, c: Array, bound: Array, steps: Array, dimension: int, factor: ArrayLike, constant: float
) -> Sides:
    right = constant * bound_of_the_gap(c, bound, steps, dimension, factor)
    return Sides(left, right, 256 * EPS * (bound + right))


def convex_regret(
    curvature: Array, slopes: Array, start: Array, scale: Array, steps: Array, constant: float = 1.0
) -> Sides:
    """`1/T sum_t f_t(v_t) - f_t(u) <= (d/(2c) + c G^2 (1 - 1/(2 sqrt T)))/sqrt T`, rates c/sqrt t."""
    slopes = met_losses(slopes, steps)
    bound = largest_gradient(curvature, slopes)
    c = scale * jnp.sqrt(len(start)) / bound
    left = regret_of_projected_sgd(curvature, slopes, start, decaying_rates(c, len(slopes), root=True), steps)
    return _convex(left, c, bound, steps, len(start), 1, constant)


def convex_gap(
    curvature: Array,
    slopes: Array,
    start: Array,
    scale: Array,
    error: Array,
    steps: Array,
    bias: float = 0.0,
) -> Sides:
    """`E 1/T sum_t F(v_t) - F* <= (d/(2c) + c G^2 (1 + C) (1 - 1/(2 sqrt T)))/sqrt T`, C = error^2."""
    bound = largest_gradient(curvature, slopes)
    c = scale * jnp.sqrt(len(start)) / bound
    rates = decaying_rates(c, OUTCOMES.shape[1], root=True)
    left = expected_gap(curvature, slopes, start, error, rates, steps, bias)
    return _convex(left, c, bound, steps, len(start), 1 + error**2, 1.0)


def _convex_cases(dimension: int) -> dict[str, Field]:
    return {
        "curvature": often(0.0, log_uniform(0.1, 10.0, (dimension,))),
        "start": often(1.0, uniform(0.0, 1.0, (dimension,))),
        "scale": often(1.0, log_uniform(1.0, 0.1)),
    }


CONVEX = Claim(
    id="projected-sgd.convex",
    source="what remains of [A] theorem 2.1",
    statement="projected SGD v <- P(v - alpha_t (g - r)), alpha_t = c/sqrt t, has E[F(average of "
    "v^1..v^T) - F*] <= (d/(2c) + c G^2 (1 + C) (1 - 1/(2 sqrt T)))/sqrt T",
    latex=r"E\Big[F\Big(\frac1T \sum_{t=1}^T v^t\Big) - F^*\Big] \le \frac{1}{\sqrt T} "
    r"\left(\frac{d}{2c} + c\, G^2 (1 + C) \Big(1 - \frac{1}{2 \sqrt T}\Big)\right)",
    assumptions="F convex; E(r | v, z) = 0 and |r|^2 <= C |g|^2; or r = 0 (C = 0), where it holds for the "
    "regret of any sequence of convex losses",
    verdict="holds",
    remark="d is the squared diameter of the cube, and sum_{t <= T} 1/sqrt t <= 2 sqrt T - 1. On the left of "
    "the checks is the mean of the losses, which is not smaller. At T = 1 both sides may agree; what the "
    "proof says of one step is an equation for linear losses, away from the faces of the cube.",
    checks=(
        Inequality(
            convex_regret,
            cube(
                **_convex_cases(1),
                slopes=often(1.0, normal(1.0, (LONGEST, 1))),
                steps=often(1.0, integer(1, LONGEST)),
            ),
            {"constant 1% too small": functools.partial(convex_regret, constant=0.99)},
        ),
        Inequality(
            convex_gap,
            cube(
                **_convex_cases(2),
                slopes=often(1.0, normal(1.0, (2, 2))),
                error=often(0.0, log_uniform(0.1, 3.0)),
                steps=integer(1, OUTCOMES.shape[1] + 1),
            ),
            {"errors of mean g": functools.partial(convex_gap, bias=1.0)},
        ),
        Inequality(
            one_step,
            cube(**ONE_STEP, rate=log_uniform(1e-4, 10.0)),
            {
                "C 1% smaller": functools.partial(one_step, spread=0.99),
                "errors of mean g/100": functools.partial(one_step, bias=0.01),
            },
        ),
        Inequality(
            sum_of_the_steps,
            cube(c=log_uniform(1e-3, 1e3), steps=COUNTS),
            {"T^.501 for its root": functools.partial(sum_of_the_steps, growth=0.501)},
        ),
    ),
    see=("A.theorem-2.1", "projected-sgd.strongly-convex"),
)

CLAIMS = (CONVEX,)

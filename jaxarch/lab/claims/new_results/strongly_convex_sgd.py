r"""Projected SGD on strongly convex losses: the valid part of [D] theorem 4.3.

    v <- P(v - eta_t (g - r)),        eta_t = c/t

P is the projection on [0, 1]^d, g the gradient of one example's loss, r an error of mean 0.
"""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import Field, cube, integer, log_uniform, often, uniform
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


def bound_of_the_gap(c: ArrayLike, bound: ArrayLike, steps: Array, factor: ArrayLike = 1.0) -> Array:
    """Compute `c G^2 (1 + C^2)/2 (1 + log T)/T`; `factor` is `1 + C^2`."""
    return jnp.multiply(c, jnp.square(bound)) * factor / 2 * (1 + jnp.log(steps)) / steps


def one_step(
    scale: Array, time: Array, error: Array, least: float = 1.0, spread: float = 1.0, **step: Any
) -> Sides:
    """`F(v) - F(u) <= ((t-1) |v - u|^2 - t E |v+ - u|^2)/(2 c) + c (1 + C^2) E |g|^2/(2 t)`, rate c/t.

    Summed over t, the terms with c in the denominator are not positive.
    """
    c = least * scale / jnp.min(step["curvature"])
    rate = c / time
    found = step_of_projected_sgd(rate=rate, error=error, **step)
    right = ((time - 1) * found.near - time * found.far) / (2 * c)
    right = right + rate * (1 + spread * error**2) * found.square / 2
    return Sides(found.gap, right, found.rounding(rate) * (1 + error**2))


def sum_of_the_steps(steps: Array, power: float = 1.0) -> Sides:
    """The steps' sum, `1/T sum_t c G^2/(2 t)`, is at most the bound; c = G = 1."""
    right = bound_of_the_gap(1.0, 1.0, steps)
    return Sides(first_terms(steps, 1.0) / (2 * steps**power), right, 100 * EPS * right)


def _strongly_convex(
    left: Array, c: Array, bound: Array, steps: Array, factor: ArrayLike, constant: float
) -> Sides:
    right = constant * bound_of_the_gap(c, bound, steps, factor)
    return Sides(left, right, 256 * EPS * (bound + right))


def strongly_convex_regret(
    curvature: Array,
    slopes: Array,
    start: Array,
    scale: Array,
    steps: Array,
    least: float = 1.0,
    constant: float = 1.0,
) -> Sides:
    """`1/T sum_t f_t(v_t) - f_t(u) <= c G^2/2 (1 + log T)/T`, rates c/t, c = scale/m."""
    slopes = curvature[None] * met_losses(slopes, steps)
    c = least * scale / jnp.min(curvature)
    left = regret_of_projected_sgd(
        curvature, slopes, start, decaying_rates(c, len(slopes), root=False), steps
    )
    return _strongly_convex(left, c, largest_gradient(curvature, slopes), steps, 1, constant)


def strongly_convex_gap(
    curvature: Array,
    slopes: Array,
    start: Array,
    scale: Array,
    error: Array,
    steps: Array,
    least: float = 1.0,
) -> Sides:
    """`E 1/T sum_t F(v_t) - F* <= c G^2 (1 + C^2)/2 (1 + log T)/T`, errors of mean 0 and size `C |g|`."""
    slopes = curvature[None] * slopes
    c = least * scale / jnp.min(curvature)
    rates = decaying_rates(c, OUTCOMES.shape[1], root=False)
    left = expected_gap(curvature, slopes, start, error, rates, steps, 0.0)
    return _strongly_convex(left, c, largest_gradient(curvature, slopes), steps, 1 + error**2, 1.0)


def _strongly_convex_cases(dimension: int) -> dict[str, Field]:
    return {
        "curvature": log_uniform(1.0, 100.0, (dimension,)),
        "start": often(1.0, uniform(0.0, 1.0, (dimension,))),
        "scale": often(1.0, log_uniform(1.0, 10.0)),
    }


STRONGLY_CONVEX = Claim(
    id="projected-sgd.strongly-convex",
    source="what remains of [D] theorem 4.3",
    statement="projected SGD v <- P(v - eta_t (g - r)), eta_t = c/t, has E[F(average of v^1..v^T) - F*] <= "
    "c G^2 (1 + C^2)/2 (1 + log T)/T",
    latex=r"E\Big[F\Big(\frac1T \sum_{t=1}^T v^t\Big) - F^*\Big] \le G^2 \frac{c (1 + C^2)}{2} \frac{1 + "
    r"\log T}{T}",
    assumptions="F m-strongly convex, c >= 1/m; E(r | v, z) = 0 and |r| <= C |g|; or r = 0 (C = 0), where "
    "it holds for the regret of any sequence of m-strongly convex losses",
    verdict="holds",
    remark="On the left of the checks is the mean of the losses, which is not smaller. With a_t = |v^t - "
    "v*|^2 the sum over t of (t/(2c) - m/2) a_t - t/(2c) a_(t+1) is not positive exactly because c >= "
    "1/m. At T = 1 both sides may agree; what the proof says of one step is an equation for quadratic "
    "losses of curvature m, away from the faces of the cube.",
    checks=(
        Inequality(
            strongly_convex_regret,
            cube(
                **_strongly_convex_cases(1),
                slopes=often(0.0, uniform(-1.5, 0.5, (LONGEST, 1))),
                steps=often(1.0, integer(1, LONGEST)),
            ),
            {
                "constant 1% too small": functools.partial(strongly_convex_regret, constant=0.99),
                "c below 1/m": functools.partial(strongly_convex_regret, least=0.1),
            },
        ),
        Inequality(
            strongly_convex_gap,
            cube(
                **_strongly_convex_cases(2),
                slopes=often(0.0, uniform(-1.5, 0.5, (2, 2))),
                error=often(0.0, log_uniform(0.1, 3.0)),
                steps=often(1.0, integer(1, OUTCOMES.shape[1] + 1)),
            ),
            {"c below 1/m": functools.partial(strongly_convex_gap, least=0.1)},
        ),
        Inequality(
            one_step,
            cube(
                **{**ONE_STEP, "curvature": often(1.0, log_uniform(1.0, 10.0, (2,)))},
                scale=often(1.0, log_uniform(1.0, 10.0)),
                time=log_uniform(1e4, 1.0),
            ),
            {
                "c 1% below 1/m": functools.partial(one_step, least=0.99),
                "C^2 1% smaller": functools.partial(one_step, spread=0.99),
                "errors of mean g/100": functools.partial(one_step, bias=0.01),
            },
        ),
        Inequality(
            sum_of_the_steps,
            cube(steps=COUNTS),
            {"T^.999 for T": functools.partial(sum_of_the_steps, power=0.999)},
        ),
    ),
    see=("D.theorem-4.3", "projected-sgd.convex"),
)

CLAIMS = (STRONGLY_CONVEX,)

r"""The regret of the two-temperature step with momentum, on any vectors g_t (docs/theory.md).

The step is `m <- mu m + g ds_S(w)`, `w <- w - eta m`; the bound is `mirror.heavy_ball_bound`.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import choice, cube, integer, log_uniform, often, symlog, uniform
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.mirror_cases import (
    COMPARATOR,
    DIMENSION,
    HARD,
    POSITION,
    POSITIONS,
    RATIO,
    inside,
)
from jaxarch.lab.claims.checks.two_temperature import divergence_rounding, slope, step_rounding
from jaxarch.lab.claims.new_results.regret import STEPS, some_steps
from jaxarch.theory import mirror

LONGEST = 200
"""Largest number of steps of the runs on a linear loss."""

SUMMED = 1000
"""Number of terms summed of a series whose ratio is at most 0.95."""


def heavy_ball(
    steps: Array,
    gradients: Array,
    positions: Array,
    comparator: Array,
    at_end: Array,
    hard: Array,
    ratio: Array,
    reach: Array,
    momentum: Array,
    constant: float = 1.0,
    two: float = 2.0,
) -> Sides:
    """`sum_t <g_t, v_t - u> <= (D(u, v_1) - D(u, v'))/eta' + eta' K' sum_t norm(g_t)^2`, for any vectors.

    v' is the mask that the run, momentum included, is heading for at its end; with `at_end`, u is v'. K' is
    the constant of `mirror.heavy_ball_bound`. `reach` belongs to eta' = eta/(1 - mu). `momentum` is mu in
    units of 0.99, or of `e^-delta'` if that is less: the bound needs a smaller mu.
    """
    gradients = some_steps(steps, gradients)
    largest = jnp.max(jnp.abs(gradients))
    soft = ratio * hard
    total_rate = 16 * reach / (largest * hard * soft)
    delta = total_rate * largest * soft**2 / 4
    mu = momentum * jnp.minimum(jnp.exp(-delta), 0.99)
    rate = (1 - mu) * total_rate

    def step(state: tuple[Array, Array], g: Array) -> tuple[tuple[Array, Array], Array]:
        w, m = state
        m = mu * m + g * slope(w, soft)
        return (w - rate * m, m), w

    start = positions / hard
    (w, m), scores = jax.lax.scan(step, (start, jnp.zeros_like(start)), gradients)
    heading = w - total_rate * mu * m
    u = inside(jnp.where(at_end > 0, jax.nn.sigmoid(hard * heading), comparator), ratio)
    near, far = (mirror.bregman_divergence(u, at, hard, soft) for at in (start, heading))
    squares = jnp.sum(gradients**2)

    bound = mirror.heavy_ball_bound(0.0, rate, hard, soft, momentum=mu, gradient_bound=largest, steps=1)
    past = mu * jnp.exp(-delta) / (1 - mu * jnp.exp(delta))
    noise = bound / largest**2 * (1 + two * past) / (1 + 2 * past) * squares
    right = jnp.sum(near - far) / total_rate + constant * noise
    v = jax.nn.sigmoid(hard * scores)
    rounding = jnp.sum(
        divergence_rounding(u, start, near, hard, soft) + divergence_rounding(u, heading, far, hard, soft)
    )
    # The scores and their limit, in which the errors of all steps add up.
    after = jnp.concatenate([scores, w[None], heading[None]])
    last = jnp.sum(jnp.abs(gradients), axis=0, keepdims=True)
    error = step_rounding(after, jnp.concatenate([gradients, last]) / (1 - mu), u, total_rate, hard, soft)
    error = error / (1 - mu)
    rounding = (rounding + 4 * error) / total_rate + 64 * EPS * (jnp.sum(jnp.abs(gradients)) + noise)
    return Sides(jnp.sum(gradients * (v - u[None])), right, rounding)


def heavy_ball_on_a_linear_loss(position: Array, two: float = 2.0, **case: Any) -> Sides:
    """`heavy_ball` for `F(v) = v` in one coordinate and the u that the run is heading for: sharp there."""
    case = {**case, "gradients": jnp.ones((LONGEST, 1)), "positions": position[None]}
    return heavy_ball(comparator=jnp.zeros(1), at_end=jnp.ones(()), two=two, **case)


def constant_is_that_of_the_proof(
    hard: Array, ratio: Array, reach: Array, momentum: Array, overlap: float = 2.0, further: float = 2.0
) -> Sides:
    """K' is `(1+rho^2) (H S/32) e^{2 delta'/(1-mu)} (1 + 2 sum_{k>=1} mu^k e^{(k-2) delta'})`.

    `overlap` is the 2 in the last exponent, `further` the 2 in the exponent before.
    """
    soft = ratio * hard
    total_rate = 16 * reach / (hard * soft)
    delta = total_rate * soft**2 / 4
    mu = momentum * jnp.minimum(jnp.exp(-delta), 0.99)
    k = jnp.arange(1.0, SUMMED + 1)
    past = jnp.sum((mu * jnp.exp(delta)) ** k) * jnp.exp(-overlap * delta)
    written = (1 + ratio**2) * hard * soft / 32 * jnp.exp(further * delta / (1 - mu)) * (1 + 2 * past)
    found = mirror.heavy_ball_bound(
        0.0, (1 - mu) * total_rate, hard, soft, momentum=mu, gradient_bound=1.0, steps=1
    )
    return Sides(jnp.abs(found / total_rate - written), 4096 * EPS * (1 + delta / (1 - mu)) * written)


HEAVY_BALL = Claim(
    id="two-temperature.heavy-ball",
    source="this library; docs/theory.md",
    statement="with m <- mu m + g ds_S(w), w <- w - eta m, eta' = eta/(1-mu), delta' = eta' G S^2/4: sum_t "
    "<g_t, v_t - u> <= D/eta' + eta' (1+rho^2) (H S/32) e^{2 delta'/(1-mu)} (1 + 2 mu e^-delta'/(1 - mu "
    "e^delta')) sum_t |g_t|^2",
    latex=r"\sum_{t=1}^T \langle g_t, v_t - u \rangle \le \frac{D}{\eta'} + \eta' (1 + \rho^2) \frac{H "
    r"S}{32} e^{2 \delta' / (1 - \mu)} \Big(1 + \frac{2 \mu e^{- \delta'}}{1 - \mu e^{\delta'}}\Big) "
    r"\sum_{t=1}^T \|g_t\|^2",
    assumptions="as two-temperature.convergence, 0 <= mu < e^-delta'",
    verdict="holds",
    remark="2 mu is sharp for long runs on constant gradients at a small rate: they reject 1.98 mu. D may be "
    "lessened by that from u to where the run, momentum included, is heading when it ends.",
    checks=(
        Inequality(
            heavy_ball,
            cube(
                steps=integer(1, STEPS),
                gradients=often(1.0, symlog(1.0, 0.01, (STEPS, DIMENSION))),
                positions=POSITIONS,
                comparator=COMPARATOR,
                at_end=choice(1.0, 0.0),
                hard=HARD,
                ratio=RATIO,
                reach=log_uniform(1e-3, 10.0),
                momentum=often(0.0, uniform(0.0, 0.99)),
            ),
            {
                "K' 1% too small": functools.partial(heavy_ball, constant=0.99),
                "K' without 2 mu": functools.partial(heavy_ball, two=0.0),
            },
        ),
        Inequality(
            heavy_ball_on_a_linear_loss,
            cube(
                steps=often(LONGEST, integer(1, LONGEST)),
                position=often(0.0, POSITION),
                hard=HARD,
                ratio=often(1e-3, RATIO),
                reach=log_uniform(1e-5, 1.0),
                momentum=uniform(0.0, 0.99),
            ),
            {"1.98 mu for 2 mu": functools.partial(heavy_ball_on_a_linear_loss, two=1.98)},
            cases=2000,
        ),
        Inequality(
            constant_is_that_of_the_proof,
            cube(
                hard=HARD,
                ratio=RATIO,
                reach=log_uniform(1e-3, 1.0),
                momentum=often(0.0, uniform(0.0, 0.95)),
            ),
            {
                "e^{(k-1) delta'} for e^{(k-2) delta'}": functools.partial(
                    constant_is_that_of_the_proof, overlap=1.0
                ),
                "e^{1.99 delta'/(1-mu)}": functools.partial(constant_is_that_of_the_proof, further=1.99),
            },
        ),
    ),
    see=("two-temperature.convergence",),
)

CLAIMS = (HEAVY_BALL,)

r"""The regret of the exact mirror step, on any vectors g_t and at any rate (docs/theory.md).

    sum_t <g_t, v_t - u> <= (D(u, v_1) - D(u, v_{T+1}))/eta + eta K sum_t norm(g_t)^2,        K = H S/32

The step is `theta(w+) = theta(w) - eta g`, and K is `mirror.regret_constant` for this step.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import cube, integer, log_uniform
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.mirror_cases import HARD, inside
from jaxarch.lab.claims.checks.two_temperature import ROUNDINGS, divergence_rounding, slope
from jaxarch.lab.claims.new_results.regret import RUNS, some_steps
from jaxarch.lab.claims.new_results.vertex_distance import scaled_distance
from jaxarch.theory import mirror

LONGEST = 64
"""Largest number of steps at the prescribed rate."""


def exact_step(
    steps: Array,
    gradients: Array,
    positions: Array,
    comparator: Array,
    hard: Array,
    ratio: Array,
    reach: Array,
    constant: float = 1.0,
) -> Sides:
    """`sum_t <g_t, v_t - u> <= (D(u, v_1) - D(u, v_{T+1}))/eta + eta K sum_t norm(g_t)^2`, `K = H S/32`.

    The step is `theta(w+) = theta(w) - eta g`; `reach` is in units of the largest entry, as for [D]'s step.
    """
    gradients = some_steps(steps, gradients)
    largest, soft = jnp.max(jnp.abs(gradients)), ratio * hard
    rate, start, u = 16 * reach / (largest * hard * soft), positions / hard, inside(comparator, ratio)

    def step(w: Array, g: Array) -> tuple[Array, tuple[Array, Array]]:
        after = w + mirror.mirror_update(w, g * slope(w, soft), soft, rate)
        # An error of eta g is an error of theta, in which D has the derivative v - u. An error of w+ has
        # the derivative of D in w.
        apart = jnp.abs(jax.nn.sigmoid(hard * after) - u)
        in_theta = rate * jnp.abs(g) * (1 + soft * jnp.abs(w))
        in_scores = (jnp.abs(w) + jnp.abs(after - w)) / slope(after, soft)
        return after, (w, ROUNDINGS * EPS * jnp.sum(apart * (in_theta + in_scores)))

    end, (scores, rounding) = jax.lax.scan(step, start, gradients)
    near, far = (mirror.bregman_divergence(u, at, hard, soft) for at in (start, end))
    of_ends = divergence_rounding(u, start, near, hard, soft) + divergence_rounding(u, end, far, hard, soft)
    noise = mirror.regret_constant(rate, hard, soft, gradient_bound=largest, exact=True)
    noise = rate * noise * jnp.sum(gradients**2)
    left = jnp.sum(gradients * (jax.nn.sigmoid(hard * scores) - u[None]))
    rounded = (jnp.sum(rounding) + jnp.sum(of_ends)) / rate
    rounded = rounded + 64 * EPS * (jnp.sum(jnp.abs(gradients)) + noise)
    return Sides(left, jnp.sum(near - far) / rate + constant * noise, rounded)


def at_the_prescribed_rate(
    hard: Array, ratio: Array, steps: Array, constant: float = 1.0, power: float = 0.5
) -> Sides:
    """`F(mean) - F(u) <= (G/2) sqrt(d A/T)` for `F(v) = v` in one coordinate, from 1/2 to 0, at every T."""
    soft = ratio * hard
    distance = mirror.vertex_distance(jnp.zeros_like(hard), hard, soft)
    rate = mirror.prescribed_rate(distance, hard, soft, gradient_bound=1.0, steps=steps)
    earlier = jnp.arange(float(LONGEST))
    scores = mirror.inverse_mirror_map(-earlier * rate, soft)
    gap = jnp.sum(jnp.where(earlier < steps, jax.nn.sigmoid(hard * scores), 0)) / steps
    right = constant * jnp.sqrt(scaled_distance(ratio)) / 2 / steps**power
    return Sides(gap, right, 256 * EPS * (1 + right))


def bound_at_the_prescribed_rate(
    connections: Array, hard: Array, ratio: Array, steps: Array, constant: float = 1.0, power: float = 0.5
) -> Sides:
    """`D/(eta T) + eta K G^2 = (G/2) sqrt(d A/T)`, the bound on the gap at the prescribed rate; G = 1."""
    soft = ratio * hard
    distance = connections * mirror.vertex_distance(jnp.zeros_like(hard), hard, soft)
    rate = mirror.prescribed_rate(distance, hard, soft, gradient_bound=1.0, steps=steps)
    found = mirror.average_iterate_bound(
        distance, rate, hard, soft, gradient_bound=1.0, steps=steps, exact=True
    )
    written = constant * jnp.sqrt(connections * scaled_distance(ratio)) / 2 / steps**power
    # Rounding of rho changes 1 - rho by a relative error that grows as rho approaches 1.
    return Sides(jnp.abs(found - written), EPS * (256 + 16 / (1 - ratio)) * found)


EXACT_STEP = Claim(
    id="two-temperature.exact-step",
    source="this library; docs/theory.md",
    statement="for theta(w+) = theta(w) - eta g, at any rate: sum_t <g_t, v_t - u> <= (D(u, v_1) - D(u, "
    "v_{T+1}))/eta + eta (H S/32) sum_t |g_t|^2; with the prescribed rate from v_1 = 1/2, E F(average) - "
    "F(u) <= (G/2) sqrt(d A/T) for every T",
    latex=r"\sum_{t=1}^T \langle g_t, v_t - u \rangle \le \frac{D(u, v_1) - D(u, v_{T+1})}{\eta} + \eta "
    r"\frac{H S}{32} \sum_{t=1}^T \|g_t\|^2",
    assumptions="u in [0, 1]^d, in (0, 1)^d if S = H; for the second, as two-temperature.average-iterate",
    verdict="holds",
    remark="Small steps from v = 1/2 make both sides of the first agree, to first order in the rate.",
    checks=(
        Inequality(
            exact_step,
            RUNS,
            {
                "K 1% too small": functools.partial(exact_step, constant=0.99),
                "K over 10": functools.partial(exact_step, constant=0.1),
            },
        ),
        Inequality(
            at_the_prescribed_rate,
            cube(hard=HARD, ratio=log_uniform(0.999, 1e-3), steps=integer(1, LONGEST)),
            {
                "20% too small": functools.partial(at_the_prescribed_rate, constant=0.8),
                "T for its root": functools.partial(at_the_prescribed_rate, power=1.0),
            },
        ),
        Inequality(
            bound_at_the_prescribed_rate,
            cube(
                connections=log_uniform(1.0, 1e6),
                hard=HARD,
                ratio=log_uniform(0.999, 1e-3),
                steps=log_uniform(1.0, 1e6),
            ),
            {
                "1% too small": functools.partial(bound_at_the_prescribed_rate, constant=0.99),
                "T^.501 for its root": functools.partial(bound_at_the_prescribed_rate, power=0.501),
            },
        ),
    ),
    see=("two-temperature.convergence", "two-temperature.average-iterate"),
)

CLAIMS = (EXACT_STEP,)

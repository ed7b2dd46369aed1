r"""The expected gap of the average, the last and the weighted iterate on convex losses (docs/theory.md).

    E F(average of v_1..v_T) - F(u) <= D(u, v_1)/(eta T) + eta K G^2

and `2 + log T` times the second term for v_T. u is any mask, D the divergence, K `mirror.regret_constant`.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import choice, cube, integer, log_uniform, often
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.expected_runs import EXAMPLES, RUNS, runs_on_two_examples, weakened
from jaxarch.lab.claims.checks.mirror_cases import DIMENSION, HARD, POSITION, RATIO
from jaxarch.lab.claims.checks.sums import COUNTS, first_terms
from jaxarch.lab.claims.checks.two_temperature import divergence_rounding, step_rounding, trajectory
from jaxarch.lab.claims.new_results.vertex_distance import scaled_distance
from jaxarch.theory import mirror

KAPPA = 2 * (float(np.e) - 2)
"""`psi(1)`."""

LONGEST = 1000
"""Largest number of steps of the runs on a linear loss."""


_REACH = log_uniform(1e-3, 10.0)


def average_iterate(first: float = 1.0, second: float = 1.0, **case: Any) -> Sides:
    """`E F(mean of v_1..v_T) - F(u) <= D/(eta T) + eta K G^2`."""
    runs = runs_on_two_examples(**case)
    weights = (runs.rates > 0)[:, None] / runs.steps
    average = jnp.sum(runs.masks * weights[None], axis=1)

    def bound(distance: ArrayLike) -> Array:
        return mirror.average_iterate_bound(
            distance, runs.rates[0], runs.hard, runs.soft, gradient_bound=runs.largest, steps=runs.steps
        )

    right = weakened(bound, runs.distance, first, second)
    return Sides(runs.gap(average), right, runs.rounding + 64 * EPS * right)


def prescribed_rate(
    share: Array, at_vertex: Array, constant: float = 1.0, power: float = 0.5, **case: Any
) -> Sides:
    """`E F(mean) - F(u) <= (G/2) sqrt(d A/T) (1 + 2 (e - 2) (1 + rho^2))/2` at the prescribed rate.

    Runs start at v_1 = 1/2. `share` is rho in units of the largest ratio with `T >= 16 rho^2 d A`, as long as
    A <= 3/2. With `at_vertex`, u is the best mask of a linear loss.
    """
    steps = case["steps"]
    ratio = share / jnp.sqrt(16 * DIMENSION * 1.5 / steps)
    vertex = (case["slopes"] + case["disagreement"] * case["difference"] / 2 < 0).astype(float)
    case["comparator"] = jnp.where(at_vertex > 0, vertex, case["comparator"])
    none = jnp.zeros_like(ratio)
    runs = runs_on_two_examples(
        **case, positions=jnp.zeros(DIMENSION), ratio=ratio, reach=none, beyond=none, prescribed=True
    )
    average = jnp.sum(runs.masks * (runs.rates > 0)[:, None][None] / steps, axis=1)
    decay = jnp.sqrt(DIMENSION * scaled_distance(ratio)) / steps**power
    right = constant * runs.largest / 2 * decay * (1 + KAPPA * (1 + ratio**2)) / 2
    return Sides(runs.gap(average), right, runs.rounding + 64 * EPS * right)


def bound_at_the_prescribed_rate(
    connections: Array, hard: Array, ratio: Array, longer: Array, least: float = 16.0, kappa: float = KAPPA
) -> Sides:
    """`D/(eta T) + eta K G^2 <= (G/2) sqrt(d A/T) (1 + kappa (1 + rho^2))/2` for `T >= 16 rho^2 d A`, G = 1.

    Both sides are equal at the least T; `longer` is T over the least T.
    """
    soft, room = ratio * hard, connections * scaled_distance(ratio)
    steps = longer * least * ratio**2 * room
    distance = connections * mirror.vertex_distance(jnp.zeros_like(hard), hard, soft)
    rate = mirror.prescribed_rate(distance, hard, soft, gradient_bound=1.0, steps=steps)
    found = mirror.average_iterate_bound(distance, rate, hard, soft, gradient_bound=1.0, steps=steps)
    right = jnp.sqrt(room / steps) / 2 * (1 + kappa * (1 + ratio**2)) / 2
    # Rounding of rho changes 1 - rho by a relative error that grows as rho approaches 1.
    return Sides(found, right, EPS * (256 + 16 / (1 - ratio)) * right)


AVERAGE_ITERATE = Claim(
    id="two-temperature.average-iterate",
    source="this library; docs/theory.md",
    statement="E F(average of v_1..v_T) - F(u) <= D(u, v_1)/(eta T) + eta K G^2; with the prescribed rate "
    "from v_1 = 1/2, at most (G/2) sqrt(d A/T) (1 + 1.44 (1 + rho^2))/2, A = log 2 + I(rho)",
    latex=r"E F(\bar v) - F(u) \le \frac{D(u, v_1)}{\eta T} + \eta K G^2, \quad \text{at most } \frac G2 "
    r"\sqrt{\frac{d A}{T}} \cdot \frac{1 + \kappa (1 + \rho^2)}{2} \text{ at } \eta = \frac{8}{H S G} "
    r"\sqrt{\frac{d A}{T}}",
    assumptions="f(., z) convex, |grad f| <= G, examples drawn independently; for the latter rho < 1, T >= "
    "16 rho^2 d A",
    verdict="holds",
    remark="The first is sharp: a linear loss, small steps at rho -> 0, and u where the run ends. The "
    "second is not: with T = 1 its ratio comes to .70.",
    checks=(
        Inequality(
            average_iterate,
            RUNS,
            {
                "D 2% too small": functools.partial(average_iterate, 0.98, 1.0),
                "K 2% too small": functools.partial(average_iterate, 1.0, 0.98),
            },
        ),
        Inequality(
            prescribed_rate,
            cube(**EXAMPLES, share=log_uniform(1.0, 1e-3), at_vertex=choice(1.0, 0.0)),
            {
                "half of it": functools.partial(prescribed_rate, constant=0.5),
                "T for its root": functools.partial(prescribed_rate, power=1.0),
            },
        ),
        Inequality(
            bound_at_the_prescribed_rate,
            cube(
                connections=log_uniform(1.0, 1e6),
                hard=HARD,
                ratio=log_uniform(0.999, 1e-3),
                longer=often(1.0, log_uniform(1.0, 1e6)),
            ),
            {
                "1.43 for kappa": functools.partial(bound_at_the_prescribed_rate, kappa=1.43),
                "15.9 for 16": functools.partial(bound_at_the_prescribed_rate, least=15.9),
            },
        ),
    ),
    see=("two-temperature.convergence",),
)


def last_iterate(first: float = 1.0, two: float = 2.0, **case: Any) -> Sides:
    """`E F(v_T) - F(u) <= D/(eta T) + eta K G^2 (2 + log T)`."""
    runs = runs_on_two_examples(**case)
    last = jnp.take(runs.masks, runs.steps.astype(int) - 1, axis=1)

    def bound(distance: ArrayLike) -> Array:
        return mirror.last_iterate_bound(
            distance, runs.rates[0], runs.hard, runs.soft, gradient_bound=runs.largest, steps=runs.steps
        )

    log = jnp.log(runs.steps)
    right = weakened(bound, runs.distance, first, (two + log) / (2 + log))
    return Sides(runs.gap(last), right, runs.rounding + 64 * EPS * right)


def sum_of_the_last_iterate(
    steps: Array, share: Array, hard: Array, ratio: Array, reach: Array, first: float = 1.0, two: float = 2.0
) -> Sides:
    """`D/(eta T) + eta K G^2 (1 + sum_(k < T) 1/k)`, the sum in the proof, is at most the bound; G = 1.

    `share` is `D/(eta T)` over `eta K G^2`.
    """
    soft = ratio * hard
    rate = 16 * reach / (hard * soft)
    noise = rate * mirror.regret_constant(rate, hard, soft, gradient_bound=1.0)
    added = noise * (share + 1 + first_terms(steps, 1.0) - 1 / steps)
    log = jnp.log(steps)

    def bound(distance: ArrayLike) -> Array:
        return mirror.last_iterate_bound(distance, rate, hard, soft, gradient_bound=1.0, steps=steps)

    right = weakened(bound, share * noise * rate * steps, first, (two + log) / (2 + log))
    return Sides(added, right, 256 * EPS * right)


LAST_ITERATE = Claim(
    id="two-temperature.last-iterate",
    source="this library, what [D] eq. (10) and [A] eq. (45) speak of; docs/theory.md",
    statement="E F(v_T) - F(u) <= D(u, v_1)/(eta T) + eta K G^2 (2 + log T)",
    latex=r"E F(v_T) - F(u) \le \frac{D(u, v_1)}{\eta T} + \eta K G^2 (2 + \log T)",
    assumptions="as two-temperature.average-iterate",
    verdict="holds",
    remark="What the proof adds up is eta K G^2 (1 + 1 + 1/2 + ... + 1/(T-1)), so 1.58 + log T would do. "
    "Runs of 6 steps do not show that the logarithm is needed.",
    checks=(
        Inequality(
            last_iterate,
            RUNS,
            {
                "log T for 2 + log T": functools.partial(last_iterate, two=0.0),
                "D over 3": functools.partial(last_iterate, first=1 / 3),
            },
        ),
        Inequality(
            sum_of_the_last_iterate,
            cube(steps=COUNTS, share=log_uniform(1e-3, 1e6), hard=HARD, ratio=RATIO, reach=_REACH),
            {
                "1.5 + log T": functools.partial(sum_of_the_last_iterate, two=1.5),
                "D 1% too small": functools.partial(sum_of_the_last_iterate, first=0.99),
            },
        ),
    ),
    see=("two-temperature.convergence",),
)


def anytime(second: float = 1.0, with_one: bool = True, **case: Any) -> Sides:
    """`E F(weighted mean) - F(u) <= (D + K G^2 c^2 (1 + log T))/(2 c (sqrt(T+1) - 1))`, rates `c/sqrt t`."""
    runs = runs_on_two_examples(**case, decay=0.5)
    weights = runs.rates / jnp.sum(runs.rates)
    average = jnp.sum(runs.masks * weights[None, :, None], axis=1)

    def bound(distance: ArrayLike) -> Array:
        return mirror.anytime_bound(
            distance, runs.rates[0], runs.hard, runs.soft, gradient_bound=runs.largest, steps=runs.steps
        )

    right = weakened(bound, runs.distance, 1.0, second)
    if not with_one:
        root = jnp.sqrt(runs.steps + 1)
        right = right * (root - 1) / root
    return Sides(runs.gap(average), right, runs.rounding + 64 * EPS * right)


def anytime_on_a_linear_loss(
    position: Array, hard: Array, ratio: Array, reach: Array, steps: Array, constant: float = 1.0
) -> Sides:
    """`anytime` for `F(v) = v` in one coordinate and u the end of the run: sharp as T grows."""
    soft, start = ratio * hard, position[None] / hard
    c = 16 * reach / (hard * soft)
    t = jnp.arange(1.0, LONGEST + 1)
    rates = jnp.where(t <= steps, c / jnp.sqrt(t), 0)
    scores, gradients = trajectory(lambda v, _: jnp.ones_like(v), start, t, rates, hard, soft)
    v = jax.nn.sigmoid(hard * scores)
    u, total = v[-1], jnp.sum(rates)
    distances = mirror.bregman_divergence(u, start, hard, soft)
    right = constant * mirror.anytime_bound(
        jnp.sum(distances), c, hard, soft, gradient_bound=1.0, steps=steps
    )
    rounding = jnp.sum(divergence_rounding(u, start, distances, hard, soft))
    rounding = rounding + step_rounding(scores, gradients, u, rates[:, None], hard, soft)
    return Sides(jnp.sum(rates[:, None] * (v[:-1] - u[None])) / total, right, rounding / total + 64 * EPS)


def sums_of_the_rates(
    steps: Array,
    share: Array,
    hard: Array,
    ratio: Array,
    reach: Array,
    first: float = 1.0,
    second: float = 1.0,
) -> Sides:
    """`(D + K G^2 sum_t eta_t^2)/sum_t eta_t`, the proof's bound, is at most the theorem's; G = 1.

    `share` is `D/(K c^2)`.
    """
    soft = ratio * hard
    c = 16 * reach / (hard * soft)
    constant = mirror.regret_constant(c, hard, soft, gradient_bound=1.0)
    distance = share * constant * c**2
    found = (distance + constant * c**2 * first_terms(steps, 1.0)) / (c * first_terms(steps, 0.5))

    def bound(distance: ArrayLike) -> Array:
        return mirror.anytime_bound(distance, c, hard, soft, gradient_bound=1.0, steps=steps)

    right = weakened(bound, distance, first, second)
    return Sides(found, right, 1024 * EPS * right)


ANYTIME = Claim(
    id="two-temperature.anytime",
    source="this library; docs/theory.md",
    statement="with eta_t = c/sqrt t, E F(average, weighted by the rates) - F(u) <= (D + K G^2 c^2 (1 + "
    "log T))/(2 c (sqrt(T+1) - 1)) for every T",
    latex=r"E F(\bar v) - F(u) \le \frac{D + K G^2 c^2 (1 + \log T)}{2 c (\sqrt{T + 1} - 1)}, \quad \eta_t "
    r"= \frac{c}{\sqrt t}",
    assumptions="as two-temperature.average-iterate; K at eta = c",
    verdict="holds",
    remark="Small steps on a linear loss come within 1% of it at T = 1,000.",
    checks=(
        Inequality(
            anytime,
            RUNS,
            {
                "without K": functools.partial(anytime, second=0.0),
                "sqrt(T+1) for sqrt(T+1) - 1": functools.partial(anytime, with_one=False),
            },
        ),
        Inequality(
            anytime_on_a_linear_loss,
            cube(
                position=often(0.0, POSITION),
                hard=HARD,
                ratio=RATIO,
                reach=log_uniform(1e-3, 1.0),
                steps=often(LONGEST, integer(1, LONGEST)),
            ),
            {"2% too small": functools.partial(anytime_on_a_linear_loss, constant=0.98)},
            cases=1000,
        ),
        Inequality(
            sums_of_the_rates,
            cube(steps=COUNTS, share=log_uniform(1e-3, 1e6), hard=HARD, ratio=RATIO, reach=_REACH),
            {
                "D 1% too small": functools.partial(sums_of_the_rates, first=0.99),
                "K 1% too small": functools.partial(sums_of_the_rates, second=0.99),
            },
        ),
    ),
    see=("two-temperature.convergence",),
)

CLAIMS = (
    AVERAGE_ITERATE,
    LAST_ITERATE,
    ANYTIME,
)

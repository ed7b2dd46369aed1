r"""A bound on the duality gap of the step on a smooth loss if scores are clipped (docs/theory.md).

    min_t gap(v_t) <= Q/2 + (1 - 2 eps) omega sqrt(d L Q/(2 omega - 1)) + eps G_1

Q = 2 (F(v_1) - inf F)/T, omega = (cosh(b/2) cosh(rho b/2))^2, `|H w| <= b = log((1 - eps)/eps)`.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import cube, integer, log_uniform, normal, often, symlog, uniform
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.mirror_cases import DIMENSION, HARD, RATIO
from jaxarch.lab.claims.checks.two_temperature import mean_slope, slope
from jaxarch.lab.claims.new_results.descent import Smooth
from jaxarch.masks import clip_scores
from jaxarch.theory import mirror

STEPS = 12


class _Step(NamedTuple):
    """The gap before a step, `sum_i |g_i|`, the fall of F, and the rounding error of the fall."""

    gap: Array
    total: Array
    fall: Array
    rounding: Array


def clipped_descent(
    position: Array,
    start: Array,
    hard: Array,
    ratio: Array,
    share: Array,
    steps: Array,
    curvatures: Array,
    offset: Array,
    amplitude: Array,
    wave: Array,
    drop: float = 1.0,
    moving: float = 1.0,
    resting: float = 1.0,
    bent: float = 1.0,
) -> Sides:
    """The least gap in T steps from `H w = start b`, with `F(v_1) - F(v_{T+1})` in place of `F(v_1) - inf F`.

    `drop`, `moving` and `resting` are factors of the bound's three terms, `bent` is a factor of rho in omega.
    """
    soft, eps = ratio * hard, jax.nn.sigmoid(-position)
    x = start * position
    smooth = Smooth(curvatures, jax.nn.sigmoid(x) + offset, amplitude, wave)
    rate = share * mirror.largest_descent_rate(hard, soft, smoothness=smooth.smoothness)

    def step(w: Array, _: None) -> tuple[Array, _Step]:
        v = jax.nn.sigmoid(hard * w)
        g = smooth.gradient(v)
        # The distance to the vertex that -g points to, as a sigmoid: 1 - v would lose digits near v = 1.
        gap = jnp.sum(jnp.abs(g) * jax.nn.sigmoid(jnp.sign(g) * hard * w))
        after = clip_scores(w - rate * g * slope(w, soft), eps, hard)
        factor = mean_slope(w, w - after, hard)
        change, size = smooth.change(v, -factor * (w - after))
        # The move has the rounding errors of the scores and of their limit.
        sizes = 1 / hard + jnp.abs(w) + jnp.abs(after)
        lost = jnp.sum((jnp.abs(g) + smooth.smoothness) * factor * sizes)
        return after, _Step(gap, jnp.sum(jnp.abs(g)), -change, EPS * (64 + 16 * position) * (size + lost))

    _, run = jax.lax.scan(step, x / hard, None, length=STEPS)
    ran = jnp.arange(STEPS) < steps
    falls = 2 * jnp.maximum(jnp.sum(jnp.where(ran, run.fall + run.rounding, 0)), 0) / steps
    rests = eps * jnp.max(jnp.where(ran, run.total, 0))
    bound = mirror.clipped_descent_bound(
        falls * steps / 2,
        eps,
        rate / bent,
        hard,
        bent * soft,
        smoothness=smooth.smoothness,
        connections=DIMENSION,
        largest_sum=rests / eps,
        steps=steps,
    )
    left = jnp.min(jnp.where(ran, run.gap, jnp.inf))
    right = drop * falls / 2 + moving * (bound - falls / 2 - rests) + resting * rests
    return Sides(left, right, EPS * (64 + 16 * position) * (left + bound))


def a_step_from_the_wrong_corner(
    position: Array,
    hard: Array,
    ratio: Array,
    slope_there: Array,
    drop: float = 1.0,
    moving: float = 1.0,
) -> Sides:
    """`clipped_descent` for T = 1, `F = |v - u|^2/2`, u below the corner `v_1 = 1 - eps` by `slope_there`.

    The bound is sharp for small slopes as b grows, and for large slopes, which clip the step at the other
    corner.
    """
    one, every = jnp.ones(()), jnp.ones(DIMENSION)
    return clipped_descent(
        position,
        every,
        hard,
        ratio,
        share=one,
        steps=one,
        curvatures=every,
        offset=-slope_there * every,
        amplitude=0 * one,
        wave=0 * every,
        drop=drop,
        moving=moving,
    )


def the_prescribed_clip_is_the_best(
    position: Array, ratio: Array, steps: Array, largest_sum: Array, share: float = 1.0
) -> Sides:
    """The bound at `mirror.prescribed_clip` is at most the bound at any other b; `share` is a factor of eps.

    L, F(v_1) - inf F and d are 1, since they only scale `largest_sum` and `steps`.
    """
    hard, one = jnp.ones(()), jnp.ones(())
    rate = mirror.largest_descent_rate(hard, ratio * hard, smoothness=one)
    given = {"connections": one, "largest_sum": largest_sum, "steps": steps}
    best = share * mirror.prescribed_clip(one, rate, hard, ratio, **given)

    def bound(eps: Array) -> Array:
        return mirror.clipped_descent_bound(one, eps, rate, hard, ratio, smoothness=one, **given)

    least = bound(jnp.minimum(best, 0.5 - EPS))
    return Sides(least, bound(jax.nn.sigmoid(-position)), 1e-9 * least)


CLIPPED_DESCENT = Claim(
    id="two-temperature.clipped-descent",
    source="this library; docs/theory.md",
    statement="with scores clipped to |H w| <= b = log((1 - eps)/eps) and eta = 16/(L H S), min_t gap(v_t) "
    "<= Q/2 + (1 - 2 eps) omega sqrt(d L Q/(2 omega - 1)) + eps G_1, Q = 2 (F(v_1) - inf F)/T, omega = "
    "(cosh(b/2) cosh(rho b/2))^2",
    latex=r"\min_{t \le T} \mathrm{gap}(v_t) \le \frac Q2 + (1 - 2 \varepsilon) \omega "
    r"\sqrt{\frac{d L Q}{2 \omega - 1}} + \varepsilon G_1, \quad "
    r"\omega = \Big( \cosh \frac b2 \cosh \frac{\rho b}{2} \Big)^2",
    assumptions="grad F L-Lipschitz on [eps, 1 - eps]^d, not convex; v_1 there too, g_t = grad F(v_t), no "
    "momentum; sum_i |g_{t,i}| <= G_1",
    verdict="holds",
    remark="Sharp for a step from the wrong corner, with F(v_2) for inf F, as b grows and as its slope does; "
    "at the right corner the gap is eps G_1. At the best eps the bound falls like T^(-1/(3 + rho)).",
    checks=(
        Inequality(
            clipped_descent,
            cube(
                position=log_uniform(1e-2, 20.0),
                start=often(1.0, uniform(1.0, -1.0, (DIMENSION,))),
                hard=HARD,
                ratio=RATIO,
                share=often(1.0, log_uniform(1.0, 1e-3)),
                steps=integer(1, STEPS),
                curvatures=often(1.0, uniform(1.0, -1.0, (DIMENSION,))),
                offset=symlog(1e3, 1e-6, (DIMENSION,)),
                amplitude=often(0.0, uniform(1.0, -1.0)),
                wave=normal(3.0, (DIMENSION,)),
            ),
            {
                "a third of Q/2": functools.partial(clipped_descent, drop=1 / 3),
                "what moves 30% less": functools.partial(clipped_descent, moving=0.7),
                "eps G_1 1% less": functools.partial(clipped_descent, resting=0.99),
                "omega without the soft slope": functools.partial(clipped_descent, bent=1e-3),
            },
        ),
        Inequality(
            a_step_from_the_wrong_corner,
            cube(
                position=log_uniform(10.0, 1.0),
                hard=HARD,
                ratio=RATIO,
                slope_there=log_uniform(1e-3, 1.0),
            ),
            {"what moves 2% less": functools.partial(a_step_from_the_wrong_corner, moving=0.98)},
        ),
        Inequality(
            a_step_from_the_wrong_corner,
            cube(
                position=log_uniform(3.0, 0.1),
                hard=HARD,
                ratio=RATIO,
                slope_there=log_uniform(1.0, 1e9),
            ),
            {"Q/2 1% less": functools.partial(a_step_from_the_wrong_corner, drop=0.99)},
        ),
        Inequality(
            the_prescribed_clip_is_the_best,
            cube(
                position=log_uniform(0.1, 30.0),
                ratio=RATIO,
                steps=log_uniform(1.0, 1e9),
                largest_sum=log_uniform(0.1, 100.0),
            ),
            {
                "a clip 20% smaller": functools.partial(the_prescribed_clip_is_the_best, share=0.8),
                "a clip 20% larger": functools.partial(the_prescribed_clip_is_the_best, share=1.2),
            },
        ),
    ),
    see=("two-temperature.descent", "certificate.gap"),
)

CLAIMS = (CLIPPED_DESCENT,)

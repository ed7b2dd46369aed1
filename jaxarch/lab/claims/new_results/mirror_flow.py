r"""In small steps the two-temperature gradient is mirror flow (docs/theory.md).

    theta' = -g,        theta(w) = (2/S) (w + sinh(S w)/S)

theta is `mirror.mirror_map`; its potential h on (0, 1) has `h'(v) = theta(logit(v)/H)` and the divergence D.
rho = S/H.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks import proofs
from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import cube, log_uniform, often, symlog
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
from jaxarch.lab.claims.checks.two_temperature import divergence_rounding, slope
from jaxarch.theory import mirror


def mirror_flow(gradient: Array, position: Array, hard: Array, ratio: Array, power: int = 0) -> Sides:
    """`d theta(w)/dt = -g` along `dw/dt = -g ds_S(w)`, over S^power."""
    soft = ratio * hard
    w = position / hard
    velocity = -gradient * slope(w, soft) / soft**power
    _, change = jax.jvp(lambda w: mirror.mirror_map(w, soft), (w,), (velocity,))
    right = EPS * (16 + 4 * ratio * jnp.abs(position)) * jnp.abs(gradient)
    return Sides(jnp.abs(change + gradient), right)


def _potential_slope(position: Array, ratio: Array) -> Array:
    """Compute `H S h'(v)` at `v = sigma(x)`."""
    return ratio * mirror.mirror_map(position, ratio)


def potential(position: Array, hard: Array, ratio: Array, factor: float = 2.0) -> Sides:
    """`H S h'(v) = 2 (l + sinh(rho l)/rho)`, `l = logit(v)`."""
    soft = ratio * hard
    left = hard * soft * mirror.mirror_map(position / hard, soft)
    right = factor * (position + jnp.sinh(ratio * position) / ratio)
    rounding = EPS * (32 + 8 * ratio * jnp.abs(position)) * jnp.abs(right)
    return Sides(jnp.abs(left - right), rounding)


def entropy_limit(
    position: Array, ratio: Array, factor: float = 4.0, constant: float = 1 / 3, inner: float = 1.0
) -> Sides:
    """`|H S h'(v) - 4 logit(v)| <= rho^2 |l|^3 cosh(rho l)/3`: the entropy's slope as rho -> 0.

    Up to `|l| = 10` the entropy is differentiated to get its slope; beyond, v is rounded too much.
    """
    grown = jnp.cosh(ratio * position)
    right = constant * ratio**2 * jnp.abs(position) ** 3 * jnp.cosh(inner * ratio * position)
    of_entropy = jax.grad(lambda v: v * jnp.log(v) + (1 - v) * jnp.log1p(-v))
    v = jax.nn.sigmoid(jnp.clip(position, -10, 10))
    near = jnp.abs(position) < 10
    left = jnp.abs(_potential_slope(position, ratio) - factor * jnp.where(near, of_entropy(v), position))
    rounding = EPS * (32 * jnp.abs(position) * (1 + jnp.abs(ratio * position)) * grown)
    return Sides(left, right, rounding + jnp.where(near, 16 * EPS / (v * (1 - v)), 0))


def barrier_at_equal_temperatures(position: Array, hard: Array, entropies: float = 2.0) -> Sides:
    """At rho = 1, `H^2 h'(v)` is the slope of `-log v - log(1-v) + 2 (v log v + (1-v) log(1-v))`."""

    def written(v: Array) -> Array:
        barrier = -jnp.log(v) - jnp.log1p(-v)
        return barrier + entropies * (v * jnp.log(v) + (1 - v) * jnp.log1p(-v))

    v = jax.nn.sigmoid(position)
    left = jnp.abs(hard**2 * mirror.mirror_map(position / hard, hard) - jax.grad(written)(v))
    # `size` is the derivative of the slope in v, which multiplies a rounding error of v.
    size = 1 / v + 1 / (1 - v)
    return Sides(left, EPS * (32 + 16 * jnp.abs(position)) * size + 4 * EPS * size**2 * v)


def flow_descends(
    gradient: Array, positions: Array, comparator: Array, ratio: Array, share: Array, constant: float = 1.0
) -> Sides:
    """`F(v(t)) - F(u) <= D(u, v(0))/t` along the flow of a linear F, at H = 1: theta moves by -g t.

    t is `share` times the time that the first entry takes to the middle, or from the middle for a unit of
    theta.
    The bound is nearly attained shortly before an entry leaves a wrong corner.
    """
    u = inside(comparator, ratio)
    away = jnp.abs(mirror.mirror_map(positions[0], ratio))
    time = share * jnp.where(away > 0, away, 1) / jnp.maximum(jnp.abs(gradient[0]), 1e-3)
    at = mirror.inverse_mirror_map(mirror.mirror_map(positions, ratio) - time * gradient, ratio)
    v = jax.nn.sigmoid(at)
    distances = mirror.bregman_divergence(u, positions, 1.0, ratio)
    rounding = jnp.sum(divergence_rounding(u, positions, distances, 1.0, ratio)) / time
    rounding = rounding + EPS * jnp.sum(jnp.abs(gradient) * (16 + 16 * jnp.abs(at)))
    return Sides(jnp.sum(gradient * (v - u)), constant * jnp.sum(distances) / time, rounding)


MIRROR_FLOW = Claim(
    id="two-temperature.mirror-flow",
    source="this library; docs/theory.md",
    statement="along w' = -g ds_S(w), theta' = -g: mirror flow, H S h'(v) = 2 (l + sinh(rho l)/rho), l = "
    "logit(v), for the entropy at rho -> 0, a log barrier at rho = 1",
    latex=r"\theta' = -g, \quad \theta(w) = \frac2S \Big(w + \frac{\sinh S w}{S}\Big), \quad H S\, h'(v) = "
    r"2 \Big(\ell + \frac{\sinh \rho \ell}{\rho}\Big), \quad \ell = \log \frac{v}{1 - v}",
    assumptions="for F(v(t)) - F(u) <= D(u, v(0))/t, F convex, here linear",
    verdict="holds",
    remark="In small steps the soft temperature does not blur the gradient: it chooses the geometry in "
    "which the exact one is followed.",
    checks=(
        Inequality(
            mirror_flow,
            cube(gradient=symlog(100.0, 0.01), position=POSITION, hard=HARD, ratio=RATIO),
            {"without the factor S of the slope": functools.partial(mirror_flow, power=1)},
        ),
        Inequality(
            potential,
            cube(position=POSITION, hard=HARD, ratio=RATIO),
            {"1.99 for 2": functools.partial(potential, factor=1.99)},
        ),
        Inequality(
            entropy_limit,
            cube(position=symlog(600.0, 0.1), ratio=log_uniform(1.0, 1e-3)),
            {
                "3.99 for 4": functools.partial(entropy_limit, factor=3.99),
                "constant 1% too small": functools.partial(entropy_limit, constant=0.33),
                "cosh(.9 rho l)": functools.partial(entropy_limit, inner=0.9),
            },
        ),
        Inequality(
            barrier_at_equal_temperatures,
            cube(position=symlog(10.0, 0.01), hard=HARD),
            {
                "1.99 times the entropy": functools.partial(barrier_at_equal_temperatures, entropies=1.99),
            },
        ),
        Inequality(
            flow_descends,
            cube(
                gradient=often(1.0, symlog(10.0, 0.01, (DIMENSION,))),
                positions=often(30.0, POSITIONS),
                comparator=COMPARATOR,
                ratio=RATIO,
                share=often(0.999, log_uniform(0.01, 1000.0)),
            ),
            {"1% too small": functools.partial(flow_descends, constant=0.99)},
        ),
    ),
    see=("two-temperature.strong-convexity", "two-temperature.convergence"),
)


def strong_convexity(position: Array, hard: Array, ratio: Array, constant: float = 16.0) -> Sides:
    """`16/(H S) <= h''(v)`, the derivative of `h'(v) = theta(logit(v)/H)` in v."""
    soft = ratio * hard

    def potential_slope(v: Array) -> Array:
        return mirror.mirror_map((jnp.log(v) - jnp.log1p(-v)) / hard, soft)

    v = jax.nn.sigmoid(position)
    _, curvature = jax.jvp(potential_slope, (v,), (jnp.ones_like(v),))
    rounding = EPS * (32 + 16 / (v * (1 - v))) * curvature
    # Errors of v near 1/2 count in second order only, and elsewhere the bound is loose.
    rounding = jnp.minimum(rounding, 64 * EPS * curvature + 64 * EPS * 16 / (hard * soft))
    return Sides(constant / (hard * soft), curvature, rounding)


STRONG_CONVEXITY = Claim(
    id="two-temperature.strong-convexity",
    source="this library; docs/theory.md",
    statement="h''(v) = 1/(ds_H(w) ds_S(w)) >= 16/(H S)",
    latex=r"h''(v) = \frac{1}{\sigma_H'(w) \sigma_S'(w)} \ge \frac{16}{H S}",
    verdict="holds",
    remark="With equality at v = 1/2 only.",
    checks=(
        Inequality(
            strong_convexity,
            cube(position=often(0.0, POSITION), hard=HARD, ratio=RATIO),
            {"16.1 for 16": functools.partial(strong_convexity, constant=16.1)},
        ),
        proofs.STRONG_CONVEXITY,
    ),
    see=("two-temperature.mirror-flow",),
)

CLAIMS = (
    MIRROR_FLOW,
    STRONG_CONVEXITY,
)

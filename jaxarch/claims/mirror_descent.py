r"""Claims of this library's own on the two-temperature step: its geometry, and how fast it converges.

Proofs are in docs/theory.md. Notation: `v = sigma(H w)`, the step is `w+ = w - eta g ds_S(w)`, rho = S/H in
(0, 1]; theta is `mirror.mirror_map`, h the potential, `h'(v) = theta(logit(v)/H)`, and D its divergence.

Masks only depend on `x = H w` (`positions`), rho (`ratio`) and eta H S (`two-temperature.scaling`). So cases
draw x, `reach = eta G H S/16`, the farthest that a step with `|g| <= G` can move a mask, and H, which should
not matter.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import digamma
from jax.typing import ArrayLike

from jaxarch.claims import proofs
from jaxarch.claims.core import EPS, Claim, Inequality, Sides
from jaxarch.claims.cube import choice, cube, integer, log_uniform, normal, often, symlog, uniform
from jaxarch.claims.own_runs import divergence_rounding, regret, step_rounding, trajectory
from jaxarch.claims.two_temperature import mean_slope, slope
from jaxarch.theory import mirror

LOG_2 = float(np.log(2))
DIMENSION = 2
"""Of the masks whose runs are checked."""

HARD = log_uniform(1.0, 1000.0)
RATIO = often(1.0, log_uniform(1.0, 1e-3))
POSITION = symlog(30.0, 0.01)
POSITIONS = often(0.0, symlog(30.0, 0.01, (DIMENSION,)))
COMPARATOR = often(0.0, uniform(1.0, 0.0, (DIMENSION,)))


def _inside(comparator: Array, ratio: Array) -> Array:
    """At equal temperatures vertices are infinitely far."""
    return jnp.where(ratio < 1, comparator, jnp.clip(comparator, 1e-6, 1 - 1e-6))


# The flow --------------------------------------------------------------------------------------------


def mirror_flow(gradient: Array, position: Array, hard: Array, ratio: Array, power: int = 0) -> Sides:
    """`d theta(w)/dt = -g` along `dw/dt = -g ds_S(w)`, over S^power."""
    soft = ratio * hard
    w = position / hard
    velocity = -gradient * slope(w, soft) / soft**power
    _, change = jax.jvp(lambda w: mirror.mirror_map(w, soft), (w,), (velocity,))
    right = EPS * (16 + 4 * ratio * jnp.abs(position)) * jnp.abs(gradient)
    return Sides(jnp.abs(change + gradient), right)


def _potential_slope(position: Array, ratio: Array) -> Array:
    """`H S h'(v)` at `v = sigma(x)`."""
    return ratio * mirror.mirror_map(position, ratio)


def potential(position: Array, hard: Array, ratio: Array, factor: float = 2.0) -> Sides:
    """`H S h'(v) = 2 (l + sinh(rho l)/rho)`, `l = logit(v)`."""
    soft = ratio * hard
    left = hard * soft * mirror.mirror_map(position / hard, soft)
    right = factor * (position + jnp.sinh(ratio * position) / ratio)
    rounding = EPS * (32 + 8 * ratio * jnp.abs(position)) * jnp.abs(right)
    return Sides(jnp.abs(left - right), rounding)


def entropy_limit(position: Array, ratio: Array, factor: float = 4.0, constant: float = 1 / 3) -> Sides:
    """`|H S h'(v) - 4 logit(v)| <= rho^2 |l|^3 cosh(rho l)/3`: the entropy's slope as rho -> 0."""
    soft_position = ratio * position
    right = constant * ratio**2 * jnp.abs(position) ** 3 * jnp.cosh(soft_position)
    of_entropy = jax.grad(lambda v: v * jnp.log(v) + (1 - v) * jnp.log1p(-v))
    v = jax.nn.sigmoid(position)
    left = jnp.abs(_potential_slope(position, ratio) - factor * of_entropy(v))
    rounding = EPS * (32 * jnp.abs(position) * jnp.cosh(soft_position) + 16 / (v * (1 - v)))
    return Sides(left, right, rounding)


def barrier_at_equal_temperatures(position: Array, hard: Array, entropies: float = 2.0) -> Sides:
    """At rho = 1, `H^2 h'(v)` is the slope of `-log v - log(1-v) + 2 (v log v + (1-v) log(1-v))`."""

    def written(v: Array) -> Array:
        barrier = -jnp.log(v) - jnp.log1p(-v)
        return barrier + entropies * (v * jnp.log(v) + (1 - v) * jnp.log1p(-v))

    v = jax.nn.sigmoid(position)
    left = jnp.abs(hard**2 * mirror.mirror_map(position / hard, hard) - jax.grad(written)(v))
    # The slope's own derivative in v, of which an error of v is a multiple.
    size = 1 / v + 1 / (1 - v)
    return Sides(left, EPS * (32 + 16 * jnp.abs(position)) * size + 4 * EPS * size**2 * v)


def flow_descends(
    gradient: Array, positions: Array, comparator: Array, ratio: Array, time: Array, constant: float = 1.0
) -> Sides:
    """`F(v(t)) - F(u) <= D(u, v(0))/t` along the flow of a linear F, at H = 1: theta moves by -g t."""
    u = _inside(comparator, ratio)
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
            {"10% smaller": functools.partial(potential, factor=1.8)},
        ),
        Inequality(
            entropy_limit,
            cube(position=symlog(10.0, 0.1), ratio=log_uniform(1.0, 1e-3)),
            {
                "half the entropy": functools.partial(entropy_limit, factor=2.0),
                "constant 10% too small": functools.partial(entropy_limit, constant=0.3),
            },
        ),
        Inequality(
            barrier_at_equal_temperatures,
            cube(position=symlog(10.0, 0.01), hard=HARD),
            {
                "the entropy only once": functools.partial(barrier_at_equal_temperatures, entropies=1.0),
            },
        ),
        Inequality(
            flow_descends,
            cube(
                gradient=symlog(10.0, 0.01, (DIMENSION,)),
                positions=POSITIONS,
                comparator=COMPARATOR,
                ratio=RATIO,
                time=log_uniform(1.0, 1000.0),
            ),
            {"two fifths of the distance": functools.partial(flow_descends, constant=0.4)},
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
    # Errors of v near 1/2 only count in second order, and elsewhere the bound is loose.
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
            {"17 for 16": functools.partial(strong_convexity, constant=17.0)},
        ),
        proofs.STRONG_CONVEXITY,
    ),
    see=("two-temperature.mirror-flow",),
)


# Distances to the vertices ---------------------------------------------------------------------------

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_PANELS, _PANEL = 40, 2.0
"""16 nodes on panels of length 2 leave a relative error of `6.4^-32`, for the integrand's poles are at a
distance of pi from the real axis."""


def _integral_to_infinity(start: Array, ratio: Array) -> Array:
    """`int_b^inf (1 + cosh(rho x))/(1 + e^x) dx` for rho < 1 and b >= -40, all of its terms positive.

    By quadrature to `b + 80 >= 40`, from where `1 + e^x` is `e^x`, to a relative error of `e^-40`.
    """
    middles = _PANEL * (np.arange(_PANELS) + 0.5)
    x = start + (middles[:, None] + _PANEL / 2 * _NODES).reshape(-1)
    weights = np.tile(_PANEL / 2 * _WEIGHTS, _PANELS)
    # (1 + cosh(rho x))/(1 + e^x), whose cosh could overflow before e^x divides it.
    grown = (jnp.exp(ratio * x - jax.nn.softplus(x)) + jnp.exp(-ratio * x - jax.nn.softplus(x))) / 2
    end = start + _PANELS * _PANEL
    tail = jnp.exp(-(1 - ratio) * end) / (1 - ratio) + jnp.exp(-(1 + ratio) * end) / (1 + ratio)
    return jnp.sum(weights * (jax.nn.sigmoid(-x) + grown)) + jnp.exp(-end) + tail / 2


def distance_is_its_integral(
    position: Array, hard: Array, gap: Array, factor: float = 2.0, flipped: bool = False
) -> Sides:
    """`D(1, sigma(H w)) = (2/(H S)) int_{H w}^inf (1 + cosh(rho x))/(1 + e^x) dx`, `rho = 1 - gap`."""
    soft = (1 - gap) * hard
    distance = mirror.vertex_distance(position / hard, hard, soft)
    ratio = soft / hard
    integral = factor / (hard * soft) * _integral_to_infinity(-position if flipped else position, ratio)
    # What rounding of rho makes of 1 - rho, and of x of e^x.
    conditioning = 64 + 4 / (1 - ratio) + 8 * (jnp.abs(position) + 80)
    return Sides(jnp.abs(distance - integral), EPS * conditioning * distance)


def from_the_middle(gap: Array, first: float = 1.0) -> Sides:
    """`H S D(1, 1/2)/2 = log 2 + I(rho)`, `I(rho) = (beta(1 - rho) + beta(1 + rho))/2`."""

    def beta(s: Array) -> Array:
        return (digamma((s + 1) / 2) - digamma(s / 2)) / 2

    ratio = 1 - gap
    rest = 1 - ratio
    written = LOG_2 + (first * beta(rest) + beta(1 + ratio)) / 2
    # Some digammas are 0 between their arguments, others as large as 2/(1 - rho).
    return Sides(jnp.abs(_scaled_distance(ratio) - written), EPS * (256 + 64 / rest))


def _scaled_distance(ratio: Array) -> Array:
    """`log 2 + I(rho)`."""
    return ratio / 2 * mirror.vertex_distance(jnp.zeros_like(ratio), jnp.ones_like(ratio), ratio)


def near_ratio_0(ratio: Array, constant: float = 1.0) -> Sides:
    """`I(rho) <= log 2 + 4 (1 - log 2) rho^2` up to rho = 1/2, where both are 1.

    I is a power series in `rho^2` without negative terms, so convex in it: below its chord.
    """
    excess = _scaled_distance(ratio) - 2 * LOG_2
    return Sides(excess, constant * 4 * (1 - LOG_2) * ratio**2, 64 * EPS)


def above_ratio_0(ratio: Array, constant: float = 0.9015) -> Sides:
    """`log 2 + .9015 rho^2 <= I(rho)`, its first two terms, of which the second has `(3/4) zeta(3)`."""
    return Sides(constant * ratio**2, _scaled_distance(ratio) - 2 * LOG_2, 64 * EPS)


def near_ratio_1(gap: Array, constant: float = 0.5) -> Sides:
    """`|I(rho) - 1/(2 (1 - rho)) - 1/2 + log 2| <= (1 - rho)/2`.

    On the left is `(beta(1 + rho) - beta(2 - rho))/2 - 1/2 + log 2`, 0 at rho = 1; its slope in rho is `-1/2`
    at both ends, and between them less in size, beta' being concave.
    """
    ratio = 1 - gap
    left = jnp.abs(_scaled_distance(ratio) - 1 / (2 * gap) - 0.5)
    return Sides(left, constant * gap, 64 * EPS / gap + EPS / gap**2)


def infinite_at_equal_temperatures(vertex_gap: Array, hard: Array, constant: float = 1.0) -> Sides:
    """At rho = 1, `-log e - 2 log 2 <= H^2 D(1 - e, 1/2)`: it exceeds every bound as e -> 0.

    And the distance to the vertex itself is infinite.
    """
    distance = hard**2 * mirror.bregman_divergence(1 - vertex_gap, jnp.zeros_like(hard), hard, hard)
    at_vertex = mirror.vertex_distance(jnp.zeros_like(hard), hard, hard)
    left = -constant * jnp.log(vertex_gap) - 2 * LOG_2
    # 1 - e is rounded.
    return Sides(
        left, jnp.where(jnp.isinf(at_vertex), distance, jnp.nan), 64 * EPS * distance + EPS / vertex_gap
    )


def leaving_a_corner(vertex_gap: Array, hard: Array, ratio: Array, odds: bool = True) -> Sides:
    """`D(1, e) - D(0, e) = (2/(H S)) (l + sinh(rho l)/rho)`, `l = log((1-e)/e)`; or `log(1/e)`."""
    soft = ratio * hard
    ratio = soft / hard
    odds_of_e = jnp.log1p(-vertex_gap) - jnp.log(vertex_gap)
    towards_1, towards_0 = (_integral_to_infinity(at, ratio) for at in (-odds_of_e, odds_of_e))
    length = odds_of_e if odds else -jnp.log(vertex_gap)
    written = length + jnp.sinh(ratio * length) / ratio
    rounding = EPS * (1000 + 4 / (1 - ratio)) * (towards_1 + towards_0)
    scale = 2 / (hard * soft)
    return Sides(scale * jnp.abs(towards_1 - towards_0 - written), scale * rounding)


def steps_out_of_a_corner(
    position: Array, hard: Array, ratio: Array, reach: Array, constant: float = 1.0
) -> Sides:
    """A step with `|g| <= 1` takes theta, below 0, up by at most eta, or above 0."""
    soft, w = ratio * hard, -position / hard
    rate = 16 * reach / (hard * soft)
    step = rate * slope(w, soft)
    # theta(w+) - theta(w) without cancellation.
    rise = 2 / soft * (step + 2 / soft * jnp.cosh(soft * (w + step / 2)) * jnp.sinh(soft * step / 2))
    needed = jnp.minimum(rise, -mirror.mirror_map(w, soft))
    return Sides(needed, constant * rate, EPS * (64 + 8 * ratio * position) * rate)


VERTEX_DISTANCE = Claim(
    id="two-temperature.vertex-distance",
    source="this library; docs/theory.md",
    statement="D(1, sigma(H w)) = (2/(H S)) int_{H w}^inf (1 + cosh(rho x))/(1 + e^x) dx, finite if and "
    "only if rho < 1; from v = 1/2 it is (2/(H S)) (log 2 + I(rho)), I(0) = log 2, I(1/2) = 1",
    latex=r"D(1, \sigma_H(w)) = \frac{2}{H S} \int_{H w}^\infty \frac{1 + \cosh \rho x}{1 + e^x} dx, \quad "
    r"D(1, \tfrac12) = \frac{2}{H S} (\log 2 + I(\rho)), \quad I(\rho) = \frac{\beta(1-\rho) + "
    r"\beta(1+\rho)}{2}",
    verdict="holds",
    remark="An entry at v = e on the wrong side is (2/(H S)) (l + sinh(rho l)/rho), l = log((1-e)/e), "
    "farther from its vertex than from the wrong one, and takes at least that over eta max |g| steps to "
    "the middle: it grows like e^-rho, the exact gradient's like 1/e.",
    checks=(
        Inequality(
            distance_is_its_integral,
            cube(position=symlog(30.0, 0.01), hard=HARD, gap=uniform(0.999, 0.001)),
            {
                "1.8 for 2": functools.partial(distance_is_its_integral, factor=1.8),
                "of the other vertex": functools.partial(distance_is_its_integral, flipped=True),
            },
        ),
        Inequality(
            from_the_middle,
            cube(gap=often(0.5, log_uniform(0.999, 1e-3))),
            {"beta(1 - rho) 10% smaller": functools.partial(from_the_middle, first=0.9)},
        ),
        Inequality(
            near_ratio_0,
            cube(ratio=often(0.5, log_uniform(0.5, 1e-3))),
            {"constant 10% too small": functools.partial(near_ratio_0, constant=0.9)},
        ),
        Inequality(
            above_ratio_0,
            cube(ratio=log_uniform(0.999, 1e-3)),
            {"constant 10% too large": functools.partial(above_ratio_0, constant=0.99)},
        ),
        Inequality(
            near_ratio_1,
            cube(gap=log_uniform(0.999, 1e-3)),
            {"constant 10% too small": functools.partial(near_ratio_1, constant=0.45)},
        ),
        Inequality(
            infinite_at_equal_temperatures,
            cube(vertex_gap=log_uniform(0.5, 1e-15), hard=HARD),
            {"10% more": functools.partial(infinite_at_equal_temperatures, constant=1.1)},
        ),
        Inequality(
            leaving_a_corner,
            cube(vertex_gap=log_uniform(0.5, 1e-15), hard=HARD, ratio=log_uniform(0.999, 1e-3)),
            {"log(1/e) for l": functools.partial(leaving_a_corner, odds=False)},
        ),
        Inequality(
            steps_out_of_a_corner,
            cube(position=log_uniform(0.01, 30.0), hard=HARD, ratio=RATIO, reach=log_uniform(1e-3, 10.0)),
            {"10% fewer": functools.partial(steps_out_of_a_corner, constant=0.9)},
        ),
    ),
)


# Scaling ---------------------------------------------------------------------------------------------

SCALING_STEPS = 24


def scaling(
    directions: Array,
    slopes: Array,
    positions: Array,
    factor: Array,
    hard: Array,
    ratio: Array,
    reach: Array,
    power: int = 2,
    scaled_start: bool = True,
) -> Sides:
    """(H, S, eta, w) and (c H, c S, eta/c^2, w/c) give the same masks, over 24 steps.

    The loss is `sum_k cos(a_k^T v) + b^T v`, of a gradient whose entries are at most G and slopes at most L.
    Rounding errors grow by at most `1 + eta H S (L/16 + G rho/(6 sqrt 3))` a step.
    """
    soft = ratio * hard
    largest = jnp.sum(jnp.abs(directions)) + jnp.max(jnp.abs(slopes))
    rate = 16 * reach / (largest * hard * soft)

    def gradient(v: Array, _: Array) -> Array:
        return slopes - jnp.sin(directions @ v) @ directions

    def masks(w: Array, rate: Array, hard: Array, soft: Array) -> Array:
        at, _ = trajectory(gradient, w, jnp.arange(SCALING_STEPS), jnp.full(SCALING_STEPS, rate), hard, soft)
        return jax.nn.sigmoid(hard * at)

    w = positions / hard
    original = masks(w, rate, hard, soft)
    scaled = masks(w / factor if scaled_start else w, rate / factor**power, factor * hard, factor * soft)
    curvature = jnp.sum(directions**2) / 16 + largest * ratio / (6 * np.sqrt(3))
    growth = 1 + 16 * reach * (curvature / largest)
    travelled = jnp.max(jnp.abs(positions)) + 4 * reach * SCALING_STEPS
    errors = jnp.cumsum(jnp.cumprod(jnp.full(SCALING_STEPS, growth)))[-1]
    return Sides(jnp.max(jnp.abs(original - scaled)), EPS * (64 + 16 * travelled) * errors)


SCALING = Claim(
    id="two-temperature.scaling",
    source="this library; docs/theory.md",
    statement="(H, S, eta, w) -> (c H, c S, eta/c^2, w/c) leaves every mask v_t unchanged",
    latex=r"(H, S, \eta, w_1) \mapsto (c H, c S, \eta / c^2, w_1 / c) \text{ leaves every } v_t \text{ "
    r"unchanged}",
    verdict="holds",
    remark="With the start fixed in v and the rate tuned, only the ratio of the temperatures matters. "
    "Comparisons of temperatures at one rate, such as [D] figure 3 and [A] figure 1, compare rates as well.",
    checks=(
        Inequality(
            scaling,
            cube(
                directions=normal(1.0, (2, 3)),
                slopes=normal(1.0, (3,)),
                positions=symlog(10.0, 0.01, (3,)),
                factor=log_uniform(0.01, 100.0),
                hard=HARD,
                ratio=RATIO,
                reach=log_uniform(0.01, 1.0),
            ),
            {
                "eta/c for eta/c^2": functools.partial(scaling, power=1),
                "w for w/c": functools.partial(scaling, scaled_start=False),
            },
        ),
    ),
)


# Convergence, for any vectors ------------------------------------------------------------------------


def curvature(position: Array, comparator: Array, ratio: Array) -> tuple[Array, Array]:
    """`ds_S(w)^2 Phi''(w)` in units of `H S/16`, and a bound on its rounding; `Phi(w) = D(u, sigma_H(w))`.

    `Phi' = (v - u)/ds_S(w)` is differentiated. H = 1: only x = H w and rho are left in these units.
    """

    def first(x: Array) -> Array:
        return (jax.nn.sigmoid(x) - comparator) / slope(x, ratio)

    _, second = jax.jvp(first, (position,), (jnp.ones_like(position),))
    return 16 / ratio * slope(position, ratio) ** 2 * second, EPS * (64 + 16 * ratio * jnp.abs(position))


def curvature_is_positive(position: Array, comparator: Array, ratio: Array, least: float = 0.0) -> Sides:
    """`0 <= ds_S(w)^2 Phi''(w)`, in units of `H S/16`."""
    value, rounding = curvature(position, comparator, ratio)
    return Sides(jnp.full_like(value, least), value, rounding)


def curvature_bound(
    position: Array, comparator: Array, ratio: Array, constant: float = 1.0, square: float = 1.0
) -> Sides:
    """`ds_S(w)^2 Phi''(w) <= 1 + rho^2`, in units of `H S/16`."""
    value, rounding = curvature(position, comparator, ratio)
    return Sides(value, constant * (1 + square * ratio**2), rounding)


STEPS = 8


def regret_bound(
    gradients: Array,
    positions: Array,
    comparator: Array,
    hard: Array,
    ratio: Array,
    reach: Array,
    constant: float = 1.0,
    with_ratio: bool = True,
    with_psi: bool = True,
) -> Sides:
    """`sum_t <g_t, v_t - u> <= (D(u, v_1) - D(u, v_{T+1}))/eta + eta K sum_t norm(g_t)^2`.

    `reach` is in units of the largest entry. A gradient of 0 moves nothing: T is the number of the others.
    """
    soft = ratio * hard
    largest = jnp.max(jnp.abs(gradients))
    rate = 16 * reach / (largest * hard * soft)
    scores, _ = trajectory(
        lambda _, g: g, positions / hard, gradients, jnp.full(len(gradients), rate), hard, soft
    )
    grown = 1 + ratio**2
    written = mirror.regret_constant(rate, hard, soft, gradient_bound=largest)
    if not with_psi:
        written = grown * hard * soft / 32
    if not with_ratio:
        written = written / grown
    return regret(scores, gradients, _inside(comparator, ratio), hard, soft, rate, constant * written)


def _some_steps(steps: Array, gradients: Array) -> Array:
    """The first of the gradients, and 0 for the others."""
    return jnp.where(jnp.arange(len(gradients))[:, None] < steps, gradients, 0)


def convergence(steps: Array, gradients: Array, **case: Any) -> Sides:
    """`sum_t <g_t, v_t - u> <= (D(u, v_1) - D(u, v_{T+1}))/eta + eta K sum_t norm(g_t)^2`, T = `steps`.

    See `regret_bound`.
    """
    return regret_bound(_some_steps(steps, gradients), **case)


CONVERGENCE = Claim(
    id="two-temperature.convergence",
    source="this library, what [D] theorem 4.3 and [A] theorem 2.1 wanted; docs/theory.md",
    statement="sum_t <g_t, v_t - u> <= (D(u, v_1) - D(u, v_{T+1}))/eta + eta K sum_t |g_t|^2 for any "
    "vectors g_t, with K = (1 + rho^2) psi(2 delta) H S/32, delta = eta G S^2/4, psi(x) = 2 (e^x - 1 - "
    "x)/x^2",
    latex=r"\sum_{t=1}^T \langle g_t, v_t - u \rangle \le \frac{D(u, v_1) - D(u, v_{T+1})}{\eta} + \eta K "
    r"\sum_{t=1}^T \|g_t\|^2, \quad K = (1 + \rho^2) \psi(2 \delta) \frac{H S}{32}",
    assumptions="entries of g_t at most G in size, one rate eta > 0, u in [0, 1]^d, in (0, 1)^d if S = H",
    verdict="holds",
    remark="Of the step as it is run, rounding apart, whatever the g_t. Behind it is 0 <= ds_S(w)^2 "
    "(d^2/dw^2) D(u, sigma_H(w)) <= (1 + rho^2) H S/16, which is sharp as rho -> 0. As eta -> 0 both sides "
    "agree to first order, so their ratio comes as near 1 as one likes.",
    checks=(
        Inequality(
            convergence,
            cube(
                steps=integer(1, STEPS),
                gradients=often(1.0, symlog(1.0, 0.01, (STEPS, DIMENSION))),
                positions=POSITIONS,
                comparator=COMPARATOR,
                hard=HARD,
                ratio=RATIO,
                reach=log_uniform(1e-3, 10.0),
            ),
            {
                "K 10% too small": functools.partial(convergence, constant=0.9),
                "K without 1 + rho^2": functools.partial(convergence, with_ratio=False),
                "K without psi": functools.partial(convergence, with_psi=False),
                "minus eta K": functools.partial(convergence, constant=-1.0),
            },
        ),
        Inequality(
            curvature_is_positive,
            cube(position=POSITION, comparator=often(0.0, uniform(1.0, 0.0)), ratio=RATIO),
            {"at least 1% of H S/16": functools.partial(curvature_is_positive, least=0.01)},
        ),
        Inequality(
            curvature_bound,
            cube(position=often(0.0, POSITION), comparator=often(0.0, uniform(1.0, 0.0)), ratio=RATIO),
            {
                "constant 10% too small": functools.partial(curvature_bound, constant=0.9),
                "without rho^2": functools.partial(curvature_bound, square=0.0),
            },
        ),
        *proofs.RATIO_BOUND,
    ),
    see=(
        "two-temperature.average-iterate",
        "two-temperature.last-iterate",
        "two-temperature.anytime",
        "two-temperature.heavy-ball",
        "D.theorem-4.3",
        "A.theorem-2.1",
    ),
)


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
    with_momentum: bool = True,
) -> Sides:
    """`sum_t <g_t, v_t - u> <= D/eta' + eta' K' sum_t norm(g_t)^2` with momentum, for any vectors.

    K' is that of `mirror.heavy_ball_bound`. `reach` is that of eta' = eta/(1 - mu), `momentum` is mu in units
    of the largest one for which there is a bound, `e^-delta'`, or of .99; where `at_end`, u is where the run,
    momentum included, is heading when it ends.
    """
    gradients = _some_steps(steps, gradients)
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
    end = jax.nn.sigmoid(hard * (w - total_rate * mu * m))
    u = _inside(jnp.where(at_end > 0, end, comparator), ratio)
    distances = mirror.bregman_divergence(u, start, hard, soft)
    distance, squares = jnp.sum(distances), jnp.sum(gradients**2)

    def noise() -> Array:
        if not with_momentum:
            return total_rate * (1 + ratio**2) * hard * soft / 32 * squares
        bound = mirror.heavy_ball_bound(0.0, rate, hard, soft, momentum=mu, gradient_bound=largest, steps=1)
        return bound / largest**2 * squares

    right = distance / total_rate + constant * noise()
    v = jax.nn.sigmoid(hard * scores)
    rounding = jnp.sum(divergence_rounding(u, start, distances, hard, soft))
    after = jnp.concatenate([scores, w[None]])
    error = step_rounding(after, gradients / (1 - mu), u, total_rate, hard, soft) / (1 - mu)
    rounding = (rounding + 4 * error) / total_rate + 64 * EPS * (jnp.sum(jnp.abs(gradients)) + right)
    return Sides(jnp.sum(gradients * (v - u[None])), right, rounding)


HEAVY_BALL = Claim(
    id="two-temperature.heavy-ball",
    source="this library; docs/theory.md",
    statement="with m <- mu m + g ds_S(w), w <- w - eta m, eta' = eta/(1-mu), delta' = eta' G S^2/4: sum_t "
    "<g_t, v_t - u> <= D/eta' + eta' (1+rho^2) (H S/32) e^{2 delta'/(1-mu)} (1 + 2 mu/(1 - mu e^delta')) "
    "sum_t |g_t|^2",
    latex=r"\sum_{t=1}^T \langle g_t, v_t - u \rangle \le \frac{D}{\eta'} + \eta' (1 + \rho^2) \frac{H "
    r"S}{32} e^{2 \delta' / (1 - \mu)} \Big(1 + \frac{2 \mu}{1 - \mu e^{\delta'}}\Big) \sum_{t=1}^T "
    r"\|g_t\|^2",
    assumptions="as two-temperature.convergence, 0 <= mu < e^-delta'",
    verdict="holds",
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
                "K' 10% too small": functools.partial(heavy_ball, constant=0.9),
                "K' as without momentum": functools.partial(heavy_ball, with_momentum=False),
            },
        ),
    ),
    see=("two-temperature.convergence",),
)


# Convergence, in expectation -------------------------------------------------------------------------

EXAMPLES_STEPS = 6
_SEQUENCES = np.asarray(list(itertools.product((0, 1), repeat=EXAMPLES_STEPS)))
"""Everything that two equally likely examples can do in 6 steps: expectations are means over it."""


class _Runs(NamedTuple):
    """Of all sequences of examples; shapes (sequences, steps + 1, d) and (sequences, steps, d)."""

    scores: Array
    gradients: Array
    loss: Callable[[Array], Array]
    """F."""
    comparator: Array
    distances: Array
    """D(u, v_1), entry by entry."""
    largest: Array
    """G."""
    steps: Array
    rates: Array
    """0 after T steps."""
    hard: Array
    soft: Array
    sizes: Array
    """What terms of F add up to."""

    @property
    def distance(self) -> Array:
        """D(u, v_1)."""
        return jnp.sum(self.distances)

    @property
    def masks(self) -> Array:
        """v_1, ..., v_T and, after them, whatever."""
        return jax.nn.sigmoid(self.hard * self.scores[:, :-1])

    def gap(self, masks: Array) -> Array:
        """`E F(v) - F(u)`, for a mask of each sequence."""
        return jnp.mean(jax.vmap(self.loss)(masks)) - self.loss(self.comparator)

    @property
    def rounding(self) -> Array:
        """Of a gap, as left of a bound whose first term is D over the sum of the rates."""
        start = self.scores[0, 0]
        of_start = divergence_rounding(self.comparator, start, self.distances, self.hard, self.soft)

        def of_steps(scores: Array, gradients: Array) -> Array:
            rates = self.rates[:, None]
            return step_rounding(scores, gradients, self.comparator, rates, self.hard, self.soft)

        moved = jnp.mean(jax.vmap(of_steps)(self.scores, self.gradients))
        return (jnp.sum(of_start) + moved) / jnp.sum(self.rates) + 64 * EPS * self.sizes


def _runs(
    slopes: Array,
    difference: Array,
    disagreement: Array,
    bend: Array,
    center: Array,
    positions: Array,
    comparator: Array,
    beyond: Array,
    hard: Array,
    ratio: Array,
    reach: Array,
    steps: Array,
    decay: float = 0.0,
    prescribed: bool = False,
) -> _Runs:
    """Runs on two examples of `f(v, z) = (1 - bend) y + bend sqrt(1 + y^2)`, `y = a_z^T (v - center)`.

    `a_0` is `slopes`, `a_1` differs from it by `disagreement difference`; f is convex, G the larger of their
    norms. `reach` is that of the first of the rates `eta_t = eta / t^decay`, unless they are `prescribed`.
    Where `beyond` is not 0, u lies so many times as far from v_1 as T steps on F itself lead, which is not
    random.
    """
    soft = ratio * hard
    directions = jnp.stack([slopes, slopes + disagreement * difference])
    largest = jnp.max(jnp.linalg.norm(directions, axis=1))
    largest = jnp.maximum(largest, 1e-3)

    def example_loss(v: Array, z: Array) -> Array:
        y = directions[z] @ (v - center)
        return (1 - bend) * y + bend * jnp.sqrt(1 + y**2)

    def loss(v: Array) -> Array:
        return (example_loss(v, jnp.asarray(0)) + example_loss(v, jnp.asarray(1))) / 2

    rate = 16 * reach / (largest * hard * soft)
    if prescribed:
        distance = mirror.start_distance(DIMENSION, hard, soft)
        rate = mirror.prescribed_rate(distance, hard, soft, gradient_bound=largest, steps=steps)
    t = jnp.arange(1.0, EXAMPLES_STEPS + 1)
    rates = jnp.where(t <= steps, rate / t**decay, 0)
    start = positions / hard

    def run(gradient: Callable[[Array, Array], Array], examples: Array) -> tuple[Array, Array]:
        return trajectory(gradient, start, examples, rates, hard, soft)

    to_end, _ = run(lambda v, _: jax.grad(loss)(v), jnp.zeros(EXAMPLES_STEPS, int))
    first, end = jax.nn.sigmoid(hard * to_end[0]), jax.nn.sigmoid(hard * to_end[-1])
    target = jnp.clip(first + beyond * (end - first), 0, 1)
    u = _inside(jnp.where(beyond > 0, target, comparator), ratio)
    scores, gradients = jax.vmap(lambda examples: run(jax.grad(example_loss), examples))(
        jnp.asarray(_SEQUENCES)
    )
    distances = mirror.bregman_divergence(u, start, hard, soft)
    sizes = 1 + jnp.sum(jnp.abs(directions)) * (1 + jnp.max(jnp.abs(center)))
    return _Runs(scores, gradients, loss, u, distances, largest, steps, rates, hard, soft, sizes)


_EXAMPLES = {
    "slopes": normal(1.0, (DIMENSION,)),
    "difference": normal(1.0, (DIMENSION,)),
    "disagreement": often(0.0, uniform(0.0, 3.0)),
    "bend": often(0.0, uniform(0.0, 1.0)),
    "center": uniform(0.5, 1.5, (DIMENSION,)),
    "comparator": COMPARATOR,
    "hard": HARD,
    "steps": integer(1, EXAMPLES_STEPS),
}
_RUNS = cube(
    **_EXAMPLES, beyond=choice(1.0, 2.5, 0.0), positions=POSITIONS, ratio=RATIO, reach=log_uniform(1e-3, 10.0)
)


def _weakened(bound: Callable[[ArrayLike], Array], distance: Array, first: float, second: ArrayLike) -> Array:
    """A bound `a D + b`, of the library, as `first a D + second b`."""
    return bound(first * distance) + (second - 1) * bound(0.0)


def average_iterate(first: float = 1.0, second: float = 1.0, **case: Any) -> Sides:
    """`E F(mean of v_1..v_T) - F(u) <= D/(eta T) + eta K G^2`."""
    runs = _runs(**case)
    weights = (runs.rates > 0)[:, None] / runs.steps
    average = jnp.sum(runs.masks * weights[None], axis=1)

    def bound(distance: ArrayLike) -> Array:
        return mirror.average_iterate_bound(
            distance, runs.rates[0], runs.hard, runs.soft, gradient_bound=runs.largest, steps=runs.steps
        )

    right = _weakened(bound, runs.distance, first, second)
    return Sides(runs.gap(average), right, runs.rounding + 64 * EPS * right)


def prescribed_rate(
    share: Array, at_vertex: Array, constant: float = 1.0, power: float = 0.5, **case: Any
) -> Sides:
    """`E F(mean) - F(u) <= (G/2) sqrt(d A/T) (1 + 2 (e - 2) (1 + rho^2))/2` at the prescribed rate.

    From v_1 = 1/2; `share` is that of rho in the largest ratio with `T >= 16 rho^2 d A`, as long as A <= 3/2.
    Where `at_vertex`, u is the best mask of a linear loss.
    """
    steps = case["steps"]
    ratio = share / jnp.sqrt(16 * DIMENSION * 1.5 / steps)
    vertex = (case["slopes"] + case["disagreement"] * case["difference"] / 2 < 0).astype(float)
    case["comparator"] = jnp.where(at_vertex > 0, vertex, case["comparator"])
    none = jnp.zeros_like(ratio)
    runs = _runs(
        **case, positions=jnp.zeros(DIMENSION), ratio=ratio, reach=none, beyond=none, prescribed=True
    )
    average = jnp.sum(runs.masks * (runs.rates > 0)[:, None][None] / steps, axis=1)
    decay = jnp.sqrt(DIMENSION * _scaled_distance(ratio)) / steps**power
    right = constant * runs.largest / 2 * decay * (1 + 2 * (np.e - 2) * (1 + ratio**2)) / 2
    return Sides(runs.gap(average), right, runs.rounding + 64 * EPS * right)


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
            _RUNS,
            {
                "D 10% too small": functools.partial(average_iterate, 0.9, 1.0),
                "K 10% too small": functools.partial(average_iterate, 1.0, 0.9),
            },
        ),
        Inequality(
            prescribed_rate,
            cube(**_EXAMPLES, share=log_uniform(1.0, 1e-3), at_vertex=choice(1.0, 0.0)),
            {
                "half of it": functools.partial(prescribed_rate, constant=0.5),
                "T for its root": functools.partial(prescribed_rate, power=1.0),
            },
        ),
    ),
    see=("two-temperature.convergence",),
)


def last_iterate(first: float = 1.0, two: float = 2.0, **case: Any) -> Sides:
    """`E F(v_T) - F(u) <= D/(eta T) + eta K G^2 (2 + log T)`."""
    runs = _runs(**case)
    last = jnp.take(runs.masks, runs.steps.astype(int) - 1, axis=1)

    def bound(distance: ArrayLike) -> Array:
        return mirror.last_iterate_bound(
            distance, runs.rates[0], runs.hard, runs.soft, gradient_bound=runs.largest, steps=runs.steps
        )

    log = jnp.log(runs.steps)
    right = _weakened(bound, runs.distance, first, (two + log) / (2 + log))
    return Sides(runs.gap(last), right, runs.rounding + 64 * EPS * right)


LAST_ITERATE = Claim(
    id="two-temperature.last-iterate",
    source="this library, what [D] eq. (10) and [A] eq. (45) speak of; docs/theory.md",
    statement="E F(v_T) - F(u) <= D(u, v_1)/(eta T) + eta K G^2 (2 + log T)",
    latex=r"E F(v_T) - F(u) \le \frac{D(u, v_1)}{\eta T} + \eta K G^2 (2 + \log T)",
    assumptions="as two-temperature.average-iterate",
    verdict="holds",
    remark="The mutations are what runs of 6 steps can reject; that the logarithm is needed they do not "
    "show.",
    checks=(
        Inequality(
            last_iterate,
            _RUNS,
            {
                "log T for 2 + log T": functools.partial(last_iterate, two=0.0),
                "D over 3": functools.partial(last_iterate, first=1 / 3),
            },
        ),
    ),
    see=("two-temperature.convergence",),
)


def anytime(second: float = 1.0, with_one: bool = True, **case: Any) -> Sides:
    """`E F(weighted mean) - F(u) <= (D + K G^2 c^2 (1 + log T))/(2 c (sqrt(T+1) - 1))`, rates `c/sqrt t`."""
    runs = _runs(**case, decay=0.5)
    weights = runs.rates / jnp.sum(runs.rates)
    average = jnp.sum(runs.masks * weights[None, :, None], axis=1)

    def bound(distance: ArrayLike) -> Array:
        return mirror.anytime_bound(
            distance, runs.rates[0], runs.hard, runs.soft, gradient_bound=runs.largest, steps=runs.steps
        )

    right = _weakened(bound, runs.distance, 1.0, second)
    if not with_one:
        root = jnp.sqrt(runs.steps + 1)
        right = right * (root - 1) / root
    return Sides(runs.gap(average), right, runs.rounding + 64 * EPS * right)


ANYTIME = Claim(
    id="two-temperature.anytime",
    source="this library; docs/theory.md",
    statement="with eta_t = c/sqrt t, E F(average, weighted by the rates) - F(u) <= (D + K G^2 c^2 (1 + "
    "log T))/(2 c (sqrt(T+1) - 1)) for every T",
    latex=r"E F(\bar v) - F(u) \le \frac{D + K G^2 c^2 (1 + \log T)}{2 c (\sqrt{T + 1} - 1)}, \quad \eta_t "
    r"= \frac{c}{\sqrt t}",
    assumptions="as two-temperature.average-iterate; K at eta = c",
    verdict="holds",
    checks=(
        Inequality(
            anytime,
            _RUNS,
            {
                "without K": functools.partial(anytime, second=0.0),
                "sqrt(T+1) for sqrt(T+1) - 1": functools.partial(anytime, with_one=False),
            },
        ),
    ),
    see=("two-temperature.convergence",),
)


# Descent ---------------------------------------------------------------------------------------------


class _Smooth(NamedTuple):
    """`F(v) = sum_i c_i/2 (v_i - m_i)^2 + a (1 - cos(b^T (v - m)))`, convex or not."""

    curvatures: Array
    center: Array
    amplitude: Array
    direction: Array

    @property
    def smoothness(self) -> Array:
        """L."""
        return jnp.max(jnp.abs(self.curvatures)) + jnp.abs(self.amplitude) * jnp.sum(self.direction**2)

    @property
    def largest_entry(self) -> Array:
        """A bound on the entries of the gradient, on the cube."""
        farthest = jnp.maximum(jnp.abs(self.center), jnp.abs(1 - self.center))
        return jnp.max(jnp.abs(self.curvatures) * farthest + jnp.abs(self.amplitude * self.direction))

    def gradient(self, v: Array) -> Array:
        """Of shape (d,)."""
        away = v - self.center
        return self.curvatures * away + self.amplitude * jnp.sin(self.direction @ away) * self.direction

    def change(self, v: Array, step: Array) -> tuple[Array, Array]:
        """`F(v + step) - F(v)` without cancellation, and the size of its terms."""
        away, angle = v - self.center + step / 2, self.direction @ step
        quadratic = self.curvatures * away * step
        wave = 2 * self.amplitude * jnp.sin(self.direction @ away) * jnp.sin(angle / 2)
        size = jnp.sum(jnp.abs(self.curvatures * step) * (jnp.abs(away) + jnp.abs(step)))
        far = 1 + jnp.sum(jnp.abs(self.direction))
        size = size + jnp.abs(self.amplitude) * far * jnp.sum(jnp.abs(self.direction * step))
        return jnp.sum(quadratic) + wave, size + EPS * jnp.sum(jnp.abs(self.curvatures * step))


DESCENT_STEPS = 6


def _smooth(
    curvatures: Array, offset: Array, amplitude: Array, direction: Array, positions: Array
) -> _Smooth:
    """A loss whose center is at an offset from the first mask."""
    return _Smooth(curvatures, jax.nn.sigmoid(positions) + offset, amplitude, direction)


class _Move(NamedTuple):
    """What one step does: `F(v+) - F(v)`, `sum_i p_i g_i^2`, and what rounding makes of the former."""

    change: Array
    square: Array
    rounding: Array


def _move(
    loss: _Smooth, gradient: Array, w: Array, rate: Array, hard: Array, soft: Array
) -> tuple[Array, _Move]:
    """w+ and what the step with this gradient does; `p = ds_H(xi) ds_S(w)`."""
    step = rate * gradient * slope(w, soft)
    p = mean_slope(w, step, hard) * slope(w, soft)
    change, size = loss.change(jax.nn.sigmoid(hard * w), -rate * p * gradient)
    arguments = 64 + 16 * (hard + soft) * jnp.max(jnp.abs(w)) + 16 * hard * jnp.max(jnp.abs(step))
    return w - step, _Move(change, jnp.sum(p * gradient**2), EPS * arguments * size)


def descent(
    positions: Array,
    hard: Array,
    ratio: Array,
    share: Array,
    steps: Array,
    largest: float = 16.0,
    **loss: Array,
) -> Sides:
    """`min_{t <= T} sum_i p_i g_i^2 <= 2 (F(v_1) - F(v_{T+1}))/(eta T)` at `eta <= 16/(L H S)`.

    With T = 1 it is `F(v+) <= F(v) - (eta/2) sum_i p_i g_i^2`.
    """
    soft, smooth = ratio * hard, _smooth(positions=positions, **loss)
    rate = share * largest / 16 * mirror.largest_descent_rate(hard, soft, smoothness=smooth.smoothness)

    def step(w: Array, _: None) -> tuple[Array, _Move]:
        return _move(smooth, smooth.gradient(jax.nn.sigmoid(hard * w)), w, rate, hard, soft)

    _, moves = jax.lax.scan(step, positions / hard, None, length=DESCENT_STEPS)
    run = jnp.arange(DESCENT_STEPS) < steps
    scale = 2 / (rate * steps)
    right = -scale * jnp.sum(jnp.where(run, moves.change, 0))
    left = jnp.min(jnp.where(run, moves.square, jnp.inf))
    return Sides(left, right, scale * jnp.sum(jnp.where(run, moves.rounding, 0)) + 64 * EPS * left)


def stochastic_descent(
    positions: Array,
    hard: Array,
    ratio: Array,
    reach: Array,
    steps: Array,
    spread: Array,
    noise: Array,
    second: float = 1.0,
    **loss: Array,
) -> Sides:
    """`min_t E sum_i p_i (dF/dv_i)^2`, `p = ds_H(w) ds_S(w)`, is at most

        (F(v_1) - E F(v_{T+1}))/(eta T) + eta ((H S)^2/32) (L/16 + G_inf/(6 sqrt 3)) V

    The gradients are `grad F + n` and `grad F - n` with equal chance, n `noise` times a direction that is
    `spread` off that of the wave in F; expectations are over all sequences.
    """
    soft, smooth = ratio * hard, _smooth(positions=positions, **loss)
    noises = noise * (smooth.direction + spread)
    rate = 16 * reach / (hard * soft * (smooth.largest_entry + jnp.max(jnp.abs(noises))))

    def run(signs: Array) -> tuple[Array, Array, _Move]:
        def step(w: Array, sign: Array) -> tuple[Array, tuple[Array, Array, _Move]]:
            true = smooth.gradient(jax.nn.sigmoid(hard * w))
            after, move = _move(smooth, true + sign * noises, w, rate, hard, soft)
            square = jnp.sum(slope(w, hard) * slope(w, soft) * true**2)
            return after, (square, jnp.sum((true + sign * noises) ** 2), move)

        return jax.lax.scan(step, positions / hard, signs)[1]

    squares, norms, moves = jax.tree.map(
        lambda leaf: leaf.mean(axis=0), jax.vmap(run)(jnp.asarray(2.0 * _SEQUENCES - 1))
    )
    ran = jnp.arange(EXAMPLES_STEPS) < steps
    left = jnp.min(jnp.where(ran, squares, jnp.inf))

    def bound(gap: ArrayLike) -> Array:
        return mirror.stochastic_descent_bound(
            gap,
            rate,
            hard,
            soft,
            smoothness=smooth.smoothness,
            largest_entry=smooth.largest_entry,
            second_moment=jnp.max(jnp.where(ran, norms, 0)),
            steps=steps,
        )

    right = _weakened(bound, -jnp.sum(jnp.where(ran, moves.change, 0)), 1.0, second)
    rounding = jnp.sum(jnp.where(ran, moves.rounding, 0)) / (rate * steps)
    return Sides(left, right, rounding + 64 * EPS * (left + bound(0.0)))


_LOSSES = {
    "curvatures": often(1.0, uniform(1.0, -1.0, (DIMENSION,))),
    "offset": symlog(1.0, 0.01, (DIMENSION,)),
    "amplitude": often(0.0, uniform(1.0, -1.0)),
    "direction": normal(3.0, (DIMENSION,)),
}

DESCENT = Claim(
    id="two-temperature.descent",
    source="this library; docs/theory.md",
    statement="F(v+) <= F(v) - (eta/2) sum_i p_i g_i^2 for g = grad F(v), eta <= 16/(L H S), p = ds_H(xi) "
    "ds_S(w); with random examples, min_t E sum_i p_i (dF/dv_i)^2 <= (F(v_1) - inf F)/(eta T) + eta ((H "
    "S)^2/32) (L/16 + G_inf/(6 sqrt 3)) V",
    latex=r"F(v^+) \le F(v) - \frac{\eta}{2} \sum_i p_i g_i^2, \quad \min_t E \sum_i p_{t,i} (\partial_i "
    r"F(v_t))^2 \le \frac{F(v_1) - \inf F}{\eta T} + \eta \frac{(H S)^2}{32} \Big(\frac{L}{16} + "
    r"\frac{G_\infty}{6 \sqrt 3}\Big) V",
    assumptions="grad F L-Lipschitz on [0, 1]^d, not convex; for the second, g_t unbiased, E |g_t|^2 <= V, "
    "|dF/dv_i| <= G_inf",
    verdict="holds",
    remark="16 is sharp, for F = (v - 1/2)^2 near 1/2. p goes to 0 at every vertex of the cube: a small "
    "sum may mean saturated scores and no stationary mask.",
    checks=(
        Inequality(
            descent,
            cube(
                **_LOSSES,
                positions=POSITIONS,
                hard=HARD,
                ratio=RATIO,
                share=often(1.0, log_uniform(1.0, 1e-3)),
                steps=integer(1, DESCENT_STEPS),
            ),
            {"17 for 16": functools.partial(descent, largest=17.0)},
        ),
        Inequality(
            stochastic_descent,
            cube(
                curvatures=often(0.0, uniform(0.0, 1.0, (DIMENSION,))),
                offset=often(0.0, symlog(1.0, 0.01, (DIMENSION,))),
                amplitude=often(1.0, uniform(1.0, -1.0)),
                direction=normal(30.0, (DIMENSION,)),
                positions=POSITIONS,
                hard=HARD,
                ratio=RATIO,
                reach=log_uniform(1e-5, 10.0),
                steps=integer(1, EXAMPLES_STEPS),
                spread=often(0.0, normal(1.0, (DIMENSION,))),
                noise=log_uniform(1.0, 1e-3),
            ),
            {
                "without the noise": functools.partial(stochastic_descent, second=0.0),
                "noise 20% too small": functools.partial(stochastic_descent, second=0.8),
            },
        ),
    ),
)

CLAIMS = (
    MIRROR_FLOW,
    STRONG_CONVEXITY,
    VERTEX_DISTANCE,
    SCALING,
    CONVERGENCE,
    AVERAGE_ITERATE,
    LAST_ITERATE,
    ANYTIME,
    HEAVY_BALL,
    DESCENT,
)

r"""The distance of the cube's vertices in the geometry of the step (docs/theory.md).

    D(1, sigma(H w)) = (2/(H S)) int_{H w}^inf (1 + cosh(rho x))/(1 + e^x) dx,        rho = S/H

This is `mirror.vertex_distance`; from v = 1/2 the integral is `log 2 + I(rho)`.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import digamma

from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import cube, log_uniform, often, symlog, uniform
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.mirror_cases import HARD, RATIO
from jaxarch.lab.claims.checks.two_temperature import slope
from jaxarch.theory import mirror

LOG_2 = float(np.log(2))

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)

_PANELS, _PANEL = 40, 2.0
"""Number and length of the panels.

With 16 nodes a panel the relative error is `6.4^-32`, since the integrand's poles are at a distance of pi
from the real axis.
"""


def _integral_to_infinity(start: Array, ratio: Array) -> Array:
    """Compute `int_b^inf (1 + cosh(rho x))/(1 + e^x) dx` for rho < 1 and b >= -40, from positive terms.

    Quadrature reaches to `b + 80 >= 40`. From there `1 + e^x` is `e^x`, up to a relative error of `e^-40`.
    """
    middles = _PANEL * (np.arange(_PANELS) + 0.5)
    x = start + (middles[:, None] + _PANEL / 2 * _NODES).reshape(-1)
    weights = np.tile(_PANEL / 2 * _WEIGHTS, _PANELS)
    # (1 + cosh(rho x))/(1 + e^x) by exponentials of differences: cosh could overflow before e^x divides it.
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
    # Rounding of rho is amplified in 1 - rho, and rounding of x in e^x.
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
    return Sides(jnp.abs(scaled_distance(ratio) - written), EPS * (256 + 64 / rest))


def scaled_distance(ratio: Array) -> Array:
    """Compute `log 2 + I(rho)`."""
    return ratio / 2 * mirror.vertex_distance(jnp.zeros_like(ratio), jnp.ones_like(ratio), ratio)


def near_ratio_0(ratio: Array, constant: float = 1.0) -> Sides:
    """`I(rho) <= log 2 + 4 (1 - log 2) rho^2` up to rho = 1/2, where both are 1.

    I is a power series in `rho^2` without negative terms. So it is convex in `rho^2`, and below its chord.
    """
    excess = scaled_distance(ratio) - 2 * LOG_2
    return Sides(excess, constant * 4 * (1 - LOG_2) * ratio**2, 64 * EPS)


def above_ratio_0(ratio: Array, constant: float = 0.9015) -> Sides:
    """`log 2 + .9015 rho^2 <= I(rho)`, the first two terms of I, the second with `(3/4) zeta(3)`."""
    return Sides(constant * ratio**2, scaled_distance(ratio) - 2 * LOG_2, 64 * EPS)


def near_ratio_1(gap: Array, constant: float = 0.5) -> Sides:
    """`|I(rho) - 1/(2 (1 - rho)) - 1/2 + log 2| <= (1 - rho)/2`.

    The left side is the size of `(beta(1 + rho) - beta(2 - rho))/2 - 1/2 + log 2`. It is 0 at rho = 1. Its
    slope in rho is `-1/2` at both ends, and smaller in size between them, since beta' is concave.
    """
    ratio = 1 - gap
    left = jnp.abs(scaled_distance(ratio) - 1 / (2 * gap) - 0.5)
    return Sides(left, constant * gap, 64 * EPS / gap + EPS / gap**2)


def infinite_at_equal_temperatures(vertex_gap: Array, hard: Array, twice: float = 2.0) -> Sides:
    """At rho = 1, `H^2 D(1 - e, 1/2) = (1 - 2 e) l`, `l = log((1-e)/e)`: it exceeds every bound as e -> 0.

    The distance to the vertex itself is infinite.
    """
    mask = 1 - vertex_gap
    # 1 - e is rounded, so e is taken from the rounded mask.
    vertex_gap = 1 - mask
    distance = hard**2 * mirror.bregman_divergence(mask, jnp.zeros_like(hard), hard, hard)
    at_vertex = mirror.vertex_distance(jnp.zeros_like(hard), hard, hard)
    written = (1 - twice * vertex_gap) * (jnp.log(mask) - jnp.log(vertex_gap))
    left = jnp.where(jnp.isinf(at_vertex), jnp.abs(distance - written), jnp.nan)
    return Sides(left, 256 * EPS * (1 - jnp.log(vertex_gap)) * distance)


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
    """A step with `|g| <= 1` from theta below 0 raises theta by at most eta, or to above 0."""
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
                "1.99 for 2": functools.partial(distance_is_its_integral, factor=1.99),
                "of the other vertex": functools.partial(distance_is_its_integral, flipped=True),
            },
        ),
        Inequality(
            from_the_middle,
            cube(gap=often(0.5, log_uniform(0.999, 1e-3))),
            {"beta(1 - rho) 1% smaller": functools.partial(from_the_middle, first=0.99)},
        ),
        Inequality(
            near_ratio_0,
            cube(ratio=often(0.5, log_uniform(0.5, 1e-3))),
            {"constant 1% too small": functools.partial(near_ratio_0, constant=0.99)},
        ),
        Inequality(
            above_ratio_0,
            cube(ratio=log_uniform(0.999, 1e-3)),
            {".902 for .9015": functools.partial(above_ratio_0, constant=0.902)},
        ),
        Inequality(
            near_ratio_1,
            cube(gap=log_uniform(0.999, 1e-3)),
            {"constant 2% too small": functools.partial(near_ratio_1, constant=0.49)},
        ),
        Inequality(
            infinite_at_equal_temperatures,
            cube(vertex_gap=log_uniform(0.5, 1e-15), hard=HARD),
            {"1.99 e for 2 e": functools.partial(infinite_at_equal_temperatures, twice=1.99)},
        ),
        Inequality(
            leaving_a_corner,
            cube(vertex_gap=log_uniform(0.5, 1e-15), hard=HARD, ratio=log_uniform(0.999, 1e-3)),
            {"log(1/e) for l": functools.partial(leaving_a_corner, odds=False)},
        ),
        Inequality(
            steps_out_of_a_corner,
            cube(position=log_uniform(0.01, 30.0), hard=HARD, ratio=RATIO, reach=log_uniform(1e-3, 10.0)),
            {"1% fewer": functools.partial(steps_out_of_a_corner, constant=0.99)},
        ),
    ),
)

CLAIMS = (VERTEX_DISTANCE,)

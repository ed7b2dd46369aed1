r"""Lines and planes on which linear bounds of programs rest (docs/theory.md; `jaxarch.theory.relaxation`).

f(x) >= line through (a, f(c) - q (c - a)) and (b, f(c) + p (b - c)),    p <= f' <= q on [a, b]
|x y - m_x y - m_y x + m_x m_y| <= r_x r_y,    |x - m_x| <= r_x, |y - m_y| <= r_y
f(theta o m) - f(theta) <= sup of the derivative of f(theta o (1 - t (1 - m))) over t in [0, 1]
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import choice, cube, log_uniform, normal, often, uniform
from jaxarch.lab.claims.checks.drawn import Inequality


def line_below_a_piece(
    low: Array,
    width: Array,
    centre: Array,
    place: Array,
    bend_at: Array,
    slope: Array,
    curvature: Array,
    kink: Array,
    spread: float = 1.0,
    swapped: bool = False,
) -> Sides:
    """The line below `f(x) = slope x + curvature x^2 / 2 + kink |x - t|` on a piece.

    `spread` is a factor of the slopes' distances from their middle. `swapped` takes q on the right and p on
    the left of c, which is a line above.
    """
    high = low + width
    c, x, t = low + centre * width, low + place * width, low + bend_at * width

    def f(x: Array) -> Array:
        return slope * x + curvature * x**2 / 2 + kink * jnp.abs(x - t)

    ends = slope + curvature * low, slope + curvature * high
    middle, radius = (ends[0] + ends[1]) / 2, jnp.abs(ends[1] - ends[0]) / 2 + jnp.abs(kink)
    p, q = middle - spread * radius, middle + spread * radius
    if swapped:
        p, q = q, p
    left, right = f(c) - q * (c - low), f(c) + p * (high - c)
    line = left + (right - left) * place
    largest = jnp.maximum(jnp.abs(low), jnp.abs(high))
    size = (jnp.abs(slope) + jnp.abs(kink)) * largest + jnp.abs(curvature) * largest**2
    return Sides(line, f(x), 64 * EPS * size)


def plane_of_a_product(
    middles: Array, radii: Array, x: Array, y: Array, factor: float = 1.0, at_zero: bool = False
) -> Sides:
    """The distance of a product from the plane through the middles, and `factor r_x r_y`."""
    (m_x, m_y), (r_x, r_y) = middles, radii
    x, y = m_x + r_x * x, m_y + r_y * y
    plane = m_x * y + m_y * x - (0 if at_zero else m_x * m_y)
    size = (jnp.abs(m_x) + r_x) * (jnp.abs(m_y) + r_y)
    return Sides(jnp.abs(x * y - plane), factor * r_x * r_y, 16 * EPS * size)


def change_by_removal(
    values: Array, parts: Array, weights: Array, factor: float = 1.0, at_the_start: bool = False
) -> Sides:
    """The change of `sum_i w_i relu(a_i - t b_i)` from t = 0 to 1, and `factor` times its largest slope.

    Neurons read a unit through the weights that make b, and a without them is a - b. `at_the_start` takes
    the slope at t = 0, which is what scores of the first order take.
    """

    def outputs(t: float) -> Array:
        return (weights * jnp.maximum(values - t * parts, 0)).sum()

    slopes = -weights * parts
    on, off = (values > 0) & (values > parts), (values <= 0) & (values <= parts)
    largest = jnp.where(on, slopes, jnp.where(off, 0, jnp.maximum(slopes, 0)))
    if at_the_start:
        largest = jnp.where(values > 0, slopes, 0)
    size = (jnp.abs(weights) * (jnp.abs(values) + jnp.abs(parts))).sum()
    return Sides(outputs(1.0) - outputs(0.0), factor * largest.sum(), 32 * EPS * size)


PIECE = Claim(
    id="relaxation.piece",
    source="this library",
    statement="if f is continuous on [a, b] with slopes between p and q, then on all of [a, b] it lies above "
    "the line through (a, f(c) - q (c - a)) and (b, f(c) + p (b - c)), for every c in [a, b]",
    latex=r"f(x) \ge \frac{b - x}{b - a} (f(c) - q (c - a)) + \frac{x - a}{b - a} (f(c) + p (b - c))",
    verdict="holds",
    assumptions="f differentiable but for finitely many kinks",
    remark="Sharp: |x - c| turned upside down is met at both ends.",
    checks=(
        Inequality(
            line_below_a_piece,
            cube(
                low=normal(2.0),
                width=log_uniform(1.0, 1e-4),
                centre=often(0.5, uniform(0, 1)),
                place=often(1.0, uniform(0, 1)),
                bend_at=often(0.5, uniform(0, 1)),
                slope=normal(2.0),
                curvature=often(0.0, normal(2.0)),
                kink=choice(0.0, -1.0, 1.0),
            ),
            {
                "slopes 3% too close": functools.partial(line_below_a_piece, spread=0.97),
                "the slopes swapped": functools.partial(line_below_a_piece, swapped=True),
            },
        ),
    ),
)

PRODUCT = Claim(
    id="relaxation.product",
    source="this library; beside McCormick's planes",
    statement="a product x y is within r_x r_y of m_x y + m_y x - m_x m_y where x is within r_x of m_x and y "
    "within r_y of m_y",
    latex=r"\lvert x y - m_x y - m_y x + m_x m_y \rvert \le r_x r_y",
    verdict="holds",
    remark="Sharp at the corners. The planes at this distance are the means of McCormick's two planes below "
    "the product, and of his two above it.",
    checks=(
        Inequality(
            plane_of_a_product,
            cube(
                middles=normal(2.0, (2,)),
                radii=log_uniform(1.0, 1e-3, (2,)),
                x=often(1.0, uniform(-1, 1)),
                y=often(1.0, uniform(-1, 1)),
            ),
            {
                "3% too small": functools.partial(plane_of_a_product, factor=0.97),
                "the plane through 0": functools.partial(plane_of_a_product, at_zero=True),
            },
        ),
    ),
)

REMOVAL = Claim(
    id="relaxation.removal",
    source="this library",
    statement="removing weights changes no output by more than the largest derivative by t of the outputs of "
    "the network that has 1 - t of these weights, over t in [0, 1]",
    latex=r"f(\theta \odot m) - f(\theta) \le \sup_{t \in [0, 1]} \frac{d}{dt} "
    r"f\big(\theta \odot (1 - t (1 - m))\big)",
    verdict="holds",
    assumptions="f Lipschitz along the way, differentiable but for finitely many kinks",
    remark="The derivative at the whole network alone, by which saliency scores rank weights, is no bound.",
    checks=(
        Inequality(
            change_by_removal,
            cube(
                values=often(0.5, normal(1.0, (3,))),
                parts=normal(1.0, (3,)),
                weights=normal(1.0, (3,)),
            ),
            {
                "3% too small": functools.partial(change_by_removal, factor=0.97),
                "the derivative of the whole network": functools.partial(
                    change_by_removal, at_the_start=True
                ),
            },
        ),
    ),
)

CLAIMS = (PIECE, PRODUCT, REMOVAL)

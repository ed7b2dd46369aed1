r"""The binarization `B_M(w) = sigma(M w)`: its slope, limit and inverse.

[D] section 3, footnote 3, appendix A; [A] section 2.3, appendix B.1. M is `sharpness`.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logit
from jax.typing import ArrayLike

from jaxarch.lab.claims.checks import proofs
from jaxarch.lab.claims.checks.core import EPS, Claim, Control, Counterexample, Sides
from jaxarch.lab.claims.checks.cube import cube, log_uniform, often, symlog, uniform
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.two_temperature import slope

TINY = 2.0**-1022
"""The smallest normal float64; smaller numbers are rounded to 0."""

_ONE_SCORE = cube(scores=symlog(10.0, 1e-4), sharpness=log_uniform(1.0, 100.0))


def slope_is_at_most_a_quarter(scores: Array, sharpness: Array, constant: float = 0.25) -> Sides:
    """`ds_M(w) <= M/4`."""
    right = constant * sharpness
    return Sides(slope(scores, sharpness), right, 8 * EPS * right)


def slope_at_zero(sharpness: Array, constant: float = 0.25) -> Sides:
    """`M/4 <= ds_M(0)`."""
    left = constant * sharpness
    return Sides(left, slope(0.0, sharpness), 8 * EPS * left)


SLOPE = Claim(
    id="binarize.slope",
    source="[D] appendix A; [A] appendix B.1",
    statement="the slope of the binarization is at most M/4, which it is at w = 0",
    latex=r"\max_w \sigma_M'(w) = \sigma_M'(0) = M/4",
    verdict="holds",
    checks=(
        Inequality(
            slope_is_at_most_a_quarter,
            _ONE_SCORE,
            {"constant 1% too small": functools.partial(slope_is_at_most_a_quarter, constant=0.2475)},
        ),
        proofs.SLOPE,
        Inequality(
            slope_at_zero,
            cube(sharpness=log_uniform(1.0, 100.0)),
            {"constant 1% too large": functools.partial(slope_at_zero, constant=0.2525)},
        ),
    ),
)


def derivative(scores: ArrayLike, sharpness: ArrayLike, factor: bool = True) -> Sides:
    """`B_M' = M B_M (1 - B_M)`, against a central difference over `h = 1/(1000 M)`, in units of M.

    The difference is off by at most `h^2 max |B_M'''|/6 = h^2 M^3/48`, and by rounding.
    """
    width = 1e-3
    position = jnp.multiply(sharpness, scores)
    difference = jax.nn.sigmoid(position + width) - jax.nn.sigmoid(position - width)
    printed = slope(scores, sharpness) / (sharpness if factor else sharpness**2)
    right = width**2 / 48 + EPS * (8 + 2 * jnp.abs(position)) / width
    return Sides(jnp.abs(difference / (2 * width) - printed), right)


DERIVATIVE = Claim(
    id="binarize.derivative",
    source="[D] eq. (4), section 3; [A] eq. (7), (15)",
    statement="the derivative of B_M(w) = sigma(M w) is M B_M(w) (1 - B_M(w))",
    latex=r"B_M'(w) = M\, B_M(w) (1 - B_M(w))",
    verdict="holds as corrected",
    remark="[D] sections 3 and 4 and [A] (15) leave out the factor M, appendix A of [D] and [A] (7), (25) "
    "have it. In the step it multiplies the learning rate by M_soft.",
    checks=(
        Inequality(
            derivative,
            _ONE_SCORE,
            {"without its factor M": functools.partial(derivative, factor=False)},
        ),
    ),
    printed=(Counterexample(derivative, {"scores": 0.0, "sharpness": 4.0, "factor": False}),),
)


def binarization_error(scores: Array, sharpness: Array, exponent: float = 1.0) -> Sides:
    """`|sigma_M(w) - 1[w > 0]| <= exp(-M |w|)`."""
    margin = sharpness * jnp.abs(scores)
    right = jnp.exp(-exponent * margin)
    return Sides(jax.nn.sigmoid(-margin), right, 8 * EPS * right + TINY)


def extraction_cost(
    scores: Array, center: Array, lipschitz: Array, hard: Array, exponent: float = 1.0, order: float = 2
) -> Sides:
    """`|f(v) - f(1[w > 0])| <= G sqrt(sum_i exp(-2 H |w_i|))` for `f(v) = G |v - center|`.

    The root of the sum is a norm, whose order is `order`.
    """
    mask = (scores > 0).astype(scores.dtype)
    distance, distance_of_mask = (
        jnp.linalg.norm(at - center) for at in (jax.nn.sigmoid(hard * scores), mask)
    )
    right = lipschitz * jnp.linalg.norm(jnp.exp(-exponent * hard * jnp.abs(scores)), ord=order)
    rounding = 16 * EPS * lipschitz * (distance + distance_of_mask)
    return Sides(lipschitz * jnp.abs(distance - distance_of_mask), right, rounding)


LIMIT = Claim(
    id="binarize.limit",
    source="[D] Algorithm 1, extraction; [A] section 2.3",
    statement="|sigma_M(w) - 1[w > 0]| <= exp(-M |w|), so reading off the mask changes f by at most "
    "G sqrt(sum_i exp(-2 H |w_i|))",
    latex=r"|\sigma_M(w) - 1[w > 0]| \le e^{-M |w|}, \quad "
    r"|f(\sigma_H(w)) - f(1[w > 0])| \le G \Big(\sum_i e^{-2 H |w_i|}\Big)^{1/2}",
    verdict="holds",
    assumptions="for the second, |grad f| <= G on [0, 1]^d",
    checks=(
        Inequality(
            binarization_error,
            _ONE_SCORE,
            {"exponent 1% too large": functools.partial(binarization_error, exponent=1.01)},
        ),
        Inequality(
            extraction_cost,
            cube(
                scores=symlog(1.0, 1e-3, (3,)),
                center=often(0.0, uniform(0.0, 1.0, (3,))),
                lipschitz=log_uniform(1.0, 10.0),
                hard=log_uniform(1.0, 100.0),
            ),
            {
                "exponent 5% too large": functools.partial(extraction_cost, exponent=1.05),
                "the largest term for the sum": functools.partial(extraction_cost, order=np.inf),
            },
        ),
    ),
)


def limit(scores: ArrayLike, sharpness: ArrayLike, at_zero: float = 0.5) -> Sides:
    """`sigma_M(w)` is within `exp(-M |w|)` of its limit in M, and equal to it at w = 0."""
    scores = jnp.asarray(scores)
    step = jnp.where(scores == 0, at_zero, scores > 0)
    position = jnp.multiply(sharpness, scores)
    right = jnp.where(scores == 0, 0, jnp.exp(-jnp.abs(position)))
    return Sides(jnp.abs(jax.nn.sigmoid(position) - step), right, 4 * EPS)


LIMIT_AT_ZERO = Claim(
    id="binarize.limit-at-zero",
    source="[D] footnote 3; [A] section 2.3",
    statement="as M -> inf, sigma(M w) tends to 1[w > 0] for every w but 0, where it is 1/2",
    latex=r"\lim_{M \to \infty} \sigma_M(w) = 1[w > 0] \text{ for } w \ne 0, \quad \sigma_M(0) = 1/2",
    verdict="holds as corrected",
    remark="At w = 0 [D] has the limit 1, [A] the limit 0. Which is meant decides whether a score of "
    "exactly 0 keeps its connection; jaxarch prunes it.",
    checks=(
        Inequality(
            limit,
            cube(scores=often(0.0, symlog(1.0, 1e-3)), sharpness=log_uniform(1.0, 1000.0)),
            {
                "1 at w = 0": functools.partial(limit, at_zero=1.0),
                "0 at w = 0": functools.partial(limit, at_zero=0.0),
            },
        ),
    ),
    printed=(
        Counterexample(limit, {"scores": 0.0, "sharpness": 50.0, "at_zero": 1.0}),
        Counterexample(limit, {"scores": 0.0, "sharpness": 50.0, "at_zero": 0.0}),
    ),
)


def inverse(scores: Array, hard: Array, power: int = 1) -> Sides:
    """`w = logit(sigma(H w))/H`, with the error that v's rounding causes."""
    value = jax.nn.sigmoid(hard * scores)
    conditioning = 8 * EPS * (1 / (value * (1 - value)) + jnp.abs(hard * scores)) / hard
    return Sides(jnp.abs(logit(value) / hard**power - scores), conditioning)


INVERSE = Claim(
    id="binarize.one-to-one",
    source="[A] corollary B.4, proof",
    statement="B_H is one-to-one from R to (0, 1), with inverse logit(v)/H",
    latex=r"B_H^{-1}(v) = \frac{1}{H} \log \frac{v}{1 - v}, \quad 0 < v < 1",
    verdict="holds",
    checks=(
        Inequality(
            inverse,
            cube(scores=symlog(0.3, 1e-4), hard=log_uniform(1.0, 100.0)),
            {"without dividing by H": functools.partial(inverse, power=0)},
        ),
    ),
    see=("D.one-to-one",),
)


def equal_losses_mean_equal_scores(score: float, other: float, hard: float) -> Sides:
    """`F(B(w)) = F(B(w'))` only at `w = w'`, for `F(v) = (v - 1/2)^2`: their distance is 0, or F differs."""
    loss, other_loss = ((jax.nn.sigmoid(hard * jnp.abs(w)) - 0.5) ** 2 for w in (score, other))
    return Sides(jnp.abs(jnp.subtract(score, other)), jnp.where(loss == other_loss, 0.0, jnp.inf))


def minimum_on_the_cube_is_attained(score: float, hard: float) -> Sides:
    """`F(B(w)) <= min F = 0` at some score, for `F(v) = v`."""
    return Sides(jax.nn.sigmoid(jnp.multiply(hard, score)), jnp.zeros(()))


ONE_TO_ONE = Claim(
    id="D.one-to-one",
    source="[D] eq. (36)-(38); [A] eq. (60)-(62)",
    statement="F(B(w)) is one-to-one, so the minimiser of F on [0, 1]^d is B(w*), w* = B^-1(v*)",
    latex=r"v^* = B_H(w^*), \quad w^* = \arg\min_{w \in \mathbb{R}^d} F(B_H(w))",
    verdict="refuted",
    remark="B is one-to-one, F o B is not: (v - 1/2)^2 takes the same value at w and -w. And where the "
    "minimiser lies on the boundary of the cube, as every binary mask does, no w* exists: F(v) = v is "
    "positive at every score.",
    printed=(
        Counterexample(equal_losses_mean_equal_scores, {"score": 1.0, "other": -1.0, "hard": 4.0}),
        Counterexample(minimum_on_the_cube_is_attained, {"score": -5.0, "hard": 4.0}),
    ),
    controls=(Control(equal_losses_mean_equal_scores, {"score": 1.0, "other": 0.999, "hard": 4.0}),),
    see=("binarize.one-to-one",),
)

CLAIMS = (
    SLOPE,
    DERIVATIVE,
    LIMIT,
    LIMIT_AT_ZERO,
    INVERSE,
    ONE_TO_ONE,
)

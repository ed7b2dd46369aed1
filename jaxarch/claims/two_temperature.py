r"""Claims on the two-temperature step: binarization and the error of one step ([D] section 4, [A] section 2).

Notation: `v = sigma(H w)`; the step is `w+ = w - eta g ds_S(w)`, elementwise, with `g` the gradient in
v, `ds_M(w) = M sigma(M w) (1 - sigma(M w))`, H = `hard`, S = `soft`, eta = `rate`. By the mean value theorem
`v+ = v - eta p g` with `p = ds_H(xi) ds_S(w)`, xi between w and w+; the papers write `v - eta (g - r)`, so
that `r = (1 - p) g`.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logit
from jax.typing import ArrayLike

from jaxarch.claims import proofs
from jaxarch.claims.core import EPS, Claim, Counterexample, Inequality, Sides
from jaxarch.claims.cube import cube, log_uniform, often, symlog, uniform

TINY = 2.0**-1022
"""Below it numbers are rounded to 0."""


def slope(scores: ArrayLike, sharpness: ArrayLike) -> Array:
    """`ds_M(w) = M sigma(M w) (1 - sigma(M w))`, exact in the tails."""
    below = jax.nn.sigmoid(-jnp.abs(jnp.multiply(sharpness, scores)))
    return jnp.multiply(sharpness, below * (1 - below))


def mean_slope(scores: ArrayLike, step: ArrayLike, sharpness: ArrayLike) -> Array:
    """The mean of `ds_M` from w to w - step: the difference quotient of `sigma_M`, without cancellation.

    `sigma(a) - sigma(b) = sigma(a) sigma(-b) (1 - e^(b - a))`.
    """
    start, length = jnp.multiply(sharpness, scores), jnp.multiply(sharpness, step)
    low, high = jnp.minimum(start, start - length), jnp.maximum(start, start - length)
    length = jnp.abs(length)
    positive = jnp.where(length > 0, length, 1)
    shortened = jnp.where(length > 0, -jnp.expm1(-positive) / positive, 1)
    return jnp.multiply(sharpness, jax.nn.sigmoid(high) * jax.nn.sigmoid(-low) * shortened)


def update_factor(
    gradient: ArrayLike, scores: ArrayLike, rate: ArrayLike, hard: ArrayLike, soft: ArrayLike
) -> tuple[Array, Array]:
    """`p = ds_H(xi) ds_S(w)`, such that `v+ = v - eta p g`, and a bound on its rounding error."""
    step = rate * jnp.asarray(gradient) * slope(scores, soft)
    factor = mean_slope(scores, step, hard) * slope(scores, soft)
    arguments = jnp.add(hard, soft) * jnp.abs(jnp.asarray(scores)) + hard * jnp.abs(step)
    return factor, EPS * (32 + 4 * arguments) * factor


_ONE_SCORE = cube(scores=symlog(10.0, 1e-4), sharpness=log_uniform(1.0, 100.0))


# The binarization ------------------------------------------------------------------------------------


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
            {"constant 10% too small": functools.partial(slope_is_at_most_a_quarter, constant=0.225)},
        ),
        proofs.SLOPE,
        Inequality(
            slope_at_zero,
            cube(sharpness=log_uniform(1.0, 100.0)),
            {"constant 10% too large": functools.partial(slope_at_zero, constant=0.275)},
        ),
    ),
)


def derivative(scores: ArrayLike, sharpness: ArrayLike, factor: bool = True) -> Sides:
    """`B_M' = M B_M (1 - B_M)`, against a central difference over `h = 1/(1000 M)`, in units of M.

    Its error is at most `h^2 max |B_M'''|/6 = h^2 M^3/48`, and that of rounding.
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
    scores: Array, center: Array, lipschitz: Array, hard: Array, exponent: float = 1.0
) -> Sides:
    """`|f(v) - f(1[w > 0])| <= G sqrt(sum_i exp(-2 H |w_i|))` for `f(v) = G |v - center|`."""
    mask = (scores > 0).astype(scores.dtype)
    distance, distance_of_mask = (
        jnp.linalg.norm(at - center) for at in (jax.nn.sigmoid(hard * scores), mask)
    )
    right = lipschitz * jnp.linalg.norm(jnp.exp(-exponent * hard * jnp.abs(scores)))
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
            {"twice the exponent": functools.partial(binarization_error, exponent=2.0)},
        ),
        Inequality(
            extraction_cost,
            cube(
                scores=symlog(1.0, 1e-3, (3,)),
                center=often(0.0, uniform(0.0, 1.0, (3,))),
                lipschitz=log_uniform(1.0, 10.0),
                hard=log_uniform(1.0, 100.0),
            ),
            {"twice the exponent": functools.partial(extraction_cost, exponent=2.0)},
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
    see=("binarize.one-to-one",),
)


# The error of a step ---------------------------------------------------------------------------------


def update(
    gradient: ArrayLike,
    scores: ArrayLike,
    rate: ArrayLike,
    hard: ArrayLike,
    soft: ArrayLike,
    sign: float = -1.0,
) -> Sides:
    """`v+ = v - eta (g - r)` for one score; `sign` is that of r."""
    factor, error = update_factor(gradient, scores, rate, hard, soft)
    moved = rate * jnp.asarray(gradient)
    position = jnp.multiply(hard, scores)
    start = jax.nn.sigmoid(position)
    end = jax.nn.sigmoid(position - hard * moved * slope(scores, soft))
    written = start - moved * (1 + sign * (1 - factor))
    terms = 4 + jnp.abs(position) + jnp.abs(moved) * (2 + factor)
    return Sides(jnp.abs(end - written), 8 * EPS * terms + jnp.abs(moved) * error)


def _is_a_slope_between(mean: Array, start: ArrayLike, end: ArrayLike, hard: ArrayLike) -> Sides:
    """`mean` lies between the smallest and the largest slope from `start` to `end`."""
    start, end = jnp.asarray(start), jnp.asarray(end)
    smallest = slope(jnp.maximum(jnp.abs(start), jnp.abs(end)), hard)
    nearest = jnp.where(start * end < 0, 0, jnp.minimum(jnp.abs(start), jnp.abs(end)))
    largest = slope(nearest, hard)
    rounding = EPS * (32 + 8 * hard * (jnp.abs(start) + jnp.abs(end))) * (largest + mean)
    return Sides(jnp.abs(mean - (smallest + largest) / 2), (largest - smallest) / 2, rounding)


def mean_value(
    gradient: ArrayLike, scores: ArrayLike, rate: ArrayLike, hard: ArrayLike, soft: ArrayLike
) -> Sides:
    """`(v - v+)/(w - w+) = ds_H(xi)` for a xi between w and `w+ = w - eta g ds_S(w)`; one score."""
    step = rate * jnp.asarray(gradient) * slope(scores, soft)
    return _is_a_slope_between(mean_slope(scores, step, hard), scores, scores - step, hard)


def mean_value_up_to_the_value(
    gradient: ArrayLike, scores: ArrayLike, rate: ArrayLike, hard: ArrayLike, soft: ArrayLike
) -> Sides:
    """As `mean_value`, xi between w and `w - eta g B_S(w)`: the value for the slope ([D] 8, 23)."""
    moved = rate * jnp.asarray(gradient)
    mean = mean_slope(scores, moved * slope(scores, soft), hard)
    end = scores - moved * jax.nn.sigmoid(jnp.multiply(soft, scores))
    return _is_a_slope_between(mean, scores, end, hard)


def mean_value_without_the_rate(
    gradient: ArrayLike, scores: ArrayLike, rate: ArrayLike, hard: ArrayLike, soft: ArrayLike
) -> Sides:
    """As `mean_value`, xi between w and `w - g ds_S(w)`: without the rate ([D] 30)."""
    step = jnp.asarray(gradient) * slope(scores, soft)
    return _is_a_slope_between(mean_slope(scores, rate * step, hard), scores, scores - step, hard)


def error_bound(
    gradient: ArrayLike,
    scores: ArrayLike,
    rate: ArrayLike,
    hard: ArrayLike,
    soft: ArrayLike,
    constant: float = 1.0,
) -> Sides:
    """`|r| <= C |g|` with `C = 1 + H S/16` ([D] eq. 9)."""
    return _error_at_most(1 + jnp.multiply(hard, soft) / 16, gradient, scores, rate, hard, soft, constant)


def sharp_error_bound(
    gradient: ArrayLike,
    scores: ArrayLike,
    rate: ArrayLike,
    hard: ArrayLike,
    soft: ArrayLike,
    constant: float = 1.0,
) -> Sides:
    """`|r| <= max(1, H S/16 - 1) |g|`."""
    largest = jnp.maximum(1, jnp.multiply(hard, soft) / 16 - 1)
    return _error_at_most(largest, gradient, scores, rate, hard, soft, constant)


def _error_at_most(
    bound: Array,
    gradient: ArrayLike,
    scores: ArrayLike,
    rate: ArrayLike,
    hard: ArrayLike,
    soft: ArrayLike,
    constant: float,
) -> Sides:
    gradient = jnp.asarray(gradient)
    factor, error = update_factor(gradient, scores, rate, hard, soft)
    size = jnp.linalg.norm(gradient)
    right = constant * bound * size
    rounding = jnp.linalg.norm(gradient * error) + 16 * EPS * bound * size
    return Sides(jnp.linalg.norm(gradient * (1 - factor)), right, rounding)


def error_near_zero(change: Array, hard: Array, soft: Array, square: float = 1 / 12) -> Sides:
    """At w = 0, `p >= (H S/16) (1 - x^2/12)` for a step that changes H w by x."""
    largest = hard * soft / 16
    factor = mean_slope(0.0, change / hard, hard) * soft / 4
    return Sides(largest * (1 - square * change**2), factor, 64 * EPS * largest)


def error_when_saturated(score: Array, rate: Array, hard: Array, soft: Array, exponent: float = 1.0) -> Sides:
    """At g = 1, `|r| >= 1 - (H S/4) exp(-S |w|)`."""
    factor, error = update_factor(1.0, score, rate, hard, soft)
    left = 1 - hard * soft / 4 * jnp.exp(-exponent * soft * jnp.abs(score))
    return Sides(left, jnp.abs(1 - factor), error + 8 * EPS * (1 + jnp.abs(left)))


STEPS = {
    "rate": log_uniform(100.0, 1e-8),
    "hard": log_uniform(1.0, 100.0),
    "soft": log_uniform(1.0, 100.0),
}
_ONE_STEP = cube(gradient=symlog(100.0, 0.01), scores=often(0.0, symlog(3.0, 1e-3)), **STEPS)
_STEP = cube(gradient=symlog(100.0, 0.01, (3,)), scores=often(0.0, symlog(3.0, 1e-3, (3,))), **STEPS)

LEMMA_4_2 = Claim(
    id="D.lemma-4.2",
    source="[D] lemma 4.2, eq. (7)-(9); appendix B, lemma B.2, eq. (20)-(34)",
    statement="v+ = v - eta (g - r), r = g - ds_H(xi) ds_S(w) g, xi between w and w+, and |r| <= G (1 + H "
    "S/16)",
    latex=r"v^{t+1} = v^t - \eta_t (\nabla f(v^t) - r^t), \quad \|r^t\|^2 \le G^2 C^2, \quad "
    r"C = 1 + \frac{M_{hard} M_{soft}}{16}",
    assumptions="any H, S > 0",
    verdict="holds as corrected",
    remark="(7) and (21) print g + r; (27) of the proof has the sign right. xi lies between w and w+: (8) "
    "and (23) print the value of B_S for its slope, (30) leaves out the rate. In (33) the term (32), "
    "which is negative, is bounded by its absolute value: the constant is not sharp.",
    checks=(
        Inequality(
            error_bound,
            _STEP,
            {"constant 5% too small": functools.partial(error_bound, constant=0.95)},
        ),
        Inequality(update, _ONE_STEP, {"g + r, as printed": functools.partial(update, sign=1.0)}),
        Inequality(
            mean_value,
            _ONE_STEP,
            {
                "xi up to w - eta g B_S(w)": mean_value_up_to_the_value,
                "xi up to w - g ds_S(w)": mean_value_without_the_rate,
            },
        ),
    ),
    printed=(
        Counterexample(
            update,
            {"gradient": 1.0, "scores": 0.0, "rate": 1.0, "hard": 4.0, "soft": 4.0, "sign": 1.0},
        ),
        Counterexample(
            mean_value_up_to_the_value,
            {"gradient": -10.0, "scores": -1.0, "rate": 1.0, "hard": 4.0, "soft": 4.0},
        ),
        Counterexample(
            mean_value_without_the_rate,
            {"gradient": -1.0, "scores": -1.0, "rate": 10.0, "hard": 4.0, "soft": 4.0},
        ),
    ),
    see=("D.error-bound-sharp", "D.error-sign"),
)

SHARP = Claim(
    id="D.error-bound-sharp",
    source="sharpens [D] eq. (9)",
    statement="|r| <= G max(1, H S/16 - 1), and no smaller constant will do",
    latex=r"\|r^t\| \le G \max\!\left(1, \frac{M_{hard} M_{soft}}{16} - 1\right)",
    assumptions="any H, S > 0",
    verdict="holds",
    remark="r = (1 - p) g with 0 < p <= H S/16. The ends are reached in the limits of small steps at w = "
    "0, where p >= (H S/16) (1 - x^2/12) for a change x of H w, and of large |w|, where p <= (H S/4) "
    "exp(-S |w|).",
    checks=(
        Inequality(
            sharp_error_bound,
            _STEP,
            {"constant 10% too small": functools.partial(sharp_error_bound, constant=0.9)},
        ),
        Inequality(
            error_near_zero,
            cube(change=log_uniform(1e-3, 1.0), hard=STEPS["hard"], soft=STEPS["soft"]),
            {"the square 10% smaller": functools.partial(error_near_zero, square=0.9 / 12)},
        ),
        Inequality(
            error_when_saturated,
            cube(score=symlog(3.0, 1e-3), **STEPS),
            {"twice the exponent": functools.partial(error_when_saturated, exponent=2.0)},
        ),
        proofs.LEMMA_4_2_IN_ONE_COORDINATE,
    ),
    see=("D.lemma-4.2",),
)


def error_has_the_sign_of_the_gradient(
    gradient: Array, scores: Array, rate: Array, hard: Array, soft: Array, constant: float = 1.0
) -> Sides:
    """`(1 - H S/16) g^2 <= g r`, for one score."""
    factor, error = update_factor(gradient, scores, rate, hard, soft)
    largest = hard * soft / 16
    rounding = gradient**2 * (error + 16 * EPS * (1 + largest))
    return Sides((1 - constant * largest) * gradient**2, gradient**2 * (1 - factor), rounding)


ERROR_SIGN = Claim(
    id="D.error-sign",
    source="against [D] eq. (39), [A] eq. (46)",
    statement="g_i r_i >= (1 - H S/16) g_i^2: for H S < 16 every r_i has the sign of g_i",
    latex=r"g_i r_i \ge \left(1 - \frac{M_{hard} M_{soft}}{16}\right) g_i^2",
    verdict="holds",
    checks=(
        Inequality(
            error_has_the_sign_of_the_gradient,
            _ONE_STEP,
            {"constant 10% too small": functools.partial(error_has_the_sign_of_the_gradient, constant=0.9)},
        ),
    ),
)


def mean_error_is_zero(gradient: float, score: float, rate: float, hard: float, soft: float) -> Sides:
    """`E(r) = 0`, for the linear loss `f(v) = g v`, where nothing is random."""
    factor, _ = update_factor(gradient, score, rate, hard, soft)
    return Sides(jnp.abs(gradient * (1 - factor)), jnp.zeros(()))


ZERO_MEAN = Claim(
    id="D.zero-mean-error",
    source="[D] eq. (39); [A] eq. (46)",
    statement="E(r) = 0",
    latex=r"E(r^t) = 0",
    verdict="refuted",
    remark="Called a standard assumption, it contradicts what r is: for H S < 16 every r_i has the sign "
    "of g_i. r is no noise but a bias, which shortens the step where the scores are saturated.",
    printed=(
        Counterexample(
            mean_error_is_zero, {"gradient": 0.1, "score": 0.0, "rate": 0.1, "hard": 4.0, "soft": 2.0}
        ),
        Counterexample(
            mean_error_is_zero, {"gradient": 0.1, "score": -0.2, "rate": 0.1, "hard": 50.0, "soft": 5.0}
        ),
    ),
    see=("D.error-sign",),
)


def smaller_error_bound(
    gradient: ArrayLike,
    scores: ArrayLike,
    rate: ArrayLike,
    hard: ArrayLike,
    soft: ArrayLike,
    factor: float = 2.0,
    with_next: bool = True,
) -> Sides:
    """`|r|^2 <= |g|^2 C`, `C = 1 - 2 ds_H(theta_max) ds_S(theta_max) + (H S/16)^2` ([A] eq. 30).

    `theta_max` is the largest score in absolute value, before the step or after it; as printed
    (`with_next=False`), before it.
    """
    gradient, scores = jnp.asarray(gradient), jnp.asarray(scores)
    p, error = update_factor(gradient, scores, rate, hard, soft)
    largest = jnp.max(jnp.abs(scores))
    if with_next:
        following = scores - rate * gradient * slope(scores, soft)
        largest = jnp.maximum(largest, jnp.max(jnp.abs(following)))
    ratio = jnp.multiply(hard, soft) / 16
    least = slope(largest, hard) * slope(largest, soft)
    size = jnp.sum(gradient**2)
    right = size * (1 - factor * least + ratio**2)
    rounding = jnp.sum(gradient**2 * 2 * jnp.abs(1 - p) * error) + EPS * size * (
        32 * (1 + ratio**2) + (32 + 8 * (hard + soft) * largest) * least
    )
    return Sides(jnp.sum((gradient * (1 - p)) ** 2), right, rounding)


def derivative_with_a_plus(score: float) -> Sides:
    """`sigma'(s) = sigma(s) (1 + sigma(s))`, as [A] prints below (25); see `derivative`."""
    sides = derivative(score, 1.0)
    value = jax.nn.sigmoid(jnp.asarray(score))
    return Sides(jnp.abs(value * (1 + value) - slope(score, 1.0)), sides.right)


LEMMA_B_2 = Claim(
    id="A.lemma-B.2",
    source="[A] lemma B.2, eq. (25)-(44); (11), (58), (59)",
    statement="|r|^2 <= G^2 (1 - 2 ds_H(theta_max) ds_S(theta_max) + (H S/16)^2), theta_max = max_{t <= "
    "T+1} |theta^t|",
    latex=r"\|r^t\|^2 \le G^2 C, \quad C = 1 - 2 \sigma_H'(\theta_{max}) \sigma_S'(\theta_{max}) + "
    r"\left(\frac{M_{hard} M_{soft}}{16}\right)^2, \quad \theta_{max} = \max_{t \le T+1} |\theta^t|",
    verdict="holds as corrected",
    remark="xi^T lies between theta^T and theta^(T+1), so theta_max has to cover both: with the maximum "
    "over t <= T the bound is 0 at theta^1 = 0, H = S = 4, T = 1. (25) prints sigma (1 + sigma) for sigma "
    "(1 - sigma), (26) g + r for g - r, (38) is right about xi.",
    checks=(
        Inequality(
            smaller_error_bound,
            cube(gradient=symlog(100.0, 0.01, (2,)), scores=often(0.0, symlog(3.0, 1e-3, (2,))), **STEPS),
            {
                "theta_max over t <= T, as printed": functools.partial(smaller_error_bound, with_next=False),
                "the factor 2 10% larger": functools.partial(smaller_error_bound, factor=2.2),
            },
        ),
    ),
    printed=(
        Counterexample(
            smaller_error_bound,
            {
                "gradient": (1.0,),
                "scores": (0.0,),
                "rate": 1.0,
                "hard": 4.0,
                "soft": 4.0,
                "with_next": False,
            },
        ),
        Counterexample(derivative_with_a_plus, {"score": 0.0}),
        Counterexample(
            update,
            {"gradient": 1.0, "scores": 0.0, "rate": 1.0, "hard": 4.0, "soft": 4.0, "sign": 1.0},
        ),
    ),
    see=("D.lemma-4.2",),
)

CLAIMS = (
    SLOPE,
    DERIVATIVE,
    LIMIT,
    LIMIT_AT_ZERO,
    INVERSE,
    ONE_TO_ONE,
    LEMMA_4_2,
    SHARP,
    ERROR_SIGN,
    ZERO_MEAN,
    LEMMA_B_2,
)

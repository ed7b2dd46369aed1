r"""Claims on the two-temperature step: binarization, its error terms, the assumed loss ([D] 4, [A] 2).

Notation: `v = sigma(H w)`; the step is `w+ = w - eta g ds_S(w)`, elementwise, with `g` the gradient in
v, `ds_M(w) = M sigma(M w) (1 - sigma(M w))`, H = `hard`, S = `soft`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch.claims.core import Claim, Counterexample, Inequality, Sides
from jaxarch.claims.cube import cube, log_uniform, normal

EPS = 2.0**-52


def slope(scores: ArrayLike, sharpness: ArrayLike) -> Array:
    """`ds_M(w) = M sigma(M w) (1 - sigma(M w))`, exact in the tails."""
    below = jax.nn.sigmoid(-jnp.abs(jnp.multiply(sharpness, scores)))
    return jnp.multiply(sharpness, below * (1 - below))


# [D] section 3 ---------------------------------------------------------------------------------------


def slope_is_at_most_a_quarter(scores: Array, sharpness: Array, constant: float = 0.25) -> Sides:
    """`ds_M(w) <= M/4`, attained at w = 0."""
    right = constant * sharpness
    return Sides(slope(scores, sharpness), right, 8 * EPS * right)


def binarization_error(scores: Array, sharpness: Array, rate: float = 1.0) -> Sides:
    """`|sigma_M(w) - 1[w > 0]| <= exp(-M |w|)`."""
    margin = sharpness * jnp.abs(scores)
    left = jax.nn.sigmoid(-margin)
    right = jnp.exp(-rate * margin)
    return Sides(left, right, 8 * EPS * right)


_ONE_SCORE = cube(scores=normal(1.0), sharpness=log_uniform(1.0, 100.0))

SLOPE = Claim(
    id="binarize.slope",
    source="[D] appendix A; [A] appendix B.1",
    statement="the slope of the binarization is at most M/4, at w = 0",
    latex=r"\max_w \sigma_M'(w) = M/4",
    verdict="holds",
    remark="[D] section 3 prints the slope without its factor M; its appendix A has it.",
    checks=(
        Inequality(
            slope_is_at_most_a_quarter,
            _ONE_SCORE,
            {
                "constant 10% too small": lambda **case: slope_is_at_most_a_quarter(**case, constant=0.225),
            },
        ),
    ),
)

LIMIT = Claim(
    id="binarize.limit",
    source="[D] Algorithm 1, extraction; [A] section 2.3",
    statement="|sigma_M(w) - 1[w > 0]| <= exp(-M |w|)",
    latex=r"|\sigma_M(w) - 1[w > 0]| \le e^{-M |w|}",
    verdict="holds",
    remark="So reading off the mask changes f by at most G sqrt(sum_i exp(-2 H |w_i|)).",
    checks=(
        Inequality(
            binarization_error,
            _ONE_SCORE,
            {"twice the rate": lambda **case: binarization_error(**case, rate=2.0)},
        ),
    ),
)


# [D] theorem 4.3 -------------------------------------------------------------------------------------


def linear_loss_by_printed_bound(
    coefficient: float, hard: float, soft: float, c: float, score: float, steps: int
) -> Sides:
    """[D] (10) for `f(v) = coefficient v`, minimal at v = 0: gap and bound after `steps` steps c/t."""
    w = jnp.asarray(score)
    for t in range(1, steps + 1):
        w = w - c / t * coefficient * slope(w, soft)
    gap = coefficient * jax.nn.sigmoid(hard * w)
    constant = 1 + hard * soft / 16
    bound = coefficient**2 * c * (1 + constant**2) / 2 * (1 + jnp.log(steps)) / steps
    return Sides(gap, bound, 8 * EPS * bound)


THEOREM_4_3 = Claim(
    id="D.theorem-4.3",
    source="[D] theorem 4.3, eq. (10); appendix B, theorem B.3, eq. (35)",
    statement="E[F(v_T) - F*] <= G^2 c (1 + C^2)/2 (1 + log T)/T with eta_t = c/t",
    latex=r"E[F(v^T) - F^*] \le G^2 \frac{c (1 + C^2)}{2} \frac{1 + \log T}{T}",
    assumptions="f(., z) convex and differentiable on [0, 1]^d, |grad f| <= G",
    verdict="refuted",
    remark="The bound is proportional to c: let c -> 0 with T fixed.",
    printed=(
        Counterexample(
            linear_loss_by_printed_bound,
            {"coefficient": 0.1, "hard": 4.0, "soft": 4.0, "c": 1.0, "score": 0.0, "steps": 1},
        ),
    ),
)

CLAIMS = (SLOPE, LIMIT, THEOREM_4_3)

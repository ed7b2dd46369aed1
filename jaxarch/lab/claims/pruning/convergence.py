r"""The convergence of the search as [A] states it ([A] theorem 2.1, eq. (45), corollary B.4).

E[F(v^T) - F*] <= 1/(c sqrt T) + c G^2 (1 + C) (1 + log T)/T,        alpha_t = c/sqrt t
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxarch.lab.claims.checks.algorithm_1 import (
    THREE_QUARTERS,
    WITHOUT_ERROR,
    SeparableLoss,
    algorithm_1,
    smallest_gap,
)
from jaxarch.lab.claims.checks.core import Claim, Control, Counterexample, Sides
from jaxarch.lab.claims.checks.two_temperature import slope


def theorem_2_1(
    linear: float,
    curvature: float,
    dimension: int,
    hard: float,
    soft: float,
    c: float,
    score: float,
    steps: int,
) -> Sides:
    """[A] theorem 2.1 for `f(v) = sum_i linear v_i + curvature (v_i - 1/2)^2` after `steps` steps c/sqrt t.

    The left side is the smallest gap of v^T, v^(T+1) and the average iterate. theta_max covers w^(T+1) too,
    so C and the bound are larger than printed.
    """
    problem = SeparableLoss(linear, curvature, dimension)
    run = algorithm_1(problem, hard, soft, lambda t: c / jnp.sqrt(t), score, steps)
    constant = 1 - 2 * slope(run.largest, hard) * slope(run.largest, soft) + (hard * soft / 16) ** 2
    decay = c * problem.bound**2 * (1 + constant) * (1 + jnp.log(steps)) / steps
    return Sides(smallest_gap(problem, run), 1 / (c * jnp.sqrt(steps)) + decay)


_LINEAR = {"linear": 0.1, "curvature": 0.0, "hard": 4.0, "soft": 4.0, "c": 1.0, "score": 0.0}

_NO_ERROR = {
    "linear": 0.0,
    "curvature": 1.0,
    "hard": 8.0,
    "soft": 8.0,
    "c": 0.001,
    "score": WITHOUT_ERROR,
    "steps": 1,
}

THEOREM_2_1 = Claim(
    id="A.theorem-2.1",
    source="[A] theorem 2.1; appendix B, theorem B.3, eq. (45), corollary B.4",
    statement="E[F(v^T) - F*] <= 1/(c sqrt T) + c G^2 (1 + C) (1 + log T)/T with alpha_t = c/sqrt t",
    latex=r"E[F(v^T) - F^*] \le \frac{1}{c \sqrt T} + \frac{c G^2 (1 + C) (1 + \log T)}{T}",
    assumptions="f(., z) convex and differentiable on [0, 1]^d, |grad f| <= G",
    verdict="refuted",
    remark="It has no d: the first case is by hand, in d = 100, the third at the paper's own temperatures "
    "in d = 10^6, the last but one shows that it does not help to wait, in the last r is 0, as "
    "the proof assumes. Nor is it true in d = 1 (second case). "
    "The proof takes E(r) = 0, |v - v*|^2 <= 2 for d (57), sums 1/t for 1/sqrt t (55), and the last "
    "iterate for the average (52).",
    printed=(
        Counterexample(
            theorem_2_1,
            {
                "linear": 0.1,
                "curvature": 0.0,
                "dimension": 100,
                "hard": 4.0,
                "soft": 4.0,
                "c": 1.0,
                "score": 0.0,
                "steps": 1,
            },
        ),
        Counterexample(
            theorem_2_1,
            {
                "linear": 0.0,
                "curvature": 1.0,
                "dimension": 1,
                "hard": 4.0,
                "soft": 4.0,
                "c": 20.0,
                "score": THREE_QUARTERS,
                "steps": 2500,
            },
        ),
        Counterexample(
            theorem_2_1,
            {
                "linear": 0.0,
                "curvature": 1e-3,
                "dimension": 10_000_000,
                "hard": 100.0,
                "soft": 10.0,
                "c": 0.005,
                "score": 0.010986122886681098,
                "steps": 1,
            },
        ),
        Counterexample(
            theorem_2_1,
            {
                "linear": 1e-3,
                "curvature": 0.0,
                "dimension": 1_000_000,
                "hard": 100.0,
                "soft": 10.0,
                "c": 0.016,
                "score": 0.0,
                "steps": 1,
            },
        ),
        Counterexample(
            theorem_2_1,
            {
                "linear": 0.1,
                "curvature": 0.0,
                "dimension": 100,
                "hard": 4.0,
                "soft": 4.0,
                "c": 1.0,
                "score": 0.0,
                "steps": 100_000,
            },
        ),
        Counterexample(theorem_2_1, {**_NO_ERROR, "dimension": 20_000}),
    ),
    controls=(
        Control(theorem_2_1, {**_NO_ERROR, "dimension": 9000}),
        Control(theorem_2_1, {**_LINEAR, "dimension": 34, "steps": 1}),
    ),
    see=("projected-sgd.convex", "A.lemma-B.2", "A.eq-55", "A.eq-57", "D.zero-mean-error", "D.eq-45"),
)

CLAIMS = (THEOREM_2_1,)

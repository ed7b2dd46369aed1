r"""The convergence of Algorithm 1 as [D] states it ([D] theorem 4.3, eq. (10)).

    E[F(v^T) - F*] <= G^2 c (1 + C^2)/2 (1 + log T)/T,        eta_t = c/t,  C = 1 + H S/16

F* is the minimum of F, and G bounds the gradients.
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


def theorem_4_3(
    linear: float,
    curvature: float,
    hard: float,
    soft: float,
    c: float,
    score: float,
    steps: int,
) -> Sides:
    """[D] (10) for `f(v) = linear v + curvature (v - 1/2)^2`, d = 1, after T = `steps` steps c/t.

    The left side is the smallest gap of v^T, v^(T+1) and the average iterate.
    """
    problem = SeparableLoss(linear, curvature, 1)
    run = algorithm_1(problem, hard, soft, lambda t: c / t, score, steps)
    constant = 1 + hard * soft / 16
    bound = problem.bound**2 * c * (1 + constant**2) / 2 * (1 + jnp.log(steps)) / steps
    return Sides(smallest_gap(problem, run), bound)


_SQUARE = {"linear": 0.0, "curvature": 1.0}

_FROM_THREE_QUARTERS = {**_SQUARE, "hard": 4.0, "soft": 4.0, "score": THREE_QUARTERS}

_NO_ERROR = {**_SQUARE, "hard": 8.0, "soft": 8.0, "score": WITHOUT_ERROR}

THEOREM_4_3 = Claim(
    id="D.theorem-4.3",
    source="[D] theorem 4.3, eq. (10); appendix B, theorem B.3, eq. (35)",
    statement="E[F(v^T) - F*] <= G^2 c (1 + C^2)/2 (1 + log T)/T with eta_t = c/t, C = 1 + H S/16",
    latex=r"E[F(v^T) - F^*] \le G^2 \frac{c (1 + C^2)}{2} \frac{1 + \log T}{T}",
    assumptions="f(., z) convex and differentiable on [0, 1]^d, |grad f| <= G",
    verdict="refuted",
    remark="The bound is proportional to c: let c -> 0 with T fixed (first case; the second has a "
    "minimiser inside; the third is at the paper's own temperatures; in the last r is 0, as the proof "
    "assumes). It also fails for every c as T grows (last but one): for a linear loss the gap falls like "
    "(log T)^(-H/S). The proof takes E(r) = 0, the last iterate for the average (45), telescopes with "
    "varying steps (48) and drops |v^1 - v*|^2. Exact projected SGD satisfies it, on average over its "
    "iterates, where F is m-strongly convex and c >= 1/m.",
    printed=(
        Counterexample(
            theorem_4_3,
            {"linear": 0.1, "curvature": 0.0, "hard": 4.0, "soft": 4.0, "c": 1.0, "score": 0.0, "steps": 1},
        ),
        Counterexample(
            theorem_4_3,
            {**_FROM_THREE_QUARTERS, "c": 0.01, "steps": 1},
        ),
        Counterexample(
            theorem_4_3,
            {
                "linear": 0.0,
                "curvature": 1.0,
                "hard": 50.0,
                "soft": 5.0,
                "c": 1e-4,
                "score": 0.02197224577336219,
                "steps": 1000,
            },
        ),
        Counterexample(
            theorem_4_3,
            {
                "linear": 1e-3,
                "curvature": 0.0,
                "hard": 50.0,
                "soft": 5.0,
                "c": 1.0,
                "score": 0.0,
                "steps": 1000,
            },
        ),
        Counterexample(
            theorem_4_3,
            {
                "linear": 1.0,
                "curvature": 0.0,
                "hard": 4.0,
                "soft": 4.0,
                "c": 1.0,
                "score": 0.0,
                "steps": 10_000,
            },
        ),
        Counterexample(theorem_4_3, {**_NO_ERROR, "c": 0.001, "steps": 1}),
    ),
    controls=(
        Control(theorem_4_3, {**_NO_ERROR, "c": 0.0093, "steps": 1}),
        Control(theorem_4_3, {**_FROM_THREE_QUARTERS, "c": 0.024, "steps": 1}),
        Control(theorem_4_3, {**_FROM_THREE_QUARTERS, "c": 0.098, "steps": 100}),
    ),
    see=(
        "projected-sgd.strongly-convex",
        "D.zero-mean-error",
        "D.eq-40",
        "D.eq-42",
        "D.eq-45",
        "D.eq-48",
        "D.one-to-one",
    ),
)

CLAIMS = (THEOREM_4_3,)

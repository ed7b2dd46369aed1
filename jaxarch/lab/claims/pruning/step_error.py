r"""The error r of one two-temperature step, bounded with the largest score ([A] lemma B.2).

|r|^2 <= G^2 (1 - 2 ds_H(theta_max) ds_S(theta_max) + (H S/16)^2)
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxarch.lab.claims.checks.core import EPS, Claim, Counterexample, Sides
from jaxarch.lab.claims.checks.cube import cube, log_uniform, often, symlog
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.two_temperature import slope, update_factor
from jaxarch.lab.claims.disentangling.binarization import derivative
from jaxarch.lab.claims.disentangling.step_error import STEPS, update


def smaller_error_bound(
    gradient: ArrayLike,
    scores: ArrayLike,
    rate: ArrayLike,
    hard: ArrayLike,
    soft: ArrayLike,
    factor: float = 2.0,
    with_next: bool = True,
    share: float = 1.0,
) -> Sides:
    """`|r|^2 <= |g|^2 C`, `C = 1 - 2 ds_H(theta_max) ds_S(theta_max) + (H S/16)^2` ([A] eq. 30).

    `theta_max` is the largest score in absolute value, before or after the step. As printed
    (`with_next=False`), it is the largest before the step.
    """
    gradient, scores = jnp.asarray(gradient), jnp.asarray(scores)
    p, error = update_factor(gradient, scores, rate, hard, soft)
    largest = jnp.max(jnp.abs(scores))
    if with_next:
        following = scores - rate * gradient * slope(scores, soft)
        beyond = jnp.maximum(jnp.max(jnp.abs(following)) - largest, 0)
        largest = largest + share * beyond
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
            cube(
                gradient=symlog(100.0, 0.01, (2,)),
                scores=often(0.0, symlog(3.0, 1e-3, (2,))),
                **{**STEPS, "soft": log_uniform(0.01, 100.0)},
            ),
            {
                "theta_max over t <= T, as printed": functools.partial(smaller_error_bound, with_next=False),
                "2.02 for 2": functools.partial(smaller_error_bound, factor=2.02),
                "the slope at the mean of both": functools.partial(smaller_error_bound, share=0.5),
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

CLAIMS = (LEMMA_B_2,)

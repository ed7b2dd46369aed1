"""The penalty on scores: the effect of its step, and its relation to the count ([A] eq. (17), (18)).

gamma sum_i (1 + w_i)^2
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch.lab.claims.checks.core import EPS, Claim, Control, Counterexample, Sides
from jaxarch.lab.claims.checks.cube import cube, log_uniform, normal, often
from jaxarch.lab.claims.checks.drawn import Inequality


def penalty(scores: Array, strength: ArrayLike) -> Array:
    """Compute `gamma sum_i (1 + w_i)^2` ([A] eq. 18)."""
    return jnp.multiply(strength, jnp.sum((1 + scores) ** 2))


def penalty_pulls(
    value: ArrayLike, rate: ArrayLike, strength: ArrayLike, target: float = -1.0, sign: float = 1.0
) -> Sides:
    """`|w+ - target| <= |w - target|` for `w+ = w - rate sign 2 gamma (w - target)`.

    This is the step of (17) where the gradient is 0. The target of a score is -1, the target of a weight 0.
    """
    distance = jnp.subtract(value, target)
    following = value - rate * (sign * 2 * strength * distance)
    rounding = 8 * EPS * (1 + jnp.abs(jnp.asarray(value)) + jnp.abs(distance))
    return Sides(jnp.abs(following - target), jnp.abs(distance), rounding)


def step_is_the_penalty_gradient(scores: Array, strength: Array, factor: float = 2.0) -> Sides:
    """`2 gamma (1 + w)` is the gradient of (18)."""
    written = factor * strength * (1 + scores)
    difference = jnp.abs(written - jax.grad(penalty)(scores, strength))
    return Sides(jnp.max(difference), 8 * EPS * strength * (1 + jnp.max(jnp.abs(scores))))


EQ_17 = Claim(
    id="A.eq-17",
    source="[A] eq. (17)",
    statement="w+ = w - alpha (g + 2 gamma (1 + w)): the penalty pushes every score towards -1 (and "
    "weights to 0)",
    latex=r"w_{i+1} = w_i - \alpha_i \big(\tilde\nabla_v \mathcal{L} + 2 \gamma (1 + w_i)\big)",
    assumptions="0 < alpha gamma <= 1",
    verdict="holds as corrected",
    remark="Printed: - 2 gamma (1 + w) and - 2 gamma theta inside w - alpha (...), which push away from "
    "-1 and from 0, and are minus the gradient of (18).",
    checks=(
        Inequality(
            penalty_pulls,
            cube(
                value=normal(2.0),
                rate=often(1.0, log_uniform(1.0, 1e-3)),
                strength=often(1.0, log_uniform(1.0, 1e-3)),
            ),
            {
                "signs as printed": functools.partial(penalty_pulls, sign=-1.0),
                "alpha gamma <= 1.01": functools.partial(penalty_pulls, sign=1.01),
            },
        ),
        Inequality(
            step_is_the_penalty_gradient,
            cube(scores=normal(2.0, (3,)), strength=log_uniform(1.0, 1e-3)),
            {
                "signs as printed": functools.partial(step_is_the_penalty_gradient, factor=-2.0),
                "without the factor 2": functools.partial(step_is_the_penalty_gradient, factor=1.0),
            },
        ),
    ),
    printed=(
        Counterexample(penalty_pulls, {"value": 0.1, "rate": 0.1, "strength": 1.0, "sign": -1.0}),
        Counterexample(
            penalty_pulls, {"value": 0.1, "rate": 0.1, "strength": 1.0, "target": 0.0, "sign": -1.0}
        ),
    ),
    see=("A.eq-18",),
)


def penalty_is_at_most(scores: tuple[float, ...], strength: float, times: float) -> Sides:
    """`gamma sum_i (1 + w_i)^2 <= times gamma norm_0(m)^2`, `m = 1[w > 0]`."""
    w = jnp.asarray(scores)
    return Sides(penalty(w, strength), times * strength * jnp.sum(w > 0) ** 2)


def penalty_is_at_least(scores: tuple[float, ...], strength: float, share: float) -> Sides:
    """`share gamma norm_0(m)^2 <= gamma sum_i (1 + w_i)^2`, `m = 1[w > 0]`."""
    w = jnp.asarray(scores)
    return Sides(share * strength * jnp.sum(w > 0) ** 2, penalty(w, strength))


EQ_18 = Claim(
    id="A.eq-18",
    source="[A] eq. (18)",
    statement="gamma sum_i (1 + w_i)^2 is about gamma norm_0(m)^2, m = 1[w > 0]",
    latex=r"\gamma\, 1^T ((1 + w) \circ (1 + w)) \approx \gamma \|m\|_0^2",
    verdict="refuted",
    remark="Within no factor: a pruned connection at w = -1/2 has norm_0(m) = 0 and pays gamma/4; one "
    "kept at w = 3 counts 1 and pays 16 gamma; and n connections kept at w near 0 count n^2 and pay n "
    "gamma. It is the count norm_0(m), not squared, where all scores are at -1 or just above 0.",
    printed=(
        Counterexample(penalty_is_at_most, {"scores": (-0.5,), "strength": 1.0, "times": 1000.0}),
        Counterexample(penalty_is_at_most, {"scores": (3.0,), "strength": 1.0, "times": 15.0}),
        Counterexample(penalty_is_at_least, {"scores": (0.01,) * 100, "strength": 1.0, "share": 0.02}),
    ),
    controls=(
        Control(penalty_is_at_most, {"scores": (0.01, -1.0), "strength": 1.0, "times": 1.021}),
        Control(penalty_is_at_least, {"scores": (0.01, -1.0), "strength": 1.0, "share": 1.0}),
    ),
    see=("A.eq-17",),
)

CLAIMS = (
    EQ_17,
    EQ_18,
)

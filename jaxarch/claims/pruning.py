"""Claims of [A] on the search problem, its loss and its penalty (sections 1, 2.1 and 3.1, appendix A.3)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch.claims.core import EPS, Claim, Counterexample, Exact, Inequality, Sides
from jaxarch.claims.cube import choice, cube, log_uniform, normal

# The search problem ----------------------------------------------------------------------------------


def loss_tables() -> Iterator[dict[str, Any]]:
    """Losses of 2 to 6 architectures (rows) and 2 to 6 weights, whole numbers; and of other data."""
    random = np.random.default_rng(0)
    for _ in range(1000):
        shape = random.integers(2, 7, 2)
        yield {"losses": random.integers(0, 100, shape), "other": random.integers(0, 100, shape)}


def nested_search_is_joint(losses: np.ndarray, other: np.ndarray) -> bool:
    """`min_A L(A, argmin_theta L(A, theta)) = min_A min_theta L(A, theta)`."""
    chosen = losses.argmin(axis=1)
    return bool(losses[np.arange(len(losses)), chosen].min() == losses.min())


def _judged_on_other_data(losses: np.ndarray, other: np.ndarray) -> bool:
    chosen = losses.argmin(axis=1)
    return bool(other[np.arange(len(losses)), chosen].min() == losses.min())


JOINT = Claim(
    id="A.eq-2",
    source="[A] eq. (1), (2)",
    statement="the nested problem (1) and the joint problem (2) have the same minimum",
    latex=r"\min_A L\big(A, \arg\min_\theta L(A, \theta, \mathcal{D}), \mathcal{D}\big) = "
    r"\min_A \min_\theta L(A, \theta, \mathcal{D})",
    verdict="holds",
    assumptions="the same data in both losses of (1), the same architectures, minima that exist",
    remark="(2) is called an approximation of (1): over the same architectures it is the same problem. It "
    "would be another one if architectures were judged on data that the weights have not seen.",
    checks=(Exact(nested_search_is_joint, loss_tables, {"judged on other data": _judged_on_other_data}),),
)

# The loss --------------------------------------------------------------------------------------------


def better_predictions_cost_less(
    output: ArrayLike, gain: ArrayLike, label: ArrayLike, sign: float = -1.0
) -> Sides:
    """`sign log(F^y (1 - F)^(1-y))`, `F = sigma(output)`, does not grow as F moves towards the label y."""

    def loss(logit: ArrayLike) -> Array:
        # log F = -softplus(-s), log(1 - F) = -softplus(s).
        return -sign * jax.nn.softplus(jnp.multiply(1 - 2 * jnp.asarray(label), logit))

    improved = output + (2 * jnp.asarray(label) - 1) * gain
    scale = 1 + jnp.abs(jnp.asarray(output)) + jnp.abs(jnp.asarray(gain))
    return Sides(loss(improved), loss(output), 8 * EPS * scale)


EQ_12 = Claim(
    id="A.eq-12",
    source="[A] eq. (12), section 3.1",
    statement="the loss is -log(F^y (1 - F)^(1-y)): it does not grow as the prediction F moves towards "
    "the label y",
    latex=r"\mathcal{L} = -|\mathcal{D}|^{-1} \sum_{(x, y)} \log\big(F^y (1 - F)^{1-y}\big) + \gamma "
    r"\|\theta\|^2",
    verdict="holds as corrected",
    remark="Printed without the minus: minimised, it makes the predictions as wrong as they can be.",
    checks=(
        Inequality(
            better_predictions_cost_less,
            cube(output=normal(3.0), gain=log_uniform(0.01, 10.0), label=choice(1.0, 0.0)),
            {"without the minus": functools.partial(better_predictions_cost_less, sign=1.0)},
        ),
    ),
    printed=(
        Counterexample(
            better_predictions_cost_less, {"output": -2.0, "gain": 4.0, "label": 1.0, "sign": 1.0}
        ),
    ),
    see=("A.logistic-convex",),
)

# The penalty -----------------------------------------------------------------------------------------


def penalty(scores: Array, strength: ArrayLike) -> Array:
    """`gamma sum_i (1 + w_i)^2` ([A] eq. 18)."""
    return jnp.multiply(strength, jnp.sum((1 + scores) ** 2))


def penalty_pulls(
    value: ArrayLike, rate: ArrayLike, strength: ArrayLike, target: float = -1.0, sign: float = 1.0
) -> Sides:
    """`|w+ - target| <= |w - target|` for `w+ = w - rate sign 2 gamma (w - target)`.

    That is the step of (17) where the gradient is 0. The target of a score is -1, that of a weight 0.
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
            cube(value=normal(2.0), rate=log_uniform(1.0, 1e-3), strength=log_uniform(1.0, 1e-3)),
            {"signs as printed": functools.partial(penalty_pulls, sign=-1.0)},
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
    see=("A.eq-17",),
)

CLAIMS = (JOINT, EQ_12, EQ_17, EQ_18)

"""The sign of the minimized loss ([A] section 3.1, eq. (12)).

L = -|D|^-1 sum log(F^y (1 - F)^(1-y)) + gamma |theta|^2
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch.lab.claims.checks.core import EPS, Claim, Counterexample, Sides
from jaxarch.lab.claims.checks.cube import choice, cube, log_uniform, normal
from jaxarch.lab.claims.checks.drawn import Inequality


def better_predictions_cost_less(
    output: ArrayLike, gain: ArrayLike, label: ArrayLike, sign: float = -1.0
) -> Sides:
    """`sign log(F^y (1 - F)^(1-y))`, `F = sigma(output)`, does not grow as F moves towards the label y."""

    def loss(logit: ArrayLike) -> Array:
        # log F = -softplus(-s) and log(1 - F) = -softplus(s) do not overflow.
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

CLAIMS = (EQ_12,)

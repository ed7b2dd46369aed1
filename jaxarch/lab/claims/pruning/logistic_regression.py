"""Logistic regression with masked weights: convex in the mask, its gradient unbounded ([A] section 3.1).

F(x) = sigma((v o theta)^T x)
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.core import Claim, Control, Counterexample, Sides
from jaxarch.lab.claims.checks.cube import choice, cube, normal, uniform
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.disentangling.mean_loss import lies_above_its_tangents


def logistic_regression(
    weights: Array,
    inputs: Array,
    labels: Array,
    point: Array,
    other: Array,
    sign: float = 1.0,
    tangent_elsewhere: bool = False,
) -> Sides:
    """(10) for the mean of `softplus(s) - y s`, `s = (v o theta)^T x`: minus the log-likelihood."""

    def loss(v: Array) -> Array:
        logits = inputs @ (v * weights)
        return sign * jnp.mean(jax.nn.softplus(logits) - labels * logits)

    scale = 1 + jnp.sum(jnp.abs(inputs) @ jnp.abs(weights))
    return lies_above_its_tangents(loss, point, other, scale, point if tangent_elsewhere else None)


LOGISTIC = Claim(
    id="A.logistic-convex",
    source="[A] section 3.1, eq. (10), (12)",
    statement="the loss of logistic regression with masked weights is convex in the mask, for fixed weights",
    latex=r"\ell(v) = -|\mathcal{D}|^{-1} \sum_{(x, y)} \log\big(F^y (1 - F)^{1-y}\big), \quad F = "
    r"\sigma((v \circ \theta)^T x)",
    verdict="holds",
    remark="With (12) as printed, of the other sign, it is concave.",
    checks=(
        Inequality(
            logistic_regression,
            cube(
                weights=normal(3.0, (3,)),
                inputs=normal(1.0, (4, 3)),
                labels=choice(0.0, 1.0, shape=(4,)),
                point=uniform(0.0, 1.0, (3,)),
                other=uniform(0.0, 1.0, (3,)),
            ),
            {
                "of the sign of (12)": functools.partial(logistic_regression, sign=-1.0),
                "gradient at v": functools.partial(logistic_regression, tangent_elsewhere=True),
            },
        ),
    ),
    see=("A.eq-12",),
)


def gradient_is_bounded_for_all_weights(weight: float, bound: float) -> Sides:
    """`|grad_v l| <= G` for logistic regression at x = 1, y = 0, v = 0, whatever the weight."""

    def loss(v: Array) -> Array:
        return jax.nn.softplus(v * weight)

    return Sides(jnp.abs(jax.grad(loss)(jnp.zeros(()))), jnp.asarray(bound))


BOUNDED_GRADIENT = Claim(
    id="A.assumption-1",
    source="[A] assumption 1, eq. (9), (19)",
    statement="max over z, v and all weights theta in R^D of |grad_v l| is finite",
    latex=r"\max_{z, v, \theta} \|\nabla_v \ell(z; v, \theta)\|^2 \le G^2",
    verdict="refuted",
    remark="The mask multiplies the weights, so the gradient in v grows with them: no finite G serves "
    "logistic regression for every theta. For fixed weights (footnote 9), or weights in a ball, there is "
    "one.",
    printed=(Counterexample(gradient_is_bounded_for_all_weights, {"weight": 100.0, "bound": 10.0}),),
    controls=(Control(gradient_is_bounded_for_all_weights, {"weight": 20.0, "bound": 10.0}),),
)

CLAIMS = (
    LOGISTIC,
    BOUNDED_GRADIENT,
)

"""The target function between linear and non-linear ([S] eq. (5.1)).

f(x) = ((1 - p) w x + p g(x))/2,        p = sigma(2 beta (alpha - 1/2))
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.core import EPS, Claim, Counterexample, Sides
from jaxarch.lab.claims.checks.cube import cube, log_uniform, uniform
from jaxarch.lab.claims.checks.drawn import Inequality


def weights_of_the_parts(alpha: Array, beta: Array) -> tuple[Array, Array]:
    """Compute the weights of `w x` and of `g(x)` in [S] (5.1)."""
    turn = jnp.tanh(beta * (alpha - 0.5))
    return (1 - turn) / 4, (1 + turn) / 4


def interpolation(alpha: Array, beta: Array, rate: float = 2.0) -> Sides:
    """The weights are `(1 - p)/2` and `p/2` with `p = sigma(2 beta (alpha - 1/2))`."""
    share = jax.nn.sigmoid(rate * beta * (alpha - 0.5))
    linear, other = weights_of_the_parts(alpha, beta)
    error = jnp.maximum(jnp.abs(linear - (1 - share) / 2), jnp.abs(other - share / 2))
    return Sides(error, jnp.asarray((4 + rate * beta) * EPS))


def linear_at_alpha_0(beta: float) -> Sides:
    """The weight of g at alpha = 0 is 0."""
    _, other = weights_of_the_parts(jnp.zeros(()), jnp.asarray(beta))
    return Sides(other, jnp.zeros(()))


INTERPOLATION = Claim(
    id="S.linear-to-nonlinear",
    source="[S] eq. (5.1)",
    statement="f(x) = ((1 - p) w x + p g(x)) / 2 with p = 1/(1 + exp(-2 beta (alpha - 1/2)))",
    latex=r"f(x) = \tfrac{1}{2} ((1 - p) \, w \cdot x + p \, g(x)), \quad p = \sigma(2 \beta (\alpha - 1/2))",
    verdict="holds as corrected",
    remark="Said to be 'purely linear' at alpha = 0 and 'fully nonlinear' at 1: the other part has the "
    "share 1/(1 + e^beta) there, .0067 for beta = 5. For beta = 1000 p is 0, 1/2 or 1 in floating point at "
    "every alpha of a grid of step 1/20.",
    checks=(
        Inequality(
            interpolation,
            cube(alpha=uniform(0.0, 1.0), beta=log_uniform(0.1, 1000.0)),
            {"1.99 for 2": functools.partial(interpolation, rate=1.99)},
        ),
    ),
    printed=(Counterexample(linear_at_alpha_0, {"beta": 5.0}),),
)

CLAIMS = (INTERPOLATION,)

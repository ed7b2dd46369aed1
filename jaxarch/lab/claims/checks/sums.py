"""Sums over the steps of a run, `sum_(t <= T) t^-p`, for a T of any size."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.cube import Field, often

EXPLICIT = 1000
"""Number of terms that are added one by one."""

COUNTS = often(1.0, Field(lambda u: jnp.round(10 ** (300 * u**3)), "of 1, ..., 10^300"))
"""T, from 1 (the simplest) to 10^300, where a factor of log T that is 0.1% too small is noticed."""


def first_terms(steps: Array, power: float) -> Array:
    """`sum_(t <= T) t^-p`, p = 1 or 1/2, with a relative error below `100 EPS`.

    Terms beyond the first `EXPLICIT` are added by the Euler-Maclaurin formula. Its remainder is below
    `EXPLICIT^(-p-3)/100`.
    """
    t = jnp.arange(1.0, EXPLICIT + 1)
    explicit = jnp.sum(jnp.where(t <= steps, t**-power, 0))
    end = jnp.maximum(steps, EXPLICIT)
    if power == 1:
        integral = jnp.log(end / EXPLICIT)
    else:
        integral = (end ** (1 - power) - EXPLICIT ** (1 - power)) / (1 - power)
    ends = (end**-power - EXPLICIT**-power) / 2
    slopes = power * (EXPLICIT ** (-power - 1) - end ** (-power - 1)) / 12
    return explicit + integral + ends + slopes

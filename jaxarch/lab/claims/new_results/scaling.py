r"""A change of temperatures, learning rate and scores that changes no mask (docs/theory.md).

(H, S, eta, w) -> (c H, c S, eta/c^2, w/c)
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import cube, log_uniform, normal, symlog
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.mirror_cases import HARD, RATIO
from jaxarch.lab.claims.checks.two_temperature import trajectory

SCALING_STEPS = 24


def scaling(
    directions: Array,
    slopes: Array,
    positions: Array,
    factor: Array,
    hard: Array,
    ratio: Array,
    reach: Array,
    power: int = 2,
    scaled_start: bool = True,
) -> Sides:
    """(H, S, eta, w) and (c H, c S, eta/c^2, w/c) give the same masks, over 24 steps.

    The loss is `sum_k cos(a_k^T v) + b^T v`. Its gradient has entries of at most G and slopes of at most L.
    Rounding errors grow by at most `1 + eta H S (L/16 + G rho/(6 sqrt 3))` a step.
    """
    soft = ratio * hard
    largest = jnp.sum(jnp.abs(directions)) + jnp.max(jnp.abs(slopes))
    rate = 16 * reach / (largest * hard * soft)

    def gradient(v: Array, _: Array) -> Array:
        return slopes - jnp.sin(directions @ v) @ directions

    def masks(w: Array, rate: Array, hard: Array, soft: Array) -> Array:
        at, _ = trajectory(gradient, w, jnp.arange(SCALING_STEPS), jnp.full(SCALING_STEPS, rate), hard, soft)
        return jax.nn.sigmoid(hard * at)

    w = positions / hard
    original = masks(w, rate, hard, soft)
    scaled = masks(w / factor if scaled_start else w, rate / factor**power, factor * hard, factor * soft)
    curvature = jnp.sum(directions**2) / 16 + largest * ratio / (6 * np.sqrt(3))
    growth = 1 + 16 * reach * (curvature / largest)
    travelled = jnp.max(jnp.abs(positions)) + 4 * reach * SCALING_STEPS
    errors = jnp.cumsum(jnp.cumprod(jnp.full(SCALING_STEPS, growth)))[-1]
    return Sides(jnp.max(jnp.abs(original - scaled)), EPS * (64 + 16 * travelled) * errors)


SCALING = Claim(
    id="two-temperature.scaling",
    source="this library; docs/theory.md",
    statement="(H, S, eta, w) -> (c H, c S, eta/c^2, w/c) leaves every mask v_t unchanged",
    latex=r"(H, S, \eta, w_1) \mapsto (c H, c S, \eta / c^2, w_1 / c) \text{ leaves every } v_t \text{ "
    r"unchanged}",
    verdict="holds",
    remark="With the start fixed in v and the rate tuned, only the ratio of the temperatures matters. "
    "Comparisons of temperatures at one rate, such as [D] figure 3 and [A] figure 1, compare rates as well.",
    checks=(
        Inequality(
            scaling,
            cube(
                directions=normal(1.0, (2, 3)),
                slopes=normal(1.0, (3,)),
                positions=symlog(10.0, 0.01, (3,)),
                factor=log_uniform(0.01, 100.0),
                hard=HARD,
                ratio=RATIO,
                reach=log_uniform(0.01, 1.0),
            ),
            {
                "eta/c for eta/c^2": functools.partial(scaling, power=1),
                "w for w/c": functools.partial(scaling, scaled_start=False),
            },
        ),
    ),
)

CLAIMS = (SCALING,)

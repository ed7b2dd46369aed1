r"""The gap between the relaxed and the binary problem ([D] eq. (3), section 4; [A] eq. (6), section 2.2).

inf_w F(sigma_M(w)) = min over [0, 1]^d of F <= min over {0, 1}^d of F,        for every M

M is `sharpness`.
"""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch.lab.claims.checks.core import EPS, Claim, Control, Counterexample, Sides
from jaxarch.lab.claims.checks.cube import cube, log_uniform, normal, often, symlog, uniform
from jaxarch.lab.claims.checks.drawn import Inequality

CONNECTIONS = 3

CORNERS = np.asarray(list(itertools.product((0.0, 1.0), repeat=CONNECTIONS)))


def every_sharpness_has_the_same_masks(
    scores: Array, sharpness: Array, other: Array, scaled: bool = True
) -> Sides:
    """`sigma_M(w) = sigma_M'(M w/M')`: all sharpnesses reach the same masks."""
    elsewhere = sharpness / other * scores if scaled else scores
    apart = jnp.abs(jax.nn.sigmoid(sharpness * scores) - jax.nn.sigmoid(other * elsewhere))
    return Sides(apart, EPS * (8 + jnp.abs(sharpness * scores)))


def concave_entry_by_entry(
    coefficients: Array, curvatures: Array, scores: Array, sharpness: Array, sign: float = 1.0
) -> Sides:
    """`min over {0, 1}^d of F <= F(sigma_M(w))`, F affine in each entry less `curvatures v^2`."""

    def loss(v: Array) -> Array:
        # Each set of entries has a coefficient, which multiplies their product.
        products = jnp.prod(jnp.where(CORNERS > 0, v[None], 1), axis=1)
        return coefficients @ products - sign * (curvatures @ v**2)

    least = jnp.min(jax.vmap(loss)(jnp.asarray(CORNERS)))
    size = jnp.sum(jnp.abs(coefficients)) + jnp.sum(curvatures)
    return Sides(least, loss(jax.nn.sigmoid(sharpness * scores)), 64 * EPS * size)


RELAXED_MINIMUM = Claim(
    id="binarize.relaxed-minimum",
    source="what remains of [D] section 4, [A] section 2.2; docs/theory.md",
    statement="inf_w F(sigma_M(w)) is the minimum of F on [0, 1]^d for every M, at most that on {0, 1}^d, "
    "and equal to it if F is concave in each entry of the mask",
    latex=r"\inf_w F(\sigma_M(w)) = \min_{v \in [0, 1]^d} F(v) \le \min_{u \in \{0, 1\}^d} F(u)",
    assumptions="F continuous on [0, 1]^d",
    verdict="holds",
    remark="Equal if and only if some minimiser on the cube is binary. The mean of a loss over random masks "
    "with independent entries is affine in each of their means.",
    checks=(
        Inequality(
            every_sharpness_has_the_same_masks,
            cube(
                scores=symlog(1.0, 1e-3),
                sharpness=log_uniform(1.0, 1000.0),
                other=log_uniform(1.0, 1000.0),
            ),
            {"at the same scores": functools.partial(every_sharpness_has_the_same_masks, scaled=False)},
        ),
        Inequality(
            concave_entry_by_entry,
            cube(
                coefficients=normal(1.0, (len(CORNERS),)),
                curvatures=often(0.0, uniform(0.0, 3.0, (CONNECTIONS,))),
                scores=symlog(1.0, 1e-3, (CONNECTIONS,)),
                sharpness=log_uniform(1.0, 1000.0),
            ),
            {"convex in each entry, a little": functools.partial(concave_entry_by_entry, sign=-0.1)},
        ),
    ),
    see=("D.tightness", "binarize.one-to-one"),
)


def relaxation_is_within(center: float, sharpness: float, error: float) -> Sides:
    """`min over {0, 1} of F - inf_w F(sigma_M(w)) <= error` for `F(v) = (v - center)^2`.

    The infimum is attained, at `w = logit(center)/M`.
    """
    position = jnp.log(center) - jnp.log1p(-jnp.asarray(center))
    relaxed = (jax.nn.sigmoid(sharpness * (position / sharpness)) - center) ** 2
    least = jnp.minimum(jnp.square(center), jnp.square(1 - jnp.asarray(center)))
    return Sides(least - relaxed, jnp.asarray(error), 8 * EPS)


def read_off_is_locally_optimal(sharpness: float, together: float) -> Sides:
    """No flip of an entry of `u = 1[w > 0]` lowers a convex F, w the minimizer of `F(sigma_M(w))`.

    `F(v) = (v_1 - 3/5)^2 + together (v_1 + v_2 - 6/5)^2`, least at (3/5, 3/5).
    """

    def loss(v: Array) -> Array:
        return (v[0] - 0.6) ** 2 + together * (v[0] + v[1] - 1.2) ** 2

    scores = jnp.full(2, jnp.log(1.5) / sharpness)
    mask = (scores > 0).astype(scores.dtype)
    flipped = jnp.abs(mask[None] - jnp.eye(2))
    return Sides(loss(mask), jnp.min(jax.vmap(loss)(flipped)), 8 * EPS)


TIGHTNESS = Claim(
    id="D.tightness",
    source="[D] eq. (3), section 4; [A] eq. (6), section 2.2, after theorem 2.1",
    statement="min_w F(sigma_M(w)) approximates the minimum of F on {0, 1}^d, the better the larger M, and "
    "1[w > 0] is locally optimal for large M",
    latex=r"\lim_{M \to \infty} \inf_w F(\sigma_M(w)) = \min_{u \in \{0, 1\}^d} F(u)",
    verdict="refuted",
    remark="sigma_M maps R^d onto (0, 1)^d whatever M is, so the infimum is the same number for all of them: "
    "0 for F = (v - 1/2)^2, whose minimum on {0, 1} is 1/4. Nor need the mask that is read off where it is "
    "attained be locally optimal, even if F is convex (last case). At fixed scores F(sigma_M(w)) does tend "
    "to F(1[w > 0]); but where it is least w moves, like 1/M. What a large M does change is the geometry and "
    "the speed of the descent, through the ratio of the temperatures and the rate.",
    printed=(
        Counterexample(relaxation_is_within, {"center": 0.5, "sharpness": 50.0, "error": 0.2}),
        Counterexample(relaxation_is_within, {"center": 0.5, "sharpness": 50_000.0, "error": 0.2}),
        Counterexample(read_off_is_locally_optimal, {"sharpness": 50.0, "together": 1.0}),
    ),
    controls=(
        Control(relaxation_is_within, {"center": 0.5, "sharpness": 50.0, "error": 0.25}),
        Control(relaxation_is_within, {"center": 0.01, "sharpness": 1.0, "error": 1e-4}),
        Control(read_off_is_locally_optimal, {"sharpness": 50.0, "together": 0.0}),
    ),
    see=(
        "binarize.relaxed-minimum",
        "binarize.limit",
        "two-temperature.scaling",
        "two-temperature.vertex-distance",
    ),
)

CLAIMS = (
    RELAXED_MINIMUM,
    TIGHTNESS,
)

"""The mean of convex losses is convex ([D] lemma 4.1, appendix B, eq. (16) to (19)).

F(v) - F(v') >= grad F(v')^T (v - v'),        F = |D|^-1 sum_z f(., z)
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import cube, log_uniform, normal, often, uniform
from jaxarch.lab.claims.checks.drawn import Inequality


def lies_above_its_tangents(
    loss: Callable[[Array], Array],
    point: Array,
    other: Array,
    scale: Array,
    tangent_at: Array | None = None,
    factor: float = 1.0,
) -> Sides:
    """`grad F(v')^T (v - v') <= F(v) - F(v')`, where F sums terms of size at most `scale`."""
    gradient = jax.grad(loss)(other if tangent_at is None else tangent_at)
    return Sides(factor * gradient @ (point - other), loss(point) - loss(other), 64 * EPS * scale)


def _convex_losses(v: Array, slopes: Array, directions: Array) -> Array:
    return jax.nn.softplus(slopes @ v) + (directions @ v) ** 2 / 2


def mean_of_convex_losses(
    slopes: Array,
    directions: Array,
    point: Array,
    other: Array,
    share: Array,
    last: float = 1.0,
    tangent_elsewhere: bool = False,
    factor: float = 1.0,
) -> Sides:
    """(16) for the mean of `softplus(a_i^T v) + (b_i^T v)^2/2`; the last loss is weighted by `last`.

    v lies `share` of the way from v' to `point`. Near v', F nearly touches its tangent.
    """

    def mean(v: Array) -> Array:
        return _convex_losses(v, slopes, directions).at[-1].multiply(last).mean()

    point = other + share * (point - other)
    scale = 1 + jnp.abs(slopes).sum() + jnp.abs(directions).sum() ** 2
    return lies_above_its_tangents(
        mean, point, other, max(abs(last), 1) * scale, point if tangent_elsewhere else None, factor
    )


_LOSSES = cube(
    slopes=normal(2.0, (4, 3)),
    directions=normal(1.0, (4, 3)),
    point=uniform(0.0, 1.0, (3,)),
    other=uniform(0.0, 1.0, (3,)),
    share=often(1.0, log_uniform(1.0, 1e-3)),
)

LEMMA_4_1 = Claim(
    id="D.lemma-4.1",
    source="[D] lemma 4.1; appendix B, lemma B.1, eq. (16)-(19)",
    statement="the mean of convex losses is convex: F(v) - F(v') >= grad F(v')^T (v - v')",
    latex=r"F(v) - F(v') \ge \nabla F(v')^T (v - v'), \quad F = |\mathcal{D}|^{-1} \sum_{z} f(\cdot, z)",
    verdict="holds",
    assumptions="every f(., z) convex and differentiable on [0, 1]^d",
    checks=(
        Inequality(
            mean_of_convex_losses,
            _LOSSES,
            {
                "one loss concave": functools.partial(mean_of_convex_losses, last=-10.0),
                "gradient at v": functools.partial(mean_of_convex_losses, tangent_elsewhere=True),
                "gradient 1% larger": functools.partial(mean_of_convex_losses, factor=1.01),
            },
        ),
    ),
)

CLAIMS = (LEMMA_4_1,)

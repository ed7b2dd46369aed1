"""The mean of convex losses is convex, with the factor 1/|D| ([A] lemma B.1, eq. (21) to (24))."""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxarch.lab.claims.checks.core import EPS, Claim, Counterexample, Sides
from jaxarch.lab.claims.checks.cube import cube, normal, uniform
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.disentangling.mean_loss import LEMMA_4_1


def mean_of_differences(slopes: ArrayLike, point: ArrayLike, other: ArrayLike, mean: bool = True) -> Sides:
    """`F(v) - F(v') = |D|^-1 sum_z (f(v, z) - f(v', z))` for linear f; F is a mean or, as printed, a sum."""
    slopes, point, other = map(jnp.asarray, (slopes, point, other))
    share = 1 / len(slopes)
    loss, loss_of_other = (jnp.sum(slopes @ v) * (share if mean else 1) for v in (point, other))
    right = jnp.sum(slopes @ point - slopes @ other) * share
    return Sides(jnp.abs(loss - loss_of_other - right), 16 * EPS * (1 + jnp.sum(jnp.abs(slopes))))


LEMMA_B_1 = Claim(
    id="A.lemma-B.1",
    source="[A] lemma B.1, eq. (21)-(24)",
    statement="as [D] lemma 4.1, for F(v) = |D|^-1 sum_z f(v, z)",
    latex=r"F(v) - F(v') = |\mathcal{D}|^{-1} \sum_z f(v, z) - f(v', z) \ge \nabla F(v')^T (v - v')",
    verdict="holds as corrected",
    assumptions="every f(., z) convex and differentiable on [0, 1]^d",
    remark="F is printed without 1/|D|, and (22) has it. Without it F is convex too, but E(grad f) is not "
    "its gradient and G does not bound it, as (50) needs.",
    checks=(
        Inequality(
            mean_of_differences,
            cube(slopes=normal(2.0, (4, 3)), point=uniform(0.0, 1.0, (3,)), other=uniform(0.0, 1.0, (3,))),
            {"F a sum, as printed": functools.partial(mean_of_differences, mean=False)},
        ),
        LEMMA_4_1.checks[0],
    ),
    printed=(
        Counterexample(
            mean_of_differences,
            {"slopes": ((1.0,), (1.0,)), "point": (1.0,), "other": (0.0,), "mean": False},
        ),
    ),
    see=("D.lemma-4.1",),
)

CLAIMS = (LEMMA_B_1,)

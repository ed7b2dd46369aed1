r"""The steps of the proof of convergence that [A] adds to [D]'s ([A] appendix B, eq. (54) to (57))."""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch.lab.claims.checks.core import EPS, Claim, Counterexample, Sides
from jaxarch.lab.claims.checks.cube import cube, often, uniform
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.sums import COUNTS, first_terms


def telescoping_roots(distances: Array, weights: float = 0.0, last: float = 0.5) -> Sides:
    """`sum_t sqrt t (a_t - a_(t+1)) = sum_t (sqrt t - sqrt(t-1)) a_t - sqrt T a_(T+1)`.

    [A] (55) has the weights one step later (`weights=1`), and T for sqrt T (`last=1`).
    """
    steps = len(distances) - 1
    t = jnp.arange(1.0, steps + 1)
    left = jnp.sum(jnp.sqrt(t) * (distances[:-1] - distances[1:]))
    differences = jnp.sqrt(t + weights) - jnp.sqrt(t + weights - 1)
    right = jnp.sum(differences * distances[:-1]) - steps**last * distances[-1]
    return Sides(jnp.abs(left - right), 64 * EPS * jnp.sum(jnp.sqrt(t) * distances[:-1] + distances[1:]))


def root_sum(steps: Array, constant: float = 2.0, first: float = 1.0) -> Sides:
    """`sum_(t <= T) 1/sqrt t <= 2 sqrt T - 1`; `first` is the right side at T = 1."""
    right = constant * jnp.sqrt(steps) - (constant - first)
    return Sides(first_terms(steps, 0.5), right, 1000 * EPS * right)


def telescoping_roots_as_printed(distances: tuple[float, ...], variance: float) -> Sides:
    """(54) is at most (55), both times 2cT; `variance` is `c^2 G^2 (1 + C)`."""
    a = jnp.asarray(distances)
    steps = len(distances) - 1
    t = jnp.arange(1.0, steps + 1)
    left = jnp.sum(jnp.sqrt(t) * (a[:-1] - a[1:]) + variance / jnp.sqrt(t))
    right = jnp.sum((jnp.sqrt(t + 1) - jnp.sqrt(t)) * a[:-1] + variance / t) - steps * a[-1]
    return Sides(left, right)


EQ_55 = Claim(
    id="A.eq-55",
    source="[A] eq. (54)-(56)",
    statement="sum_t sqrt t (a_t - a_(t+1)) = sum_t (sqrt t - sqrt(t-1)) a_t - sqrt T a_(T+1), and "
    "sum_(t <= T) 1/sqrt t <= 2 sqrt T - 1",
    latex=r"\sum_{t=1}^T \sqrt t\, (a_t - a_{t+1}) = \sum_{t=1}^T (\sqrt t - \sqrt{t-1})\, a_t - \sqrt T "
    r"a_{T+1}, \quad \sum_{t=1}^T \frac{1}{\sqrt t} \le 2 \sqrt T - 1",
    verdict="holds as corrected",
    remark="(55) prints the weights one step late, T for sqrt T, and 1/t for 1/sqrt t: the last makes a "
    "term that decays like 1/sqrt T look like log T/T. (56) is right about sum_t (sqrt(t+1) - sqrt t) <= "
    "sqrt T.",
    checks=(
        Inequality(
            telescoping_roots,
            cube(distances=uniform(0.0, 3.0, (9,))),
            {
                "weights one step late": functools.partial(telescoping_roots, weights=1.0),
                "weights a tenth of a step late": functools.partial(telescoping_roots, weights=0.1),
                "T for sqrt T": functools.partial(telescoping_roots, last=1.0),
            },
        ),
        Inequality(
            root_sum,
            cube(steps=COUNTS),
            {
                "1.99 sqrt T - .99": functools.partial(root_sum, constant=1.99),
                "2 sqrt T - 1.1": functools.partial(root_sum, first=0.9),
            },
        ),
    ),
    printed=(
        Counterexample(telescoping_roots_as_printed, {"distances": (1.0, 0.0), "variance": 0.0}),
        Counterexample(
            telescoping_roots_as_printed, {"distances": (1.0, 1.0, 1.0, 1.0, 1.0), "variance": 0.0}
        ),
        Counterexample(
            telescoping_roots_as_printed, {"distances": (0.0, 0.0, 0.0, 0.0, 0.0), "variance": 1.0}
        ),
    ),
    see=("projected-sgd.convex",),
)


def squared_distance(point: ArrayLike, other: ArrayLike, bound: float | None = None) -> Sides:
    """`|v - v*|^2 <= d`, or another bound."""
    point, other = jnp.asarray(point), jnp.asarray(other)
    right = jnp.asarray(float(point.size) if bound is None else bound)
    return Sides(jnp.sum((point - other) ** 2), right, 8 * EPS * right)


EQ_57 = Claim(
    id="A.eq-57",
    source="[A] eq. (57)",
    statement="|v - v*|^2 <= d on [0, 1]^d",
    latex=r"\|v - v^*\|^2 \le d, \quad v, v^* \in [0, 1]^d",
    verdict="holds as corrected",
    remark="From (56) to (57) it is taken to be at most 2, whatever d.",
    checks=(
        Inequality(
            squared_distance,
            cube(point=often(0.0, uniform(0.0, 1.0, (3,))), other=often(1.0, uniform(0.0, 1.0, (3,)))),
            {"2, as printed": functools.partial(squared_distance, bound=2.0)},
        ),
    ),
    printed=(
        Counterexample(squared_distance, {"point": (0.0, 0.0, 0.0), "other": (1.0, 1.0, 1.0), "bound": 2.0}),
    ),
    see=("A.theorem-2.1",),
)

CLAIMS = (
    EQ_55,
    EQ_57,
)

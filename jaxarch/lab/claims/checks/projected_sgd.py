"""Runs of projected SGD on quadratic losses, with their regret and their expected gap."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch.lab.claims.checks.core import EPS
from jaxarch.lab.claims.checks.cube import Field, log_uniform, normal, often, uniform

LONGEST = 32
"""Largest number of steps of a drawn run."""

OUTCOMES = np.asarray(list(itertools.product(range(4), repeat=4)))
"""Outcomes of four steps, each with one of two losses and one of two signs of the error: 256 in all."""


def decaying_rates(c: Array, steps: int, root: bool) -> Array:
    """Return the rates `c/t`, or `c/sqrt t` if `root`."""
    t = jnp.arange(1.0, steps + 1)
    return c / (jnp.sqrt(t) if root else t)


def _average(values: Array, steps: Array) -> Array:
    """Average the first `steps` values along the first axis."""
    met = jnp.arange(len(values)) < steps
    return jnp.tensordot(met / steps, values, 1)


def _quadratic(curvature: Array, slopes: Array, v: Array) -> Array:
    """Compute `sum_i curvature_i/2 v_i^2 + slope_i v_i`."""
    return v**2 @ curvature / 2 + jnp.sum(slopes * v, axis=-1)


def _minimiser(curvature: Array, slope: Array) -> Array:
    """Return the minimizer of `_quadratic` on [0, 1]^d."""
    inside = -slope / jnp.where(curvature > 0, curvature, 1)
    return jnp.clip(jnp.where(curvature > 0, inside, -jnp.sign(slope)), 0, 1)


def largest_gradient(curvature: Array, slopes: Array) -> Array:
    """Compute G, the largest gradient norm over the cube and all losses; `slopes` has shape (losses, d)."""
    largest = jnp.maximum(jnp.abs(slopes), jnp.abs(curvature[None] + slopes))
    return jnp.max(jnp.linalg.norm(largest, axis=1))


def met_losses(slopes: Array, steps: Array) -> Array:
    """Replace the slopes after `steps` by the first one: losses that are not met must not count in G."""
    return jnp.where((jnp.arange(len(slopes)) < steps)[:, None], slopes, slopes[:1])


def regret_of_projected_sgd(
    curvature: Array, slopes: Array, start: Array, rates: Array, steps: Array
) -> Array:
    """Compute `1/T sum_t f_t(v_t) - f_t(u)` of projected SGD on quadratic losses, at the best u."""

    def step(v: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        slope, rate = now
        return jnp.clip(v - rate * (curvature * v + slope), 0, 1), v

    _, v = jax.lax.scan(step, start, (slopes, rates))
    best = jnp.broadcast_to(_minimiser(curvature, _average(slopes, steps)), v.shape)
    return _average(_quadratic(curvature, slopes, v) - _quadratic(curvature, slopes, best), steps)


def expected_gap(
    curvature: Array, slopes: Array, start: Array, error: Array, rates: Array, steps: Array, bias: float
) -> Array:
    """Compute `E 1/T sum_t F(v_t) - F*` over all outcomes, with errors `r = (bias +- error) g`."""

    def follow(outcomes: Array) -> Array:
        def step(v: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            outcome, rate = now
            gradient = curvature * v + slopes[outcome // 2]
            sign = 2 * (outcome % 2) - 1
            return jnp.clip(v - rate * (1 - bias - sign * error) * gradient, 0, 1), v

        end, v = jax.lax.scan(step, start, (outcomes, rates))
        return jax.vmap(loss)(jnp.concatenate([v, end[None]]))

    def loss(v: Array) -> Array:
        return _quadratic(curvature, mean, v)

    mean = jnp.mean(slopes, axis=0)
    losses = jnp.mean(jax.vmap(follow)(jnp.asarray(OUTCOMES)), axis=0)
    return _average(losses, steps) - loss(_minimiser(curvature, mean))


class Step(NamedTuple):
    """Expected quantities of one step, over two losses and two signs of the error."""

    gap: Array
    """`F(v) - F(u)`."""
    near: Array
    """`|v - u|^2`."""
    far: Array
    """`E |v+ - u|^2`."""
    square: Array
    """`E |g|^2`."""

    def rounding(self, rate: Array) -> Array:
        """Bound the rounding error of any of these quantities, divided by the rate."""
        return 64 * EPS * (1 + (self.near + self.far) / rate + (1 + rate) * self.square)


def step_of_projected_sgd(
    curvature: Array, slopes: Array, v: Array, u: Array, rate: Array, error: Array, bias: float = 0.0
) -> Step:
    """Take one step from v with errors `r = (bias +- error) g`; F is the mean of both losses."""

    def follow(slope: Array, sign: Array) -> tuple[Array, Array]:
        gradient = curvature * v + slope
        following = jnp.clip(v - rate * (1 - bias - sign * error) * gradient, 0, 1)
        return jnp.sum((following - u) ** 2), jnp.sum(gradient**2)

    far, squares = jax.vmap(follow)(jnp.repeat(slopes, 2, axis=0), jnp.asarray([1.0, -1.0, 1.0, -1.0]))
    gap = jnp.sum((v - u) * (curvature * (v + u) / 2 + jnp.mean(slopes, axis=0)))
    return Step(gap, jnp.sum((v - u) ** 2), jnp.mean(far), jnp.mean(squares))


ONE_STEP: dict[str, Field] = {
    "curvature": often(0.0, log_uniform(1e-3, 10.0, (2,))),
    "slopes": normal(1.0, (2, 2)),
    "v": uniform(0.0, 1.0, (2,)),
    "u": often(0.0, uniform(0.0, 1.0, (2,))),
    "error": often(0.0, log_uniform(0.1, 10.0)),
}
"""Variables of one step. At small rates nothing is clipped, and the proofs' inequality is an equation."""

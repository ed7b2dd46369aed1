"""Algorithm 1 of [D] and [A] on a loss with a known minimum, and the gaps of its iterates."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch.lab.claims.checks.two_temperature import trajectory

THREE_QUARTERS = 0.27465307216702745
"""The score at which `sigma(4 w) = 3/4`."""

WITHOUT_ERROR = 0.2205200702202729
"""The score at which a step of rate 1/1000 on `(v - 1/2)^2` has no error: p = 1 and r = 0, H = S = 8."""

SLOPE_WITHOUT_ERROR = 0.7074599515764519
"""The gradient there, `2 sigma(8 w) - 1`."""


class SeparableLoss(NamedTuple):
    """`f(v) = linear v + curvature (v - 1/2)^2` in each of `dimension` equal coordinates."""

    linear: float
    curvature: float
    dimension: int

    def loss(self, v: ArrayLike) -> Array:
        """Compute the loss of a mask whose entries are all v."""
        v = jnp.asarray(v)
        return self.dimension * (self.linear * v + self.curvature * (v - 0.5) ** 2)

    def gradient(self, v: ArrayLike) -> Array:
        """Compute the gradient, which is the same in each coordinate."""
        return self.linear + 2 * self.curvature * (jnp.asarray(v) - 0.5)

    def gap(self, v: ArrayLike) -> Array:
        """Compute `f(v) - min f`, the minimum over the cube."""
        ends = jnp.stack([jnp.zeros(()), jnp.ones(())])
        inside = 0.5 - self.linear / (2 * self.curvature) if self.curvature else 0.0
        return self.loss(v) - jnp.min(self.loss(jnp.append(ends, jnp.clip(inside, 0, 1))))

    @property
    def bound(self) -> Array:
        """G: the largest norm of the gradient on the cube."""
        return jnp.sqrt(self.dimension) * jnp.max(jnp.abs(self.gradient(jnp.arange(2.0))))


class Run(NamedTuple):
    """Iterates of a run: `last` is v^T, `following` v^(T+1).

    `average` is the mean of v^1..v^T, and `average_loss` the mean of their losses.
    """

    last: Array
    following: Array
    average: Array
    average_loss: Array
    largest: Array
    """The largest |w^t|, t <= T + 1."""


def algorithm_1(
    problem: SeparableLoss, hard: float, soft: float, rate: Callable[[Array], Array], score: float, steps: int
) -> Run:
    """Take T = `steps` steps of the two-temperature gradient from w^1 = score."""
    t = jnp.arange(1.0, steps + 1)
    w, _ = trajectory(lambda v, _: problem.gradient(v), jnp.asarray(score), t, rate(t), hard, soft)
    v, following = jax.nn.sigmoid(hard * w[:-1]), jax.nn.sigmoid(hard * w[-1])
    return Run(v[-1], following, v.mean(), problem.loss(v).mean(), jnp.max(jnp.abs(w)))


def smallest_gap(problem: SeparableLoss, run: Run) -> Array:
    """Return the smallest gap of the last iterate, the next and the average, as the theorems may mean any."""
    return jnp.min(jnp.stack([problem.gap(v) for v in (run.last, run.following, run.average)]))

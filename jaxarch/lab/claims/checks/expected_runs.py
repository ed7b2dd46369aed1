"""Exact expectations over the examples of two-temperature runs, from all sequences of examples."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch.lab.claims.checks.core import EPS
from jaxarch.lab.claims.checks.cube import choice, cube, integer, log_uniform, normal, often, uniform
from jaxarch.lab.claims.checks.mirror_cases import COMPARATOR, DIMENSION, HARD, POSITIONS, RATIO, inside
from jaxarch.lab.claims.checks.two_temperature import divergence_rounding, step_rounding, trajectory
from jaxarch.theory import mirror

EXAMPLES_STEPS = 6

SEQUENCES = np.asarray(list(itertools.product((0, 1), repeat=EXAMPLES_STEPS)))
"""All sequences of two equally likely examples over 6 steps; an expectation is the mean over them."""


class Runs(NamedTuple):
    """Runs on all sequences of examples.

    `scores` have shape (sequences, steps + 1, d), `gradients` (sequences, steps, d).
    """

    scores: Array
    gradients: Array
    loss: Callable[[Array], Array]
    """F."""
    comparator: Array
    distances: Array
    """D(u, v_1), entry by entry."""
    largest: Array
    """G."""
    steps: Array
    rates: Array
    """0 after T steps."""
    hard: Array
    soft: Array
    sizes: Array
    """The size that the terms of F add up to."""

    @property
    def distance(self) -> Array:
        """D(u, v_1)."""
        return jnp.sum(self.distances)

    @property
    def masks(self) -> Array:
        """The masks v_1, ..., v_T; entries after the T-th have no meaning."""
        return jax.nn.sigmoid(self.hard * self.scores[:, :-1])

    def gap(self, masks: Array) -> Array:
        """Compute `E F(v) - F(u)` from one mask per sequence."""
        return jnp.mean(jax.vmap(self.loss)(masks)) - self.loss(self.comparator)

    @property
    def rounding(self) -> Array:
        """The rounding error of a gap on the left of a bound whose first term is D over the sum of rates."""
        start = self.scores[0, 0]
        of_start = divergence_rounding(self.comparator, start, self.distances, self.hard, self.soft)

        def of_steps(scores: Array, gradients: Array) -> Array:
            rates = self.rates[:, None]
            return step_rounding(scores, gradients, self.comparator, rates, self.hard, self.soft)

        moved = jnp.mean(jax.vmap(of_steps)(self.scores, self.gradients))
        return (jnp.sum(of_start) + moved) / jnp.sum(self.rates) + 64 * EPS * self.sizes


def runs_on_two_examples(
    slopes: Array,
    difference: Array,
    disagreement: Array,
    bend: Array,
    center: Array,
    positions: Array,
    comparator: Array,
    beyond: Array,
    hard: Array,
    ratio: Array,
    reach: Array,
    steps: Array,
    decay: float = 0.0,
    prescribed: bool = False,
) -> Runs:
    """Run on two examples of `f(v, z) = (1 - bend) y + bend sqrt(1 + y^2)`, `y = a_z^T (v - center)`.

    `a_0` is `slopes`, and `a_1` differs from it by `disagreement difference`. f is convex, and G is the
    larger of their norms. `reach` sets the first of the rates `eta_t = eta / t^decay`, unless rates are
    `prescribed`. If `beyond` is not 0, u lies `beyond` times as far from v_1 as T steps on F itself lead.
    Steps on F are not random.
    """
    soft = ratio * hard
    directions = jnp.stack([slopes, slopes + disagreement * difference])
    largest = jnp.max(jnp.linalg.norm(directions, axis=1))
    largest = jnp.maximum(largest, 1e-3)

    def example_loss(v: Array, z: Array) -> Array:
        y = directions[z] @ (v - center)
        return (1 - bend) * y + bend * jnp.sqrt(1 + y**2)

    def loss(v: Array) -> Array:
        return (example_loss(v, jnp.asarray(0)) + example_loss(v, jnp.asarray(1))) / 2

    rate = 16 * reach / (largest * hard * soft)
    if prescribed:
        distance = mirror.start_distance(DIMENSION, hard, soft)
        rate = mirror.prescribed_rate(distance, hard, soft, gradient_bound=largest, steps=steps)
    t = jnp.arange(1.0, EXAMPLES_STEPS + 1)
    rates = jnp.where(t <= steps, rate / t**decay, 0)
    start = positions / hard

    def run(gradient: Callable[[Array, Array], Array], examples: Array) -> tuple[Array, Array]:
        return trajectory(gradient, start, examples, rates, hard, soft)

    to_end, _ = run(lambda v, _: jax.grad(loss)(v), jnp.zeros(EXAMPLES_STEPS, int))
    first, end = jax.nn.sigmoid(hard * to_end[0]), jax.nn.sigmoid(hard * to_end[-1])
    target = jnp.clip(first + beyond * (end - first), 0, 1)
    u = inside(jnp.where(beyond > 0, target, comparator), ratio)
    scores, gradients = jax.vmap(lambda examples: run(jax.grad(example_loss), examples))(
        jnp.asarray(SEQUENCES)
    )
    distances = mirror.bregman_divergence(u, start, hard, soft)
    sizes = 1 + jnp.sum(jnp.abs(directions)) * (1 + jnp.max(jnp.abs(center)))
    return Runs(scores, gradients, loss, u, distances, largest, steps, rates, hard, soft, sizes)


EXAMPLES = {
    "slopes": normal(1.0, (DIMENSION,)),
    "difference": normal(1.0, (DIMENSION,)),
    "disagreement": often(0.0, uniform(0.0, 3.0)),
    "bend": often(0.0, uniform(0.0, 1.0)),
    "center": uniform(0.5, 1.5, (DIMENSION,)),
    "comparator": COMPARATOR,
    "hard": HARD,
    "steps": integer(1, EXAMPLES_STEPS),
}

RUNS = cube(
    **EXAMPLES, beyond=choice(1.0, 2.5, 0.0), positions=POSITIONS, ratio=RATIO, reach=log_uniform(1e-3, 10.0)
)


def weakened(bound: Callable[[ArrayLike], Array], distance: Array, first: float, second: ArrayLike) -> Array:
    """Turn a library bound `a D + b` into `first a D + second b`."""
    return bound(first * distance) + (second - 1) * bound(0.0)

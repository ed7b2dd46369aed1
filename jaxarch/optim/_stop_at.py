"""Scores that are fixed once few enough of them are positive."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jax import Array

from jaxarch._internal.errors import ArgumentError
from jaxarch._internal.trees import PyTree
from jaxarch.masks import check_density, hard_mask
from jaxarch.masks import density as density_of


class StopState(NamedTuple):
    """Progress of `stop_at`.

    Attributes:
      step: the number of steps so far, int32.
      reached_at: the step after which the scores were fixed, or -1: int32.
    """

    step: Array
    reached_at: Array


def stop_at(density: float) -> optax.GradientTransformation:
    """Fix the scores of a mask once the share of positive ones is at most `density` ([A] Algorithm 1).

    Put it last in a chain: it takes the step that reaches the density, and all later updates are 0.

        scores = nnx.Optimizer(model, optax.chain(optax.sgd(1.1), stop_at(0.1)), wrt=jaxarch.nnx.Score)

    The share is over all scores that it gets. It may fall below `density` by as many connections as one step
    removes; `masks.keep(scores, density)` gives the exact size.

    Args:
      density: the share of connections, in (0, 1].

    Returns:
      An optax transformation, whose `update` needs the scores as `params`.

    Raises:
      ArgumentError: a density outside (0, 1]; an update without the scores.

    Example:
      >>> import jax.numpy as jnp, jaxarch, optax
      >>> tx = optax.chain(optax.sgd(1.0), jaxarch.optim.stop_at(0.5))
      >>> scores = jnp.array([2.5, 1.5])
      >>> state = tx.init(scores)
      >>> for _ in range(4):
      ...     updates, state = tx.update(jnp.ones(2), state, scores)
      ...     scores = optax.apply_updates(scores, updates)
      >>> print(scores, state[1].reached_at)
      [ 0.5 -0.5] 2
    """
    check_density("density", density)

    def init(scores: PyTree) -> StopState:
        return StopState(jnp.zeros((), jnp.int32), jnp.full((), -1, jnp.int32))

    def update(
        updates: PyTree, state: StopState, scores: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, StopState]:
        if scores is None:
            raise ArgumentError("params: stop_at needs the scores: tx.update(gradients, state, scores)")
        held = state.reached_at >= 0
        updates = optax.tree.where(held, optax.tree.zeros_like(updates), updates)
        there = density_of(hard_mask(optax.apply_updates(scores, updates))) <= density
        step = optax.safe_increment(state.step)
        return updates, StopState(step, jnp.where(there & ~held, step, state.reached_at))

    return optax.GradientTransformationExtraArgs(init, update)

"""Gradient descent for one run, as pure functions: what `fit` loops over and `vmap` maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from jaxarch.problem import Found, Problem
from jaxarch.trees import PyTree


class Start(NamedTuple):
    """Where a training starts: what it moves, what it holds fixed, and the model's state."""

    trainable: PyTree
    fixed: PyTree
    state: PyTree


@dataclasses.dataclass(frozen=True)
class Training:
    """A search or finish whose work is gradient descent, as pure functions.

    `training(key, problem)` runs it whole, under any transformation but reverse mode; `fit` runs it in
    chunks, with everything that a long training needs.

    Attributes:
      name: shown in progress and reports.
      init: `(key, problem, found) -> Start`; `found` is what the stage before found, `None` for a search.
      params: `(trainable, fixed) -> params`, differentiable: what the problem's loss is called with.
      found: `(trainable, fixed, state) -> Found`: what was learned, read off at the end.
      optimizer: any optax transformation; `None` for the problem's own.
      remedy: what to change when the start has a gradient of exactly zero.
    """

    name: str
    init: Callable[[Array, Problem, Found | None], Start]
    params: Callable[[PyTree, PyTree], PyTree]
    found: Callable[[PyTree, PyTree, PyTree], Found]
    optimizer: optax.GradientTransformation | None = None
    remedy: str = "start from other values, or use an activation with a slope there"

    def __call__(self, key: Array, problem: Problem, found: Found | None = None) -> Found:
        """What one run finds, all steps in one loop."""
        carry = begin(self, key, problem, found)
        carry, losses = advance(self, key, problem, carry, 0, problem.steps, problem.steps)
        return conclude(self, carry, losses)


class Carry(NamedTuple):
    """All that a training hands from one step to the next: what a checkpoint holds.

    `failed_at` is the first step whose loss was not finite (-1: none); `dead` tells for each trainable leaf
    whether its gradient at step 0 was exactly zero.
    """

    trainable: PyTree
    fixed: PyTree
    state: PyTree
    opt_state: PyTree
    failed_at: Array
    dead: Array


def begin(training: Training, key: Array, problem: Problem, found: Found | None) -> Carry:
    """The carry before the first step."""
    init_key, _, _ = jax.random.split(key, 3)
    trainable, fixed, state = training.init(init_key, problem, found)
    opt_state = _optimizer(training, problem).init(trainable)
    dead = jnp.zeros(len(jax.tree.leaves(trainable)), bool)
    return Carry(trainable, fixed, state, opt_state, jnp.asarray(-1, jnp.int32), dead)


def step(training: Training, key: Array, problem: Problem, carry: Carry, index: Array) -> tuple[Carry, Array]:
    """One gradient step, and the loss that it started from. Its randomness depends on key and index alone."""
    _, batch_key, loss_key = jax.random.split(key, 3)
    batch = problem.batch(jax.random.fold_in(batch_key, index))
    loss_key = jax.random.fold_in(loss_key, index)

    def loss(trainable: PyTree) -> tuple[Array, PyTree]:
        params = training.params(trainable, carry.fixed)
        return problem.loss(params, carry.state, batch, loss_key)

    (value, state), gradient = jax.value_and_grad(loss, has_aux=True)(carry.trainable)
    updates, opt_state = _optimizer(training, problem).update(
        gradient,
        carry.opt_state,
        carry.trainable,
        value=value,
        grad=gradient,
        value_fn=lambda trainable: loss(trainable)[0],
    )
    dead = jax.lax.cond(index == 0, lambda: _all_zero(gradient), lambda: carry.dead)
    failed = (carry.failed_at < 0) & ~jnp.isfinite(value)
    carry = Carry(
        trainable=optax.apply_updates(carry.trainable, updates),
        fixed=carry.fixed,
        state=state,
        opt_state=opt_state,
        failed_at=jnp.where(failed, index, carry.failed_at),
        dead=dead,
    )
    return carry, value


def advance(
    training: Training,
    key: Array,
    problem: Problem,
    carry: Carry,
    start: int | Array,
    stop: int | Array,
    size: int,
) -> tuple[Carry, Array]:
    """Steps `start` to `stop`, and their losses in an array of `size` (the rest of it is NaN).

    `start` and `stop` may be traced, so that one compiled program serves every chunk, the last one included.
    """

    def body(index: Array, loop: tuple[Carry, Array]) -> tuple[Carry, Array]:
        carry, losses = loop
        carry, value = step(training, key, problem, carry, index)
        return carry, losses.at[index - start].set(value.astype(losses.dtype))

    losses = jnp.full((size,), jnp.nan, jnp.float32)
    start = jnp.asarray(start, jnp.int32)
    return jax.lax.fori_loop(start, jnp.asarray(stop, jnp.int32), body, (carry, losses))


def conclude(training: Training, carry: Carry, losses: Array) -> Found:
    """What was found, with what `fit` and users look at in its `info`."""
    found = training.found(carry.trainable, carry.fixed, carry.state)
    looked_at = {"loss": losses, "failed_at": carry.failed_at, "dead_start": carry.dead.any()}
    return found._replace(info={**found.info, **looked_at})


def _optimizer(training: Training, problem: Problem) -> optax.GradientTransformationExtraArgs:
    return optax.with_extra_args_support(training.optimizer or problem.optimizer)


def _all_zero(gradient: PyTree) -> Array:
    return jnp.stack([jnp.all(leaf == 0) for leaf in jax.tree.leaves(gradient)])

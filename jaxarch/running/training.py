"""Gradient descent for one run, as pure functions: what `fit` loops over and `vmap` maps."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from jaxarch.problem import Network, Problem
from jaxarch.trees import PyTree

WAKING = 32
"""A leaf is dead if its gradient is exactly zero in so many first steps, not in one alone.

Where layers wait for others to move, as in networks that begin with zeros, a first gradient of zero is no
harm: in a spectral network that starts as a perceptron, each hidden layer follows a step after the next.
"""


class TrainState(NamedTuple):
    """Where a training stands.

    Attributes:
      trainable: what gradient descent moves.
      fixed: what it does not, a mask or frozen weights for instance.
      state: the model's state: batch norm's and the like.
      memory: what the training's `observe` keeps from step to step; `None` without.
      step: how many steps have been taken.
    """

    trainable: PyTree
    fixed: PyTree
    state: PyTree
    memory: PyTree = None
    step: int | Array = 0


@dataclasses.dataclass(frozen=True)
class Training:
    """A search or finish whose work is gradient descent, as pure functions.

    `training(key, problem)` runs it whole, under any transformation but reverse mode; `fit` runs it in
    chunks, with everything that a long training needs.

    Attributes:
      name: shown in progress and reports.
      init: `(key, problem, network) -> TrainState`; `network` is what the stage before found, `None` for a search.
      params: `point -> params`, differentiable in `point.trainable`: what the problem's loss is called with.
      network: `point -> Network`: what has been learned. It is read off at the end, and judged by validation.
      optimizer: any optax transformation; `None` for the problem's own.
      penalty: `point -> scalar`, added to the loss, differentiable in `point.trainable`.
      observe: `point -> memory`, called after every step: snapshots, running means. The memory that `init`
        returns has the same structure, shapes and dtypes.
      remedy: what to change when the start has a gradient of exactly zero.
      remarks: `found -> lines`, called by `fit` with all runs: what users should know of what was found. They
        are warned, and are among the report's notes.
    """

    name: str
    init: Callable[[Array, Problem, Network | None], TrainState]
    params: Callable[[TrainState], PyTree]
    network: Callable[[TrainState], Network]
    optimizer: optax.GradientTransformation | None = None
    penalty: Callable[[TrainState], Array] | None = None
    observe: Callable[[TrainState], PyTree] | None = None
    remedy: str = "start from other values, or use an activation with a slope there"
    remarks: Callable[[Network], Iterable[str]] | None = None

    def __call__(self, key: Array, problem: Problem, network: Network | None = None) -> Network:
        """What one run finds, all steps in one loop."""
        carry = begin(self, key, problem, network)
        carry, losses = advance(self, key, problem, carry, 0, problem.steps, problem.steps)
        return conclude(self, carry, losses)


class Carry(NamedTuple):
    """All that a training hands from one step to the next: what a checkpoint holds.

    `failed_at` is the first step whose loss was not finite (-1: none); `dead` tells for each trainable leaf
    whether its gradient was exactly zero in all of the first `WAKING` steps.
    """

    point: TrainState
    opt_state: PyTree
    failed_at: Array
    dead: Array


def begin(training: Training, key: Array, problem: Problem, network: Network | None) -> Carry:
    """The carry before the first step."""
    init_key, _, _ = jax.random.split(key, 3)
    point = training.init(init_key, problem, network)._replace(step=jnp.zeros((), jnp.int32))
    opt_state = (training.optimizer or problem.optimizer).init(point.trainable)
    dead = jnp.ones(len(jax.tree.leaves(point.trainable)), bool)
    return Carry(point, opt_state, jnp.asarray(-1, jnp.int32), dead)


def step(training: Training, key: Array, problem: Problem, carry: Carry, index: Array) -> tuple[Carry, Array]:
    """One gradient step, and the loss that it started from. Its randomness depends on key and index alone."""
    _, batch_key, loss_key = jax.random.split(key, 3)
    batch = problem.batch(jax.random.fold_in(batch_key, index))
    loss_key = jax.random.fold_in(loss_key, index)
    point = carry.point

    def loss(trainable: PyTree) -> tuple[Array, PyTree]:
        at = point._replace(trainable=trainable)
        value, state = problem.loss(training.params(at), point.state, batch, loss_key)
        return value if training.penalty is None else value + training.penalty(at), state

    (value, state), gradient = jax.value_and_grad(loss, has_aux=True)(point.trainable)
    optimizer = training.optimizer or problem.optimizer
    extra = {"value": value, "grad": gradient, "value_fn": lambda trainable: loss(trainable)[0]}
    updates, opt_state = optimizer.update(
        gradient, carry.opt_state, point.trainable, **_accepted(optimizer, extra)
    )
    moved = point._replace(
        trainable=optax.apply_updates(point.trainable, updates), state=state, step=point.step + 1
    )
    if training.observe is not None:
        moved = moved._replace(memory=training.observe(moved))
    dead = jax.lax.cond(index < WAKING, lambda: carry.dead & _all_zero(gradient), lambda: carry.dead)
    failed = (carry.failed_at < 0) & ~jnp.isfinite(value)
    return Carry(moved, opt_state, jnp.where(failed, index, carry.failed_at), dead), value


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


def conclude(training: Training, carry: Carry, losses: Array) -> Network:
    """What was found, with what `fit` and users look at in its `info`."""
    network = training.network(carry.point)
    # The last update has no loss after it that would show NaN.
    broken = (carry.failed_at < 0) & ~_all_finite(carry.point.trainable)
    failed_at = jnp.where(broken, carry.point.step, carry.failed_at)
    looked_at = {"loss": losses, "failed_at": failed_at, "dead_start": carry.dead.any()}
    return network._replace(info={**network.info, **looked_at})


def _accepted(optimizer: optax.GradientTransformation, extra: dict[str, Any]) -> dict[str, Any]:
    """Those extra arguments that an optimiser's update takes."""
    parameters = inspect.signature(optimizer.update).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return extra
    return {name: value for name, value in extra.items() if name in parameters}


def _all_zero(gradient: PyTree) -> Array:
    return jnp.stack([jnp.all(leaf == 0) for leaf in jax.tree.leaves(gradient)])


def _all_finite(tree: PyTree) -> Array:
    return jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]).all()

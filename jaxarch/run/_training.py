"""Gradient descent for one run, as pure functions that `fit` loops over and `vmap` maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from jaxarch._internal.errors import check_count, check_instance, check_one_key, is_traced
from jaxarch._internal.trees import PyTree, inexact, merge
from jaxarch.run._descent import THE_PROBLEMS, OwnDescent, accepted, asked
from jaxarch.run._evaluated import check_evaluated, evaluated
from jaxarch.run._keyed import equal_by_key, unkeyed
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem, check_is_problem
from jaxarch.run._records import ByDensity, Start
from jaxarch.run._run_keys import RunKeys
from jaxarch.run._stage import NOTHING, Needs, Removed, check_network, check_problem

WAKING = 32
"""Number of first steps in all of which the gradient of a dead leaf is exactly zero.

One step is not enough: layers may wait for others to move, as in networks that begin with zeros. In a
spectral network that starts as a perceptron, each hidden layer moves one step after the next layer.
"""


class TrainState(NamedTuple):
    """State of a training between two steps.

    Attributes:
      trainable: what gradient descent moves.
      fixed: what it does not move, a mask or frozen weights for instance.
      model: the model's state, such as batch norm's.
      memory: what the training's `after_step` keeps from step to step; `None` without.
      step: how many steps have been taken.
      optimizer: the state of the optimizer, for `after_step` alone; `None` everywhere else.
      sample: which of the step's samples is computed, from 0 on; `None` if there is one. For `params` alone.
    """

    trainable: PyTree
    fixed: PyTree
    model: PyTree
    memory: PyTree = None
    step: int | Array = 0
    optimizer: PyTree = None
    sample: Array | None = None


@equal_by_key
@dataclasses.dataclass(frozen=True, eq=False)
class Training:
    """A stage that works by gradient descent, as pure functions of its settings.

    `training(key, problem)` runs all steps, under any transformation but reverse mode. `over_seeds` runs it
    in chunks, with everything that a long training needs. Define the functions at the top of a module: then
    two trainings of equal settings are equal, and compile once.

    Attributes:
      name: shown in progress, reports and errors.
      init: `(settings, key, problem, network) -> TrainState`; `network` is the result of the stage before, or
        `None`.
      params: `(settings, state) -> params`, differentiable in `state.trainable`: the argument of the
        problem's loss.
      network: `(settings, state) -> Network`: the learned network. It is computed at the end, and for
        validation.
      settings: a frozen dataclass of numbers, texts and functions; its numbers may be traced.
      descent: the stage's own changes to the problem's descent, from `own_descent`.
      penalty: `(settings, state) -> scalar`, added to the loss, differentiable in `state.trainable`.
      after_step: `(settings, state) -> memory`, called after every step: snapshots, running means, a mask
        that the optimizer holds (`optim.find_mask(state.optimizer)`). The memory that `init` returns has the
        same structure, shapes and dtypes.
      wrap_optimizer: `(settings, key, problem, state) -> optimizer`: the problem's optimizer,
        `problem.descent.optimizer`, wrapped in something such as `optim.sparse`. It is called before the
        first step with the state that `init` returns, and at every step with the current state. The key is
        the run's, the same in all calls.
      gap: `(settings, state, problem) -> scalar`: distance from stationarity, over all training rows, for
        `EarlyStopping("gap")`; `None` if there is no such number.
      remedy: what to change when the start has a gradient of exactly zero.
      remarks: `network -> lines`, called with all runs: what users should know about the result. The lines
        become warnings, and notes of the report.
      needs: the stage's requirements.
      removes: what the stage may remove from its network.
      samples: number of times that a step computes the loss of its batch, each with the `params` of another
        `state.sample`. The step descends on their mean; a model's state goes from one to the next.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> def init(settings, key, problem, network):
      ...     params, state = problem.start(key)
      ...     return jaxarch.TrainState(params, None, state)
      >>> def found(settings, state):
      ...     return jaxarch.Network(state.trainable, state=state.model)
      >>> training = jaxarch.Training("plain", init, lambda settings, state: state.trainable, found)
      >>> training(jax.random.key(0), problem).info["loss"].shape  # a step each
      (2,)
    """

    name: str
    init: Callable[[Any, Array, Problem, Any], TrainState]
    params: Callable[[Any, TrainState], PyTree]
    network: Callable[[Any, TrainState], Network]
    settings: Any = None
    descent: OwnDescent = THE_PROBLEMS
    penalty: Callable[[Any, TrainState], Array] | None = None
    after_step: Callable[[Any, TrainState], PyTree] | None = None
    wrap_optimizer: Callable[[Any, Array, Problem, TrainState], optax.GradientTransformation] | None = None
    gap: Callable[[Any, TrainState, Problem], Array] | None = None
    remedy: str = "start from other values, or use an activation whose slope is not 0 there"
    remarks: Callable[[Network], Iterable[str]] | None = None
    needs: Needs = NOTHING
    removes: tuple[Removed, ...] = ("connections",)
    samples: int = 1

    def __call__(self, key: Array, problem: Problem, network: Network | None = None) -> Network:
        """Train one run, all steps in one loop."""
        check_network(self, network)
        check_problem(self, problem)
        steps = self.on(problem).descent.steps
        carry = begin(self, key, problem, network)
        carry, losses = advance(self, key, problem, carry, 0, steps, steps)
        return joined(network, with_losses(conclude(self, carry), losses))

    def on(self, problem: Problem) -> Problem:
        """Return the problem with the descent of this training."""
        descent = self.descent.of(problem.descent)
        return problem if descent is problem.descent else dataclasses.replace(problem, descent=descent)

    def optimizer(self, key: Array, problem: Problem, state: TrainState) -> optax.GradientTransformation:
        """Return the wrapped optimizer; `problem` must have this training's descent (see `on`)."""
        if self.wrap_optimizer is None:
            return problem.descent.optimizer
        return self.wrap_optimizer(self.settings, key, problem, state)


class Carry(NamedTuple):
    """Everything that a training hands from one step to the next; checkpoints hold it.

    `failed_at` is the first step whose loss was not finite (-1: none). `dead` tells for each trainable leaf
    whether its gradient was exactly zero in all of the first `WAKING` steps.
    """

    state: TrainState
    opt_state: PyTree
    failed_at: Array
    dead: Array


def begin(training: Training, key: Array | RunKeys, problem: Problem, network: Network | None) -> Carry:
    """Return what a training carries from step to step, before the first one.

    It is for one run, and may be traced and mapped.

    Args:
      training: the training.
      key: the run's key: its start, its batches, its losses and its optimizer draw from it.
      problem: the problem of one run.
      network: the result of the stage before, or `None`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=5)
      >>> search, key = jaxarch.search.dense(), jax.random.key(0)
      >>> carry = jaxarch.run.begin(search, key, problem, None)
      >>> carry, losses = jaxarch.run.advance(search, key, problem, carry, 0, 5, size=5)
      >>> print(losses.shape, carry.state.step)
      (5,) 5
    """
    _check_one(training, key, problem)
    problem = training.on(problem)
    keys = RunKeys.of(key)
    state = training.init(training.settings, keys.start, problem, network)
    state = state._replace(step=jnp.zeros((), jnp.int32))
    moves = inexact(state.trainable)
    opt_state = asked("parameters", training.optimizer(keys.optimizer, problem, state).init, moves)
    check_evaluated(opt_state)
    dead = jnp.ones(len(jax.tree.leaves(moves)), bool)
    return Carry(state, opt_state, jnp.asarray(-1, jnp.int32), dead)


def step(
    training: Training, key: Array | RunKeys, problem: Problem, carry: Carry, index: Array
) -> tuple[Carry, Array]:
    """Take one gradient step; return the carry and the loss before the step.

    The step's randomness depends on the key and the index alone.
    """
    problem = training.on(problem)
    keys = RunKeys.of(key).at_step()
    batch = problem.batch(keys.batches, index)
    loss_key = jax.random.fold_in(keys.losses, index)
    settings, state, loss_of = training.settings, carry.state, unkeyed(problem.loss)

    def loss(moves: PyTree) -> tuple[Array, PyTree]:
        at = state._replace(trainable=merge(moves, state.trainable))
        # The loss of a single sample is called from here: another function would lengthen tracebacks.
        if training.samples == 1:
            value, model = loss_of(training.params(settings, at), state.model, batch, loss_key)
        else:
            value, model = _mean_loss(training, loss_of, at, batch, loss_key)
        return value if training.penalty is None else _plus(value, training.penalty(settings, at)), model

    (value, model), gradient = jax.value_and_grad(loss, has_aux=True)(inexact(state.trainable))
    extra = {"value": value, "grad": gradient, "value_fn": lambda moves: loss(moves)[0]}
    moved, opt_state = descended(
        training,
        keys.optimizer,
        problem,
        state._replace(model=model),
        carry.opt_state,
        gradient,
        extra,
        index,
    )
    # All runs share the index, so this stays a branch under `vmap`, and later steps skip the comparison.
    dead = jax.lax.cond(index < WAKING, lambda: carry.dead & _all_zero(gradient), lambda: carry.dead)
    failed = (carry.failed_at < 0) & ~jnp.isfinite(value)
    return Carry(moved, opt_state, jnp.where(failed, index, carry.failed_at), dead), value


def _plus(value: Array, penalty: Array) -> Array:
    """Add a penalty to a loss, each in the precision that it was computed in."""
    with jax.numpy_dtype_promotion("standard"):
        return value + penalty


def _mean_loss(
    training: Training, loss_of: Callable[..., Any], at: TrainState, batch: PyTree, key: Array
) -> tuple[Array, PyTree]:
    """Return the loss of a step, as a mean over its samples, and the model's state after the last one."""

    def one(model: PyTree, sample: Array) -> tuple[PyTree, Array]:
        params = training.params(training.settings, at._replace(sample=sample))
        value, model = loss_of(params, model, batch, jax.random.fold_in(key, sample))
        return model, value

    model, values = jax.lax.scan(one, at.model, jnp.arange(training.samples))
    return values.mean(), model


def descended(
    training: Training,
    optimizer_key: Array,
    problem: Problem,
    state: TrainState,
    opt_state: PyTree,
    gradient: PyTree,
    extra: dict[str, Any],
    step: int | Array,
) -> tuple[TrainState, PyTree]:
    """Return the training state and the optimizer state after a step along a gradient.

    Args:
      training: the training.
      optimizer_key: `RunKeys.optimizer` of the run.
      problem: the problem with this training's descent (see `Training.on`).
      state: the state before the step, with the model's state after it.
      opt_state: the optimizer's state.
      gradient: in `inexact(state.trainable)`.
      extra: further arguments that the optimizer's update may take.
      step: how many steps were taken, for an optimizer that takes it. If all runs of a program share it, work
        that the optimizer does at some steps only is not computed at the others.
    """
    optimizer = training.optimizer(optimizer_key, problem, state)
    moves, told = inexact(state.trainable), accepted(optimizer, extra, step)
    updates, opt_state = asked("parameters", optimizer.update, gradient, opt_state, moves, **told)
    trainable = merge(optax.apply_updates(moves, updates), state.trainable)
    moved = state._replace(trainable=trainable, step=state.step + 1)
    if training.after_step is not None:
        memory = training.after_step(training.settings, moved._replace(optimizer=opt_state))
        moved = moved._replace(memory=memory)
    return moved, opt_state


def advance(
    training: Training,
    key: Array | RunKeys,
    problem: Problem,
    carry: Carry,
    start: int | Array,
    stop: int | Array,
    size: int,
) -> tuple[Carry, Array]:
    """Take the steps from `start` to `stop`; return the carry and their losses, zeros up to `size`.

    `start` and `stop` may be traced, so that one compiled program serves every chunk, the last one included.
    The other arguments are those of `begin`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=5)
      >>> search, key = jaxarch.search.dense(), jax.random.key(0)
      >>> carry = jaxarch.run.begin(search, key, problem, None)
      >>> carry, losses = jaxarch.run.advance(search, key, problem, carry, 0, 3, size=4)
      >>> print(losses[:3] > 0, losses[3])
      [ True  True  True] 0.0
    """
    _check_one(training, key, problem)
    check_instance("carry", carry, Carry, "a Carry returned by `begin`")
    check_count("size", size)
    for name, step in (("start", start), ("stop", stop)):
        if not is_traced(step):
            check_count(name, step.item() if isinstance(step, Array) and not step.ndim else step, 0)
    return jax.lax.fori_loop(*span(start, stop), *chunk(training, key, problem, carry, start, size))


def _check_one(training: Training, key: Array | RunKeys, problem: Problem) -> None:
    """Raise unless the arguments are a training, the key of one run, and a problem."""
    check_instance("training", training, Training, "a search that trains, such as search.dense()")
    check_is_problem(problem)
    if not isinstance(key, RunKeys):
        check_one_key(key)


def span(start: int | Array, stop: int | Array) -> tuple[Array, Array]:
    """Return the bounds of a loop over steps."""
    return jnp.asarray(start, jnp.int32), jnp.asarray(stop, jnp.int32)


def chunk(
    training: Training,
    key: Array | RunKeys,
    problem: Problem,
    carry: Carry,
    start: int | Array,
    size: int,
) -> tuple[Callable[[Any, Any], Any], tuple[Carry, Array]]:
    """Return the body of a loop over at most `size` steps from `start`, and the value that it begins with.

    Both are for `jax.lax.fori_loop`, whose index is the step.
    """
    keys, start = RunKeys.of(key), jnp.asarray(start, jnp.int32)

    def body(index: Array, loop: tuple[Carry, Array]) -> tuple[Carry, Array]:
        carry, losses = loop
        carry, value = step(training, keys, problem, carry, index)
        return carry, losses.at[index - start].set(value.astype(losses.dtype))

    # Fill with zeros: `jax_debug_nans` would take NaN for an error.
    return body, (carry, jnp.zeros((size,), jnp.float32))


def conclude(training: Training, carry: Carry) -> Network:
    """Return the learned network, and whether it failed or began dead."""
    state = to_evaluate(carry)
    network = training.network(training.settings, state)
    # No loss follows the last update, so NaN in its weights must be looked for here.
    broken = (carry.failed_at < 0) & ~all_finite(state.trainable)
    failed_at = jnp.where(broken, carry.state.step, carry.failed_at)
    return network.replace(info=network.info.replace(failed_at=failed_at, dead_start=carry.dead.any()))


def with_losses(network: Network, losses: Array) -> Network:
    """Return the network with the loss before each step in its `info`."""
    return network.replace(info=network.info | {"loss": losses})


def joined(before: Network | None, after: Network) -> Network:
    """Update a network with the result of a training; failures and dead starts of either one stay recorded.

    Architectures by density are removed: they belong to the earlier weights.
    """
    if before is None:
        return after
    first, info = before.info, after.info
    if first.failed_at is not None and info.failed_at is not None:
        info = info.replace(failed_at=jnp.where(first.failed_at >= 0, first.failed_at, info.failed_at))
    if first.dead_start is not None and info.dead_start is not None:
        info = info.replace(dead_start=first.dead_start | info.dead_start)
    return before.without(ByDensity).then(after.replace(info=info))


def weights_before(
    start: Literal["warm", "rewind"], key: Array, problem: Problem, network: Network
) -> tuple[PyTree, PyTree]:
    """Return a network's found weights and model state, or those that its search started from (`rewind`)."""
    if start == "warm":
        return network.params, network.state
    params, model = network[Start].params, network[Start].state
    if model is None:
        _, model = problem.init(key)
    return params, model


def to_evaluate(carry: Carry) -> TrainState:
    """Return the state with the weights at which the optimizer is evaluated."""
    return carry.state._replace(trainable=evaluated(carry.opt_state, carry.state.trainable))


def _all_zero(gradient: PyTree) -> Array:
    return jnp.stack([jnp.all(leaf == 0) & (leaf.size > 0) for leaf in jax.tree.leaves(gradient)])


def all_finite(tree: PyTree) -> Array:
    """Return whether all entries of all leaves are finite."""
    return jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(inexact(tree))]).all()

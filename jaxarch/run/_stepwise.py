"""A search as pure functions of a state, for your own training loop."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from jaxarch._internal.errors import ArgumentError, ResultWarning, check_one_key, is_traced, shown
from jaxarch._internal.trees import PyTree, check_trainable, inexact, merge, named_leaves
from jaxarch.run._descent import Descent
from jaxarch.run._evaluated import evaluated
from jaxarch.run._frozen import check_frozen
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._run_keys import RunKeys
from jaxarch.run._training import Training, TrainState, all_finite, begin, descended


class StepwiseState(NamedTuple):
    """State of a search: a pytree, for `jit`, `vmap`, `lax.scan` and checkpoints.

    Attributes:
      training: what descends, and what does not. Its `step` is how many steps have been taken, and its own
        `optimizer` is empty.
      optimizer: the state of the optimizer.
      key: the key that the search began with.
    """

    training: TrainState
    optimizer: PyTree
    key: Array

    @property
    def trainable(self) -> PyTree:
        """Return what descends, weights or scores or both: the argument of the gradient.

        It has `None` in place of leaves that have no gradient, such as integers: they stay.
        """
        return inexact(self.training.trainable)


@dataclasses.dataclass(frozen=True)
class Stepwise:
    r"""A search as pure functions of a state, for your own training loop.

    The search defines the parameters of a step, `params(trainable, state)`. Your loop takes the gradient of
    its own loss through them, and `update` takes the step:

        search = jaxarch.Stepwise(jaxarch.search.movement(0.1), optax.adam(1e-2), steps=1000)
        state = search.init(jax.random.key(0), params)

        @jax.jit
        def step(state, batch):
            def loss(trainable):
                return loss_of(search.params(trainable, state), batch)

            value, gradients = jax.value_and_grad(loss)(state.trainable)
            return search.update(gradients, state), value

    With the same key, parameters and batches it finds what the search finds for a `Problem`, step by step.
    The state belongs to one run; to have several, map all of it:
    `jax.vmap(search.init, (0, None))`, `jax.vmap(search.network)`. It is for searches that descend, from
    parameters that are not pruned yet. For searches that score connections once, such as SNIP, use
    `jaxarch.saliency` and `masks.keep` in your own loop; for rounds of pruning, add `optim.hold`.

    Args:
      search: a `Training`. Its own settings come first: a `scores_optimizer`, its `steps`.
      optimizer: any optax transformation, for everything that the search has no optimizer for; `None` if it
        has one for everything, as architecture pruning does.
      steps: how many steps the loop will take; a search that anneals a temperature or a density depends on
        it.

    Raises:
      ArgumentError: a search that does not descend; one that needs a network, or units of a model by name
        (give it those of `Groups.units`), or has batches of its own; no optimizer although one is needed, or
        one that would not be used; steps that are not a positive integer.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> params = {"w": jnp.array([3.0, -0.1, 2.0, 0.2])}
      >>> search = jaxarch.Stepwise(jaxarch.search.movement(0.5, where="w"), optax.sgd(0.1), steps=20)
      >>> state = search.init(jax.random.key(0), params)
      >>> for _ in range(20):
      ...     def loss(trainable):
      ...         return jnp.square(search.params(trainable, state)["w"] - jnp.array([4.0, 0, 1.0, 0])).sum()
      ...     state = search.update(jax.grad(loss)(state.trainable), state)
      >>> print(search.network(state).mask["w"])
      [ True False  True False]
    """

    search: Training
    optimizer: optax.GradientTransformation | None
    steps: int

    def __post_init__(self) -> None:
        search = self.search
        if not isinstance(search, Training):
            raise ArgumentError(
                f"search: expected a search that trains, such as search.movement(0.1), got {shown(search)}; "
                "to prune in your own loop, use jaxarch.saliency and masks.keep"
            )
        if search.needs.network == "required":
            raise ArgumentError(
                f"search: {search.name} needs a network; to train under a mask in your own loop, use "
                "optim.hold"
            )
        if search.needs.predict:
            raise ArgumentError(
                f"search: {search.name} has no problem's model to read its units from; give it the units of "
                "jaxarch.structure.axis_groups(...).units(...)"
            )
        for name, _ in search.descent.changes:
            if name in ("batch_size", "sampling"):
                raise ArgumentError(f"{name}: your own loop chooses the batches; leave it out")
        if search.descent.has_optimizer and self.optimizer is not None:
            raise ArgumentError(
                f"optimizer: {search.name} has its own optimizer, so this one would not be used; give it to "
                "the search, and None here"
            )
        optimizer = optax.identity() if search.descent.has_optimizer else self.optimizer
        object.__setattr__(self, "optimizer", Descent(optimizer, self.steps).optimizer)

    def init(self, key: Array, params: PyTree) -> StepwiseState:
        """Return the state before the first step.

        Args:
          key: key for what the search draws: scores, noise, what grows.
          params: any pytree of arrays; for a Flax NNX model `nnx.state(model, nnx.Param)`. They are copied,
            so that the state may be donated. Leaves without a gradient, such as integers, stay as they are.

        Raises:
          ArgumentError: an argument that is not a key; parameters none of which is floating point, or masked
            leaves that are not floating point; an optimizer that does not take them; a search that `steps` do
            not suit, or that looks at a problem's loss, as `spectral(proximal=True)`.
        """
        check_one_key(key)
        check_trainable(params)
        problem = self._problem(params)
        carry = begin(self.search, key, problem, None)
        check_frozen(self.search.name, self.search.descent, problem.descent.optimizer, carry.state.trainable)
        return jax.tree.map(jnp.copy, StepwiseState(carry.state, carry.opt_state, key))

    def params(self, trainable: PyTree, state: StepwiseState, sample: int | Array | None = None) -> PyTree:
        """Return the parameters that a step computes with, in the structure of those given to `init`.

        They are differentiable in `trainable`, along the search's own gradient if that is not the true one.
        To compute with the result, without noise and under a mask of {0, 1}, use `network(state).params`.

        A search with several `search.samples` draws more than one network a step. Give the number of the
        sample, from 0 on, and descend on the mean of their losses.
        """
        _check_one(state)
        at = _with(state.training, "trainable", trainable)
        if sample is not None:
            at = at._replace(sample=jnp.asarray(sample, jnp.int32))
        return self.search.params(self.search.settings, at)

    def penalty(self, state: StepwiseState) -> Array:
        """Return the search's penalty on the loss, a scalar, for inspection: `update` adds it by itself."""
        _check_one(state)
        return self._penalty(state.trainable, state.training)

    def update(self, gradients: PyTree, state: StepwiseState, **extra: Any) -> StepwiseState:
        """Return the state after a step.

        Args:
          gradients: gradients of the loss in `state.trainable`, without the search's penalty, whose gradient
            is added.
          state: the state before the step.
          **extra: further arguments of the optimizer's `update`, such as `value=` for `reduce_on_plateau`, of
            the loss without the penalty. If states are mapped, pass the `step` that they share, so that a
            mask that changes now and then is not computed at every step. If scores and weights have an
            optimizer each, both get these arguments.
        """
        _check_one(state)
        training, moves = state.training, state.trainable
        _check_alike("gradients", gradients, moves)
        step = extra.pop("step", training.step)
        if self.search.penalty is not None:
            value, of_penalty = jax.value_and_grad(self._penalty)(moves, training)
            gradients = jax.tree.map(jnp.add, gradients, of_penalty)
            if "value" in extra:
                extra["value"] = extra["value"] + value
            if "value_fn" in extra:
                loss = extra["value_fn"]
                extra["value_fn"] = lambda trainable: loss(trainable) + self._penalty(trainable, training)
        after, optimizer = descended(
            self.search,
            RunKeys.of(state.key).optimizer,
            self.search.on(self._problem(None)),
            training,
            state.optimizer,
            gradients,
            {"grad": gradients, **extra},
            step,
        )
        return StepwiseState(after, optimizer, state.key)

    def network(self, state: StepwiseState) -> Network:
        """Return the current result: `params` under the `mask`, and the search's `info`.

        Weights are those at which the optimizer is evaluated: x of `optax.contrib.schedule_free`.

        Call it after any step: it returns what the search would find if that step were the last. After the
        planned number of steps, outside of `jit` and `vmap`, it warns of what users should know. Its
        `info.failed_at` is the step if some numbers are not finite, and -1 otherwise. Its `state` is empty,
        since batch statistics belong to the loop.
        """
        _check_one(state)
        training = state.training
        training = training._replace(trainable=evaluated(state.optimizer, training.trainable))
        network = self.search.network(self.search.settings, training)
        failed_at = jnp.where(all_finite(training.trainable), -1, training.step)
        network = network.replace(info=network.info.replace(failed_at=failed_at))
        if self.search.remarks is None or is_traced(state):
            return network
        if int(training.step) >= self.search.on(self._problem(None)).descent.steps:
            for line in self.search.remarks(jax.tree.map(lambda leaf: np.asarray(leaf)[None], network)):
                warnings.warn(f"{self.search.name}: {line}", ResultWarning, stacklevel=2)
        return network

    def _penalty(self, trainable: PyTree, training: TrainState) -> Array:
        if self.search.penalty is None:
            return jnp.zeros(())
        return self.search.penalty(self.search.settings, _with(training, "trainable", trainable))

    def _problem(self, params: PyTree) -> Problem:
        """Return a problem with all that a search reads from one: the initial parameters and the descent."""

        def loss(params: PyTree, state: PyTree, batch: PyTree, key: Array | None) -> tuple[Array, PyTree]:
            raise ArgumentError(
                f"search: {self.search.name} needs a problem's loss, which your own loop does not have; use "
                "over_seeds"
            )

        descent = Descent(cast("optax.GradientTransformation", self.optimizer), self.steps)
        return Problem(lambda key: (params, {}), loss, np.zeros(1), descent)


def _with(training: TrainState, name: str, moves: PyTree) -> TrainState:
    """Return a state in which other numbers descend."""
    _check_alike(name, moves, inexact(training.trainable))
    return training._replace(trainable=merge(moves, training.trainable))


def _check_alike(name: str, tree: PyTree, like: PyTree) -> None:
    """Raise unless a tree has the structure and the shapes of what descends."""
    given, expected = (
        {path: jnp.shape(leaf) for path, leaf in named_leaves(t).items()} for t in (tree, like)
    )
    same = bool(jax.tree.structure(tree) == jax.tree.structure(like))  # type: ignore[operator]
    if given != expected or not same:
        raise ArgumentError(
            f"{name}: expected the structure and shapes of state.trainable, {shown(expected, 200)}, got "
            f"{shown(given, 200)}; if parameters have changed, call `init` again"
        )


def _check_one(state: StepwiseState) -> None:
    """Raise if a state belongs to several runs: connections of different runs would be compared."""
    if jnp.ndim(state.training.step):
        raise ArgumentError(
            "state: it holds several runs; map the function over them, as in jax.vmap(search.network)(state)"
        )

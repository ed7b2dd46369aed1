"""Chains: stages in a row, checked against each other and against the problem before the first step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_one_key
from jaxarch._internal.trees import PyTree, inexact
from jaxarch.run._frozen import check_frozen
from jaxarch.run._keyed import equal_by_key, keyed, keyed_problem
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem, check_streamed
from jaxarch.run._run_keys import RunKeys, continued, stage_key
from jaxarch.run._stage import HostSearch, Stage, as_stage, check_follows, check_network, check_problem
from jaxarch.run._training import Training, begin, conclude, descended, joined, with_losses


@equal_by_key
@dataclasses.dataclass(frozen=True, eq=False)
class Strategy:
    """Stages in a row: each transforms the network that the one before found. Built by `chain`.

    `strategy(key, problem)` is a pure function of one run: jit it, vmap it, nest it. `over_seeds` runs it for
    many keys with progress, checkpoints and all else that `FitOptions` offers.

    Attributes:
      stages: each a `Stage`.
    """

    stages: tuple[Stage, ...]

    def __call__(self, key: Array, problem: Problem, network: Network | None = None) -> Network:
        """Run the stages for one run, beginning with a network if one is given.

        Raises:
          ArgumentError: an argument that is not a key, or more than one key; a stage that lacks something.
        """
        check_one_key(key)
        check_stages(self.stages, key, problem, network)
        key = key if network is None else continued(key)
        for index, stage in enumerate(self.stages):
            network = stage(stage_key(key, index), problem, network)
        assert network is not None
        return network

    def predict(self, problem: Problem) -> Callable[[PyTree, PyTree, PyTree], Any]:
        """Return the function that computes with the networks of this strategy."""
        last = self.stages[-1]
        predict = last.predict if isinstance(last, HostSearch) else problem.predict
        if predict is None:
            raise ArgumentError("problem: it has no `predict`, which outputs need; give it one")
        return predict


def chain(*parts: Any) -> Strategy:
    """Put stages in a row: `chain(search.dense(), threshold())` is the strategy real -> bin of [D].

    Args:
      parts: stages; plain functions `(key, problem) -> Network` or `(key, problem, network) -> Network`;
        other chains.

    Returns:
      A pure function `(key, problem, network=None) -> Network`. Stage i draws from `fold_in(key, i)`, so that
      strategies with the same first stages share them exactly; with a given network, another key is used. The
      stages are checked against each other here. They are checked against the problem by `jax.eval_shape`
      when the chain is run, before the first step of any stage.

    Raises:
      ArgumentError: a part that is not a stage; a stage that would forget what those before it found, naming
        both and the way out.

    Example:
      >>> import jaxarch
      >>> strategy = jaxarch.chain(jaxarch.search.dense(), jaxarch.threshold())
      >>> [stage.name for stage in strategy.stages]
      ['dense', 'threshold']
      >>> jaxarch.chain(strategy, jaxarch.search.snip(0.5))  # doctest: +ELLIPSIS
      Traceback (most recent call last):
          ...
      jaxarch.ArgumentError: chain: snip makes a network from nothing, and would discard what ...
    """
    stages: list[Stage] = []
    for part in parts:
        for stage in part.stages if isinstance(part, Strategy) else (as_stage(part),):
            if stages:
                check_follows(stage, stages)
            stages.append(stage)
    if not stages:
        raise ArgumentError("chain: expected at least one stage, got none")
    return Strategy(tuple(stages))


def check_stages(
    stages: tuple[Stage, ...], key: Array, problem: Problem, network: Network | None = None
) -> None:
    """Raise unless every stage can run on this problem, with the results of the stages before it.

    Nothing is computed: each stage is traced for its shapes, a training without its steps.

    Args:
      stages: the stages in their order.
      key: key of one run.
      problem: problem of one run.
      network: network of one run, given to the first stage.

    Raises:
      ArgumentError: naming the stage, what it lacks, and the way out; or a stage's own error about the
        problem.
    """
    for stage in stages:
        check_problem(stage, problem)
        if problem.stream is not None:
            own = stage.on(problem) if isinstance(stage, Training) else None
            check_streamed(own or problem)
            problem.stream.check_length(own.descent.steps if own else stage.needs.batches)
    shapes = keyed_problem(problem)
    for stage in stages:
        check_network(stage, network)
        if isinstance(stage, HostSearch):
            return
        network = _outline.eval_shape(keyed(stage), key, _with_outline(shapes, stage), network)


def _with_outline(problem: Problem, stage: Stage) -> Problem:
    """Return the problem with the outline of the batches that a stage needs from a stream, if any."""
    if problem.stream is None or not stage.needs.batches:
        return problem
    return dataclasses.replace(problem, _window=problem.stream.outline(stage.needs.batches))


@partial(jax.jit, static_argnums=0)
def _outline(stage: Any, key: Array, problem: Problem, network: Network | None) -> Network:
    """Return a stage's result without the steps of a training: only traced, for shapes and errors."""
    stage = stage.__wrapped__
    if not isinstance(stage, Training):
        return stage(key, problem, network)
    carry, on = begin(stage, key, problem, network), stage.on(problem)
    check_frozen(stage.name, stage.descent, problem.descent.optimizer, carry.state.trainable)
    if network is not None:
        # Trace a step of each later stage: an optimizer that does not fit must fail before anything is
        # trained. The first stage needs no such check, since its own steps are traced before it trains.
        gradient, value = inexact(carry.state.trainable), jnp.zeros(())
        extra = {"value": value, "grad": gradient, "value_fn": lambda moves: value}
        descended(stage, RunKeys.of(key).optimizer, on, carry.state, carry.opt_state, gradient, extra, 0)
    return joined(network, with_losses(conclude(stage, carry), jnp.zeros(on.descent.steps)))

"""Optimisers that are evaluated at other weights than those that they train, known by their states."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.tree_util import tree_map_with_path
from optax.contrib import SAMState, ScheduleFreeState

from jaxarch._internal.errors import ArgumentError
from jaxarch._internal.trees import PyTree, named_leaves, path_name
from jaxarch.run._descent import EachState


def check_evaluated(opt_state: PyTree) -> None:
    """Raise for an optimiser whose weights to evaluate stand in no state that is kept.

    Raises:
      ArgumentError: `optax.lookahead`, which descends on pairs of parameters.
    """
    if _nodes(opt_state, optax.LookaheadState):
        raise ArgumentError(
            "optimizer: optax.lookahead descends on pairs of parameters, fast and slow; take its "
            "inner optimizer alone, or optax.contrib.schedule_free"
        )


def evaluated(opt_state: PyTree, trained: PyTree) -> PyTree:
    """The weights that an optimiser is evaluated at, where it trains those given.

    Of `optax.contrib.schedule_free` they are x, of `optax.contrib.sam` the weights before the adversarial
    step; of all others those that are trained. The states of these two are found wherever they are, in chains
    and in parts of `optax.partition`.

    Args:
      opt_state: the state of the optimiser.
      trained: the weights that it moves.
    """
    for node in _nodes(opt_state, EachState, ScheduleFreeState, SAMState):
        if isinstance(node, EachState):
            trained = trained | {name: evaluated(own, trained[name]) for name, own in node.states.items()}
        elif isinstance(node, ScheduleFreeState):
            trained = _at(trained, node.z, lambda y, z, b1=node.b1: _averaged(y, z, b1))
        elif isinstance(node, SAMState) and node.cache is not None:
            is_moved = node.steps_since_sync > 0
            trained = _at(
                trained, node.cache, lambda w, before, is_moved=is_moved: jnp.where(is_moved, before, w)
            )
    return trained


def _averaged(y: Array, z: Array, b1: Array) -> Array:
    """X of the schedule-free method, as `optax.contrib.schedule_free_eval_params` has it."""
    dtype = jnp.promote_types(y.dtype, z.dtype)
    y_, z_, b1 = y.astype(dtype), z.astype(dtype), jnp.asarray(b1).astype(dtype)
    return ((y_ - (1 - b1) * z_) / b1).astype(y.dtype)


def _at(trained: PyTree, kept: PyTree, function: Any) -> PyTree:
    """A function of leaves and of what a state keeps of them, where it keeps something."""
    there = named_leaves(kept)

    def leaf_of(path: Any, leaf: Array) -> Array:
        name = path_name(path)
        return function(leaf, there[name]) if name in there else leaf

    return tree_map_with_path(leaf_of, trained)


def _nodes(opt_state: PyTree, *kinds: type) -> list[Any]:
    """The outermost states of some kinds."""
    nodes = jax.tree.leaves(opt_state, is_leaf=lambda node: isinstance(node, kinds))
    return [node for node in nodes if isinstance(node, kinds)]

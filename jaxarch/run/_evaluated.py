"""Optimizers that are evaluated at other weights than those they train, recognized by their states."""

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
    """Raise for an optimizer whose state does not keep the weights to evaluate.

    Raises:
      ArgumentError: `optax.lookahead`, which descends on pairs of parameters.
    """
    if _nodes(opt_state, optax.LookaheadState):
        raise ArgumentError(
            "optimizer: optax.lookahead is not supported, since it trains pairs of fast and slow parameters; "
            "use its inner optimizer alone, or optax.contrib.schedule_free"
        )


def evaluated(opt_state: PyTree, trained: PyTree) -> PyTree:
    """Return the weights at which an optimizer is evaluated, given the weights that it trains.

    For `optax.contrib.schedule_free` they are x; for `optax.contrib.sam` they are the weights before the
    adversarial step; for all other optimizers they are the trained weights. The states of these two are found
    wherever they are, in chains and in parts of `optax.partition`.

    Args:
      opt_state: the state of the optimizer.
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
    """Compute x of the schedule-free method, like `optax.contrib.schedule_free_eval_params`."""
    dtype = jnp.promote_types(y.dtype, z.dtype)
    y_, z_, b1 = y.astype(dtype), z.astype(dtype), jnp.asarray(b1).astype(dtype)
    return ((y_ - (1 - b1) * z_) / b1).astype(y.dtype)


def _at(trained: PyTree, kept: PyTree, function: Any) -> PyTree:
    """Apply a function to each leaf and the state's array for it; leaves without one stay."""
    there = named_leaves(kept)

    def leaf_of(path: Any, leaf: Array) -> Array:
        name = path_name(path)
        return function(leaf, there[name]) if name in there else leaf

    return tree_map_with_path(leaf_of, trained)


def _nodes(opt_state: PyTree, *kinds: type) -> list[Any]:
    """Return the outermost states of the given types."""
    nodes = jax.tree.leaves(opt_state, is_leaf=lambda node: isinstance(node, kinds))
    return [node for node in nodes if isinstance(node, kinds)]

"""New heads: an architecture on a task with another number of classes or inputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.errors import ArgumentError
from jaxarch.masks import (
    apply_mask,
)
from jaxarch.problem import Finish, Network, Problem
from jaxarch.trees import map_selected, named_leaves


def new_head() -> Finish:
    """The architecture on a task with another number of classes or inputs: what does not fit is made anew.

    Leaves of another shape than the problem's parameters get the problem's initial values, and where they
    were masked a random mask of the density that they had, to a connection. All else stays as it was found; a
    bare architecture gets the problem's initial values throughout.

    Returns:
      A finish, the first one: `over_seeds(chain(new_head(), retrain("cold", nonnegative=False)), keys,
      new_problem, found=found)`.

    Raises:
      ArgumentError: a model of other layers than the one found.
    """

    def finish(key: Array, problem: Problem, network: Network) -> Network:
        params_key, mask_key = jax.random.split(key)
        params, state = problem.init(params_key)
        if network.params is not None:
            ours, theirs = (", ".join(named_leaves(tree)) for tree in (params, network.params))
            if ours != theirs:
                raise ArgumentError(
                    f"network: it has the parameters {theirs}; the problem's model has {ours}"
                )
            params = jax.tree.map(
                lambda new, old: old if old.shape == new.shape else new, params, network.params
            )
        keys = iter(jax.random.split(mask_key, len(jax.tree.leaves(network.mask))))

        def fitting(old: Array, leaf: Array) -> Array:
            key = next(keys)
            if old.shape == leaf.shape:
                return old
            kept = jnp.round(jnp.sum(old) / old.size * leaf.size)
            return jax.random.permutation(key, (jnp.arange(leaf.size) < kept)).reshape(leaf.shape)

        mask = map_selected(fitting, network.mask, params)
        same = jax.tree.map(jnp.shape, state) == jax.tree.map(jnp.shape, network.state)
        return Network(apply_mask(mask, params), mask, network.state if same else state, {})

    finish.__name__ = "new head"
    return finish

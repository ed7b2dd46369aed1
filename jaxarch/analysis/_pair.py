"""Checks of what is compared: networks of the same shapes, functions, batches of examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxarch._internal.errors import ArgumentError, check_leaves, shown
from jaxarch._internal.trees import PyTree, check_distinct, named_leaves
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.structure._groups import check_shapes
from jaxarch.structure._network_function import (
    check_arrays_given,
    check_problem,
    masked_leaves,
    problem_function,
)


def checked_pair(first: PyTree, second: PyTree, traced: bool = False) -> PyTree:
    """Return the second of two trees in the structure of the first.

    Raises:
      ArgumentError: networks in place of trees; other paths or shapes; traced values, unless they may be.
    """
    for name, tree in (("first", first), ("second", second)):
        if isinstance(tree, Network):
            raise ArgumentError(f"{name}: expected parameters, got a Network; give its `params`")
        check_leaves(name, tree, keys=True)
        check_distinct(name, tree)
        if not traced:
            check_arrays_given(**{name: tree})
    shapes = {path: jnp.shape(leaf) for path, leaf in named_leaves(first).items()}
    check_shapes(second, shapes, "with the first's", name="second")
    leaves = named_leaves(second)
    return jax.tree.unflatten(jax.tree.structure(first), [leaves[path] for path in shapes])


def function_and_trees(model: Any, *networks: Any) -> tuple[Callable[..., Any], list[PyTree]]:
    """Return a function and trees; those of a problem are its model and the leaves of its networks."""
    if not isinstance(model, Problem):
        return model, [*networks]
    leaves = [masked_leaves(network) for network in networks]
    for network in networks:
        check_problem(network, model)
    return problem_function(model, networks[0].params, networks[0].state), leaves


def examples_of(batch: PyTree, least: int, name: str = "batches") -> int:
    """Return the number of examples of a batch: the size of the first axis of each leaf."""
    check_leaves(name, batch, keys=True)
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(batch)]
    sizes = {shape[:1] for shape in shapes}
    if len(sizes) != 1 or () in sizes or min(sizes)[0] < least:
        raise ArgumentError(
            f"{name}: expected at least {least} examples along the first axis of each leaf, got shapes "
            f"{shown(shapes)}; drop a smaller batch, and let the function close over what is no example"
        )
    return min(sizes)[0]

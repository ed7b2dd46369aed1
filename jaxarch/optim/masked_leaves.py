"""Masks matched with parameters by path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from jaxarch.errors import ArgumentError, is_traced, shown
from jaxarch.masks import check_booleans
from jaxarch.trees import PyTree, named_leaves


def booleans(mask: PyTree) -> dict[str, Array]:
    """The leaves of a mask by path."""
    leaves = named_leaves(mask)
    if not leaves:
        raise ArgumentError("mask: no leaf is masked; select leaves by path")
    check_booleans(mask)
    return leaves


def of_parameters(masked: Mapping[str, Array], params: PyTree, everywhere: bool = False) -> dict[str, Array]:
    """The masks of those parameters that are there, by the paths that they have there."""
    leaves = named_leaves(params)
    # Around lookahead the mask has the paths of both copies already.
    twice = isinstance(params, optax.LookaheadParams) and not masked.keys() <= leaves.keys()
    copies = [f"{copy}/" for copy in params._fields] if twice else [""]
    found = {f"{copy}{path}": leaf for copy in copies for path, leaf in masked.items()}
    absent = [path for path in found if path not in leaves]
    if absent and (everywhere or len(absent) == len(found) or not _is_part(params)):
        raise ArgumentError(
            f"mask: the parameters have no {shown(absent[0])}; they have {', '.join(leaves) or 'no leaf'}"
        )
    for path in absent:
        del found[path]
    for path, leaf in found.items():
        if leaf.shape != jnp.shape(leaves[path]):
            raise ArgumentError(
                f"mask: leaf {path!r} has shape {leaf.shape}, the parameter {jnp.shape(leaves[path])}"
            )
    return found


def _is_part(params: PyTree) -> bool:
    """Whether some parameters are another optimiser's, as in `optax.multi_transform`."""
    nodes = jax.tree.leaves(params, is_leaf=lambda node: isinstance(node, optax.MaskedNode))
    return any(isinstance(node, optax.MaskedNode) for node in nodes)


def map_masked(function: Callable[..., Array], tree: PyTree, *masked: Mapping[str, Array]) -> PyTree:
    """`function(leaf, *of_leaf)` where a leaf's path is masked; other leaves as they are."""
    leaves, treedef = jax.tree.flatten(tree)

    def mapped(path: str, leaf: Array) -> Array:
        return function(leaf, *(each[path] for each in masked)) if path in masked[0] else leaf

    return jax.tree.unflatten(treedef, list(map(mapped, named_leaves(tree), leaves)))


def check_masked(held: Mapping[str, Array], weights: Mapping[str, Any], remedy: str) -> None:
    """Raise unless what is pruned is 0, where that can be seen."""
    if is_traced((held, [weights[path] for path in held])):
        return
    for path, leaf in held.items():
        # Within a trace, as of jax.eval_shape around `init`, what is done with concrete arrays is traced too.
        with jax.ensure_compile_time_eval():
            moved = int(jnp.sum(~leaf & (weights[path] != 0)))
        if moved:
            raise ArgumentError(f"params: {moved} pruned weights of {path!r} are not 0; {remedy}")

"""Masks matched with parameters by path."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from jaxarch._internal.errors import ArgumentError, is_traced, shortened, shown
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.masks import check_booleans
from jaxarch.masks._sharding import beside


def booleans(mask: PyTree) -> dict[str, Array]:
    """Return the leaves of a mask by path; copy NumPy arrays, since a caller may write to them."""
    leaves = named_leaves(mask)
    if not leaves:
        raise ArgumentError("mask: no leaf is masked; select leaves by path")
    check_booleans(mask)
    return {path: np.array(leaf) if isinstance(leaf, np.ndarray) else leaf for path, leaf in leaves.items()}  # type: ignore[misc]


def of_parameters(masked: Mapping[str, Array], params: PyTree, everywhere: bool = False) -> dict[str, Array]:
    """Return the masks of the parameters that are present, by the paths that these parameters have."""
    leaves = named_leaves(params)
    # Around lookahead, the mask already has the paths of both copies.
    twice = isinstance(params, optax.LookaheadParams) and not masked.keys() <= leaves.keys()
    copies = [f"{copy}/" for copy in params._fields] if twice else [""]
    found = {f"{copy}{path}": leaf for copy in copies for path, leaf in masked.items()}
    absent = [path for path in found if path not in leaves]
    there = shortened(", ".join(leaves), 200) or "no leaf"
    if absent and (everywhere or len(absent) == len(found) or not _is_part(params)):
        raise ArgumentError(f"mask: the parameters have no {shown(absent[0])}; they have {there}")
    for path in absent:
        del found[path]
    for path, leaf in found.items():
        if leaf.shape != jnp.shape(leaves[path]):
            raise ArgumentError(
                f"mask: leaf {path!r} has shape {leaf.shape}, but the parameter has {jnp.shape(leaves[path])}"
            )
    return found


def _is_part(params: PyTree) -> bool:
    """Return whether some parameters belong to another optimizer, as in `optax.multi_transform`."""
    nodes = jax.tree.leaves(params, is_leaf=lambda node: isinstance(node, optax.MaskedNode))
    return any(isinstance(node, optax.MaskedNode) for node in nodes)


def of_mask(name: str, mask: Mapping[str, Array], tree: PyTree) -> dict[str, Array]:
    """Return the masked leaves of a tree, by path."""
    leaves = named_leaves(tree)
    for path in mask:
        if path not in leaves:
            raise ArgumentError(
                f"{name}: the masked leaf {shown(path)} is missing; they have "
                f"{shortened(', '.join(leaves), 200) or 'no leaf'}"
            )
    return {path: leaves[path] for path in mask}


def map_masked(function: Callable[..., Array], tree: PyTree, *masked: Mapping[str, Array]) -> PyTree:
    """Apply `function(leaf, *of_leaf)` to leaves whose path is masked; keep other leaves as they are."""
    leaves, treedef = jax.tree.flatten(tree)

    def mapped(path: str, leaf: Array) -> Array:
        return function(leaf, *(each[path] for each in masked)) if path in masked[0] else leaf

    return jax.tree.unflatten(treedef, list(map(mapped, named_leaves(tree), leaves)))


def check_masked(held: Mapping[str, Array], weights: Mapping[str, Any], remedy: str) -> None:
    """Raise unless all pruned weights are 0; traced values pass."""
    if is_traced((held, [weights[path] for path in held])):
        return
    for path, leaf in held.items():
        # Inside a trace, such as jax.eval_shape around `init`, operations on concrete arrays are traced too.
        with jax.ensure_compile_time_eval():
            moved = int(jnp.sum(~leaf & (weights[path] != 0)))
        if moved:
            raise ArgumentError(f"params: {moved} pruned weights of {path!r} are not 0; {remedy}")


def check_optimizer(name: str, optimizer: Any, example: str) -> optax.GradientTransformationExtraArgs:
    """Return the optimizer with an `update` that takes extra arguments."""
    if not callable(getattr(optimizer, "init", None)) or not callable(getattr(optimizer, "update", None)):
        raise ArgumentError(f"{name}: expected an optax optimizer, as in {example}, got {shown(optimizer)}")
    return optax.with_extra_args_support(optimizer)


def begun(optimizer: optax.GradientTransformation, params: PyTree) -> PyTree:
    """Return an optimizer's initial state, sharing no array with the parameters: both can be donated.

    `optax.contrib.sam` and others store the parameters that they get.
    """
    seen = {id(leaf) for leaf in jax.tree.leaves(params)}

    def own(leaf: Any) -> Any:
        shared = isinstance(leaf, Array) and id(leaf) in seen
        seen.add(id(leaf))
        return jnp.copy(leaf) if shared else leaf

    return jax.tree.map(own, optimizer.init(params))


def own_mask(masked: Mapping[str, Array], weights: Mapping[str, Any]) -> dict[str, Array]:
    """Copy a mask to the devices of its weights, so that donating the state takes no array of the user's."""
    return {path: jnp.copy(beside(weights[path], leaf)) for path, leaf in masked.items()}


def check_mask_as_begun(mask: Mapping[str, Array]) -> None:
    """Raise if something around a transformation has computed with the mask in its state."""
    for path, leaf in mask.items():
        if leaf.dtype != bool:
            raise ArgumentError(
                f"state: the mask of {path!r} has become {leaf.dtype}, since sam, or lookahead with "
                "reset_state, computed with it; wrap them in hold or sparse, as in hold(mask, sam(...))"
            )


def step_under(
    mask: Mapping[str, Array],
    optimizer: optax.GradientTransformationExtraArgs,
    gradients: PyTree,
    state: PyTree,
    params: PyTree,
    extra: Mapping[str, Any],
) -> tuple[PyTree, PyTree]:
    """Step an optimizer as if the mask were in the forward pass: it sees no gradient of a pruned weight.

    A `grad` among the extra arguments is masked, too, and so are functions of the parameters that it may
    call.
    """
    of_slopes = dict(mask)
    if isinstance(params, optax.LookaheadParams) and not isinstance(gradients, optax.LookaheadParams):
        # Around lookahead, gradients are only those of the fast copy.
        of_slopes = {path.removeprefix("fast/"): leaf for path, leaf in mask.items() if path[:5] == "fast/"}
    of_mask("gradients", of_slopes, gradients)

    def there(tree: PyTree) -> PyTree:
        return map_masked(lambda leaf, keep: jnp.where(keep, leaf, 0), tree, of_slopes)

    extra = dict(extra)
    if extra.get("grad") is not None:
        extra["grad"] = there(extra["grad"])
    for name in FUNCTIONS_OF_PARAMETERS & extra.keys():
        extra[name] = _under(there, extra[name], makes_gradients=name == "grad_fn")
    return optimizer.update(there(gradients), state, params, **extra)


FUNCTIONS_OF_PARAMETERS = {"value_fn", "obj_fn", "grad_fn"}
"""Extra arguments in optax: for line searches, for Sophia, for SAM in its opaque mode."""


def _under(there: Callable[[PyTree], PyTree], function: Any, makes_gradients: bool) -> Any:
    if not callable(function):
        return function

    @functools.wraps(function)
    def masked(params: PyTree, *arguments: Any, **named: Any) -> Any:
        found = function(there(params), *arguments, **named)
        return there(found) if makes_gradients else found

    return masked


def cleared(
    updates: PyTree, retained: Mapping[str, Array], weights: Mapping[str, Any], begun_at_0: bool = False
) -> PyTree:
    """Change updates so that every weight that is not retained ends at 0.

    `optax.apply_updates` computes `(p + u).astype(p.dtype)`. This is 0 only if u is exactly -p, so updates
    narrower than the weights are widened. Pruned weights that are already 0 stay 0 in any dtype.
    """

    def moved(update: Array, retain: Array, weight: Any) -> Array:
        weight = jnp.asarray(weight)
        dtype = update.dtype if begun_at_0 else jnp.promote_types(update.dtype, weight.dtype)
        return jnp.where(retain, update.astype(dtype), -weight.astype(dtype))

    return map_masked(moved, updates, retained, weights)

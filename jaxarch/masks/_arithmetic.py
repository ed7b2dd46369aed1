"""Functions that apply, count, compare and permute masks."""

from __future__ import annotations

import numbers
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import (
    ArgumentError,
    check_array,
    check_one_key,
    is_numeric,
    is_traced,
    shortened,
    shown,
)
from jaxarch._internal.kernels import not_matrices
from jaxarch._internal.order_statistics import count_dtype
from jaxarch._internal.trees import (
    PyTree,
    check_structure,
    map_selected,
    merge,
    named_leaves,
    path_name,
    restructured,
)
from jaxarch.masks._sharding import split_like, whole


def full_mask(selection: PyTree) -> PyTree:
    """Return the mask that keeps every selected connection.

    Raises:
      ArgumentError: a leaf that is not an array.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {"kernel": jnp.zeros((1, 2)), "bias": jnp.zeros(2)}
      >>> jaxarch.masks.full_mask(jaxarch.select(params))
      {'bias': None, 'kernel': Array([[ True,  True]], dtype=bool)}
    """
    for path, leaf in named_leaves(selection).items():
        if not hasattr(leaf, "shape") and not isinstance(leaf, numbers.Number):
            raise ArgumentError(f"selection: expected arrays, got {shown(leaf)} as leaf {path!r}")
    return map_selected(lambda leaf: jnp.ones_like(leaf, bool), selection)


def apply_mask(mask: PyTree, params: PyTree) -> PyTree:
    """Multiply parameters by a mask, `m o theta` ([A] eq. 3), in their own dtypes; keep unmasked leaves.

    Under a mask of booleans or integers, a pruned weight becomes 0 whatever it was, NaN included. The mask of
    a module's state also applies to the module itself, and to gradients that are a module.

    Raises:
      ArgumentError: a mask whose structure or shapes differ from the parameters.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> mask = {"kernel": jnp.array([True, False]), "bias": None}
      >>> jaxarch.masks.apply_mask(mask, {"kernel": jnp.array([1.5, jnp.nan]), "bias": jnp.ones(1)})
      {'bias': Array([1.], dtype=float32), 'kernel': Array([1.5, 0. ], dtype=float32)}
    """
    check_fits(mask, params)
    mask = restructured(mask, params)

    def masked(m: Array, leaf: Array) -> Array:
        if jnp.issubdtype(m.dtype, jnp.floating):
            return m.astype(leaf.dtype) * leaf
        # A product would turn a pruned weight that overflowed into NaN.
        if m.dtype == bool:
            return jnp.where(m, leaf, 0)
        return jnp.where(m == 0, 0, m.astype(leaf.dtype) * leaf)

    return merge(map_selected(masked, mask, params), params)


def check_fits(mask: PyTree, params: PyTree) -> None:
    """Raise unless a mask has the parameters' structure, and each masked leaf the shape of its parameter.

    Raises:
      ArgumentError: a mask that does not fit; the message names the leaf.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> jaxarch.masks.check_fits({"weight": jnp.ones(2, bool)}, {"kernel": jnp.ones(2)})
      Traceback (most recent call last):
          ...
      jaxarch.ArgumentError: mask: the model has no parameter 'weight'; it has kernel
    """
    leaves = named_leaves(params)
    for path, leaf in named_leaves(mask).items():
        if path not in leaves:
            there = shortened(", ".join(leaves), 200)
            raise ArgumentError(f"mask: the model has no parameter {path!r}; it has {there}")
        if jnp.shape(leaf) != jnp.shape(leaves[path]):
            raise ArgumentError(
                f"mask: leaf {path!r} has shape {jnp.shape(leaf)}, the model's parameter "
                f"{jnp.shape(leaves[path])}; if the task has another number of classes, apply new_head() "
                "first"
            )
        check_array(f"mask: leaf {path!r}", leaf)
        if not isinstance(leaves[path], numbers.Number):
            check_array(f"params: leaf {path!r}", leaves[path])
    check_structure("mask", restructured(mask, params), params, "the parameters")


def check_booleans(mask: PyTree) -> None:
    """Raise unless every masked leaf holds booleans.

    Raises:
      ArgumentError: a leaf that is not boolean; the message names it.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> jaxarch.masks.check_booleans({"kernel": jnp.array([True, False]), "bias": None})
    """
    for path, leaf in named_leaves(mask).items():
        dtype = getattr(leaf, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.bool_):
            raise ArgumentError(
                f"mask: expected booleans, got {shown(leaf) if dtype is None else dtype} as leaf {path!r}"
            )


def weight_free(mask: PyTree, params: PyTree) -> PyTree:
    """Return the weight-free network: all weights are 1, so the masked leaves are the mask itself.

    Leaves without a mask (biases, for instance) come from `params`.

    Raises:
      ArgumentError: a mask whose structure or shapes differ from the parameters.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> mask = {"kernel": jnp.array([True, False]), "bias": None}
      >>> jaxarch.masks.weight_free(mask, {"kernel": jnp.array([1.5, 2.5]), "bias": jnp.array([0.5])})
      {'bias': Array([0.5], dtype=float32), 'kernel': Array([1., 0.], dtype=float32)}
    """
    check_fits(mask, params)
    mask = restructured(mask, params)
    return merge(map_selected(lambda m, leaf: m.astype(leaf.dtype), mask, params), params)


def density(mask: PyTree) -> Array:
    """Return the share of connections kept, over all masked leaves together: a scalar in [0, 1].

    For masks with a leading axis of runs, use `jax.vmap(density)`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> print(jaxarch.density({"a": jnp.array([True, True, False]), "b": jnp.array([False])}))
      0.5
      >>> print(jax.vmap(jaxarch.density)({"a": jnp.array([[True, False], [True, True]])}))
      [0.5 1. ]
    """
    leaves = _arrays(mask)
    if not leaves:
        raise ArgumentError("mask: no leaf is masked, so there is no density; select leaves by path")
    return _total(leaves) / float(sum(leaf.size for leaf in leaves))


def connections(mask: PyTree) -> Array | np.int64:
    """Count the connections kept, over all masked leaves together; the count is exact for boolean masks.

    The count is an int32. For masks with 2^31 entries or more it is a NumPy int64. If such a mask is traced,
    it is an int64 with float64 enabled, else a uint32. A mask that is not boolean is summed in float32.

    Raises:
      ArgumentError: 2^32 connections or more in one traced mask, or in one leaf, without float64.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> print(jaxarch.masks.connections({"a": jnp.array([True, True, False]), "b": jnp.array([True])}))
      3
    """
    leaves = _arrays(mask)
    counts, size = [_count(leaf) for leaf in leaves], sum(leaf.size for leaf in leaves)
    if any(leaf.dtype != bool for leaf in leaves):
        return jnp.asarray(sum(counts))
    if size >= 2**31 and not is_traced(counts):
        return np.int64(sum(int(count) for count in counts))
    return jnp.asarray(sum(count.astype(count_dtype(size)) for count in counts))


def layer_density(mask: PyTree) -> dict[str, Array]:
    """Return the share of connections kept in each masked leaf, by path.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> mask = {"a": {"kernel": jnp.array([[True, False]])}, "b": {"kernel": jnp.array([[True]])}}
      >>> {path: float(share) for path, share in jaxarch.layer_density(mask).items()}
      {'a/kernel': 0.5, 'b/kernel': 1.0}
    """
    _arrays(mask)
    return {path: density(leaf) for path, leaf in named_leaves(mask).items()}


def describe(mask: PyTree, params: PyTree = None) -> str:
    """Describe a mask as a table: the connections kept in each leaf, or that the leaf is not masked.

    Args:
      mask: booleans; `None` for leaves that are not masked.
      params: the parameters, arrays or their shapes. With them, the table also shows the shapes of unmasked
        leaves, and why the default `where` leaves these out.

    Returns:
      One line per leaf, and one for all leaves together.

    Raises:
      ArgumentError: a mask whose structure or shapes differ from the parameters; traced arrays.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {"kernel": jnp.array([[1.0, -3.0], [2.0, 0.5]]), "norm": {"scale": jnp.ones((2, 2))}}
      >>> mask = jaxarch.masks.keep(jaxarch.saliency.magnitude(params), 0.5)
      >>> print(jaxarch.masks.describe(mask, params))
      kernel      (2, 2)  2 of 4 kept
      norm/scale  (2, 2)  not masked: a scale or offset
      all                 2 of 4 kept in 1 of 2 leaves
    """
    _arrays(mask)
    if is_traced((mask, params)):
        raise ArgumentError("mask: the mask or the parameters are traced; call describe outside of jit")
    shares = {path: connections(leaf) for path, leaf in named_leaves(mask).items()}
    for path, share in shares.items():
        if not np.isfinite(share):
            raise ArgumentError(
                f"mask: expected finite numbers, got leaf {path!r} with the sum {shown(share)}"
            )
    kept = {path: int(share) for path, share in shares.items()}
    sizes = {path: leaf.size for path, leaf in named_leaves(mask).items()}
    if params is None:
        flat = jax.tree_util.tree_flatten_with_path(mask, is_leaf=lambda leaf: leaf is None)[0]
        shapes = {path_name(path): getattr(leaf, "shape", "") for path, leaf in flat}
        reasons: dict[str, str] = {}
    else:
        check_fits(mask, params)
        shapes = {path: jnp.shape(leaf) for path, leaf in named_leaves(params).items()}
        reasons = not_matrices(named_leaves(params))

    def said(path: str) -> str:
        if path in kept:
            return f"{kept[path]} of {sizes[path]} kept"
        return f"not masked: {reasons[path]}" if path in reasons else "not masked"

    total = f"{sum(kept.values())} of {sum(sizes.values())} kept in {len(kept)} of {len(shapes)} leaves"
    rows = [*((path, str(shape), said(path)) for path, shape in shapes.items()), ("all", "", total)]
    wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{name:<{wide[0]}}  {shape:<{wide[1]}}  {text}".rstrip() for name, shape, text in rows)


def overlap(mask: PyTree, other: PyTree) -> Array:
    """Return two masks' Jaccard index: connections in both over connections in either; 1 if both are empty.

    Raises:
      ArgumentError: masks of different structures or shapes.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> mask, other = {"a": jnp.array([True, True, False])}, {"a": jnp.array([True, False, False])}
      >>> print(jaxarch.overlap(mask, other))
      0.5
    """
    _arrays((mask, other))
    leaves, others = named_leaves(mask), named_leaves(other)
    if apart := leaves.keys() ^ others.keys():
        raise ArgumentError(
            f"other: expected the leaves of the first mask; leaf {sorted(apart)[0]!r} is only in one of the "
            "two"
        )
    for path, leaf in leaves.items():
        if leaf.shape != others[path].shape:
            raise ArgumentError(
                f"other: leaf {path!r} has shape {others[path].shape}, but shape {leaf.shape} in the first "
                "mask"
            )
    pairs = [(leaf, others[path]) for path, leaf in leaves.items()]
    both = _total([jnp.logical_and(a, b) for a, b in pairs])
    either = _total([jnp.logical_or(a, b) for a, b in pairs])
    return jnp.where(either > 0, both / jnp.maximum(either, 1), 1.0)


def within(mask: PyTree, before: PyTree) -> PyTree:
    """Remove from a mask, soft or hard, the connections that an earlier mask lacks.

    Args:
      mask: numbers or booleans; `None` for leaves that are not masked.
      before: the mask of an earlier stage, in the same form; `None` if there was none.

    Returns:
      The product of the two, leaf by leaf. A leaf that only one of them masks keeps that mask.
    """
    if before is None:
        return mask

    def product(now: Any, earlier: Any) -> Any:
        if now is None or earlier is None:
            return earlier if now is None else now
        return now & earlier if now.dtype == bool else now * earlier.astype(now.dtype)

    return jax.tree.map(product, mask, before, is_leaf=lambda leaf: leaf is None)


def reshuffle(key: Array, mask: PyTree) -> PyTree:
    """Permute the connections of every leaf at random, which keeps each leaf's density ([A] section 3.3).

    A leaf that is split over devices is gathered, permuted, and split again.

    Raises:
      ArgumentError: a `key` that is not a random key, or a mask that is not arrays.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> mask = {"a": jnp.array([[True, False], [False, False]]), "b": jnp.ones(3, bool)}
      >>> drawn = jaxarch.masks.reshuffle(jax.random.key(0), mask)
      >>> {path: float(share) for path, share in jaxarch.layer_density(drawn).items()}
      {'a': 0.25, 'b': 1.0}
    """
    check_one_key(key)
    _arrays(mask)
    leaves, treedef = jax.tree.flatten(mask)
    keys = jax.random.split(key, max(len(leaves), 1))
    permuted = [
        split_like(leaf, jax.random.permutation(k, whole(leaf).reshape(-1)).reshape(leaf.shape))
        for k, leaf in zip(keys, leaves, strict=False)
    ]
    return jax.tree.unflatten(treedef, permuted)


def _count(leaf: Array) -> Array:
    """Count the connections that a leaf keeps, in integers: a float32 sum is exact only up to 2^24."""
    return jnp.sum(leaf, dtype=count_dtype(leaf.size) if leaf.dtype == bool else jnp.float32)


def _total(leaves: list[Array]) -> Array:
    """Count the connections kept, as a float32: any number of leaves, each of less than 2^32 entries."""
    counts, size = [_count(leaf) for leaf in leaves], sum(leaf.size for leaf in leaves)
    exact = all(leaf.dtype == bool for leaf in leaves) and size < 2**32
    dtype = count_dtype(size) if exact else jnp.float32
    return jnp.asarray(sum(count.astype(dtype) for count in counts), jnp.float32)


def _arrays(mask: PyTree) -> list[Array]:
    for path, leaf in named_leaves(mask).items():
        if not is_numeric(leaf):
            got = shown(leaf) if not hasattr(leaf, "dtype") else f"dtype {leaf.dtype}"
            raise ArgumentError(f"mask: expected arrays, got {got} as leaf {path!r}")
    return jax.tree.leaves(mask)

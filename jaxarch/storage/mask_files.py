"""Masks in npz files, for other programs, and checked against the model that they are loaded for."""

from __future__ import annotations

import os

import jax

from jaxarch.errors import ArgumentError, shown
from jaxarch.masks.sharding import beside
from jaxarch.problem import Problem
from jaxarch.storage.files import as_path
from jaxarch.storage.npz import read_npz
from jaxarch.storage.trees import DESCRIPTION, check_array, save_tree
from jaxarch.trees import PyTree, check_floating, named_leaves


def save_mask(path: str | os.PathLike[str], mask: PyTree) -> None:
    """Write a mask as npz, one boolean array a leaf, named by its path; `load_mask` reads it.

    Raises:
      ArgumentError: a leaf that is not boolean, naming its path; a file that cannot be written.
    """
    leaves = named_leaves(mask)
    if not leaves:
        raise ArgumentError(f"mask: expected booleans in at least one leaf, got {shown(mask)}")
    for name, leaf in leaves.items():
        check_array("mask", name, leaf)
        if leaf.dtype != bool:
            raise ArgumentError(f"mask: leaf {name!r} has dtype {leaf.dtype}; expected booleans")
    save_tree(path, mask)


def load_mask(path: str | os.PathLike[str], like: Problem | PyTree) -> PyTree:
    """A mask that `save_mask` wrote, in the structure of a model's parameters.

        mask = jaxarch.load_mask("mask.npz", like=params)
        network = jaxarch.architecture(jaxarch.load_mask("mask.npz", problem))

    Args:
      path: the file.
      like: the parameters of the model that the mask is of, or their shapes: any pytree, an NNX state; or a
        problem, whose model it is. For one with another head, load it for the problem that it was found on,
        and let `new_head()` come first.

    Returns:
      Booleans, `None` for parameters that are not masked; with a leading axis of runs if it was saved so.
      Where the parameters are arrays, it is on their devices, and split as they are.

    Raises:
      ArgumentError: a file that is not there, or no mask; a leaf that is no parameter of the model's or has
        another shape, naming its path.
    """
    params = jax.eval_shape(like.init, jax.random.key(0))[0] if isinstance(like, Problem) else like
    check_floating("like", params)
    path = as_path(path)
    stored = {name: array for name, array in read_npz(path).items() if name != DESCRIPTION}
    leaves = named_leaves(params)
    for name, array in stored.items():
        if name not in leaves:
            raise ArgumentError(f"path: {path} masks {name!r}, which is none of {', '.join(leaves)}")
        if array.dtype != bool or array.shape[array.ndim - leaves[name].ndim :] != leaves[name].shape:
            raise ArgumentError(
                f"path: leaf {name!r} of {path} has shape {array.shape}, dtype {array.dtype}; expected "
                f"booleans of the parameter's shape {leaves[name].shape}, or with an axis of runs before it"
            )
    runs = {array.shape[: array.ndim - leaves[name].ndim] for name, array in stored.items()}
    if len(runs) != 1 or max(map(len, runs)) > 1:
        raise ArgumentError(f"path: {path} holds no mask of one run or of many: leading axes {sorted(runs)}")
    chosen = [beside(leaf, stored[name]) if name in stored else None for name, leaf in leaves.items()]
    return jax.tree.unflatten(jax.tree.structure(params), chosen)

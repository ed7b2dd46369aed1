"""Pytrees of arrays in npz files, without pickles: masks for other programs, checkpoints for a fit."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxarch.errors import ArgumentError, check_strength, one_line, shown
from jaxarch.files import as_path, claim, complete_file
from jaxarch.npz import default_limit
from jaxarch.npz import read_npz as read_npz
from jaxarch.problem import Problem
from jaxarch.trees import PyTree, named_leaves

DESCRIPTION = "__leaves__"


def save_tree(path: str | os.PathLike[str], tree: PyTree, *, compress: bool = True) -> None:
    """Write a pytree of arrays as npz: one array a leaf, named by its path.

    Any dtype is kept: bfloat16 and PRNG keys too, as raw numbers that an entry `__leaves__` (JSON) describes.
    The file is complete or not there: it is written under another name first.

    Raises:
      ArgumentError: a file that cannot be written.
    """
    arrays: dict[str, Any] = {}
    description: dict[str, str] = {}
    for name, leaf in named_leaves(tree).items():
        kind = str(leaf.dtype)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            kind, leaf = f"key:{jax.random.key_impl(leaf)}", jax.random.key_data(leaf)
        array = np.asarray(leaf)
        if array.dtype.kind == "V":
            array = array.view(f"u{array.dtype.itemsize}")
        arrays[name], description[name] = array, kind
    arrays[DESCRIPTION] = np.asarray(json.dumps(description))
    path = as_path(path)
    try:
        with complete_file(path) as file:
            (np.savez_compressed if compress else np.savez)(file, **arrays)
    except OSError as error:
        raise ArgumentError(f"path: cannot write {path} ({error.strerror})") from None


def load_tree(path: str | os.PathLike[str], like: PyTree) -> PyTree:
    """Read a pytree that `save_tree` wrote, in the structure of `like`.

    Args:
      path: the file.
      like: a pytree with the same paths, shapes and dtypes (arrays or `jax.ShapeDtypeStruct`).

    Raises:
      ArgumentError: a file that is not there or not ours; a leaf that is missing, left over, or of another
        shape or dtype, naming its path.
    """
    path, expected = as_path(path), named_leaves(like)
    # What fits into memory twice is no bomb: the file is as large as what it is to replace.
    size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in expected.values())
    stored = read_npz(path, limit=max(default_limit(), 2 * size))
    try:
        description = json.loads(str(stored.pop(DESCRIPTION)))
    except (KeyError, ValueError, RecursionError):
        description = None
    if not isinstance(description, dict) or not all(isinstance(kind, str) for kind in description.values()):
        raise ArgumentError(f"path: {path} was not written by save_tree: it has no {DESCRIPTION}")
    if stored.keys() != description.keys():
        raise ArgumentError(f"path: {path} is damaged: {DESCRIPTION} is of other arrays than it has")
    if stored.keys() != expected.keys():
        odd = sorted(stored.keys() ^ expected.keys())[0]
        what = "has no leaf" if odd in expected else "has an unknown leaf"
        raise ArgumentError(f"path: {path} {what} {odd!r}; it was written for another structure")
    leaves = [_restored(path, name, stored[name], description[name], leaf) for name, leaf in expected.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def save_mask(path: str | os.PathLike[str], mask: PyTree) -> None:
    """Write a mask as npz, one boolean array a leaf, named by its path; `load_mask` reads it.

    Raises:
      ArgumentError: a leaf that is not boolean, naming its path; a file that cannot be written.
    """
    for name, leaf in named_leaves(mask).items():
        if leaf.dtype != bool:
            raise ArgumentError(f"mask: leaf {name!r} has dtype {leaf.dtype}; expected booleans")
    save_tree(path, mask)


def load_mask(path: str | os.PathLike[str], problem: Problem) -> PyTree:
    """A mask that `save_mask` wrote, in the structure of a problem's parameters.

        found = jaxarch.architecture(jaxarch.load_mask("mask.npz", problem))

    Args:
      path: the file.
      problem: whose model the mask is of. For one with another head, load it for the problem that it was
        found on, and let `new_head()` come first.

    Returns:
      Booleans, `None` for parameters that are not masked; with a leading axis of runs if it was saved so.

    Raises:
      ArgumentError: a file that is not there, or no mask; a leaf that is no parameter of the model's or has
        another shape, naming its path.
    """
    path = as_path(path)
    stored = {name: array for name, array in read_npz(path).items() if name != DESCRIPTION}
    params, _ = jax.eval_shape(problem.init, jax.random.key(0))
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
    chosen = [jnp.asarray(stored[name]) if name in stored else None for name in leaves]
    return jax.tree.unflatten(jax.tree.structure(params), chosen)


def digest(*arrays: np.ndarray) -> str:
    """SHA-256 over the bytes of arrays: which data a result, or a cache, is of."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def _restored(path: Path, name: str, array: np.ndarray, kind: str, like: Any) -> Any:
    try:
        restored = _as_kind(array, kind)
    except (TypeError, ValueError, KeyError) as error:
        raise ArgumentError(
            f"path: leaf {name!r} of {path} is damaged: {array.dtype} is not how {shown(kind)} is kept "
            f"({one_line(error)})"
        ) from None
    shape, dtype = jnp.shape(like), getattr(like, "dtype", None)
    if restored.shape != shape or restored.dtype != dtype:
        raise ArgumentError(
            f"path: leaf {name!r} of {path} has shape {shown(restored.shape)}, dtype {restored.dtype}; "
            f"expected {shape}, {dtype}"
        )
    return restored


def _as_kind(array: np.ndarray, kind: str) -> Any:
    """An array as it was before it was kept: keys, and dtypes that NumPy has not, are kept as raw numbers."""
    if str(array.dtype) == kind:
        return array
    if kind.startswith("key:") and array.dtype == np.uint32:
        return jax.random.wrap_key_data(jnp.asarray(array), impl=kind.removeprefix("key:"))
    dtype = jnp.dtype(kind)
    if dtype.kind != "V" or array.dtype != np.dtype(f"u{dtype.itemsize}"):
        raise ValueError("other numbers were expected")
    return array.view(dtype)


class Checkpoints:
    """A folder of checkpoints, from which an interrupted `over_seeds` continues to the same bits.

    Pass it as the option `checkpoint`. Use one folder for each experiment: a checkpoint of other keys, data,
    settings or sizes is refused, but it cannot be seen that, say, the optimiser or the loss is another. As
    long as the object is kept, no other process can use the folder.

    Args:
      folder: where the files are; made if need be.
      every: seconds that must have passed since a name was last saved; 0 saves at every chunk border. The end
        of a training is always saved.

    Raises:
      ArgumentError: a folder that cannot be made, or that another process is using; a time that is none.
    """

    def __init__(self, folder: str | os.PathLike[str], every: float = 0.0) -> None:
        check_strength("every", every)
        self.folder = as_path(folder, "folder")
        self.every = every
        self._saved: dict[str, float] = {}
        self._held = claim(self.folder)

    def load(self, name: str, like: PyTree) -> PyTree | None:
        """The pytree last saved under a name, in the structure of `like`; `None` if there is none."""
        path = self._path(name)
        return load_tree(path, like) if path.exists() else None

    def save(self, name: str, tree: PyTree, last: bool = False) -> None:
        """Keep a pytree under a name, in place of the one before, if it is time or it is the last."""
        now = time.monotonic()
        if last or now - self._saved.get(name, -np.inf) >= self.every:
            save_tree(self._path(name), tree, compress=False)
            self._saved[name] = now

    def _path(self, name: str) -> Path:
        safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
        return self.folder / f"{safe}-{zlib.crc32(name.encode()):08x}.npz"

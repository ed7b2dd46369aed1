"""Pytrees of arrays in npz and safetensors files, without pickles."""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxarch._internal.errors import ArgumentError, check_flag, is_traced, one_line, shown
from jaxarch._internal.trees import PyTree, check_distinct, is_key, named_leaves, placed, raw_numbers
from jaxarch.io._files import as_path, complete_file
from jaxarch.io._npz import default_limit, read_npz
from jaxarch.io._safetensors_files import (
    check_safetensors,
    is_native,
    is_safetensors,
    read_safetensors,
    write_safetensors,
)

DESCRIPTION = "__leaves__"
FOREIGN = "it was written for another structure, or by an earlier version of jaxarch"


def save_tree(path: str | os.PathLike[str], tree: PyTree, *, compress: bool = True) -> None:
    """Write a pytree of arrays: one array per leaf, named by its path.

    A file name that ends with `.safetensors` gives safetensors, for PyTorch and others
    (`pip install 'jaxarch[safetensors]'`), any other name npz. Every dtype is kept, including bfloat16 and
    PRNG keys. Dtypes that the format lacks are stored as raw numbers. An entry `__leaves__` (JSON) describes
    them in an npz, and `raw` in the `__metadata__` in safetensors. Complex numbers need npz. The file is
    written completely or not at all: it gets its name at the end.

    Args:
      path: the file; folders are created if needed.
      tree: the pytree.
      compress: whether to compress an npz. safetensors is never compressed.

    Raises:
      ArgumentError: a leaf that is not an array, or that the format cannot store; two leaves with one path; a
        file that cannot be written; safetensors is not installed.

    Example:
      >>> import jax.numpy as jnp, jaxarch, pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "weights.npz"
      >>> params = {"kernel": jnp.array([1.5, 0.0], jnp.bfloat16)}
      >>> jaxarch.save_tree(path, params)
      >>> print(jaxarch.load_tree(path, like=params)["kernel"])
      [1.5 0]
    """
    save_leaves(path, tree, "parameters", compress)


def save_leaves(path: str | os.PathLike[str], tree: PyTree, content: str, compress: bool = True) -> None:
    """Save like `save_tree`, in a file that names its content: `parameters` or a `mask`."""
    check_flag("compress", compress)
    path = as_path(path)
    if path.name in ("", ".."):
        raise ArgumentError(f"path: expected the path of a file, got {shown(path)}")
    arrays: dict[str, Any] = {}
    description: dict[str, str] = {}
    argument = "mask" if content == "mask" else "tree"
    check_distinct(argument, tree)
    if is_traced(tree):
        raise ArgumentError(f"{argument}: it is traced; save it outside of jit")
    for name, leaf in named_leaves(tree).items():
        check_array("tree", name, leaf)
        kind = str(leaf.dtype)
        if is_key(leaf):
            kind = f"key:{jax.random.key_impl(leaf)}"
        arrays[name], description[name] = np.asarray(raw_numbers(leaf)), kind
    try:
        if is_safetensors(path):
            check_safetensors(path)
            stored = {name: array if is_native(array) else _raw(array) for name, array in arrays.items()}
            raw = {name: kind for name, kind in description.items() if str(stored[name].dtype) != kind}
            with complete_file(path) as file:
                write_safetensors(file, stored, raw, content)
        else:
            kept: dict[str, Any] = {name: _raw(array) for name, array in arrays.items()}
            kept[DESCRIPTION] = np.asarray(json.dumps(description))
            with complete_file(path) as file:
                (np.savez_compressed if compress else np.savez)(file, **kept)
    except OSError as error:
        raise ArgumentError(f"path: cannot write {path} ({error.strerror})") from None


def load_tree(path: str | os.PathLike[str], like: PyTree) -> PyTree:
    """Read a pytree that `save_tree` wrote, in the structure of `like`.

    Any safetensors file with the same paths, shapes and dtypes will do, for instance PyTorch's.

    Args:
      path: the file: safetensors if its name ends with `.safetensors`, otherwise npz.
      like: a pytree with the same paths, shapes and dtypes (arrays or `jax.ShapeDtypeStruct`).

    Raises:
      ArgumentError: a file that does not exist or has another format; a leaf that is missing, unknown, or of
        another shape or dtype (the message names its path); safetensors is not installed.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "weights.npz"
      >>> jaxarch.save_tree(path, {"kernel": jnp.array([[1.5, 2.5]]), "bias": jnp.zeros(2)})
      >>> def init(key):
      ...     return {"kernel": jax.random.normal(key, (1, 2)), "bias": jnp.zeros(2)}
      >>> print(jaxarch.load_tree(path, like=jax.eval_shape(init, jax.random.key(0)))["kernel"])
      [[1.5 2.5]]
    """
    path, expected = as_path(path), named_leaves(like)
    for name, leaf in expected.items():
        check_array("like", name, leaf)
    # Allow twice the size of `like`: if the caller has memory for that, the file is not a zip bomb.
    size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in expected.values())
    limit = max(default_limit(), 2 * size)
    stored, description = (_of_safetensors if is_safetensors(path) else _of_npz)(path, limit)
    if stored.keys() != expected.keys():
        odd = sorted(stored.keys() ^ expected.keys())[0]
        what = "has no leaf" if odd in expected else "has an unknown leaf"
        raise ArgumentError(f"path: {path} {what} {odd!r}; {FOREIGN}")
    restored = {
        name: _restored(path, name, stored[name], description[name], leaf) for name, leaf in expected.items()
    }
    return placed(restored, like)


def check_array(argument: str, name: str, leaf: object) -> None:
    """Raise unless a leaf is an array.

    Raises:
      ArgumentError: a leaf of another kind; the message names the tree's argument and the leaf's path.
    """
    if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape"):
        raise ArgumentError(f"{argument}: expected an array in leaf {name!r}, got {shown(leaf)}")


def check_leaf(argument: str, path: Path, name: str, stored: Any, like: Any) -> None:
    """Raise unless a leaf in a file has the expected shape and dtype.

    Raises:
      ArgumentError: a leaf that differs; the message names the path's argument, the file, and the leaf's
        path.
    """
    shape, dtype = jnp.shape(like), getattr(like, "dtype", None)
    if stored.shape != shape or stored.dtype != dtype:
        raise ArgumentError(
            f"{argument}: leaf {name!r} of {path} has shape {shown(stored.shape)}, dtype {stored.dtype}; "
            f"expected {shape}, {dtype}"
        )


def digest(*arrays: np.ndarray) -> str:
    """Return the SHA-256 over the bytes of arrays, to identify the data of a result or a cache.

    Example:
      >>> import numpy as np
      >>> from jaxarch.io import digest
      >>> digest(np.zeros(3)) == digest(np.zeros(3)), digest(np.zeros(3)) == digest(np.zeros(3, int))
      (True, False)
    """
    total = hashlib.sha256()
    for array in arrays:
        if is_traced(array) or not hasattr(array, "dtype") or is_key(array):
            raise ArgumentError(f"arrays: expected concrete arrays, got {shown(array)}")
        total.update(f"{array.dtype}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file by the paths that they were saved under, whoever wrote it."""
    if is_safetensors(path):
        return read_safetensors(path).arrays
    return {name: array for name, array in read_npz(path).items() if name != DESCRIPTION}


def _raw(array: np.ndarray) -> np.ndarray:
    """Return an array as raw numbers if NumPy lacks its dtype; any other array as it is."""
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "V" else array


def _of_npz(path: Path, limit: int) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return arrays, and the kind of each before it was stored."""
    stored = read_npz(path, limit=limit)
    try:
        description = json.loads(str(stored.pop(DESCRIPTION)))
    except (KeyError, ValueError, RecursionError):
        description = None
    if not isinstance(description, dict) or not all(isinstance(kind, str) for kind in description.values()):
        raise ArgumentError(f"path: {path} was not written by save_tree: it has no {DESCRIPTION}")
    if stored.keys() != description.keys():
        raise ArgumentError(f"path: {path} is damaged: {DESCRIPTION} does not match its arrays")
    return stored, description


def _of_safetensors(path: Path, limit: int) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    stored, raw = read_safetensors(path, limit=limit)
    return stored, {name: str(array.dtype) for name, array in stored.items()} | raw


def _restored(path: Path, name: str, array: np.ndarray, kind: str, like: Any) -> Any:
    try:
        restored = _as_kind(array, kind)
    except (TypeError, ValueError, KeyError) as error:
        raise ArgumentError(
            f"path: leaf {name!r} of {path} is damaged: {array.dtype} numbers cannot be restored as "
            f"{shown(kind)} ({one_line(error)})"
        ) from None
    check_leaf("path", path, name, restored, like)
    return restored


def _as_kind(array: np.ndarray, kind: str) -> Any:
    """Restore an array from its stored form: keys, and dtypes that NumPy lacks, are stored as raw numbers."""
    if str(array.dtype) == kind:
        return array
    if kind.startswith("key:") and array.dtype == np.uint32:
        return jax.random.wrap_key_data(jnp.asarray(array), impl=kind.removeprefix("key:"))
    dtype = jnp.dtype(kind)
    if dtype.kind != "V" or array.dtype != np.dtype(f"u{dtype.itemsize}"):
        raise ValueError("wrong dtype")
    return array.view(dtype)

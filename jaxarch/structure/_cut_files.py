"""Files that say which units a smaller model has."""

from __future__ import annotations

import json
import os
from typing import Any, Protocol

import numpy as np

from jaxarch._internal.errors import ArgumentError, first_line, shown
from jaxarch.io._files import as_path, complete_file
from jaxarch.structure._groups import Groups

FORMAT, VERSION = "jaxarch cut", 1
_LARGEST = 2**28
"""Largest size of a group, so that a file cannot ask for all memory."""


class Cut(Protocol):
    """A `Plan` or a `Shrunk`."""

    groups: Any
    kept: Any


def save_cut(path: str | os.PathLike[str], cut: Cut) -> None:
    """Write a JSON file that says which units of each group stay.

        small = plan.apply()
        jaxarch.structure.save_cut("small.json", small)
        jaxarch.save_tree("small.safetensors", small.tree)

    The file has an entry per group: its kind, its size, the indices of the units that stay, and the axes of
    leaves that are cut together. `load_cut` reads it.

    Args:
      path: the file.
      cut: the result of `plan`, of its `apply()`, or of `shrink`.

    Raises:
      ArgumentError: anything else than such a result; a file that cannot be written.

    Example:
      >>> import jax.numpy as jnp, jaxarch, pathlib, tempfile
      >>> params = {"in": jnp.arange(8.0).reshape(1, 8), "out": jnp.ones((8, 1))}
      >>> def model(params, x):
      ...     return jnp.tanh(x @ params["in"]) @ params["out"]
      >>> x, path = jnp.ones((1, 1)), pathlib.Path(tempfile.mkdtemp()) / "small.json"
      >>> plan = jaxarch.structure.plan(model, params, x, budget="25% multiply_adds")
      >>> jaxarch.structure.save_cut(path, plan)
      >>> jaxarch.structure.load_cut(path)["in[1]"].astype(int)
      array([0, 0, 0, 0, 0, 0, 1, 1])
    """
    groups, kept = getattr(cut, "groups", None), getattr(cut, "kept", None)
    if not isinstance(groups, Groups) or not isinstance(kept, dict):
        raise ArgumentError(f"cut: expected the result of plan or shrink, got {shown(cut)}")
    of_groups = {
        name: {
            "kind": group.kind,
            "size": group.size,
            "kept": np.flatnonzero(kept[name]).tolist(),
            "axes": [[leaf, axis] for leaf, axis in group.axes],
        }
        for name, group in groups.groups.items()
        if name in kept
    }
    text = json.dumps({"format": FORMAT, "version": VERSION, "groups": of_groups}, indent=1)
    try:
        with complete_file(as_path(path)) as file:
            file.write(f"{text}\n".encode())
    except OSError as error:
        raise ArgumentError(f"path: {path} cannot be written: {error.strerror}") from None


def load_cut(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read a file that `save_cut` wrote.

        kept = jaxarch.structure.load_cut("small.json")
        groups = jaxarch.structure.axis_groups(apply, shapes, x)  # no weights are needed
        smaller = jax.jit(groups.smaller(kept))
        like = jax.eval_shape(lambda tree: groups.cut(tree, kept), shapes)
        tree = jaxarch.load_tree("small.safetensors", like)

    For a model of a framework, `plan(model, x, kept=kept).apply().model` has the smaller layers.

    Args:
      path: the file.

    Returns:
      By group name, booleans of shape (size,): the units that stay.

    Raises:
      ArgumentError: a file that does not exist, or is not of this format and version.

    Example:
      >>> import jaxarch
      >>> jaxarch.structure.load_cut("no-such-file.json")
      Traceback (most recent call last):
      jaxarch.ArgumentError: path: no-such-file.json cannot be read: No such file or directory
    """
    path = as_path(path)
    try:
        found = json.loads(path.read_bytes())
        if (found["format"], found["version"]) != (FORMAT, VERSION):
            raise ValueError(f"version {found['version']}")
        return {name: _units(group["size"], group["kept"]) for name, group in found["groups"].items()}
    except OSError as error:
        raise ArgumentError(f"path: {path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ArgumentError(
            f"path: {path} was not written by save_cut in version {VERSION} of its format: "
            f"{first_line(error) or type(error).__name__}"
        ) from None


def _units(size: Any, kept: Any) -> np.ndarray:
    """Return booleans, if a size and indices are integers as `save_cut` writes them."""
    if type(size) is not int or not 0 < size <= _LARGEST:
        raise ValueError(f"a size of {size}")
    rising = type(kept) is list and all(type(index) is int for index in kept) and kept == sorted({*kept})
    if not rising or not kept or kept[0] < 0 or kept[-1] >= size:
        raise ValueError(f"units that are no rising indices below {size}")
    units = np.zeros(size, bool)
    units[kept] = True
    return units

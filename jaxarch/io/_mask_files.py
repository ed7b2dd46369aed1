"""Mask files, readable by other programs, and checked against the model that they are loaded for."""

from __future__ import annotations

import os
from typing import Any, Protocol, runtime_checkable

import jax

from jaxarch._internal.errors import ArgumentError, shortened, shown
from jaxarch._internal.trees import PyTree, check_floating, named_leaves, placed
from jaxarch.io._files import as_path
from jaxarch.io._trees import check_array, load_arrays, save_leaves
from jaxarch.masks._sharding import beside


@runtime_checkable
class _Learned(Protocol):
    """A problem, whose class belongs to a higher layer of the package: `init(key) -> (params, state)`."""

    def init(self, key: jax.Array) -> tuple[Any, Any]:
        """Return initial parameters and state."""


def save_mask(path: str | os.PathLike[str], mask: PyTree) -> None:
    """Write a mask, one boolean array per leaf, named by its path; `load_mask` reads it.

    Args:
      path: the file. A name that ends with `.safetensors` gives safetensors, for PyTorch and others
        (`pip install 'jaxarch[safetensors]'`), any other name npz.
      mask: booleans, `None` for parameters that are not masked; one mask, or many along a leading axis.

    Raises:
      ArgumentError: a leaf that is not boolean (the message names its path); a file that cannot be written;
        safetensors is not installed.

    Example:
      >>> import jax.numpy as jnp, jaxarch, pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "mask.npz"
      >>> jaxarch.save_mask(path, {"kernel": jnp.array([True, False]), "bias": None})
      >>> params = {"kernel": jnp.ones(2), "bias": jnp.ones(1)}
      >>> print(jaxarch.load_mask(path, like=params)["kernel"])
      [ True False]
    """
    leaves = named_leaves(mask)
    if not leaves:
        raise ArgumentError(f"mask: expected booleans in at least one leaf, got {shown(mask)}")
    for name, leaf in leaves.items():
        check_array("mask", name, leaf)
        if leaf.dtype != bool:
            raise ArgumentError(f"mask: leaf {name!r} has dtype {leaf.dtype}; expected booleans")
    save_leaves(path, mask, "mask")


def load_mask(path: str | os.PathLike[str], like: _Learned | PyTree) -> PyTree:
    """Read a mask file of `save_mask`, or of another program, in the structure of a model's parameters.

        mask = jaxarch.load_mask("mask.npz", like=params)
        network = jaxarch.architecture(jaxarch.load_mask("mask.npz", problem))

    Args:
      path: the file: safetensors if its name ends with `.safetensors`, otherwise npz. It holds booleans by
        the paths of the parameters that they mask.
      like: the parameters of the masked model, or their shapes: any pytree, an NNX state; or a problem, for
        its model. If the head differs, load the mask for the problem that it was found on, and apply
        `new_head()` first.

    Returns:
      Booleans, `None` for parameters that are not masked; with a leading axis of runs if it was saved so.
      If the parameters are arrays, the mask is on their devices, and split like them.

    Raises:
      ArgumentError: a file that does not exist, or is not a mask; a leaf that is not a parameter of the model
        or has another shape (the message names its path); safetensors is not installed.

    Example:
      >>> import jax.numpy as jnp, jaxarch, pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "mask.npz"
      >>> jaxarch.save_mask(path, {"kernel": jnp.array([True, False])})
      >>> jaxarch.load_mask(path, like={"kernel": jnp.ones(2), "bias": jnp.ones(1)})
      {'bias': None, 'kernel': Array([ True, False], dtype=bool)}
    """
    params = jax.eval_shape(like.init, jax.random.key(0))[0] if isinstance(like, _Learned) else like
    leaves = named_leaves(params)
    if not leaves:
        raise ArgumentError("like: expected a pytree with at least one array, got none")
    path = as_path(path)
    stored = load_arrays(path)
    for name, array in stored.items():
        if name not in leaves:
            raise ArgumentError(
                f"path: {path} masks {name!r}, which `like` does not have; its leaves are: "
                f"{shortened(', '.join(leaves), 200)}"
            )
        check_floating("like", {name: leaves[name]})
        if array.dtype != bool or array.shape[array.ndim - leaves[name].ndim :] != leaves[name].shape:
            raise ArgumentError(
                f"path: leaf {name!r} of {path} has shape {array.shape}, dtype {array.dtype}; expected "
                f"booleans of the parameter's shape {leaves[name].shape}, with or without a leading axis of "
                "runs"
            )
    runs = {array.shape[: array.ndim - leaves[name].ndim] for name, array in stored.items()}
    if len(runs) != 1 or max(map(len, runs)) > 1:
        raise ArgumentError(
            f"path: the masks in {path} have leading axes {sorted(runs)}; expected none, or one axis of runs "
            "that all leaves share"
        )
    return placed({name: beside(leaves[name], array) for name, array in stored.items()}, params)

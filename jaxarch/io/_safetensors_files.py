"""Safetensors files of arrays, for PyTorch and other readers; reading does not trust a file's author."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from jaxarch._internal.errors import ArgumentError, from_extra, one_line, shown
from jaxarch._internal.memory import in_bytes
from jaxarch.io._files import as_path
from jaxarch.io._npz import LIMIT, default_limit

SUFFIX = ".safetensors"
"""Suffix of the name of a safetensors file."""
HEADER_LIMIT = 2**23
"""Limit on bytes of names and shapes, enough for some 80,000 arrays: in memory they take 15 times as many."""

FORMAT, VERSION = "jaxarch", "1"
_NATIVE = {"bool", "float16", "bfloat16", "float32", "float64"} | {
    f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)
}
_ABOUT = {
    "mask": "one boolean array for each masked parameter, named by its path: true where a connection is "
    "kept; parameters without a mask are left out; one axis more than the parameter has is an axis of runs, "
    "and comes first",
    "parameters": "arrays by path; `raw` names the arrays that hold the raw numbers of another dtype, or of "
    "a random key",
}


class Stored(NamedTuple):
    """Contents of a file.

    Attributes:
      arrays: arrays by name.
      raw: what the arrays stored as raw numbers are: a dtype, or `key:` and a kind of random key.
    """

    arrays: dict[str, np.ndarray]
    raw: dict[str, str]


def is_safetensors(path: Path) -> bool:
    """Return whether a file is safetensors, by its name."""
    return path.suffix.lower() == SUFFIX


def check_safetensors(path: Path, argument: str = "path") -> None:
    """Raise if safetensors is not installed.

    Raises:
      ArgumentError: a missing package; the message names the path's argument and the extra to install.
    """
    _library(path, argument)


def is_native(array: np.ndarray) -> bool:
    """Return whether every release of safetensors supports the dtype of an array."""
    return array.dtype.name in _NATIVE


def write_safetensors(
    file: BinaryIO, arrays: Mapping[str, np.ndarray], raw: Mapping[str, str], content: str
) -> None:
    """Write arrays into a file; this takes as many bytes of memory.

    Args:
      file: an open file.
      arrays: arrays by name, of dtypes that `_NATIVE` lists.
      raw: as in `Stored`.
      content: `mask` or `parameters`. It is stored in the file's `__metadata__`, beside `format` (`jaxarch`),
        `version`, `about` (in words) and `raw` (JSON).

    Raises:
      ArgumentError: an array of another dtype, or one called `__metadata__`; a header beyond `HEADER_LIMIT`.
      OSError: a file that cannot be written.
    """
    library = _library(SUFFIX, "path")
    for name, array in arrays.items():
        if not is_native(array):
            raise ArgumentError(
                f"tree: leaf {name!r} has dtype {array.dtype}, which safetensors does not support; save it "
                "as npz"
            )
        if name == "__metadata__":
            raise ArgumentError(
                f"tree: safetensors reserves the name {name!r}; rename the leaf, or save it as npz"
            )
    metadata = {"format": FORMAT, "version": VERSION, "content": content, "about": _ABOUT[content]}
    if raw:
        metadata["raw"] = json.dumps(raw)
    dense = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    # Not save_file: it replaces this file by another one, which nobody else may read.
    written = library.numpy.save(dense, metadata)
    header = int.from_bytes(written[:8], "little")
    if header > HEADER_LIMIT:
        raise ArgumentError(
            f"tree: its names and shapes take {in_bytes(header)}, and the limit for safetensors is "
            f"{in_bytes(HEADER_LIMIT)}; save it as npz"
        )
    file.write(written)


def read_safetensors(
    path: str | os.PathLike[str], argument: str = "path", limit: int | None = None
) -> Stored:
    """Read the arrays of a safetensors file by name, whoever wrote it.

    Args:
      path: the file.
      argument: the argument that held the path, for errors.
      limit: bytes that the file may have; by default the environment variable `JAXARCH_NPZ_LIMIT`, or half of
        the free memory.

    Raises:
      ArgumentError: safetensors is not installed; no such file; a file that is damaged, of a later version of
        jaxarch, or larger than the limit. The message names the argument.
    """
    place = as_path(path, argument)
    limit = default_limit() if limit is None else limit
    library = _library(place, argument)
    try:
        _check_size(place, limit)
        with library.safe_open(place, framework="np") as file:
            raw = _described(file.metadata() or {})
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        for name, array in arrays.items():
            if array.dtype == bool and array.size and array.view(np.uint8).max() > 1:
                raise ValueError(f"{shown(name)} in it has booleans other than 0 and 1")
        if not raw.keys() <= arrays.keys():
            raise ValueError("its description does not match its arrays")
        return Stored(arrays, raw)
    except FileNotFoundError:
        raise ArgumentError(f"{argument}: no such file: {shown(str(place), 200)}") from None
    except Exception as error:  # the library and NumPy raise many kinds of errors on damaged files
        why = getattr(error, "strerror", None) or one_line(error)
        named = shown(str(place), 200)
        raise ArgumentError(f"{argument}: {named} is not a readable safetensors file ({why})") from None


def _library(path: Path | str, argument: str) -> Any:
    with from_extra("safetensors", f"{argument}: {shown(path)}"):
        import safetensors
        import safetensors.numpy
    return safetensors


def _check_size(path: Path, limit: int) -> None:
    """Raise unless it is a file within the size limit, with a header of plausible size."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for its other end
        raise ValueError("it is a folder, a pipe or a device")
    if found.st_size > limit:
        raise ValueError(
            f"it has {in_bytes(found.st_size)}, and the limit is {in_bytes(limit)}; set {LIMIT}=BYTES in the "
            "environment to allow more"
        )
    with path.open("rb") as file:
        header = int.from_bytes(file.read(8), "little")
    if header > min(HEADER_LIMIT, found.st_size):
        raise ValueError(f"its header claims a size of {in_bytes(header)}, which is too large")


def _described(metadata: dict[str, str]) -> dict[str, str]:
    if metadata.get("format") != FORMAT:
        return {}
    if (version := metadata.get("version")) != VERSION:
        raise ValueError(
            f"it has version {shown(version)} of jaxarch's file format; this jaxarch reads version {VERSION}"
        )
    try:
        raw = json.loads(metadata.get("raw", "{}"))
    except (ValueError, RecursionError):
        raw = None
    if not isinstance(raw, dict) or not all(isinstance(kind, str) for kind in raw.values()):
        raise ValueError("its `raw` metadata is damaged")
    return raw

"""Arrays from untrusted npz files: nothing is decompressed before it is checked."""

from __future__ import annotations

import math
import os
import stat
import sys
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np

from jaxarch._internal.errors import ArgumentError, one_line, shown
from jaxarch._internal.memory import free_memory, in_bytes
from jaxarch.io._files import as_path

LIMIT = "JAXARCH_NPZ_LIMIT"
"""Environment variable with the number of bytes that the arrays of one file may take."""

_ENCRYPTED = 0x1
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_KINDS = "biufcU"


def read_npz(
    path: str | os.PathLike[str], argument: str = "path", limit: int | None = None
) -> dict[str, np.ndarray]:
    """Read the arrays of an npz file by name: numbers, booleans or text. No pickle is ever loaded.

    Args:
      path: the file.
      argument: the argument that held the path, for errors.
      limit: bytes that all arrays together may take; by default the environment variable
        `JAXARCH_NPZ_LIMIT`, or half of the free memory.

    Raises:
      ArgumentError: no such file, or not a file of plain arrays; more bytes than the limit; a header that
        claims another size than the array has. The message names the argument.

    Example:
      >>> import jaxarch, numpy as np, pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "arrays.npz"
      >>> np.savez(path, x=np.ones(2))
      >>> jaxarch.io.read_npz(path)
      {'x': array([1., 1.])}
    """
    place = as_path(path, argument)
    limit = default_limit() if limit is None else limit
    try:
        if not stat.S_ISREG(place.stat().st_mode):  # opening a pipe would wait for its other end
            raise ValueError("it is a folder, a pipe or a device")
        with place.open("rb") as file, ZipFile(file) as archive:
            return _arrays(archive, limit)
    except FileNotFoundError:
        raise ArgumentError(f"{argument}: no such file: {shown(str(place), 200)}") from None
    except Exception as error:  # zipfile, zlib and NumPy raise many kinds of errors on damaged files
        why = getattr(error, "strerror", None) or one_line(error)
        named = shown(str(place), 200)
        raise ArgumentError(
            f"{argument}: {named} is not a readable npz file of plain arrays ({why})"
        ) from None


def default_limit() -> int:
    """Return the default number of bytes that the arrays of one file may take.

    Raises:
      ArgumentError: an environment variable that is not a number.
    """
    named = os.environ.get(LIMIT)
    if named is None:
        free = free_memory()
        return sys.maxsize if free is None else free // 2
    if not named.isascii() or not named.isdigit():
        raise ArgumentError(f"{LIMIT}: expected a number of bytes, got {shown(named)}")
    return int(named)


def _arrays(archive: ZipFile, limit: int) -> dict[str, np.ndarray]:
    members = archive.infolist()
    size = sum(member.file_size for member in members)
    if size > limit:
        raise ValueError(
            f"its arrays take {in_bytes(size)}, and the limit is {in_bytes(limit)}; set {LIMIT}=BYTES in the "
            "environment to allow more"
        )
    arrays = {member.filename.removesuffix(".npy"): _array(archive, member) for member in members}
    if len(arrays) < len(members):
        raise ValueError("it has two arrays with the same name")
    return arrays


def _array(archive: ZipFile, member: ZipInfo) -> np.ndarray:
    name = shown(member.filename)
    if not member.filename.endswith(".npy"):
        raise ValueError(f"{name} in it is not an array")
    if member.flag_bits & _ENCRYPTED:
        raise ValueError(f"{name} in it is encrypted")
    if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise ValueError(f"{name} in it is compressed by method {member.compress_type}, unknown to NumPy")
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in _HEADERS:
            raise ValueError(f"{name} in it has the unknown npy version {version}")
        shape, _, dtype = _HEADERS[version](stream)
        left = member.file_size - stream.tell()
    if dtype.kind not in _KINDS:
        raise ValueError(f"{name} in it is of dtype {shown(dtype)}; expected numbers, booleans or text")
    if any(type(length) is not int or not 0 <= length <= sys.maxsize for length in shape):
        raise ValueError(f"{name} in it claims the shape {shown(shape)}")
    if math.prod(shape) * dtype.itemsize != left:
        raise ValueError(
            f"{name} in it claims {math.prod(shape):.3g} numbers, but has {in_bytes(left)} of data"
        )
    with archive.open(member) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)

"""Cache of arrays that take long to decode."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from jaxarch import ArgumentError
from jaxarch.io import digest, read_npz
from jaxarch.io._files import complete_file
from jaxarch.lab.data.folders import own_folder

CHECKSUM = "__sha256__"


def cached(
    name: str, files: Iterable[Path], make: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return the arrays that `make` decodes from files; read them from the cache if it has them.

    Cached arrays are used only if their SHA-256 is right. It covers the arrays, and the names, sizes and
    modification times of the files. If the cache cannot be written, the only cost is decoding again.
    """
    path = own_folder() / f"{name}.npz"
    source = np.asarray(json.dumps([[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in files]))
    arrays = _read(path, source)
    if arrays is None:
        arrays = make()
        kept = arrays | {CHECKSUM: _checksum(source, arrays)}
        with contextlib.suppress(OSError), complete_file(path) as file:
            np.savez(file, **kept)  # type: ignore[arg-type]
    return arrays


def _read(path: Path, source: np.ndarray) -> dict[str, np.ndarray] | None:
    try:
        arrays = read_npz(path)
        checksum = arrays.pop(CHECKSUM)
    except (ArgumentError, KeyError):
        return None
    return arrays if np.array_equal(checksum, _checksum(source, arrays)) else None


def _checksum(source: np.ndarray, arrays: dict[str, np.ndarray]) -> np.ndarray:
    return np.asarray(digest(source, *(arrays[name] for name in sorted(arrays))))

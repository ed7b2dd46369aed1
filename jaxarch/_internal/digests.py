"""Digests of arrays, to tell them from others."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from jaxarch._internal.trees import PyTree, named_leaves, raw_numbers


def tree_digest(tree: PyTree, said: tuple[Any, ...] = ()) -> np.ndarray:
    """Return the SHA-256 of arrays, with paths, dtypes and shapes, and of `said`: 32 bytes, uint8."""
    total = hashlib.sha256(repr(said).encode())
    for name, leaf in named_leaves(tree).items():
        array = np.ascontiguousarray(raw_numbers(leaf))
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        total.update(array.tobytes())
    return np.frombuffer(total.digest(), np.uint8)

"""Where examples come from: data sets that come with the install, and the user's own arrays."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxarch.errors import ArgumentError, did_you_mean
from jaxarch.storage import read_npz


class Dataset(NamedTuple):
    """Labelled examples.

    Attributes:
      name: shown in results.
      x: float32, shape (examples, features).
      y: class labels, int32, shape (examples,).
    """

    name: str
    x: np.ndarray
    y: np.ndarray


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set that can be asked for by name: what it is, and how to read it."""

    description: str
    read: Callable[[], Dataset]


def digits() -> Dataset:
    """Scikit-learn's handwritten digits: 1797 pictures of 8 x 8 pixels, ten classes; in every install."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return from_arrays(x, y, "digits")


SOURCES: dict[str, Source] = {
    "digits": Source("handwritten digits, 1797 x 64, classes 0-9 (comes with scikit-learn)", digits),
}


def from_arrays(x: object, y: object, name: str = "arrays") -> Dataset:
    """The user's arrays as a data set.

    Args:
      x: numbers, shape (examples, ...); trailing dimensions are flattened.
      y: integer labels, shape (examples,).
      name: shown in results.

    Raises:
      ArgumentError: wrong rank or dtype, lengths that differ, NaN or infinity, fewer than two classes.
    """
    values, labels = np.asarray(x), np.asarray(y)
    if values.ndim < 2 or not (np.issubdtype(values.dtype, np.number) or values.dtype == bool):
        raise ArgumentError(
            f"x: expected numbers of shape (examples, features), got {values.dtype} of shape {values.shape}"
        )
    if labels.ndim != 1:
        raise ArgumentError(f"y: expected labels of shape (examples,), got shape {labels.shape}")
    if len(labels) != len(values):
        raise ArgumentError(f"y: expected {len(values)} labels, one for each row of x, got {len(labels)}")
    if not np.issubdtype(labels.dtype, np.integer):
        raise ArgumentError(f"y: expected integer class labels, got dtype {labels.dtype}")
    values = values.reshape(len(values), -1).astype(np.float32)
    bad = int((~np.isfinite(values)).any(axis=1).sum())
    if bad:
        raise ArgumentError(f"x: {bad} examples hold NaN or infinite values; remove or impute them first")
    if len(labels) and (labels.min() < 0 or labels.max() > 2**31 - 1):
        raise ArgumentError(f"y: expected class labels from 0 on, got {labels.min()} to {labels.max()}")
    if len(np.unique(labels)) < 2:
        raise ArgumentError(f"y: expected at least two classes, got {np.unique(labels).tolist()}")
    return Dataset(name, values, labels.astype(np.int32))


def load(dataset: str | os.PathLike[str]) -> Dataset:
    """A data set by name, or from an npz file with arrays `x` and `y`.

    No pickle is ever loaded.

    Raises:
      ArgumentError: an unknown name, a file that cannot be read or lacks `x` or `y`; see also `from_arrays`.
    """
    name = os.fspath(dataset)
    if name in SOURCES:
        return SOURCES[name].read()
    path = Path(name)
    if path.suffix != ".npz" and not path.exists():
        raise ArgumentError(
            f"dataset: unknown {name!r}; {did_you_mean(name, SOURCES)}, or the path of an npz with x and y"
        )
    arrays = read_npz(path, "dataset")
    missing = [key for key in ("x", "y") if key not in arrays]
    if missing:
        raise ArgumentError(
            f"dataset: {name} has no array {' or '.join(missing)}; it has {', '.join(arrays)}"
        )
    return from_arrays(arrays["x"], arrays["y"], path.stem)

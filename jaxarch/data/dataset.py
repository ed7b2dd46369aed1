"""Labelled examples, and the user's own arrays as such."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxarch.errors import ArgumentError


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

"""Labelled examples, also from the user's own arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxarch import ArgumentError
from jaxarch.lab.checks import one_line, shown


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
    """Make a data set from the user's arrays.

    Args:
      x: numbers, shape (examples, ...); trailing dimensions are flattened.
      y: integer labels, shape (examples,).
      name: shown in results.

    Raises:
      ArgumentError: wrong rank or dtype, lengths that differ, NaN or infinity, fewer than two classes.

    Example:
      >>> import jaxarch, numpy as np
      >>> data = jaxarch.lab.data.from_arrays(np.zeros((4, 3, 3)), [0, 1, 0, 1], name="mine")
      >>> data.name, data.x.shape, data.y.tolist()
      ('mine', (4, 9), [0, 1, 0, 1])
      >>> jaxarch.lab.data.from_arrays(np.zeros((4, 9)), [0, 1, 0])
      Traceback (most recent call last):
      jaxarch.ArgumentError: y: expected 4 labels, one for each row of x, got 3
    """
    values = array_of("x", x)
    if values.ndim < 2 or 0 in values.shape[1:] or values.dtype.kind not in "biuf":
        raise ArgumentError(
            f"x: expected numbers of shape (examples, features), got {values.dtype} of shape {values.shape}"
        )
    labels = checked_labels(y, len(values))
    with np.errstate(over="ignore"):
        values = values.reshape(len(values), -1).astype(np.float32)
    bad = int((~np.isfinite(values)).any(axis=1).sum())
    if bad:
        raise ArgumentError(
            f"x: {bad} examples hold NaN or infinite values, or some beyond float32; "
            "remove or impute them first"
        )
    return Dataset(name, values, labels)


def check_dataset(data: object) -> None:
    """Raise unless it is a `Dataset`.

    Raises:
      ArgumentError: not a `Dataset`; says how to make one from arrays.
    """
    if not isinstance(data, Dataset):
        raise ArgumentError(
            f"data: expected a Dataset, got {shown(data)}; load or from_arrays(x, y) makes one"
        )
    # A Dataset can be made by hand, without the checks of from_arrays.
    x, y = data.x, data.y
    is_right = all(isinstance(array, np.ndarray) and array.dtype.kind in "biuf" for array in (x, y))
    if not is_right or x.ndim != 2 or y.shape != x.shape[:1] or x.dtype.kind != "f":
        raise ArgumentError(
            "data: expected x of shape (n, features), floating point, and y of shape (n,), got "
            f"{shown((np.shape(x), np.shape(y)))}; from_arrays(x, y) makes them"
        )


def array_of(name: str, values: object) -> np.ndarray:
    """Turn the user's numbers into an array.

    Raises:
      ArgumentError: rows of different lengths, or anything else that is not an array.
    """
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name}: expected an array ({one_line(error)})") from None


def checked_labels(y: object, examples: int) -> np.ndarray:
    """Check class labels, and return them as int32, shape (examples,).

    Raises:
      ArgumentError: wrong rank, dtype or length, negative labels, fewer than two classes.
    """
    labels = array_of("y", y)
    if labels.ndim != 1:
        raise ArgumentError(f"y: expected labels of shape (examples,), got shape {labels.shape}")
    if len(labels) != examples:
        raise ArgumentError(f"y: expected {examples} labels, one for each row of x, got {len(labels)}")
    if labels.dtype.kind not in "iu":
        raise ArgumentError(f"y: expected integer class labels, got dtype {labels.dtype}")
    if len(labels) and (labels.min() < 0 or labels.max() > 2**31 - 1):
        raise ArgumentError(
            f"y: expected class labels of 0 to {2**31 - 1}, got {labels.min()} to {labels.max()}"
        )
    if len(np.unique(labels)) < 2:
        raise ArgumentError(f"y: expected at least two classes, got {np.unique(labels).tolist()}")
    return labels.astype(np.int32)


def check_classes(argument: str, classes: Sequence[int], labels: np.ndarray, name: str) -> None:
    """Raise unless there is a class, none is named twice, and the labels of the data `name` have them all."""
    known = np.unique(labels).tolist()
    try:
        count, distinct = len(classes), len(set(classes))
    except TypeError:
        raise ArgumentError(
            f"{argument}: expected class labels such as (1, 2, 3), got {shown(classes)}"
        ) from None
    if not count:
        raise ArgumentError(f"{argument}: expected at least one class")
    if distinct < count:
        raise ArgumentError(f"{argument}: a class is named twice: {tuple(classes)}")
    missing = [label for label in classes if label not in known or label < 0]
    if missing:
        raise ArgumentError(f"{argument}: {name} has no class {missing[0]}; it has {known}")

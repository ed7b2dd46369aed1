"""Random rows with equally many of each class; smaller sets are subsets of larger ones."""

from __future__ import annotations

import jax
import numpy as np
from jax import Array

from jaxarch import ArgumentError
from jaxarch.lab.checks import check_count, check_one_key, is_traced
from jaxarch.lab.data.dataset import array_of


def balanced_rows(
    key: Array,
    labels: np.ndarray,
    rows: np.ndarray,
    *,
    per_class: int | None = None,
    size: int | None = None,
) -> np.ndarray:
    """Draw equally many of `rows` of each class, at random without replacement, with the classes in turn.

    The first k rows are balanced too, for every multiple k of the number of classes. They are the set of size
    k that the same key draws: sets of 50, 100 and 500 are each a subset of the next.

    Args:
      key: class c is drawn from `fold_in(key, c)`.
      labels: the class of every example, integers from 0 on, shape (examples,).
      rows: the examples to draw from, such as `np.arange(images.train)`.
      per_class: number of rows of each class in `labels`.
      size: number of rows in all, in place of `per_class`: a multiple of the number of classes.

    Returns:
      Rows, int32, shape (size,): the classes in ascending order, again and again.

    Raises:
      ArgumentError: both or neither of `per_class` and `size`, a size that is not such a multiple, more rows
        than a class has, invalid labels or rows.

    Example:
      >>> import jax, jaxarch, numpy as np
      >>> labels = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
      >>> rows = jaxarch.lab.data.balanced_rows(jax.random.key(0), labels, np.arange(10), size=6)
      >>> labels[rows].tolist()
      [0, 1, 0, 1, 0, 1]
      >>> fewer = jaxarch.lab.data.balanced_rows(jax.random.key(0), labels, np.arange(10), size=4)
      >>> (fewer == rows[:4]).all().item()
      True
    """
    check_one_key(key)
    labels, rows = array_of("labels", labels), array_of("rows", rows)
    _check(labels, rows)
    classes = np.unique(labels)
    if (per_class is None) == (size is None):
        raise ArgumentError("size: expected size or per_class, exactly one of the two")
    argument, wanted = ("per_class", per_class) if size is None else ("size", size)
    check_count(argument, wanted)
    assert wanted is not None
    count, rest = (wanted, 0) if size is None else divmod(wanted, len(classes))
    if rest:
        raise ArgumentError(f"size: expected a multiple of {len(classes)}, the number of classes, got {size}")
    picked = []
    for label in classes.tolist():
        there = rows[labels[rows] == label]
        if len(there) < count:
            raise ArgumentError(
                f"{argument}: expected at least {count} rows of each class, got {len(there)} of class "
                f"{label}; ask for fewer"
            )
        picked.append(draw(jax.random.fold_in(key, label), there, count))
    return np.stack(picked, axis=1).reshape(-1).astype(np.int32)


def draw(key: Array, rows: np.ndarray, count: int) -> np.ndarray:
    """Return the first `count` of `rows` in a random order."""
    if is_traced(key):
        raise ArgumentError("key: rows are drawn on the host; draw them outside of jit and vmap")
    return rows[np.asarray(jax.random.permutation(key, len(rows)))[:count]]


def _check(labels: np.ndarray, rows: np.ndarray) -> None:
    if labels.ndim != 1 or labels.size == 0 or labels.dtype.kind not in "iu":
        raise ArgumentError(
            f"labels: expected non-negative integers of shape (examples,), got {labels.dtype} of shape "
            f"{labels.shape}"
        )
    if labels.min() < 0:
        raise ArgumentError(f"labels: expected non-negative integers, got {labels.min()} among them")
    if rows.ndim != 1 or rows.size == 0 or rows.dtype.kind not in "iu":
        raise ArgumentError(f"rows: expected integers, shape (n,), got {rows.dtype} of shape {rows.shape}")
    if rows.min() < 0 or rows.max() >= len(labels):
        raise ArgumentError(
            f"rows: expected 0 to {len(labels) - 1}, the rows of labels, got {rows.min()} to {rows.max()}"
        )
    if len(np.unique(rows)) < len(rows):
        raise ArgumentError("rows: some occur twice; give each row once")

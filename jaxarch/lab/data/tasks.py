"""Binary tasks of two groups of classes: balanced, disjoint, reproducible splits for many runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch import ArgumentError, PyTree
from jaxarch.io._gather import take_rows
from jaxarch.lab.checks import (
    check_array,
    check_arrays,
    check_count,
    check_flag,
    check_list,
    check_one_key,
    is_traced,
    shown,
)
from jaxarch.lab.data.balanced_rows import draw
from jaxarch.lab.data.dataset import Dataset, check_classes, check_dataset


class Task(NamedTuple):
    """Binary task: for each run, its training rows, its test rows, and the classes that count as 1.

    Attributes:
      name: such as `1,2,3 v 4,5,6`; the first group is y = 1 unless flipped.
      train: rows to train on, int32, shape (runs, n).
      test: rows to test on, int32, shape (runs, m); none is among the run's training rows.
      targets: 1 where a class counts as y = 1, float32, shape (runs, classes).
      seeds: the seed of each run's split, shape (runs,).
      flipped: whether the second group is y = 1, shape (runs,).
    """

    name: str
    train: np.ndarray
    test: np.ndarray
    targets: np.ndarray
    seeds: np.ndarray
    flipped: np.ndarray

    def labels(self, data: Dataset, rows: np.ndarray) -> np.ndarray:
        """Return the binary labels of each run's rows, shape (runs, n)."""
        return np.take_along_axis(self.targets, data.y[rows], axis=1)


def two_groups(
    key: Array,
    data: Dataset,
    positive: Sequence[int],
    negative: Sequence[int],
    *,
    train_per_class: int,
    test_per_class: int,
    seeds: int,
    orientations: Sequence[bool] = (False, True),
) -> Task:
    """Draw independent balanced splits for the binary task of two groups of classes.

    Each seed draws `train_per_class` training and `test_per_class` other examples of every class, from
    `fold_in(key, seed)`. Both orientations (`True`: flipped, the second group is y = 1) have the same split.

    Raises:
      ArgumentError: data that is not a `Dataset`; groups that are empty, overlap or have classes that the
        data lacks; more examples than a class has; counts that are not positive integers; orientations that
        are not `True` or `False`.

    Example:
      >>> import jax, jaxarch, numpy as np
      >>> data = jaxarch.lab.data.from_arrays(np.eye(12), np.repeat([0, 1, 2], 4))  # four of each class
      >>> split = {"train_per_class": 3, "test_per_class": 1, "seeds": 5}
      >>> task = jaxarch.lab.data.two_groups(jax.random.key(0), data, [0, 2], [1], **split)
      >>> task.name, task.train.shape, task.test.shape  # ten runs: five splits, as they are and flipped
      ('0,2 v 1', (10, 9), (10, 3))
      >>> task.labels(data, task.test)[[0, 5]].tolist()  # one test example each of the classes 0, 2 and 1
      [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    check_one_key(key)
    check_dataset(data)
    check_count("train_per_class", train_per_class)
    check_count("test_per_class", test_per_class)
    check_count("seeds", seeds)
    _check_groups(data, positive, negative)
    check_list("orientations", orientations, "(False, True)")
    if not len(orientations):
        raise ArgumentError(f"orientations: expected some of (False, True), got {shown(orientations)}")
    for flip in orientations:
        check_flag("orientations", flip)
    wanted = train_per_class + test_per_class
    classes = [*positive, *negative]
    for label in classes:
        there = int((data.y == label).sum())
        if there < wanted:
            raise ArgumentError(
                f"train_per_class: class {label} of {data.name} has {there} examples, but "
                f"{train_per_class} + {test_per_class} were asked for; expected at most {there} in all"
            )

    train, test = [], []
    for seed in range(seeds):
        seed_key = jax.random.fold_in(key, seed)
        picked = [
            draw(jax.random.fold_in(seed_key, label), np.flatnonzero(data.y == label), wanted)
            for label in classes
        ]
        train.append(np.concatenate([rows[:train_per_class] for rows in picked]))
        test.append(np.concatenate([rows[train_per_class:] for rows in picked]))
    target = np.zeros((2, int(data.y.max()) + 1), np.float32)
    target[0, list(positive)] = target[1, list(negative)] = 1

    flipped = np.repeat(np.asarray(orientations, bool), seeds)
    copies = len(orientations)
    return Task(
        name=f"{','.join(map(str, positive))} v {','.join(map(str, negative))}",
        train=np.tile(np.stack(train), (copies, 1)).astype(np.int32),
        test=np.tile(np.stack(test), (copies, 1)).astype(np.int32),
        targets=target[flipped.astype(int)],
        seeds=np.tile(np.arange(seeds), copies),
        flipped=flipped,
    )


def take_task_rows(data: PyTree, per_run: Any, rows: Array) -> tuple[PyTree, Array]:
    """Gather inputs, and turn their classes into the run's own binary labels; a `gather` for problems.

    `data` is `(x, y)`, `per_run` is `{"targets": (classes,)}` for one run. x may be a pytree of arrays.

    Raises:
      ArgumentError: data that is not a pair; classes that are not one array of integers; no targets; rows
        that are not integers, or that the data lacks.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> x, y = jnp.array([[10.0], [20.0], [30.0]]), jnp.array([0, 1, 2])
      >>> per_run = {"targets": jnp.array([1.0, 0.0, 1.0])}  # classes 0 and 2 count as 1
      >>> inputs, labels = jaxarch.lab.data.take_task_rows((x, y), per_run, jnp.array([2, 1]))
      >>> inputs.tolist(), labels.tolist()
      ([[30.0], [20.0]], [1.0, 0.0])
    """
    check_list("data", data, "(x, y)")
    if len(data) != 2:
        raise ArgumentError(f"data: expected (x, y), got {shown(data)}")
    x, y = data
    check_arrays("data", x)
    if getattr(y, "ndim", None) != 1 or not jnp.issubdtype(y.dtype, jnp.integer):
        raise ArgumentError(f"data: expected y to be integer classes of shape (n,), got {shown(y)}")
    if not isinstance(per_run, Mapping) or "targets" not in per_run:
        raise ArgumentError('per_run: expected {"targets": ...}, as two_groups returns it')
    check_array("rows", rows)
    if not jnp.issubdtype(rows.dtype, jnp.integer):
        raise ArgumentError(f"rows: expected integers, got dtype {rows.dtype}")
    targets = per_run["targets"]
    check_array("per_run", targets)
    if targets.ndim == 0:
        raise ArgumentError(f"per_run: expected targets of shape (classes,), got shape {targets.shape}")
    if any(isinstance(array, np.ndarray) for array in (y, targets)) and not is_traced((y, targets, rows)):
        # NumPy raises on an index that is too large, but JAX takes the last entry instead; so check here.
        numbers = np.asarray(rows)
        if numbers.size and not -len(y) <= numbers.min() <= numbers.max() < len(y):
            raise ArgumentError(
                f"rows: expected rows of the data, which have {len(y)} examples, got {shown(rows)}"
            )
        if numbers.size and np.asarray(y)[numbers].max() >= len(targets):
            raise ArgumentError(
                f"per_run: expected a target for every class of the data, got {len(targets)} targets"
            )
    return take_rows(x, None, rows), targets[y[rows]]


def _check_groups(data: Dataset, positive: Sequence[int], negative: Sequence[int]) -> None:
    check_classes("positive", positive, data.y, data.name)
    check_classes("negative", negative, data.y, data.name)
    both = set(positive) & set(negative)
    if both:
        raise ArgumentError(f"negative: the groups must not overlap; both have {sorted(both)}")

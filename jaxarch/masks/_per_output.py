"""The same share of connections for each output: scores of different outputs are never compared."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import ArgumentError, did_you_mean, shown
from jaxarch._internal.trees import PyTree, map_selected, named_leaves
from jaxarch.masks._sharding import beside, split_like, whole

Axes = int | tuple[int, ...]


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class PerOutput:
    """A `scope` of `masks.keep`: each output of a leaf keeps the same share of its inputs.

    Counts are rounded so that their sum is the count of the leaf: they differ by at most 1, and the first
    outputs keep the more.

    Args:
      inputs: the axes of a leaf along which its inputs lie: one axis or several, or these by path, such as
        `Calibration.inputs`. All other axes are outputs.

    Raises:
      ArgumentError: anything but axes; an axis that is given twice.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> scores = {"kernel": jnp.array([[9.0, 1], [8, 3], [7, 2], [6, 0]])}
      >>> mask = jaxarch.masks.keep(scores, 0.5, jaxarch.masks.PerOutput(0))
      >>> print(mask["kernel"].astype(int))
      [[1 0]
       [1 1]
       [0 1]
       [0 0]]
    """

    inputs: Any

    def __post_init__(self) -> None:
        given: Any = self.inputs
        if isinstance(given, Mapping):
            given = tuple((str(path), _checked(axes)) for path, axes in given.items())
        else:
            given = _checked(given)
        object.__setattr__(self, "inputs", given)

    def largest(self, scores: PyTree, counts: np.ndarray | Array, left: PyTree = None) -> PyTree:
        """Mark the largest scores of each output, among the connections that are left.

        Args:
          scores: one per connection.
          counts: how many connections each leaf keeps.
          left: booleans for the scored leaves, or `None`.
        """
        names, each = iter(named_leaves(scores)), iter(counts)

        def mark(leaf: Array, *there: Array) -> Array:
            return self._mark(next(names), leaf, next(each), *there)

        return map_selected(mark, scores, *(() if left is None else (left,)))

    def _mark(self, path: str, leaf: Array, count: Any, there: Array | None = None) -> Array:
        inputs = self._axes(path, leaf.shape)
        outputs = [axis for axis in range(leaf.ndim) if axis not in inputs]
        order = [*outputs, *inputs]
        size = math.prod(leaf.shape[axis] for axis in inputs)

        def rows(array: Array) -> Array:
            return whole(array).transpose(order).reshape(-1, size)

        of = rows(leaf)
        keys = [-(of if of.dtype == jnp.float64 else of.astype(jnp.float32))]
        if there is not None:
            keys.append(~rows(there))
        # A second argsort turns the order into ranks; equal scores keep their order.
        rank = jnp.argsort(jnp.lexsort(keys, axis=-1), axis=-1)
        few, more = count // len(of), count % len(of)
        marked = rank < jnp.where(jnp.arange(len(of)) < more, few + 1, few)[:, None]
        if there is not None:
            marked &= rows(there)
        shape = [leaf.shape[axis] for axis in order]
        made = marked.reshape(shape).transpose(np.argsort(order))
        return beside(leaf, split_like(leaf, made)) if isinstance(leaf, Array) else made

    def _axes(self, path: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        given = self.inputs
        if given and isinstance(given[0], tuple):
            by_path = dict(given)
            if path not in by_path:
                raise ArgumentError(
                    f"scope: PerOutput has no axes of inputs for {path!r}; {did_you_mean(path, by_path)}"
                )
            given = by_path[path]
        if not all(-len(shape) <= axis < len(shape) for axis in given):
            raise ArgumentError(f"scope: {path!r} of shape {shape} has no axes {shown(given)}")
        axes = tuple(sorted({axis % len(shape) for axis in given}))
        if len(axes) < len(given):
            raise ArgumentError(f"scope: the axes {shown(given)} of {path!r} name one axis twice")
        return axes


def _checked(axes: Any) -> tuple[int, ...]:
    given = (axes,) if type(axes) is int else axes
    if not isinstance(given, (tuple, list)) or not given or not all(type(axis) is int for axis in given):
        raise ArgumentError(f"inputs: expected an axis, several, or these by path; got {shown(axes)}")
    return tuple(given)

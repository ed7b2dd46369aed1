"""Units kept or removed together: single connections, blocks, N of every M, or the units of a program.

Scores of connections give scores of units, and masks of units give masks of connections. The *score* of a
unit is the mean over its connections: a sum would prefer the layers with the most inputs, for their number
alone. Values of units are *spread* over connections. An entry of a kernel, for example, belongs to its
input's unit and to its output's. Such a connection takes the product of its units' values (for booleans, the
logical and).
"""

from __future__ import annotations

import abc
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import tree_flatten_with_path

from jaxarch._internal.errors import ArgumentError, is_traced, shown
from jaxarch._internal.kernels import not_matrices
from jaxarch._internal.order_statistics import largest_along
from jaxarch._internal.precision import widened
from jaxarch._internal.trees import PyTree, map_selected, named_leaves, path_name
from jaxarch.masks._gradient import hard_mask
from jaxarch.masks._largest import check_density, counts_kept, largest_of, mask_of, rounded_counts, top_k
from jaxarch.masks._sharding import beside, split_like, whole

WORDS = ("neurons", "channels", "heads", "experts")
"""Words for units that are read from a model's computation."""

ERK = "scope: 'erk' works only for single connections; with units, give 'global' or 'layer'"


class Units(abc.ABC):
    """Assignment of connections to units: the `units` argument of `masks.keep` and of the searches.

    It holds no arrays, compares equal to another with the same fields, and is a pytree without leaves. It
    therefore passes through `jit` and `vmap` like an array.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> params = {"in": jnp.ones((1, 3)), "bias": jnp.ones(3), "out": jnp.ones((3, 1))}
      >>> def model(params, x):
      ...     return jnp.tanh(x @ params["in"] + params["bias"]) @ params["out"]
      >>> groups = jaxarch.structure.axis_groups(model, params, jnp.ones((1, 1)))
      >>> units = groups.units("neurons").over(jaxarch.select(params))
      >>> def mask(scores):  # one a neuron, to be learned
      ...     return units.spread(jaxarch.masks.soft_mask(scores, hard=50.0, soft=5.0), params)
      >>> soft = mask({"bias[0]": jnp.array([-1.0, 0.0, 1.0])})
      >>> {path: leaf.round(2).ravel().tolist() for path, leaf in soft.items()}
      {'bias': [0.0, 0.5, 1.0], 'in': [0.0, 0.5, 1.0], 'out': [0.0, 0.5, 1.0]}
    """

    @abc.abstractmethod
    def over(self, selection: PyTree) -> Units:
        """Return the units of some leaves.

        Args:
          selection: the leaves whose connections are scored, arrays or their shapes, and `None` for others.

        Raises:
          ArgumentError: leaves that have no such units.
        """

    @abc.abstractmethod
    def score(self, scores: PyTree) -> PyTree:
        """Return a number for each unit: the mean over its connections.

        Args:
          scores: one per connection, for the leaves passed to `over`.

        Returns:
          A pytree of arrays.
        """

    @abc.abstractmethod
    def spread(self, values: PyTree, like: PyTree) -> PyTree:
        """Spread numbers or booleans of units over connections: each takes the product over its units.

        Args:
          values: one per unit, in the form that `score` returns.
          like: arrays, or their shapes, in the structure of the parameters.

        Returns:
          Arrays in the structure of `like`, `None` for leaves that have no such units.
        """

    def score_within(self, scores: PyTree, within: PyTree) -> tuple[PyTree, PyTree]:
        """Return the mean score of each unit over its connections in an earlier mask.

        Args:
          scores: see `score`.
          within: booleans for at least these leaves; `None` for all connections.

        Returns:
          The means, and booleans that mark the units with such a connection; `None` without a mask.
        """
        if within is None:
            return self.score(scores), None
        before = mask_of(scores, within)
        share = self.score(map_selected(lambda s, m: m.astype(jnp.float32), scores, before))
        sums = self.score(map_selected(lambda s, m: jnp.where(m, s, 0), scores, before))
        means = map_selected(lambda share, total: total / jnp.where(share > 0, share, 1), share, sums)
        return means, map_selected(lambda share: share > 0, share)

    def centred(self, values: PyTree) -> PyTree:
        """Subtract from the scores of units the threshold at which they are kept; by default it is 0."""
        return values

    def hard(self, values: PyTree) -> PyTree:
        """Return the units that learned scores keep: `1[w > 0]`."""
        return hard_mask(values)

    def counts(self, values: PyTree, density: Any, scope: Any = "global") -> Any:
        """Count the units kept: one count for all together, or an array with one per leaf of the values.

        Raises:
          ArgumentError: a density outside (0, 1], or one that these units cannot have.
        """
        if scope == "erk":
            raise ArgumentError(ERK)
        return counts_kept(values, density, scope)

    def largest(self, values: PyTree, counts: Any, left: PyTree = None) -> PyTree:
        """Mark the largest units, as many as asked for, among those that are left."""
        return largest_of(values, counts, left)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Connections(Units):
    """Every connection is a unit."""

    def over(self, selection: PyTree) -> Units:
        """Return these units: they fit all leaves."""
        return self

    def score(self, scores: PyTree) -> PyTree:
        """Return the scores themselves."""
        return scores

    def score_within(self, scores: PyTree, within: PyTree) -> tuple[PyTree, PyTree]:
        """Return the scores themselves, and the mask."""
        return scores, None if within is None else mask_of(scores, within)

    def spread(self, values: PyTree, like: PyTree) -> PyTree:
        """Return the values themselves."""
        return values

    def counts(self, values: PyTree, density: Any, scope: Any = "global") -> Any:
        """Count the connections kept."""
        return counts_kept(values, density, scope)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Blocks(Units):
    """Blocks of inputs by outputs in each leaf, whatever its other axes are; the last ones may be smaller.

    `units=(4, 4)` is `Blocks(4, 4)`.

    Args:
      inputs: the size of a block along the axis of inputs.
      outputs: the size of a block along the axis of outputs.
      axes: these two axes: a pair, or a pair by path, such as
        `structure.weights_of(function, params, x).axes`. The default is the last two axes; in searches,
        blocks lie as the model's products use a leaf. Elsewhere, blocks that are not square need `axes`,
        except in leaves called `kernel` or `w` of shape (inputs, outputs), or with the shape of a convolution
        with a square window.

    Raises:
      ArgumentError: sizes that are not positive integers, axes that are not two integers.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> scores = {"kernel": jnp.array([[9.0, 1, 2], [1, 1, 3]])}
      >>> mask = jaxarch.masks.keep(scores, 0.5, units=jaxarch.masks.Blocks(1, 2))
      >>> print(mask["kernel"].astype(int))  # 2 of 4 blocks, with the means 5, 2, 1 and 3
      [[1 1 0]
       [0 0 1]]
    """

    inputs: int
    outputs: int
    axes: Any = None

    def __post_init__(self) -> None:
        sizes = (self.inputs, self.outputs)
        if not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes):
            raise ArgumentError(
                "units: expected two positive integers, the inputs and outputs of a block, got "
                f"{shown(sizes)}"
            )
        object.__setattr__(self, "axes", _checked_axes("axes", self.axes, pair=True))

    def over(self, selection: PyTree) -> Units:
        """Return the blocks of some leaves.

        Raises:
          ArgumentError: a leaf with fewer than two axes, or whose axes are not known.
        """
        _check_axes(selection, 2, "blocks")
        for path, leaf in named_leaves(selection).items():
            self._axes(path, jnp.shape(leaf))
        return self

    def along(self, axes: Mapping[str, tuple[int, int]]) -> Blocks:
        """Return blocks along the axes that a model's products use, unless axes were given.

        Args:
          axes: by path, the axis that products sum over and the axis that they produce.
        """
        return self if self.axes is not None else dataclasses.replace(self, axes=_Found(axes.items()))

    def score(self, scores: PyTree) -> PyTree:
        """Return the mean of each block, in the structure of the scores."""
        return _map_named(self._means, scores)

    def spread(self, values: PyTree, like: PyTree) -> PyTree:
        """Give every connection the value of its block."""
        return _map_named(self._repeated, values, like)

    def _axes(self, path: str, shape: tuple[int, ...]) -> tuple[int, int]:
        is_square = self.inputs == self.outputs
        axes = _axes_of(self.axes, path, shape)
        if axes is None and is_square:
            return -2, -1
        if axes is None:
            raise ArgumentError(
                f"units: cannot tell which axes of {path!r} of shape {shape} are inputs and outputs; give "
                f"masks.Blocks({self.inputs}, {self.outputs}, axes=(inputs, outputs))"
            )
        # Square blocks of the last two axes are the same in either order.
        last = {len(shape) - 2, len(shape) - 1}
        return (-2, -1) if is_square and {axis % len(shape) for axis in axes} == last else axes

    def _means(self, path: str, leaf: Any) -> Array:
        axes = self._axes(path, jnp.shape(leaf))
        leaf = jnp.moveaxis(whole(widened(jnp.asarray(leaf))), axes, (-2, -1))
        *others, rows, columns = leaf.shape
        down, across = -(-rows // self.inputs), -(-columns // self.outputs)
        missing = (0, down * self.inputs - rows), (0, across * self.outputs - columns)
        padded = jnp.pad(leaf, [(0, 0)] * len(others) + list(missing))
        sums = padded.reshape(*others, down, self.inputs, across, self.outputs).sum((-3, -1))
        # The last blocks hold fewer entries, so each sum has its own divisor.
        tall = np.minimum(self.inputs, rows - self.inputs * np.arange(down))
        wide = np.minimum(self.outputs, columns - self.outputs * np.arange(across))
        return sums / np.broadcast_to(np.outer(tall, wide).astype(np.float32), sums.shape)

    def _repeated(self, path: str, values: Array, leaf: Any) -> Array:
        shape = jnp.shape(leaf)
        axes = self._axes(path, shape)
        tall = jnp.repeat(values, self.inputs, axis=-2)[..., : shape[axes[0]], :]
        made = jnp.repeat(tall, self.outputs, axis=-1)[..., : shape[axes[1]]]
        return _as_split(leaf, jnp.moveaxis(made, (-2, -1), axes))


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class NOfM(Units):
    """The N largest scores of every M consecutive inputs of each output, the pattern of sparse hardware.

    `units="2:4"` is `NOfM(2, 4)`. The mask has the density N/M in every leaf. Learned scores are compared
    with the midpoint between the N-th and the next of their M, through which no gradient flows. A sigmoid of
    the difference is thus above 1/2 for N of them.

    Args:
      n: how many are kept, at least 1.
      m: the number of consecutive inputs, more than n.
      axis: the axis of inputs, over which products sum: -2 in kernels of shape (..., inputs, outputs), -1 in
        weights of shape (outputs, inputs). Or by path, such as
        `structure.weights_of(function, params, x).axes`. By default, searches read it from the model's
        products. Otherwise it is -2 for leaves called `kernel` or `w` that have two axes, or belong to a
        convolution with a square window; other leaves raise an error.

    Raises:
      ArgumentError: integers that are not 1 <= N < M.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> scores = {"weight": jnp.array([[4.0, 3, 2, 1], [1, 5, 1, 1]])}
      >>> mask = jaxarch.masks.keep(scores, units=jaxarch.masks.NOfM(2, 4, axis=-1))
      >>> print(mask["weight"].astype(int))  # of equal scores, the first
      [[1 1 0 0]
       [1 1 0 0]]
    """

    n: int
    m: int
    axis: Any = None

    def __post_init__(self) -> None:
        if not all(type(number) is int for number in (self.n, self.m)) or not 1 <= self.n < self.m:
            raise ArgumentError(f"units: expected 'N:M' with 1 <= N < M, got {shown(f'{self.n}:{self.m}')}")
        object.__setattr__(self, "axis", _checked_axes("axis", self.axis, pair=False))

    def over(self, selection: PyTree) -> Units:
        """Return these units, after a check that they fit the leaves.

        Raises:
          ArgumentError: a leaf without this axis, or whose axis is not known, or has a size that M does not
            divide.
        """
        if isinstance(self.axis, int):
            _check_axes(selection, self.axis + 1 if self.axis >= 0 else -self.axis, f"{self.n}:{self.m}")
        for path, leaf in named_leaves(selection).items():
            size = jnp.shape(leaf)[self.axis_of(path, jnp.shape(leaf))]
            if size % self.m:
                raise ArgumentError(
                    f"units: {self.n}:{self.m} does not fit {path!r} of shape {jnp.shape(leaf)}, since "
                    f"{self.m} does not divide {size}; leave this leaf out with `where`"
                )
        return self

    def along(self, axes: Mapping[str, tuple[int, int]]) -> NOfM:
        """Return these units along the axes that a model's products use, unless an axis was given.

        Args:
          axes: by path, the axis that products sum over and the axis that they produce.
        """
        return self if self.axis is not None else dataclasses.replace(self, axis=_Found(axes.items()))

    def axis_of(self, path: str, shape: tuple[int, ...]) -> int:
        """Return the axis of a leaf along which its inputs lie."""
        if 0 in shape:  # it has no inputs, and no group to choose from
            return shape.index(0)
        axes = self.axis if isinstance(self.axis, int) else _axes_of(self.axis, path, shape)
        if axes is None:
            raise ArgumentError(
                f"units: cannot tell which axis of {path!r} of shape {shape} is the inputs; give "
                f"masks.NOfM({self.n}, {self.m}, axis=...): -2 for (..., inputs, outputs), -1 for (outputs, "
                "inputs), or structure.weights_of(function, params, x).axes"
            )
        found = axes if isinstance(axes, int) else axes[0]
        if not -len(shape) <= found < len(shape):
            raise ArgumentError(f"units: {path!r} of shape {shape} has no axis {found}")
        return found

    def score(self, scores: PyTree) -> PyTree:
        """Return the scores themselves."""
        return scores

    def score_within(self, scores: PyTree, within: PyTree) -> tuple[PyTree, PyTree]:
        """Return the scores themselves, and the mask."""
        return scores, None if within is None else mask_of(scores, within)

    def spread(self, values: PyTree, like: PyTree) -> PyTree:
        """Return the values themselves."""
        return values

    def centred(self, values: PyTree) -> PyTree:
        """Subtract from the scores the midpoint between the N-th and the next of their M."""

        def less(rows: Array) -> Array:
            # The midpoint is a threshold: like the 0 of other units, it has no gradient.
            ordered = -jnp.sort(-jax.lax.stop_gradient(rows), axis=-1)
            return rows - (ordered[..., self.n - 1 : self.n] + ordered[..., self.n : self.n + 1]) / 2

        return _map_named(lambda path, leaf: self._by_rows(less, path, leaf), values)

    def hard(self, values: PyTree) -> PyTree:
        """Return the N largest of every M."""
        return self.largest(values, None)

    def counts(self, values: PyTree, density: Any, scope: Any = "global") -> Any:
        """Check the density, and return nothing, since N of every M are kept.

        Raises:
          ArgumentError: a density that is not N/M; the scope `erk`.
        """
        if density is not None:
            if not is_traced(density):
                check_density("density", density)
            if is_traced(density) or not math.isclose(density, self.n / self.m):
                raise ArgumentError(
                    f"density: {self.n}:{self.m} keeps {self.n / self.m:.6g} of the connections, got "
                    f"{'a traced one' if is_traced(density) else shown(density)}; leave it out"
                )
        if scope == "erk":
            raise ArgumentError(
                f"scope: {self.n}:{self.m} has the same density in every leaf; leave 'erk' out"
            )

    def largest(self, values: PyTree, counts: Any, left: PyTree = None) -> PyTree:
        """Mark the N largest of every M: of equal scores the first, NaN last, and fewer if fewer are left."""

        def first(rows: Array) -> Array:
            return largest_along(rows, self.n)

        def first_left(rows: Array, there: Array) -> Array:
            return largest_along(rows, self.n, there)

        if left is None:
            return _map_named(lambda path, leaf: self._by_rows(first, path, leaf), values)
        return _map_named(lambda path, leaf, on: self._by_rows(first_left, path, leaf, on), values, left)

    def rows(self, values: PyTree) -> PyTree:
        """Return arrays whose last axis holds the M inputs of a group, and the one before the groups."""
        return _map_named(self._rows, values)

    def of_rows(self, rows: PyTree, like: PyTree) -> PyTree:
        """Return arrays of the shapes of others, from arrays that lie as `rows` returns them."""
        return _map_named(self._of_rows, like, rows)

    def _by_rows(self, function: Any, path: str, leaf: Array, *others: Array) -> Array:
        """Apply a function to arrays whose last axis holds M consecutive inputs."""
        axis = self.axis_of(path, leaf.shape)
        rows = (self._along_last(axis, array) for array in (leaf, *others))
        return self._of_rows(path, leaf, function(*rows))

    def _rows(self, path: str, leaf: Array) -> Array:
        return self._along_last(self.axis_of(path, leaf.shape), leaf)

    def _along_last(self, axis: int, leaf: Array) -> Array:
        last = jnp.moveaxis(whole(leaf), axis, -1)
        return last.reshape(*last.shape[:-1], last.shape[-1] // self.m, self.m)

    def _of_rows(self, path: str, leaf: Array, rows: Array) -> Array:
        axis = self.axis_of(path, leaf.shape)
        joined = rows.reshape(*rows.shape[:-2], leaf.shape[axis])
        return _as_split(leaf, jnp.moveaxis(joined, -1, axis))


@dataclasses.dataclass(frozen=True)
class Span:
    """Meaning of an axis' indices: units of a group, a product of spans row by row, or spans in sequence.

    Attributes:
      size: the number of indices.
      group: the name of the group whose units they are; empty if they are none, or if there are parts.
      form: how several parts combine: `product` or `sum`.
      parts: the parts; in a product, the last one varies fastest.
    """

    size: int
    group: str = ""
    form: str = ""
    parts: tuple[Span, ...] = ()

    def groups(self) -> Iterator[tuple[str, int]]:
        """Yield the groups in the span, with their sizes."""
        if self.group:
            yield self.group, self.size
        for part in self.parts:
            yield from part.groups()

    def count(self, kept: Mapping[str, int]) -> int:
        """Count the indices left, given how many units some groups keep."""
        if self.group:
            return kept.get(self.group, self.size)
        counts = [part.count(kept) for part in self.parts]
        return (sum(counts) if self.form == "sum" else math.prod(counts)) if counts else self.size

    def within(self, groups: Mapping[str, int]) -> Span:
        """Return the same span with only the given groups."""
        group = self.group if self.group in groups else ""
        return dataclasses.replace(self, group=group, parts=tuple(part.within(groups) for part in self.parts))

    def spread(self, values: Mapping[str, Array]) -> Array | None:
        """Return the product of the units' values for every index; `None` if all are 1."""
        if self.group:
            return values[self.group]
        parts = [part.spread(values) for part in self.parts]
        if all(part is None for part in parts):
            return None
        dtype = jnp.result_type(*(part for part in parts if part is not None))
        filled = [
            jnp.ones(part.size, dtype) if array is None else array
            for part, array in zip(self.parts, parts, strict=True)
        ]
        if self.form == "sum":
            return jnp.concatenate(filled)
        return _product([jnp.expand_dims(a, _others(i, len(filled))) for i, a in enumerate(filled)]).reshape(
            -1
        )

    def rows(self, array: Any) -> Iterator[tuple[str, Any]]:
        """Yield, for each group in the span, its units' parts of an array, of shape (units, numbers).

        Args:
          array: an array whose first axis is this span.
        """
        if self.group:
            yield self.group, array.reshape(self.size, -1)
        if self.form == "sum":
            ends = np.cumsum([part.size for part in self.parts])
            for part, end in zip(self.parts, ends, strict=True):
                yield from part.rows(array[end - part.size : end])
        elif self.parts:
            table = array.reshape(*[part.size for part in self.parts], -1)
            for index, part in enumerate(self.parts):
                yield from part.rows(table.transpose(index, *_others(index, table.ndim)))

    def collect(self, sums: Any) -> Iterator[tuple[str, Any]]:
        """Sum an array over the indices of each unit, and yield the sums for each group in the span."""
        if self.group:
            yield self.group, sums
        if self.form == "sum":
            ends = np.cumsum([part.size for part in self.parts])
            for part, end in zip(self.parts, ends, strict=True):
                yield from part.collect(sums[end - part.size : end])
        elif self.parts:
            table = sums.reshape([part.size for part in self.parts])
            for index, part in enumerate(self.parts):
                yield from part.collect(table.sum(_others(index, len(self.parts))))


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class GroupUnits(Units):
    """Neurons, channels or heads: the units of some `Groups`, made by `Groups.units`.

    All parts of a unit are masked with it: its column in the kernel that makes it, its rows in the kernels
    that read it, its bias, and the scale and bias of its norm. A removed unit is therefore exactly 0 behind
    them. The leaves passed to `over`, usually kernels, give a unit its score. Its parts in other leaves go
    with it, unless these are kernels (see `matrices`). A group without a scored leaf stays as it is, and so
    does a kernel that is not scored.

    Values are a dict of arrays, by name of the group. Each group keeps at least one unit.

    Attributes:
      leaves: by path, the meaning of each axis' indices.
      scored: the paths of the scored leaves; `None` before `over`.
    """

    leaves: tuple[tuple[str, tuple[Span, ...]], ...]
    scored: tuple[str, ...] | None = None

    def over(self, selection: PyTree) -> GroupUnits:
        """Return the units that some leaves have, with their parts in the other leaves.

        Raises:
          ArgumentError: leaves of another model, or leaves without such a unit.
        """
        of_path, scored = dict(self.leaves), named_leaves(selection)
        for path, leaf in scored.items():
            shape = tuple(axis.size for axis in of_path[path]) if path in of_path else None
            if jnp.shape(leaf) != shape:
                has = f"it has no {path!r}" if shape is None else f"there {path!r} has shape {shape}"
                raise ArgumentError(
                    f"units: they belong to another model: {has}, got shape {jnp.shape(leaf)}"
                )
        groups = _groups_of(axes for path, axes in self.leaves if path in scored)
        if not groups:
            raise ArgumentError(
                f"units: no unit lies in the selected leaves ({', '.join(scored) or 'none'}); select others"
            )

        masked = {*scored, *not_matrices({path: _shape(axes) for path, axes in self.leaves})}
        leaves = tuple(
            (path, tuple(axis.within(groups if path in masked else {}) for axis in axes))
            for path, axes in self.leaves
        )
        return GroupUnits(
            leaves, tuple(path for path, axes in leaves if path in scored and _groups_of([axes]))
        )

    def score(self, scores: PyTree) -> dict[str, Array]:
        """Return each unit's mean score over its scored connections, by name of the group."""
        sums, counts = self.sums(scores)
        return {group: total / counts[group] for group, total in sums.items()}

    def sums(self, scores: PyTree) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return each unit's sum of scores over its scored connections, and the number of these."""
        if self.scored is None:
            return self.over(scores).sums(scores)
        sums: dict[str, Any] = {}
        counts: dict[str, Any] = {}
        of_path, named = dict(self.leaves), named_leaves(scores)
        for path in self.scored:
            leaf, axes = widened(jnp.asarray(named[path])), of_path[path]
            for index, axis in enumerate(axes):
                if _groups_of([(axis,)]):
                    along = whole(jnp.sum(leaf, _others(index, leaf.ndim)))
                    # Each index of this axis has been summed over all others, which is this many connections.
                    share = np.full(axis.size, leaf.size // axis.size, np.float32)
                    for into, of_index in ((sums, along), (counts, share)):
                        for group, of_units in axis.collect(of_index):
                            into[group] = into.get(group, 0) + of_units
        names = [*self.groups()]  # A leaf's groups need not come in the order of all groups.
        return {name: sums[name] for name in names}, {name: counts[name] for name in names}

    def spread(self, values: PyTree, like: PyTree) -> PyTree:
        """Give each connection the product of the values of all units that it belongs to.

        Raises:
          ArgumentError: a tree that has no place for a leaf that goes with its units.
        """
        # `None` counts as a place: a leaf without scores may go with its units.
        flat, structure = tree_flatten_with_path(like, is_leaf=lambda leaf: leaf is None)
        there = {path_name(path): leaf for path, leaf in flat}
        of_path = {path: axes for path, axes in self.leaves if _groups_of([axes])}
        for path in of_path:
            if path not in there:
                raise ArgumentError(
                    f"units: the scores have no entry for {path!r}, which is pruned with its units; give "
                    "scores in the structure of all parameters, with None for leaves without scores"
                )
        made = [_outer(of_path[path], values, there[path]) if path in of_path else None for path in there]
        return jax.tree.unflatten(structure, made)

    def counts(self, values: PyTree, density: Any, scope: Any = "global") -> Any:
        """Count the units kept, for all groups together or for each; every group keeps at least one.

        Raises:
          ArgumentError: a density so low that a group would keep none; the scope `erk`.
        """
        if scope == "erk":
            raise ArgumentError(ERK)
        counts = rounded_counts(values, density, scope)
        least = len(values) if np.ndim(counts) == 0 else 1
        if is_traced(counts):
            return jnp.maximum(counts, least)
        if np.min(counts) < least:
            units = sum(leaf.size for leaf in jax.tree.leaves(values))
            raise ArgumentError(
                f"density: {shown(density)} of {units} units is too low: each of {len(values)} groups keeps "
                "at least one; give a higher density"
            )
        return counts

    def largest(self, values: PyTree, counts: Any, left: PyTree = None) -> PyTree:
        """Mark the largest units of all groups together, or of each; every group keeps its largest."""
        if np.ndim(counts):
            return largest_of(values, counts, left)
        first = {
            group: jnp.arange(leaf.size) == _place_of_largest(leaf, None if left is None else left[group])
            for group, leaf in values.items()
        }
        # As NaN ranks last, the units in `first` are not counted twice.
        others = {
            group: jnp.where(first[group], jnp.nan, jnp.where(jnp.isnan(leaf), -jnp.inf, leaf))
            for group, leaf in values.items()
        }
        rest = top_k(others, counts - len(values), left)
        return {group: first[group] | rest[group] for group in values}

    def connections(self, selection: PyTree, kept: Mapping[str, int]) -> int:
        """Count the connections that some leaves keep, given how many units each group keeps."""
        of_path = dict(self.leaves)
        return sum(math.prod(axis.count(kept) for axis in of_path[path]) for path in named_leaves(selection))

    def groups(self) -> dict[str, int]:
        """Return the name and number of units of every group."""
        return _groups_of(axes for _, axes in self.leaves)


UnitsLike = Units | str | tuple[int, int] | tuple[str, ...] | None
"""Units kept or removed together: `None` for single connections, `(4, 4)` for `Blocks`, `2:4` for `NOfM`, and
in searches `neurons`, `channels`, `heads`, `experts`, or several of these words."""


def as_units(units: Any) -> Units:
    """Convert an argument `units` that needs no model.

    Raises:
      ArgumentError: anything else, including the words that need a model.
    """
    if units is None:
        return Connections()
    if isinstance(units, Units):
        return units
    if isinstance(units, str) and (numbers := re.fullmatch(r"\s*(\d+)\s*:\s*(\d+)\s*", units, re.ASCII)):
        return NOfM(*map(int, numbers.groups()))
    if isinstance(units, str) and ":" in units:
        raise ArgumentError(f"units: expected 'N:M' with 1 <= N < M, got {shown(units)}")
    if words := as_words(units):
        raise ArgumentError(
            f"units: {shown(words[0])} are read from a model's computation; give "
            f"axis_groups(function, params, x).units({', '.join(map(repr, words))})"
        )
    if isinstance(units, (tuple, list)) and len(units) == 2 and not any(isinstance(n, str) for n in units):
        return Blocks(*units)
    raise ArgumentError(
        "units: expected 'neurons', 'channels', 'heads', 'experts', blocks such as (4, 4) or '2:4', got "
        f"{shown(units)}"
    )


def as_words(units: Any) -> tuple[str, ...]:
    """Return a tuple of words among `neurons`, `channels`, `heads`, `experts`; () for anything else."""
    words = (units,) if isinstance(units, str) else units
    if not isinstance(words, (tuple, list)) or not all(isinstance(word, str) for word in words):
        return ()
    return tuple(words) if all(word in WORDS for word in words) else ()


def _place_of_largest(values: Array, left: Array | None) -> Array:
    """Return the index of the largest unit among those left; NaN counts as -inf."""
    numbers = jnp.where(jnp.isnan(values), -jnp.inf, values)
    if left is None:
        return jnp.argmax(numbers)
    return jnp.argmax(left & (numbers == jnp.max(numbers, where=left, initial=-jnp.inf)))


def _groups_of(leaves: Any) -> dict[str, int]:
    return dict(group for axes in leaves for axis in axes for group in axis.groups())


def _shape(axes: tuple[Span, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(axis.size for axis in axes), bool)


def _outer(axes: tuple[Span, ...], values: Mapping[str, Array], leaf: Any) -> Array:
    """Return the product over the axes of a leaf, in its shape."""
    along = [axis.spread(values) for axis in axes]
    there = [jnp.expand_dims(a, _others(i, len(axes))) for i, a in enumerate(along) if a is not None]
    return _as_split(leaf, jnp.broadcast_to(_product(there), [axis.size for axis in axes]))


def _product(arrays: list[Array]) -> Array:
    whole_, *rest = arrays
    for array in rest:
        whole_ = whole_ & array if whole_.dtype == bool else whole_ * array
    return whole_


def _others(index: int, ndim: int) -> tuple[int, ...]:
    return tuple(other for other in range(ndim) if other != index)


def _as_split(leaf: Any, array: Array) -> Array:
    return beside(leaf, split_like(leaf, array)) if isinstance(leaf, Array) else array


class _Found(tuple[tuple[str, tuple[int, int]], ...]):
    """Axes read from a model; for leaves that the model lacks, the names decide."""


def _checked_axes(name: str, axes: Any, *, pair: bool) -> Any:
    """Return axes in a hashable form: `None`, an integer or a pair, or pairs of a path and its axes.

    Raises:
      ArgumentError: anything else.
    """

    def is_pair(value: Any) -> bool:
        return isinstance(value, tuple) and len(value) == 2 and all(type(axis) is int for axis in value)

    def is_right(value: Any) -> bool:
        return is_pair(value) if pair else type(value) is int

    if axes is None or isinstance(axes, _Found) or is_right(axes):
        return axes
    if isinstance(axes, Mapping) and all(is_right(of) or is_pair(of) for of in axes.values()):
        return tuple((str(path), of) for path, of in axes.items())
    if isinstance(axes, tuple) and axes and all(isinstance(of, tuple) and len(of) == 2 for of in axes):
        return axes
    expected = "two integers" if pair else "an integer"
    raise ArgumentError(f"{name}: expected {expected}, or a dict of these by path, got {shown(axes)}")


def _axes_of(axes: Any, path: str, shape: tuple[int, ...]) -> Any:
    """Return a leaf's axes as given, as read from the model, or as its name says; otherwise `None`."""
    if axes is not None and not isinstance(axes, _Found) and all(type(axis) is int for axis in axes):
        return axes
    given = dict(axes or ())
    if path in given or (axes is not None and not isinstance(axes, _Found)):
        return given.get(path)
    window = set(shape[:-2])
    # Transposed convolutions of Haiku and Keras have (outputs, inputs); depthwise ones sum over neither.
    is_other = re.search("transpose|depthwise", path, re.IGNORECASE) or (len(shape) > 2 and shape[-1] == 1)
    if (
        not is_other
        and re.split(r"[/.]", path)[-1] in ("kernel", "w")
        and (len(shape) == 2 or (len(shape) > 3 and len(window) == 1))
    ):
        return -2, -1
    return None


def _map_named(function: Any, selection: PyTree, *trees: PyTree) -> PyTree:
    """Apply `function(path, leaf, *leaves)` where a leaf is selected; return `None` elsewhere."""
    paths = iter(named_leaves(selection))
    return map_selected(lambda *leaves: function(next(paths), *leaves), selection, *trees)


def _check_axes(selection: PyTree, least: int, what: str) -> None:
    for path, leaf in named_leaves(selection).items():
        if jnp.ndim(leaf) < least:
            raise ArgumentError(
                f"units: {what} need leaves of {least} axes or more, got {path!r} of shape {jnp.shape(leaf)}"
            )

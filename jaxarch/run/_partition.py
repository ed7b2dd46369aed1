"""Partition of one run's arrays over the axes of a mesh other than `runs`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import jax
from jax.sharding import Mesh, PartitionSpec
from jax.tree_util import KeyPath

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch._internal.trees import PyTree, named_leaves, path_name, select
from jaxarch.run._keyed import Keyed, shapes_of
from jaxarch.run._problem import Problem

RUNS = "runs"
DATA = "data"
"""Axes of a mesh with a meaning: runs are spread over one, a batch's examples over the other."""

Rules = Mapping[str, PartitionSpec] | Callable[[str, jax.ShapeDtypeStruct, Mapping[str, int]], PartitionSpec]
"""Rules for splitting parameters.

Either specs by glob patterns on the paths, where the first match counts. Or a function of a parameter's path,
its shape and dtype, and the sizes of the mesh's axes.
"""


@dataclasses.dataclass(frozen=True)
class FullySharded:
    """Rules made by `fully_sharded`."""

    axis: str
    least: int

    def __call__(self, path: str, leaf: jax.ShapeDtypeStruct, sizes: Mapping[str, int]) -> PartitionSpec:
        """Split the largest dimension that the axis divides, the last one if several are equal."""
        if self.axis not in sizes:
            raise ArgumentError(
                f"partition: the mesh has no axis {shown(self.axis)}; known: {', '.join(sizes)}"
            )
        fitting = [(size, i) for i, size in enumerate(leaf.shape) if size % sizes[self.axis] == 0]
        if not fitting or math.prod(leaf.shape) < self.least:
            return PartitionSpec()
        return PartitionSpec(*[None] * max(fitting)[1], self.axis)


def fully_sharded(axis: str = DATA, *, least: int = 0) -> FullySharded:
    """Make rules of fully sharded data parallelism (FSDP): each device holds its share of every parameter.

    A parameter is split along the largest dimension that is divisible by the size of the axis; without such a
    dimension it stays whole.

    Args:
      axis: axis of the mesh; for FSDP it is `data`, the axis over which batches are split.
      least: parameters of fewer entries than this stay whole.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> rules = jaxarch.fully_sharded()
      >>> rules("head/kernel", jax.ShapeDtypeStruct((10, 64), jnp.float32), {"runs": 2, "data": 4})
      P(None, 'data')
    """
    return FullySharded(axis, least)


@dataclasses.dataclass(frozen=True)
class Partition:
    """Partition of one run's arrays: those that belong to a parameter are split like it, others are whole.

    An array belongs to a parameter if its path ends with the parameter's path and it has the same shape:
    scores, masks, gradients and the moments of an optimizer do.

    Attributes:
      parameters: path, shape and spec of each parameter.
      batch: the axis over which the examples of a batch are split; `None` without.
    """

    parameters: tuple[tuple[str, tuple[int, ...], PartitionSpec], ...] = ()
    batch: str | None = None

    def __bool__(self) -> bool:
        """Return whether anything is split."""
        return self.batch is not None or any(spec != PartitionSpec() for _, _, spec in self.parameters)

    def spec(self, path: KeyPath, shape: tuple[int, ...]) -> PartitionSpec:
        """Return the spec of an array of one run."""
        parts = path_name(path).split("/")
        # Parameters that are one bare array have an empty path, with which every path ends.
        # The longest ending comes first, so that `head/kernel` wins over a parameter called `kernel`.
        for start in range(len(parts) + 1):
            found = self._by_path.get(("/".join(parts[start:]), tuple(shape)))
            if found is not None:
                return found
        return PartitionSpec()

    @cached_property
    def _by_path(self) -> dict[tuple[str, tuple[int, ...]], PartitionSpec]:
        return {(path, shape): spec for path, shape, spec in self.parameters}

    def constrained(self, tree: PyTree, *, wholly: bool = False) -> PyTree:
        """Return a pytree of one run's arrays, split, within a program over the mesh.

        Args:
          tree: pytree of arrays.
          wholly: whether arrays that belong to no parameter are made whole; else they stay as they are, like
            batches, which are split already.
        """

        def constrain(path: KeyPath, leaf: Any) -> Any:
            spec = self.spec(path, leaf.shape)
            if spec == PartitionSpec() and not wholly:
                return leaf
            return jax.lax.with_sharding_constraint(leaf, spec)

        return jax.tree_util.tree_map_with_path(constrain, tree)

    def on(self, problem: Problem, sizes: Mapping[str, int]) -> Problem:
        """Return the problem with split batches."""
        if self.batch is None:
            return problem
        split = SplitRows(Keyed(problem.gather), self.batch, sizes[self.batch])
        return dataclasses.replace(problem, gather=split)


WHOLE = Partition()
"""Partition in which nothing is split."""


@dataclasses.dataclass(frozen=True)
class SplitRows:
    """A problem's `gather` with examples split over an axis of a mesh, if it divides their number."""

    gather: Keyed
    axis: str
    size: int

    def __call__(self, data: PyTree, per_run: PyTree, rows: Any) -> PyTree:
        """Gather the examples of some rows."""

        def split(leaf: Any) -> Any:
            if leaf.ndim == 0 or leaf.shape[0] % self.size:
                return leaf
            return jax.lax.with_sharding_constraint(leaf, PartitionSpec(self.axis))

        return jax.tree.map(split, self.gather(data, per_run, rows))


def partition_of(problem: Problem, mesh: Mesh, rules: Rules | None) -> Partition:
    """Return how the runs of a problem are split over a mesh.

    Args:
      problem: the problem, whose `init` tells the parameters.
      mesh: a mesh with an axis `runs`.
      rules: as in `FitOptions`; `None` for the parameters' own annotations.

    Raises:
      ArgumentError: rules that name an axis missing from the mesh, that split a dimension unevenly or one
        that does not exist, that match no parameter; an axis of the mesh over which nothing is split.
    """
    params = shapes_of(problem.init, jax.random.key(0))[0]
    sizes = dict(mesh.shape)
    specs = _annotated(params) if rules is None else _ruled(rules, params, sizes)
    shapes = {path: leaf.shape for path, leaf in named_leaves(params).items()}
    for path, shape in shapes.items():
        _check_spec(path, shape, specs[path], sizes)
    partition = Partition(
        tuple((path, shape, _over_several(specs[path], sizes)) for path, shape in shapes.items()),
        batch=DATA if sizes.get(DATA, 1) > 1 else None,
    )
    used = {RUNS, DATA}.union(*(_axes(spec) for spec in specs.values()))
    for axis, size in sizes.items():
        if size > 1 and axis not in used:
            raise ArgumentError(
                f"partition: nothing is split over the mesh's axis {axis!r}; give rules, such as "
                f"jaxarch.fully_sharded({axis!r}), or a PartitionSpec for each pattern of paths"
            )
    return partition


def _ruled(rules: Rules, params: PyTree, sizes: Mapping[str, int]) -> dict[str, PartitionSpec]:
    leaves = named_leaves(params)
    if not isinstance(rules, Mapping):
        if not callable(rules):
            raise ArgumentError(
                "partition: expected a dict from path patterns to PartitionSpecs, or a function "
                f"(path, leaf, sizes) -> PartitionSpec, got {shown(rules)}"
            )
        return {path: rules(path, leaf, sizes) for path, leaf in leaves.items()}
    specs: dict[str, PartitionSpec] = {}
    for pattern, spec in rules.items():
        for path in named_leaves(select(params, pattern, "partition")):
            specs.setdefault(path, spec)
    return {path: specs.get(path, PartitionSpec()) for path in leaves}


def _annotated(params: PyTree) -> dict[str, PartitionSpec]:
    """Return the axes annotated on Flax's variables (NNX) and boxes (Linen), by path."""

    def says(node: Any) -> bool:
        return hasattr(node, "get_partition_spec") or hasattr(node, "get_metadata")

    def spec_of(node: Any) -> PartitionSpec:
        if hasattr(node, "get_partition_spec"):
            return node.get_partition_spec()
        if hasattr(node, "get_metadata"):
            metadata = node.get_metadata()
            names = [metadata[name] for name in AXIS_NAMES if metadata.get(name) is not None]
            return PartitionSpec(*names[0]) if names else PartitionSpec()
        return PartitionSpec()

    specs = {}
    for path, node in jax.tree_util.tree_flatten_with_path(params, is_leaf=says)[0]:
        for below, _ in jax.tree_util.tree_flatten_with_path(node)[0]:
            specs[path_name((*path, *below))] = spec_of(node)
    return specs


AXIS_NAMES = ("out_sharding", "sharding_names", "sharding")
"""Names that releases of Flax NNX have given to the axes over which a variable is split."""


def _axes(spec: Iterable[Any]) -> list[str]:
    """Return the axes of a mesh that a spec names."""
    named = [entry if isinstance(entry, tuple) else (entry,) for entry in spec if entry is not None]
    return [axis for entry in named for axis in entry]


def _over_several(spec: PartitionSpec, sizes: Mapping[str, int]) -> PartitionSpec:
    """Remove from a spec the axes of one device, over which nothing is split."""
    # A spec over such axes alone must become `P()`, which marks whole arrays everywhere else.
    kept = [tuple(axis for axis in _axes((entry,)) if sizes[axis] > 1) or None for entry in spec]
    while kept and kept[-1] is None:
        kept.pop()
    return PartitionSpec(*(entry[0] if entry and len(entry) == 1 else entry for entry in kept))


def _check_spec(path: str, shape: tuple[int, ...], spec: Any, sizes: Mapping[str, int]) -> None:
    if not isinstance(spec, PartitionSpec):
        raise ArgumentError(f"partition: expected a PartitionSpec for {path!r}, got {shown(spec)}")
    if len(spec) > len(shape):
        raise ArgumentError(f"partition: {path!r} has shape {shape}, but {shown(spec)} has more dimensions")
    for axis in _axes(spec):
        if axis not in sizes or axis == RUNS:
            free = ", ".join(name for name in sizes if name != RUNS)
            raise ArgumentError(f"partition: cannot split {path!r} over {shown(axis)}; possible axes: {free}")
    if len(set(_axes(spec))) < len(_axes(spec)):
        raise ArgumentError(f"partition: {shown(spec)} splits {path!r} twice over one axis; name it once")
    for size, entry in zip(shape, spec, strict=False):
        pieces = math.prod(sizes[axis] for axis in _axes((entry,)))
        if size % pieces:
            raise ArgumentError(
                f"partition: {path!r} of shape {shape} cannot be split by {shown(spec)}, since {pieces} does "
                f"not divide {size}"
            )

"""Which devices the runs are spread over, and how a function of one run is mapped over them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jaxarch.errors import ArgumentError, check_count
from jaxarch.trees import PyTree

RUNS = "runs"


def use_cpu_cores(count: int | None = None) -> int:
    """Make every CPU core a JAX device, so that runs are spread over the cores like over GPUs.

    Call it before JAX does anything else; the command line does. Without it, independent runs share one core:
    XLA's own threads help with large matrices, not with many small ones.

    Args:
      count: how many; by default as many as this process may use.

    Returns:
      The number of CPU devices.

    Raises:
      ArgumentError: if JAX has already started with another number of devices.

    Example:
      >>> import jax, jaxarch
      >>> jaxarch.use_cpu_cores(2)  # before anything else
      2
      >>> len(jax.devices("cpu"))
      2
    """
    if count is None:
        affinity = getattr(os, "sched_getaffinity", None)
        count = len(affinity(0)) if affinity else os.cpu_count() or 1
    check_count("count", count)
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
        if len(jax.devices("cpu")) != count:
            raise ArgumentError(
                f"use_cpu_cores: JAX has already started with {len(jax.devices('cpu'))} CPU devices; "
                "call it before any other use of JAX"
            ) from None
    return count


def use_compilation_cache(folder: str | os.PathLike[str]) -> None:
    """Keep compiled programs in a folder, so that the next process does not compile them again.

    Unlike JAX's default, programs that compile in less than a second are kept too.

    Example:
      >>> import jax, jaxarch, tempfile
      >>> folder = tempfile.mkdtemp()  # a lasting one, in earnest
      >>> jaxarch.use_compilation_cache(folder)
      >>> jax.config.jax_compilation_cache_dir == folder
      True
      >>> jax.config.update("jax_compilation_cache_dir", None)  # and no more
    """
    # JAX keeps to the first folder of a process until it is told otherwise.
    compilation_cache.reset_cache()
    jax.config.update("jax_compilation_cache_dir", os.fspath(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def runs_mesh(devices: Sequence[jax.Device] | None, runs: int) -> Mesh:
    """A mesh with one axis, by default over all of this process's devices, but no more than runs."""
    devices = list(jax.local_devices() if devices is None else devices)
    if not devices:
        raise ArgumentError("devices: expected at least one")
    devices = devices[:runs]
    return jax.make_mesh((len(devices),), (RUNS,), axis_types=(AxisType.Auto,), devices=devices)


def over_runs(function: Callable[..., PyTree], mesh: Mesh | None, in_axes: tuple[Any, ...]) -> Callable:
    """`jax.vmap(function, in_axes)`, each device taking its share of the runs.

    A device runs its own program on its own runs: nothing is communicated, and the result is that of `vmap`
    over a device's share. Without a mesh there is one run, which is called plainly and not mapped: on CPU,
    convolutions are several times slower under `vmap`.
    """
    if mesh is None:

        def single(*args: PyTree) -> PyTree:
            result = function(*_with_runs(lambda leaves: [leaf[0] for leaf in leaves], in_axes, args))
            return jax.tree.map(lambda leaf: leaf[None], result)

        return single
    mapped = jax.vmap(function, in_axes=in_axes)
    if mesh.size == 1:
        return mapped

    def sharded(*args: PyTree) -> PyTree:
        leaves, treedef = jax.tree.flatten(args)
        specs = [PartitionSpec(RUNS) if own else PartitionSpec() for own in _has_runs(in_axes, args)]
        return jax.shard_map(
            lambda leaves: mapped(*jax.tree.unflatten(treedef, leaves)),
            mesh=mesh,
            in_specs=(specs,),
            out_specs=PartitionSpec(RUNS),
            check_vma=False,
        )(leaves)

    return sharded


def place(mesh: Mesh | None, in_axes: tuple[Any, ...], args: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
    """Put arguments on the devices: split where they have an axis of runs, one copy each where not.

    Without a mesh they go to the first of this process's devices.
    """
    if mesh is None:
        return jax.device_put(args, jax.local_devices()[0])
    leaves, treedef = jax.tree.flatten(args)
    return jax.tree.unflatten(treedef, jax.device_put(leaves, _shardings(mesh, in_axes, args)))


def gather_on_cpu(tree: PyTree) -> PyTree:
    """Results on the first device, if the devices are CPU cores.

    All cores share one memory. Left split, whatever a user computes next is a program of several devices, and
    XLA's eigendecompositions on CPU deadlock in such programs every now and then.
    """
    first = jax.local_devices()[0]
    return jax.device_put(tree, first) if first.platform == "cpu" else tree


def describe(mesh: Mesh, in_axes: tuple[Any, ...], args: tuple[PyTree, ...], runs: int) -> tuple[PyTree, ...]:
    """Shapes, dtypes and places of arguments for so many runs, without the arrays."""
    leaves, treedef = jax.tree.flatten(args)
    described = [
        jax.ShapeDtypeStruct((runs, *leaf.shape[1:]) if own else leaf.shape, leaf.dtype, sharding=sharding)
        for leaf, own, sharding in zip(
            leaves, _has_runs(in_axes, args), _shardings(mesh, in_axes, args), strict=True
        )
    ]
    return jax.tree.unflatten(treedef, described)


def _shardings(mesh: Mesh, in_axes: tuple[Any, ...], args: tuple[PyTree, ...]) -> list[NamedSharding]:
    split, whole = (NamedSharding(mesh, PartitionSpec(*names)) for names in ((RUNS,), ()))
    return [split if own else whole for own in _has_runs(in_axes, args)]


def take_runs(in_axes: tuple[Any, ...], args: tuple[PyTree, ...], runs: np.ndarray) -> tuple[PyTree, ...]:
    """Some runs' share of the arguments."""
    return _with_runs(partial(_take, runs), in_axes, args)


@jax.jit
def _take(runs: Array, leaves: list[Array]) -> list[Array]:
    # One program for all leaves: their shapes are many.
    return [leaf[runs] for leaf in leaves]


@partial(jax.jit, static_argnums=0)
def first_runs(count: int, tree: PyTree) -> PyTree:
    """The first runs of a result: without those that only filled a program up."""
    return jax.tree.map(lambda leaf: leaf[:count], tree)


def _with_runs(
    function: Callable[[list[Array]], list[Array]], in_axes: tuple[Any, ...], args: tuple[PyTree, ...]
) -> tuple[PyTree, ...]:
    """The arguments with a function applied to the leaves that have an axis of runs."""
    leaves, treedef = jax.tree.flatten(args)
    own = _has_runs(in_axes, args)
    made = iter(function([leaf for leaf, has in zip(leaves, own, strict=True) if has]))
    return jax.tree.unflatten(
        treedef, [next(made) if has else leaf for leaf, has in zip(leaves, own, strict=True)]
    )


def _has_runs(in_axes: tuple[Any, ...], args: tuple[PyTree, ...]) -> list[bool]:
    """For each leaf of the arguments, whether it has an axis of runs; `in_axes` is a prefix, as in `vmap`."""

    def is_none(leaf: object) -> bool:
        return leaf is None

    axes = jax.tree.leaves(jax.tree.broadcast(in_axes, args, is_leaf=is_none), is_leaf=is_none)
    present = [leaf is not None for leaf in jax.tree.leaves(args, is_leaf=is_none)]
    return [axis is not None for axis, kept in zip(axes, present, strict=True) if kept]

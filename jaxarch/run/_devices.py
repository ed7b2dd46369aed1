"""Placement of runs on devices, and mapping of a function of one run over them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import NamedSharding, PartitionSpec
from jax.tree_util import KeyPath

from jaxarch._internal.cpu_cores import available_cores
from jaxarch._internal.errors import ArgumentError, check_count
from jaxarch._internal.trees import PyTree, keyed_as, raw_numbers
from jaxarch.io import Window
from jaxarch.run._partition import RUNS, Partition
from jaxarch.run._runs_mesh import RunsMesh


def use_cpu_cores(count: int | None = None) -> int:
    """Make every CPU core a JAX device, so that runs are spread over the cores like over GPUs.

    Call it before JAX does anything else; the command line does. Without it, independent runs share one core:
    XLA's own threads help with large matrices, not with many small ones.

    Args:
      count: how many devices; by default as many as this process may use.

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
        count = available_cores()
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
    # JAX keeps using the first cache folder of a process until the cache is reset.
    compilation_cache.reset_cache()
    jax.config.update("jax_compilation_cache_dir", os.fspath(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def over_runs(function: Callable[..., PyTree], mesh: RunsMesh | None, in_axes: tuple[Any, ...]) -> Callable:
    """Map like `jax.vmap(function, in_axes)`, with each device taking its share of the runs.

    A device runs its own program on its own runs: nothing is communicated, and the result is the one of
    `vmap` over a device's share. With a partition, the devices that share a run have one program, in which
    they communicate. A share of one run, such as without a mesh, is called directly and not mapped, unless it
    is split. On CPU, matrix products then take a seventh less time, and convolutions are several times
    faster.
    """
    if mesh is None or mesh.size > 1:
        return mapped(function, mesh, in_axes, ())

    def on_a_device(*args: PyTree) -> PyTree:
        return _on_a_device(function, mesh, in_axes, args)(*args)

    return on_a_device


def mapped(
    function: Callable[..., PyTree], mesh: RunsMesh | None, in_axes: tuple[Any, ...], args: tuple[PyTree, ...]
) -> Callable[..., PyTree]:
    """Return `over_runs(function, mesh, in_axes)` for arguments of these shapes.

    On one device with several runs this is `jax.vmap` alone, so tracebacks have no frame of jaxarch.
    """
    if mesh is None:
        return partial(_single, function, in_axes)
    if mesh.size > 1:
        return partial(_sharded, function, mesh, in_axes)
    return _on_a_device(function, mesh, in_axes, args)


def _on_a_device(
    function: Callable[..., PyTree], mesh: RunsMesh, in_axes: tuple[Any, ...], args: tuple[PyTree, ...]
) -> Callable[..., PyTree]:
    """Return the function for one device's share of the runs, or for a share that several devices split."""
    if mesh.partition:
        return jax.vmap(_split(function, mesh.partition), in_axes=in_axes)
    if _is_one_run(in_axes, args):
        return partial(_single, function, in_axes)
    return jax.vmap(function, in_axes)


def _single(function: Callable[..., PyTree], in_axes: tuple[Any, ...], *args: PyTree) -> PyTree:
    result = function(*_with_runs(lambda leaves: [leaf[0] for leaf in leaves], in_axes, args))
    return jax.tree.map(lambda leaf: leaf[None], result)


def _sharded(
    function: Callable[..., PyTree], mesh: RunsMesh, in_axes: tuple[Any, ...], *args: PyTree
) -> PyTree:
    leaves, treedef = jax.tree.flatten(args)
    specs = [PartitionSpec(RUNS) if own else PartitionSpec() for own in _has_runs(in_axes, args)]

    def share(leaves: list[Array]) -> PyTree:
        args = jax.tree.unflatten(treedef, leaves)
        return _on_a_device(function, mesh, in_axes, args)(*args)

    # With a partition only `runs` is a manual axis: XLA splits over the others, as the constraints say.
    return jax.shard_map(
        share,
        mesh=mesh.mesh,
        in_specs=(specs,),
        out_specs=PartitionSpec(RUNS),
        axis_names={RUNS} if mesh.partition else set(mesh.mesh.axis_names),
        # The check refuses loops, also in a user's loss, that begin with a constant and end with a run's
        # value.
        check_vma=False,
    )(leaves)


def _split(function: Callable[..., PyTree], partition: Partition) -> Callable[..., PyTree]:
    """Split the arguments and results of a function of one run over the devices that share the run."""

    def split(*args: PyTree) -> PyTree:
        return partition.constrained(function(*partition.constrained(args)), wholly=True)

    return split


def place(mesh: RunsMesh | None, in_axes: tuple[Any, ...], args: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
    """Put arguments on the devices: split along an axis of runs if they have one, else one copy on each.

    An axis of runs that is not divisible by the number of shares stays whole.

    Without a mesh the arguments go to the first of this process's devices.
    """
    if mesh is None:
        return jax.device_put(args, jax.local_devices()[0])
    leaves, treedef = jax.tree.flatten(args)
    return jax.tree.unflatten(treedef, jax.device_put(leaves, _shardings(mesh, in_axes, args)))


def place_window(mesh: RunsMesh | None, window: Window) -> Window:
    """Put some steps' batches on the devices, split if the partition says so."""
    axis = None if mesh is None else mesh.partition.batch
    if mesh is None or axis is None:
        return place(mesh, (None,), (window,))[0]

    def sharding(leaf: Any) -> NamedSharding:
        return NamedSharding(mesh.mesh, PartitionSpec(None, axis) if leaf.ndim > 1 else PartitionSpec())

    return jax.device_put(window, jax.tree.map(sharding, window))


def joined_runs(mesh: RunsMesh | None, parts: list[PyTree]) -> PyTree:
    """Join the results of groups of runs; if each run is split, it stays so."""
    if len(parts) == 1:
        return parts[0]
    if mesh is None or not mesh.partition:
        with _as_they_are():
            return jax.tree.map(lambda *leaves: jnp.concatenate(jax.device_get(leaves)), *parts)
    # Join on the host, since no single device need have room for all of it.
    return place(mesh, (0,), (jax.tree.map(_concatenated, *parts),))[0]


def _concatenated(*leaves: Array) -> np.ndarray | Array:
    return keyed_as(leaves[0], np.concatenate([np.asarray(raw_numbers(leaf)) for leaf in leaves]))


def gather_on_cpu(tree: PyTree) -> PyTree:
    """Move results to the first device if the devices are CPU cores.

    All cores share one memory. If results stayed split, the user's next computation would be a program of
    several devices. XLA's eigendecompositions on CPU deadlock in such programs every now and then.
    """
    first = jax.local_devices()[0]
    return jax.device_put(tree, first) if first.platform == "cpu" else tree


def describe(
    mesh: RunsMesh, in_axes: tuple[Any, ...], args: tuple[PyTree, ...], runs: int
) -> tuple[PyTree, ...]:
    """Return shapes, dtypes and shardings of arguments for a number of runs, without the arrays."""
    leaves, treedef = jax.tree.flatten(args)
    described = [
        jax.ShapeDtypeStruct((runs, *leaf.shape[1:]) if own else leaf.shape, leaf.dtype, sharding=sharding)
        for leaf, own, sharding in zip(
            leaves, _has_runs(in_axes, args), _shardings(mesh, in_axes, args), strict=True
        )
    ]
    return jax.tree.unflatten(treedef, described)


def _shardings(mesh: RunsMesh, in_axes: tuple[Any, ...], args: tuple[PyTree, ...]) -> list[NamedSharding]:
    def spec(path: KeyPath, leaf: Any, own: bool) -> PartitionSpec:
        if not own:
            return PartitionSpec()
        # JAX refuses to split an axis unevenly.
        axis = None if leaf.shape[0] % mesh.shares else RUNS
        return PartitionSpec(axis, *mesh.partition.spec(path, leaf.shape[1:]))

    leaves = jax.tree_util.tree_flatten_with_path(args)[0]
    own = _has_runs(in_axes, args)
    return [
        NamedSharding(mesh.mesh, spec(path, leaf, has)) for (path, leaf), has in zip(leaves, own, strict=True)
    ]


def take_runs(in_axes: tuple[Any, ...], args: tuple[PyTree, ...], runs: np.ndarray) -> tuple[PyTree, ...]:
    """Return the arguments for some of the runs."""
    with _as_they_are():
        return _with_runs(partial(_take, runs), in_axes, args)


@jax.jit
def _take(runs: Array, leaves: list[Array]) -> list[Array]:
    # One program for all leaves avoids one compilation for each of their many shapes.
    return [leaf[runs] for leaf in leaves]


def first_runs(count: int, tree: PyTree) -> PyTree:
    """Return the first runs of a result, without the copies that only fill a program up."""
    with _as_they_are():
        return _first_runs(count, tree)


def _as_they_are() -> Any:
    """Allow NaN while numbers are moved: losses of stopped runs have it, and `jax_debug_nans` would raise."""
    return jax.debug_nans(False)


@partial(jax.jit, static_argnums=0)
def _first_runs(count: int, tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[:count], tree)


def _with_runs(
    function: Callable[[list[Array]], list[Array]], in_axes: tuple[Any, ...], args: tuple[PyTree, ...]
) -> tuple[PyTree, ...]:
    """Apply a function to the leaves of the arguments that have an axis of runs."""
    leaves, treedef = jax.tree.flatten(args)
    own = _has_runs(in_axes, args)
    made = iter(function([leaf for leaf, has in zip(leaves, own, strict=True) if has]))
    return jax.tree.unflatten(
        treedef, [next(made) if has else leaf for leaf, has in zip(leaves, own, strict=True)]
    )


def _is_one_run(in_axes: tuple[Any, ...], args: tuple[PyTree, ...]) -> bool:
    owned = zip(jax.tree.leaves(args), _has_runs(in_axes, args), strict=True)
    return all(leaf.shape[0] == 1 for leaf, own in owned if own)


def _has_runs(in_axes: tuple[Any, ...], args: tuple[PyTree, ...]) -> list[bool]:
    """Return for each leaf of the arguments whether it has an axis of runs.

    `in_axes` is a prefix of the arguments, as in `vmap`.
    """

    def is_none(leaf: object) -> bool:
        return leaf is None

    axes = jax.tree.leaves(jax.tree.broadcast(in_axes, args, is_leaf=is_none), is_leaf=is_none)
    present = [leaf is not None for leaf in jax.tree.leaves(args, is_leaf=is_none)]
    return [axis is not None for axis, kept in zip(axes, present, strict=True) if kept]

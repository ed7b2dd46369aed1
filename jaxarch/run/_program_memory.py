"""Memory of a program on each device, free memory there, and the number of runs that fit."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxarch._internal.errors import ArgumentError
from jaxarch._internal.memory import ProgramMemory, free_memory, in_bytes
from jaxarch._internal.trees import PyTree
from jaxarch.run._devices import describe, take_runs
from jaxarch.run._inputs import Inputs
from jaxarch.run._options import FitOptions
from jaxarch.run._programs import Make, Stopwatch, advance, begin, is_jit_disabled, step
from jaxarch.run._runs_mesh import RunsMesh
from jaxarch.run._training import Carry


def width_of(
    make: Make,
    mesh: RunsMesh | None,
    inputs: Inputs,
    options: FitOptions,
    watch: Stopwatch,
    shares: int,
    processes: int = 1,
) -> tuple[int, ProgramMemory | None]:
    """Return the runs per share: all, as many as asked for, or as many as memory allows.

    `shares` is the number of shares of the runs; `processes` share the memory of this machine. The second
    value is the memory of the program, if it was counted.

    Raises:
      ArgumentError: not even one run fits.
    """
    runs = inputs.runs
    limit = options.memory if options.memory is not None else free_on_a_device(mesh, processes)
    # Refuse before compiling if the carry of one run alone is too large.
    if limit is not None:
        _check_fits(_held(_described_carry(make, mesh, inputs, 1)), limit, mesh)
    if mesh is None:
        return 1, None
    needed = None
    per_share = math.ceil(min(runs, options.max_parallel_runs or runs) / shares)
    # One window of a stream is counted with the program; a second one waits, and a third is being placed.
    waiting = 2 * _held(inputs.problem._window)
    while limit is not None and not is_jit_disabled():
        static, shapes = _chunk_of(make, mesh, inputs, per_share, options.chunk)
        # The steps are traced here for the first time: with few frames, so that a loss's error has a short
        # traceback.
        with watch.tracing():
            program = advance.lower(*static, *shapes).compile()
        needed = _counted(program, shapes[3])
        if needed is None or needed.whole + waiting <= limit:
            break
        if per_share == 1:
            _check_fits(needed.fresh + waiting, limit, mesh)
            break
        # Each trial compiles a program, so the width is halved and not lowered one by one.
        per_share = max(per_share // 2, 1)
    return per_share, needed


def program_memory(
    make: Make,
    mesh: RunsMesh | None,
    inputs: Inputs,
    per_share: int,
    chunk: int,
    watch: Stopwatch,
) -> ProgramMemory | None:
    """Return the memory of a chunk of `per_share` runs on each device, if the compiler counts it.

    Without a mesh, return the memory of one step of one run. Data that are on the device already are counted
    twice. Under `jax.disable_jit` there is no program to count.
    """
    if is_jit_disabled():
        return None
    if mesh is None:
        carry = _described_carry(make, mesh, inputs, per_share)
        one = jax.eval_shape(lambda *args: take_runs(inputs.axes, args, np.arange(1)), *inputs)[:3]
        return _counted(watch.compile(step, make, *one, carry, jnp.zeros((), jnp.int32)), carry)
    static, shapes = _chunk_of(make, mesh, inputs, per_share, chunk)
    return _counted(watch.compile(advance, *static, *shapes), shapes[3])


def _chunk_of(
    make: Make,
    mesh: RunsMesh,
    inputs: Inputs,
    per_share: int,
    chunk: int,
) -> tuple[tuple[Make, RunsMesh, int], tuple[Any, ...]]:
    """Return the static and the other arguments of `programs.advance` for `per_share` runs a share.

    The fourth of the other arguments is the carry.
    """
    described = _described(mesh, inputs, per_share * mesh.shares)[:3]
    zero = jnp.zeros((), jnp.int32)
    carry = _described_carry(make, mesh, inputs, per_share)
    return (make, mesh, chunk), (*described, carry, zero, zero)


def _counted(program: Any, carry: Carry) -> ProgramMemory | None:
    """Return the memory of a compiled program, if the compiler counts it."""
    stats = program.memory_analysis()
    if stats is None:
        return None
    sizes = (stats.argument_size_in_bytes, stats.temp_size_in_bytes, stats.output_size_in_bytes)
    return ProgramMemory(*sizes, carry=_held(carry))


def _check_fits(needed: int, limit: int, mesh: RunsMesh | None) -> None:
    if needed > limit:
        fewer = "" if mesh is None or mesh.shares == 1 else f" on each of {mesh.size}; give fewer `devices`"
        raise ArgumentError(
            f"memory: one run needs {in_bytes(needed)} on a device, but {in_bytes(limit)} are free{fewer}"
        )


def _held(tree: PyTree) -> int:
    """Return the bytes of all arrays of a pytree; for arrays described as split, the bytes on each device."""

    def shape(leaf: Any) -> tuple[int, ...]:
        split = isinstance(leaf, jax.ShapeDtypeStruct) and leaf.sharding is not None
        return leaf.sharding.shard_shape(leaf.shape) if split else leaf.shape

    return sum(math.prod(shape(leaf)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _described_carry(
    make: Make,
    mesh: RunsMesh | None,
    inputs: Inputs,
    per_share: int,
) -> Carry:
    """Return the carry of `per_share` runs a share, as shapes without the arrays."""
    if mesh is None:
        return begin.eval_shape(make, None, *inputs)
    runs = per_share * mesh.shares
    carry = begin.eval_shape(make, mesh, *_described(mesh, inputs, runs))
    return describe(mesh, (0,), (carry,), runs)[0]


def _described(mesh: RunsMesh, inputs: Inputs, runs: int) -> tuple[PyTree, ...]:
    """Return the inputs of a number of runs, as shapes without the arrays."""
    return describe(mesh, inputs.axes, tuple(inputs), runs)


def free_on_a_device(mesh: RunsMesh | None, processes: int = 1) -> int | None:
    """Return the free bytes on a device, if it tells; CPU devices of all processes share the machine's."""
    device = jax.local_devices()[0] if mesh is None else mesh.first
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    if device.platform != "cpu":
        return None
    free = free_memory()
    return None if free is None else free // (processes * (1 if mesh is None else mesh.size))

"""The compiled steps of a chunk, and the batches that they take from a stream."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.trees import PyTree
from jaxarch.io import Ahead, Window
from jaxarch.run import _programs as programs
from jaxarch.run._devices import place_window
from jaxarch.run._group import Group
from jaxarch.run._problem import Problem
from jaxarch.run._training import Carry

Advance = Callable[[PyTree, Carry, int, int, Window | None], tuple[Carry, Array]]
"""A function of settings, carry, first step, last step and a stream's window; returns carry and losses."""


def compiled(group: Group, settings: PyTree, carry: Carry, window: Window | None) -> Advance:
    """Compile a group's steps for arguments like these: one program per chunk, or per step without a mesh."""
    job, keys, zero = group.job, group.share.keys, jnp.zeros((), jnp.int32)
    first = (keys, settings, _with_window(group, window), carry)
    if job.mesh is None:
        step = job.watch.compile(programs.step, job.make, *first, zero)
        return partial(job.watch.run, partial(_step_by_step, step, group))
    chunk = job.watch.compile(programs.advance, job.make, job.mesh, job.options.chunk, *first, zero, zero)

    def advance(
        settings: PyTree, carry: Carry, start: int, stop: int, window: Window | None
    ) -> tuple[Carry, Array]:
        bounds = jnp.asarray(start, jnp.int32), jnp.asarray(stop, jnp.int32)
        return job.watch.run(chunk, keys, settings, _with_window(group, window), carry, *bounds)

    return advance


def _step_by_step(
    step: Callable[..., tuple[Carry, Array]],
    group: Group,
    settings: PyTree,
    carry: Carry,
    start: int,
    stop: int,
    window: Window | None,
) -> tuple[Carry, Array]:
    problem, values = _with_window(group, window), []
    for index in range(start, stop):
        carry, value = step(group.share.keys, settings, problem, carry, jnp.asarray(index, jnp.int32))
        values.append(value)
    return carry, jnp.stack(values, axis=1)


def _with_window(group: Group, window: Window | None) -> Problem:
    problem = group.share.problem
    return problem if window is None else dataclasses.replace(problem, _window=window)


def windows(group: Group, start: int, last: np.ndarray | None, is_over: bool) -> Any:
    """Read the windows of all chunks from a step on, one chunk ahead, in a `with` block.

    Args:
      group: the group of runs, whose problem may have a stream; without one all windows are `None`.
      start: the first step.
      last: digest of the batch before it.
      is_over: whether there are no chunks left.

    Returns:
      A context whose value is an iterator over windows, each with the digest of its last batch.
    """
    stream, steps = group.share.problem.stream, group.training.on(group.share.problem).descent.steps
    if stream is None or is_over:
        return contextlib.nullcontext(itertools.repeat((None, None)))
    # Before the first step, `last` is the digest of the stream and not of a batch.
    size, before = min(group.job.options.chunk, steps), last if start else None

    def placed(item: tuple[Window, np.ndarray]) -> tuple[Window, np.ndarray]:
        return place_window(group.job.mesh, item[0]), item[1]

    return Ahead(lambda closed: stream.windows(start, steps, size, before, closed), 1, placed)


def next_window(group: Group, waiting: Iterator[tuple[Window | None, np.ndarray | None]]) -> Any:
    """Return the window of a chunk; the wait for a stream counts as running."""
    return next(waiting) if group.share.problem.stream is None else group.job.watch.run(next, waiting)

"""Inputs that occur more than once, since copies of an example are not independent of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.trees import raw_numbers
from jaxarch.run._problem import Problem
from jaxarch.structure._flow import follow, fresh
from jaxarch.structure._liveness import reached

BLOCK = 2**26
"""The number of bytes of inputs on the host at a time."""


def input_digests(problem: Problem, rows: np.ndarray) -> list[bytes]:
    """Digest the inputs of each row; rows have equal digests if they give the model the same inputs.

    Labels are left out: an input that returns with another label has still been seen. Leaves that the
    predictions do not read, such as the number of an example, are left out too.

    Args:
      problem: a problem whose batches are pairs (x, y).
      rows: shape (n,).

    Returns:
      n digests. 0.0 and -0.0 are the same number and have the same digest.
    """
    return [digest for inputs in _inputs(problem, rows) for digest in _digests(inputs)]


def _inputs(problem: Problem, rows: np.ndarray) -> Iterator[list[np.ndarray]]:
    """Yield the leaves of x that predictions read, some rows at a time, each of shape (rows, numbers)."""
    read = _read(problem, rows.dtype)

    def gather(rows: Array) -> list[Array]:
        leaves = jax.tree.leaves(problem.gather(problem.data, problem.per_run, rows)[0])
        # A leaf without an axis of examples is the same for all of them.
        return [
            raw_numbers(leaf)
            for leaf, is_read in zip(leaves, read, strict=True)
            if is_read and jnp.shape(leaf)[:1] == rows.shape
        ]

    one = jax.eval_shape(gather, jax.ShapeDtypeStruct((1,), rows.dtype))
    size = max(1, BLOCK // max(1, sum(leaf.size * leaf.dtype.itemsize for leaf in one)))
    for start in range(0, len(rows), size):
        part = jnp.asarray(rows[start : start + size])
        yield [np.asarray(leaf).reshape(len(part), -1) for leaf in gather(part)]


def _read(problem: Problem, of_rows: np.dtype) -> list[bool]:
    """Return which leaves of x the predictions depend on; if they depend on none, all leaves count."""
    x, y = jax.eval_shape(
        lambda rows: problem.gather(problem.data, problem.per_run, rows), jax.ShapeDtypeStruct((2,), of_rows)
    )
    every = [True] * len(jax.tree.leaves(x))
    if problem.predict is None:
        return every
    params, state = jax.eval_shape(problem.init, jax.random.key(0))
    predict = problem.predict
    try:
        closed = jax.make_jaxpr(lambda x, y, params, state: predict(params, state, (x, y)))(
            x, y, params, state
        )
    except Exception:
        return every  # The error is reported where the predictions are made.
    program = follow(closed, [fresh(var) for var in closed.jaxpr.invars])
    found = reached(program, [True] * len(program.outputs), set())[: len(every)]
    return found if any(found) else every


def _digests(inputs: list[np.ndarray]) -> Iterator[bytes]:
    # Adding 0 turns -0.0 into 0.0.
    flat = [leaf + leaf.dtype.type(0) if leaf.dtype.kind not in "biu" else leaf for leaf in inputs]
    for parts in zip(*flat, strict=True):
        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            digest.update(part.tobytes())
        yield digest.digest()


def why_repeated(digests: list[bytes], where: str) -> str:
    """Say why some rows do not count as independent examples; empty if their inputs all differ."""
    again = len(digests) - len(set(digests))
    if not again:
        return ""
    return (
        f"none: {again:,} of {len(digests):,} {where} rows repeat an input, and copies are not independent; "
        "leave them out, or pass repeats=True if equal inputs were drawn independently"
    )


def why_seen(digests: list[bytes], training: list[bytes]) -> str:
    """Say why some validation rows were not held out; empty if no training row has their input."""
    seen = set(training)
    shared = sum(digest in seen for digest in digests)
    if not shared:
        return ""
    return (
        f"none: {shared:,} of {len(digests):,} validation rows have the input of a training row; hold all "
        "copies out, or pass repeats=True if equal inputs were drawn independently"
    )

"""Counts of the examples that a network gets wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from jaxarch._internal.errors import ArgumentError, first_line, shown
from jaxarch._internal.trees import PyTree
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem

Wrong = Callable[[Any, Any], Array]
"""`(outputs, y) -> (n,)`, booleans."""
ROUNDING = 0.01
"""The share of the largest output, and of the examples, that another batch size may change by rounding."""


ADVICE = "as with batch statistics; let `predict` use running averages, so that examples do not mix"


def why_no_errors(problem: Problem, network: Network, wrong: Wrong | None, rows: np.ndarray) -> str:
    """Say why errors on these rows cannot be counted; empty if they can.

    Raises:
      ArgumentError: a `wrong` that does not return one boolean for each example.
    """
    if not len(rows):
        return "none: there are no rows"
    if len(np.unique(rows)) < len(rows):
        return "none: some rows are listed twice, so they are not independent; list each once"
    if problem.predict is None:
        return "none: the problem has no `predict`; give it one"
    shapes = jax.eval_shape(_outputs, problem, network.params, network.state, jnp.asarray(rows))
    if shapes is None:
        return "none: the problem's batches are not pairs (x, y)"
    outputs, labels = shapes
    if wrong is None:
        arrays = all(isinstance(of, jax.ShapeDtypeStruct) for of in (outputs, labels))
        if not arrays or labels.ndim != 1 or not jnp.issubdtype(labels.dtype, jnp.integer):
            return (
                "none: the labels are not classes; pass a function that marks errors, wrong=(outputs, y) -> "
                "(n,)"
            )
        if outputs.ndim != 2 or outputs.shape[1] < 2:
            return (
                "none: outputs are not one per class; pass a function that marks errors, wrong=(outputs, y) "
                "-> (n,)"
            )
    else:
        found = jax.eval_shape(wrong, outputs, labels)
        if getattr(found, "shape", None) != rows.shape or found.dtype != bool:
            raise ArgumentError(
                f"wrong: expected one boolean for each of {len(rows)} examples, such as outputs * y <= 0, "
                f"got {shown(found)}"
            )
    arguments = (counted(wrong), problem, network.params, network.state)
    try:
        jax.eval_shape(_errors_of, *arguments, jnp.asarray(rows))
    except Exception as error:
        # Any exception means that the model has no outputs for a single example.
        return f"none: the model fails on a single example: {first_line(error)}"
    return ""


def _outputs(problem: Problem, params: PyTree, state: PyTree, rows: Array) -> tuple[Any, Any] | None:
    """Return the outputs and labels of some rows; `None` if batches are not pairs (x, y)."""
    batch = problem.gather(problem.data, problem.per_run, rows)
    if not isinstance(batch, tuple) or len(batch) != 2 or problem.predict is None:
        return None
    return problem.predict(params, state, batch), batch[1]


def _largest_is_another(outputs: Any, labels: Array) -> Array:
    # With 64 bits on, argmax returns int64, which strict promotion does not compare with other labels.
    return jnp.argmax(outputs, axis=-1).astype(jnp.int32) != labels.astype(jnp.int32)


def _of_each(tree: Any, count: int) -> list[Array]:
    """Return the inexact leaves with an axis of examples, as (examples, numbers); only they may hold NaN."""
    leaves = (leaf for leaf in map(jnp.asarray, jax.tree.leaves(tree)) if leaf.shape[:1] == (count,))
    return [leaf.reshape(count, -1) for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)]


def judged(
    wrong: Wrong, problem: Problem, params: PyTree, state: PyTree, rows: Array
) -> tuple[Array, list[Array]]:
    """Return which examples are wrong, and their outputs. A NaN in outputs or labels counts as an error."""
    found = _outputs(problem, params, state, rows)
    assert found is not None
    outputs, labels = (_of_each(of, len(rows)) for of in found)
    errors = wrong(*found)
    for leaf in (*outputs, *labels):
        errors |= jnp.isnan(leaf).any(axis=1)
    return errors, outputs


class _Counts(NamedTuple):
    """Errors of some examples in one batch, and of each of them by itself.

    Attributes:
      together: the number of examples that are wrong in the batch.
      alone: the number of examples that are wrong by themselves.
      unlike: the number of examples that are wrong in only one of the two ways.
      apart: the largest difference of outputs, a number for each leaf.
      largest: the largest finite output, a number for each leaf.
    """

    together: Array
    alone: Array
    unlike: Array
    apart: list[Array]
    largest: list[Array]


@jax.jit
def _errors_of(wrong: Wrong, problem: Problem, params: PyTree, state: PyTree, rows: Array) -> _Counts:
    def alone(row: Array) -> tuple[Array, list[Array]]:
        errors, outputs = judged(wrong, problem, params, state, row[None])
        return errors[0], [leaf[0] for leaf in outputs]

    in_batch, outputs = judged(wrong, problem, params, state, rows)
    by_itself, others = jax.vmap(alone)(rows)

    def apart(one: Array, other: Array) -> Array:
        same = (one == other) | (jnp.isnan(one) & jnp.isnan(other))
        return jnp.nan_to_num(jnp.where(same, 0, jnp.abs(one - other)), nan=jnp.inf).max(initial=0)

    def largest(leaf: Array) -> Array:
        return jnp.where(jnp.isfinite(leaf), jnp.abs(leaf), 0).max(initial=0)

    return _Counts(
        jnp.sum(in_batch, dtype=jnp.int32),
        jnp.sum(by_itself, dtype=jnp.int32),
        jnp.sum(in_batch != by_itself, dtype=jnp.int32),
        list(map(apart, outputs, others)),
        list(map(largest, outputs)),
    )


def counted(wrong: Wrong | None) -> Partial:
    of = wrong or _largest_is_another
    # In a `Partial` the arguments are a pytree and get traced, so that one program serves many thresholds.
    return of if isinstance(of, Partial) else Partial(of)


def count_errors(
    network: Network, problem: Problem, wrong: Wrong | None, rows: np.ndarray, batch_size: int | None
) -> tuple[int, str]:
    """Count the errors on these rows, in batches and again for each example by itself.

    Returns:
      The larger count, and the reason why no bound follows from it: outputs depend on the other examples of a
      batch. The reason is empty if outputs differ by rounding alone.
    """
    size = batch_size or len(rows)
    parts = (jnp.asarray(rows[start : start + size]) for start in range(0, len(rows), size))
    of = counted(wrong)
    found = [jax.device_get(_errors_of(of, problem, network.params, network.state, part)) for part in parts]
    unlike, why_not = sum(int(part.unlike) for part in found), ""
    pairs = zip(*(zip(part.apart, part.largest, strict=True) for part in found), strict=True)
    for leaf in pairs:
        apart, largest = (max(float(each) for each in of) for of in zip(*leaf, strict=True))
        rounding = max(ROUNDING, 16 * float(jnp.finfo(leaf[0][0].dtype).eps))
        if apart > rounding * largest:
            why_not = (
                f"none: outputs of a batch differ by up to {apart:.3g} from outputs of single examples, "
                f"{ADVICE}"
            )
    if unlike > ROUNDING * len(rows):
        why_not = (
            f"none: {unlike:,} of {len(rows):,} examples are wrong only in a batch or only alone, {ADVICE}"
        )
    return max(sum(int(part.together) for part in found), sum(int(part.alone) for part in found)), why_not

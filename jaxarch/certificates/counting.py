"""How many examples a network gets wrong, counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from jaxarch.errors import ArgumentError, shown
from jaxarch.network import Network
from jaxarch.problem import Problem
from jaxarch.trees import PyTree

Wrong = Callable[[Any, Any], Array]
"""`(outputs, y) -> (n,)`, booleans."""


def why_no_errors(problem: Problem, network: Network, wrong: Wrong | None, rows: np.ndarray) -> str:
    """Why errors on these rows cannot be counted; empty where they can.

    Raises:
      ArgumentError: a `wrong` that does not say of each example whether it is.
    """
    if len(np.unique(rows)) < len(rows):
        return "none: some rows are there twice, so that they are not independent"
    if problem.predict is None:
        return "none: the problem has no `predict`"
    shapes = jax.eval_shape(_outputs, problem, network.params, network.state, jnp.asarray(rows))
    if shapes is None:
        return "none: the problem's batches are no pairs (x, y)"
    outputs, labels = shapes
    if wrong is None:
        arrays = all(isinstance(of, jax.ShapeDtypeStruct) for of in (outputs, labels))
        if not arrays or labels.ndim != 1 or not jnp.issubdtype(labels.dtype, jnp.integer):
            return "none: the labels are no classes; say which outputs are wrong, wrong=(outputs, y) -> (n,)"
        if outputs.ndim != 2 or outputs.shape[1] < 2:
            return "none: there is no output for each class; say which are wrong, wrong=(outputs, y) -> (n,)"
        return ""
    found = jax.eval_shape(wrong, outputs, labels)
    if getattr(found, "shape", None) != rows.shape or found.dtype != bool:
        raise ArgumentError(
            f"wrong: expected {len(rows)} booleans of {len(rows)} examples, as of outputs * y <= 0, got "
            f"{shown(found)}"
        )
    return ""


def _outputs(problem: Problem, params: PyTree, state: PyTree, rows: Array) -> tuple[Any, Any] | None:
    """Of some rows, and their labels; `None` where batches have none."""
    batch = problem.gather(problem.data, problem.per_run, rows)
    if not isinstance(batch, tuple) or len(batch) != 2 or problem.predict is None:
        return None
    return problem.predict(params, state, batch), batch[1]


def _largest_is_another(outputs: Any, labels: Array) -> Array:
    return jnp.argmax(outputs, axis=-1) != labels


@jax.jit
def _errors_of(wrong: Wrong, problem: Problem, params: PyTree, state: PyTree, rows: Array) -> Array:
    found = _outputs(problem, params, state, rows)
    assert found is not None
    return jnp.sum(wrong(*found), dtype=jnp.int32)


def count_errors(
    network: Network, problem: Problem, wrong: Wrong | None, rows: np.ndarray, batch_size: int | None
) -> int:
    """On these rows, so many at a time."""
    size = batch_size or len(rows)
    parts = (rows[start : start + size] for start in range(0, len(rows), size))
    of = wrong or _largest_is_another
    # As a pytree its numbers are traced: of many thresholds, say, one program counts the errors.
    of = of if isinstance(of, Partial) else Partial(of)
    return sum(
        int(_errors_of(of, problem, network.params, network.state, jnp.asarray(part))) for part in parts
    )

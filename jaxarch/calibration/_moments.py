"""Second moments of the inputs of products, and counts of look-ups."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxarch.calibration._layouts import further_axes, rows_of, shape_of_rows
from jaxarch.calibration._uses import Use
from jaxarch.structure._flow import Step, bind


class Moments(NamedTuple):
    """Sums over the rows x of inputs of a product, for each of its blocks. Loops add first axes for rounds.

    Attributes:
      squares: `sum x^2`, shape (blocks, inputs).
      products: `sum x x^T`, shape (blocks, inputs, inputs), or `None`.
    """

    squares: Array
    products: Array | None


def of_product(use: Use, step: Step, with_products: bool, taken: list[Any], valid: Any) -> Moments:
    """Return the moments of the inputs of a product.

    Args:
      use: the use of leaves in the product.
      step: its equation.
      with_products: whether second moments between inputs are wanted.
      taken: the values that it takes.
      valid: booleans for the first axes of its rows, or `None`; rows of other shapes all count.
    """
    assert use.place is not None
    values, counted = rows_of(step, use.place, taken)
    shape = shape_of_rows(step, use.place)
    if (of_rows := valid_rows(valid, shape)) is not None:
        counted = of_rows if counted is None else counted & of_rows
    if counted is None:
        return Moments((values**2).sum(1), _products(values) if with_products else None)
    # NaN in rows that do not count must not count either.
    rows = jnp.where(counted.any(0)[None, :, None], values, 0)
    weights = counted.astype(rows.dtype)
    squares = jnp.matmul(weights[:, None], rows**2, precision=lax.Precision.HIGHEST)[:, 0]
    return Moments(squares, _weighted(rows, weights) if with_products else None)


def _products(rows: Array) -> Array:
    return jnp.einsum("...mk,...ml->...kl", rows, rows, precision=lax.Precision.HIGHEST)


def _weighted(rows: Array, weights: Array) -> Array:
    """Return the second moments of weighted rows, one block after the other to save memory."""
    if len(rows) == 1:
        return lax.map(lambda of: _products(rows[0] * of[:, None]), weights)
    weights = jnp.broadcast_to(weights, rows.shape[:2])
    return lax.map(lambda block: _products(block[0] * block[1][:, None]), (rows, weights))


def valid_rows(valid: Any, shape: tuple[int, ...]) -> Array | None:
    """Return which rows are valid, shape (1, rows), given booleans for their first axes; `None` for all."""
    further = None if valid is None else further_axes(valid.shape, shape)
    return None if further is None else jnp.repeat(valid.reshape(-1), math.prod(further))[None]


def of_lookup(step: Step, taken: list[Any], valid: Any) -> Array:
    """Count how often each entry of a table is looked up, in the shape of the table."""
    table = jnp.zeros(jnp.shape(taken[0]), jnp.float32)
    made, back = jax.vjp(lambda table: bind(step.eqn, [table, *taken[1:]])[0], table)
    counted = valid_rows(valid, made.shape)
    ones = jnp.ones_like(made)
    return back(ones if counted is None else ones * counted.reshape(made.shape))[0]

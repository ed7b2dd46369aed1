"""Products as matrices: the inputs of a product as rows, and its weights as matrices of inputs by outputs.

A product is `(blocks, rows, inputs) @ (blocks, inputs, outputs)`. Its blocks are the axes that both factors
share, such as experts or heads, and the groups of a grouped convolution. The rows of a convolution are the
patches of its pictures.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jaxarch.calibration._views import wide
from jaxarch.structure._flow import Step, shape_of


class Rows(NamedTuple):
    """The inputs of a product.

    Attributes:
      values: shape (blocks, rows, inputs); one block stands for all if each takes its own rows of it.
      counted: which rows each block takes, shape (blocks, rows); `None` for all.
    """

    values: Array
    counted: Array | None


def has_rows(step: Step, place: int) -> bool:
    """Return whether a product can be read as matrices, if its input at a place depends on the inputs."""
    name, params = step.eqn.primitive.name, step.eqn.params
    if jnp.issubdtype(step.eqn.invars[place].aval.dtype, jnp.complexfloating):  # type: ignore[attr-defined]
        return False
    if name == "dot_general":
        return bool(params["dimension_numbers"][0][0])
    if place != 0:
        return False
    if name == "conv_general_dilated":
        return params["batch_group_count"] == 1
    numbers = params["ragged_dot_dimension_numbers"]
    (summed, _), (batched, _) = numbers.dot_dimension_numbers
    rows, others = numbers.lhs_ragged_dimensions, len(shape_of(step.eqn.invars[0])) - len(summed)
    one_of_each = len(rows) == len(numbers.rhs_group_dimensions) == others == 1
    return one_of_each and rows[0] not in summed and not batched


def rows_of(step: Step, place: int, taken: list[Any]) -> Rows:
    """Return the inputs of a product, given the values that it takes."""
    name, array = step.eqn.primitive.name, jnp.asarray(taken[place])
    array = array.astype(wide(array.dtype))
    if name == "conv_general_dilated":
        return _patches(step, array)
    summed, batched = _summed(step, place)
    free = [axis for axis in range(array.ndim) if axis not in (*summed, *batched)]
    blocks, inputs = (math.prod(array.shape[axis] for axis in axes) for axes in (batched, summed))
    array = array.transpose([*batched, *free, *summed]).reshape(blocks, -1, inputs)
    if name == "dot_general":
        return Rows(array, None)
    # Rows belong to one group after the other; further rows belong to none.
    sizes = jnp.asarray(taken[2])
    group = jnp.searchsorted(jnp.cumsum(sizes), jnp.arange(array.shape[1]), side="right")
    return Rows(array, group[None] == jnp.arange(len(sizes))[:, None])


def shape_of_rows(step: Step, place: int) -> tuple[int, ...]:
    """Return the sizes of the axes that the rows of a product consist of."""
    if step.eqn.primitive.name == "conv_general_dilated":
        batch, _, *places = step.eqn.params["dimension_numbers"].out_spec
        shape = shape_of(step.eqn.outvars[0])
        return tuple(shape[axis] for axis in (batch, *places))
    summed, batched = _summed(step, place)
    shape = shape_of(step.eqn.invars[place])
    return tuple(size for axis, size in enumerate(shape) if axis not in (*summed, *batched))


def further_axes(first: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the axes of rows after their first ones, which may be flattened; `None` if these do not fit."""
    if shape[: len(first)] == first:
        return shape[len(first) :]
    return shape[1:] if shape[:1] == (math.prod(first),) else None


def as_matrix(step: Step, place: int, factor: Any) -> Any:
    """Return the other factor of a product as matrices of shape (blocks, inputs, outputs)."""
    name, params = step.eqn.primitive.name, step.eqn.params
    if name == "conv_general_dilated":
        spec, groups = params["dimension_numbers"].rhs_spec, params["feature_group_count"]
        array = factor.transpose(spec)
        return array.reshape(groups, array.shape[0] // groups, -1).swapaxes(1, 2)
    summed, batched = _summed(step, 1 - place)
    free = [axis for axis in range(factor.ndim) if axis not in (*summed, *batched)]
    shape = factor.shape
    inputs, blocks = (math.prod(shape[axis] for axis in axes) for axes in (summed, batched))
    return factor.transpose([*batched, *summed, *free]).reshape(blocks, inputs, -1)


def _summed(step: Step, place: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes of a factor that a product sums over, and those that count its blocks."""
    if step.eqn.primitive.name == "dot_general":
        summed, batched = step.eqn.params["dimension_numbers"]
        return tuple(summed[place]), tuple(batched[place])
    numbers = step.eqn.params["ragged_dot_dimension_numbers"]
    summed, batched = numbers.dot_dimension_numbers
    return tuple(summed[place]), tuple(numbers.rhs_group_dimensions) if place == 1 else ()


def _patches(step: Step, pictures: Array) -> Rows:
    """Return the patches that a convolution multiplies with its kernel, by group of channels."""
    params = step.eqn.params
    numbers, groups = params["dimension_numbers"], params["feature_group_count"]
    kernel = shape_of(step.eqn.invars[1])
    window = tuple(kernel[axis] for axis in numbers.rhs_spec[2:])
    plain = lax.ConvDimensionNumbers(*[tuple(range(pictures.ndim))] * 3)
    patches = lax.conv_general_dilated_patches(
        pictures.transpose(numbers.lhs_spec),
        window,
        params["window_strides"],
        params["padding"],
        params["lhs_dilation"],
        params["rhs_dilation"],
        plain,
        precision=lax.Precision.HIGHEST,
    )
    examples, features = patches.shape[:2]
    patches = patches.reshape(examples, groups, features // groups, -1)
    rows = patches.transpose(1, 0, 3, 2).reshape(groups, -1, features // groups)
    return Rows(rows, None)

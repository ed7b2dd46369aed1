"""Functions with custom derivatives (`jax.custom_jvp`, `jax.custom_vjp`), run on smaller arrays.

Their rules are traced only when a derivative is asked for: many rules refuse to be traced, or belong to
values that are never differentiated. The program of a rule is cut like the function's own program, whose
units decide. If the rule ties units in another way, so that they cannot be cut out of it, the derivative is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.export import is_symbolic_dim
from jax.extend.core import jaxpr_as_fun
from jax.tree_util import Partial

from jaxarch._internal.errors import ArgumentError
from jaxarch.structure._axes import Axis
from jaxarch.structure._flow import Axes, Program, Step, alone, follow, fresh, inner, unify_all

Kept = dict[Axis, np.ndarray]
Run = Callable[[Program, Any, Sequence[Any]], list[Any]]
"""A function that runs a program on arrays from which units were cut (see `_smaller.run_smaller`)."""


def run_custom_jvp(step: Step, kept: Any, taken: list[Any], run: Run) -> list[Any]:
    """Run a function with a rule for tangents; the rule is cut when it is asked for."""
    of_whole, (program,) = _Whole(step), step.programs

    @jax.custom_jvp
    def smaller(*inputs: Any) -> list[Any]:
        return run(program, kept, inputs)

    def rule(values: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        moved = [index for index, each in enumerate(tangents) if not isinstance(each, SymbolicZero)]
        if not moved:
            made = run(program, kept, values)
            return made, [_no_tangent(array) for array in made]

        def both(values: list[Any], directions: list[Any]) -> tuple[list[Any], list[Any]]:
            starts = [values[index] for index in moved]
            made, along = jax.jvp(of_whole.function_of(values, moved), starts, directions)
            return made, [along[index] for index in of_whole.floats]

        inputs = of_whole.inputs()
        shapes = of_whole.shapes()
        traced = jax.make_jaxpr(both)(shapes, [shapes[index] for index in moved])
        derivative = follow(traced, [*inputs, *(inputs[index] for index in moved)])
        count = len(step.outputs)
        for index, axes in zip(of_whole.floats, derivative.outputs[count:], strict=True):
            unify_all(derivative.outputs[index], axes)
        units = of_whole.units(inputs, derivative.outputs[:count], kept)
        outputs = run(derivative, units, [*values, *(tangents[index] for index in moved)])
        made, along = outputs[:count], dict(zip(of_whole.floats, outputs[count:], strict=True))
        return made, [along.get(index, _no_tangent(array)) for index, array in enumerate(made)]

    # Symbolic zeros tell which inputs are differentiated; the rule is traced for these alone.
    smaller.defjvp(rule, symbolic_zeros=True)
    return list(smaller(*taken))


def run_custom_vjp(step: Step, kept: Any, taken: list[Any], run: Run) -> list[Any]:
    """Run a function with a rule for cotangents; the rule is cut when it is asked for."""
    of_whole, (program,) = _Whole(step), step.programs

    @jax.custom_vjp
    def smaller(*inputs: Any) -> list[Any]:
        return run(program, kept, inputs)

    def forwards(*primals: Any) -> tuple[list[Any], Any]:
        moved = [
            index
            for index, each in enumerate(primals)
            if each.perturbed and jnp.issubdtype(each.value.dtype, jnp.inexact)
        ]
        structure: Any = None

        def pulled(values: list[Any]) -> tuple[list[Any], list[Any]]:
            nonlocal structure
            starts = [values[index] for index in moved]
            made, pull = jax.vjp(of_whole.function_of(values, moved), *starts)
            rest, structure = jax.tree.flatten(pull)
            return made, rest

        def pull(rest: list[Any], floats: list[Any]) -> Any:
            of_floats = dict(zip(of_whole.floats, floats, strict=True))
            all_ = [of_floats.get(index, _no_tangent(var.aval)) for index, var in enumerate(step.eqn.outvars)]
            return jax.tree.unflatten(structure, rest)(all_)

        inputs, count = of_whole.inputs(), len(step.outputs)
        there = follow(jax.make_jaxpr(pulled)(of_whole.shapes()), inputs)
        outputs, rest = there.outputs[:count], there.outputs[count:]
        shapes = [_shape(aval) for aval in there.closed.out_avals]
        traced = jax.make_jaxpr(pull)(shapes[count:], [shapes[index] for index in of_whole.floats])
        back = follow(traced, [*rest, *(outputs[index] for index in of_whole.floats)])
        for index, axes in zip(moved, back.outputs, strict=True):
            unify_all(inputs[index], axes)
        units = of_whole.units(inputs, outputs, kept)

        def backwards_with(*numbers: Any) -> list[Any]:
            found = dict(zip(moved, run(back, units, numbers), strict=True))
            return [found.get(index) for index in range(len(primals))]

        made = run(there, units, [each.value for each in primals])
        return made[:count], Partial(backwards_with, *made[count:])

    def backwards(pull: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        floats = [_instantiated(cotangents[index]) for index in of_whole.floats]
        return tuple(pull(*floats))

    smaller.defvjp(forwards, backwards, symbolic_zeros=True)
    return list(smaller(*taken))


class _Whole:
    """A function with a custom derivative at its original size.

    Attributes:
      floats: the indices of its outputs that have derivatives.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._function = jaxpr_as_fun(alone(step.eqn))
        self._invars = inner(step.eqn).jaxpr.invars
        dtypes = [var.aval.dtype for var in step.eqn.outvars]  # type: ignore[attr-defined]
        self.floats = [i for i, dtype in enumerate(dtypes) if jnp.issubdtype(dtype, jnp.inexact)]

    def function_of(self, values: Sequence[Any], moved: Sequence[int]) -> Callable[..., list[Any]]:
        """Return the function of the inputs `moved` alone; the other inputs have the given values."""

        def function(*some: Any) -> list[Any]:
            of = dict(zip(moved, some, strict=True))
            return list(self._function(*(of.get(index, value) for index, value in enumerate(values))))

        return function

    def shapes(self) -> list[jax.ShapeDtypeStruct]:
        """Return the shapes of its inputs."""
        return [_shape(var.aval) for var in self._invars]

    def inputs(self) -> list[Axes]:
        """Return new axes for its inputs.

        Raises:
          ArgumentError: symbolic sizes.
        """
        if any(is_symbolic_dim(size) for var in self._invars for size in var.aval.shape):
            raise ArgumentError(
                "inputs: the derivative of a function with a rule of its own is only cut for numbers as sizes"
            )
        return [fresh(var) for var in self._invars]

    def units(self, inputs: Sequence[Axes], outputs: Sequence[Axes], kept: Any) -> Kept:
        """Return the units of a derivative's atoms, from the function's units; raise if there are none."""
        found: Kept = {}
        arrays = zip((*inputs, *outputs), (*self._step.inputs, *self._step.outputs), strict=True)
        pairs = [pair for axes in arrays for pair in zip(*axes, strict=True)]
        if not all(_split(axis, of.spread(kept), found) for axis, of in pairs):
            name = inner(self._step.eqn).jaxpr.debug_info.func_name
            raise ArgumentError(
                f"function: the derivative rule of {name!r} needs units that were cut; differentiate the "
                "whole model, or run the model's own code on the smaller arrays"
            )
        return found


def _split(axis: Axis, units: np.ndarray, found: Kept) -> bool:
    """Add the units of an axis's atoms to `found`; return whether they make up the units of the axis."""
    axis = axis.root()
    if axis.form == "atom":
        same = np.array_equal(found.setdefault(axis, units), units)
        return same and (not axis.frozen or bool(units.all()))
    if axis.form == "sum":
        parts = np.split(units, np.cumsum([part.size for part in axis.parts])[:-1])
    else:
        grid = units.reshape([part.size for part in axis.parts])
        parts = [
            np.asarray(grid.any(tuple(other for other in range(grid.ndim) if other != index)))
            for index in range(grid.ndim)
        ]
    split = all(_split(part, of, found) for part, of in zip(axis.parts, parts, strict=True))
    return split and np.array_equal(axis.spread(found), units)


def _shape(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _no_tangent(array: Any) -> Any:
    """Return a tangent of 0; for integers it has the dtype float0, which stands for no tangent."""
    inexact = jnp.issubdtype(array.dtype, jnp.inexact)
    return jnp.zeros(array.shape, array.dtype) if inexact else np.zeros(array.shape, jax.dtypes.float0)


def _instantiated(tangent: Any) -> Any:
    if not isinstance(tangent, SymbolicZero):
        return tangent
    return jnp.zeros(tangent.shape, tangent.dtype)

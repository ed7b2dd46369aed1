"""Traced programs with the axes of every array, followed from primitive to primitive.

Each primitive has a rule that says which axes of its inputs and outputs are the same. For a primitive without
a rule nothing is guessed: all axes that it touches are frozen, with its name as the reason. Programs that JAX
keeps once and calls many times are followed at each call, with the axes of that call.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, jaxpr_as_fun

from jaxarch.structure._axes import Axis, in_a_row, product, unify
from jaxarch.structure._copies import copy_constants, read_twice
from jaxarch.structure._scans import scan_counts

Axes = tuple[Axis, ...]
"""The axes of one array."""

INPUTS, OUTPUTS = "it is an axis of an input", "it is an axis of an output"
MOVED_ALONG = "a convolution moves along it"
POOLED_ALONG = "a pooling moves along it"
AS_THEY_MUST_BE = (INPUTS, OUTPUTS, MOVED_ALONG, POOLED_ALONG)
"""Reasons for axes to stay that no user would want to remove."""
NO_RULE = "there is no rule for"
UNREAD = "no output depends on it"


def shape_of(atom: Any) -> tuple[int, ...]:
    """Return the shape of an array of a program; the number of examples may be symbolic."""
    return atom.aval.shape


def fresh(atom: Any) -> Axes:
    """Return new axes for an array about which nothing is known yet."""
    return tuple(Axis(size) for size in getattr(atom.aval, "shape", ()))  # A token has no shape.


def frozen(atom: Any, why: str) -> Axes:
    """Return new axes for an array, all frozen."""
    axes = fresh(atom)
    freeze(axes, why)
    return axes


def freeze(axes: Sequence[Axis], why: str) -> None:
    """Mark all units of some axes as staying."""
    for axis in axes:
        axis.freeze(why)


class Step(NamedTuple):
    """One equation of a program, at one call.

    Attributes:
      eqn: the equation.
      inputs: the axes of its inputs, including literals.
      outputs: the axes of its outputs.
      programs: the programs that it calls, with the axes of this call.
    """

    eqn: JaxprEqn
    inputs: tuple[Axes, ...]
    outputs: tuple[Axes, ...]
    programs: tuple[Program, ...]

    @property
    def called(self) -> Program | None:
        """The program that the step calls once, on its own inputs, to make all of its outputs; or `None`."""
        called = self.programs and self.eqn.primitive.name in CALLED
        return self.programs[0] if called else None


class Program(NamedTuple):
    """A traced program, at one call.

    Attributes:
      closed: the program, with its constants.
      consts: the axes of the constants.
      inputs: the axes of the inputs.
      outputs: the axes of the outputs.
      steps: the equations.
      whole: variables of constants that come whole from outside; each step that reads one has new axes for
        it.
    """

    closed: ClosedJaxpr
    consts: tuple[Axes, ...]
    inputs: tuple[Axes, ...]
    outputs: tuple[Axes, ...]
    steps: tuple[Step, ...]
    whole: frozenset[Any] = frozenset()


def follow(closed: ClosedJaxpr, inputs: Sequence[Axes], constant: Sequence[bool] = ()) -> Program:
    """Follow the axes of a program's inputs through it, and unify all axes that meet.

    Constants that several equations read are first copied for each of them, so that they do not tie unrelated
    axes. Constants that come from outside stay whole, and each equation cuts what it reads of them.

    Args:
      closed: the program.
      inputs: the axes of its inputs.
      constant: whether each input is a constant at this call; by default none is.
    """
    closed = copy_constants(closed, only_called)
    jaxpr, steps = closed.jaxpr, []
    whole = set(read_twice(closed, constant))
    varying = set(jaxpr.invars) - whole
    consts = [fresh(var) for var in jaxpr.constvars]
    known: dict[Any, Axes] = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Axes:
        return fresh(atom) if isinstance(atom, Literal) or atom in whole else known[atom]

    for eqn in jaxpr.eqns:
        taken = [read(atom) for atom in eqn.invars]
        variables = {atom for atom in eqn.invars if not isinstance(atom, Literal)}
        # Values made of whole constants alone are constants as well, and stay whole.
        if variables & varying:
            varying |= set(eqn.outvars)
        elif variables & whole:
            whole |= set(eqn.outvars)
        if eqn.primitive.name in _CALLS:
            constants = [not isinstance(atom, Literal) and atom not in varying for atom in eqn.invars]
            made, programs = _CALLS[eqn.primitive.name](eqn, taken, constants)
        else:
            made, programs = _RULES.get(eqn.primitive.name, _unknown)(eqn, *taken), []
        known.update(zip(eqn.outvars, made, strict=True))
        steps.append(Step(eqn, tuple(taken), tuple(made), tuple(programs)))
    outputs = [read(atom) for atom in jaxpr.outvars]
    return Program(closed, tuple(consts), tuple(inputs), tuple(outputs), tuple(steps), frozenset(whole))


def literal(atom: Literal) -> np.ndarray:
    """Return a literal of a program as an array of its dtype."""
    return np.asarray(atom.val, atom.aval.dtype)  # type: ignore[attr-defined]


def _unknown(eqn: JaxprEqn, *inputs: Axes) -> list[Axes]:
    why = f"{NO_RULE} {eqn.primitive.name!r}"
    for axes in inputs:
        freeze(axes, why)
    return [frozen(output, why) for output in eqn.outvars]


def bind(eqn: JaxprEqn, values: Sequence[Any], **changed: Any) -> list[Any]:
    """Evaluate an equation on some values, with some of its parameters changed."""
    # These primitives bind Python functions, so their parameters alone cannot be bound.
    if eqn.primitive.name in OWN_DERIVATIVE:
        return list(jaxpr_as_fun(alone(eqn))(*values))
    # Others, such as `shard_map`, are bound with other parameters. Before JAX 0.10 functions come with them.
    bound = eqn.primitive.get_bind_params(eqn.params | changed)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)
    made = eqn.primitive.bind(*functions, *values, **params)
    return list(made) if eqn.primitive.multiple_results else [made]


OWN_DERIVATIVE = ("custom_jvp_call", "custom_vjp_call")
"""Primitives that call a function with a custom derivative."""


def alone(eqn: JaxprEqn) -> ClosedJaxpr:
    """Return a program whose only equation is this call, with the called program's inputs as its inputs."""
    called = inner(eqn).jaxpr
    call = eqn.replace(invars=called.invars)
    return ClosedJaxpr(called.replace(constvars=[], eqns=[call], outvars=eqn.outvars), ())


# Programs in programs --------------------------------------------------------------------------------

CALLS_ALONE = ("jit", "pjit", "closed_call", "core_call", "composite", "custom_vmap_call")
"""Primitives that call a program once, on their own inputs, and do nothing else."""

CALLS = (*CALLS_ALONE, "remat2", "checkpoint")
"""Primitives that call a program once, on their own inputs, and leave its values as they are."""

CALLED = (*CALLS, *OWN_DERIVATIVE)
"""Primitives whose outputs are the outputs of one program; custom derivatives are not followed."""

PRODUCTS = ("dot_general", "conv_general_dilated")
"""Sums of products of two factors."""

LOOKUPS = ("dynamic_slice", "gather")
"""Primitives that take parts of their first input, at places that the other inputs choose."""


def inner(eqn: JaxprEqn) -> ClosedJaxpr:
    """Return the program that a primitive calls once, on its own inputs."""
    names = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call")
    jaxpr = next(eqn.params[key] for key in names if key in eqn.params)
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())


def only_called(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """Return the program of an equation that only calls it; `None` for other equations."""
    return inner(eqn) if eqn.primitive.name in CALLS_ALONE else None


_Called = tuple[list[Axes], list[Program]]
"""The outputs of a call, and the programs that it calls."""


def _call(eqn: JaxprEqn, inputs: Sequence[Axes], constant: Sequence[bool]) -> _Called:
    program = follow(inner(eqn), inputs, () if eqn.primitive.name in OWN_DERIVATIVE else constant)
    return list(program.outputs), [program]


def _scan(eqn: JaxprEqn, inputs: Sequence[Axes], constant: Sequence[bool]) -> _Called:
    consts, carries = scan_counts(eqn)
    why = "a scan runs along it"
    rows = inputs[consts + carries :]
    freeze([axes[0] for axes in rows], why)
    inside = [*inputs[: consts + carries], *(axes[1:] for axes in rows)]
    body = follow(eqn.params["jaxpr"], inside, constant[:consts])
    carried, kept = body.outputs[:carries], body.outputs[carries:]
    for before, after in zip(inputs[consts : consts + carries], carried, strict=True):
        unify_all(before, after)
    along = [frozen(var, why)[:1] for var in eqn.outvars[carries:]]
    return [*carried, *((*axis, *axes) for axis, axes in zip(along, kept, strict=True))], [body]


def _while(eqn: JaxprEqn, inputs: Sequence[Axes], constant: Sequence[bool]) -> _Called:
    of_condition, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    carry = inputs[of_condition + of_body :]
    outside, inside = (slice(0, of_condition), slice(of_condition, of_condition + of_body))
    condition = follow(eqn.params["cond_jaxpr"], [*inputs[outside], *carry], constant[outside])
    body = follow(eqn.params["body_jaxpr"], [*inputs[inside], *carry], constant[inside])
    for before, after in zip(carry, body.outputs, strict=True):
        unify_all(before, after)
    return list(carry), [condition, body]


def _cond(eqn: JaxprEqn, inputs: Sequence[Axes], constant: Sequence[bool]) -> _Called:
    branches = [follow(branch, inputs[1:], constant[1:]) for branch in eqn.params["branches"]]
    for branch in branches[1:]:
        for one, other in zip(branches[0].outputs, branch.outputs, strict=True):
            unify_all(one, other)
    return list(branches[0].outputs), branches


# Entry by entry --------------------------------------------------------------------------------------


def unify_all(first: Axes, second: Axes) -> None:
    """Make the axes of two arrays equal."""
    for one, other in zip(first, second, strict=True):
        unify(one, other)


def _elementwise(eqn: JaxprEqn, *inputs: Axes) -> list[Axes]:
    """Unify axes entry by entry; axes of size 1 and single numbers fit any axis."""
    shape = eqn.outvars[0].aval.shape  # type: ignore[attr-defined]
    axes = []
    for index, size in enumerate(shape):
        meeting = [of[index] for of in inputs if len(of) == len(shape) and of[index].size == size]
        for other in meeting[1:]:
            unify(meeting[0], other)
        axes.append(meeting[0] if meeting else Axis(size))
    return [tuple(axes)] * len(eqn.outvars)


def _as_they_are(eqn: JaxprEqn, *inputs: Axes) -> list[Axes]:
    return list(inputs)


# Shapes ----------------------------------------------------------------------------------------------


def _broadcast(eqn: JaxprEqn, array: Axes, *sizes: Axes) -> list[Axes]:
    shape, places = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    axes = [Axis(size) for size in shape]
    for place, axis in zip(places, array, strict=True):
        if axis.size == shape[place]:
            axes[place] = axis
    return [tuple(axes)]


def _reshape(eqn: JaxprEqn, array: Axes, *sizes: Axes) -> list[Axes]:
    """Merge or split axes, matched in the smallest groups of equal size."""
    # `dimensions` permutes the axes before they are reshaped, for which there is no rule.
    if eqn.params["dimensions"] is not None:
        return _unknown(eqn, array)
    left = [axis for axis in array if axis.size != 1]
    outputs = fresh(eqn.outvars[0])
    if 0 in eqn.params["new_sizes"]:
        return [outputs]
    right = [axis for axis in outputs if axis.size != 1]
    while left or right:
        before, after = [left.pop(0)], [right.pop(0)]
        while (sizes_ := [math.prod(axis.size for axis in axes) for axes in (before, after)])[0] != sizes_[1]:
            short, source = (before, left) if sizes_[0] < sizes_[1] else (after, right)
            short.append(source.pop(0))
        unify(product(before), product(after))
    return [outputs]


def _tile(eqn: JaxprEqn, array: Axes) -> list[Axes]:
    """Repeat an axis: the new one is the product of copies and units."""
    repeats = zip(eqn.params["reps"], array, strict=True)
    return [tuple(product([Axis(count), axis]) for count, axis in repeats)]


def _squeeze(eqn: JaxprEqn, array: Axes) -> list[Axes]:
    return [tuple(axis for index, axis in enumerate(array) if index not in eqn.params["dimensions"])]


def _transpose(eqn: JaxprEqn, array: Axes) -> list[Axes]:
    return [tuple(array[index] for index in eqn.params["permutation"])]


def _reverse(eqn: JaxprEqn, array: Axes) -> list[Axes]:
    freeze([array[index] for index in eqn.params["dimensions"]], "it is reversed")
    return [array]


def _concatenate(eqn: JaxprEqn, *arrays: Axes) -> list[Axes]:
    along = eqn.params["dimension"]
    for other in arrays[1:]:
        for index, (one, another) in enumerate(zip(arrays[0], other, strict=True)):
            if index != along:
                unify(one, another)
    return [_with_axis(arrays[0], along, in_a_row([array[along] for array in arrays]))]


def _split(eqn: JaxprEqn, array: Axes) -> list[Axes]:
    along = eqn.params["axis"]
    pieces = [Axis(size) for size in eqn.params["sizes"]]
    unify(array[along], in_a_row(pieces))
    return [_with_axis(array, along, piece) for piece in pieces]


def _stack(eqn: JaxprEqn, *arrays: Axes) -> list[Axes]:
    """Put arrays side by side along a new axis."""
    for other in arrays[1:]:
        unify_all(arrays[0], other)
    beside = in_a_row([Axis(1) for _ in arrays])
    return [(*arrays[0][: eqn.params["axis"]], beside, *arrays[0][eqn.params["axis"] :])]


def _unstack(eqn: JaxprEqn, array: Axes) -> list[Axes]:
    along = eqn.params["axis"]
    unify(array[along], in_a_row([Axis(1) for _ in eqn.outvars]))
    return [(*array[:along], *array[along + 1 :]) for _ in eqn.outvars]


def _slice(eqn: JaxprEqn, array: Axes) -> list[Axes]:
    starts, stops = eqn.params["start_indices"], eqn.params["limit_indices"]
    strides = eqn.params["strides"] or (1,) * len(array)
    axes = []
    for axis, start, stop, stride in zip(array, starts, stops, strides, strict=True):
        if stride == 1:
            inside = Axis(stop - start)
            unify(axis, in_a_row([Axis(start), inside, Axis(axis.size - stop)]))
        else:
            axis.freeze("strided slices are not supported yet")
            inside = Axis(len(range(start, stop, stride)), frozen="strided slices are not supported yet")
        axes.append(inside)
    return [tuple(axes)]


def _pad(eqn: JaxprEqn, array: Axes, value: Axes) -> list[Axes]:
    axes = []
    for axis, (low, high, between) in zip(array, eqn.params["padding_config"], strict=True):
        if min(low, high) < 0 or between:
            axis.freeze("it is padded between its units, or cropped")
            size = axis.size + low + high + max(axis.size - 1, 0) * between
            axes.append(Axis(size, frozen="it is padded"))
        else:
            axes.append(in_a_row([Axis(low), axis, Axis(high)]))
    return [tuple(axes)]


def _with_axis(array: Axes, index: int, axis: Axis) -> Axes:
    return (*array[:index], axis, *array[index + 1 :])


def _window(
    array: Axes, outputs: Axes, sizes: Sequence[int], why: str, moved: Sequence[int] | None = None
) -> Axes:
    """Take a window of an array: axes that it takes whole are kept, the others are frozen."""
    axes = []
    for index, (axis, output, size) in enumerate(zip(array, outputs, sizes, strict=True)):
        if size == axis.size and (moved is None or index not in moved):
            axes.append(axis)
        else:
            freeze((axis, output), why)
            axes.append(output)
    return tuple(axes)


def _dynamic_slice(eqn: JaxprEqn, array: Axes, *starts: Axes) -> list[Axes]:
    why = "it is sliced at a computed index"
    return [_window(array, fresh(eqn.outvars[0]), eqn.params["slice_sizes"], why)]


def update_of(eqn: JaxprEqn) -> int:
    """Return the index of the update among the inputs of a primitive in `WRITES`; other inputs are places."""
    return 1 if eqn.primitive.name == "dynamic_update_slice" else 2


def _written(eqn: JaxprEqn, array: Axes, *others: Axes) -> list[Axes]:
    """Write or add one array into another; axes that are written whole are unified."""
    why, number = "it is written to at a computed index", update_of(eqn)
    pairs, update = written_whole(eqn), others[number - 1]
    for one, other in pairs.items():
        unify(array[one], update[other])
    freeze([axis for index, axis in enumerate(array) if index not in pairs], why)
    freeze([axis for index, axis in enumerate(update) if index not in pairs.values()], why)
    for axes in (*others[: number - 1], *others[number:]):
        freeze(axes, why)
    return [array]


def written_whole(eqn: JaxprEqn) -> dict[int, int]:
    """Return the axes of the target that are written whole, each with its axis of the update."""
    whole, part = (eqn.invars[index].aval.shape for index in (0, update_of(eqn)))  # type: ignore[attr-defined]
    if eqn.primitive.name == "dynamic_update_slice":
        return {index: index for index, size in enumerate(whole) if part[index] == size}
    numbers = eqn.params["dimension_numbers"]
    left_out = {*numbers.inserted_window_dims, *getattr(numbers, "operand_batching_dims", ())}
    windows = [index for index in range(len(whole)) if index not in left_out]
    pairs = zip(windows, sorted(numbers.update_window_dims), strict=True)
    moved = numbers.scatter_dims_to_operand_dims
    return {one: other for one, other in pairs if one not in moved and whole[one] == part[other]}


def _gather(eqn: JaxprEqn, array: Axes, places: Axes) -> list[Axes]:
    """Take slices at computed places: the output has the axes taken whole, and the axes of the places."""
    numbers, why = eqn.params["dimension_numbers"], "it is indexed by computed values"
    batching = getattr(numbers, "operand_batching_dims", ())
    left_out = {*numbers.collapsed_slice_dims, *batching}
    outputs = list(fresh(eqn.outvars[0]))
    of_slices = dict(zip(sorted(set(range(len(array))) - left_out), sorted(numbers.offset_dims), strict=True))
    for index, axis in enumerate(array):
        if index in of_slices:
            place = of_slices[index]
            (outputs[place],) = _window(
                (axis,), (outputs[place],), eqn.params["slice_sizes"][index : index + 1], why
            )
        elif index not in batching:
            axis.freeze(why)
    of_places = [index for index in range(len(outputs)) if index not in numbers.offset_dims]
    for place, axis in zip(of_places, places[:-1], strict=True):
        outputs[place] = axis
    for index, of in zip(batching, getattr(numbers, "start_indices_batching_dims", ()), strict=True):
        unify(array[index], places[of])
    freeze(places[-1:], why)
    return [tuple(outputs)]


def _iota(eqn: JaxprEqn, *sizes: Axes) -> list[Axes]:
    return [fresh(eqn.outvars[0])]


def _random_bits(eqn: JaxprEqn, key: Axes) -> list[Axes]:
    return [fresh(eqn.outvars[0])] if not key else _unknown(eqn, key)


def _bitcast(eqn: JaxprEqn, array: Axes) -> list[Axes]:
    """Reinterpret bits as another dtype: entry by entry, if both dtypes have the same width."""
    dtypes = [atom.aval.dtype for atom in (*eqn.invars, *eqn.outvars)]  # type: ignore[attr-defined]
    return [array] if dtypes[0].itemsize == dtypes[1].itemsize else _unknown(eqn, array)


# Sums and products -----------------------------------------------------------------------------------


def _reduce(eqn: JaxprEqn, array: Axes, *starts: Axes) -> list[Axes]:
    return [tuple(axis for index, axis in enumerate(array) if index not in eqn.params["axes"])]


def _apart(eqn: JaxprEqn, *arrays: Axes) -> list[Axes]:
    """Follow a primitive that works along some axes, and separately on every index of the others."""
    name = eqn.primitive.name
    why = _WORKS.get(name, f"{NO_RULE} {name!r} along it")
    rank = len(arrays[0])
    first = [arrays[0][index] for index in others_of(eqn, rank, rank)]
    for axes in arrays:
        others = others_of(eqn, rank, len(axes))
        for index, axis in enumerate(axes):
            if index in others:
                unify(axis, first[others.index(index)])
            else:
                axis.freeze(why)
    made = []
    for var in eqn.outvars:
        whole = list(frozen(var, why))
        for index, axis in zip(others_of(eqn, rank, len(whole)), first, strict=False):
            whole[index] = axis
        made.append(tuple(whole))
    return made


def others_of(eqn: JaxprEqn, rank: int, own: int) -> tuple[int, ...]:
    """Return the axes of an array that a primitive in `ALONG` does not work along.

    Args:
      eqn: the equation of the primitive.
      rank: the rank of its first input.
      own: the rank of the array, an input or output that may have fewer axes than the first input.
    """
    along = {axis % rank for axis in ALONG[eqn.primitive.name](eqn, rank)} if rank else ()
    others = tuple(axis for axis in range(rank) if axis not in along)
    if own == len(others):  # The array lacks the axes that the primitive works along.
        return tuple(range(own))
    return others if own else ()


def _dot(eqn: JaxprEqn, first: Axes, second: Axes) -> list[Axes]:
    (contracted, batched) = eqn.params["dimension_numbers"]
    for left, right in itertools.chain(zip(*contracted, strict=True), zip(*batched, strict=True)):
        unify(first[left], second[right])
    free = [
        axis
        for array, summed, shared in zip((first, second), contracted, batched, strict=True)
        for index, axis in enumerate(array)
        if index not in (*summed, *shared)
    ]
    return [(*(first[index] for index in batched[0]), *free)]


def _ragged_dot(eqn: JaxprEqn, first: Axes, second: Axes, sizes: Axes) -> list[Axes]:
    """Multiply each group of rows with its own matrix; groups and rows are frozen."""
    numbers = eqn.params["ragged_dot_dimension_numbers"]
    (contracted, batched) = numbers.dot_dimension_numbers
    rows, groups = numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions
    if len(rows) != 1 or rows[0] in (*contracted[0], *batched[0]):
        return _unknown(eqn, first, second, sizes)
    freeze([first[rows[0]], *(second[index] for index in groups), *sizes], "it consists of groups of rows")
    for left, right in itertools.chain(zip(*contracted, strict=True), zip(*batched, strict=True)):
        unify(first[left], second[right])
    free = [axis for index, axis in enumerate(first) if index not in (*contracted[0], *batched[0])]
    outputs = [
        axis for index, axis in enumerate(second) if index not in (*contracted[1], *batched[1], *groups)
    ]
    return [(*(first[index] for index in batched[0]), *free, *outputs)]


def _convolution(eqn: JaxprEqn, pictures: Axes, kernel: Axes) -> list[Axes]:
    """Unify channels with the kernel's inputs; with feature groups, each group has its own channels."""
    if eqn.params["batch_group_count"] != 1:
        return _unknown(eqn, pictures, kernel)
    numbers, groups = eqn.params["dimension_numbers"], eqn.params["feature_group_count"]
    (batch, channels, *places), (outputs, inputs, *window) = numbers.lhs_spec, numbers.rhs_spec
    freeze([*(pictures[index] for index in places), *(kernel[index] for index in window)], MOVED_ALONG)
    group = Axis(groups)
    unify(pictures[channels], product([group, kernel[inputs]]))
    if groups > 1:
        unify(kernel[outputs], product([group, Axis(kernel[outputs].size // groups)]))
    made = list(frozen(eqn.outvars[0], MOVED_ALONG))
    made[numbers.out_spec[0]], made[numbers.out_spec[1]] = pictures[batch], kernel[outputs]
    return [tuple(made)]


def _last(count: int) -> Callable[[JaxprEqn, int], Sequence[int]]:
    return lambda eqn, rank: range(rank - count, rank)


def _param(name: str) -> Callable[[JaxprEqn, int], Sequence[int]]:
    def along(eqn: JaxprEqn, rank: int) -> Sequence[int]:
        axes = eqn.params.get(name, rank - 1)
        return (axes,) if isinstance(axes, int) else axes

    return along


def _moved_along(eqn: JaxprEqn, rank: int) -> Sequence[int]:
    """Return the axes along which a window moves: all except those with a trivial window of 1."""
    alone = {"window_dimensions": 1, "window_strides": 1, "base_dilation": 1, "window_dilation": 1}
    found = [eqn.params.get(name, [one] * rank) for name, one in alone.items()]
    kinds = zip(*found, eqn.params["padding"], strict=True)
    return [index for index, kind in enumerate(kinds) if kind != (1, 1, 1, 1, (0, 0))]


_IN_THEIR_ORDER = ("cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum")
_WINDOWS = (
    "reduce_window", "reduce_window_max", "reduce_window_min", "reduce_window_sum", "select_and_gather_add",
    "select_and_scatter_add",
)  # fmt: skip
_MATRICES = ("cholesky", "eig", "eigh", "lu", "qr", "svd", "triangular_solve")

ALONG: dict[str, Callable[[JaxprEqn, int], Sequence[int]]] = {
    **dict.fromkeys(_IN_THEIR_ORDER, _param("axis")),
    **dict.fromkeys(_WINDOWS, _moved_along),
    **dict.fromkeys(_MATRICES, _last(2)),
    **dict.fromkeys(("argmax", "argmin"), _param("axes")),
    "approx_top_k": _param("reduction_dimension"),
    "fft": lambda eqn, rank: range(rank - len(eqn.params["fft_lengths"]), rank),
    "reduce": _param("dimensions"),
    "sort": _param("dimension"),
    "top_k": _param("axis"),
}
"""The axes that primitives work along; each index of the other axes is independent.

Their inputs and outputs have these axes at the same positions as the first input, or lack all of them.
"""

_WORKS = {
    **dict.fromkeys(_IN_THEIR_ORDER, "its units are accumulated in order"),
    **dict.fromkeys(_WINDOWS, POOLED_ALONG),
    **dict.fromkeys(("argmax", "argmin"), "the index of one of its units is a result"),
    **dict.fromkeys(("approx_top_k", "sort", "top_k"), "its units are sorted"),
}
"""The reasons why axes stay that primitives work along."""

ENTRYWISE = [
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh",
    "bessel_i0e", "bessel_i1e", "cbrt", "ceil", "clamp", "clz", "complex", "conj", "convert_element_type",
    "copy", "copy_p", "cos", "cosh", "digamma", "div", "eq", "eq_to", "erf", "erf_inv", "erfc", "exp",
    "exp2", "expm1", "floor", "ge", "gt", "igamma", "igamma_grad_a", "igammac", "imag", "integer_pow",
    "is_finite", "le", "le_to", "lgamma", "log", "log1p", "log2", "logistic", "lt", "lt_to", "max", "min",
    "mul", "mulhi", "name", "ne", "neg", "nextafter", "not", "one_minus_square", "or", "polygamma",
    "polynomial", "population_count", "pow", "pvary", "random_gamma_grad", "real", "reduce_precision",
    "regularized_incomplete_beta", "rem", "reshard", "round", "rsqrt", "select_n", "sharding_constraint",
    "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square",
    "stop_gradient", "sub", "tan", "tanh", "xor", "zeta",
]  # fmt: skip
"""Functions that act entry by entry."""

AS_THEY_ARE = ("device_put", "optimization_barrier")
"""Primitives that return their inputs unchanged."""

MOVES = (
    "broadcast_in_dim", "concatenate", "pad", "reshape", "rev", "slice", "split", "squeeze", "stack", "tile",
    "transpose", "unstack",
)  # fmt: skip
"""Primitives that move or repeat entries."""

_HOW = ("add", "max", "min", "mul", "sub")
WRITES = ("dynamic_update_slice", "scatter", *(f"scatter{mark}{how}" for mark in "-_" for how in _HOW))
"""Primitives that write one array into another at computed places, or add it there."""

REDUCTIONS = tuple(f"reduce_{how}" for how in ("sum", "max", "min", "prod", "and", "or", "xor"))

_RULES: dict[str, Callable[..., list[Axes]]] = {
    **dict.fromkeys(ENTRYWISE, _elementwise),
    **dict.fromkeys(AS_THEY_ARE, _as_they_are),
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(ALONG, _apart),
    **dict.fromkeys(WRITES, _written),
    "bitcast_convert_type": _bitcast,
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "conv_general_dilated": _convolution,
    "dot_general": _dot,
    "dynamic_slice": _dynamic_slice,
    "gather": _gather,
    "iota": _iota,
    "pad": _pad,
    "random_bits": _random_bits,
    "reshape": _reshape,
    "rev": _reverse,
    "ragged_dot_general": _ragged_dot,
    "slice": _slice,
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "tile": _tile,
    "transpose": _transpose,
    "unstack": _unstack,
}

_CALLS: dict[str, Callable[..., _Called]] = {
    **dict.fromkeys(CALLED, _call),
    "cond": _cond,
    "scan": _scan,
    "while": _while,
}
"""Primitives that call programs."""

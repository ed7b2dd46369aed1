"""A proof that two traces differ only in the number of examples, each computed on its own.

Every fact found about one trace, for any inputs, then holds for the other: an analysis with two examples is
valid for any number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from jaxarch.structure._flow import CALLED, ENTRYWISE, REDUCTIONS, inner, literal, shape_of
from jaxarch.structure._scans import scan_counts

Dims = Sequence[int | None]
"""For some arrays, the axis of examples, or `None` if there is none."""


class _Different(Exception):
    """The two programs differ in more than the number of examples."""


def differ_in_examples(first: ClosedJaxpr, second: ClosedJaxpr) -> bool:
    """Return whether two programs differ only in the number of examples, and examples never mix.

    Nothing may be summed, sorted, sliced or moved along an axis of examples. Nothing may depend on the index
    of an example or on the number of examples. Unknown primitives on such axes make the result false.
    """
    shapes = [
        (one.aval.shape, other.aval.shape)
        for one, other in zip(first.jaxpr.invars, second.jaxpr.invars, strict=False)
    ]
    sizes = [pair for shape in shapes for pair in zip(*shape, strict=False) if pair[0] != pair[1]]
    if not sizes:
        return False
    try:
        _compare(first, second, sizes[0])
    except _Different:
        return False
    return True


def _demand(condition: Any) -> None:
    if not condition:
        raise _Different


def _compare(first: ClosedJaxpr, second: ClosedJaxpr, sizes: tuple[int, int]) -> None:
    one, other = first.jaxpr, second.jaxpr
    counts = [
        (len(each.invars), len(each.constvars), len(each.eqns), len(each.outvars)) for each in (one, other)
    ]
    _demand(counts[0] == counts[1])
    for constants in zip(first.consts, second.consts, strict=True):
        _demand(_is_same(*constants))
    same: dict[Any, Any] = dict(
        zip([*one.constvars, *one.invars], [*other.constvars, *other.invars], strict=True)
    )

    def dims(atoms: Sequence[Any], others: Sequence[Any]) -> list[int | None]:
        _demand(len(atoms) == len(others))
        return [_dim(atom.aval, another.aval, sizes) for atom, another in zip(atoms, others, strict=True)]

    def check(atoms: Sequence[Any], others: Sequence[Any]) -> None:
        for atom, another in zip(atoms, others, strict=True):
            if isinstance(atom, Literal) or isinstance(another, Literal):
                _demand(isinstance(atom, Literal) and isinstance(another, Literal))
                _demand(_is_same(literal(atom), literal(another)))
            else:
                _demand(same.get(atom) is another)

    dims(one.invars, other.invars)
    for eqn, beside in zip(one.eqns, other.eqns, strict=True):
        _demand(eqn.primitive is beside.primitive)
        of_inputs, of_outputs = dims(eqn.invars, beside.invars), dims(eqn.outvars, beside.outvars)
        check(eqn.invars, beside.invars)
        _compare_equations(eqn, beside, of_inputs, of_outputs, sizes)
        same.update(zip(eqn.outvars, beside.outvars, strict=True))
    dims(one.outvars, other.outvars)
    check(one.outvars, other.outvars)


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if any(jax.numpy.issubdtype(each.dtype, jax.dtypes.prng_key) for each in (one, other)):
        return False
    one, other = np.asarray(one), np.asarray(other)
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def _dim(one: Any, other: Any, sizes: tuple[int, int]) -> int | None:
    """Return the axis of two shapes that grows with the number of examples."""
    shapes = [getattr(aval, "shape", ()) for aval in (one, other)]
    _demand(len(shapes[0]) == len(shapes[1]) and getattr(one, "dtype", None) == getattr(other, "dtype", None))
    grown = [index for index, pair in enumerate(zip(*shapes, strict=True)) if pair[0] != pair[1]]
    _demand(len(grown) <= 1)
    for index in grown:
        # After a reshape an axis may hold a multiple of the examples.
        _demand(shapes[0][index] * sizes[1] == shapes[1][index] * sizes[0])
    return grown[0] if grown else None


def _compare_equations(
    eqn: JaxprEqn, other: JaxprEqn, of_inputs: Dims, of_outputs: Dims, sizes: tuple[int, int]
) -> None:
    name, params, beside = eqn.primitive.name, eqn.params, other.params
    if name in (*CALLED, "custom_vjp_call"):
        return _compare(inner(eqn), inner(other), sizes)
    if name == "scan":
        _demand(scan_counts(eqn) == scan_counts(other))
        _demand(all(params[key] == beside[key] for key in ("length", "reverse")))
        consts, carries = scan_counts(eqn)
        _demand(0 not in (*of_inputs[consts + carries :], *of_outputs[carries:]))
        return _compare(params["jaxpr"], beside["jaxpr"], sizes)
    if name == "while":
        for key in ("cond_nconsts", "body_nconsts"):
            _demand(params[key] == beside[key])
        for key in ("cond_jaxpr", "body_jaxpr"):
            _compare(params[key], beside[key], sizes)
        return None
    if name == "cond":
        _demand(len(params["branches"]) == len(beside["branches"]))
        for branches in zip(params["branches"], beside["branches"], strict=True):
            _compare(*branches, sizes)
        return None
    return _compare_primitives(eqn, other, of_inputs, of_outputs)


def _compare_primitives(eqn: JaxprEqn, other: JaxprEqn, of_inputs: Dims, of_outputs: Dims) -> None:
    """Compare equations without inner programs."""
    name, params, beside = eqn.primitive.name, eqn.params, other.params
    written = _WRITTEN.get(name)
    for key in params:
        _demand(key == written or key == "sharding" or _equal(params[key], beside.get(key)))
    if any(dim is not None for dim in (*of_inputs, *of_outputs)):
        _demand(name in _RULES and _RULES[name](eqn, other, of_inputs, of_outputs))
    elif written is not None:
        _demand(_equal(params[written], beside[written]))


def _equal(one: Any, other: Any) -> bool:
    try:
        # A table's look-up is filled with NaN, which is not equal to itself.
        return bool(one == other or (one != one and other != other))
    except Exception:
        # Some parameters, such as arrays, have no truth value when compared: they count as different.
        return False


_WRITTEN = {
    "broadcast_in_dim": "shape",
    "dynamic_slice": "slice_sizes",
    "gather": "slice_sizes",
    "iota": "shape",
    "reshape": "new_sizes",
    "slice": "limit_indices",
    "tile": "reps",
}
"""By primitive, the parameter with sizes that grow with the arrays."""


# From primitive to primitive, where some array has examples -------------------------------------------

Rule = Callable[[JaxprEqn, JaxprEqn, Dims, Dims], bool]
"""A predicate on both equations and their axes of examples: true if the examples stay independent.

Parameters are the same in both, but for those in `_WRITTEN`; a rule that compares these needs both.
"""


def _always(eqn: JaxprEqn, other: JaxprEqn, of_inputs: Dims, of_outputs: Dims) -> bool:
    return True


def _reshape(eqn: JaxprEqn, other: JaxprEqn, of_inputs: Dims, of_outputs: Dims) -> bool:
    """Return whether the examples stay the outer part of their axis, behind axes of the same total size."""
    dim, made = of_inputs[0], of_outputs[0]
    if dim is None or made is None or eqn.params["dimensions"] is not None:
        return False
    return math.prod(shape_of(eqn.invars[0])[:dim]) == math.prod(shape_of(eqn.outvars[0])[:made])


def _not_along(key: str) -> Rule:
    """Return the rule of a primitive that works along axes given by a parameter."""

    def rule(eqn: JaxprEqn, other: JaxprEqn, of_inputs: Dims, of_outputs: Dims) -> bool:
        along = eqn.params[key]
        axes = along if isinstance(along, (tuple, list)) else (along,)
        return not set(axes) & {dim for dim in of_inputs if dim is not None}

    return rule


def _dot(eqn: JaxprEqn, other: JaxprEqn, of_inputs: Dims, of_outputs: Dims) -> bool:
    contracted, batched = eqn.params["dimension_numbers"]
    if any(dim in axes for dim, axes in zip(of_inputs, contracted, strict=True)):
        return False
    if None in of_inputs:
        return True
    places = [[*axes].index(dim) if dim in axes else -1 for dim, axes in zip(of_inputs, batched, strict=True)]
    return places[0] == places[1] >= 0


def _convolution(eqn: JaxprEqn, other: JaxprEqn, of_inputs: Dims, of_outputs: Dims) -> bool:
    is_alone = eqn.params["batch_group_count"] == 1
    return is_alone and of_inputs[1] is None and of_inputs[0] == eqn.params["dimension_numbers"].lhs_spec[0]


def _tile(eqn: JaxprEqn, other: JaxprEqn, of_inputs: Dims, of_outputs: Dims) -> bool:
    """Return whether each example is a copy, or examples are not repeated."""
    one, two, (dim,), (made,) = eqn.params["reps"], other.params["reps"], of_inputs, of_outputs
    if dim is not None:
        return one[dim] == 1 and _equal(one, two)
    return all(axis == made or pair[0] == pair[1] for axis, pair in enumerate(zip(one, two, strict=True)))


def _window(eqn: JaxprEqn, other: JaxprEqn, of_inputs: Dims, of_outputs: Dims) -> bool:
    of_windows = {
        "window_dimensions": 1, "window_strides": 1, "base_dilation": 1, "window_dilation": 1,
        "padding": (0, 0),
    }  # fmt: skip
    dim = of_inputs[0]
    return dim is not None and all(eqn.params[key][dim] == value for key, value in of_windows.items())


def _pad(eqn: JaxprEqn, other: JaxprEqn, of_inputs: Dims, of_outputs: Dims) -> bool:
    dim = of_inputs[0]
    return dim is not None and tuple(eqn.params["padding_config"][dim]) == (0, 0, 0)


def _takes_all(eqn: JaxprEqn, other: JaxprEqn, of_inputs: Dims, of_outputs: Dims) -> bool:
    """Return whether both equations take all examples, and as much of every other axis as each other."""
    key, (array, *_), (beside, *_) = _WRITTEN[eqn.primitive.name], eqn.invars, other.invars
    sizes = zip(eqn.params[key], other.params[key], shape_of(array), shape_of(beside), strict=True)
    return all(
        (one, two) == (whole, of_other) if axis == of_inputs[0] else one == two
        for axis, (one, two, whole, of_other) in enumerate(sizes)
    )


def _slice(eqn: JaxprEqn, other: JaxprEqn, of_inputs: Dims, of_outputs: Dims) -> bool:
    """Return whether the axis of examples is taken whole, without steps."""
    dim = of_inputs[0]
    is_whole = dim is not None and shape_of(eqn.invars[0])[dim] == shape_of(eqn.outvars[0])[dim]
    return is_whole and _takes_all(eqn, other, of_inputs, of_outputs)


def _gather(eqn: JaxprEqn, other: JaxprEqn, of_inputs: Dims, of_outputs: Dims) -> bool:
    """Return whether examples are taken whole, or look up one table."""
    table, places = of_inputs
    is_apart = table is not None or places != len(shape_of(eqn.invars[1])) - 1
    return is_apart and _takes_all(eqn, other, of_inputs, of_outputs)


def _scatter(eqn: JaxprEqn, other: JaxprEqn, of_inputs: Dims, of_outputs: Dims) -> bool:
    """Return whether all examples are written at the same places, each with numbers of its own."""
    written, _, updates = of_inputs
    array, numbers = shape_of(eqn.invars[0]), eqn.params["dimension_numbers"]
    left_out = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    windows = [axis for axis in range(len(array)) if axis not in left_out]
    if updates is None or written not in windows or shape_of(eqn.invars[2])[updates] != array[written]:
        return False
    return updates == numbers.update_window_dims[windows.index(written)]


def _iota(eqn: JaxprEqn, other: JaxprEqn, of_inputs: Dims, of_outputs: Dims) -> bool:
    return eqn.params["dimension"] != of_outputs[0]


_RULES: dict[str, Rule] = {
    **dict.fromkeys((*ENTRYWISE, "broadcast_in_dim", "transpose", "optimization_barrier", "stack"), _always),
    **dict.fromkeys((*REDUCTIONS, "argmax", "argmin"), _not_along("axes")),
    **dict.fromkeys(
        ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "split", "top_k", "unstack"),
        _not_along("axis"),
    ),
    **dict.fromkeys(("concatenate", "sort"), _not_along("dimension")),
    **dict.fromkeys(("rev", "squeeze"), _not_along("dimensions")),
    **dict.fromkeys(("reduce_window_max", "reduce_window_min", "reduce_window_sum"), _window),
    "conv_general_dilated": _convolution,
    "dot_general": _dot,
    "dynamic_slice": _takes_all,
    "gather": _gather,
    "iota": _iota,
    "pad": _pad,
    "reshape": _reshape,
    "scatter": _scatter,
    "scatter-add": _scatter,
    "slice": _slice,
    "tile": _tile,
}

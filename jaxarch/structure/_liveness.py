"""Liveness: the entries of a program's values that its outputs need, and the units that sums need.

The analysis goes backwards from the outputs. A product with a factor that is known to be 0 needs nothing of
the other factor. A unit goes if it is 0, or not needed, wherever its axis is summed over: the sum is the same
without it. If an axis is no output's axis, its units reach the outputs only through sums. A unit that is
summed over nowhere is therefore dead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal

from jaxarch.structure._axes import Axis
from jaxarch.structure._constants import Record, Value, along_others, ragged_product
from jaxarch.structure._flow import (
    ALONG,
    AS_THEY_ARE,
    ENTRYWISE,
    LOOKUPS,
    MOVES,
    REDUCTIONS,
    WRITES,
    Axes,
    Program,
    Step,
    bind,
    shape_of,
    update_of,
    written_whole,
)
from jaxarch.structure._host import moved_back, multiplied_back
from jaxarch.structure._scans import scan_counts
from jaxarch.structure._smaller import Kept

Units = dict[Axis, np.ndarray]
"""By atom, booleans for its units."""
Needs = list[np.ndarray]
"""Booleans for each input or output of a step, or of a program."""
Constants = Mapping[int, tuple[int, np.ndarray]]
"""By `id` of a product's step, the index of a factor, and the entries of it that a bias takes up."""


class Sums(NamedTuple):
    """The needs of sums and steps found so far.

    Attributes:
      varying: by atom, the units that some sum needs and that depend on the inputs there.
      constants: by reason and atom, the units that some sum needs although they are constants there.
      folds: constants that no sum needs, since a bias takes them up.
      outputs: by `id` of the step, the entries of its outputs that are needed.
    """

    varying: Units
    constants: dict[str, Units]
    folds: Constants
    outputs: dict[int, Needs]

    @classmethod
    def none(cls, folds: Constants) -> Sums:
        """Return empty needs, to start the analysis."""
        return cls({}, {}, folds, {})

    def needed(self, atom: Axis) -> np.ndarray:
        """Return the units of an atom that some sum needs."""
        found = [self.varying, *self.constants.values()]
        return _any_of([np.zeros(atom.size, bool), *(units[atom] for units in found if atom in units)])


def find_needed(program: Program, outputs: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    """Return the entries of a program's inputs that some entries of its outputs need.

    Args:
      program: a program made by `_flow.follow`.
      outputs: the entries of the outputs that are needed.
      record: the facts about every value (see `_constants.find_known`).
      kept: by atom, the units that have not been removed yet; removed units need nothing.
      sums: the needs of sums and steps, which are added to.
    """
    jaxpr = program.closed.jaxpr
    needed: dict[Any, np.ndarray] = {}

    def add(atom: Any, entries: np.ndarray) -> None:
        if not isinstance(atom, Literal):
            needed[atom] = needed[atom] | entries if atom in needed else entries

    for atom, entries in zip(jaxpr.outvars, outputs, strict=True):
        add(atom, entries)
    for step in reversed(program.steps):
        of_outputs = [needed.get(var, np.zeros(shape_of(var), bool)) for var in step.eqn.outvars]
        if any(entries.any() for entries in of_outputs):
            sums.outputs[id(step)] = of_outputs
            rule = _call if step.called else _RULES.get(step.eqn.primitive.name, _all)
            of_inputs = rule(step, of_outputs, record, kept, sums)
            for atom, axes, entries in zip(step.eqn.invars, step.inputs, of_inputs, strict=True):
                add(atom, entries & there(axes, kept))
    return [needed.get(var, np.zeros(shape_of(var), bool)) for var in jaxpr.invars]


def reached(program: Program, outputs: Sequence[bool], found: set[Axis]) -> list[bool]:
    """Return whether some outputs depend on each input of a program, and collect the atoms on the way.

    Args:
      program: a program made by `_flow.follow`.
      outputs: whether each output counts.
      found: a set to which the atoms of the values that the outputs depend on are added.
    """
    jaxpr = program.closed.jaxpr
    ends = zip(jaxpr.outvars, outputs, strict=True)
    live = {atom for atom, counts in ends if counts and not isinstance(atom, Literal)}
    for step in reversed(program.steps):
        of_outputs = [var in live for var in step.eqn.outvars]
        if not any(of_outputs):
            continue
        name, of_inputs = step.eqn.primitive.name, [True] * len(step.eqn.invars)
        if step.called:
            of_inputs = reached(step.called, of_outputs, found)
        else:
            for inside in step.programs:
                reached(inside, [True] * len(inside.outputs), found)
            # A slice does not read its input whole.
            whole = [] if name in _PARTS else step.inputs
            of_live = [axes for axes, counts in zip(step.outputs, of_outputs, strict=True) if counts]
            found.update(atom for axes in (*whole, *of_live) for axis in axes for atom in axis.atoms())
        live |= {
            atom
            for atom, counts in zip(step.eqn.invars, of_inputs, strict=True)
            if counts and not isinstance(atom, Literal)
        }
    return [var in live for var in jaxpr.invars]


_PARTS = (*LOOKUPS, "slice", "split", "unstack")


def _summed(step: Step, index: int = 0) -> Sequence[int]:
    """Return the axes that a step sums over, of its first input or of another factor."""
    name, params = step.eqn.primitive.name, step.eqn.params
    if name in REDUCTIONS:
        return params["axes"]
    if name == "dot_general":
        return params["dimension_numbers"][0][index]
    if name == "ragged_dot_general":
        return params["ragged_dot_dimension_numbers"].dot_dimension_numbers[0][index]
    return (params["dimension_numbers"].lhs_spec[1],) if name == "conv_general_dilated" else ()


def there(axes: Axes, kept: Kept) -> np.ndarray:
    """Return the entries of an array whose units are all kept."""
    there = np.ones((1,) * len(axes), bool)
    for index, axis in enumerate(axes):
        units = axis.spread(kept)
        there = there & units.reshape([-1 if i == index else 1 for i in range(len(axes))])
    return there


def _note(axis: Axis, units: np.ndarray, into: Units) -> None:
    """Add units of an axis to the units of its atoms."""
    axis = axis.root()
    if axis.form == "atom":
        into[axis] = into.get(axis, np.zeros(axis.size, bool)) | units
    elif axis.form == "sum":
        ends = np.cumsum([part.size for part in axis.parts])[:-1]
        for part, of_part in zip(axis.parts, np.split(units, ends), strict=True):
            _note(part, of_part, into)
    else:
        grid = units.reshape([part.size for part in axis.parts])
        for index, part in enumerate(axis.parts):
            _note(part, _any_along(grid, [i for i in range(grid.ndim) if i != index]), into)


def _note_all(
    axes: Axes, along: Sequence[int], entries: np.ndarray, value: Value, sums: Sums, why: str
) -> None:
    """Add the units of entries that a sum needs; units of constants are added under the reason."""
    parts = (
        (entries & value.open, sums.varying),
        (entries & ~value.open, sums.constants.setdefault(why, {})),
    )
    for index in along:
        others = [i for i in range(entries.ndim) if i != index]
        for part, into in parts:
            _note(axes[index], _any_along(part, others), into)


def _any_along(entries: np.ndarray, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
    return np.asarray(np.any(entries, tuple(axes), keepdims=keepdims))


Rule = Callable[[Step, Needs, Record, Kept, Sums], Needs]


def _inputs(step: Step, record: Record) -> tuple[Value, ...]:
    return record[id(step)][0]


def _all(step: Step, needed: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    return [np.ones(value.open.shape, bool) for value in _inputs(step, record)]


# Programs in programs --------------------------------------------------------------------------------


def _call(step: Step, needed: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    assert step.called
    return find_needed(step.called, needed, record, kept, sums)


def _scan(step: Step, needed: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    """Return the needs of any round; the carry also has the needs of all later rounds."""
    consts, carries = scan_counts(step.eqn)
    carry, rows = needed[:carries], [_any_along(entries, [0]) for entries in needed[carries:]]
    while True:
        of_body = find_needed(step.programs[0], [*carry, *rows], record, kept, sums)
        after = [one | other for one, other in zip(carry, of_body[consts:], strict=False)]
        if all(np.array_equal(one, other) for one, other in zip(carry, after, strict=True)):
            break
        carry = after
    shapes = [value.open.shape for value in _inputs(step, record)]
    of_rows = zip(of_body[consts + carries :], shapes[consts + carries :], strict=True)
    return [*of_body[:consts], *carry, *(np.broadcast_to(entries, shape) for entries, shape in of_rows)]


def _while(step: Step, needed: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    for program in step.programs:
        every = [np.ones(var.aval.shape, bool) for var in program.closed.jaxpr.outvars]
        find_needed(program, every, record, kept, sums)
    return _all(step, needed, record, kept, sums)


def _cond(step: Step, needed: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    branches = [find_needed(branch, needed, record, kept, sums) for branch in step.programs]
    return [np.ones((), bool), *(_any_of(each) for each in zip(*branches, strict=True))]


def _any_of(parts: Sequence[np.ndarray]) -> np.ndarray:
    found = parts[0]
    for part in parts[1:]:
        found = found | part
    return found


# Entry by entry, and moves ---------------------------------------------------------------------------


def _entrywise(step: Step, needed: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    entries = _any_of(needed)
    return [_unbroadcast(entries, value.open.shape) for value in _inputs(step, record)]


def _unbroadcast(entries: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the entries of an array of a smaller shape that are used after broadcasting."""
    if not shape:
        return np.asarray(entries.any())
    along = tuple(index for index, size in enumerate(shape) if size != entries.shape[index])
    return _any_along(entries, along, keepdims=True)


def _mul(step: Step, needed: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    x, y = _inputs(step, record)
    return [_unbroadcast(needed[0] & other.nonzero, value.open.shape) for value, other in ((x, y), (y, x))]


def _back(linear: Callable[..., Any], shapes: Sequence[tuple[int, ...]], needed: Needs) -> Needs:
    """Return the entries that reach needed ones through a linear function without negative coefficients."""
    zeros = [np.zeros(shape, np.float32) for shape in shapes]
    _, transposed = jax.vjp(lambda *arrays: tuple(linear(*arrays)), *zeros)
    found = transposed(tuple(entries.astype(np.float32) for entries in needed))
    return [np.asarray(entries) > 0 for entries in found]


def _moved(step: Step, needed: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    shapes = [value.open.shape for value in _inputs(step, record)]
    found = moved_back(step.eqn, shapes, needed)
    return found or _back(lambda *arrays: bind(step.eqn, arrays), shapes, needed)


def _as_they_are(step: Step, needed: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    return needed


def _along(step: Step, needed: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    """Return all entries at the same index of the axes that the primitive does not work along."""
    return along_others(step, needed, [value.open.shape for value in _inputs(step, record)])


def _written(step: Step, needed: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    """Return the needs of an array and its update.

    The update needs all entries at each index of the axes written whole where the result needs any.
    """
    inputs, pairs, number = _inputs(step, record), written_whole(step.eqn), update_of(step.eqn)
    found = [needed[0], *(np.ones(value.open.shape, bool) for value in inputs[1:])]
    others = [axis for axis in range(needed[0].ndim) if axis not in pairs]
    of_whole = _any_along(needed[0], others)
    along = [axis for axis in range(found[number].ndim) if axis not in pairs.values()]
    found[number] = np.broadcast_to(np.expand_dims(of_whole, tuple(along)), found[number].shape)
    return found


def _looked_up(step: Step, needed: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    array, *places = _inputs(step, record)
    at = [place.number for place in places]
    along: tuple[int, ...] = ()
    if any(place.open.any() for place in places):
        # Any slice may be read, so what one slice needs is needed everywhere along the axis.
        at = [np.zeros_like(place) for place in at]
        sizes = zip(step.eqn.params["slice_sizes"], array.open.shape, strict=True)
        along = tuple(index for index, (size, whole) in enumerate(sizes) if size != whole)
    (entries,) = _back(lambda of: bind(step.eqn, [of, *at]), [array.open.shape], needed)
    entries = np.broadcast_to(_any_along(entries, along, keepdims=True), array.open.shape)
    return [entries, *(np.ones(place.open.shape, bool) for place in places)]


# Sums and products -----------------------------------------------------------------------------------


def _reduced(step: Step, needed: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    (array,), along = _inputs(step, record), _summed(step)
    entries = np.broadcast_to(np.expand_dims(needed[0], tuple(along)), array.open.shape)
    counts = entries & array.nonzero if step.eqn.primitive.name == "reduce_sum" else entries
    _note_all(step.inputs[0], along, counts, array, sums, "they are summed or normalized with others")
    return [entries]


def _pooled(step: Step, needed: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    params = {name: value for name, value in step.eqn.params.items() if name != "out_sharding"}
    shape = _inputs(step, record)[0].open.shape
    # Use sums for maxima too: a maximum's derivative reaches only one entry of each window.
    return _back(lambda array: [lax.reduce_window(array, 0.0, lax.add, **params)], [shape], needed)


def _bilinear(step: Step, needed: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    """Return the needs of both factors: the entries that meet an entry of the other that may not be 0."""
    x, y = _inputs(step, record)
    of_x = multiplied_back(step.eqn, 0, y.nonzero, needed[0])
    of_y = multiplied_back(step.eqn, 1, x.nonzero, needed[0])
    # Both factors share the summed axes, and each one's needs consider the other: the units of one are
    # enough.
    index, taken_up = sums.folds.get(id(step), (0, np.zeros((), bool)))
    needs, value = ((of_x, x), (of_y, y))[index]
    why = "their values differ between positions, as with padding" if id(step) in sums.folds else _NO_BIAS
    counts = needs & value.nonzero & ~taken_up
    _note_all(step.inputs[index], _summed(step, index), counts, value, sums, why)
    return [of_x, of_y]


def _ragged(step: Step, needed: Needs, record: Record, kept: Kept, sums: Sums) -> Needs:
    """Go back through a product of rows in groups, as if any row could be of any group."""
    x, y, sizes = _inputs(step, record)
    one, other = (jnp.asarray(value.nonzero, jnp.float32) for value in (x, y))
    (of_x,) = _back(lambda array: [ragged_product(step, array, other)], [x.open.shape], needed)
    (of_y,) = _back(lambda array: [ragged_product(step, one, array)], [y.open.shape], needed)
    _note_all(step.inputs[0], _summed(step), of_x & x.nonzero, x, sums, _NO_BIAS)
    return [of_x, of_y, np.ones(sizes.open.shape, bool)]


_NO_BIAS = "their product has no bias of its own to fold them into"

_RULES: dict[str, Rule] = {
    **dict.fromkeys(ENTRYWISE, _entrywise),
    **dict.fromkeys(MOVES, _moved),
    **dict.fromkeys(AS_THEY_ARE, _as_they_are),
    **dict.fromkeys(ALONG, _along),
    **dict.fromkeys(WRITES, _written),
    **dict.fromkeys(REDUCTIONS, _reduced),
    **dict.fromkeys(LOOKUPS, _looked_up),
    **dict.fromkeys(("reduce_window_max", "reduce_window_min", "reduce_window_sum"), _pooled),
    **dict.fromkeys(("dot_general", "conv_general_dilated"), _bilinear),
    "cond": _cond,
    "mul": _mul,
    "ragged_dot_general": _ragged,
    "scan": _scan,
    "while": _while,
}

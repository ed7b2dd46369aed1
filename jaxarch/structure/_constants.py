"""Facts about every value of a program that hold for all inputs: constants, and signs of other entries.

An entry that is no constant may always be 0, in addition to its possible signs. Conclusions from it therefore
stay true when parts of it are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal

from jaxarch.structure._flow import (
    ALONG,
    AS_THEY_ARE,
    ENTRYWISE,
    LOOKUPS,
    MOVES,
    PRODUCTS,
    REDUCTIONS,
    WRITES,
    Program,
    Step,
    literal,
    others_of,
    update_of,
    written_whole,
)
from jaxarch.structure._host import computed, multiplied
from jaxarch.structure._scans import scan_counts


class Value(NamedTuple):
    """Facts about an array, entry by entry.

    Attributes:
      number: the constants, and 0 elsewhere.
      open: where the entry depends on the inputs.
      positive: where the entry may be larger than 0.
      negative: where the entry may be less than 0.
    """

    number: np.ndarray
    open: np.ndarray
    positive: np.ndarray
    negative: np.ndarray

    @property
    def nonzero(self) -> np.ndarray:
        """The entries that may be nonzero."""
        return self.positive | self.negative


Record = dict[int, tuple[tuple[Value, ...], tuple[Value, ...]]]
"""By `id` of a step, the facts about its inputs and outputs."""


def constant(number: Any) -> Value:
    """Return the facts about a known array."""
    array = np.asarray(number)
    no = np.zeros(array.shape, bool)
    if array.dtype.kind not in "biuf" and not jnp.issubdtype(array.dtype, jnp.floating):
        # Complex numbers have no sign, and count as having both signs where they are not 0.
        there = array != 0 if array.dtype.kind == "c" else ~no
        return Value(array, no, there, there)
    # NaN has no sign, and counts as having both. The negated comparisons are true for NaN.
    return Value(array, no, ~(array <= 0), ~(array >= 0))


def anything(aval: Any) -> Value:
    """Return the facts about an array of which nothing is known."""
    every = np.ones(aval.shape, bool)
    return Value(np.zeros(aval.shape, np.uint32 if is_key(aval) else aval.dtype), every, every, every)


def is_key(aval: Any) -> bool:
    """Return whether an array holds random keys, which are no numbers."""
    return jnp.issubdtype(aval.dtype, jax.dtypes.prng_key)


def join(first: Value, second: Value) -> Value:
    """Return the facts about an array that is one or the other."""
    open_ = first.open | second.open | (first.number != second.number)
    return _value(first.number, open_, first.positive | second.positive, first.negative | second.negative)


def find_known(program: Program, inputs: Sequence[Value], record: Record) -> list[Value]:
    """Derive the facts about a program's outputs from the facts about its inputs.

    Args:
      program: a program made by `_flow.follow`.
      inputs: the facts about its inputs.
      record: a record to which every step is added; in a loop, with the facts that hold in all rounds.
    """
    jaxpr = program.closed.jaxpr
    known: dict[Any, Value] = {
        var: anything(var.aval) if is_key(var.aval) else constant(value)
        for var, value in zip(jaxpr.constvars, program.closed.consts, strict=True)
    }
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Value:
        return constant(literal(atom)) if isinstance(atom, Literal) else known[atom]

    for step in program.steps:
        taken = tuple(read(atom) for atom in step.eqn.invars)
        made = tuple(_made(step, taken, record))
        record[id(step)] = taken, made
        known.update(zip(step.eqn.outvars, made, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _made(step: Step, taken: Sequence[Value], record: Record) -> Sequence[Value]:
    name = step.eqn.primitive.name
    if step.called:
        return find_known(step.called, taken, record)
    if name in _CALLS:
        return _CALLS[name](step, taken, record)
    avals = [atom.aval for atom in (*step.eqn.invars, *step.eqn.outvars)]
    if any(map(is_key, avals)):
        return _anything(step)
    if not any(value.open.any() for value in taken):
        return [constant(number) for number in _bind(step, [value.number for value in taken])]
    return _RULES.get(name, _anything)(step, *taken)


def _anything(step: Step, *taken: Value) -> list[Value]:
    return [anything(var.aval) for var in step.eqn.outvars]


def _bind(step: Step, taken: Sequence[Any], **changed: Any) -> list[np.ndarray]:
    return computed(step.eqn, taken, **changed)


def _value(number: Any, open_: Any, positive: Any, negative: Any) -> Value:
    """Return a value; where it is constant, its signs are the signs of the constants."""
    open_ = np.asarray(open_, bool)
    # Open entries have the number 0: they may meet zeros in products, and 0 times infinity is NaN.
    of = constant(np.where(open_, np.zeros((), np.asarray(number).dtype), number))
    shape = of.number.shape
    if of.number.dtype.kind == "c":
        positive = negative = True
    open_, positive, negative = (
        np.broadcast_to(np.asarray(part, bool), shape) for part in (open_, positive, negative)
    )
    return Value(
        of.number, open_, np.where(open_, positive, of.positive), np.where(open_, negative, of.negative)
    )


# Programs in programs --------------------------------------------------------------------------------


def _scan(step: Step, taken: Sequence[Value], record: Record) -> list[Value]:
    """Return the facts that hold in all rounds: the carry is joined with its next value until stable."""
    params, (body,) = step.eqn.params, step.programs
    consts, carries = scan_counts(step.eqn)
    carry, rows = list(taken[consts : consts + carries]), [_any_row(v) for v in taken[consts + carries :]]
    while True:
        made = find_known(body, [*taken[:consts], *carry, *rows], record)
        after = [join(before, now) for before, now in zip(carry, made[:carries], strict=True)]
        if all(_same(before, now) for before, now in zip(carry, after, strict=True)):
            break
        carry = after
    along = (params["length"],)
    rows = [Value(*(np.broadcast_to(part, along + part.shape) for part in value)) for value in made[carries:]]
    return [*carry, *rows]


def _any_row(rows: Value) -> Value:
    """Return the facts that hold for every row of an array."""
    if not len(rows.number):
        # A scan without rounds has no row from which facts could come.
        return Value(*(np.ones_like(part, shape=part.shape[1:]) for part in rows))
    open_ = rows.open.any(0) | (rows.number != rows.number[:1]).any(0)
    return _value(rows.number[0], open_, rows.positive.any(0), rows.negative.any(0))


def _same(first: Value, second: Value) -> bool:
    # Numbers need no comparison: `join` opens the entries where they differ.
    return all(np.array_equal(one, other) for one, other in zip(first[1:], second[1:], strict=True))


def _while(step: Step, taken: Sequence[Value], record: Record) -> list[Value]:
    of_condition, of_body = step.eqn.params["cond_nconsts"], step.eqn.params["body_nconsts"]
    condition, body = step.programs
    # No fixed point is sought here: the whole carry counts as unknown.
    carry = [anything(var.aval) for var in step.eqn.outvars]
    find_known(condition, [*taken[:of_condition], *carry], record)
    find_known(body, [*taken[of_condition : of_condition + of_body], *carry], record)
    return carry


def _cond(step: Step, taken: Sequence[Value], record: Record) -> list[Value]:
    made, *others = [find_known(branch, taken[1:], record) for branch in step.programs]
    for other in others:
        made = [join(one, another) for one, another in zip(made, other, strict=True)]
    return made


_CALLS: dict[str, Callable[[Step, Sequence[Value], Record], list[Value]]] = {
    "cond": _cond,
    "scan": _scan,
    "while": _while,
}


# Entry by entry --------------------------------------------------------------------------------------

Signs = Callable[..., tuple[Any, Any]]
"""A function from the facts about arguments to where results may be positive, and where negative."""


def _entrywise(signs: Signs) -> Callable[..., list[Value]]:
    """Return the rule of a function of entries: the result is constant where all arguments are."""

    def rule(step: Step, *taken: Value) -> list[Value]:
        with np.errstate(all="ignore"):
            (number,) = _bind(step, [value.number for value in taken])
        open_ = np.zeros(number.shape, bool)
        for value in taken:
            open_ = open_ | value.open
        return [_value(number, open_, *signs(*taken))]

    return rule


def _arithmetic(signs: Signs) -> Callable[..., list[Value]]:
    """Return the rule of a function that may overflow integers, whose results then have any sign."""
    of_floats = _entrywise(signs)

    def rule(step: Step, *taken: Value) -> list[Value]:
        return [_wrapped(value) for value in of_floats(step, *taken)]

    return rule


def _wrapped(value: Value) -> Value:
    """Drop the signs of integer results, since they may wrap around."""
    return _value(value.number, value.open, True, True) if value.number.dtype.kind in "iu" else value


def _product_signs(x: Value, y: Value) -> tuple[Any, Any]:
    return (
        (x.positive & y.positive) | (x.negative & y.negative),
        (x.positive & y.negative) | (x.negative & y.positive),
    )


def _quotient(step: Step, x: Value, y: Value) -> list[Value]:
    """Divide: 0 where the numerator is 0.

    The result has any sign where the denominator may be -0. For integers, 0/0 is not 0.
    """
    (made,) = _arithmetic(lambda x, y: (x.nonzero, x.nonzero))(step, x, y)
    positive, negative = _product_signs(x, y)
    known = ~y.open & y.nonzero
    if made.number.dtype.kind in "iu":
        return [made]
    return [
        _value(
            made.number, made.open, made.positive & (positive | ~known), made.negative & (negative | ~known)
        )
    ]


def _mul(step: Step, x: Value, y: Value) -> list[Value]:
    """Multiply: 0 where a factor is 0."""
    (made,) = _arithmetic(_product_signs)(step, x, y)
    return [_decided(made, ~x.nonzero | ~y.nonzero, 0)]


def _max(step: Step, x: Value, y: Value) -> list[Value]:
    """Take the maximum: a constant that the other never exceeds, as in `max(x, 0)` of an x never positive."""
    (made,) = _entrywise(lambda x, y: (x.positive | y.positive, x.negative & y.negative))(step, x, y)
    for value, bound in ((x, y), (y, x)):
        made = _decided(made, ~bound.open & (bound.number >= 0) & ~value.positive, bound.number)
    return [made]


def _min(step: Step, x: Value, y: Value) -> list[Value]:
    (made,) = _entrywise(lambda x, y: (x.positive & y.positive, x.negative | y.negative))(step, x, y)
    for value, bound in ((x, y), (y, x)):
        made = _decided(made, ~bound.open & (bound.number <= 0) & ~value.negative, bound.number)
    return [made]


def _decided(value: Value, where: Any, number: Any) -> Value:
    """Return a value that is now known to be `number` at some places where it was open."""
    where = np.broadcast_to(where, value.open.shape) & value.open
    numbers = np.where(where, number, value.number).astype(value.number.dtype)
    return _value(numbers, value.open & ~where, value.positive, value.negative)


def _compare(step: Step, x: Value, y: Value) -> list[Value]:
    """Compare; signs may decide, as for `x > 0` if x is never positive."""
    (made,) = _entrywise(lambda x, y: (True, False))(step, x, y)
    low, high = zip(*(_range(value) for value in (x, y)), strict=True)
    with_most = {"gt": (low[0] > high[1], high[0] <= low[1]), "ge": (low[0] >= high[1], high[0] < low[1])}
    with_least = {"lt": (high[0] < low[1], low[0] >= high[1]), "le": (high[0] <= low[1], low[0] > high[1])}
    true, false = (with_most | with_least)[step.eqn.primitive.name]
    # Comparisons with NaN are false, so floats, which may be NaN, are never known to compare true.
    ordered = x.number.dtype.kind in "biu"
    return [_decided(_decided(made, true & ordered, True), false, False)]


def _range(value: Value) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest possible value: 0 or infinite where the entry is open."""
    number = value.number.astype(float)
    low, high = np.where(value.negative, -np.inf, 0.0), np.where(value.positive, np.inf, 0.0)
    return np.where(value.open, low, number), np.where(value.open, high, number)


def _select(step: Step, which: Value, *cases: Value) -> list[Value]:
    shape = step.eqn.outvars[0].aval.shape  # type: ignore[attr-defined]
    joined = cases[0]
    for case in cases[1:]:
        joined = join(joined, case)
    chosen = zip(*cases, strict=True)
    parts = [_bind(step, [which.number, *part])[0] for part in chosen]
    open_ = np.broadcast_to(which.open, shape)
    return [_value(*(np.where(open_, one, other) for one, other in zip(joined, parts, strict=True)))]


# Moves, sums and products ----------------------------------------------------------------------------


def _as_they_are(step: Step, *taken: Value) -> list[Value]:
    return list(taken)


def _moved(step: Step, *taken: Value) -> list[Value]:
    """Move or repeat entries, and their marks in the same way."""
    parts = [_bind(step, [np.asarray(part) for part in each]) for each in _parts(taken)]
    return [_value(*each) for each in zip(*parts, strict=True)]


def _parts(taken: Sequence[Value]) -> list[list[np.ndarray]]:
    """Return the numbers of some arrays, and their marks as numbers of the same dtype."""
    dtypes = [value.number.dtype for value in taken]
    return [
        [part.astype(dtype) for part, dtype in zip(each, dtypes, strict=True)]
        for each in zip(*taken, strict=True)
    ]


def _looked_up(step: Step, array: Value, *places: Value) -> list[Value]:
    """Slice at computed places; if these are unknown, keep the facts that all slices have in common."""

    def found_in(array: Value, at: Sequence[np.ndarray]) -> Value:
        return _value(*(_bind(step, [part.astype(array.number.dtype), *at])[0] for part in array))

    at = [place.number for place in places]
    found = found_in(array, at)
    if any(place.open.any() for place in places):
        anywhere = _everywhere(array, step.eqn.params["slice_sizes"])
        of_any = found_in(anywhere, [np.zeros_like(one) for one in at])
        open_ = np.ones((), bool)
        if step.eqn.primitive.name == "gather":
            offsets = step.eqn.params["dimension_numbers"].offset_dims
            open_ = np.expand_dims(places[0].open.any(-1), tuple(sorted(offsets)))
        found = _value(*(np.where(open_, one, other) for one, other in zip(of_any, found, strict=True)))
    # Places out of bounds read this value.
    fill = step.eqn.params.get("fill_value")
    return [found if fill is None else join(found, constant(np.full_like(found.number, fill)))]


def _everywhere(array: Value, sizes: Sequence[int]) -> Value:
    """Return the facts that hold everywhere along the axes on which slices are smaller than the array."""
    shape = array.number.shape
    along = tuple(index for index, size in enumerate(sizes) if size != shape[index])
    first = array.number[tuple(slice(0, 1) if index in along else slice(None) for index in range(len(shape)))]
    open_ = (array.open | (array.number != first)).any(along, keepdims=True)
    marks = (part.any(along, keepdims=True) for part in array[2:])
    return _value(*(np.broadcast_to(part, shape) for part in (first, open_, *marks)))


def _reduced(step: Step, array: Value) -> list[Value]:
    """Reduce: constant where all reduced entries are, with their signs."""
    along = tuple(step.eqn.params["axes"])
    number, name = _bind(step, [array.number])[0], step.eqn.primitive.name
    if name not in ("reduce_sum", "reduce_max", "reduce_min"):
        return [_value(number, array.open.any(along), True, True)]
    found = _value(number, *(part.any(along) for part in array[1:]))
    return [_wrapped(found) if name == "reduce_sum" else found]


def _pooled(step: Step, array: Value) -> list[Value]:
    (number,) = _bind(step, [array.number])
    marks = (_bind(step, [part.astype(np.float32)])[0] > 0 for part in array[1:])
    return [_value(number, *marks)]


def _along(step: Step, *taken: Value) -> list[Value]:
    """Follow a primitive along some axes; at an index of the others, constant if all its inputs there are."""
    made = _bind(step, [value.number for value in taken])
    marks = [along_others(step, of_all, [number.shape for number in made]) for of_all in _marks(taken)]
    values = map(_value, made, *marks)
    if step.eqn.primitive.name in _ALONG_OF_THE_SAME_SIGN:
        return [_wrapped(value) for value in values]
    return [_value(value.number, value.open, True, True) for value in values]


def _marks(taken: Sequence[Value]) -> Iterator[tuple[np.ndarray, ...]]:
    """Return where some arrays are open, where positive and where negative."""
    return zip(*(value[1:] for value in taken), strict=True)


def along_others(
    step: Step, marks: Sequence[np.ndarray], shapes: Sequence[tuple[int, ...]]
) -> list[np.ndarray]:
    """Carry booleans from the inputs of a primitive in `ALONG` to its outputs, or back.

    An entry is true if any entry at the same index of the axes that the primitive does not work along is.
    """
    eqn = step.eqn
    rank = len(eqn.invars[0].aval.shape)  # type: ignore[attr-defined]
    there = np.zeros((), bool)
    for array in marks:
        others = others_of(eqn, rank, array.ndim)
        there = there | array.any(tuple(axis for axis in range(array.ndim) if axis not in others))
    found = []
    for shape in shapes:
        others = others_of(eqn, rank, len(shape))
        along = tuple(axis for axis in range(len(shape)) if axis not in others)
        spread = np.expand_dims(there, along) if others and there.ndim else there.any()
        found.append(np.broadcast_to(spread, shape))
    return found


def _written(step: Step, array: Value, *others: Value) -> list[Value]:
    """Write into an array: at an index of the axes written whole, constant if array and update are."""
    number, pairs = update_of(step.eqn), written_whole(step.eqn)
    update, name = others[number - 1], step.eqn.primitive.name
    fixed = not any(value.open.any() for index, value in enumerate(others, 1) if index != number)
    # At unknown places, a 0 that is written over or added to a 0 is still 0.
    found = [value.open | (~np.bool_(fixed) & value.nonzero) for value in (array, update)]
    signs = zip(array[2:], update[2:] if not name.endswith("sub") else update[:1:-1], strict=True)
    open_, positive, negative = (
        _of_whole(one, pairs) | _of_whole(other, pairs.values()) for one, other in (found, *signs)
    )
    if name.endswith("mul"):
        positive = negative = np.True_
    shape = array.open.shape
    along = tuple(axis for axis in range(len(shape)) if axis not in pairs)
    marks = (
        np.broadcast_to(np.expand_dims(mark, along) if mark.ndim else mark, shape)
        for mark in (open_, positive, negative)
    )
    (made,) = _bind(step, [array.number, *(value.number for value in others)])
    return [_wrapped(_value(made if fixed else np.zeros_like(made), *marks))]


def _of_whole(marks: np.ndarray, axes: Collection[int]) -> np.ndarray:
    return np.asarray(marks.any(tuple(axis for axis in range(marks.ndim) if axis not in axes)))


def _bilinear(step: Step, x: Value, y: Value) -> list[Value]:
    """Sum products; a product with a 0 is 0."""

    def any_of(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        if not left.any() or not right.any():
            return np.zeros(step.eqn.outvars[0].aval.shape, bool)  # type: ignore[attr-defined]
        return multiplied(step.eqn, left, right) > 0.5

    open_ = any_of(x.open, y.nonzero) | any_of(x.nonzero, y.open)
    positive = any_of(x.positive, y.positive) | any_of(x.negative, y.negative)
    negative = any_of(x.positive, y.negative) | any_of(x.negative, y.positive)
    return [_wrapped(_value(_bind(step, [x.number, y.number])[0], open_, positive, negative))]


def _ragged(step: Step, x: Value, y: Value, sizes: Value) -> list[Value]:
    """Multiply rows in groups: constant if the groups are known and no open entry meets a nonzero one."""
    fixed = not sizes.open.any()
    open_ = ragged_marks(step, x.open, y.nonzero) | ragged_marks(step, x.nonzero, y.open)
    if not fixed:
        open_ |= ragged_marks(step, x.nonzero, y.nonzero)
    (made,) = _bind(step, [x.number, y.number, sizes.number])
    return [_value(made if fixed else np.zeros_like(made), open_, True, True)]


def ragged_marks(step: Step, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return where a product of rows in groups has two true factors, as if any row could be of any group."""
    return np.asarray(ragged_product(step, x, y)) > 0.5


def ragged_product(step: Step, x: Any, y: Any) -> Any:
    """Multiply rows in groups, with the sum of all groups' matrices for each row."""
    numbers = step.eqn.params["ragged_dot_dimension_numbers"]
    contracted, batched = numbers.dot_dimension_numbers
    (group,) = numbers.rhs_group_dimensions
    left, right = ([axis - (axis > group) for axis in axes[1]] for axes in (contracted, batched))
    both = [jnp.asarray(array, jnp.float32) for array in (x, y)]
    return lax.dot_general(both[0], both[1].sum(group), ((contracted[0], left), (batched[0], right)))


def _as_it_is(x: Value) -> tuple[Any, Any]:
    return x.positive, x.negative


def _never_negative(*taken: Value) -> tuple[Any, Any]:
    return True, False


def _either(*taken: Value) -> tuple[Any, Any]:
    return True, True


def _converted(step: Step, x: Value) -> list[Value]:
    """Convert: nonzero numbers, negative ones too, become true; numbers may overflow integers."""
    dtype = np.dtype(step.eqn.params["new_dtype"])
    if dtype.kind == "b":
        return _entrywise(lambda x: (x.nonzero, False))(step, x)
    return (_entrywise if x.number.dtype.kind == "b" else _arithmetic)(_as_it_is)(step, x)


def _power(step: Step, x: Value) -> list[Value]:
    """Raise to an integer power; with a negative one the result has any sign, since 1 / -0 is less than 0."""
    power = step.eqn.params["y"]
    if power < 0:
        return _arithmetic(_either)(step, x)
    return _arithmetic(_as_it_is if power % 2 else _never_negative)(step, x)


_ALONG_OF_THE_SAME_SIGN = ("cummax", "cummin", "cumsum", "reduce_window_min", "sort")
_OF_THE_SAME_SIGN = [
    "asin", "asinh", "atan", "cbrt", "ceil", "copy", "copy_p", "erf", "erf_inv",
    "expm1", "floor", "log1p", "pvary", "real", "reduce_precision", "round", "sharding_constraint", "sign",
    "sinh", "stop_gradient", "tanh",
]  # fmt: skip
_NONNEGATIVE = [
    "abs", "acos", "acosh", "cosh", "erfc", "exp", "exp2", "is_finite", "logistic", "sqrt", "square",
]  # fmt: skip

_RULES: dict[str, Callable[..., list[Value]]] = {
    **dict.fromkeys(ENTRYWISE, _entrywise(_either)),
    **dict.fromkeys(_OF_THE_SAME_SIGN, _entrywise(_as_it_is)),
    **dict.fromkeys(_NONNEGATIVE, _arithmetic(_never_negative)),
    **dict.fromkeys(
        ("add", "add_any"), _arithmetic(lambda x, y: (x.positive | y.positive, x.negative | y.negative))
    ),
    **dict.fromkeys(("gt", "ge", "lt", "le"), _compare),
    **dict.fromkeys(MOVES, _moved),
    **dict.fromkeys(AS_THEY_ARE, _as_they_are),
    **dict.fromkeys(ALONG, _along),
    **dict.fromkeys(WRITES, _written),
    **dict.fromkeys(LOOKUPS, _looked_up),
    **dict.fromkeys(REDUCTIONS, _reduced),
    **dict.fromkeys(("reduce_window_max", "reduce_window_sum"), _pooled),
    **dict.fromkeys(PRODUCTS, _bilinear),
    "convert_element_type": _converted,
    "div": _quotient,
    "integer_pow": _power,
    "max": _max,
    "min": _min,
    "mul": _mul,
    "neg": _arithmetic(lambda x: (x.negative, x.positive)),
    "ragged_dot_general": _ragged,
    "select_n": _select,
    "sub": _arithmetic(lambda x, y: (x.positive | y.negative, x.negative | y.positive)),
}

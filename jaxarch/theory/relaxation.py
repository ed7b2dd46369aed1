r"""Linear bounds of JAX functions: outputs over a box lie between two functions that are linear in the input.

`linear_bounds(fun)(lower, upper)` encloses `{fun(x) : lower <= x <= upper}`, as `interval_bounds` does, and
is never looser. Intervals forget that values come from the same input; linear bounds remember it. Back from
an entry y of a value to the input, a lower bound is kept in the form

    y >= sum_v c_v . v + b,

where v are values of the program. A value that is linear in its inputs is replaced by them: c becomes the
transposed map of c. A nonlinear one is replaced by a line below it where c is positive, and by one above it
where c is negative. At the input, each entry takes the end of the box that is worse. The same bound of -y
bounds y from above. This is backward linear relaxation (CROWN: Zhang et al., *Efficient neural network
robustness certification with general activation functions*, 2018, https://arxiv.org/abs/1811.00866), on
general programs (Xu et al., *Automatic perturbation analysis for scalable certified robustness and beyond*,
2020, https://arxiv.org/abs/2002.12920). Lines need bounds of their arguments, which are found first likewise.

Departures. Programs are JAX's traced ones, not networks of known layers. Functions of one number get their
lines from their own programs, by interval arithmetic, not from a table. A product of two values takes the
plane through the middle of both. A softmax is freed of the maximum that programs subtract. If lines are
chosen by gradient ascent, each bound of each value chooses for itself. It takes means of neighbours among
five lines, whose slopes go from the least to the largest of the function's convex hull.

Soundness in floating point. Any slope gives a valid line: its intercept is found from bounds of the function,
moved outwards. Coefficients are taken as rounded, and what rounding may have changed is charged. A transposed
map A' with n terms an entry changes the bound by at most `gamma_n |c| . (|A| |v|)`, with the largest sizes of
values v. To evaluate the function itself may be off by as much, and is charged too. So bounds enclose the
exact function and every order of evaluation, as intervals do, with their assumptions on elementary functions.
Two things are assumed. What a function of one number is evaluated to on a piece is off by no more than twice
what it may be off in the middle. And no coefficient of a value without bounds underflows.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from jaxarch._internal.errors import ArgumentError, check_count, is_traced
from jaxarch._internal.trees import PyTree
from jaxarch.masks._sharding import explicit_sharding
from jaxarch.structure._flow import bind
from jaxarch.theory._lines import Line, Lines, lines
from jaxarch.theory._pairs import LONGEST_SORT, in_pairs
from jaxarch.theory.intervals import (
    Interval,
    Narrow,
    bounded,
    evaluated,
    outwards,
    remade,
    sizes,
    without_shift,
)

__all__ = ["linear_bounds"]


def linear_bounds(
    fun: Callable[[PyTree], PyTree], *, rows_at_once: int | None = None, ascent: int = 0
) -> Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]:
    """Bound a function over a box by linear relaxation: return a function `(lower, upper) -> (lower, upper)`.

        lower, upper = linear_bounds(lambda x: apply(params, x))(image - eps, image + eps)

    Every elementwise function of one value has lines, however it is composed: ReLU, tanh, GELU, SiLU, ELU.
    So have products and quotients of two values. Matrix products, convolutions, sums and moves of entries are
    linear. Attention, norms and derivatives are made of these. Maxima, max-pooling and sorts of at most 32
    numbers are made of pairs, `max(x, y) = x + relu(y - x)`. All else that `interval_bounds` knows takes part
    as an interval, such as numbers of less than 32 bits.

    Costs: for each value of n entries that enters a nonlinear function, a pass back through all that comes
    before it, for 2n rows. A maximum of k values takes log k such passes, a sort about half the square of
    that. Compiling takes as many programs in a row: seconds for a few layers, a minute and more for a
    transformer. With `ascent`, each pass is made about three times a step.

    Args:
      fun: a JAX function of one pytree of arrays. Values that it closes over are fixed.
      rows_at_once: how many rows are in memory at once, at least 1. A row has as many numbers as the largest
        value. By default half of them.
      ascent: steps of gradient ascent on each bound, by which it chooses its own lines (alpha-CROWN: Xu et
        al., *Fast and complete: enabling complete verification with rapid and massively parallel incomplete
        verifiers*, 2021, https://arxiv.org/abs/2011.13824). Any number is valid; 20 gain most. Rarely a bound
        is looser than without, since closer bounds of hidden values change where its steps begin.

    Returns:
      A pure function like that of `interval_bounds`, with bounds at least as close. It can be jitted and
      mapped. Outside of `jax.jit` its operations run one by one. For many boxes put it under `jax.jit`, with
      the parameters as arguments.

    Raises:
      ArgumentError: as `interval_bounds`; rows or steps that are no count; arrays that are split over
        explicit axes of a mesh.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxarch.theory.intervals import interval_bounds
      >>> from jaxarch.theory.relaxation import linear_bounds
      >>> def fun(x):  # |x - y| - x / 2 + 1 by two neurons
      ...     return jax.nn.relu(x[0] - x[1]) + jax.nn.relu(x[1] - x[0]) - 0.5 * x[0] + 1
      >>> box = jnp.array([1.0, -1.0]), jnp.array([2.0, 0.5])
      >>> [round(float(end), 3) for end in interval_bounds(fun)(*box)]  # the range is [1, 3]
      [0.5, 3.5]
      >>> [round(float(end), 3) for end in linear_bounds(fun)(*box)]
      [1.0, 3.0]
    """
    return bounded(fun, by_lines(rows_at_once, ascent))


@dataclasses.dataclass(frozen=True)
class _Passes:
    """Options of passes back to the input.

    Attributes:
      rows_at_once: how many rows are in memory at once; by default half of them.
      ascent: the number of steps by which each row turns its lines.
    """

    rows_at_once: int | None
    ascent: int

    @property
    def has_fans(self) -> bool:
        """True if lines are turned."""
        return self.ascent > 0


def by_lines(rows_at_once: int | None, ascent: int = 0) -> Narrow:
    """Return what narrows the bounds of a value by linear relaxation."""
    if rows_at_once is not None:
        check_count("rows_at_once", rows_at_once)
    check_count("ascent", ascent, 0)
    return _narrowing(_Passes(rows_at_once, ascent))


def _narrowing(passes: _Passes) -> Narrow:
    def narrow(name: str, inputs: Sequence[Interval]) -> None:
        varying = [each for each in inputs if not each.exact]
        if name == "exp":
            _mark_shift(inputs[0])
        if name in _POINTWISE and varying:
            # Bounds of what leads from one argument to a value are not needed: the value has lines.
            widest = max(varying, key=lambda each: each.lower.size)
            made = Interval(widest.lower, widest.upper, made_by=name, inputs=tuple(inputs))
            argument = _argument(made)
            varying = varying if argument is None else [argument]
        for each in varying:
            _narrow(each, passes)

    return narrow


def _narrow(value: Interval, passes: _Passes) -> None:
    """Narrow the bounds of a value to those that linear relaxation proves."""
    # Given the bounds of its one argument, the interval of an entrywise value is as close as can be.
    entrywise = []
    while not value.narrowed and (source := _source(value)) is not None:
        entrywise.append(value)
        value.narrowed = True
        value = source
    _narrow_one(value, passes)
    for value in reversed(entrywise):
        value.meet(remade(value))


def _narrow_one(value: Interval, passes: _Passes) -> None:
    if value.exact or value.narrowed or not value.lower.size or not _floats(value):
        return
    value.narrowed = True
    if (argument := _argument(value)) is not None:
        _narrow(argument, passes)
        value.meet(_lines(value, argument, passes.has_fans).values)
    elif value.made_by in _BY_INPUTS and not _is_linear(value) and not _is_paired(value):
        # A pass would gain little beyond close bounds of both factors, and derivatives have many such values.
        _narrow_inputs(value, passes)
    elif _is_relaxed(value) and not _is_linear_in_the_input(value):
        value.meet(_backwards(value, passes))


def _narrow_inputs(value: Interval, passes: _Passes) -> None:
    """Narrow the bounds of a value by those of its inputs."""
    for each in value.inputs:
        _narrow(each, passes)
    value.meet(remade(value))


def _mark_shift(value: Interval) -> None:
    """Mark the maximum that `x - max(x)` subtracts: any constant would do, so pairs would be wasted on it."""
    if value.made_by != "sub":
        return
    x, shift = value.inputs
    while shift.made_by in _COPIES and len(shift.inputs) == 1:
        (shift,) = shift.inputs
    if shift.made_by == "reduce_max":
        shift.is_shift = _unmasked(x) is _unmasked(shift.inputs[0])


def _unmasked(value: Interval) -> Interval:
    """Return the entries among which a fixed mask chooses, with constants elsewhere."""
    varying = _varying(value)
    return varying[0] if value.made_by == "select_n" and len(varying) == 1 else value


def _source(value: Interval) -> Interval | None:
    """Return the one input that varies, if each entry is a function of one of its entries, and uses all."""
    varying = _varying(value)
    if len(varying) != 1 or varying[0].lower.size > value.lower.size:
        return None
    entrywise = value.made_by in _ENTRYWISE or (value.made_by == "select_n" and value.inputs[0].exact)
    return varying[0] if entrywise and _floats(varying[0]) else None


def _is_linear_in_the_input(value: Interval) -> bool:
    """Return whether a value is one linear map of an input, of which intervals are exact."""
    if not _is_linear(value) or len(_varying(value)) != 1:
        return False
    (source,) = _varying(value)
    while source.made_by in ("reshape", "transpose", "squeeze", "expand_dims"):
        source = source.inputs[0]
    return not source.inputs


def _varying(value: Interval) -> list[Interval]:
    return [each for each in value.inputs if not each.exact]


def _floats(value: Interval) -> bool:
    """Return whether a value has numbers of 32 bits or more; coefficients of fewer would be too coarse."""
    dtype = jnp.result_type(value.lower)
    return bool(jnp.issubdtype(dtype, jnp.floating)) and jnp.finfo(dtype).bits >= 32


# Back from an entry of a value to the input --------------------------------------------------------------


_Turns = Mapping[int, Array]
"""By `id` of a value, how far the lines below and above it are turned, shape (2, ...)."""


@dataclasses.dataclass
class _Bound:
    """A lower bound `sum_v coefficients[v] . v + offset - error` of one number.

    Attributes:
      coefficients: by `id` of a value, c of its shape.
      offset: a number.
      error: what rounding may have added, at least 0.
      mass: the sizes of all that was added to the offset, and `parts` their number.
      turns: how far lines are turned.
    """

    coefficients: dict[int, Array]
    offset: Array
    error: Array
    mass: Array
    turns: _Turns
    parts: int = 0

    def add(self, value: Interval, row: Array) -> None:
        """Add coefficients of a value; constants go to the offset."""
        if value.exact:
            self.shift(row, value.lower)
        elif id(value) in self.coefficients:
            row = self.coefficients[id(value)] = self.coefficients[id(value)] + row
            self.charge(row, sizes(value), 1)
        else:
            self.coefficients[id(value)] = row

    def shift(self, row: Array, by: Any) -> None:
        """Add `row . by` to the offset."""
        self.lie(row, by, by)

    def lie(self, row: Array, lower: Any, upper: Any) -> None:
        """Add the least of `row . v` for v between two arrays."""
        least, mass, charge = _least(row, lower, upper)
        self.offset, self.error, self.mass = self.offset + least, self.error + charge, self.mass + mass
        self.parts += 1

    def charge(self, row: Array, largest: Any, terms: int) -> None:
        """Charge the rounding of sums of some terms, `gamma_n |row| . largest`."""
        self.error = self.error + _charge(row, jnp.broadcast_to(largest, row.shape), terms)

    def close(self, value: Interval, row: Array) -> None:
        """Replace a value by its bounds."""
        self.lie(row, value.lower, value.upper)

    @property
    def proven(self) -> Array:
        """The bound, once no coefficients are left."""
        error = self.error + (self.parts + 4) * jnp.finfo(self.offset.dtype).eps * self.mass
        return self.offset - 1.01 * error  # Charges are rounded themselves.


@jax.jit
def _least(row: Array, lower: Array, upper: Array) -> tuple[Array, Array, Array]:
    """Return the least of `row . v`, the sum of sizes, and the charge for its rounding."""
    products = _products(row, jnp.where(row > 0, lower, upper))
    largest = jnp.maximum(_finite(jnp.abs(lower)), _finite(jnp.abs(upper)))
    mass = jnp.abs(products).sum()
    return products.sum(), mass, _rounding(mass, largest, row.size)


@functools.partial(jax.jit, static_argnums=2)
def _charge(row: Array, largest: Array, terms: int) -> Array:
    return _rounding(_products(jnp.abs(row), largest).sum(), _finite(largest), terms)


def _products(row: Array, value: Array) -> Array:
    """Return the products with a value; 0 times an infinite bound is 0."""
    return jnp.where(row == 0, 0, row * value)


def _finite(size: Array) -> Array:
    """Return sizes, with 0 in place of infinite ones."""
    return jnp.where(size < jnp.inf, size, 0)


def _rounding(mass: Array, largest: Array, terms: int) -> Array:
    """Return what sums of some terms are off by, underflow included."""
    limits = jnp.finfo(mass.dtype)
    return (terms + 4) * (limits.eps / 2) * mass + terms * limits.tiny * (1 + largest.sum())


def _backwards(target: Interval, passes: _Passes) -> Interval:
    """Return the bounds of a value by passes back from each entry, and from its negative."""
    shape, dtype = target.lower.shape, target.lower.dtype
    size = target.lower.size
    ordered = _ordered(target, functools.partial(_replacing, passes))
    turns = {
        id(value): jnp.zeros((2, *line.slope.shape), dtype) for value in ordered for line in _below(value)
    }

    def proven(place: Array) -> Array:
        entries = jnp.arange(size, dtype=place.dtype)
        unit = jnp.where(entries == place % size, jnp.where(place < size, 1, -1), 0).astype(dtype)

        def with_turns(turns: _Turns) -> Array:
            zeros = (jnp.zeros((), dtype),) * 3
            bound = _Bound({id(target): unit.reshape(shape)}, *zeros, turns)
            for value in ordered:
                if id(value) in bound.coefficients:
                    _step(bound, value, bound.coefficients.pop(id(value)))
            return bound.proven

        return _best(with_turns, turns, passes.ascent)

    places = jnp.arange(2 * size)
    at_once = passes.rows_at_once
    if at_once is None and not is_traced(target.lower):
        found = jax.vmap(proven)(places)
    else:
        # A loop, of two steps by default: else XLA fuses each pass with the program before it.
        found = lax.map(proven, places, batch_size=size if at_once is None else at_once)
    lower, upper = jnp.split(found, 2)
    return outwards(lower.reshape(shape), -upper.reshape(shape))


def _ordered(target: Interval, of: Callable[[Interval], Sequence[Interval]]) -> list[Interval]:
    """Return the values that a value is made of, itself first, each before those of which it is made."""
    ordered: list[Interval] = []
    seen: set[int] = set()
    stack = [(target, False)]
    while stack:
        value, is_done = stack.pop()
        if is_done:
            ordered.append(value)
        elif id(value) not in seen:
            seen.add(id(value))
            _check_is_whole(value)
            if value.made_by == "div":
                value.inputs = without_shift(value)
            stack.append((value, True))
            stack += [(each, False) for each in of(value)]
    return ordered[::-1]


def _check_is_whole(value: Interval) -> None:
    """Raise if a value, or what it is made of, is split over explicit axes: steps would have to name them."""
    shardings = (explicit_sharding(each.lower) for each in (value, *value.inputs))
    if any(sharding is not None and any(sharding.spec) for sharding in shardings):
        raise ArgumentError(
            "fun: it uses arrays that are split over explicit mesh axes; pass whole ones, or a mesh with "
            "axis_types=jax.sharding.AxisType.Auto"
        )


_RATE = 0.5
"""The first learning rate of turns, in places of a fan; it falls to 0 as a half cosine."""


def _best(bound: Callable[[_Turns], Array], turns: _Turns, steps: int) -> Array:
    """Return the largest of the bounds that steps of Adam find by turning lines. Each of them is valid."""
    if not steps or not turns:
        return bound({})
    optimizer = optax.adam(optax.cosine_decay_schedule(_RATE, steps))

    def step(carry: Any, _: None) -> tuple[Any, None]:
        turns, state, best = carry
        found, slopes = jax.value_and_grad(lambda turns: -bound(turns))(turns)
        slopes = jax.tree.map(lambda slope: jnp.where(jnp.isfinite(slope), slope, 0), slopes)
        # Adam's epsilon is a size: without this, bounds of tiny or huge outputs would take other steps.
        largest = functools.reduce(jnp.maximum, [jnp.abs(each).max() for each in jax.tree.leaves(slopes)])
        slopes = jax.tree.map(lambda slope: slope / jnp.where(largest > 0, largest, 1), slopes)
        with jax.numpy_dtype_promotion("standard"):
            updates, state = optimizer.update(slopes, state)
            turns = jax.tree.map(
                lambda turn, by: jnp.clip(turn + by, -2, 2).astype(turn.dtype), turns, updates
            )
        return (turns, state, jnp.where(-found > best, -found, best)), None

    start = bound({})
    (turns, _, best), _ = lax.scan(step, (turns, optimizer.init(turns), start), length=steps)
    last = bound(turns)
    return jnp.where(last > best, last, best)


def _replacing(passes: _Passes, value: Interval) -> list[Interval]:
    """Return the values by which a value is replaced in a pass, and see to it that it has its lines."""
    if (argument := _argument(value)) is None:
        if value.bent is None and _is_relaxed(value) and not _is_linear(value):
            value.bent = _bent_input(value, passes.has_fans)
        if _is_paired(value):
            return [_paired(value, passes)]
        if value.made_by in _OF_SEVERAL and not value.narrowed:
            value.narrowed = True
            _narrow_inputs(value, passes)
        return _varying(value)
    _lines(value, argument, passes.has_fans)
    return [argument]


def _below(value: Interval) -> list[Line]:
    """Return the line below a value, if it has one."""
    if value.lines is not None:
        return [value.lines[1].below]
    return [] if value.bent is None else [value.bent[1]]


def _is_paired(value: Interval) -> bool:
    """Return whether a value is a maximum of several values, or the like, which pairs of entries make."""
    is_of_two = value.made_by in ("max", "min") and len(_varying(value)) == 2
    is_known = is_of_two or (value.made_by in _OF_SEVERAL and not value.is_shift)
    return is_known and _floats(value) and _program(value) is not None


def _program(value: Interval) -> Callable[..., Array] | None:
    return in_pairs(value.made_by, value.params, value.inputs[0].lower.shape)


def _paired(value: Interval, passes: _Passes) -> Interval:
    """Return an equal value that is made of pairs, and keep it with the value."""
    if value.equal is None:
        program = _program(value)
        assert program is not None
        value.equal = evaluated(program, value.inputs, _narrowing(passes))
    return value.equal


def _is_relaxed(value: Interval) -> bool:
    """Return whether a pass back from a value goes further than the value itself."""
    if value.lines is not None:
        return True
    dtype = jnp.result_type(value.lower)
    numbers = [each for each in _varying(value) if not jnp.issubdtype(each.lower.dtype, jnp.bool_)]
    if not numbers or not _floats(value) or any(jnp.result_type(each.lower) != dtype for each in numbers):
        return False
    return _is_linear(value) or value.made_by in (_BILINEAR | {"div", "select_n"}) or _is_paired(value)


def _step(bound: _Bound, value: Interval, row: Array) -> None:
    """Replace a value by its inputs, or by its bounds if there is no rule."""
    if not _is_relaxed(value):
        bound.close(value, row)
    elif value.lines is not None:
        argument, found = value.lines
        _bent(bound, value, row, argument, found.below, found.above)
    elif _is_linear(value):
        _linear(bound, value, row, value.inputs)
    elif value.made_by == "select_n":
        _selected(bound, value, row)
    elif value.made_by == "div":
        _quotient(bound, value, row)
    elif value.equal is not None:
        bound.add(value.equal, row)
    else:
        _product(bound, value, row)


# Linear values -------------------------------------------------------------------------------------------

_COPIES = {
    "broadcast_in_dim", "concatenate", "expand_dims", "neg", "pad", "reshape", "rev", "slice", "split",
    "squeeze", "stack", "transpose", "unstack",
}  # fmt: skip
"""Primitives that copy entries, with a sign at most. Backwards, entries that were copied add up."""
_SUMS = {"add", "add_any", "cumsum", "reduce_sum", "reduce_window_sum", "sub"}
"""Primitives that are linear in all of their inputs together."""
_INDEXED = {"dynamic_slice", "dynamic_update_slice", "gather", "scatter-add"}
"""Primitives that are linear in their arrays; intervals refuse indices that depend on the box."""
_BILINEAR = {"conv_general_dilated", "dot_general", "mul"}
_WITH_CONSTANTS = _SUMS | _INDEXED | {"concatenate", "pad", "select_n", "stack"}
"""Primitives whose inputs that are constants add to the result."""
_OF_SEVERAL = ("reduce_max", "reduce_min", "reduce_window_max", "reduce_window_min", "sort")
"""Primitives that pairs of entries make, beside maxima of two values."""
_BY_INPUTS = {"div", "mul", "select_n", *_OF_SEVERAL}
"""Primitives that are bounded by their inputs alone where they are not linear."""
_ENTRYWISE = {
    "add", "add_any", "broadcast_in_dim", "div", "expand_dims", "mul", "neg", "reshape", "rev", "squeeze",
    "sub", "transpose",
}  # fmt: skip
"""Primitives of which each entry is a function of one entry of their one input that varies."""


def _is_linear(value: Interval) -> bool:
    """Return whether a value is an affine function of those of its inputs that depend on the box."""
    name = value.made_by
    if name in _COPIES or name in _SUMS or name in _INDEXED:
        return True
    if name == "convert_element_type":
        return jnp.result_type(value.inputs[0].lower) == jnp.result_type(value.lower)
    if name == "select_n":
        return value.inputs[0].exact
    if name == "div":
        return value.inputs[1].exact
    return name in _BILINEAR and len(_varying(value)) == 1


def _linear(bound: _Bound, value: Interval, row: Array, inputs: Sequence[Interval]) -> None:
    """Pass coefficients through the transposed map, and its constant part to the offset."""
    places = [place for place, each in enumerate(inputs) if not each.exact]

    def run(*varying: Array) -> Array:
        arrays = [each.lower for each in inputs]
        for place, array in zip(places, varying, strict=True):
            arrays[place] = array
        return _evaluated(value, arrays)

    constant, pull = jax.vjp(run, *(jnp.zeros_like(inputs[place].lower) for place in places))
    if len(places) < len(inputs) and value.made_by in _WITH_CONSTANTS:
        bound.shift(row, constant)
    if terms := _terms(value, inputs):
        bound.charge(row, _magnitude(value, inputs), terms)
    for place, pulled in zip(places, pull(row), strict=True):
        bound.add(inputs[place], pulled)


def _evaluated(value: Interval, arrays: Sequence[Any]) -> Array:
    """Evaluate a value's primitive, products in the highest precision."""
    if value.made_by == "mul":
        return jnp.multiply(*arrays)
    assert value.eqn is not None
    precise = {}
    if value.made_by in _BILINEAR:
        precise["precision"] = (lax.Precision.HIGHEST, lax.Precision.HIGHEST)
    return bind(value.eqn, arrays, **precise)[value.part]


def _magnitude(value: Interval, inputs: Sequence[Interval]) -> Array:
    """Return `|A| |v|`: the value with all coefficients and inputs replaced by their sizes."""
    given = [sizes(each) if jnp.issubdtype(each.lower.dtype, jnp.floating) else each.lower for each in inputs]
    if value.made_by == "sub":
        return given[0] + given[1]
    return given[0] if value.made_by == "neg" else _evaluated(value, given)


def _terms(value: Interval, inputs: Sequence[Interval]) -> int:
    """Return how many terms the map and its transpose add up at most, together; 0 if both move numbers."""
    name = value.made_by
    shapes = [np.shape(each.lower) for each in inputs]
    given = max(map(math.prod, shapes))
    made = value.lower.size
    if name == "dot_general":
        (contracted, _), (batched, _) = value.params["dimension_numbers"]
        summed, shared = (math.prod(shapes[0][axis] for axis in axes) for axes in (contracted, batched))
        return summed + max(math.prod(shape) // max(summed * shared, 1) for shape in shapes)
    if name == "conv_general_dilated":
        spec = value.params["dimension_numbers"].rhs_spec
        of_kernel = 0 if inputs[1].exact else made
        return of_kernel + sum(math.prod(shapes[1]) // max(shapes[1][axis], 1) for axis in spec[:2])
    if name == "reduce_window_sum":
        return 2 * math.prod(value.params["window_dimensions"])
    if name in ("broadcast_in_dim", "reduce_sum"):
        return max(made // max(given, 1), given // max(made, 1))
    if name == "gather" and (repeats := _repeats(value, inputs)) is not None:
        return repeats
    if name in (_INDEXED | {"cumsum"}) or (name == "pad" and not inputs[1].exact):
        return made + given
    if name in ("add", "add_any", "sub", "mul", "div"):
        # An input of size 1 along an axis is repeated.
        return 1 + max(made // max(math.prod(shape), 1) for shape in shapes)
    return 0


def _repeats(value: Interval, inputs: Sequence[Interval]) -> int | None:
    """Return how many copies of an entry a look-up adds up backwards; `None` if the indices are not known."""
    x, indices = inputs
    assert value.eqn is not None
    look_up = functools.partial(bind, value.eqn)
    if is_traced(indices.lower) or not x.lower.size:
        return None
    with jax.ensure_compile_time_eval():
        copied, pull = jax.vjp(lambda x: look_up([x, indices.lower])[0], np.zeros(x.lower.shape, np.float32))
        copies = int(pull(jnp.ones_like(copied))[0].max())
    return copies if copies > 1 else 0  # What is copied once is not rounded.


# Products and quotients of two values, and choices -------------------------------------------------------


def _product(bound: _Bound, value: Interval, row: Array) -> None:
    """Replace x y by `m_x y + m_y x - m_x m_y`, with middles m and radii r, off by at most `r_x r_y`.

    Both planes of McCormick below a product, in equal parts, and both above it: they have these slopes too.
    """
    x, y = value.inputs
    (middle_x, radius_x), (middle_y, radius_y) = map(_ball, (x, y))
    _linear(bound, value, row, (x, middle_y))
    _linear(bound, value, row, (middle_x, y))
    bound.shift(row, -_evaluated(value, [middle_x.lower, middle_y.lower]))
    terms = 4 * _terms(value, (x, y))
    bound.charge(row, _magnitude(value, (x, y)), terms)
    bound.shift(-jnp.abs(row), _evaluated(value, [radius_x, radius_y]))


def _ball(value: Interval) -> tuple[Interval, Array]:
    """Return the middle of an interval, as a constant, and a radius that reaches both ends."""
    middle = value.lower + (value.upper - value.lower) / 2
    radius = jnp.maximum(value.upper - middle, middle - value.lower)
    return Interval(middle, middle), radius * (1 + 4 * jnp.finfo(middle.dtype).eps)


def _quotient(bound: _Bound, value: Interval, row: Array) -> None:
    """Replace x / y by the product of x and 1 / y, and 1 / y by lines where y has no sign change."""
    x, y = value.inputs
    is_defined = (y.lower > 0) | (y.upper < 0)
    inverse = outwards(
        jnp.where(is_defined, 1 / y.upper, jnp.nan), jnp.where(is_defined, 1 / y.lower, jnp.nan)
    )
    inverse.made_by, inverse.inputs = "reciprocal", (y,)
    product = dataclasses.replace(value, made_by="mul", inputs=(x, inverse))
    if x.exact:
        _linear(bound, product, row, product.inputs)
    else:
        _product(bound, product, row)
    _bent(bound, value, bound.coefficients.pop(id(inverse)), *value.bent)


def _selected(bound: _Bound, value: Interval, row: Array) -> None:
    """Replace a choice by what is chosen, where that is decided; elsewhere it lies between both cases.

    Where one of the cases is a constant, these are lines, as for `relu'(x) g`, which lies between 0 and g
    (Shi et al., *Efficiently computing local Lipschitz constants of neural networks via bound propagation*,
    2022, https://arxiv.org/abs/2210.07394).
    """
    which, no, yes = value.inputs
    is_yes, is_no = which.lower, ~which.upper
    bound.add(no, jnp.where(is_no, row, 0))
    bound.add(yes, jnp.where(is_yes, row, 0))
    left = jnp.where(is_yes | is_no, 0, row)
    if value.bent is None:
        bound.close(value, left)
    else:
        _bent(bound, value, left, *value.bent)


def _bent_input(value: Interval, has_fan: bool) -> tuple[Interval, Line, Line] | None:
    """Return the input of a quotient or a choice that lines replace, and the lines below and above."""
    if value.made_by == "div":
        y = value.inputs[1]
        return y, *lines(lambda y: 1 / y, y, has_fan=has_fan)[:2]
    if value.made_by != "select_n" or value.inputs[1].exact == value.inputs[2].exact:
        return None
    no, yes = value.inputs[1:]
    constant, x = (no.lower, yes) if no.exact else (yes.lower, no)
    below = lines(lambda x: jnp.where(x < constant, x, constant), x, [constant], has_fan=has_fan).below
    above = lines(lambda x: jnp.where(x > constant, x, constant), x, [constant], has_fan=has_fan).above
    return x, below, above


# Functions of one number ---------------------------------------------------------------------------------

_POINTWISE = {
    "abs", "add", "add_any", "and", "atan", "cbrt", "cos", "div", "eq", "erf", "erfc", "exp", "exp2", "expm1",
    "ge", "gt", "integer_pow", "le", "log", "log1p", "log2", "logaddexp", "logistic", "lt", "max", "min",
    "mul", "ne", "neg", "not", "or", "rsqrt", "select_n", "sin", "sinh", "sqrt", "square", "sub", "tanh",
}  # fmt: skip
"""Elementwise primitives, continuous but for what they choose; others, such as `sign`, jump untold."""


def _argument(value: Interval) -> Interval | None:
    """Return the latest earlier value of which each entry is a function, entry by entry; `None` without one.

    Values are looked through from the latest to the earliest: the one that is left alone is on all ways. What
    is linear in one input has no need of lines.
    """
    if (_is_linear(value) and len(_varying(value)) < 2) or not _floats(value):
        return None
    frontier = {id(value): value}
    while True:
        latest = max(frontier.values(), key=lambda each: each.number)
        del frontier[id(latest)]
        if latest.made_by not in _POINTWISE or latest.lower.shape != value.lower.shape:
            return None
        frontier |= {id(each): each for each in _varying(latest)}
        if len(frontier) == 1:
            (argument,) = frontier.values()
            return argument if _floats(argument) and argument.lower.shape == value.lower.shape else None


def jumps(value: Interval) -> Array:
    """Return whether a value may jump somewhere in the box, by more than a thousand roundings.

    Raises:
      ArgumentError: it is made of something that jumps by its nature.
    """
    found = [jnp.zeros((), bool)]
    for each in _ordered(value, _varying):
        if each.made_by in _JUMPING or (each.made_by == "convert_element_type" and not _keeps_floats(each)):
            raise ArgumentError(f"fun: it uses the primitive {each.made_by!r}, which jumps between values")
        if each.made_by == "select_n" and not each.inputs[0].exact:
            which, argument = each.inputs[0], _argument(each)
            is_open = which.lower != which.upper
            found.append(jnp.any(is_open if argument is None else _lines(each, argument).jumps))
    return jnp.stack(found).any()


_JUMPING = ("argmax", "argmin", "ceil", "floor", "reduce_precision", "round", "sign")


def _keeps_floats(value: Interval) -> bool:
    """Return whether a conversion is between floating-point numbers, and to no shorter ones."""
    before, after = jnp.result_type(value.inputs[0].lower), jnp.result_type(value.lower)
    return bool(jnp.issubdtype(before, jnp.floating)) and jnp.promote_types(before, after) == after


def _lines(value: Interval, argument: Interval, has_fan: bool = False) -> Lines:
    """Return the lines of a value as a function of its argument, and keep them with the value."""
    if value.lines is None:
        kinks = _kinks(value, argument)
        value.lines = (argument, lines(as_computed(value, argument), argument, kinks, has_fan=has_fan))
    return value.lines[1]


def _kinks(value: Interval, argument: Interval) -> list[Any]:
    """Return 0, and the constants with which an argument is compared on the way to a value."""
    kinks: list[Any] = [0.0]
    stack, seen = [value], {id(argument)}
    while stack:
        latest = stack.pop()
        seen.add(id(latest))
        others = [each for each in latest.inputs if each is not argument]
        is_compared = latest.made_by in ("max", "min", "lt", "le", "gt", "ge") and len(others) == 1
        if is_compared and others[0].exact and others[0].constant != 0:
            kinks.append(others[0].lower)
        stack += [each for each in _varying(latest) if id(each) not in seen]
    return kinks


def as_computed(value: Interval, argument: Interval | None = None) -> Callable[[Array], Array]:
    """Return the function that makes a value from an earlier one, by default from the one input.

    Its derivative is that of what is computed: custom derivatives and `stop_gradient` were left out when the
    program was read, and the maximum in a softmax is a constant.
    """
    order = _ordered(value, lambda each: [] if each is argument else _varying(each))[::-1]
    source = order[0] if argument is None else argument
    for each in order:
        if each.made_by == "exp":
            _mark_shift(each.inputs[0])

    def fun(x: Array) -> Array:
        known: dict[int, Any] = {id(source): x}
        for each in order:
            if each is not source:
                inputs = [other.lower if other.exact else known[id(other)] for other in each.inputs]
                # A function of one number is bounded on small pieces, where pairs would only round.
                is_pair = argument is None and each.made_by in ("max", "min") and _is_paired(each)
                run = _several if is_pair else _AS_CHOICES.get(each.made_by, _evaluated)
                known[id(each)] = run(each, inputs)
        return known[id(value)]

    return fun


def _several(value: Interval, inputs: Sequence[Any]) -> Array:
    """Return an extreme of several values, or a sorted array, as choices."""
    if not jnp.issubdtype(value.lower.dtype, jnp.floating):
        return _evaluated(value, inputs)  # Truth values and integers have no derivative.
    if value.is_shift:
        return _entry_at_extreme(value, inputs)
    program = _program(value)
    if program is None:
        what = f"sorts more than {LONGEST_SORT} numbers" if value.made_by == "sort" else "has empty windows"
        raise ArgumentError(f"fun: its {value.made_by!r} {what}, of which no derivative is bounded")
    return program(*inputs)


def _entry_at_extreme(value: Interval, inputs: Sequence[Any]) -> Array:
    """Return the maximum along axes as the entry at its place, which costs less than pairs."""
    (x,) = inputs
    for axis in sorted(value.params["axes"], reverse=True):
        place = jnp.argmax(x, axis, keepdims=True)
        x = jnp.where(lax.broadcasted_iota(place.dtype, x.shape, axis) == place, x, 0).sum(axis)
    return x


_AS_CHOICES: dict[str, Callable[[Interval, Sequence[Any]], Array]] = {
    "clamp": lambda _, of: jnp.where(of[1] < of[0], of[0], jnp.where(of[1] > of[2], of[2], of[1])),
    "logaddexp": lambda _, pair: jnp.logaddexp(*pair),
    "max": lambda _, pair: jnp.where(pair[0] > pair[1], pair[0], pair[1]),
    "min": lambda _, pair: jnp.where(pair[0] < pair[1], pair[0], pair[1]),
    **dict.fromkeys(_OF_SEVERAL, _several),
}
"""Maxima and minima as choices, which bounds decide. JAX's derivatives compare entries with the result.

`jnp.logaddexp` is taken anew: a program may compute it under a derivative of its own.
"""


def _bent(bound: _Bound, value: Interval, row: Array, x: Interval, below: Line, above: Line) -> None:
    """Replace a value by the line below it where coefficients are positive, and above it elsewhere."""
    if (turns := bound.turns.get(id(value))) is not None:
        below, above = (line.turned(turn) for line, turn in zip((below, above), turns, strict=True))
    steepest = jnp.maximum(jnp.abs(below.slope), jnp.abs(above.slope))
    bound.charge(row, jnp.maximum(steepest, 1) * sizes(x), 1)
    bound.lie(row, below.intercept, above.intercept)
    bound.add(x, jnp.maximum(row, 0) * below.slope + jnp.minimum(row, 0) * above.slope)

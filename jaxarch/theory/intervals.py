r"""Interval arithmetic over JAX functions: sound bounds of all outputs over a box of inputs.

`interval_bounds(fun)(lower, upper)` encloses `{fun(x) : lower <= x <= upper}`. It traces the function and
evaluates every primitive by a rule that encloses its range, given intervals of its inputs, which are treated
as independent. This is loose if the same value enters twice. Some common forms in derivatives of neural
networks are therefore recognized and enclosed as a whole: `1 - tanh(x)^2`, `s (1 - s)`, `x x`, the derivative
of softplus (`exp(x - logaddexp(x, y))`), and softmax (`exp(x_i) / sum_j exp(x_j)`).

Soundness in floating point. Every result that depends on the box is rounded outwards. It then encloses the
exact function and the result of any order of evaluation. A sum of n terms, in any order, is off by at most
`gamma_n` times the sum of their absolute values (N. Higham, Accuracy and Stability of Numerical Algorithms,
section 3.1); its bounds are moved by twice that. Elementary functions are assumed correct to 8 units in the
last place (to `_ULPS` where they are worse), and underflow may flush to 0. Matrix products use the highest
precision. Values that do not depend on the box are taken as computed.

All values count as finite, and inputs are real numbers. If an output is not defined for some of them (a
division by an interval around 0), its bounds are infinite.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import Jaxpr, JaxprEqn, Literal

from jaxarch._internal.errors import ArgumentError, is_traced
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.structure._flow import CALLS, bind, inner, literal

__all__ = ["interval_bounds"]


def interval_bounds(fun: Callable[[PyTree], PyTree]) -> Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]:
    """Bound a function over a box: return a function `(lower, upper) -> (lower, upper)`.

        lower, upper = interval_bounds(jax.grad(loss))(jnp.zeros(n), jnp.ones(n))

    Args:
      fun: a JAX function of one pytree of arrays. Values that it closes over are fixed.

    Returns:
      A pure function of two pytrees of the argument's structure, shapes and dtypes, with `lower <= upper`. It
      returns two pytrees of the function's outputs that enclose them elementwise. It can be jitted and
      mapped. Floating-point bounds are never NaN; a boolean or an integer that the box leaves open has
      `lower < upper`.

    Raises:
      ArgumentError: bounds of different structures or shapes, or out of order; a primitive without a rule
        whose inputs depend on the box, such as a loop or a conditional; the message names it.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.theory.intervals import interval_bounds
      >>> box = jnp.array([-1.0]), jnp.array([2.0])
      >>> [round(float(end[0]), 3) for end in interval_bounds(lambda x: x * x)(*box)]
      [0.0, 4.0]
      >>> loose = interval_bounds(lambda x: x - x * x)(*box)  # x and x x are taken to be independent
      >>> [round(float(end[0]), 3) for end in loose]  # the range is [-2, 1/4]
      [-5.0, 2.0]
    """
    return bounded(fun)


Narrow = Callable[[str, Sequence["Interval"]], None]
"""Narrows the bounds of a nonlinear primitive's inputs in place; those of outputs, without a primitive."""


def bounded(
    fun: Callable[[PyTree], PyTree], narrow: Narrow | None = None
) -> Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]:
    """Return `interval_bounds(fun)`, with closer bounds of outputs and of inputs of nonlinear primitives."""

    def bounds(lower: PyTree, upper: PyTree) -> tuple[PyTree, PyTree]:
        outputs = intervals(fun, lower, upper, narrow)
        return (
            jax.tree.map(lambda out: jnp.asarray(out.lower), outputs),
            jax.tree.map(lambda out: jnp.asarray(out.upper), outputs),
        )

    return bounds


def intervals(
    fun: Callable[[PyTree], PyTree], lower: PyTree, upper: PyTree, narrow: Narrow | None = None
) -> PyTree:
    """Return the intervals of a function's outputs over a box, with their origin.

    Args:
      fun: the function.
      lower: the smallest inputs.
      upper: the largest inputs.
      narrow: narrows the bounds of values before they are used; it may look at how they were made.
    """
    lower, upper = jax.tree.map(jnp.asarray, (lower, upper))
    check_box(lower, upper)
    jaxpr, shape = jax.make_jaxpr(fun, return_shape=True)(lower)
    pairs = zip(jax.tree.leaves(lower), jax.tree.leaves(upper), strict=True)
    walk = _Walk(narrow)
    outputs = _evaluate(jaxpr.jaxpr, jaxpr.consts, [Interval(low, high) for low, high in pairs], walk)
    if narrow is not None:
        narrow("", outputs)
    return jax.tree.unflatten(jax.tree.structure(shape), outputs)


def evaluated(fun: Callable[..., Array], inputs: Sequence[Interval], narrow: Narrow | None) -> Interval:
    """Return the interval of a function of arrays, given their intervals."""
    jaxpr = jax.make_jaxpr(fun)(*(each.lower for each in inputs))
    return _evaluate(jaxpr.jaxpr, jaxpr.consts, inputs, _Walk(narrow))[0]


def check_box(lower: PyTree, upper: PyTree) -> None:
    if named_leaves(lower).keys() != named_leaves(upper).keys():
        raise ArgumentError("upper: expected the same structure as lower")
    above = named_leaves(upper)
    for path, low in named_leaves(lower).items():
        high = above[path]
        at = f" at {path!r}" if path else ""
        if low.shape != high.shape or low.dtype != high.dtype:
            raise ArgumentError(
                f"upper: expected shape {low.shape} and dtype {low.dtype}{at}, like lower, got {high.shape} "
                f"and {high.dtype}"
            )
        if not is_traced((low, high)) and not (np.asarray(low) <= np.asarray(high)).all():
            raise ArgumentError(
                f"upper: expected values of at least lower everywhere{at}; swap lower and upper where they "
                "are not"
            )


@dataclasses.dataclass(frozen=True, eq=False)
class Total:
    """A sum of terms along an axis.

    Attributes:
      terms: the terms of the sum.
      axis: the axis of the sum.
      kept: whether the axis still exists, of length 1 or broadcast, so that the sum aligns with its terms.
    """

    terms: Interval
    axis: int
    kept: bool


@dataclasses.dataclass(eq=False)
class Interval:
    """The values between two arrays, and their origin.

    The bounds may be narrowed in place, so that all values that were made of this one see it.

    Attributes:
      lower: the smallest values.
      upper: the largest values; the same object as `lower` if the value does not depend on the box.
      made_by: the name of the primitive that made the value.
      inputs: the inputs of that primitive.
      params: the parameters of that primitive.
      constant: the number that all entries are equal to, if it is known at trace time.
      nonnegative: whether the value is known at trace time to be at least 0.
      sum_of: for a sum along one axis, the terms and the axis.
      quotient: for a quotient with such a sum as denominator, the numerator and the sum.
      eqn: the equation that made the value.
      part: which of the equation's outputs it is.
      narrowed: whether the bounds were narrowed already.
      lines: lines around the value, as a function of an earlier one (`theory.relaxation`).
      bent: for a quotient or a choice, the input that is replaced by lines, and the lines below and above.
      equal: for a maximum of several values and the like, the same value made of pairs.
      is_shift: whether it is a maximum that is subtracted from its own values, as in a softmax.
      number: values are numbered as they are made.
    """

    lower: Any
    upper: Any
    made_by: str = ""
    inputs: tuple[Interval, ...] = ()
    params: dict[str, Any] = dataclasses.field(default_factory=dict)
    constant: float | bool | None = None
    nonnegative: bool = False
    sum_of: Total | None = None
    quotient: tuple[Interval, Total] | None = None
    eqn: JaxprEqn | None = None
    part: int = 0
    narrowed: bool = False
    lines: Any = None
    bent: Any = None
    equal: Interval | None = None
    is_shift: bool = False
    number: int = dataclasses.field(default_factory=itertools.count().__next__, init=False)

    @property
    def exact(self) -> bool:
        """True if the value does not depend on the box."""
        return self.lower is self.upper

    def meet(self, other: Interval) -> None:
        """Narrow the bounds to what two intervals have in common. A NaN is no bound."""
        self.lower = jnp.where(other.lower > self.lower, other.lower, self.lower)
        self.upper = jnp.where(other.upper < self.upper, other.upper, self.upper)


def _point(value: Any) -> Interval:
    constant = None
    if not isinstance(value, jax.core.Tracer) and np.ndim(value) == 0 and not _is_key(value):
        constant = np.asarray(value).item()
    return Interval(value, value, constant=constant)


def _is_key(value: Any) -> bool:
    return jnp.issubdtype(getattr(value, "dtype", np.float32), jax.dtypes.prng_key)


# The interpreter -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Walk:
    """A walk through a program.

    Attributes:
      narrow: narrows the bounds of values before they are used.
      made: what each equation made of which inputs. Programs often compute the same value twice, and forms
        are recognized by the identity of values.
    """

    narrow: Narrow | None = None
    made: dict[Any, list[Interval]] = dataclasses.field(default_factory=dict)


def _evaluate(jaxpr: Jaxpr, consts: Sequence[Any], inputs: Sequence[Interval], walk: _Walk) -> list[Interval]:
    known: dict[Any, Interval] = {}

    def read(atom: Any) -> Interval:
        if isinstance(atom, Literal):
            return _point(literal(atom))
        return known[atom]

    known.update(zip(jaxpr.constvars, map(_point, consts), strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))
    for eqn in jaxpr.eqns:
        outputs = _apply(eqn, [read(atom) for atom in eqn.invars], walk)
        known.update(zip(eqn.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _apply(eqn: JaxprEqn, inputs: list[Interval], walk: _Walk) -> list[Interval]:
    name = eqn.primitive.name
    # `logaddexp` is a call itself: recognize it before calls are entered, to enclose it as a whole.
    if is_logaddexp(eqn):
        name = "logaddexp"
    elif name in _CALLS:
        called = inner(eqn)
        return _evaluate(called.jaxpr, called.consts, inputs, walk)
    if name in IDENTITIES:
        return inputs
    decided = _decided(name, inputs)
    if decided is not None:
        return [decided]
    if all(value.exact for value in inputs):
        outputs = [_point(output) for output in _constants(eqn, [value.lower for value in inputs])]
        constant = inputs[0].constant if inputs else None
        if constant is None or name not in ("broadcast_in_dim", "neg"):
            return outputs
        return [dataclasses.replace(outputs[0], constant=-constant if name == "neg" else constant)]
    if name not in _RULES:
        raise ArgumentError(f"fun: it uses the primitive {name!r}, which has no interval rule")
    identity = _identity(eqn, name, inputs)
    if identity not in walk.made:
        if walk.narrow is not None and _is_nonlinear(name, inputs):
            walk.narrow(name, inputs)
        walk.made[identity] = _made(eqn, name, inputs)
    return walk.made[identity]


def _constants(eqn: JaxprEqn, values: Sequence[Any]) -> Sequence[Any]:
    """Evaluate an equation of constants; indices at once, so that what looks them up knows them."""
    is_known = not is_traced(list(values)) and not any(map(_is_key, values))
    if is_known and all(jnp.issubdtype(atom.aval.dtype, jnp.integer) for atom in eqn.outvars):  # type: ignore[attr-defined]
        with jax.ensure_compile_time_eval():
            return list(bind(eqn, values))
    return list(bind(eqn, values))


def _made(eqn: JaxprEqn, name: str, inputs: Sequence[Interval]) -> list[Interval]:
    """Return the intervals of an equation's outputs by its rule, with their origin."""
    found = _RULES[name](eqn, *inputs)
    outputs = found if isinstance(found, list) else [found]
    origin = {"made_by": name, "inputs": tuple(inputs), "params": eqn.params, "eqn": eqn}
    origin |= {"narrowed": False, "lines": None, "bent": None, "equal": None, "is_shift": False}
    return [dataclasses.replace(output, part=part, **origin) for part, output in enumerate(outputs)]


def remade(value: Interval) -> Interval:
    """Return the interval of a value anew, from inputs that may have been narrowed since."""
    assert value.eqn is not None
    return _made(value.eqn, value.made_by, value.inputs)[value.part]


def _identity(eqn: JaxprEqn, name: str, inputs: Sequence[Interval]) -> Any:
    """Return what equal computations of one value have in common."""

    def of_input(value: Interval) -> Any:
        if value.constant is not None:
            return np.shape(value.lower), jnp.result_type(value.lower), value.constant
        return id(value.lower) if value.exact else id(value)

    identity = (name, *map(of_input, inputs), tuple(sorted(eqn.params.items())))
    try:
        hash(identity)
    except TypeError:  # A parameter, such as an array, cannot be compared.
        return id(eqn), *map(of_input, inputs)
    return identity


def is_logaddexp(eqn: JaxprEqn) -> bool:
    """Return whether an equation computes `jnp.logaddexp`, on which `jax.nn.softplus` is built."""
    if eqn.primitive.name != "custom_jvp_call" or len(eqn.invars) != 2:
        return False
    structs = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in eqn.invars]  # type: ignore[attr-defined]
    # An equation does not tell which function it calls, so its program is compared with JAX's.
    genuine = jax.make_jaxpr(jnp.logaddexp)(*structs).jaxpr.eqns
    return any(str(inner(other)) == str(inner(eqn)) for other in genuine if other.primitive == eqn.primitive)


def _both(eqn: JaxprEqn, *inputs: Interval) -> tuple[Array, Array]:
    """Evaluate the primitive at all lower bounds, and at all upper bounds."""
    lower = eqn.primitive.bind(*(value.lower for value in inputs), **eqn.params)
    upper = eqn.primitive.bind(*(value.upper for value in inputs), **eqn.params)
    return lower, upper


_CALLS = {*CALLS, "custom_jvp_call", "custom_vjp_call"}
IDENTITIES = {"stop_gradient", "copy", "copy_p", "optimization_barrier"}


def _decided(name: str, inputs: list[Interval]) -> Interval | None:
    """Return an output that is decided at trace time by identical or constant inputs; otherwise `None`."""
    constants = [value.constant for value in inputs]
    # All values count as finite, so the guard of `logsumexp` against infinite maxima is decided.
    if name == "is_finite" and not inputs[0].exact:
        return _same(inputs[0], True)
    if name == "select_n" and isinstance(constants[0], bool):
        return inputs[2] if constants[0] else inputs[1]
    if name == "abs" and inputs[0].nonnegative:
        return inputs[0]
    if len(inputs) != 2 or all(value.exact for value in inputs):
        return None
    first, second = inputs
    if name in ("eq", "ge", "le", "ne", "gt", "lt"):
        return _compared(name, first, second)
    # `jax.nn.logsumexp` takes max(-inf, x); passing x through keeps its identity, by which forms are
    # recognized.
    neutral = {"add": 0, "add_any": 0, "max": -np.inf, "min": np.inf}.get(name)
    for value, other in ((first, second), (second, first)):
        if neutral is not None and other.constant == neutral and _is_shape_of_both(value, other):
            return value
    return None


def _compared(name: str, first: Interval, second: Interval) -> Interval | None:
    """Return the outcome of a comparison that is decided at trace time; `None` otherwise."""
    if first is second:
        return _same(first, name in ("eq", "ge", "le"))
    if name in ("eq", "ne") and any(of.constant in (np.inf, -np.inf) for of in (first, second)):
        return _same(first if second.constant is not None else second, name == "ne")
    if name == "ge" and first.nonnegative and second.constant == 0:
        return _same(first, True)
    return None


def _is_shape_of_both(value: Interval, other: Interval) -> bool:
    shapes = np.shape(value.lower), np.shape(other.lower)
    return shapes[0] == np.broadcast_shapes(*shapes)


def _same(like: Interval, value: bool) -> Interval:
    """Return a boolean that is decided at trace time, although its input depends on the box."""
    return dataclasses.replace(_point(jnp.full(np.shape(like.lower), value)), constant=value)


# Rounding outwards -----------------------------------------------------------------------------------

_ULPS = {"cosh": 32, "log1p": 256, "sinh": 32, "erfc": 256}
"""Assumed errors of elementary functions, in units in the last place, where 8 are not enough."""


def outwards(lower: Array, upper: Array, off: Any = None, ulps: int = 1) -> Interval:
    """Move bounds outwards by their own rounding errors, and by `off` if it is given.

    The margins are relative to the results, plus an absolute part for underflow. One unit is added for the
    rounding of the margin itself. An undetermined bound (NaN) becomes infinite. A lower bound of infinity
    comes from an overflow, and becomes the largest finite number. An upper bound of minus infinity is treated
    in the same way.
    """
    dtype = jnp.result_type(lower)
    if not jnp.issubdtype(dtype, jnp.floating):
        return Interval(lower, upper)
    return Interval(*_outwards(lower, upper, off, ulps))


# Whatever many operations have in common is a program of its own, which is traced once for each shape.
@functools.partial(jax.jit, static_argnums=3)
def _outwards(lower: Array, upper: Array, off: Any, ulps: int) -> tuple[Array, Array]:
    dtype = lower.dtype
    limits = jnp.finfo(dtype)

    def margin(bound: Array) -> Array:
        per_run = (ulps + 1) * limits.eps * jnp.abs(bound) + limits.tiny
        return per_run if off is None else per_run + off

    lower, upper = lower - margin(lower), upper + margin(upper)
    lower = jnp.where(jnp.isnan(lower), -jnp.inf, jnp.minimum(lower, limits.max))
    upper = jnp.where(jnp.isnan(upper), jnp.inf, jnp.maximum(upper, limits.min))
    return lower.astype(dtype), upper.astype(dtype)


def _within(value: Interval, least: float = -np.inf, largest: float = np.inf) -> Interval:
    """Clip an interval to a range in which the exact values are known to lie."""
    lower, upper = value.lower, value.upper
    if least > -np.inf:
        lower, upper = jnp.maximum(lower, least), jnp.maximum(upper, least)
    if largest < np.inf:
        lower, upper = jnp.minimum(lower, largest), jnp.minimum(upper, largest)
    return dataclasses.replace(value, lower=lower, upper=upper, nonnegative=least >= 0)


# Elementwise rules -----------------------------------------------------------------------------------


def _increasing(
    least: float = -np.inf, largest: float = np.inf, ulps: int | None = 8
) -> Callable[..., Interval]:
    """Return the rule of an increasing function with a range and an error; `None` for no rounding error."""

    def rule(eqn: JaxprEqn, *inputs: Interval) -> Interval:
        lower, upper = _both(eqn, *inputs)
        if ulps is None:
            return Interval(lower, upper)
        ulps_ = _ULPS.get(eqn.primitive.name, ulps)
        return _within(outwards(lower, upper, ulps=ulps_), least, largest)

    return rule


def _on_positive(eqn: JaxprEqn, x: Interval) -> Interval:
    """Enclose `log`, `log2` and `sqrt`, which increase where they are defined."""
    # Below 0 these functions are NaN, so their arguments are clipped there.
    bottom = jnp.asarray(0, x.lower.dtype)
    value = _increasing()(eqn, Interval(jnp.maximum(x.lower, bottom), jnp.maximum(x.upper, bottom)))
    if eqn.primitive.name == "sqrt":
        return _within(value, 0.0)
    return dataclasses.replace(value, lower=jnp.where(x.lower > 0, value.lower, -jnp.inf))


def _rsqrt(eqn: JaxprEqn, x: Interval) -> Interval:
    large, small = _both(eqn, Interval(jnp.maximum(x.lower, 0), jnp.maximum(x.upper, 0)))
    return _within(outwards(small, jnp.where(x.lower > 0, large, jnp.inf), ulps=8), 0.0)


def _log1p(eqn: JaxprEqn, x: Interval) -> Interval:
    value = _increasing()(eqn, Interval(jnp.maximum(x.lower, -1), jnp.maximum(x.upper, -1)))
    return dataclasses.replace(value, lower=jnp.where(x.lower > -1, value.lower, -jnp.inf))


def _neg(eqn: JaxprEqn, x: Interval) -> Interval:
    quotient = None
    if x.quotient is not None:
        quotient = (_apply(eqn, [x.quotient[0]], _Walk())[0], x.quotient[1])
    return Interval(-x.upper, -x.lower, quotient=quotient)


def _erfc(eqn: JaxprEqn, x: Interval) -> Interval:
    return _increasing(0.0, 2.0)(eqn, Interval(x.upper, x.lower))


def sizes(x: Interval) -> Array:
    """Return the largest absolute value."""
    return _sizes(x.lower, x.upper)


@jax.jit
def _sizes(lower: Array, upper: Array) -> Array:
    return jnp.maximum(jnp.abs(lower), jnp.abs(upper))


def _absolute(x: Interval) -> Interval:
    least = jnp.minimum(jnp.abs(x.lower), jnp.abs(x.upper))
    least = jnp.where((x.lower < 0) & (x.upper > 0), jnp.zeros_like(least), least)
    return Interval(least, sizes(x), nonnegative=True)


def _square(x: Interval) -> Interval:
    size = _absolute(x)
    return _within(outwards(size.lower * size.lower, size.upper * size.upper), 0.0)


def _integer_pow(eqn: JaxprEqn, x: Interval) -> Interval:
    power = eqn.params["y"]
    if power == 0:
        return _point(jnp.ones_like(x.lower))
    base = _absolute(x) if power % 2 == 0 else x
    # Powers are repeated products, off by fewer than `power` roundings.
    lower, upper = (lax.integer_pow(bound, abs(power)) for bound in (base.lower, base.upper))
    value = outwards(lower, upper, ulps=abs(power))
    if power % 2 == 0:
        value = _within(value, 0.0)
    return value if power > 0 else _quotient(_point(jnp.ones_like(x.lower)), value)


def _ends(value: Interval) -> tuple[Any, ...]:
    return (value.lower,) if value.exact else (value.lower, value.upper)


def _product(x: Interval, y: Interval) -> Interval:
    value = outwards(*_corners(_ends(x), _ends(y)))
    return _within(value, 0.0) if x.nonnegative and y.nonnegative else value


@jax.jit
def _corners(x: Sequence[Array], y: Sequence[Array]) -> tuple[Array, Array]:
    """Return the least and the largest product of two intervals' ends."""
    corners = [a * b for a in x for b in y]
    # 0 times an unbounded real number is 0.
    corners = [jnp.where(jnp.isnan(c), 0, c) if _is_floating(c) else c for c in corners]
    return functools.reduce(jnp.minimum, corners), functools.reduce(jnp.maximum, corners)


def _is_floating(array: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(array), jnp.floating)


def _quotient(x: Interval, y: Interval) -> Interval:
    corners = [a / b for a in _ends(x) for b in _ends(y)]
    low, high = functools.reduce(jnp.minimum, corners), functools.reduce(jnp.maximum, corners)
    defined = (y.lower > 0) | (y.upper < 0)
    return outwards(jnp.where(defined, low, -jnp.inf), jnp.where(defined, high, jnp.inf))


def _wave(eqn: JaxprEqn, x: Interval, top: float) -> Interval:
    """Enclose a sine or a cosine, given where one of its maxima is."""
    limits = jnp.finfo(x.lower.dtype)

    def holds(place: float) -> Array:
        """Return whether `place + 2 pi k` for an integer k may lie in the interval."""
        turns = [(end - place) / (2 * math.pi) for end in (x.lower, x.upper)]
        off = 8 * limits.eps * (1 + jnp.maximum(*map(jnp.abs, turns)))
        # Far out, where turns are not told apart, this is always so; a NaN counts as a yes.
        return ~(jnp.ceil(turns[0] - off) > jnp.floor(turns[1] + off))

    ends = _both(eqn, x)
    # The argument is reduced to a turn first, so the error is one of the largest value, not of this one.
    value = outwards(jnp.minimum(*ends), jnp.maximum(*ends), off=8 * limits.eps)
    lower = jnp.where(holds(top + math.pi), -1, value.lower)
    upper = jnp.where(holds(top), 1, value.upper)
    return _within(Interval(lower, upper), -1.0, 1.0)


def _add(eqn: JaxprEqn, x: Interval, y: Interval) -> Interval:
    return _tanh_slope(x, y) or _tanh_slope(y, x) or outwards(x.lower + y.lower, x.upper + y.upper)


def _sub(eqn: JaxprEqn, x: Interval, y: Interval) -> Interval:
    if x is y:
        return _point(jnp.zeros_like(x.lower))
    return outwards(x.lower - y.upper, x.upper - y.lower)


def _mul(eqn: JaxprEqn, x: Interval, y: Interval) -> Interval:
    if x is y:
        return _square(x)
    return (
        _times_complement(x, y)
        or _times_complement(y, x)
        or _softmax_multiple(x, y)
        or _softmax_multiple(y, x)
        or _product(x, y)
    )


def _div(eqn: JaxprEqn, x: Interval, y: Interval) -> Interval:
    if not _is_floating(x.lower):
        raise ArgumentError("fun: it divides integers that depend on the box, which has no interval rule")
    if y.sum_of is None or np.shape(x.lower) not in ((), np.shape(y.lower), np.shape(y.sum_of.terms.lower)):
        return _quotient(x, y)
    if y.sum_of.terms is x:
        return _softmax(y.sum_of) or _quotient(x, y)
    return dataclasses.replace(_quotient(x, y), quotient=(_spread(x, y), y.sum_of))


def _spread(x: Interval, over: Interval) -> Interval:
    """Broadcast a number, or an array, to the shape of another interval."""
    shape = np.broadcast_shapes(np.shape(x.lower), np.shape(over.lower))
    lower = jnp.broadcast_to(x.lower, shape)
    return Interval(lower, lower if x.exact else jnp.broadcast_to(x.upper, shape))


def _exp(eqn: JaxprEqn, x: Interval) -> Interval:
    return _softplus_slope(x) or _increasing(0.0)(eqn, x)


def _max(eqn: JaxprEqn, x: Interval, y: Interval) -> Interval:
    return Interval(*_both(eqn, x, y), nonnegative=x.nonnegative or y.nonnegative)


def _logaddexp(eqn: JaxprEqn, x: Interval, y: Interval) -> Interval:
    lower, upper = jnp.logaddexp(x.lower, y.lower), jnp.logaddexp(x.upper, y.upper)
    return outwards(lower, upper, ulps=_ULPS["log1p"])


def _compare(eqn: JaxprEqn, x: Interval, y: Interval) -> Interval:
    """Compare in three-valued logic: an undetermined result is the interval from false to true."""
    name = eqn.primitive.name
    if name in ("eq", "ne"):
        # Two values are surely equal only if each is a single point.
        certain = (x.lower == x.upper) & (y.lower == y.upper) & (x.lower == y.lower)
        possible = (x.lower <= y.upper) & (y.lower <= x.upper)
        return Interval(certain, possible) if name == "eq" else Interval(~possible, ~certain)
    if name in ("lt", "le"):
        return Interval(*_both(eqn, Interval(x.upper, x.lower), y))
    return Interval(*_both(eqn, x, Interval(y.upper, y.lower)))


def _not(eqn: JaxprEqn, x: Interval) -> Interval:
    if x.lower.dtype != bool:
        raise ArgumentError(
            "fun: it works on the bits of integers that depend on the box ('not'), which has no interval rule"
        )
    return Interval(~x.upper, ~x.lower)


def _logical(eqn: JaxprEqn, x: Interval, y: Interval) -> Interval:
    if x.lower.dtype != bool:
        raise ArgumentError(
            f"fun: it works on the bits of integers that depend on the box ({eqn.primitive.name!r}), which "
            "has no interval rule"
        )
    return Interval(*_both(eqn, x, y))


def _select(eqn: JaxprEqn, which: Interval, *cases: Interval) -> Interval:
    """Return the hull of the cases that may be selected."""
    if which.exact:
        lower, upper = _both(eqn, which, *cases)
    else:
        _check_two_cases(which, cases)
        no, yes = cases
        lower = jnp.where(which.lower, yes.lower, jnp.where(which.upper, _least(no, yes), no.lower))
        upper = jnp.where(which.lower, yes.upper, jnp.where(which.upper, _largest(no, yes), no.upper))
    return Interval(lower, upper, nonnegative=all(case.nonnegative for case in cases))


def _check_two_cases(which: Interval, cases: Sequence[Interval]) -> None:
    if which.lower.dtype != bool or any(_is_key(case.lower) for case in cases):
        raise ArgumentError(
            "fun: it selects among more than two cases by values that depend on the box, which has no "
            "interval rule"
        )


def _least(x: Interval, y: Interval) -> Array:
    return jnp.minimum(x.lower, y.lower)


def _largest(x: Interval, y: Interval) -> Array:
    return jnp.maximum(x.upper, y.upper)


# Values that enter twice -----------------------------------------------------------------------------


def _is_one_minus(value: Interval, other: Interval) -> bool:
    return value.made_by == "sub" and value.inputs[0].constant == 1 and value.inputs[1] is other


def _times_complement(s: Interval, complement: Interval) -> Interval | None:
    """Enclose `s (1 - s)`: a parabola with its top at 1/2."""
    if not _is_one_minus(complement, s):
        return None
    ends = [bound * (1 - bound) for bound in (s.lower, s.upper)]
    over_top = (s.lower <= 0.5) & (s.upper >= 0.5)
    upper = jnp.where(over_top, 0.25, jnp.maximum(*ends))
    value = outwards(jnp.minimum(*ends), upper, ulps=4)
    return _within(value, 0.0) if s.made_by == "logistic" else value


def _one_minus_square(a: Interval) -> Interval:
    square = _square(a)
    value = outwards(1 - square.upper, 1 - square.lower)
    return _within(value, 0.0) if a.made_by == "tanh" else value


def _tanh_slope(t: Interval, ta: Interval) -> Interval | None:
    """Enclose `t + t a`, `t = c (1 - a)`, as `c (1 - a^2)`: so JAX 0.10 writes the derivative of tanh."""
    if t.made_by != "mul" or ta.made_by != "mul" or not any(value is t for value in ta.inputs):
        return None
    a = ta.inputs[1] if ta.inputs[0] is t else ta.inputs[0]
    for c, complement in (t.inputs, t.inputs[::-1]):
        if _is_one_minus(complement, a):
            # Near a = -1 the two terms cancel, with an error below the margin of the square.
            return _product(c, _one_minus_square(a))
    return None


def _softplus_slope(difference: Interval) -> Interval | None:
    """Enclose `exp(x - logaddexp(x, y))`, which is `logistic(x - y)`."""
    if difference.made_by != "sub" or difference.inputs[1].made_by != "logaddexp":
        return None
    minuend, pair = difference.inputs[0], difference.inputs[1].inputs
    for x, y in (pair, pair[::-1]):
        if minuend is x:
            gap = outwards(x.lower - y.upper, x.upper - y.lower)
            lower, upper = jax.nn.sigmoid(gap.lower), jax.nn.sigmoid(gap.upper)
            # The exponential of a difference inherits the rounding errors of its terms.
            off = 4 * jnp.finfo(lower.dtype).eps * upper * (sizes(x) + sizes(y))
            return _within(outwards(lower, upper, off, ulps=8), 0.0, 1.0)
    return None


def _softmax_multiple(multiple: Interval, terms: Interval) -> Interval | None:
    """Enclose `(c / sum_j e_j) e_i`, which is c times a softmax."""
    if multiple.quotient is None:
        return None
    numerator, total = multiple.quotient
    softmax = _softmax(total) if total.terms is terms else None
    return None if softmax is None else _product(numerator, softmax)


def _softmax(total: Total) -> Interval | None:
    """Enclose `e_i / sum_j e_j`, e = exp(x), as `1 / (1 + sum_{j != i} exp(x_j - x_i))`, the x_j independent.

    A number that is subtracted from all x_j, usually their maximum, cancels.
    """
    terms, axis = total.terms, total.axis
    if terms.made_by != "exp" or not (total.kept or np.ndim(terms.lower) == 1):
        return None
    logits = terms.inputs[0]
    if logits.made_by == "sub" and _is_uniform(logits.inputs[1], axis, np.ndim(logits.lower)):
        logits = logits.inputs[0]
    lower, upper = (jnp.moveaxis(bound, axis, -1) for bound in (logits.lower, logits.upper))
    itself = np.eye(lower.shape[-1], dtype=bool).reshape((1,) * (lower.ndim - 1) + 2 * lower.shape[-1:])

    def share(mine: Array, others: Array) -> Array:
        # All pairs of logits take quadratic memory, but a quotient of two sums would be loose.
        odds = jnp.exp(jnp.expand_dims(others, -2) - jnp.expand_dims(mine, -1))
        return 1 / (1 + jnp.where(itself, 0, odds).sum(-1))

    low, high = share(lower, upper), share(upper, lower)
    size = jnp.maximum(jnp.abs(lower), jnp.abs(upper)).max(-1, keepdims=True)
    # The exponential of a difference inherits the rounding errors of its terms.
    off = high * jnp.finfo(low.dtype).eps * (8 * size + lower.shape[-1] + 16)
    value = _within(outwards(low, high, off), 0.0, 1.0)
    return dataclasses.replace(
        value, lower=jnp.moveaxis(value.lower, -1, axis), upper=jnp.moveaxis(value.upper, -1, axis)
    )


def without_shift(quotient: Interval) -> tuple[Interval, Interval]:
    """Return the terms and the sum of a softmax `e_i / sum_j e_j` without a shift that depends on the box.

    Programs subtract the maximum from all x_j before `e = exp(x)`. Any constant c gives the same softmax: the
    middle of the maximum's interval takes its place. The inputs of other quotients are returned as they are.
    """
    terms, total = quotient.inputs
    if total.sum_of is None or total.sum_of.terms is not terms or terms.made_by != "exp":
        return terms, total
    shifted = terms.inputs[0]
    if shifted.made_by != "sub" or any(each.exact for each in shifted.inputs):
        return terms, total
    logits, shift = shifted.inputs
    if not _is_uniform(shift, total.sum_of.axis, np.ndim(logits.lower)):
        return terms, total
    middle = shift.lower + (shift.upper - shift.lower) / 2
    freed = _with_inputs(shifted, (logits, Interval(middle, middle)))
    freed = _with_inputs(terms, (freed,))
    return freed, _replaced(total, terms, freed)


def _with_inputs(value: Interval, inputs: tuple[Interval, ...]) -> Interval:
    return remade(dataclasses.replace(value, inputs=inputs))


def _replaced(value: Interval, old: Interval, new: Interval) -> Interval:
    """Return a sum of terms, perhaps moved since, as the sum of other terms."""
    if value is old:
        return new
    return _with_inputs(value, (_replaced(value.inputs[0], old, new), *value.inputs[1:]))


def _is_uniform(value: Interval, axis: int, ndim: int) -> bool:
    """Return whether a value is constant along an axis, by its shape or by how it was broadcast."""
    shape = np.shape(value.lower)
    if not shape or (len(shape) == ndim and shape[axis] == 1):
        return True
    if value.made_by != "broadcast_in_dim":
        return False
    dimensions = tuple(value.params["broadcast_dimensions"])
    source = np.shape(value.inputs[0].lower)
    return axis not in dimensions or source[dimensions.index(axis)] == 1


# Rules of arrays -------------------------------------------------------------------------------------


def _moved(eqn: JaxprEqn, x: Interval, *indices: Interval) -> Interval:
    """Move or repeat entries without changing them."""
    _check_exact(eqn, indices)
    lower, upper = _both(eqn, x, *indices)
    quotient = None
    if x.quotient is not None:
        total = _moved_total(eqn, x.quotient[1], np.shape(lower))
        quotient = None if total is None else (_apply(eqn, [x.quotient[0], *indices], _Walk())[0], total)
    return Interval(
        lower,
        upper,
        constant=x.constant,
        nonnegative=x.nonnegative,
        sum_of=None if x.sum_of is None else _moved_total(eqn, x.sum_of, np.shape(lower)),
        quotient=quotient,
    )


def _moved_total(eqn: JaxprEqn, total: Total, shape: tuple[int, ...]) -> Total | None:
    """Return the sum after a change of shape; `None` if it no longer aligns with its terms."""
    name, whole = eqn.primitive.name, np.shape(total.terms.lower)
    others = [axis for axis in range(len(whole)) if axis != total.axis]
    if name == "convert_element_type":
        return total
    if name == "broadcast_in_dim" and len(shape) == len(whole):
        expected = range(len(whole)) if total.kept else others
        kept = list(eqn.params["broadcast_dimensions"]) == list(expected)
        return dataclasses.replace(total, kept=True) if kept else None
    if name in ("reshape", "expand_dims", "squeeze", "reduce_sum"):
        if shape == tuple(1 if axis == total.axis else whole[axis] for axis in range(len(whole))):
            return dataclasses.replace(total, kept=True)
        if shape == tuple(whole[axis] for axis in others):
            return dataclasses.replace(total, kept=False)
    return None


def _joined(eqn: JaxprEqn, *values: Interval) -> Interval:
    """Join arrays into one."""
    return Interval(*_both(eqn, *values), nonnegative=all(value.nonnegative for value in values))


def _updated(eqn: JaxprEqn, x: Interval, update: Interval, *indices: Interval) -> Interval:
    _check_exact(eqn, indices)
    return Interval(*_both(eqn, x, update, *indices))


def _split(eqn: JaxprEqn, x: Interval) -> list[Interval]:
    parts = zip(*_both(eqn, x), strict=True)
    return [Interval(low, high, nonnegative=x.nonnegative) for low, high in parts]


def _converted(eqn: JaxprEqn, x: Interval) -> Interval:
    value = _moved(eqn, x)
    dtype, before = value.lower.dtype, x.lower.dtype
    if dtype == before:
        return value
    exact = jnp.issubdtype(before, jnp.bool_) or (
        jnp.issubdtype(before, jnp.floating) and jnp.promote_types(before, dtype) == dtype
    )
    if exact or not jnp.issubdtype(dtype, jnp.floating):
        return Interval(value.lower, value.upper, nonnegative=x.nonnegative)
    return outwards(value.lower, value.upper)


def _scatter_add(eqn: JaxprEqn, x: Interval, indices: Interval, updates: Interval) -> Interval:
    _check_exact(eqn, [indices])
    lower, upper = _both(eqn, x, indices, updates)
    if not _is_floating(lower):
        return Interval(lower, upper)
    size = bind(eqn, [sizes(x), indices.lower, sizes(updates)])[0]
    return outwards(lower, upper, off=_sum_error(updates.lower.size + 1, size))


def _sum(eqn: JaxprEqn, x: Interval) -> Interval:
    axes = eqn.params["axes"]
    terms = int(np.prod([x.lower.shape[axis] for axis in axes]))
    if terms == 1:
        return _moved(eqn, x)
    lower, upper = _both(eqn, x)
    off = _sum_error(terms, bind(eqn, [sizes(x)])[0]) if _is_floating(lower) else None
    value = outwards(lower, upper, off)
    if x.nonnegative:
        value = _within(value, 0.0)
    return dataclasses.replace(value, sum_of=Total(x, axes[0], kept=False) if len(axes) == 1 else None)


def _sort(eqn: JaxprEqn, *arrays: Interval) -> Interval:
    """Sort one array: its k-th entry grows with every entry."""
    if len(arrays) > 1:
        raise ArgumentError(
            "fun: it sorts several arrays together, as argsort does, by values that depend on the box, which "
            "has no interval rule"
        )
    (lower,), (upper,) = _both(eqn, *arrays)
    return Interval(lower, upper, nonnegative=arrays[0].nonnegative)


def _sums(terms: Callable[[JaxprEqn, Array], int]) -> Callable[..., Interval]:
    """Return the rule of sums over parts of an axis, given how many terms the longest has."""

    def rule(eqn: JaxprEqn, x: Interval) -> Interval:
        lower, upper = _both(eqn, x)
        off = None
        if _is_floating(lower):
            off = _sum_error(terms(eqn, x.lower), bind(eqn, [sizes(x)])[0])
        return outwards(lower, upper, off)

    return rule


def _sum_error(terms: int, size: Array) -> Array:
    """Bound a sum's error: twice `gamma_n` for n terms or products whose absolute values add up to `size`."""
    return (terms + 4) * jnp.finfo(size.dtype).eps * size + terms * jnp.finfo(size.dtype).tiny


def _arg_extreme(eqn: JaxprEqn, x: Interval) -> Interval:
    """Return the first and the last index that may be the extreme one."""
    (axis,) = eqn.params["axes"]
    if eqn.primitive.name == "argmax":
        possible = x.upper >= x.lower.max(axis, keepdims=True)
    else:
        possible = x.lower <= x.upper.min(axis, keepdims=True)
    dtype = eqn.params["index_dtype"]
    last = possible.shape[axis] - 1 - jnp.flip(possible, axis).argmax(axis)
    return Interval(possible.argmax(axis).astype(dtype), last.astype(dtype))


def _bilinear(terms: Callable[[JaxprEqn, Array, Array], int]) -> Callable[..., Interval]:
    """Return the rule of matrix products and convolutions.

    It is exact, except for rounding, if one factor has no sign change. Let x = x+ + x-, the parts that are at
    least 0 and at most 0. The smallest `x+ y` is `x+_lower y+_lower + x+_upper y-_lower`, and so on.
    """

    def rule(eqn: JaxprEqn, x: Interval, y: Interval) -> Interval:
        # GPUs and TPUs may multiply in lower precision by default, which the margins do not cover.
        params = {**eqn.params, "precision": (lax.Precision.HIGHEST, lax.Precision.HIGHEST)}

        def times(a: Array, b: Array) -> Array:
            return eqn.primitive.bind(a, b, **params)

        # Each bound below adds up to four products, of `terms` terms each.
        off = _sum_error(4 * terms(eqn, x.lower, y.lower), times(sizes(x), sizes(y)))
        if x.exact or y.exact:
            return outwards(*_one_sided(times, x, y), off)
        (xl_up, xl_down), (xu_up, xu_down) = _signs(x.lower), _signs(x.upper)
        (yl_up, yl_down), (yu_up, yu_down) = _signs(y.lower), _signs(y.upper)
        lower = times(xl_up, yl_up) + times(xu_up, yl_down) + times(xu_down, yu_down) + times(xl_down, yu_up)
        upper = times(xu_up, yu_up) + times(xl_up, yu_down) + times(xl_down, yl_down) + times(xu_down, yl_up)
        return outwards(lower, upper, off)

    return rule


def _one_sided(times: Callable[[Array, Array], Array], x: Interval, y: Interval) -> tuple[Array, Array]:
    if x.exact:
        up, down = _signs(x.lower)
        return times(up, y.lower) + times(down, y.upper), times(up, y.upper) + times(down, y.lower)
    up, down = _signs(y.lower)
    return times(x.lower, up) + times(x.upper, down), times(x.upper, up) + times(x.lower, down)


def _signs(bound: Array) -> tuple[Array, Array]:
    """Return the part that is at least 0, and the part that is at most 0."""
    return jnp.maximum(bound, 0), jnp.minimum(bound, 0)


def _dot_terms(eqn: JaxprEqn, x: Array, y: Array) -> int:
    (contracted, _), _ = eqn.params["dimension_numbers"]
    return int(np.prod([x.shape[axis] for axis in contracted]))


def _convolution_terms(eqn: JaxprEqn, x: Array, y: Array) -> int:
    return y.size // y.shape[eqn.params["dimension_numbers"].rhs_spec[0]]


def _check_exact(eqn: JaxprEqn, indices: Sequence[Interval]) -> None:
    if not all(index.exact for index in indices):
        raise ArgumentError(
            f"fun: the indices of its {eqn.primitive.name!r} depend on the box, which has no interval rule"
        )


_BILINEAR = ("conv_general_dilated", "dot_general", "mul")
_NONLINEAR = (
    "abs", "cos", "eq", "erf", "exp", "exp2", "expm1", "ge", "gt", "integer_pow", "le", "log", "log1p",
    "logaddexp", "logistic", "lt", "max", "min", "ne", "reduce_max", "reduce_min", "reduce_window_max",
    "reduce_window_min", "rsqrt", "select_n", "sign", "sin", "sort", "sqrt", "square", "tanh",
)  # fmt: skip
"""Primitives whose results are closer if the bounds of their inputs are, by more than what is linear."""


def _is_nonlinear(name: str, inputs: Sequence[Interval]) -> bool:
    if name == "div":
        return not inputs[1].exact
    return name in _NONLINEAR or (name in _BILINEAR and not any(value.exact for value in inputs))


_monotone = _increasing(ulps=None)

_RULES: dict[str, Callable[..., Any]] = {
    "abs": lambda eqn, x: _absolute(x),
    "add": _add,
    "add_any": _add,
    "and": _logical,
    "argmax": _arg_extreme,
    "argmin": _arg_extreme,
    "atan": _increasing(),
    "broadcast_in_dim": _moved,
    "cbrt": _increasing(),
    "ceil": _monotone,
    "clamp": _monotone,
    "concatenate": _joined,
    "conv_general_dilated": _bilinear(_convolution_terms),
    "convert_element_type": _converted,
    "cos": lambda eqn, x: _wave(eqn, x, 0.0),
    "cosh": lambda eqn, x: _increasing(1.0)(eqn, _absolute(x)),
    "cummax": _monotone,
    "cummin": _monotone,
    "cumsum": _sums(lambda eqn, x: x.shape[eqn.params["axis"]]),
    "div": _div,
    "dot_general": _bilinear(_dot_terms),
    "dynamic_slice": _moved,
    "dynamic_update_slice": _updated,
    "eq": _compare,
    "erf": _increasing(-1.0, 1.0),
    "erfc": _erfc,
    "exp": _exp,
    "exp2": _increasing(0.0),
    "expand_dims": _moved,
    "expm1": _increasing(-1.0),
    "floor": _monotone,
    "gather": _moved,
    "ge": _compare,
    "gt": _compare,
    "integer_pow": _integer_pow,
    "le": _compare,
    "log": _on_positive,
    "log1p": _log1p,
    "log2": _on_positive,
    "logaddexp": _logaddexp,
    "logistic": _increasing(0.0, 1.0),
    "lt": _compare,
    "max": _max,
    "min": _monotone,
    "mul": _mul,
    "ne": _compare,
    "neg": _neg,
    "not": _not,
    "one_minus_square": lambda eqn, a: _one_minus_square(a),
    "or": _logical,
    "pad": _joined,
    "reduce_and": _monotone,
    "reduce_max": _monotone,
    "reduce_min": _monotone,
    "reduce_or": _monotone,
    "reduce_precision": lambda eqn, x: outwards(*_both(eqn, x)),
    "reduce_sum": _sum,
    "reduce_window_max": _monotone,
    "reduce_window_min": _monotone,
    "reduce_window_sum": _sums(lambda eqn, x: math.prod(eqn.params["window_dimensions"])),
    "reshape": _moved,
    "rev": _moved,
    "round": _monotone,
    "rsqrt": _rsqrt,
    "scatter-add": _scatter_add,
    "select_n": _select,
    "sign": _monotone,
    "sin": lambda eqn, x: _wave(eqn, x, math.pi / 2),
    "sinh": _increasing(),
    "slice": _moved,
    "sort": _sort,
    "split": _split,
    "sqrt": _on_positive,
    "square": lambda eqn, x: _square(x),
    "squeeze": _moved,
    "stack": _joined,
    "sub": _sub,
    "tanh": _increasing(-1.0, 1.0),
    "transpose": _moved,
    "unstack": _split,
}
"""By primitive, the rule for the interval of its output, if some input depends on the box."""

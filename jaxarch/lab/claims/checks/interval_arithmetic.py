"""Statements on JAX's numbers and on intervals, whose ends python-flint rounds outward.

A statement is one function of numbers, written with `+ - *` and the functions of `Numbers`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
from collections.abc import Callable
from typing import Any, Protocol

import jax.numpy as jnp
from jax import Array

from jaxarch.lab.checks import from_extra


class Numbers(Protocol):
    """Functions that statements may use besides `+`, `-` and `*`, for JAX's numbers and for intervals."""

    def tanh(self, x: Any) -> Any:
        """The hyperbolic tangent."""

    def square(self, x: Any) -> Any:
        """`x^2`, which intervals know to be nonnegative."""

    def divide(self, x: Any, y: Any) -> Any:
        """`x / y` for y > 0."""

    def share(self, part: Any, whole: Any) -> Any:
        """`part / whole` for `0 <= part <= whole`; any number in [0, 1] where both are 0."""

    def minimum(self, x: Any, y: Any) -> Any:
        """The smaller of x and y."""

    def maximum(self, x: Any, y: Any) -> Any:
        """The larger of x and y."""


Slack = Callable[..., Any]
"""`slack(numbers, **variables)`: the larger side of an inequality minus the smaller, in some unit.

It is not negative where the inequality holds.
"""


class Reals:
    """JAX's numbers."""

    tanh = staticmethod(jnp.tanh)
    square = staticmethod(jnp.square)
    divide = staticmethod(jnp.divide)
    minimum = staticmethod(jnp.minimum)
    maximum = staticmethod(jnp.maximum)

    @staticmethod
    def share(part: Array, whole: Array) -> Array:
        """`part / whole`, and 1 where both are 0."""
        return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1), 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Interval:
    """All numbers from `low` to `high`, exact numbers of python-flint; results are rounded outward."""

    low: Any
    high: Any

    def __add__(self, other: Interval | float) -> Interval:
        other = interval(other)
        return Interval((self.low + other.low).lower(), (self.high + other.high).upper())

    def __mul__(self, other: Interval | float) -> Interval:
        other = interval(other)
        products = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(_least([p.lower() for p in products]), _greatest([p.upper() for p in products]))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __sub__(self, other: Interval | float) -> Interval:
        return self + -interval(other)

    def __rsub__(self, other: float) -> Interval:
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__


def flint_is_installed() -> bool:
    """Tell if python-flint is installed, whose numbers are the ends of intervals."""
    return importlib.util.find_spec("flint") is not None


def _exact(value: Any) -> Any:
    """Turn a value into a number of python-flint."""
    with from_extra("proofs", "intervals: a proof"):
        from flint import arb
    return arb(value)


def interval(value: Interval | float, high: float | None = None) -> Interval:
    """Return the interval from `value` to `high`, or of `value` alone; floats are exact."""
    if isinstance(value, Interval):
        return value
    return Interval(_exact(value), _exact(value if high is None else high))


class Intervals:
    """Interval arithmetic."""

    @staticmethod
    def tanh(x: Interval) -> Interval:
        """The hyperbolic tangent of both ends, as it increases; rounding outward must not leave [-1, 1]."""
        low, high = x.low.tanh().lower(), x.high.tanh().upper()
        return Interval(_greatest([low, _exact(-1)]), _least([high, _exact(1)]))

    @staticmethod
    def square(x: Interval) -> Interval:
        """`x^2`, nonnegative even if x contains both signs."""
        ends = [x.low * x.low, x.high * x.high]
        low = _exact(0) if x.low <= 0 <= x.high else _least([end.lower() for end in ends])
        return Interval(low, _greatest([end.upper() for end in ends]))

    @staticmethod
    def divide(x: Interval, y: Interval) -> Interval:
        """`x / y` for y > 0."""
        return x * Interval((1 / y.high).lower(), (1 / y.low).upper())

    @staticmethod
    def share(part: Interval, whole: Interval) -> Interval:
        """`part / whole`, kept within [0, 1] although the intervals may reach beyond."""
        low, high = _exact(0), _exact(1)
        if whole.high > 0:
            low = _greatest([low, (part.low / whole.high).lower()])
        if whole.low > 0:
            high = _least([high, (part.high / whole.low).upper()])
        return Interval(low, high)

    @staticmethod
    def minimum(x: Interval | float, y: Interval | float) -> Interval:
        """End by end."""
        x, y = interval(x), interval(y)
        return Interval(_least([x.low, y.low]), _least([x.high, y.high]))

    @staticmethod
    def maximum(x: Interval | float, y: Interval | float) -> Interval:
        """End by end."""
        x, y = interval(x), interval(y)
        return Interval(_greatest([x.low, y.low]), _greatest([x.high, y.high]))


# The ends are exact numbers, so comparisons of them are certain.
def _least(values: list[Any]) -> Any:
    return functools.reduce(lambda a, b: b if b < a else a, values)


def _greatest(values: list[Any]) -> Any:
    return functools.reduce(lambda a, b: b if b > a else a, values)

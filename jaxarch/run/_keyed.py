"""Equal by what they say: functions and settings as keys, so that a second, equal call compiles nothing.

`jax.jit` knows a function by its identity. Stages, problems and optax's transformations are made anew by
every call of a notebook cell; here they are known by what they were made of.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np

from jaxarch.run._problem import Problem

Kind = TypeVar("Kind")

LIBRARIES = ("jaxarch", "optax", "jax", "jaxlib", "flax", "numpy")
"""Whose functions never change while a program runs: they are known by code and captured values."""

_SMALL = 64
"""Arrays of at most so many entries are known by them; others, which JAX never changes, by identity."""


class Keyed:
    """A function that is equal to another of the same key, and calls the one that it was made of.

    The key is taken when it is made, so that a captured list that has changed since makes another one.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__wrapped__ = function
        self._key = key_of(function)
        self._hash = hash(self._key)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns."""
        return self.__wrapped__(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash


class _Is:
    """Equal to itself alone: what is not known by its parts. It is kept alive, so that it stays itself."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Is) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def equal_by_key(kind: type[Kind]) -> type[Kind]:
    """A decorator for frozen dataclasses: two of equal parts are equal, whatever their parts are."""

    def __eq__(self: Any, other: object) -> bool:
        return type(self) is type(other) and key_of(self) == key_of(other)

    def __hash__(self: Any) -> int:
        return hash(key_of(self))

    kind.__eq__, kind.__hash__ = __eq__, __hash__  # type: ignore[method-assign]
    return kind


def keyed(value: Any) -> Any:
    """A function, or an optax transformation, as one that is equal to those made of the same parts."""
    if value is None or isinstance(value, Keyed):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(keyed(part) for part in value))
    return Keyed(value)


def unkeyed(function: Any) -> Any:
    """Return the function that a `Keyed` was made of, whose errors have a frame less; others as they are."""
    return function.__wrapped__ if isinstance(function, Keyed) else function


def shapes_of(function: Callable[..., Any], *args: Any) -> Any:
    """`jax.eval_shape`, which traces a function once for all those that are equal to it."""
    return _called.eval_shape(keyed(function), *args)


@functools.partial(jax.jit, static_argnums=0)
def _called(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def keyed_problem(problem: Problem) -> Problem:
    """A problem whose functions are equal to those of a problem made by an equal call."""
    descent = problem.descent
    return dataclasses.replace(
        problem,
        init=keyed(problem.init),
        loss=keyed(problem.loss),
        gather=keyed(problem.gather),
        predict=keyed(problem.predict),
        metrics=keyed(problem.metrics),
        descent=dataclasses.replace(descent, optimizer=keyed(descent.optimizer)),
    )


def key_of(value: Any, *, traced_alike: bool = False) -> Any:
    """What a value is known by: hashable, and equal for values that do the same.

    Numbers, texts, tuples, lists, dicts, small arrays, dataclasses that are frozen and functions of the
    `LIBRARIES` are known by their parts; all else, a user's functions among them, by identity, as in
    `jax.jit`. A traced value is known by identity too, or with `traced_alike` by its shape and dtype.
    """
    return _key(value, (), traced_alike)


def _key(value: Any, above: tuple[int, ...], traced_alike: bool) -> Any:
    if value is None or isinstance(value, (bool, int, str, bytes, type, np.dtype, enum.Enum)):
        return type(value), value
    if isinstance(value, (float, complex)):
        # By text: NaN is like NaN, and -0.0 is not like 0.0.
        return type(value), repr(value)
    if id(value) in above:
        return "above", len(above) - above.index(id(value))
    if isinstance(value, Keyed):
        return value._key
    if isinstance(value, jax.core.Tracer):
        return ("traced", value.shape, value.dtype) if traced_alike else _Is(value)
    inner = functools.partial(_key, above=(*above, id(value)), traced_alike=traced_alike)
    return (
        _of_array(value)
        or _of_container(value, inner)
        or _of_function(value, inner)
        or _of_object(value, inner)
        or _Is(value)
    )


def _of_array(value: Any) -> Any:
    """The key of an array; `None` for any other value."""
    if (type(value) is np.ndarray or isinstance(value, np.generic)) and value.dtype.kind != "O":
        return "array", value.dtype, value.shape, value.tobytes()
    if isinstance(value, jax.Array):
        is_small = value.size <= _SMALL and value.is_fully_addressable
        if is_small and not jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            return "array", value.dtype, value.shape, value.weak_type, np.asarray(value).tobytes()
        return _Is(value)
    return None


def _of_container(value: Any, inner: Callable[[Any], Any]) -> Any:
    """The key of a tuple, a list or a dict; `None` for any other value."""
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(inner, value))
    if type(value) in (dict, types.MappingProxyType):
        return dict, _of_items(value, inner)
    return None


def _of_items(value: Mapping[Any, Any], inner: Callable[[Any], Any]) -> tuple[Any, ...]:
    return tuple((inner(name), inner(part)) for name, part in value.items())


def _of_function(value: Any, inner: Callable[[Any], Any]) -> Any:
    """The key of a function that is known by what it was made of; `None` for any other value."""
    if isinstance(value, functools.partial):
        return functools.partial, inner(value.func), inner(value.args), inner(value.keywords)
    if isinstance(value, types.MethodType):
        return types.MethodType, inner(value.__func__), inner(value.__self__)
    if isinstance(value, types.FunctionType) and _is_of_a_library(value.__globals__.get("__name__")):
        captured = tuple(map(inner, captured_by(value)))
        defaults = inner(value.__defaults__), inner(value.__kwdefaults__)
        return value.__module__, value.__qualname__, value.__code__, captured, defaults
    return None


def _of_object(value: Any, inner: Callable[[Any], Any]) -> Any:
    """The key of an object that cannot change or is of a library; `None` for any other value."""
    # Its own parameters: a class that is derived from a frozen dataclass may hold anything.
    if getattr(vars(type(value)).get("__dataclass_params__"), "frozen", False):
        fields = tuple(inner(getattr(value, field.name)) for field in dataclasses.fields(value))
        return type(value), fields
    if _is_of_a_library(type(value).__module__):
        if isinstance(value, Mapping):
            return type(value), _of_items(value, inner)
        if _hashes_by_value(value):
            return type(value), value
    return None


def _is_of_a_library(module: str | None) -> bool:
    return (module or "").split(".")[0] in LIBRARIES


def _hashes_by_value(value: Any) -> bool:
    if type(value).__hash__ in (None, object.__hash__):
        return False
    try:
        hash(value)
    except TypeError:
        return False
    return True


def captured_by(function: types.FunctionType) -> tuple[Any, ...]:
    """The values that a function has captured, in the order of its free variables."""
    return tuple(_content(cell) for cell in function.__closure__ or ())


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        # Not yet assigned, in a function that refers to itself.
        return None

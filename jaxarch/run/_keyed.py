"""Functions and settings as keys that compare by content, so that a second, equal call compiles nothing.

`jax.jit` compares functions by identity. Every call of a notebook cell makes stages, problems and optax
transformations anew, so here they are compared by what they were made of.
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
"""Libraries whose functions never change while a program runs; code and captured values identify them."""

_SMALL = 64
"""Arrays of at most this many entries compare by content, larger (immutable) JAX arrays by identity."""


class Keyed:
    """A function that equals another with the same key, and calls the one that it was made of.

    The key is taken on construction, so that a captured list that has changed since gives another key.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__wrapped__ = function
        self._key = key_of(function)
        self._hash = hash(self._key)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped function."""
        return self.__wrapped__(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash


class _Is:
    """Wrapper that compares by identity; the reference keeps the `id` valid."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Is) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def equal_by_key(kind: type[Kind]) -> type[Kind]:
    """Make instances of a frozen dataclass equal if their parts have equal keys; a decorator."""

    def __eq__(self: Any, other: object) -> bool:
        return type(self) is type(other) and key_of(self) == key_of(other)

    def __hash__(self: Any) -> int:
        return hash(key_of(self))

    kind.__eq__, kind.__hash__ = __eq__, __hash__  # type: ignore[method-assign]
    return kind


def keyed(value: Any) -> Any:
    """Return a function, or an optax transformation, that equals others made of the same parts."""
    if value is None or isinstance(value, Keyed):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(keyed(part) for part in value))
    return Keyed(value)


def unkeyed(function: Any) -> Any:
    """Return the function inside a `Keyed`, for one frame less in tracebacks; other values as they are."""
    return function.__wrapped__ if isinstance(function, Keyed) else function


def shapes_of(function: Callable[..., Any], *args: Any) -> Any:
    """Evaluate shapes like `jax.eval_shape`, tracing a function once for all functions equal to it."""
    return _called.eval_shape(keyed(function), *args)


@functools.partial(jax.jit, static_argnums=0)
def _called(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def keyed_problem(problem: Problem) -> Problem:
    """Return the problem with functions that equal those of a problem made by an equal call."""
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
    """Return a hashable key of a value, equal for values that do the same.

    Numbers, texts, tuples, lists, dicts, small arrays, frozen dataclasses and functions of the `LIBRARIES`
    compare by their parts. All other values compare by identity, as in `jax.jit`; a user's functions are
    among them. A traced value compares by identity too, or with `traced_alike` by its shape and dtype.
    """
    return _key(value, (), traced_alike)


def _key(value: Any, above: tuple[int, ...], traced_alike: bool) -> Any:
    if value is None or isinstance(value, (bool, int, str, bytes, type, np.dtype, enum.Enum)):
        # True, 1 and 1.0 are equal and have one hash, so the type is part of the key.
        return type(value), value
    if isinstance(value, (float, complex)):
        # Compare by text: NaN equals NaN, and -0.0 differs from 0.0.
        return type(value), repr(value)
    # A value that contains itself is known by how far above it stands.
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
    """Return the key of an array; `None` for any other value."""
    # A subclass, such as a masked array, may hold more than its bytes.
    if (type(value) is np.ndarray or isinstance(value, np.generic)) and value.dtype.kind != "O":
        return "array", value.dtype, value.shape, value.tobytes()
    if isinstance(value, jax.Array):
        # Typed random keys cannot be converted to NumPy arrays, so they compare by identity.
        is_small = value.size <= _SMALL and value.is_fully_addressable
        if is_small and not jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            # A weakly typed number promotes differently, so it makes another program.
            return "array", value.dtype, value.shape, value.weak_type, np.asarray(value).tobytes()
        return _Is(value)
    return None


def _of_container(value: Any, inner: Callable[[Any], Any]) -> Any:
    """Return the key of a tuple, a list or a dict; `None` for any other value."""
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(inner, value))
    if type(value) in (dict, types.MappingProxyType):
        return dict, _of_items(value, inner)
    return None


def _of_items(value: Mapping[Any, Any], inner: Callable[[Any], Any]) -> tuple[Any, ...]:
    return tuple((inner(name), inner(part)) for name, part in value.items())


def _of_function(value: Any, inner: Callable[[Any], Any]) -> Any:
    """Return the key of a function that compares by its parts; `None` for any other value."""
    if isinstance(value, functools.partial):
        return functools.partial, inner(value.func), inner(value.args), inner(value.keywords)
    if isinstance(value, types.MethodType):
        return types.MethodType, inner(value.__func__), inner(value.__self__)
    # `functools.wraps` copies `__module__`, so only the globals tell whose function this is.
    if isinstance(value, types.FunctionType) and _is_of_a_library(value.__globals__.get("__name__")):
        captured = tuple(map(inner, captured_by(value)))
        defaults = inner(value.__defaults__), inner(value.__kwdefaults__)
        return value.__module__, value.__qualname__, value.__code__, captured, defaults
    return None


def _of_object(value: Any, inner: Callable[[Any], Any]) -> Any:
    """Return the key of an object that cannot change or belongs to a library; `None` for any other value."""
    # Look at the class's own parameters: a subclass of a frozen dataclass may hold anything.
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
    """Return the values that a function has captured, in the order of its free variables."""
    return tuple(_content(cell) for cell in function.__closure__ or ())


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        # The cell is not yet assigned, in a function that refers to itself.
        return None

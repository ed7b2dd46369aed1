"""Digest of the definition of a stage and its descent, equal in every process."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxarch._internal.trees import is_key, raw_numbers
from jaxarch.run._keyed import captured_by


def fingerprint(value: Any) -> str:
    """Return a SHA-256 of a value's definition, equal for values made by equal calls in any process.

    It covers numbers, texts and `None`, arrays by their content, and tuples, lists, sets, dicts and
    dataclasses by their parts. Functions count by module and qualified name, by their defaults and by the
    values that they have captured, where 100 and 100.0 are alike. So `optax.sgd(.1)` differs from
    `optax.sgd(5.)`.

    It does not cover a function's code or the globals that it reads. Two functions of one name are alike, for
    instance two lambdas in one place, or one function before and after an edit. Of any other object it covers
    only the type and the name, and of a traced value only that it is traced.
    """
    return _of(value, ())


def _of(value: Any, above: tuple[int, ...]) -> str:
    atom = _of_atom(value)
    if atom is not None:
        return atom
    # A value that contains itself is known by how far above it stands.
    if id(value) in above:
        return _digest("above", str(len(above) - above.index(id(value))))
    inner = functools.partial(_of, above=(*above, id(value)))
    return _of_container(value, inner) or _of_function(value, inner)


def _of_atom(value: Any) -> str | None:
    """Return the digest of a value without parts; `None` for any other."""
    # Enums come first, since members of an `IntEnum` are integers too.
    if isinstance(value, enum.Enum):
        return _digest("enum", _name(type(value)), value.name)
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.dtype)):
        return _digest("value", _name(type(value)), repr(value))
    if isinstance(value, type):
        return _digest("type", _name(value))
    if isinstance(value, jax.core.Tracer):
        return _digest("traced")
    return None


def _of_container(value: Any, inner: Callable[[Any], str]) -> str | None:
    """Return the digest of an array, a collection or a dataclass; `None` for any other value."""
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        return _of_array(value, inner)
    if isinstance(value, (tuple, list)):
        return _digest("sequence", _name(type(value)), *map(inner, value))
    if isinstance(value, (set, frozenset)):
        # The order of a set of texts differs from process to process.
        return _digest("set", *sorted(map(inner, value)))
    if isinstance(value, (dict, types.MappingProxyType)):
        return _digest("dict", *(inner(part) for item in value.items() for part in item))
    if dataclasses.is_dataclass(value):
        fields = (inner(getattr(value, field.name, None)) for field in dataclasses.fields(value))
        return _digest("dataclass", _name(type(value)), *fields)
    return None


def _of_function(value: Any, inner: Callable[[Any], str]) -> str:
    """Return the digest of a function, by its definition and its parts, or of an object, by its type."""
    if isinstance(value, functools.partial):
        return _digest("partial", *map(inner, (value.func, value.args, value.keywords)))
    if isinstance(value, types.MethodType):
        return _digest("method", inner(value.__func__), inner(value.__self__))
    if isinstance(value, types.FunctionType):
        captured = (inner(_count(part)) for part in captured_by(value))
        defaults = inner(value.__defaults__), inner(value.__kwdefaults__)
        return _digest("function", _name(value), *defaults, *captured)
    if hasattr(value, "__wrapped__"):
        return inner(value.__wrapped__)
    return _digest("object", _name(type(value)), _name(value))


def _count(value: Any) -> Any:
    """Turn a whole float into an integer: Optax's schedules turn captured steps into floats when called."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _of_array(value: Any, inner: Callable[[Any], str]) -> str:
    if is_key(value):
        return _digest("key", str(value.dtype), inner(raw_numbers(value)))
    array = np.asarray(value)
    is_object = array.dtype.kind == "O"
    # The bytes of an array of objects are addresses, which differ from process to process.
    content = inner(array.tolist()) if is_object else hashlib.sha256(array.tobytes()).hexdigest()
    return _digest("array", str(array.dtype), str(array.shape), content)


def _name(definition: Any) -> str:
    """Return the module and the qualified name of a definition; empty texts for those it lacks."""
    name = getattr(definition, "__qualname__", None) or getattr(definition, "__name__", "")
    return f"{getattr(definition, '__module__', '')}.{name}"


def _digest(*parts: str) -> str:
    # Hash the text of a tuple of texts, so that no two lists of parts run into one.
    return hashlib.sha256(repr(parts).encode()).hexdigest()

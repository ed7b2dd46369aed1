"""Transformations that compare equal if their `update` computes the same."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
import optax

from jaxarch._internal.errors import is_traced
from jaxarch._internal.trees import PyTree

UNCHANGING = ("optax", "jax", "jaxarch")
"""Packages whose functions read no changing globals, so that code and closure determine the result."""


class SameUpdate(optax.GradientTransformationExtraArgs):
    """A transformation that reads its mask from the state: equal to one with a different mask.

    `jax.jit` and `nnx.jit` look a program up by the equality of its static arguments. The rounds of a lottery
    ticket, each with its own `hold`, therefore share one program.
    """

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SameUpdate):
            return NotImplemented
        # A program that contains `init` holds the mask as a constant: another mask needs another program.
        return self.update == other.update and (
            self.init is other.init or not (_is_in_a_program(self.init) or _is_in_a_program(other.init))
        )

    # A named tuple has its own `__ne__`, which does not call `__eq__` above.
    def __ne__(self, other: object) -> bool:
        return not self == other

    # Equal transformations need equal hashes. One hash for all will do: few optimizers are keys of one table.
    def __hash__(self) -> int:
        return hash(SameUpdate)


def same_update(
    init: Callable[[PyTree], PyTree], update: Callable[..., tuple[PyTree, PyTree]], made_of: Any
) -> SameUpdate:
    """Return a transformation that is equal to others whose `update` is made of the same parts.

    Args:
      init: as in optax. Values that only `init` reads, such as a mask, do not count for equality.
      update: as in optax. It reads everything but `made_of` from its arguments.
      made_of: all other values that it computes with: optimizers, numbers, functions of optax.
    """
    return SameUpdate(_Init(init), _Update(update, made_of))


class _Init:
    """A function that remembers whether it has been traced."""

    def __init__(self, function: Callable[[PyTree], PyTree]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.traced = False

    def __call__(self, params: PyTree) -> PyTree:
        state = self.function(params)
        self.traced |= is_traced(state)
        return state


class _Update:
    """A function that is equal to others made of the same parts."""

    def __init__(self, function: Callable[..., tuple[PyTree, PyTree]], made_of: Any) -> None:
        # Training code inspects the signature to see whether `update` takes an argument `step`.
        functools.update_wrapper(self, function)
        self.function = function
        self.made_of = made_of
        # Read the form now: when called, schedules of optax replace integers in their closures by floats.
        try:
            self.form: Hashable | None = _form(made_of)
        except _NotReadableError:
            self.form = None

    def __call__(self, *arguments: Any, **extra: Any) -> tuple[PyTree, PyTree]:
        return self.function(*arguments, **extra)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Update):
            return NotImplemented
        return self.made_of is other.made_of or (self.form is not None and self.form == other.form)

    def __hash__(self) -> int:
        return hash(_Update)


class _NotReadableError(Exception):
    """A value whose meaning may change, or is not known: a user's function, an array, an object."""


def _is_in_a_program(init: Any) -> bool:
    return not isinstance(init, _Init) or init.traced


def _form(value: Any) -> Hashable:
    """Return plain data, equal for values that compute the same, such as two results of `optax.adam(1e-2)`.

    Raises:
      _NotReadableError: a value that may change, or whose meaning is not known.
    """
    if (
        value is None
        or type(value) in (bool, int, float, complex, str, bytes)
        or isinstance(value, np.number)
    ):
        # Compare by type and text, since 1, 1.0 and True are equal, and so are 0.0 and -0.0.
        return type(value), repr(value)
    if isinstance(value, (type, np.dtype, BuiltinFunctionType)):
        return value
    if isinstance(value, (tuple, list)):
        return type(value), *map(_form, value)
    if isinstance(value, dict):
        return type(value), *((_form(key), _form(entry)) for key, entry in value.items())
    if isinstance(value, functools.partial):
        return functools.partial, *map(_form, (value.func, value.args, value.keywords))
    if isinstance(value, MethodType) and type(value.__self__).__module__.split(".")[0] in UNCHANGING:
        return _form(value.__func__), _form(vars(value.__self__))
    if isinstance(value, FunctionType):
        name = value.__globals__.get("__name__", "")
        if name.split(".")[0] in UNCHANGING:
            try:
                closure = [cell.cell_contents for cell in value.__closure__ or ()]
                return name, value.__code__, *map(_form, (closure, value.__defaults__, value.__kwdefaults__))
            except (ValueError, RecursionError):  # an empty cell; a function that is in its own closure
                pass
    raise _NotReadableError

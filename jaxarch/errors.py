"""Errors and warnings that speak to the user: one line, naming the argument and what would be right."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np


class ArgumentError(ValueError):
    """A value handed in by the user cannot be used.

    The message is one line: the argument's name, what it was, and what would be right. The command line
    prints it and ends with exit status 2; anything else that is raised is a fault of the library's own.
    """


class NonFiniteWarning(UserWarning):
    """A run met NaN or Inf in its loss; the message names strategy, run and step."""


class DeadStartWarning(UserWarning):
    """A trainable leaf receives a gradient of exactly zero as training begins."""


class ResultWarning(UserWarning):
    """A search ended without what it was asked for; the message names strategy, runs and what was found."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The tail of an error on an unknown name: the nearest known one, or all of them."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(known)


def one_line(error: BaseException) -> str:
    """What another library's error says, for the tail of one of ours."""
    return " ".join(str(error).split()) or type(error).__name__


def first_line(error: BaseException, width: int = 160) -> str:
    """The beginning of what another library's error says, where the rest is of no help."""
    return textwrap.shorten(one_line(error), width, placeholder=" ...")


def is_traced(value: object) -> bool:
    """Whether a value is only known inside a JAX transformation, so that it cannot be checked."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))


def check_positive(name: str, value: object) -> None:
    """Raise unless every entry of a number or array is positive and finite. Traced values pass.

    Raises:
      ArgumentError: naming the argument.
    """
    if is_traced(value):
        return
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name}: expected a positive number, got {value!r}") from None
    if not (np.isfinite(array) & (array > 0)).all():
        raise ArgumentError(f"{name}: expected a positive finite number, got {value}")


def check_strength(name: str, value: object) -> None:
    """Raise unless a number, or every entry of an array, is finite and at least 0. Traced values pass."""
    if is_traced(value):
        return
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "iuf" or not (np.isfinite(numbers) & (numbers >= 0)).all():
        raise ArgumentError(f"{name}: expected a finite number of at least 0, got {value!r}")


def check_one_strength(name: str, value: Any) -> None:
    """Raise unless it is one finite number of at least 0. Of traced values, the shape is checked."""
    if np.shape(value) != ():
        raise ArgumentError(
            f"{name}: expected one number, got shape {np.shape(value)}; for one a run pass them as "
            "`settings` of over_seeds"
        )
    check_strength(name, value)


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raise unless a static size is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ArgumentError(f"{name}: expected an integer of at least {least}, got {value!r}")


def check_key(name: str, value: object) -> None:
    """Raise unless a static number makes a random key: an integer of 32 bits, at least 0."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value < 2**32:
        raise ArgumentError(f"{name}: expected an integer from 0 to 2^32 - 1, got {value!r}")


def check_keys(keys: object) -> None:
    """Raise unless they are a vector of random keys, one a run."""
    dtype: Any = getattr(keys, "dtype", None)
    shape: tuple[int, ...] = getattr(keys, "shape", ())
    expected = "keys: expected shape (runs,), as of jax.random.split(jax.random.key(0), runs)"
    if isinstance(keys, jax.Array) and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        if len(shape) != 1 or not shape[0]:
            raise ArgumentError(expected)
    elif dtype == np.uint32 and shape[-1:] == (2,):
        raise ArgumentError(
            f"{expected}; these are old keys, of jax.random.PRNGKey: use jax.random.key, or "
            "jax.random.wrap_key_data(keys)"
        )
    else:
        raise ArgumentError(expected)


def check_known(argument: str, names: Sequence[str], known: Iterable[str]) -> None:
    """Raise unless there is at least one name, and each is known."""
    known = list(known)
    if not names:
        raise ArgumentError(f"{argument}: expected at least one of {', '.join(known)}")
    for name in names:
        if name not in known:
            raise ArgumentError(f"{argument}: unknown {name!r}; {did_you_mean(name, known)}")


def check_distinct(name: str, values: Sequence[Any]) -> None:
    """Raise if a value occurs twice: its runs would be counted twice."""
    repeated = [value for index, value in enumerate(values) if value in values[:index]]
    if repeated:
        raise ArgumentError(f"{name}: {repeated[0]} is named twice")


def check_widths(widths: object) -> None:
    """Raise unless they are an input size and that of at least one layer."""
    if not isinstance(widths, Sequence) or isinstance(widths, str) or len(widths) < 2:
        raise ArgumentError(f"widths: expected an input size and at least one layer, got {widths!r}")
    for width in widths:
        check_count("widths", width)

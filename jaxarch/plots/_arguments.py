"""Arguments of figures, read and checked before drawing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxarch._internal.errors import (
    ArgumentError,
    check_list,
    check_mapping,
    real_number,
    real_numbers,
    shown,
)

Reader = Callable[[str, Any], Any]
"""A function of a name, for messages, and a value; it returns the checked value."""


def nested(name: str, value: Any, levels: str, read: Reader) -> dict[str, Any]:
    """Read the data of a figure from dicts of dicts.

    Args:
      name: the argument's name.
      value: the argument's value.
      levels: words for the keys of each level, the outermost first, such as `"row, column, line"`.
      read: the reader of the values in the innermost dicts.

    Raises:
      ArgumentError: data of another form; the message names the argument and the keys that lead to it.
    """
    first, _, rest = levels.partition(", ")
    check_mapping(name, value, f"a dict by {first}")
    inner: Reader = (lambda name, value: nested(name, value, rest, read)) if rest else read
    return {str(key): inner(f"{name}: {shown(key)}", entry) for key, entry in value.items()}


def panels(name: str, value: Any, levels: str, read: Reader) -> dict[str, Any]:
    """Read nested data like `nested`, and raise if there is nothing to draw."""
    found = nested(name, value, levels, read)
    if not any(found.values()):
        raise ArgumentError(f"{name}: nothing to draw")
    return found


def array(axes: str | None = None) -> Reader:
    """Return a reader of real numbers, NaN included, as an array with these axes, or with any."""
    wanted = None if axes is None else len(axes.replace(",", "").split())

    def read(name: str, value: Any) -> np.ndarray:
        found: np.ndarray = real_numbers(name, value)
        if wanted is not None and found.ndim != wanted:
            raise ArgumentError(f"{name}: expected shape ({axes}), got {found.shape}")
        return found

    return read


def pair(first: str, second: str) -> Reader:
    """Return a reader of two arrays with these axes, sharing the last one unless the first is a number."""

    def read(name: str, value: Any) -> tuple[np.ndarray, np.ndarray]:
        check_list(name, value, "two arrays")
        if len(value) != 2:
            raise ArgumentError(f"{name}: expected two arrays, got {shown(value)}")
        one, other = array(first)(name, value[0]), array(second)(name, value[1])
        if one.ndim and one.shape[-1] != other.shape[-1]:
            raise ArgumentError(
                f"{name}: expected arrays of the same length, got {one.shape} and {other.shape}"
            )
        return one, other

    return read


def optional(read: Reader, name: str, value: Any) -> Any:
    """Read a value; `None` stays `None`."""
    return None if value is None else read(name, value)


def numbers(name: str, value: Any) -> dict[str, float]:
    """Read one number per name."""
    return nested(name, value, "name", real_number)


def flags(name: str, value: Any) -> tuple[bool, bool]:
    """Read two flags: whether the x axis and the y axis are logarithmic."""
    if not isinstance(value, tuple | list) or [type(flag) for flag in value] != [bool, bool]:
        raise ArgumentError(f"{name}: expected two booleans, for x and y, got {shown(value)}")
    return value[0], value[1]

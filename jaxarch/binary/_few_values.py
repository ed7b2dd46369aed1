"""Numbers that an array of a program can hold, if they are few whatever the inputs are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import JaxprEqn

from jaxarch.structure._flow import AS_THEY_ARE, MOVES, bind

Values = tuple[float, ...]
"""The numbers, in order. Empty if they are many or unknown."""

_MOST = 3
_UNIONS = (*MOVES, *AS_THEY_ARE, "copy", "copy_p")
"""Primitives that move or repeat entries of their inputs."""
_ENTRYWISE = (
    "abs", "add", "add_any", "clamp", "convert_element_type", "div", "integer_pow", "max", "min", "mul",
    "neg", "reduce_precision", "sign", "square", "sub",
)  # fmt: skip
"""Primitives whose entries depend on one entry of each input."""


def known_values(array: Any) -> Values:
    """Return the value of a number that is known; of another array, the values that its dtype allows."""
    if np.ndim(array) == 0 and not isinstance(array, jax.core.Tracer) and _is_real(array):
        return _few([float(array)])
    return values_of_dtype(array)


def values_of_dtype(array: Any) -> Values:
    """Return the values that an array's dtype allows."""
    return (0.0, 1.0) if array.dtype == np.bool_ else ()


def made_values(eqn: JaxprEqn, taken: Sequence[Values]) -> list[Values]:
    """Return the values of an equation's outputs, given those of its inputs. Any entry may also be NaN."""
    few = _moved_or_computed(eqn, taken)
    return [values_of_dtype(var.aval) or few for var in eqn.outvars]


def _moved_or_computed(eqn: JaxprEqn, taken: Sequence[Values]) -> Values:
    """Return values that hold for each output of an equation."""
    name = eqn.primitive.name
    if name == "sign" and not taken[0]:
        return (-1.0, 0.0, 1.0) if _is_real(eqn.outvars[0].aval) else ()
    entries = taken[1:] if name == "select_n" else taken
    if not all(entries):
        return ()
    if name == "select_n" or name in _UNIONS:
        return _few(itertools.chain(*entries))
    if name in _ENTRYWISE and _is_real(eqn.outvars[0].aval):
        numbers = [_computed(eqn, each) for each in itertools.product(*entries)]
        return _few([*numbers, 0.0] if _makes_integers(eqn) else numbers)
    return ()


def _makes_integers(eqn: JaxprEqn) -> bool:
    """Return whether an equation converts floating-point numbers to integers. NaN becomes 0."""
    kinds = [jax.numpy.issubdtype(atom.aval.dtype, np.integer) for atom in (*eqn.invars, *eqn.outvars)]  # type: ignore[attr-defined]
    return eqn.primitive.name == "convert_element_type" and kinds == [False, True]


def _computed(eqn: JaxprEqn, numbers: Sequence[float]) -> float:
    """Evaluate an equation on one number of each input."""
    avals = (atom.aval for atom in eqn.invars)
    scalars = [np.asarray(number, aval.dtype) for number, aval in zip(numbers, avals, strict=True)]  # type: ignore[attr-defined]
    with jax.ensure_compile_time_eval():
        return float(bind(eqn, scalars)[0])


def _few(numbers: Any) -> Values:
    found = sorted({number + 0.0 for number in numbers})
    # Larger integers may have been rounded, and comparisons with NaN are false.
    return tuple(found) if len(found) <= _MOST and all(abs(number) < 2**53 for number in found) else ()


def _is_real(array: Any) -> bool:
    return jax.numpy.issubdtype(array.dtype, np.integer) or jax.numpy.issubdtype(array.dtype, np.floating)

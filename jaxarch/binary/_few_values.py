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
_UNIONS = (*MOVES, *AS_THEY_ARE, "copy", "copy_p", "reduce_max", "reduce_min")
"""Primitives that move, repeat or choose entries of their inputs."""
_ENTRYWISE = (
    "abs", "add", "add_any", "clamp", "convert_element_type", "div", "integer_pow", "max", "min", "mul",
    "neg", "reduce_precision", "sign", "square", "sub",
)  # fmt: skip
"""Primitives whose entries depend on one entry of each input."""


def known_values(array: Any) -> Values:
    """Return the value of a number that is known; of another array, the values that its dtype allows."""
    if np.ndim(array) == 0 and not isinstance(array, jax.core.Tracer) and _is_real(array):
        return (float(array),)
    return values_of_dtype(array)


def values_of_dtype(array: Any) -> Values:
    """Return the values that an array's dtype allows."""
    return (0.0, 1.0) if array.dtype == np.bool_ else ()


def made_values(eqn: JaxprEqn, taken: Sequence[Values]) -> Values:
    """Return the values of an equation's outputs, given those of its inputs."""
    name, aval = eqn.primitive.name, eqn.outvars[0].aval
    if aval.dtype == np.bool_:  # type: ignore[attr-defined]
        return 0.0, 1.0
    if name == "sign" and not taken[0]:
        return (-1.0, 0.0, 1.0) if _is_real(aval) else ()
    entries = taken[1:] if name == "select_n" else taken
    if not all(entries):
        return ()
    if name == "select_n" or name in _UNIONS:
        return _few(itertools.chain(*entries))
    if name in _ENTRYWISE and _is_real(aval):
        return _few(_computed(eqn, each) for each in itertools.product(*entries))
    return ()


def _computed(eqn: JaxprEqn, numbers: Sequence[float]) -> float:
    """Evaluate an equation on one number of each input."""
    avals = (atom.aval for atom in eqn.invars)
    scalars = [np.asarray(number, aval.dtype) for number, aval in zip(numbers, avals, strict=True)]  # type: ignore[attr-defined]
    with jax.ensure_compile_time_eval():
        return float(bind(eqn, scalars)[0])


def _few(numbers: Any) -> Values:
    found = sorted({number + 0.0 for number in numbers})
    return tuple(found) if len(found) <= _MOST and np.isfinite(found).all() else ()


def _is_real(array: Any) -> bool:
    return jax.numpy.issubdtype(array.dtype, np.integer) or jax.numpy.issubdtype(array.dtype, np.floating)

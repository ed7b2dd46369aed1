"""Comparison of two traced programs, operation by operation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from jaxarch.structure._constants import is_key
from jaxarch.structure._flow import CALLED, ENTRYWISE, inner, literal
from jaxarch.structure._host import computed
from jaxarch.structure._scans import SCAN_COUNTS, scan_counts


class _Operation(NamedTuple):
    """One equation: its primitive, its parameters, and the numbers of its inputs and outputs."""

    name: str
    params: dict[str, Any]
    taken: tuple[Any, ...]
    made: tuple[int, ...]


def are_alike(first: ClosedJaxpr, second: ClosedJaxpr, but_for_numbers: bool = False) -> bool:
    """Return whether two programs are the same equations on the same values, ignoring calls.

    Args:
      first: a program.
      second: another program.
      but_for_numbers: whether single numbers may differ, outside of loops and branches.
    """
    one, other = _outline(first), _outline(second)
    return (_without_numbers(one) == _without_numbers(other)) if but_for_numbers else one == other


def _without_numbers(outline: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace the constants of shape () in an outline by their dtypes."""
    shapes, lines, outputs = outline

    def blank(value: Any) -> Any:
        return value[:2] if isinstance(value, tuple) and value[0] == () else value

    return (
        shapes,
        [(name, params, (*map(blank, taken),), made) for name, params, taken, made in lines],
        outputs,
    )


def _outline(closed: ClosedJaxpr) -> tuple[Any, ...]:
    """Outline a program: without calls, unused and repeated operations, and with its values numbered.

    Constants are copied for each of their uses (see `_copies`), so equal ones count as one value.
    """
    shapes: list[Any] = [(var.aval.shape, var.aval.dtype) for var in closed.jaxpr.invars]
    found: list[_Operation] = []
    outputs = _flatten(closed, list(range(len(shapes))), found, itertools.count(len(shapes)))
    used = {number for number in outputs if isinstance(number, int)}
    kept: list[_Operation] = []
    for operation in reversed(found):
        if used & set(operation.made):
            used |= {number for number in operation.taken if isinstance(number, int)}
            kept.append(operation)
    numbers = {number: number for number in range(len(shapes))}
    same: dict[tuple[Any, ...], list[_Operation]] = {}
    new = itertools.count(len(shapes))

    def numbered(value: Any) -> Any:
        return numbers[value] if isinstance(value, int) else value

    lines = []
    # What is unused is gone before: an equal operation would else stand in its place.
    for operation in reversed(kept):
        taken = tuple(map(numbered, operation.taken))
        alike = same.setdefault((operation.name, *taken), [])
        before = next((each for each in alike if each.params == operation.params), None)
        if before is None:
            alike.append(operation)
            lines.append((operation.name, operation.params, taken, len(operation.made)))
            numbers |= {number: next(new) for number in operation.made}
        else:
            numbers |= dict(zip(operation.made, map(numbered, before.made), strict=True))
    return tuple(shapes), lines, tuple(map(numbered, outputs))


def _flatten(
    closed: ClosedJaxpr, inputs: Sequence[Any], operations: list[_Operation], free: Iterator[int]
) -> list[Any]:
    """Add the operations of a program, and return its outputs as numbers or constants."""
    jaxpr = closed.jaxpr
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, map(_constant, closed.consts), strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Any:
        return _constant(literal(atom)) if isinstance(atom, Literal) else known[atom]

    for eqn in jaxpr.eqns:
        taken = [read(atom) for atom in eqn.invars]
        made: Sequence[Any]
        if eqn.primitive.name in CALLED:
            made = _flatten(inner(eqn), taken, operations, free)
        elif _changes_nothing(eqn):
            made = taken
        elif _is_number(eqn, taken):
            # A number may be converted in Python or by the traced program; both must compare equal.
            made = [_constant(each) for each in computed(eqn, [_array(each) for each in taken])]
        else:
            params = {name: _param(value) for name, value in _params(eqn).items()}
            made = tuple(itertools.islice(free, len(eqn.outvars)))
            operations.append(_Operation(eqn.primitive.name, params, tuple(taken), made))
        known.update(zip(eqn.outvars, made, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _changes_nothing(eqn: JaxprEqn) -> bool:
    """Return whether an equation converts an array to the dtype that it has."""
    name = eqn.primitive.name
    return name == "convert_element_type" and eqn.invars[0].aval.dtype == eqn.outvars[0].aval.dtype  # type: ignore[attr-defined]


def _is_number(eqn: JaxprEqn, taken: Sequence[Any]) -> bool:
    """Return whether an equation computes one number from literals of the program."""
    exact = eqn.primitive.name in ENTRYWISE and len(eqn.outvars) == 1
    return exact and all(isinstance(each, tuple) and each[0] == () for each in taken)


def _array(constant: tuple[Any, ...]) -> np.ndarray:
    """Undo `_constant`."""
    shape, dtype, numbers = constant
    return np.frombuffer(numbers, jnp.dtype(dtype)).reshape(shape)


def _constant(value: Any) -> tuple[Any, ...]:
    """Turn a number or an array into a tuple that can be compared."""
    if is_key(jax.typeof(value)):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    return array.shape, str(array.dtype), array.tobytes()


def _params(eqn: JaxprEqn) -> dict[str, Any]:
    """Return the parameters of an equation; a scan's trees, which also list removed inputs, become counts."""
    if eqn.primitive.name != "scan":
        return eqn.params
    others = {name: value for name, value in eqn.params.items() if name not in SCAN_COUNTS}
    return others | {"counts": scan_counts(eqn)}


def _param(value: Any) -> Any:
    """Return a parameter in a form that can be compared; programs become outlines."""
    if isinstance(value, ClosedJaxpr):
        return _outline(value)
    if isinstance(value, tuple) and any(isinstance(part, ClosedJaxpr) for part in value):
        return tuple(map(_param, value))
    return value

"""Functions as traced programs, and inputs that a program returns unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from jaxarch._internal.errors import ArgumentError, first_line, shown
from jaxarch._internal.trees import PyTree
from jaxarch.structure._flow import CALLED, inner
from jaxarch.structure._scans import scan_counts


def traced(
    function: Callable[..., Any], *arguments: PyTree, name: str = "function"
) -> tuple[ClosedJaxpr, PyTree]:
    """Trace a function; return its program and the shapes of its outputs.

    Args:
      function: the function.
      *arguments: its arguments, arrays or their shapes.
      name: the caller's name for the function, for errors.

    Raises:
      ArgumentError: a function that cannot be traced or that has side effects.
    """
    try:
        closed, outputs = jax.make_jaxpr(function, return_shape=True)(*arguments)
    except Exception as error:
        raise ArgumentError(f"{name}: it cannot be traced: {first_line(error)}") from error
    if closed.effects:
        raise ArgumentError(f"{name}: it has side effects, {shown(closed.effects)}; remove them")
    return closed, outputs


def hashable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that JAX can keep a program for."""
    try:
        hash(function)
    except TypeError:
        return lambda *arguments: function(*arguments)
    return function


class _Source(NamedTuple):
    """An input of a program, and the order of its axes; `()` if it is unchanged."""

    number: int
    order: tuple[int, ...] = ()


_Sources = list[_Source | None]
"""The inputs that values are equal to; `None` for computed values."""


def passed_on(closed: ClosedJaxpr) -> list[int | None]:
    """Return, for each output of a program, the index of the input that it is; `None` if it is computed.

    An input that is transposed and transposed back counts as returned: `nnx.scan` does so to layers stacked
    on other axes.
    """
    return [None if source is None or source.order else source.number for source in _sources(closed)]


def _sources(closed: ClosedJaxpr) -> _Sources:
    jaxpr = closed.jaxpr
    known: dict[Any, _Source | None] = {var: _Source(number) for number, var in enumerate(jaxpr.invars)}

    def read(atom: Any) -> _Source | None:
        return None if isinstance(atom, Literal) else known.get(atom)

    for eqn in jaxpr.eqns:
        taken = [read(atom) for atom in eqn.invars]
        known.update(zip(eqn.outvars, _made(eqn, taken), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _reordered(source: _Source | None, order: Sequence[int]) -> _Source | None:
    """Return an input with its axes in another order."""
    if source is None or not order:
        return source
    after = tuple(source.order[axis] if source.order else axis for axis in order)
    return _Source(source.number, () if after == tuple(range(len(after))) else after)


def _made(eqn: JaxprEqn, taken: Sequence[_Source | None]) -> _Sources:
    name, params = eqn.primitive.name, eqn.params
    if name in (*CALLED, "custom_vjp_call"):
        return [
            None if source is None else _reordered(taken[source.number], source.order)
            for source in _sources(inner(eqn))
        ]
    if name in ("copy", "copy_p", "optimization_barrier"):
        return list(taken)
    if name == "transpose":
        return [_reordered(taken[0], params["permutation"])]
    if name == "scan":
        # Outputs are unchanged if each round returns this carry, or returns rows as it takes them.
        consts, carries = scan_counts(eqn)
        found: _Sources = []
        for number, source in enumerate(passed_on(params["jaxpr"]), start=consts):
            rows = number >= consts + carries
            same = source is not None and (source >= consts + carries if rows else source == number)
            found.append(taken[source] if same and source is not None else None)
        return found
    if name == "while":
        before = params["body_nconsts"]
        carried = taken[params["cond_nconsts"] + before :]
        sources = enumerate(passed_on(params["body_jaxpr"]))
        return [carried[number] if source == before + number else None for number, source in sources]
    if name == "cond":
        branches = zip(*map(_sources, params["branches"]), strict=True)
        agreed = [sources[0] if len(set(sources)) == 1 else None for sources in branches]
        return [
            None if source is None else _reordered(taken[1 + source.number], source.order)
            for source in agreed
        ]
    return [None] * len(eqn.outvars)

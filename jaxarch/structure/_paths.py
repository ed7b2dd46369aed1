"""Sums over the paths of a traced network, from its inputs to its outputs, with its activations held.

A network of products, sums and piecewise linear activations is a sum over paths: `f(x) = sum_p v_p a_p x_p`.
`v_p` is the product of the parameters along path p, `x_p` the input at its start (1 at a bias), and `a_p` the
product of the slopes along it. The walk computes sums of squares over all paths, one equation at a time.
Numbers that belong to a path multiply, and paths that meet add. It computes one of two sums:

- Of held activations: `sum_p (a_p x_p)^2`, over the paths whose parameters are left. Slopes are those of the
  network's own values, which are computed beside the sums.
- Of open activations: `sum_p v_p^2`. Every slope is 1; where an activation chooses, the larger sum goes on.

Numbers that are neither parameters nor inputs, such as running statistics, count as slopes. Sums carry the
logarithm of a common factor, since they grow with the width of every layer and would overflow float32.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from jaxarch._internal.errors import ArgumentError
from jaxarch.structure._flow import AS_THEY_ARE, CALLED, MOVES, PRODUCTS, bind, inner

_LINEAR = (
    *MOVES, *AS_THEY_ARE, "add", "add_any", "convert_element_type", "copy", "copy_p", "cumsum", "name",
    "reduce_precision", "reduce_sum", "reduce_window_sum", "sub",
)  # fmt: skip
"""Primitives that add, move or repeat what comes along paths. Signs are squared: differences are sums."""
_SIGNS = ("abs", "neg")
_STEPS = ("ceil", "floor", "round", "sign")
"""Functions whose slope is 0: for paths, their values are numbers like the inputs."""
_POOLINGS = ("reduce_max", "reduce_window_max")
_LOOKUPS = ("dynamic_slice", "gather")


class Sums(NamedTuple):
    """Sums over paths to each entry of the outputs.

    Attributes:
      outputs: the sums, divided by a factor.
      log: the logarithm of that factor.
    """

    outputs: list[Array]
    log: Array


@dataclasses.dataclass(frozen=True)
class _Value:
    """An array on the way.

    Attributes:
      true: the network's own array; `None` if it is not known, since it depends on inputs or parameters.
      sums: the sums over the paths that lead to it; `None` for an array without parameters.
      log: the logarithm of the factor by which the sums are divided.
      leaves: the numbers of the parameters on its paths.
    """

    true: Any
    sums: Any = None
    log: Any = 0.0
    leaves: frozenset[int] = frozenset()


def held_sums(closed: ClosedJaxpr, params: Sequence[Array], left: Sequence[Array], inputs: Any) -> Sums:
    """Return `sum_p (a_p x_p)^2` over the paths whose parameters are left.

    Args:
      closed: a program that takes parameters, then inputs.
      params: the parameters.
      left: whether each of them is left, as numbers 1 and 0.
      inputs: the inputs.

    Raises:
      ArgumentError: a program whose paths are not known.
    """
    values = [_Value(true, one, leaves=frozenset([i])) for i, (true, one) in enumerate(_pairs(params, left))]
    return _sums(closed, [*values, *map(_Value, inputs)], held=True)


def open_sums(closed: ClosedJaxpr, squares: Sequence[Array]) -> Sums:
    """Return `sum_p v_p^2`, from the squares of the parameters.

    Args:
      closed: a program that takes parameters, then inputs.
      squares: the squares of the parameters.

    Raises:
      ArgumentError: a program whose paths are not known.
    """
    values = [_Value(None, square, leaves=frozenset([i])) for i, square in enumerate(squares)]
    inputs = len(closed.jaxpr.invars) - len(values)
    return _sums(closed, [*values, *[_Value(None)] * inputs], held=False)


def added(sums: Sums) -> Sums:
    """Add sums along a leading axis, each of them with its own factor."""
    log = jnp.max(sums.log)
    factors = jnp.exp(sums.log - log)
    return Sums([jnp.tensordot(factors.astype(leaf.dtype), leaf, 1) for leaf in sums.outputs], log)


def _pairs(params: Sequence[Array], left: Sequence[Array]) -> Any:
    return zip(params, left, strict=True)


def _sums(closed: ClosedJaxpr, values: Sequence[_Value], held: bool) -> Sums:
    walk = _Walk(held)
    made = walk.program(closed, values)
    avals = closed.out_avals
    floats = [i for i, aval in enumerate(avals) if jnp.issubdtype(aval.dtype, jnp.floating)]
    if not floats:
        raise ArgumentError("outputs: expected floating-point arrays, got none")
    arrays, log = walk.aligned([made[i] for i in floats], [avals[i] for i in floats])
    return Sums(arrays, jnp.asarray(log))


class _Walk:
    """A walk through a program, with held activations or with open ones."""

    def __init__(self, held: bool) -> None:
        self._held = held

    def program(self, closed: ClosedJaxpr, values: Sequence[_Value]) -> list[_Value]:
        """Return the outputs of a program."""
        jaxpr = closed.jaxpr
        known: dict[Any, _Value] = dict(zip(jaxpr.constvars, map(_Value, closed.consts), strict=True))
        known.update(zip(jaxpr.invars, values, strict=True))

        def read(atom: Any) -> _Value:
            return _Value(jnp.asarray(atom.val, atom.aval.dtype)) if isinstance(atom, Literal) else known[atom]

        for eqn in jaxpr.eqns:
            known.update(zip(eqn.outvars, self._equation(eqn, [read(atom) for atom in eqn.invars]), strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def aligned(self, values: Sequence[_Value], avals: Sequence[Any]) -> tuple[list[Any], Any]:
        """Return sums with one common factor, and its logarithm."""
        sums = [self._of(value, aval) for value, aval in zip(values, avals, strict=True)]
        logs = [value.log for value in values]
        if all(isinstance(log, float) for log in logs):
            return sums, 0.0
        log = jnp.stack(jnp.broadcast_arrays(*logs)).max(0)
        return [of * jnp.exp(own - log).astype(of.dtype) for of, own in zip(sums, logs, strict=True)], log

    def _of(self, value: _Value, aval: Any) -> Any:
        """Return the sums of a value; a number without parameters is the start, or a slope, of a path."""
        if value.sums is not None:
            return value.sums
        dtype = aval.dtype if jnp.issubdtype(aval.dtype, jnp.inexact) else jnp.float32
        if value.true is None:
            return jnp.ones(aval.shape, dtype)
        return jnp.square(value.true.astype(dtype)) if self._held else (value.true != 0).astype(dtype)

    def _equation(self, eqn: JaxprEqn, taken: list[_Value]) -> list[_Value]:
        name, leaves = eqn.primitive.name, frozenset[int]().union(*(value.leaves for value in taken))
        if name in CALLED:
            return self.program(inner(eqn), taken)
        trues: list[Any] = [None] * len(eqn.outvars)
        if all(value.true is not None for value in taken):
            trues = bind(eqn, [value.true for value in taken])
        is_float = jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating)  # type: ignore[attr-defined]
        if not leaves and (self._held or name not in MOVES or trues[0] is not None) or not is_float:
            return [_Value(true) for true in trues]
        if name in _STEPS:
            return [_Value(trues[0])]
        made = self._rule(name)(eqn, taken, leaves)
        if not isinstance(made, _Value):
            sums, log = made
            return [_Value(t, of, log, leaves) for t, of in zip(trues, sums, strict=True)]
        return [dataclasses.replace(made, true=trues[0], leaves=leaves)]

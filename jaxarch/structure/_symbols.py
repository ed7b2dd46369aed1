"""Followed programs for a symbolic number of examples, as `jax.export` passes it.

JAX traces `x[:, 0]` as other operations where a size of `x` is a symbol. So a program is traced for two and
for many examples. If these traces differ in the number of examples alone, sizes that differ are multiples of
it, and the symbol is put in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.export import is_symbolic_dim
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from jaxarch._internal.errors import ArgumentError
from jaxarch._internal.trees import PyTree
from jaxarch.structure._batches import differ_in_examples
from jaxarch.structure._copies import copy_constants
from jaxarch.structure._flow import Program, Step, inner, only_called
from jaxarch.structure._tracing import traced

NOT_A_SYMBOL = (
    "inputs: with this symbolic size the program cannot be cut. The size must be the number of examples, of "
    "which each must be computed on its own, whatever their number. Pass inputs with numbers as sizes"
)
MANY = 10_007
"""A number of examples beside two: a large prime, for which `n // 4` and `n < 8` are other than for few."""


def is_symbolic(inputs: PyTree) -> bool:
    """Return whether a size of some inputs is a symbol of `jax.export`."""
    return bool(_symbols(inputs))


def _symbol_of(inputs: PyTree) -> Any:
    """Return the one symbol of some inputs.

    Raises:
      ArgumentError: several symbols, or a term such as `2*b`.
    """
    symbols = _symbols(inputs)
    if len(symbols) > 1 or not all(name.isidentifier() for name in symbols):
        raise ArgumentError(
            f"inputs: expected one symbol for the number of examples, got {', '.join(sorted(symbols))}"
        )
    return next(iter(symbols.values()))


def with_numbers(inputs: tuple[PyTree, ...], number: Any = 2) -> tuple[PyTree, ...]:
    """Return the shapes of inputs with a number for the symbol; without symbols the inputs themselves.

    Raises:
      ArgumentError: several symbols, or a term such as `2*b`.
    """
    if not is_symbolic(inputs):
        return inputs
    _symbol_of(inputs)

    def shape(leaf: Any) -> jax.ShapeDtypeStruct:
        sizes = [number if is_symbolic_dim(size) else size for size in jnp.shape(leaf)]
        return jax.ShapeDtypeStruct(sizes, leaf.dtype)

    return jax.tree.map(shape, inputs)


def check_any_number(function: Callable[..., Any], tree: PyTree, inputs: tuple[PyTree, ...]) -> None:
    """Raise if a function branches on the number of examples.

    JAX raises where it has to compare a symbol. The symbol here has no constraints, which could decide for a
    branch that a few examples do not take.

    Raises:
      ArgumentError: it does, or it cannot be traced with a symbol.
    """
    (symbol,) = jax.export.symbolic_shape(str(_symbol_of(inputs)))
    traced(function, tree, *with_numbers(inputs, symbol))


def at_any_number(
    program: Program, two: ClosedJaxpr, function: Callable[..., Any], tree: PyTree, inputs: tuple[PyTree, ...]
) -> Program:
    """Return a followed program for inputs with a symbolic number of examples.

    Args:
      program: the program, followed for two examples.
      two: its trace.
      function: the function that was traced.
      tree: its first argument.
      inputs: the inputs with a symbol.

    Raises:
      ArgumentError: as in `check_any_number`; examples that meet; a program that depends on their number.
    """
    check_any_number(function, tree, inputs)
    many, _ = traced(function, tree, *with_numbers(inputs, MANY))
    if not differ_in_examples(two, many):
        raise ArgumentError(NOT_A_SYMBOL)
    return _at_sizes(program, _with_symbol(two, many, _symbol_of(inputs)))


def _symbols(inputs: PyTree) -> dict[str, Any]:
    sizes = [size for leaf in jax.tree.leaves(inputs) for size in jnp.shape(leaf)]
    return {str(size): size for size in sizes if is_symbolic_dim(size)}


def _with_symbol(two: ClosedJaxpr, many: ClosedJaxpr, symbol: Any) -> ClosedJaxpr:
    """Return the program for a symbolic number of examples.

    Args:
      two: the program for two examples.
      many: the program for many, which must differ from the first in the number of examples alone.
      symbol: the symbol.
    """
    one, other = two.jaxpr, many.jaxpr
    made: dict[Any, Var] = {}
    for var, beside in zip(_variables(one), _variables(other), strict=True):
        shape = _sizes(getattr(var.aval, "shape", ()), getattr(beside.aval, "shape", ()), symbol)
        made[var] = Var(var.aval.update(shape=shape) if shape else var.aval)

    def read(atoms: Sequence[Any]) -> list[Any]:
        return [atom if isinstance(atom, Literal) else made[atom] for atom in atoms]

    eqns = [
        eqn.replace(
            invars=read(eqn.invars),
            outvars=read(eqn.outvars),
            params={key: _param(eqn.params[key], beside.params[key], symbol) for key in eqn.params},
        )
        for eqn, beside in zip(one.eqns, other.eqns, strict=True)
    ]
    variables = {key: read(getattr(one, key)) for key in ("constvars", "invars", "outvars")}
    return ClosedJaxpr(one.replace(**variables, eqns=eqns), two.consts)


def _param(two: Any, many: Any, symbol: Any) -> Any:
    """Return a parameter of an equation: its programs and sizes may have examples."""
    if isinstance(two, ClosedJaxpr):
        return _with_symbol(two, many, symbol)
    if isinstance(two, Jaxpr):
        return _with_symbol(ClosedJaxpr(two, ()), ClosedJaxpr(many, ()), symbol).jaxpr
    if type(two) is tuple and len(two) == len(many):
        if all(isinstance(size, (int, np.integer)) for size in two):
            return _sizes(two, many, symbol)
        return tuple(_param(*each, symbol) for each in zip(two, many, strict=True))
    return two


def _sizes(two: Sequence[Any], many: Sequence[Any], symbol: Any) -> tuple[Any, ...]:
    pairs = zip(two, many, strict=True)
    return tuple(size if size == beside else size // 2 * symbol for size, beside in pairs)


def _at_sizes(program: Program, closed: ClosedJaxpr) -> Program:
    """Return a followed program with the equations of the same program for inputs of other sizes.

    Args:
      program: a followed program.
      closed: its program for the other inputs, which must differ from the first in sizes alone.
    """
    closed = copy_constants(closed, only_called)
    before, after = program.closed.jaxpr, closed.jaxpr
    other = dict(zip(_variables(before), _variables(after), strict=True))
    steps = []
    for step, eqn in zip(program.steps, after.eqns, strict=True):
        assert step.eqn.primitive is eqn.primitive, (step.eqn, eqn)
        called = [_at_sizes(*each) for each in zip(step.programs, _called_by(eqn, step), strict=True)]
        steps.append(step._replace(eqn=eqn, programs=tuple(called)))
    whole = frozenset(other[var] for var in program.whole)
    return program._replace(closed=closed, steps=tuple(steps), whole=whole)


def _variables(jaxpr: Any) -> list[Any]:
    return [*jaxpr.constvars, *jaxpr.invars, *(var for eqn in jaxpr.eqns for var in eqn.outvars)]


def _called_by(eqn: JaxprEqn, step: Step) -> Sequence[ClosedJaxpr]:
    """Return the programs of an equation in the order of the step's."""
    if not step.programs:
        return ()
    match eqn.primitive.name:
        case "cond":
            return eqn.params["branches"]
        case "while":
            return eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
        case _:
            return (inner(eqn),)

"""Programs run with some products replaced. Values of parameters alone are computed only if they are read."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from jaxarch.binary._few_values import Values, known_values, made_values
from jaxarch.structure._flow import CALLED, MOVES, bind, inner, literal


@dataclasses.dataclass(frozen=True)
class Value:
    """A value of a program.

    Attributes:
      get: returns the array.
      few: the numbers that its entries can be, if they are few whatever the inputs are.
      leaves: the paths of the parameters that it is made of, if it depends on nothing else. Such an array is
        computed only if something reads it. `None` for an array that depends on inputs.
      recipe: a number for the parameters and the primitives that make it, in their order.
    """

    get: Callable[[], Any]
    few: Values = ()
    leaves: frozenset[str] | None = None
    recipe: int = 0


def known(array: Any) -> Value:
    """Return a constant of the program as a value."""
    return Value(held(array), known_values(array))


def held(array: Any) -> Callable[[], Any]:
    """Return a function that returns an array."""
    return lambda: array


@dataclasses.dataclass(frozen=True)
class Product:
    """A product of activations with a matrix that depends on parameters alone.

    Attributes:
      eqn: the equation, a `dot_general`.
      side: 1 if the matrix is the second factor, 0 if it is the first.
      matrix: the array that holds the matrix.
      activations: the other factor.
    """

    eqn: JaxprEqn
    side: int
    matrix: Value
    activations: Value

    @property
    def can_be_replaced(self) -> bool:
        """True for one product of two matrices of floating-point numbers."""
        batched = self.eqn.params["dimension_numbers"][1][0]
        avals = [atom.aval for atom in (*self.eqn.invars, *self.eqn.outvars)]
        return not batched and all(jnp.issubdtype(aval.dtype, jnp.floating) for aval in avals)  # type: ignore[attr-defined]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array that holds the matrix."""
        return self.eqn.invars[self.side].aval.shape  # type: ignore[attr-defined]

    @property
    def recipe(self) -> tuple[Any, ...]:
        """The way in which the matrix is made. With other inputs, a program may multiply by another one."""
        return self.matrix.recipe, self._order(self.side, last=False)

    def rows_first(self, array: Any) -> Any:
        """Return the array as a matrix of shape (rows, columns); products sum over its rows."""
        order, *shape = self._order(self.side, last=False)
        return array.transpose(order).reshape(shape)

    def with_matrix(self, matrix: Array) -> Array:
        """Return the product, as the equation computes it, with a matrix that `rows_first` returned."""
        order, *_ = self._order(self.side, last=False)
        shape = tuple(self.shape[axis] for axis in order)
        factors = [self.activations.get(), matrix.reshape(shape).transpose(tuple(np.argsort(order)))]
        return bind(self.eqn, factors if self.side == 1 else factors[::-1])[0]

    def examples(self) -> Array:
        """Return the activations as a matrix of shape (examples, rows)."""
        order, rows, examples = self._order(1 - self.side, last=True)
        return self.activations.get().transpose(order).reshape(examples, rows)

    def outputs(self, found: Array) -> Array:
        """Return a product of shape (examples, columns) as the equation returns it."""
        aval: Any = self.eqn.outvars[0].aval
        found = found if self.side == 1 else found.T
        return found.reshape(aval.shape).astype(aval.dtype)

    def _order(self, side: int, last: bool) -> tuple[tuple[int, ...], int, int]:
        """Return the axes of a factor, summed ones last or first, and the sizes of summed and other axes."""
        summed = self.eqn.params["dimension_numbers"][0][side]
        shape = self.eqn.invars[side].aval.shape  # type: ignore[attr-defined]
        others = tuple(axis for axis in range(len(shape)) if axis not in summed)
        order = (*others, *summed) if last else (*summed, *others)
        # No -1 in place of a size: it would be unknown beside a size of 0.
        return order, *(math.prod(shape[axis] for axis in axes) for axes in (summed, others))


@dataclasses.dataclass(frozen=True)
class Walk:
    """A way to run a program.

    Attributes:
      replace: returns a product, or `None` to have it computed as it stands.
      read: is told the paths of the parameters that anything else reads.
      early: whether what depends on parameters alone is computed at once, outside of any trace.
    """

    replace: Callable[[Product], Array | None]
    read: Callable[[frozenset[str]], None]
    early: bool

    def outputs(self, closed: ClosedJaxpr, inputs: Sequence[Value]) -> list[Any]:
        """Return the outputs of a program."""
        return [self._read(value) for value in self._program(closed, inputs)]

    def _program(self, closed: ClosedJaxpr, inputs: Sequence[Value]) -> list[Value]:
        jaxpr = closed.jaxpr
        values = dict(zip(jaxpr.constvars, map(known, closed.consts), strict=True))
        values.update(zip(jaxpr.invars, inputs, strict=True))

        def value_of(atom: Any) -> Value:
            if isinstance(atom, Literal):
                number = literal(atom)
                return dataclasses.replace(known(number), leaves=frozenset(), recipe=hash(str(number)))
            return values[atom]

        for eqn in jaxpr.eqns:
            taken = [value_of(atom) for atom in eqn.invars]
            called = eqn.primitive.name in CALLED
            made = self._program(inner(eqn), taken) if called else self._equation(eqn, taken)
            values.update(zip(eqn.outvars, made, strict=True))
        return [value_of(atom) for atom in jaxpr.outvars]

    def _equation(self, eqn: JaxprEqn, taken: Sequence[Value]) -> list[Value]:
        few = made_values(eqn, [value.few for value in taken])
        leaves = [value.leaves for value in taken if value.leaves is not None]
        if len(leaves) == len(taken):
            arrays = functools.cache(lambda: self._bound(eqn, [value.get() for value in taken]))
            union = frozenset[str]().union(*leaves)
            recipe = (_moves(eqn), *(value.recipe for value in taken))
            return [
                Value(functools.partial(_part, arrays, part), of, union, hash((part, recipe)))
                for part, of in enumerate(few)
            ]
        product = self._product(eqn, taken)
        replaced = None if product is None else self.replace(product)
        if replaced is not None:
            return [Value(held(replaced))]
        made = bind(eqn, [self._read(value) for value in taken])
        return [Value(held(array), of) for array, of in zip(made, few, strict=True)]

    def _product(self, eqn: JaxprEqn, taken: Sequence[Value]) -> Product | None:
        """Return a product of activations with parameters, if the equation is one."""
        if eqn.primitive.name != "dot_general":
            return None
        side = int(taken[1].leaves is not None)
        matrix, activations = taken[side], taken[1 - side]
        product = Product(eqn, side, matrix, activations)
        return product if matrix.leaves and product.can_be_replaced else None

    def _bound(self, eqn: JaxprEqn, arrays: Sequence[Any]) -> list[Any]:
        if not self.early:
            return bind(eqn, arrays)
        with jax.ensure_compile_time_eval():
            return bind(eqn, arrays)

    def _read(self, value: Value) -> Any:
        self.read(value.leaves or frozenset())
        return value.get()


def leaf(path: str, get: Callable[[], Any]) -> Value:
    """Return a parameter as a value."""
    return Value(get, (), frozenset([path]), hash(path))


def _moves(eqn: JaxprEqn) -> str:
    """Return the name of a primitive and, if it moves entries, the places."""
    places = {key: of for key, of in eqn.params.items() if eqn.primitive.name in MOVES and key != "sharding"}
    return f"{eqn.primitive.name} {places}"


def _part(arrays: Callable[[], list[Any]], part: int) -> Any:
    return arrays()[part]

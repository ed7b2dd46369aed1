"""Sums over the paths of a traced network, from its inputs to its outputs, with its activations held.

A network of products, sums and piecewise linear activations is a sum over paths: `f(x) = sum_p v_p a_p x_p`.
`v_p` is the product of the parameters along path p, `x_p` the input at its start (1 at a bias), and `a_p` the
product of the slopes along it. The walk computes sums of squares over all paths, one equation at a time.
Numbers that belong to a path multiply, and paths that meet add. It computes one of three sums:

- Of held activations: `sum_p (a_p x_p)^2`, over the paths whose parameters are left. Slopes are those of the
  network's own values, which are computed beside the sums.
- Of open activations: `sum_p v_p^2`. Every slope is 1; where an activation chooses, the larger sum goes on.
- Of a graph: the number of paths from the inputs on which a mask keeps every connection; see `graph_sums`.

Numbers that are neither parameters nor inputs, such as running statistics, count as slopes. Sums carry the
logarithm of a common factor, since they grow with the width of every layer and would overflow float32.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from jaxarch._internal.errors import ArgumentError
from jaxarch.structure._flow import AS_THEY_ARE, CALLED, LOOKUPS, MOVES, PRODUCTS, bind, inner, literal

_LINEAR = (
    *MOVES, *AS_THEY_ARE, "add", "add_any", "convert_element_type", "copy", "copy_p", "cumsum", "name",
    "reduce_precision", "reduce_sum", "reduce_window_sum", "sub",
)  # fmt: skip
"""Primitives that add, move or repeat what comes along paths. Signs are squared: differences are sums."""
_SIGNS = ("abs", "neg")
_STEPS = ("ceil", "floor", "round", "sign", "stop_gradient")
"""Functions whose slope is 0: for paths, their values are numbers like the inputs."""
_POOLINGS = ("reduce_max", "reduce_window_max")
_ONE_TO_ONE = (
    *_STEPS, "atan", "cos", "erf", "integer_pow", "logistic", "sin", "square", "tanh",
)  # fmt: skip
"""Activation functions of one value. A path of a graph leads through them, whatever their slope."""
_NOT_AT_0 = ("cos", "logistic")
"""Functions that are not 0 at 0: a pruned weight would be a connection again."""
_COMPARISONS = ("and", "eq", "ge", "gt", "is_finite", "le", "lt", "ne", "not", "or", "xor")
"""Functions whose truth values choose between others."""


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
      unknown: the primitive after which its paths are unknown; `None` if they are known.
    """

    true: Any
    sums: Any = None
    log: Any = 0.0
    leaves: frozenset[int] = frozenset()
    unknown: str | None = None


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


def graph_sums(closed: ClosedJaxpr, masks: Sequence[Array | None], reached: bool = False) -> Sums:
    """Return the number of paths from the inputs to each entry of the outputs.

    Paths begin at inputs alone: biases, and all else that is added to values of inputs, begin none. Entries
    of leaves without a mask are connections. Maxima over windows or axes add the paths of their entries.
    Where an activation chooses between two values, the larger number goes on. That of the value which chooses
    counts among them.

    Args:
      closed: a program that takes leaves, then inputs.
      masks: whether each connection of a leaf is kept, as numbers 1 and 0; `None` for an unmasked leaf.
      reached: whether a path exists at all is computed instead, as numbers 1 and 0. Nothing overflows or
        vanishes then, and the gradient by a mask is positive exactly where a connection is on a path.

    Raises:
      ArgumentError: a program whose paths are not known.
    """
    values = [
        _Value(None) if mask is None else _Value(None, mask, leaves=frozenset([i]))
        for i, mask in enumerate(masks)
    ]
    for number, aval in enumerate(closed.in_avals[len(values) :], start=1):
        values.append(_Value(None, jnp.ones(aval.shape, jnp.float32), leaves=frozenset([-number])))
    return _summed(closed, values, _Graph(reached))


def added(sums: Sums) -> Sums:
    """Add sums along a leading axis, each of them with its own factor."""
    log = jnp.max(sums.log)
    factors = jnp.exp(sums.log - log)
    return Sums([jnp.tensordot(factors.astype(leaf.dtype), leaf, 1) for leaf in sums.outputs], log)


def _pairs(params: Sequence[Array], left: Sequence[Array]) -> Any:
    return zip(params, left, strict=True)


def _sums(closed: ClosedJaxpr, values: Sequence[_Value], held: bool) -> Sums:
    return _summed(closed, values, _Walk(held))


def _summed(closed: ClosedJaxpr, values: Sequence[_Value], walk: _Walk) -> Sums:
    made = walk.program(closed, values)
    avals = closed.out_avals
    floats = [i for i, aval in enumerate(avals) if jnp.issubdtype(aval.dtype, jnp.floating)]
    if not floats:
        raise ArgumentError("outputs: expected floating-point arrays, got none")
    arrays, log = walk.ends([made[i] for i in floats], [avals[i] for i in floats])
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
            return _Value(jnp.asarray(literal(atom))) if isinstance(atom, Literal) else known[atom]

        for eqn in jaxpr.eqns:
            made = self._equation(eqn, [read(atom) for atom in eqn.invars])
            known.update(zip(eqn.outvars, made, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def ends(self, values: Sequence[_Value], avals: Sequence[Any]) -> tuple[list[Any], Any]:
        """Return the sums of the outputs, as `aligned` does."""
        return self.aligned(values, avals)

    def aligned(self, values: Sequence[_Value], avals: Sequence[Any]) -> tuple[list[Any], Any]:
        """Return sums with one common factor, and its logarithm."""
        sums = [self._sums_of(value, aval) for value, aval in zip(values, avals, strict=True)]
        if len({id(value.log) for value in values}) == 1:
            return sums, values[0].log
        logs = [jnp.asarray(value.log, jnp.float32) for value in values]
        log = functools.reduce(jnp.maximum, logs)
        return [of * jnp.exp(own - log).astype(of.dtype) for of, own in zip(sums, logs, strict=True)], log

    def _sums_of(self, value: _Value, aval: Any) -> Any:
        """Return the sums of a value; a number without parameters is the start, or a slope, of a path.

        Raises:
          ArgumentError: a value whose paths are unknown. Only here is it refused: comparisons may read it.
        """
        if value.unknown is not None:
            raise ArgumentError(
                f"outputs: {value.unknown!r} has no paths to follow; path exclusion needs products, sums and "
                "piecewise linear activations such as ReLU: change the activation, or use saliency.ntk_sap"
            )
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
        # Inputs that are only moved keep their padding, which is 0 and no input.
        is_moved_input = name in MOVES and not self._held and trues[0] is None
        if not is_float or name in _STEPS or not (leaves or is_moved_input):
            return [_Value(true) for true in trues]
        rule = self._rule(name)
        if rule is None:
            return [_Value(true, leaves=leaves, unknown=name) for true in trues]
        sums, log = rule(eqn, taken)
        return [_Value(true, of, log, leaves) for true, of in zip(trues, sums, strict=True)]

    def _rule(self, name: str) -> Callable[[JaxprEqn, list[_Value]], tuple[list[Any], Any]] | None:
        rules = {
            **dict.fromkeys(_LINEAR, self._linear),
            **dict.fromkeys(_SIGNS, self._all),
            **dict.fromkeys((*PRODUCTS, "mul"), self._product),
            **dict.fromkeys(("clamp", "max", "min", "select_n"), self._choice),
            **dict.fromkeys(_POOLINGS, self._pooling),
            **dict.fromkeys(LOOKUPS, self._lookup),
            "div": self._quotient,
        }
        return rules.get(name)

    def _all(self, eqn: JaxprEqn, taken: Sequence[_Value], start: int = 0) -> tuple[list[Any], Any]:
        return self.aligned(taken[start:], [atom.aval for atom in eqn.invars[start:]])

    def _linear(self, eqn: JaxprEqn, taken: list[_Value]) -> tuple[list[Any], Any]:
        sums, log = self._all(eqn, taken)
        return ([jnp.add(*sums)] if eqn.primitive.name == "sub" else bind(eqn, sums)), log

    def _product(self, eqn: JaxprEqn, taken: list[_Value]) -> tuple[list[Any], Any]:
        first, second = taken
        if first.leaves & second.leaves:
            raise ArgumentError(
                "outputs: a parameter meets itself in a product, so that it is on a path twice; give every "
                "layer parameters of its own, or use saliency.ntk_sap"
            )
        sums = [self._sums_of(value, atom.aval) for value, atom in zip(taken, eqn.invars, strict=True)]
        (made,) = bind(eqn, sums, **self._precision(eqn))
        largest = jax.lax.stop_gradient(jnp.max(made, initial=0))
        # The factor is a constant for gradients, too: it cancels in shares of all paths.
        factor = jnp.where(largest > 0, largest, jnp.ones_like(largest))
        return [made / factor], first.log + second.log + jnp.log(factor).astype(jnp.float32)

    def _precision(self, eqn: JaxprEqn) -> dict[str, Any]:
        """Return the parameters of a product to change; none by default, for the model's own precision."""
        return {}

    def _quotient(self, eqn: JaxprEqn, taken: list[_Value]) -> tuple[list[Any], Any]:
        above, below = taken
        if below.leaves:
            raise ArgumentError(
                "outputs: a division by numbers that depend on parameters, as in a layer norm, has no paths "
                "to follow; use batch norm, or saliency.ntk_sap"
            )
        sums = [self._sums_of(value, atom.aval) for value, atom in zip(taken, eqn.invars, strict=True)]
        return [jnp.divide(*sums)], above.log

    def _choice(self, eqn: JaxprEqn, taken: list[_Value]) -> tuple[list[Any], Any]:
        """Take the sums of the entry that is chosen, or, with open activations, the largest ones."""
        name = eqn.primitive.name
        sums, log = self._all(eqn, taken, start=int(name == "select_n"))
        trues = [value.true for value in taken]
        if name == "select_n" and trues[0] is not None:
            return bind(eqn, [trues[0], *sums]), log
        if not self._held:
            return [functools.reduce(jnp.maximum, sums)], log
        if name == "clamp":
            low, number, high = trues
            return [jnp.where(number < low, sums[0], jnp.where(number > high, sums[2], sums[1]))], log
        first, second = trues if name == "max" else trues[::-1]
        # At a tie the number without parameters is chosen: a ReLU is closed at 0, as its derivative is.
        is_first = first > second if taken[0].leaves else first >= second
        return [jnp.where(is_first, *sums)], log

    def _pooling(self, eqn: JaxprEqn, taken: list[_Value]) -> tuple[list[Any], Any]:
        sums, log = self._all(eqn, taken)
        if not self._held:
            return bind(eqn, sums), log
        # The derivative of a maximum takes the entry that is the largest.
        _, chosen = jax.jvp(lambda array: bind(eqn, [array]), (taken[0].true,), tuple(sums))
        return chosen, log

    def _lookup(self, eqn: JaxprEqn, taken: list[_Value]) -> tuple[list[Any], Any]:
        places = [value.true for value in taken[1:]]
        if any(place is None for place in places):
            raise ArgumentError(
                "inputs: some of them index parameters, but path exclusion sets them to 1; score the part of "
                "the model after its embedding with saliency.path_exclusion"
            )
        return bind(eqn, [self._sums_of(taken[0], eqn.invars[0].aval), *places]), taken[0].log


@jax.custom_vjp
def _reached(sums: Array) -> Array:
    """Return 1 where a sum over paths is positive, and 0 elsewhere; so does its gradient."""
    return (sums > 0).astype(sums.dtype)


_reached.defvjp(lambda sums: (_reached(sums), None), lambda _, slopes: ((slopes > 0).astype(slopes.dtype),))


class _Graph(_Walk):
    """A walk that counts paths from inputs; their values have leaves of negative numbers."""

    def __init__(self, reached: bool) -> None:
        super().__init__(held=False)
        self._of_reached = reached

    def ends(self, values: Sequence[_Value], avals: Sequence[Any]) -> tuple[list[Any], Any]:
        """Return the counts of the outputs, which are 0 if none depends on the inputs."""
        if not any(map(_is_of_inputs, values)):
            return [jnp.zeros(aval.shape, jnp.float32) for aval in avals], 0.0
        return super().ends(values, avals)

    def aligned(self, values: Sequence[_Value], avals: Sequence[Any]) -> tuple[list[Any], Any]:
        """Return counts with one common factor, once what is not of the inputs no longer counts."""
        log = next((value.log for value in values if _is_of_inputs(value)), None)
        if log is not None:
            # A bias is added here, or a bound of a clipped activation: no path from the inputs begins there.
            pairs = zip(values, avals, strict=True)
            values = [
                value if _is_of_inputs(value) else _Value(None, jnp.zeros(aval.shape, jnp.float32), log)
                for value, aval in pairs
            ]
        return super().aligned(values, avals)

    def _sums_of(self, value: _Value, aval: Any) -> Any:
        if value.unknown is not None:
            raise ArgumentError(
                f"model: {value.unknown!r} has no paths to follow; give the model without norms, softmax and "
                "loops, and with activations such as ReLU or tanh; jaxarch.cost counts effective connections "
                "of any model"
            )
        if value.sums is not None:
            return value.sums
        return super()._sums_of(value, aval).astype(jnp.float32)

    def _equation(self, eqn: JaxprEqn, taken: list[_Value]) -> list[_Value]:
        name, leaves = eqn.primitive.name, frozenset[int]().union(*(value.leaves for value in taken))
        if name in CALLED:
            return super()._equation(eqn, taken)
        if leaves and name in _ONE_TO_ONE and (_is_of_inputs(taken[0]) or _is_0_at_0(eqn)):
            return [taken[0]]
        is_float = jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating)  # type: ignore[attr-defined]
        if leaves and not is_float:
            # A comparison may choose between values. It is refused where it goes on as a number.
            sums, log = self._compared(eqn, taken)
            return [_Value(None, of, log, leaves, name) for of in sums]
        made = super()._equation(eqn, taken)
        if not self._of_reached:
            return made
        return [
            value if value.sums is None else dataclasses.replace(value, sums=_reached(value.sums), log=0.0)
            for value in made
        ]

    def _compared(self, eqn: JaxprEqn, taken: list[_Value]) -> tuple[list[Any], Any]:
        """Return the larger counts of the values that are compared; `None` for what is no comparison."""
        name = eqn.primitive.name
        is_known = all(value.sums is not None for value in taken if value.leaves)
        if name not in (*_COMPARISONS, *MOVES) or not is_known:
            return [None] * len(eqn.outvars), 0.0
        sums, log = self._all(eqn, [dataclasses.replace(value, unknown=None) for value in taken])
        return (bind(eqn, sums) if name in MOVES else [functools.reduce(jnp.maximum, sums)]), log

    def _choice(self, eqn: JaxprEqn, taken: list[_Value]) -> tuple[list[Any], Any]:
        """Take the largest counts, among them those of the value that chooses."""
        which, *others = taken
        if eqn.primitive.name != "select_n" or not which.leaves:
            return super()._choice(eqn, taken)
        by_weights = any(map(_is_of_inputs, others)) and not _is_of_inputs(which)
        if which.sums is None or by_weights:
            raise ArgumentError(
                f"model: {which.unknown!r} chooses between values, with no paths to follow; give a model "
                "without; jaxarch.cost counts effective connections of any model"
            )
        # A gate of its own leads to the outputs too; that of a leaky ReLU counts as the value behind it.
        sums, log = self._all(eqn, [dataclasses.replace(which, unknown=None), *others])
        return [functools.reduce(jnp.maximum, sums)], log

    def _linear(self, eqn: JaxprEqn, taken: list[_Value]) -> tuple[list[Any], Any]:
        if eqn.primitive.name not in ("convert_element_type", "reduce_precision"):
            return super()._linear(eqn, taken)
        # Counts stay float32, whatever the precision of the model.
        return self._all(eqn, taken)

    def _product(self, eqn: JaxprEqn, taken: list[_Value]) -> tuple[list[Any], Any]:
        if all(map(_is_of_inputs, taken)):
            raise ArgumentError(
                f"model: {eqn.primitive.name!r} multiplies two values of the inputs, as gates and attention "
                "do, so that paths are not apart; give a model without; jaxarch.cost counts effective "
                "connections of any model"
            )
        first, second = (dataclasses.replace(value, leaves=frozenset()) for value in taken)
        return super()._product(eqn, [first, second])

    def _precision(self, eqn: JaxprEqn) -> dict[str, Any]:
        highest = (jax.lax.Precision.HIGHEST,) * 2
        is_product = eqn.primitive.name in PRODUCTS
        return {"precision": highest, "preferred_element_type": np.dtype("float32")} if is_product else {}

    def _quotient(self, eqn: JaxprEqn, taken: list[_Value]) -> tuple[list[Any], Any]:
        above, below = taken
        if below.leaves:
            raise ArgumentError(
                "model: it divides by numbers that depend on masked leaves or inputs, as in a layer norm, "
                "which have no paths to follow; give a model without; jaxarch.cost counts effective "
                "connections of any model"
            )
        return [self._sums_of(above, eqn.invars[0].aval)], above.log

    def _pooling(self, eqn: JaxprEqn, taken: list[_Value]) -> tuple[list[Any], Any]:
        sums = self._sums_of(taken[0], eqn.invars[0].aval)
        if eqn.primitive.name == "reduce_max":
            return [jnp.sum(sums, eqn.params["axes"])], taken[0].log
        params = {name: value for name, value in eqn.params.items() if name != "out_sharding"}
        return [jax.lax.reduce_window(sums, np.float32(0), jax.lax.add, **params)], taken[0].log


def _is_0_at_0(eqn: JaxprEqn) -> bool:
    is_power = eqn.primitive.name == "integer_pow"
    return eqn.params["y"] > 0 if is_power else eqn.primitive.name not in _NOT_AT_0


def _is_of_inputs(value: _Value) -> bool:
    return any(number < 0 for number in value.leaves)

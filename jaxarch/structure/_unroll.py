"""Loops over stacked layers, as layers one after the other with arrays of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from jaxarch._internal.errors import ArgumentError, check_function
from jaxarch._internal.trees import PyTree, check_distinct, named_leaves
from jaxarch.structure._flow import CALLS, bind, inner, literal
from jaxarch.structure._groups import check_arrays, check_shapes
from jaxarch.structure._scans import scan_counts
from jaxarch.structure._tracing import traced

_ROW_BY_ROW = ("convert_element_type", "copy", "copy_p")
"""Primitives that may prepare all layers at once before the loop."""


def unroll(function: Callable[..., Any], tree: PyTree, *inputs: PyTree) -> tuple[Callable[..., Any], PyTree]:
    """Return a model whose stacked layers are layers of their own.

    `jax.lax.scan` and `nnx.scan` run one layer's code along the first axis of stacked arrays, so `plan` cuts
    all of these layers alike. In the returned model each layer has arrays of its own, and may lose other
    units, and more of them, than the next. It computes the same, by a longer program, which takes longer to
    compile. A loop whose layers are loops again is unrolled on the outside only. `jax.checkpoint` around a
    loop is left out; inside its layers it stays.

    Args:
      function: `(tree, *inputs) -> outputs`, traceable by JAX.
      tree: the parameters, arrays or their shapes. A leaf is split if the program runs along its first axis,
        and reads it in no other way than to change its dtype.
      *inputs: example inputs, arrays or their shapes.

    Returns:
      The function, which takes inputs of any sizes, and the tree. A split leaf is a tuple of its rows.

    Raises:
      ArgumentError: a function that cannot be traced or has side effects; leaves that are no arrays; no leaf
        that can be split; two leaves with the same path. The function raises it for arrays of other sizes:
        smaller ones run in what `plan` and `shrink` return.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxarch.structure import axis_groups, unroll
      >>> params = {"in": jnp.ones((2, 3, 8)), "out": jnp.ones((2, 8, 3))}  # two layers
      >>> def model(params, x):
      ...     def layer(x, p):
      ...         return x + jax.nn.relu(x @ p["in"]) @ p["out"], None
      ...     return jax.lax.scan(layer, x, params)[0]
      >>> function, tree = unroll(model, params, jnp.ones((1, 3)))
      >>> [leaf.shape for leaf in tree["in"]]
      [(3, 8), (3, 8)]
      >>> list(axis_groups(model, params, jnp.ones((1, 3))).groups)
      ['in[2]']
      >>> list(axis_groups(function, tree, jnp.ones((1, 3))).groups)
      ['in/0[1]', 'in/1[1]']
    """
    check_function("function", function)
    check_arrays(tree)
    leaves, structure = jax.tree.flatten(tree)  # type: tuple[list[Any], Any]
    closed, _ = traced(function, tree, *inputs)
    scanned, otherwise = _uses(closed, range(len(leaves)))
    split = scanned - otherwise
    if not split:
        raise ArgumentError(
            "tree: no leaf can be split into layers, since no loop runs along the first axis of one, or the "
            "program reads it in other ways too"
        )
    unrolled = structure.unflatten(
        [_rows(leaf) if number in split else leaf for number, leaf in enumerate(leaves)]
    )
    check_distinct("tree", unrolled)
    expected = {path: jnp.shape(leaf) for path, leaf in named_leaves(unrolled).items()}

    def run(tree: PyTree, *inputs: PyTree) -> Any:
        check_shapes(
            tree, expected, "with", "; smaller arrays need the function that `plan` or `shrink` returns"
        )
        values = [
            tuple(value) if number in split else value
            for number, value in enumerate(structure.flatten_up_to(tree))
        ]
        program, outputs = traced(function, structure.unflatten([*map(_stacked, values)]), *inputs)
        made = _run(program, [*values, *jax.tree.leaves(inputs)])
        return jax.tree.unflatten(jax.tree.structure(outputs), [*map(jnp.asarray, made)])

    return run, unrolled


def _rows(leaf: Any) -> tuple[Any, ...]:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return tuple(jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) for _ in range(leaf.shape[0]))
    return tuple(leaf[number] for number in range(jnp.shape(leaf)[0]))


def _stacked(value: Any) -> Any:
    """Return the shape of a leaf before it was split."""
    first = value[0] if isinstance(value, tuple) else value
    shape = jnp.shape(first)
    return jax.ShapeDtypeStruct((len(value), *shape) if first is not value else shape, first.dtype)


def _uses(closed: ClosedJaxpr, candidates: Iterable[int]) -> tuple[set[int], set[int]]:
    """Return the inputs of a program along which loops run, and those that it reads in another way."""
    jaxpr = closed.jaxpr
    of: dict[Any, int] = {jaxpr.invars[number]: number for number in candidates}
    scanned: set[int] = set()
    otherwise: set[int] = set()
    for eqn in jaxpr.eqns:
        taken = {
            place: of[atom]
            for place, atom in enumerate(eqn.invars)
            if not isinstance(atom, Literal) and atom in of
        }
        name, rows, rest = eqn.primitive.name, set[int](), set(taken)
        if name == "scan" and eqn.params["length"]:
            rows = {place for place in taken if place >= sum(scan_counts(eqn))}
            rest -= rows
        elif name in CALLS:
            rows, rest = _uses(inner(eqn), taken)
        elif name in _ROW_BY_ROW and taken:
            of[eqn.outvars[0]] = taken[0]
            rest = set()
        scanned |= {taken[place] for place in rows}
        otherwise |= {taken[place] for place in rest}
    otherwise |= {of[atom] for atom in jaxpr.outvars if not isinstance(atom, Literal) and atom in of}
    return scanned, otherwise


def _run(closed: ClosedJaxpr, inputs: Sequence[Any]) -> list[Any]:
    """Run a program in which some inputs, and values made of them, are tuples of rows."""
    jaxpr = closed.jaxpr
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Any:
        return literal(atom) if isinstance(atom, Literal) else known[atom]

    for eqn in jaxpr.eqns:
        taken = [read(atom) for atom in eqn.invars]
        known.update(zip(eqn.outvars, _made(eqn, taken), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _made(eqn: JaxprEqn, taken: Sequence[Any]) -> list[Any]:
    if not any(isinstance(value, tuple) for value in taken):
        return bind(eqn, taken)
    if eqn.primitive.name == "scan":
        return _layers(eqn, taken)
    if eqn.primitive.name in _ROW_BY_ROW:
        return [tuple(bind(eqn, [row])[0] for row in taken[0])]
    return _run(inner(eqn), taken)


def _layers(eqn: JaxprEqn, taken: Sequence[Any]) -> list[Any]:
    """Run a loop's rounds one after the other."""
    consts, carries = scan_counts(eqn)
    fixed, carry, rows = taken[:consts], list(taken[consts : consts + carries]), taken[consts + carries :]
    length, backwards = eqn.params["length"], eqn.params["reverse"]
    found: list[list[Any]] = [[] for _ in range(length)]
    for number in reversed(range(length)) if backwards else range(length):
        made = _run(eqn.params["jaxpr"], [*fixed, *carry, *(row[number] for row in rows)])
        carry, found[number] = made[:carries], made[carries:]
    return [*carry, *(jnp.stack(values) for values in zip(*found, strict=True))]

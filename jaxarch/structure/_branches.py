"""Branches of residual blocks: the part of a traced program that some leaves add to a stream."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from jaxarch.structure._flow import MOVES, PRODUCTS, Program, Step, literal

_SUMS = ("add", "add_any", "sub")
_SCALED = (
    *MOVES, *_SUMS, "convert_element_type", "copy", "copy_p", "max", "min", "name", "neg", "reduce_max",
    "reduce_min", "reduce_precision", "reduce_sum", "reduce_window_max", "reduce_window_sum", "reshard",
    "select_n", "sharding_constraint",
)  # fmt: skip
"""Primitives whose outputs are multiplied by s >= 0 if all inputs are."""
_FACTORS = ("mul", *PRODUCTS)
"""Primitives whose outputs are multiplied by s if one of two inputs is."""
Leaves = frozenset[str]


class Branch(NamedTuple):
    """A block's contribution to a stream.

    Attributes:
      scales: paths of leaves. Multiplied by s >= 0, they multiply all that the block adds by s.
      products: the `id` of each product, as a `Step`, that reads anything the block computes.
    """

    scales: Leaves
    products: frozenset[int]


class _Value(NamedTuple):
    """An array of the program.

    Attributes:
      fed: whether it depends on the inputs.
      leaves: the block's leaves that it depends on.
      scales: the leaves that multiply it by s if they are multiplied by s; none for a 0, `None` for an array
        that no leaves multiply.
      added: branches that were added to it: their `scales` and their `leaves`.
    """

    fed: bool = False
    leaves: Leaves = frozenset()
    scales: Leaves | None = None
    added: frozenset[tuple[Leaves, Leaves]] = frozenset()


def find_branch(program: Program, paths: Sequence[str], block: Collection[str]) -> Branch | None:
    """Find what a block adds to a stream that goes on without it.

    With all its leaves 0, such a block is its shortcut. This is read off the program, for any values: the
    block adds an array to another one that depends on the inputs, but not on the block. The first array is
    proportional to some of the block's leaves, so it is 0 with them. Nothing else that the block computes
    reaches an output.

    Args:
      program: a program made by `_flow.follow`, whose first inputs are the model's leaves.
      paths: the paths of these leaves.
      block: the paths of the block's leaves.

    Returns:
      The branch, or `None` if the block is not known to be its shortcut without its leaves.
    """
    leaves = [_Value(False, of, of) if path in block else _Value() for path in paths for of in [_one(path)]]
    rest = [_Value(fed=True)] * (len(program.inputs) - len(leaves))
    products: set[int] = set()
    outputs = _walk(program, [*leaves, *rest], products)
    added = {branch for output in outputs for branch in output.added}
    scales = frozenset[str]().union(*(own for own, _ in added))
    if not added or any(output.leaves for output in outputs):
        return None
    if any(scales & (of - own) for own, of in added):
        return None
    return Branch(scales, frozenset(products))


def _one(path: str) -> Leaves:
    return frozenset([path])


def _walk(program: Program, inputs: Sequence[_Value], products: set[int]) -> list[_Value]:
    jaxpr = program.closed.jaxpr
    known: dict[Any, _Value] = dict.fromkeys(jaxpr.constvars, _Value())
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> _Value:
        if isinstance(atom, Literal):
            return _Value(scales=None if np.any(literal(atom)) else frozenset())
        return known[atom]

    for step in program.steps:
        taken = [read(atom) for atom in step.eqn.invars]
        known.update(zip(step.eqn.outvars, _step(step, taken, products), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _step(step: Step, taken: list[_Value], products: set[int]) -> list[_Value]:
    if step.called:
        return _walk(step.called, taken, products)
    if any(value.leaves for value in taken):
        products.update(map(id, _products(step)))
    if (stream := _stream(step, taken)) is not None:
        return [stream]
    made = _Value(
        any(value.fed for value in taken),
        frozenset[str]().union(*(value.leaves for value in taken)),
        _scales(step, taken),
        frozenset[tuple[Leaves, Leaves]]().union(*(value.added for value in taken)),
    )
    return [made] * len(step.eqn.outvars)


def _products(step: Step) -> Iterator[Step]:
    """Yield a step that is a product, and those in the programs that it calls."""
    if step.eqn.primitive.name in PRODUCTS:
        yield step
    for program in step.programs:
        for inside in program.steps:
            yield from _products(inside)


def _stream(step: Step, taken: list[_Value]) -> _Value | None:
    """Return the stream to which a step adds a branch; `None` for any other step."""
    name = step.eqn.primitive.name
    if name not in _SUMS:
        return None
    for branch, stream in (taken[::-1], taken) if name != "sub" else (taken[::-1],):
        if branch.leaves and branch.scales is not None and stream.fed and not stream.leaves:
            # Sums inside the branch, as of scores and a mask, do not scale it once more.
            return stream._replace(added=stream.added | {(branch.scales, branch.leaves)})
    return None


def _scales(step: Step, taken: list[_Value]) -> Leaves | None:
    """Return the leaves that multiply a step's outputs if they are multiplied themselves."""
    name = step.eqn.primitive.name
    dtypes = [getattr(atom.aval, "dtype", None) for atom in step.eqn.outvars]
    if not all(dtype is not None and jnp.issubdtype(dtype, jnp.floating) for dtype in dtypes):
        return None  # Rounded to integers, an array is no longer proportional to them.
    if name in _SCALED:
        return _of_all(taken[1:] if name == "select_n" else taken, taken)
    if name in _FACTORS:
        one, other = taken
        # A kernel comes before what it multiplies: it is nearer to the end of the branch.
        pairs = [(one, other), (other, one)] if other.fed else [(other, one), (one, other)]
    elif name == "div":
        pairs = [(taken[0], taken[1])]
    else:
        return None
    # Leaves in both factors would multiply the product twice.
    fitting = (of.scales for of, by in pairs if of.scales is not None and not of.scales & by.leaves)
    return next(fitting, None)


def _of_all(own: list[_Value], taken: list[_Value]) -> Leaves | None:
    """Return the leaves that multiply all of some arrays, and change no input in another way."""
    found: Leaves = frozenset()
    for value in own:
        if value.scales is None:
            return None
        found |= value.scales
    changed = any(found & (value.leaves - (value.scales or frozenset())) for value in taken)
    return None if changed else found

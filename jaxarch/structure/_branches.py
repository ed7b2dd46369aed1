"""Branches of residual blocks: the part of a traced program that some leaves add to a stream."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
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
_ZERO_AT_ZERO = (
    *_SCALED, "abs", "cumsum", "erf", "expm1", "integer_pow", "log1p", "sign", "sin", "square", "tanh",
)  # fmt: skip
"""Primitives whose outputs are 0 if all inputs are."""
_UNDEFINED_AT_ZERO = {"div": 1, "rem": 1, "log": 0, "pow": 0, "rsqrt": 0, "sqrt": 0}
"""Primitives without a finite value or derivative if the input at this place is 0."""
Leaves = frozenset[str]


class Branch(NamedTuple):
    """A block's contribution to a stream.

    Attributes:
      scales: paths of leaves. Multiplied by s >= 0, they multiply each array that the block adds by s, for
        the same stream.
      steps: the `id` of each `Step` that reads anything the block computes, and of the steps within it.
    """

    scales: Leaves
    steps: frozenset[int]


class _Added(NamedTuple):
    """A branch that was added: the leaves that multiply it, all its leaves, and the `id` of the `Step`."""

    scales: Leaves
    leaves: Leaves
    step: int


class _Value(NamedTuple):
    """An array of the program.

    Attributes:
      fed: whether it depends on the inputs.
      leaves: the block's leaves that it depends on.
      scales: the leaves that multiply it by s if they are multiplied by s; none for a 0, `None` for an array
        that no leaves multiply.
      added: branches that were added to it.
      zero: whether it is 0 once all the block's leaves are 0.
    """

    fed: bool = False
    leaves: Leaves = frozenset()
    scales: Leaves | None = None
    added: frozenset[_Added] = frozenset()
    zero: bool = False


class _UndefinedError(Exception):
    """A step has no finite value or derivative once all the block's leaves are 0."""


def find_branch(program: Program, paths: Sequence[str], block: Collection[str]) -> Branch | None:
    """Find what a block adds to a stream that goes on without it.

    With all its leaves 0, such a block is its shortcut. This is read off the program, for any values: the
    block adds an array to another one that depends on the inputs, but not on the block. The first array is
    proportional to some of the block's leaves, so it is 0 with them. Nothing else that the block computes
    reaches an output. No step divides by a 0 that the leaves leave behind, or takes its root.

    Args:
      program: a program made by `_flow.follow`, whose first inputs are the model's leaves.
      paths: the paths of these leaves.
      block: the paths of the block's leaves.

    Returns:
      The branch, or `None` if the block is not known to be its shortcut without its leaves.
    """
    leaves = [
        _Value(leaves=frozenset([path]), scales=frozenset([path]), zero=True) if path in block else _Value()
        for path in paths
    ]
    rest = [_Value(fed=True)] * (len(program.inputs) - len(leaves))
    steps: set[int] = set()
    try:
        outputs = _walk(program, [*leaves, *rest], steps)
    except _UndefinedError:
        return None
    added = _union(output.added for output in outputs)
    scales = _union(branch.scales for branch in added)
    if not added or any(output.leaves for output in outputs):
        return None
    if any(scales & (branch.leaves - branch.scales) for branch in added):
        return None
    return Branch(scales, frozenset(steps))


def _union(sets: Iterable[frozenset[Any]]) -> frozenset[Any]:
    return frozenset[Any]().union(*sets)


def _walk(program: Program, inputs: Sequence[_Value], steps: set[int]) -> list[_Value]:
    jaxpr = program.closed.jaxpr
    known: dict[Any, _Value] = dict.fromkeys(jaxpr.constvars, _Value())
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> _Value:
        if isinstance(atom, Literal):
            value = literal(atom)
            # `jnp.var` chooses between the variance and NaN: it is 0 with the variance.
            zero = bool(np.all((value == 0) | np.not_equal(value, value)))
            return _Value(scales=None if np.any(value) else frozenset(), zero=zero)
        return known[atom]

    for step in program.steps:
        taken = [read(atom) for atom in step.eqn.invars]
        known.update(zip(step.eqn.outvars, _step(step, taken, steps), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _step(step: Step, taken: list[_Value], steps: set[int]) -> list[_Value]:
    if step.called:
        return _walk(step.called, taken, steps)
    if (stream := _stream(step, taken)) is not None:
        return [stream]
    if any(value.leaves for value in taken):
        steps.update(map(id, _within(step)))
    made = _Value(
        any(value.fed for value in taken),
        _union(value.leaves for value in taken),
        _scales(step, taken),
        _union(value.added for value in taken),
        _is_zero(step, taken),
    )
    return [made] * len(step.eqn.outvars)


def _within(step: Step) -> Iterator[Step]:
    """Yield a step, and those in the programs that it calls."""
    yield step
    for program in step.programs:
        for inside in program.steps:
            yield from _within(inside)


def _stream(step: Step, taken: list[_Value]) -> _Value | None:
    """Return the stream to which a step adds a branch; `None` for any other step."""
    name = step.eqn.primitive.name
    if name not in _SUMS:
        return None
    for branch, stream in (taken[::-1], taken) if name != "sub" else (taken[::-1],):
        if not branch.leaves or branch.scales is None or not stream.fed or stream.leaves or stream.zero:
            continue
        # Sums inside the branch, as of scores and a mask, must not scale it once more.
        inside = _union(of.leaves for of in branch.added - stream.added)
        if not branch.scales & inside:
            own = _Added(branch.scales, branch.leaves | inside, id(step))
            return stream._replace(added=stream.added | {own})
    return None


def _is_zero(step: Step, taken: list[_Value]) -> bool:
    """Return whether a step's outputs are 0 once the leaves are.

    Raises:
      _UndefinedError: they have no finite value or derivative then.
    """
    name, power = step.eqn.primitive.name, step.eqn.params.get("y", 1)
    place = 0 if name == "integer_pow" and power < 0 else _UNDEFINED_AT_ZERO.get(name)
    if place is not None and taken[place].zero and taken[place].leaves:
        raise _UndefinedError
    zeros = [value.zero for value in taken]
    if name in _FACTORS:
        return any(zeros)
    if name in ("div", "select_n"):
        return zeros[0] if name == "div" else all(zeros[1:])
    return name in _ZERO_AT_ZERO and power > 0 and all(zeros)


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

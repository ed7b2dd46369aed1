"""Programs run on arrays from which units were cut, with all sizes changed accordingly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal

from jaxarch._internal.errors import ArgumentError, is_traced
from jaxarch._internal.trees import is_key
from jaxarch.structure._axes import Axis
from jaxarch.structure._derivatives import run_custom_jvp, run_custom_vjp
from jaxarch.structure._flow import CALLS_ALONE, LOOKUPS, Axes, Program, Step, bind, literal, shape_of
from jaxarch.structure._scans import scan_counts

Kept = Mapping[Axis, np.ndarray]
"""By atom, the units that are kept; atoms that are missing keep all units."""


def cut(array: Any, axes: Axes, kept: Kept) -> Any:
    """Cut an array to the kept units, on the host if its numbers are known."""
    units = [axis.spread(kept) for axis in axes]
    if all(each.all() for each in units):
        return array
    if not is_traced(array) and not is_key(array) and getattr(array, "is_fully_addressable", True):
        # On the host nothing has to be compiled for a shape that is used once.
        return np.asarray(array)[np.ix_(*map(np.flatnonzero, units))]
    for index, each in enumerate(units):
        if each.all():
            continue
        if array.shape[index] != each.size:
            raise ArgumentError(
                "inputs: an array that the program makes has examples and units in one axis, so it can only "
                "be cut for a known number of examples; pass inputs with numbers as sizes"
            )
        array = jnp.take(jnp.asarray(array), np.flatnonzero(each), axis=index)
    return array


def sizes(axes: Axes, kept: Kept) -> tuple[int, ...]:
    """Return the shape of an array with these axes after units are cut."""
    return tuple(int(axis.spread(kept).sum()) for axis in axes)


def _cut_shape(shape: Sequence[Any], axes: Axes, kept: Kept) -> tuple[Any, ...]:
    """Return a shape after units are cut; it may have a symbolic number of examples, which are all kept."""
    units = [axis.spread(kept) for axis in axes]
    return tuple(
        size if each.all() else size * int(each.sum()) // each.size
        for size, each in zip(shape, units, strict=True)
    )


def run_smaller(program: Program, kept: Kept, inputs: Sequence[Any]) -> list[Any]:
    """Run a program on inputs that were cut by `cut`.

    It can be jitted, mapped and differentiated; functions with custom derivatives use these.
    """
    jaxpr = program.closed.jaxpr
    consts = [
        cut(value, axes, kept) for value, axes in zip(program.closed.consts, program.consts, strict=True)
    ]
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any, axes: Axes) -> Any:
        if isinstance(atom, Literal):
            return cut(literal(atom), axes, kept)
        return cut(known[atom], axes, kept) if atom in program.whole else known[atom]

    for step in program.steps:
        taken = [read(atom, axes) for atom, axes in zip(step.eqn.invars, step.inputs, strict=True)]
        made = _RULES.get(step.eqn.primitive.name, _as_it_is)(step, kept, taken)
        known.update(zip(step.eqn.outvars, made, strict=True))
    return [read(atom, axes) for atom, axes in zip(jaxpr.outvars, program.outputs, strict=True)]


Rule = Callable[[Step, Kept, list[Any]], list[Any]]


def _as_it_is(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    return bind(step.eqn, taken)


# Programs in programs --------------------------------------------------------------------------------


def _call(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    return run_smaller(step.programs[0], kept, taken)


def _checkpoint(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    params = step.eqn.params

    def run(*inputs: Any) -> list[Any]:
        return run_smaller(step.programs[0], kept, inputs)

    return jax.checkpoint(run, prevent_cse=params["prevent_cse"], policy=params["policy"])(*taken)


def _custom_jvp(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    return run_custom_jvp(step, kept, taken, run_smaller)


def _custom_vjp(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    return run_custom_vjp(step, kept, taken, run_smaller)


def _scan(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    params, (body,) = step.eqn.params, step.programs
    consts, carries = scan_counts(step.eqn)

    def run(carry: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
        made = run_smaller(body, kept, [*taken[:consts], *carry, *rows])
        return made[:carries], made[carries:]

    start, rows = taken[consts : consts + carries], taken[consts + carries :]
    carry, made = lax.scan(run, start, rows, params["length"], params["reverse"], params["unroll"])
    return [*carry, *made]


def _while(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    of_condition, of_body = step.eqn.params["cond_nconsts"], step.eqn.params["body_nconsts"]
    outside, inside = taken[:of_condition], taken[of_condition : of_condition + of_body]
    carry = taken[of_condition + of_body :]
    condition, body = (
        jax.make_jaxpr(lambda *inputs, of=program: run_smaller(of, kept, inputs))(*before, *carry)
        for program, before in zip(step.programs, (outside, inside), strict=True)
    )
    # `lax.while_loop` would refuse a condition for each example, as `vmap` makes it.
    return bind(step.eqn, taken, cond_jaxpr=condition, body_jaxpr=body)


def _cond(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    branches = [lambda *inputs, of=branch: run_smaller(of, kept, inputs) for branch in step.programs]
    closed = tuple(jax.make_jaxpr(branch)(*taken[1:]) for branch in branches)
    if any(each.consts for each in closed):
        return lax.switch(taken[0], branches, *taken[1:])
    # `lax.switch` would clamp the branch index again.
    return bind(step.eqn, taken, branches=closed)


# Sizes that are written in the program ---------------------------------------------------------------


def _broadcast(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    return bind(step.eqn, taken, shape=_cut_shape(step.eqn.params["shape"], step.outputs[0], kept))


def _reshape(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    return bind(step.eqn, taken, new_sizes=_cut_shape(step.eqn.params["new_sizes"], step.outputs[0], kept))


def _iota(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    """Make positions; along an axis that was cut, kept units keep theirs."""
    axes, along = step.outputs[0], step.eqn.params["dimension"]
    if axes[along].spread(kept).all():
        return bind(step.eqn, taken, shape=_cut_shape(step.eqn.params["shape"], axes, kept))
    return _made_whole(step, kept, taken)


def _made_whole(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    """Make numbers at their full size, and cut them: kept units keep their values."""
    (whole,) = bind(step.eqn, taken)
    return [cut(whole, step.outputs[0], kept)]


def _slice(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    whole = shape_of(step.eqn.invars[0])
    units = [axis.spread(kept) for axis in step.inputs[0]]

    def after(place: Any, index: int) -> Any:
        # Places in an axis that stays, or at its end, may be symbolic.
        if units[index].all():
            return place
        return taken[0].shape[index] if place == whole[index] else int(units[index][:place].sum())

    starts, stops = (
        tuple(after(place, index) for index, place in enumerate(step.eqn.params[name]))
        for name in ("start_indices", "limit_indices")
    )
    return bind(step.eqn, taken, start_indices=starts, limit_indices=stops)


def _split(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    along = step.eqn.params["axis"]
    return bind(step.eqn, taken, sizes=tuple(sizes(axes, kept)[along] for axes in step.outputs))


def _tile(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    # The number of copies may be symbolic.
    after = _cut_shape(shape_of(step.eqn.outvars[0]), step.outputs[0], kept)
    ends = zip(step.eqn.params["reps"], after, taken[0].shape, strict=True)
    return bind(
        step.eqn, taken, reps=tuple(size // of_one if of_one else times for times, size, of_one in ends)
    )


def _pad(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    config = []
    for axis, (low, high, between) in zip(step.outputs[0], step.eqn.params["padding_config"], strict=True):
        units = axis.spread(kept)
        is_whole = units.all()
        ends = (low, high) if is_whole else (int(units[:low].sum()), int(units[axis.size - high :].sum()))
        config.append((*ends, between))
    return bind(step.eqn, taken, padding_config=tuple(config))


def _window_sizes(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    """Slice at computed places; an axis that was taken whole is still taken whole."""
    places = zip(step.eqn.params["slice_sizes"], shape_of(step.eqn.invars[0]), taken[0].shape, strict=True)
    return bind(
        step.eqn, taken, slice_sizes=tuple(now if size == before else size for size, before, now in places)
    )


def _convolution(step: Step, kept: Kept, taken: list[Any]) -> list[Any]:
    numbers, groups = step.eqn.params["dimension_numbers"], step.eqn.params["feature_group_count"]
    channels = step.inputs[0][numbers.lhs_spec[1]].spread(kept)
    # A feature group that lost all of its channels is gone.
    there = int(channels.reshape(groups, -1).any(1).sum())
    return bind(step.eqn, taken, feature_group_count=there)


_RULES: dict[str, Rule] = {
    **dict.fromkeys(CALLS_ALONE, _call),
    **dict.fromkeys(("remat2", "checkpoint"), _checkpoint),
    **dict.fromkeys(LOOKUPS, _window_sizes),
    "broadcast_in_dim": _broadcast,
    "cond": _cond,
    "conv_general_dilated": _convolution,
    "custom_jvp_call": _custom_jvp,
    "custom_vjp_call": _custom_vjp,
    "iota": _iota,
    "pad": _pad,
    "random_bits": _made_whole,
    "reshape": _reshape,
    "scan": _scan,
    "slice": _slice,
    "split": _split,
    "tile": _tile,
    "while": _while,
}

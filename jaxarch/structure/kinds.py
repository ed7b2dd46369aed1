"""What the units of a program are: heads, channels, neurons, or features that are normalized together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from jax.extend.core import Literal as Number

from jaxarch.structure.axes import Axis
from jaxarch.structure.flow import REDUCTIONS, Axes, Program, Step

Kind = Literal["neurons", "channels", "heads", "features"]
"""What a unit is: see `Group`."""

ORDER: tuple[Kind, ...] = ("features", "heads", "channels", "neurons")
"""The first one that an atom is said to be is what it is."""


def find_kinds(program: Program, leaves: int) -> dict[Axis, Kind]:
    """What the atoms of a program are.

    Args:
      program: as `flow.follow` makes it.
      leaves: how many of its inputs, the first ones, are leaves of a model.
    """
    found: dict[Axis, set[Kind]] = {}
    count = len(program.closed.jaxpr.invars)
    _walk(program, [index >= leaves for index in range(count)], found)
    return {atom: next(kind for kind in ORDER if kind in kinds) for atom, kinds in found.items()}


def _walk(program: Program, inputs: Sequence[bool], found: dict[Axis, set[Kind]]) -> list[bool]:
    """Whether each output of a program depends on what the model is called with, given its inputs."""
    jaxpr = program.closed.jaxpr
    varies: dict[Any, bool] = dict.fromkeys(jaxpr.constvars, False)
    varies.update(zip(jaxpr.invars, inputs, strict=True))
    for step in program.steps:
        taken = [not isinstance(atom, Number) and varies[atom] for atom in step.eqn.invars]
        varies.update(zip(step.eqn.outvars, _step(step, taken, found), strict=True))
    return [not isinstance(atom, Number) and varies[atom] for atom in jaxpr.outvars]


def _step(step: Step, taken: Sequence[bool], found: dict[Axis, set[Kind]]) -> Sequence[bool]:
    name, params = step.eqn.primitive.name, step.eqn.params
    if step.programs:
        # In a loop everything may come round; of branches, the number of the one that is taken is no input.
        of_programs = [
            taken if len(program.inputs) == len(taken) else [any(taken)] * len(program.inputs)
            for program in step.programs
        ]
        for program, inputs in zip(step.programs, of_programs, strict=True):
            loops = name in ("scan", "while")
            _walk(program, [any(taken)] * len(inputs) if loops and any(taken) else inputs, found)
        return [any(taken)] * len(step.outputs)
    if name == "dot_general":
        _product(step, taken, found)
    elif name == "conv_general_dilated" and taken[0]:
        numbers = params["dimension_numbers"]
        _add("channels", [step.inputs[1][axis] for axis in numbers.rhs_spec[:2]], found)
    elif name in REDUCTIONS and taken[0]:
        _add("features", [step.inputs[0][axis] for axis in params["axes"]], found)
    return [any(taken)] * len(step.outputs)


def _product(step: Step, taken: Sequence[bool], found: dict[Axis, set[Kind]]) -> None:
    if not all(taken):
        of_leaves: Axes = tuple(
            axis
            for axes, depends in zip(step.inputs, taken, strict=True)
            if not depends and any(taken)
            for axis in axes
        )
        _add("neurons", of_leaves, found)
        return
    batched = step.eqn.params["dimension_numbers"][1][0]
    _add("heads", [step.inputs[0][axis] for axis in batched], found)
    shared = [set(axes) for axes in step.eqn.params["dimension_numbers"][1]]
    for axes, left_out in zip(step.inputs, shared, strict=True):
        _add("features", [axis for index, axis in enumerate(axes) if index not in left_out], found)


def _add(kind: Kind, axes: Sequence[Axis], found: dict[Axis, set[Kind]]) -> None:
    for axis in axes:
        for atom in axis.atoms():
            found.setdefault(atom, set()).add(kind)

"""Values inside a traced program: an interpreter that records what its steps take and make."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal

from jaxarch._internal.trees import PyTree
from jaxarch.masks._sharding import whole_outside
from jaxarch.structure._flow import Program, Step, bind, literal
from jaxarch.structure._scans import scan_counts

Record = Callable[[Step, list[Any], list[Any]], PyTree]
"""From a step, its inputs and its outputs, what is recorded; `None` for nothing."""

Records = dict[int, PyTree]
"""Recorded values, by `id` of the step."""


def run_recorded(
    program: Program,
    inputs: Sequence[Any],
    record: Record,
    stacked: Mapping[int, Sequence[bool]] | None = None,
) -> tuple[list[Any], Records]:
    """Evaluate a program, and record values of its steps, through calls and loops.

    Args:
      program: the program.
      inputs: its inputs.
      record: see `Record`.
      stacked: by `id` of a step, for each loop around it, whether its records of all rounds are stacked along
        a new axis; otherwise they are added. By default all are stacked, and `record` must return `None` for
        branches and `while` loops, which are not looked into. If it is given, they are; records of a `while`
        loop must be added, and a branch that is not taken has records of 0.

    Returns:
      The outputs; and the records by `id` of their step, with a first axis for each loop that stacks them.
    """
    return _Run(record, stacked).program(program, inputs, 0)


@dataclasses.dataclass(frozen=True)
class _Run:
    """A run of a program with its records; `depth` counts the loops around a program."""

    record: Record
    stacked: Mapping[int, Sequence[bool]] | None

    def program(self, program: Program, inputs: Sequence[Any], depth: int) -> tuple[list[Any], Records]:
        jaxpr = program.closed.jaxpr
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, program.closed.consts, strict=True))
        known.update(zip(jaxpr.invars, inputs, strict=True))
        records: Records = {}

        def value(atom: Any) -> Any:
            return literal(atom) if isinstance(atom, Literal) else known[atom]

        for step in program.steps:
            made, inside = self._step(step, [value(atom) for atom in step.eqn.invars], depth)
            records.update(inside)
            known.update(zip(step.eqn.outvars, made, strict=True))
        return [value(atom) for atom in jaxpr.outvars], records

    def _step(self, step: Step, taken: list[Any], depth: int) -> tuple[list[Any], Records]:
        name = step.eqn.primitive.name
        if step.called:
            return self.program(step.called, taken, depth)
        if name == "scan":
            return self._scan(step, taken, depth)
        if name in ("cond", "while") and self.stacked is not None:
            return (self._cond if name == "cond" else self._while)(step, taken, depth)
        # Inside `auto_axes`, a program's mesh has other axes than the one around it.
        with step.eqn.ctx.manager:
            made = bind(step.eqn, taken)
            found = self.record(step, taken, made)
        return made, {} if found is None else {id(step): jax.tree.map(whole_outside, found)}

    def _scan(self, step: Step, taken: list[Any], depth: int) -> tuple[list[Any], Records]:
        params, (body,) = step.eqn.params, step.programs
        consts, carries = scan_counts(step.eqn)
        start, rows = taken[consts : consts + carries], taken[consts + carries :]

        def once(carry: list[Any], row: list[Any]) -> tuple[list[Any], list[Any], Records, Records]:
            made, inside = self.program(body, [*taken[:consts], *carry, *row], depth + 1)
            added = {key: of for key, of in inside.items() if self._is_added(key, depth)}
            kept = {key: of for key, of in inside.items() if key not in added}
            return made[:carries], made[carries:], added, kept

        def run(carry: tuple[list[Any], Records], row: list[Any]) -> Any:
            after, made, added, kept = once(carry[0], row)
            return (after, jax.tree.map(operator.add, carry[1], added)), (made, kept)

        zeros: Records = {}
        if self.stacked is not None:
            first = [jax.ShapeDtypeStruct(np.shape(row)[1:], row.dtype) for row in rows]
            zeros = _zeros(jax.eval_shape(lambda *args: once(*args)[2], start, first))
        (carry, sums), (made, records) = lax.scan(
            run, (start, zeros), rows, params["length"], params["reverse"], params["unroll"]
        )
        return [*carry, *made], {**sums, **records}

    def _is_added(self, key: int, depth: int) -> bool:
        return self.stacked is not None and not self.stacked[key][depth]

    def _while(self, step: Step, taken: list[Any], depth: int) -> tuple[list[Any], Records]:
        """Run a loop until its condition fails; the records of its body are added."""
        condition, body = step.programs
        of_condition = taken[: step.eqn.params["cond_nconsts"]]
        rest = taken[len(of_condition) :]
        of_body = rest[: step.eqn.params["body_nconsts"]]
        start = rest[len(of_body) :]

        def goes_on(carry: tuple[list[Any], Records]) -> Any:
            return self.program(condition, [*of_condition, *carry[0]], depth + 1)[0][0]

        def run(carry: tuple[list[Any], Records]) -> tuple[list[Any], Records]:
            made, inside = self.program(body, [*of_body, *carry[0]], depth + 1)
            return made, jax.tree.map(operator.add, carry[1], inside)

        zeros = _zeros(
            jax.eval_shape(lambda carry: self.program(body, [*of_body, *carry], depth + 1)[1], start)
        )
        return lax.while_loop(goes_on, run, (start, zeros))

    def _cond(self, step: Step, taken: list[Any], depth: int) -> tuple[list[Any], Records]:
        """Run the branch that is chosen; the records of all others are 0."""
        index, *operands = taken

        def branch(program: Program) -> Callable[..., tuple[list[Any], Records]]:
            return lambda *operands: self.program(program, operands, depth)

        branches = [branch(program) for program in step.programs]
        shapes = [jax.eval_shape(run, *operands)[1] for run in branches]
        every: Records = {key: of for each in shapes for key, of in each.items()}

        def filled(run: Callable[..., tuple[list[Any], Records]]) -> Callable[..., tuple[list[Any], Records]]:
            def with_zeros(*operands: Any) -> tuple[list[Any], Records]:
                made, inside = run(*operands)
                return made, {key: inside[key] if key in inside else _zeros(of) for key, of in every.items()}

            return with_zeros

        return lax.switch(index, [filled(run) for run in branches], *operands)


def _zeros(shapes: PyTree) -> PyTree:
    return jax.tree.map(lambda of: jnp.zeros(of.shape, of.dtype), shapes)

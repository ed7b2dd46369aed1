"""Values inside a traced program: an interpreter that records what its steps take and make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax import lax
from jax.extend.core import Literal

from jaxarch._internal.trees import PyTree
from jaxarch.structure._flow import Program, Step, bind, literal
from jaxarch.structure._scans import scan_counts

Record = Callable[[Step, list[Any], list[Any]], PyTree]
"""From a step, its inputs and its outputs, what is recorded; `None` for nothing."""


def run_recorded(
    program: Program, inputs: Sequence[Any], record: Record
) -> tuple[list[Any], dict[int, PyTree]]:
    """Evaluate a program, and record values of its steps, through calls and loops.

    Args:
      program: the program.
      inputs: its inputs.
      record: see `Record`. It must return `None` for branches and `while` loops, which are not looked into.

    Returns:
      The outputs; and the records by `id` of their step. Each loop around a step adds a first axis: rounds.
    """
    jaxpr = program.closed.jaxpr
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, program.closed.consts, strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))
    records: dict[int, PyTree] = {}

    def value(atom: Any) -> Any:
        return literal(atom) if isinstance(atom, Literal) else known[atom]

    for step in program.steps:
        taken = [value(atom) for atom in step.eqn.invars]
        if step.called:
            made, inside = run_recorded(step.called, taken, record)
        elif step.eqn.primitive.name == "scan":
            made, inside = _scan(step, taken, record)
        else:
            made = bind(step.eqn, taken)
            found = record(step, taken, made)
            inside = {} if found is None else {id(step): found}
        records.update(inside)
        known.update(zip(step.eqn.outvars, made, strict=True))
    return [value(atom) for atom in jaxpr.outvars], records


def _scan(step: Step, taken: list[Any], record: Record) -> tuple[list[Any], dict[int, PyTree]]:
    params, (body,) = step.eqn.params, step.programs
    consts, carries = scan_counts(step.eqn)

    def run(carry: list[Any], rows: list[Any]) -> tuple[list[Any], tuple[list[Any], dict[int, PyTree]]]:
        made, inside = run_recorded(body, [*taken[:consts], *carry, *rows], record)
        return made[:carries], (made[carries:], inside)

    start, rows = taken[consts : consts + carries], taken[consts + carries :]
    carry, (made, records) = lax.scan(run, start, rows, params["length"], params["reverse"], params["unroll"])
    return [*carry, *made], records

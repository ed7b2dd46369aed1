"""Copies of constants, one for each use, so that no two layers are tied by a table that both read.

Examples are `jnp.ones((layers, heads))`, with one row for each layer, and a table of positions that all
layers read. Such a constant is one value of a traced program, and would tie the axes of everything it meets.
It depends on no leaves or inputs, so a copy for each use computes the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

ProgramOf = Callable[[JaxprEqn], ClosedJaxpr | None]
"""A function that returns the program of an equation that only calls it; `None` for other equations."""


def copy_constants(closed: ClosedJaxpr, called: ProgramOf) -> ClosedJaxpr:
    """Copy values that depend on no input of a program, once for each use by a value that depends on one.

    A call with constants as arguments is replaced by the equations of its program, which may use a constant
    several times. Equations that no output needs are left out: `zeros_like(x[:, :1])` reads no number of the
    slice, which would split the units of `x`.
    """
    closed = _live(closed)
    program = _Flat(closed, called)
    copies = _Copies(program)
    eqns = [
        eqn if index in program.constant else eqn.replace(invars=[copies.of(atom) for atom in eqn.invars])
        for index, eqn in enumerate(program.eqns)
    ]
    outvars = [copies.of(program.read(atom)) for atom in closed.jaxpr.outvars]
    if not copies.needed:
        return closed
    ordered = []
    for index, eqn in enumerate(eqns):
        if index not in program.constant or index in copies.taken:
            ordered.append(eqn)
        ordered += copies.made.get(index, [])
    jaxpr = closed.jaxpr.replace(constvars=[*program.consts], eqns=ordered, outvars=outvars)
    return ClosedJaxpr(jaxpr, [*program.consts.values()])


def _live(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return a program without the equations that no output needs."""
    jaxpr, eqns = closed.jaxpr, []
    needed = {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or not needed.isdisjoint(eqn.outvars):
            needed |= {*_variables(eqn)}
            eqns.append(eqn)
    if len(eqns) == len(jaxpr.eqns):
        return closed
    return ClosedJaxpr(jaxpr.replace(eqns=eqns[::-1]), closed.consts)


def read_twice(closed: ClosedJaxpr, constant: Sequence[bool]) -> list[Any]:
    """Find the inputs of a program that are constants at this call, and that it reads more than once.

    Values made of such constants alone count as these constants. A program that is called with one may read
    it twice.
    """
    jaxpr = closed.jaxpr
    roots: dict[Any, frozenset[Any]] = dict.fromkeys(jaxpr.constvars, frozenset())
    starts = zip(jaxpr.invars, constant, strict=False)
    roots |= {var: frozenset([var]) for var, is_one in starts if is_one and _has_units(var)}
    reads: Counter[Any] = Counter()
    for eqn in jaxpr.eqns:
        taken = _variables(eqn)
        if all(atom in roots for atom in taken):
            roots |= dict.fromkeys(eqn.outvars, frozenset().union(*(roots[atom] for atom in taken)))
            continue
        calls = any(
            isinstance(part, (Jaxpr, ClosedJaxpr)) for part in jax.tree.leaves([*eqn.params.values()])
        )
        for atom in taken:
            # The called program is not looked into, so a read by a call counts twice.
            reads.update(dict.fromkeys(roots.get(atom, ()), 1 + calls))
    for atom in jaxpr.outvars:
        reads.update(() if isinstance(atom, Literal) else roots.get(atom, ()))
    return [var for var in jaxpr.invars if reads[var] > 1]


class _Flat:
    """The equations of a program, with calls on constants replaced by their equations.

    Attributes:
      eqns: the equations.
      consts: arrays that are written in the program, by variable.
      constant: the indices of the equations that make constants with axes along which units may lie.
      maker: the indices of these equations, by variable.
    """

    def __init__(self, closed: ClosedJaxpr, called: ProgramOf) -> None:
        self.eqns: list[JaxprEqn] = []
        self.consts: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
        self.constant: set[int] = set()
        self.maker: dict[Any, int] = {}
        self._varying: set[Any] = set(closed.jaxpr.invars)
        self._called = called
        self._stand_for: _Names = {}
        self._add(closed.jaxpr.eqns, self._stand_for, own=False)

    def read(self, atom: Any) -> Any:
        """Return the atom that stands for a variable of the program after calls were replaced."""
        return _read(atom, self._stand_for)

    def has_to_be_copied(self, atom: Any) -> bool:
        """Return whether an atom is a constant with axes along which units may lie."""
        if isinstance(atom, Literal):
            return False
        return atom in self.maker or (atom in self.consts and _has_units(atom))

    def _add(self, eqns: Sequence[JaxprEqn], names: _Names, own: bool) -> None:
        """Add equations; if `own`, as for those of a call, their outputs get new variables."""
        for eqn in eqns:
            call = eqn.replace(invars=[_read(atom, names) for atom in eqn.invars])
            varies = any(atom in self._varying for atom in _variables(call))
            if varies and any(map(self.has_to_be_copied, call.invars)) and (program := self._called(call)):
                made = self._replace(call, program)
                names |= dict(zip(eqn.outvars, made, strict=True))
                continue
            if own:
                names |= {var: Var(var.aval) for var in eqn.outvars}
                call = call.replace(outvars=[names[var] for var in eqn.outvars])
            if varies:
                self._varying |= set(call.outvars)
            elif any(map(_has_units, call.outvars)):
                self.constant.add(len(self.eqns))
                self.maker |= dict.fromkeys(call.outvars, len(self.eqns))
            self.eqns.append(call)

    def _replace(self, call: JaxprEqn, program: ClosedJaxpr) -> list[Any]:
        """Add the equations of a called program, and return its outputs."""
        jaxpr = program.jaxpr
        # A program and one that it calls may share variables, so each call has its own names.
        names: _Names = dict(zip(jaxpr.invars, call.invars, strict=True))
        for var, value in zip(jaxpr.constvars, program.consts, strict=True):
            names[var] = Var(var.aval)
            self.consts[names[var]] = value
        self._add(jaxpr.eqns, names, own=True)
        return [_read(atom, names) for atom in jaxpr.outvars]


_Names = dict[Any, Any]
"""The atoms that stand for variables."""


def _read(atom: Any, names: _Names) -> Any:
    return atom if isinstance(atom, Literal) else names.get(atom, atom)


class _Copies:
    """Copies of constants, one for each use.

    Attributes:
      made: copies of equations, by the index of the original.
      taken: the indices of the equations that some use has taken unchanged.
      needed: whether any constant is read twice.
    """

    def __init__(self, program: _Flat) -> None:
        self.made: dict[int, list[JaxprEqn]] = {}
        self.taken: set[int] = set()
        self.needed = False
        self._program = program
        self._read: set[Any] = set()

    def of(self, atom: Any) -> Any:
        """Return the atom that one use of a value reads: a copy, if another use has read this constant."""
        program = self._program
        if not program.has_to_be_copied(atom):
            return atom
        found, waiting = {atom}, [atom]
        while waiting:
            number = program.maker.get(waiting.pop())
            atoms = [] if number is None else _variables(program.eqns[number])
            new = {each for each in atoms if program.has_to_be_copied(each)} - found
            found |= new
            waiting += new
        numbers = {program.maker[each] for each in found if each in program.maker}
        if not found & self._read:
            self._read |= found
            self.taken |= numbers
            return atom
        self.needed = True
        own = {each: Var(each.aval) for each in found if each in program.consts}
        program.consts |= {own[each]: program.consts[each] for each in own}
        for number in sorted(numbers):
            eqn = program.eqns[number]
            own |= {var: Var(var.aval) for var in eqn.outvars}
            invars = [each if isinstance(each, Literal) else own.get(each, each) for each in eqn.invars]
            copy = eqn.replace(invars=invars, outvars=[own[var] for var in eqn.outvars])
            self.made.setdefault(number, []).append(copy)
        return own[atom]


def _variables(eqn: JaxprEqn) -> list[Any]:
    return [atom for atom in eqn.invars if not isinstance(atom, Literal)]


def _has_units(atom: Any) -> bool:
    """Return whether an array has an axis along which units may lie."""
    # A symbolic number of examples counts as one that is above 1.
    return any(size not in (0, 1) for size in getattr(atom.aval, "shape", ()))

"""Axes of arrays as terms over atoms, and what follows where two of them are one and the same.

An axis is an *atom*, whose indices are units of their own; a *product* of axes, row by row, as a reshape
makes and splits it; or a *sum*, axes in a row, as a concatenation makes and a slice splits it. Arrays that
meet have axes in common: unifying two terms makes them equal, by refining the atoms in them where that is
needed. What no refinement makes equal is frozen: all its units stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

Form = Literal["atom", "product", "sum"]


class Axis:
    """An axis, which may turn out to be another one, or to have parts.

    Attributes:
      size: how many indices it has.
      form: what it is: an `atom`, a `product` or a `sum` of its parts.
      parts: axes; none of an atom, at least two of the others.
      frozen: of an atom, why all of its units stay; empty if they need not.
    """

    __slots__ = ("_same_as", "form", "frozen", "parts", "size")

    def __init__(self, size: int, form: Form = "atom", parts: Sequence[Axis] = (), frozen: str = "") -> None:
        self.size, self.form, self.parts, self.frozen = int(size), form, tuple(parts), frozen
        self._same_as: Axis | None = None

    def root(self) -> Axis:
        """What it has turned out to be."""
        axis = self
        while axis._same_as is not None:
            axis = axis._same_as
        return axis

    def atoms(self) -> Iterator[Axis]:
        """The atoms that it is made of, in order, those of one index among them."""
        axis = self.root()
        if axis.form == "atom":
            yield axis
        for part in axis.parts:
            yield from part.atoms()

    def freeze(self, why: str) -> None:
        """Let all units stay, for a reason; the first one that is given is kept."""
        for atom in self.atoms():
            atom.frozen = atom.frozen or why

    def spread(self, of_atom: Mapping[Axis, np.ndarray]) -> np.ndarray:
        """Booleans of its indices, of those of the atoms: an index of a product is its parts' all.

        Args:
          of_atom: booleans of each atom's units; those of atoms that are left out are all true.
        """
        axis = self.root()
        if axis.form == "atom":
            return of_atom.get(axis, np.ones(axis.size, bool))
        parts = [part.spread(of_atom) for part in axis.parts]
        if axis.form == "sum":
            return np.concatenate(parts)
        whole = parts[0]
        for part in parts[1:]:
            whole = (whole[:, None] & part[None, :]).reshape(-1)
        return whole


def product(parts: Sequence[Axis]) -> Axis:
    """The axis that a reshape makes of some: row by row, the last one fastest."""
    parts = [part for part in parts if part.size != 1]
    if len(parts) < 2:
        return parts[0] if parts else Axis(1)
    return Axis(int(np.prod([part.size for part in parts])), "product", parts)


def in_a_row(parts: Sequence[Axis]) -> Axis:
    """The axis that a concatenation makes of some."""
    parts = [part for part in parts if part.size]
    if len(parts) < 2:
        return parts[0] if parts else Axis(0)
    return Axis(sum(part.size for part in parts), "sum", parts)


def unify(first: Axis, second: Axis) -> None:
    """Two axes are one: make their terms equal, or freeze both where no refinement does."""
    first, second = first.root(), second.root()
    if first is second:
        return
    assert first.size == second.size, (first.size, second.size)
    if first.form != "atom":
        first, second = second, first
    if first.form == "atom":
        first._same_as = second
        if first.frozen:
            second.freeze(first.frozen)
        return
    if first.form != second.form:
        matched = _distribute(*((first, second) if first.form == "product" else (second, first)))
    else:
        matched = _match(first.form, list(first.parts), list(second.parts))
    if not matched:
        for axis in (first, second):
            axis.freeze("it is reshaped in a way that mixes its units")
    elif first.root() is not second.root():
        first.root()._same_as = second.root()


def _match(form: Form, first: list[Axis], second: list[Axis]) -> bool:
    """Unify the parts of two products, or of two sums, from the left, splitting the larger of each pair."""
    while first and second:
        large, small = (first, second) if first[0].size >= second[0].size else (second, first)
        whole, part = large.pop(0), small.pop(0)
        if whole.size != part.size:
            if form == "product" and whole.size % part.size:
                return False
            rest = Axis(whole.size // part.size if form == "product" else whole.size - part.size)
            halves = [Axis(part.size), rest]
            unify(whole, product(halves) if form == "product" else in_a_row(halves))
            whole = halves[0]
            large.insert(0, rest)
        unify(whole, part)
    return True


def _distribute(whole: Axis, row: Axis) -> bool:
    """Unify a product with a sum: `(a + b) x c` is `a x c + b x c`."""
    first, *rest = whole.parts
    block = whole.size // first.size
    if any(part.size % block for part in row.parts):
        return False
    pieces = [Axis(part.size // block) for part in row.parts]
    unify(first, in_a_row(pieces))
    for piece, part in zip(pieces, row.parts, strict=True):
        unify(part, product([piece, *rest]))
    return True

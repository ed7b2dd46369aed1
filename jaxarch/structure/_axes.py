"""Axes of arrays as terms over atoms, and their unification.

An axis has one of three forms. An *atom* has indices that are units of their own. A *product* of axes is laid
out row by row; a reshape makes or splits it. A *sum* is axes in a row; a concatenation makes it and a slice
splits it. Arrays that meet have axes in common. Unifying two terms makes them equal, if necessary by refining
their atoms. Axes that no refinement makes equal are frozen: all their units stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

Form = Literal["atom", "product", "sum"]


class Axis:
    """An axis, which may later turn out to be another axis, or to have parts.

    Attributes:
      size: the number of indices.
      form: the form: an `atom`, or a `product` or a `sum` of the parts.
      parts: the axes that it consists of; none for an atom, at least two otherwise.
      frozen: for an atom, the reason why all of its units stay; empty if they may go.
    """

    __slots__ = ("_same_as", "form", "frozen", "parts", "size")

    def __init__(self, size: int, form: Form = "atom", parts: Sequence[Axis] = (), frozen: str = "") -> None:
        self.size, self.form, self.parts, self.frozen = int(size), form, tuple(parts), frozen
        self._same_as: Axis | None = None

    def root(self) -> Axis:
        """Return the axis that this one has turned out to be (the root of a union-find)."""
        axis = self
        while axis._same_as is not None:
            axis = axis._same_as
        return axis

    def atoms(self) -> Iterator[Axis]:
        """Yield the atoms that the axis is made of, in order, including atoms of size 1."""
        axis = self.root()
        if axis.form == "atom":
            yield axis
        for part in axis.parts:
            yield from part.atoms()

    def freeze(self, why: str) -> None:
        """Mark all units as staying, for a reason; the first reason given is kept."""
        for atom in self.atoms():
            atom.frozen = atom.frozen or why

    def spread(self, of_atom: Mapping[Axis, np.ndarray]) -> np.ndarray:
        """Return booleans for the indices, given booleans for the atoms.

        An index of a product is true if the indices of all its parts are true.

        Args:
          of_atom: booleans for each atom's units; atoms that are left out count as all true.
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

    def order(self, of_atom: Mapping[Axis, np.ndarray]) -> np.ndarray:
        """Return the indices in a new order, given the new order of each atom's units.

        Args:
          of_atom: by atom, a permutation of its units; atoms that are left out keep their order.
        """
        axis = self.root()
        if axis.form == "atom":
            return of_atom.get(axis, np.arange(axis.size))
        orders = [part.order(of_atom) for part in axis.parts]
        sizes = [part.size for part in axis.parts]
        if axis.form == "sum":
            starts = np.cumsum([0, *sizes[:-1]])
            return np.concatenate([start + order for start, order in zip(starts, orders, strict=True)])
        return np.ravel_multi_index(np.ix_(*orders), sizes).reshape(-1)


def product(parts: Sequence[Axis]) -> Axis:
    """Return the axis into which a reshape merges some axes: row by row, the last one fastest."""
    # Reshapes add and drop axes of size 1 freely, so these are no parts.
    parts = [part for part in parts if part.size != 1]
    if len(parts) < 2:
        return parts[0] if parts else Axis(1)
    return Axis(int(np.prod([part.size for part in parts])), "product", parts)


def in_a_row(parts: Sequence[Axis]) -> Axis:
    """Return the axis into which a concatenation joins some axes."""
    # A slice that begins at 0 has an empty part before it.
    parts = [part for part in parts if part.size]
    if len(parts) < 2:
        return parts[0] if parts else Axis(0)
    return Axis(sum(part.size for part in parts), "sum", parts)


def unify(first: Axis, second: Axis) -> None:
    """Make two axes equal, by refining their terms; freeze both if no refinement does."""
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
        # Unifying the parts may have made the two one already: a root must not point to itself.
        first.root()._same_as = second.root()


def _match(form: Form, first: list[Axis], second: list[Axis]) -> bool:
    """Unify the parts of two products or two sums from the left, and split the larger of each pair."""
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

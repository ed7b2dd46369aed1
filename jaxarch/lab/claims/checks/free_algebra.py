"""Polynomials in symbols that do not commute: an identity of them is one of matrices of all sizes.

NumPy arrays of dtype `object` hold them, so that code written with operators alone runs on them. Let every
block of a block matrix be 1 x 1, a symbol. Then the words in block (i, j) of a product are paths from j to i,
and matrices of any sizes that fit may be put in place of the symbols: what holds for words holds for them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from jaxarch.lab.claims.checks.terms import Terms

Word = tuple[str, ...]


class Polynomial(Terms[Word]):
    """A sum of words with integer coefficients."""

    one = ()
    coefficient = staticmethod(operator.index)
    numbers = (int,)

    @staticmethod
    def times(first: Word, second: Word) -> Word:
        """One after the other."""
        return first + second

    def __repr__(self) -> str:
        terms = (f"{coefficient:+} {' '.join(word)}".strip() for word, coefficient in self.terms.items())
        return " ".join(terms) or "0"


def symbol(name: str, *shape: int) -> np.ndarray:
    """An array of one entry, a symbol, of shape (1,) or (1, 1)."""
    array = np.empty(shape, object)
    array[...] = Polynomial({(name,): 1})
    return array


def linear_in(name: str) -> Callable[[Polynomial | int], Polynomial]:
    """The part of a polynomial that is linear in a symbol, for arrays: the derivative where that is 0."""
    return np.vectorize(
        lambda value: Polynomial(
            {word: c for word, c in Polynomial.of(value).terms.items() if word.count(name) == 1}
        ),
        otypes=[object],
    )

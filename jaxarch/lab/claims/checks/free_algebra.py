"""Polynomials in symbols that do not commute: their identities hold for matrices of all sizes.

NumPy arrays of dtype `object` hold the polynomials, so code written with operators alone runs on them. Let
every block of a block matrix be 1 x 1, a symbol. Then the words in block (i, j) of a product are paths from j
to i. Matrices of any sizes that fit may replace the symbols: an identity of words holds for them too.
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
        """Concatenate two words."""
        return first + second

    def __repr__(self) -> str:
        terms = (f"{coefficient:+} {' '.join(word)}".strip() for word, coefficient in self.terms.items())
        return " ".join(terms) or "0"


def symbol(name: str, *shape: int) -> np.ndarray:
    """Return an array of shape (1,) or (1, 1) whose entry is a symbol."""
    array = np.empty(shape, object)
    array[...] = Polynomial({(name,): 1})
    return array


def linear_in(name: str) -> Callable[[Polynomial | int], Polynomial]:
    """Return a function of arrays that keeps the part linear in a symbol: the derivative at symbol = 0."""
    return np.vectorize(
        lambda value: Polynomial(
            {word: c for word, c in Polynomial.of(value).terms.items() if word.count(name) == 1}
        ),
        otypes=[object],
    )

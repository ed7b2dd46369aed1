"""Polynomials in symbols that do not commute: an identity of them is one of matrices of all sizes.

NumPy arrays of dtype `object` hold them, so that code written with operators alone runs on them. Let every
block of a block matrix be 1 x 1, a symbol. Then the words in block (i, j) of a product are paths from j to i,
and matrices of any sizes that fit may be put in place of the symbols: what holds for words holds for them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Word = tuple[str, ...]


class Polynomial:
    """A sum of words with integer coefficients.

    Attributes:
      terms: the coefficient of each word, none of them 0; the empty word is the number 1.
    """

    def __init__(self, terms: dict[Word, int]) -> None:
        self.terms = {word: coefficient for word, coefficient in terms.items() if coefficient}

    def __add__(self, other: Polynomial | int) -> Polynomial:
        terms = dict(self.terms)
        for word, coefficient in polynomial(other).terms.items():
            terms[word] = terms.get(word, 0) + coefficient
        return Polynomial(terms)

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        terms: dict[Word, int] = {}
        for first, a in self.terms.items():
            for second, b in polynomial(other).terms.items():
                word = first + second
                terms[word] = terms.get(word, 0) + a * b
        return Polynomial(terms)

    def __neg__(self) -> Polynomial:
        return Polynomial({word: -coefficient for word, coefficient in self.terms.items()})

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        return self + -polynomial(other)

    def __rsub__(self, other: int) -> Polynomial:
        return -self + other

    def __rmul__(self, other: int) -> Polynomial:
        return polynomial(other) * self

    __radd__ = __add__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Polynomial, int)) and self.terms == polynomial(other).terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __repr__(self) -> str:
        terms = (f"{coefficient:+} {' '.join(word)}".strip() for word, coefficient in self.terms.items())
        return " ".join(terms) or "0"


def polynomial(value: Polynomial | int) -> Polynomial:
    """A number as a polynomial."""
    return value if isinstance(value, Polynomial) else Polynomial({(): int(value)})


def symbol(name: str, *shape: int) -> np.ndarray:
    """An array of one entry, a symbol, of shape (1,) or (1, 1)."""
    array = np.empty(shape, object)
    array[...] = Polynomial({(name,): 1})
    return array


def linear_in(name: str) -> Callable[[Polynomial | int], Polynomial]:
    """The part of a polynomial that is linear in a symbol, for arrays: the derivative where that is 0."""
    return np.vectorize(
        lambda value: Polynomial(
            {word: c for word, c in polynomial(value).terms.items() if word.count(name) == 1}
        ),
        otypes=[object],
    )

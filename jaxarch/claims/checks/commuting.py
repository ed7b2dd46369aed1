"""Polynomials in symbols that commute, with fractions for coefficients: identities that hold for all numbers.

Functions of `Numbers` are symbols, one for each argument, and keep only the rules that are listed here: what
is the same by these rules is the same.
"""

from __future__ import annotations

from fractions import Fraction

Symbol = tuple[object, ...]
"""A name, and what it is of."""

Monomial = frozenset[tuple[Symbol, int]]
"""Symbols with their powers, which may be negative and are not 0."""


class Commuting:
    """A sum of monomials.

    Attributes:
      terms: the coefficient of each monomial, none of them 0; the empty one is the number 1.
    """

    def __init__(self, terms: dict[Monomial, Fraction]) -> None:
        self.terms = {monomial: coefficient for monomial, coefficient in terms.items() if coefficient}

    def __add__(self, other: Commuting | float) -> Commuting:
        terms = dict(self.terms)
        for monomial, coefficient in commuting(other).terms.items():
            terms[monomial] = terms.get(monomial, Fraction(0)) + coefficient
        return Commuting(terms)

    def __mul__(self, other: Commuting | float) -> Commuting:
        terms: dict[Monomial, Fraction] = {}
        for first, a in self.terms.items():
            for second, b in commuting(other).terms.items():
                powers = dict(first)
                for symbol, power in second:
                    powers[symbol] = powers.get(symbol, 0) + power
                monomial = frozenset((symbol, power) for symbol, power in powers.items() if power)
                terms[monomial] = terms.get(monomial, Fraction(0)) + a * b
        return Commuting(terms)

    def __neg__(self) -> Commuting:
        return self * -1

    def __sub__(self, other: Commuting | float) -> Commuting:
        return self + -commuting(other)

    def __rsub__(self, other: float) -> Commuting:
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Commuting, int, float)) and self.terms == commuting(other).terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))


def commuting(value: Commuting | float | Fraction) -> Commuting:
    """A number as a polynomial; floats are exact."""
    return value if isinstance(value, Commuting) else Commuting({frozenset(): Fraction(value)})


def variable(*name: object) -> Commuting:
    """A symbol."""
    return Commuting({frozenset({(name, 1)}): Fraction(1)})


class Symbols:
    """`Numbers` of polynomials."""

    @staticmethod
    def tanh(x: Commuting) -> Commuting:
        """A symbol."""
        return variable("tanh", commuting(x))

    @staticmethod
    def square(x: Commuting) -> Commuting:
        """`x x`."""
        return x * x

    @staticmethod
    def divide(x: Commuting, y: Commuting) -> Commuting:
        """By a single monomial exactly; by anything else, x times a symbol."""
        y = commuting(y)
        if len(y.terms) != 1:
            return x * variable("1/", y)
        ((monomial, coefficient),) = y.terms.items()
        inverse = frozenset((symbol, -power) for symbol, power in monomial)
        return x * Commuting({inverse: 1 / coefficient})

    @staticmethod
    def share(part: Commuting, whole: Commuting) -> Commuting:
        """A symbol."""
        return variable("share", commuting(part), commuting(whole))

    @staticmethod
    def maximum(x: Commuting | float, y: Commuting | float) -> Commuting:
        """`(x + y + |x - y|)/2`."""
        x, y = commuting(x), commuting(y)
        return 0.5 * (x + y + _size(x - y))

    @staticmethod
    def minimum(x: Commuting | float, y: Commuting | float) -> Commuting:
        """`(x + y - |x - y|)/2`."""
        x, y = commuting(x), commuting(y)
        return 0.5 * (x + y - _size(x - y))


def _size(x: Commuting) -> Commuting:
    """`|x|`, a symbol that is that of `-x` too."""
    return variable("size", frozenset({x, -x}))

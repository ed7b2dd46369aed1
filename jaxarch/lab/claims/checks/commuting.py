"""Polynomials in commuting symbols with fractions as coefficients: their identities hold for all numbers.

The functions of `Numbers` become symbols, one for each argument, and keep only the rules in this module. So
expressions that are equal by these rules are equal for all numbers.
"""

from __future__ import annotations

from fractions import Fraction

from jaxarch.lab.claims.checks.terms import Terms

Symbol = tuple[object, ...]
"""A name, followed by its arguments."""

Monomial = frozenset[tuple[Symbol, int]]
"""Symbols with their powers, which may be negative and are not 0."""


class Commuting(Terms[Monomial]):
    """A sum of monomials."""

    one = frozenset()
    coefficient = Fraction
    numbers = (int, float)

    @staticmethod
    def times(first: Monomial, second: Monomial) -> Monomial:
        """Add the powers."""
        powers = dict(first)
        for symbol, power in second:
            powers[symbol] = powers.get(symbol, 0) + power
        return frozenset((symbol, power) for symbol, power in powers.items() if power)


def variable(*name: object) -> Commuting:
    """Return a symbol."""
    return Commuting({frozenset({(name, 1)}): Fraction(1)})


class Symbols:
    """`Numbers` of polynomials."""

    @staticmethod
    def tanh(x: Commuting) -> Commuting:
        """A symbol."""
        return variable("tanh", Commuting.of(x))

    @staticmethod
    def square(x: Commuting) -> Commuting:
        """`x x`."""
        return x * x

    @staticmethod
    def divide(x: Commuting, y: Commuting) -> Commuting:
        """Divide exactly by a single monomial; for any other y, multiply x by a symbol for `1/y`."""
        y = Commuting.of(y)
        if len(y.terms) != 1:
            return x * variable("1/", y)
        ((monomial, coefficient),) = y.terms.items()
        inverse = frozenset((symbol, -power) for symbol, power in monomial)
        return x * Commuting({inverse: 1 / coefficient})

    @staticmethod
    def share(part: Commuting, whole: Commuting) -> Commuting:
        """A symbol."""
        return variable("share", Commuting.of(part), Commuting.of(whole))

    @staticmethod
    def maximum(x: Commuting | float, y: Commuting | float) -> Commuting:
        """`(x + y + |x - y|)/2`."""
        x, y = Commuting.of(x), Commuting.of(y)
        return 0.5 * (x + y + _size(x - y))

    @staticmethod
    def minimum(x: Commuting | float, y: Commuting | float) -> Commuting:
        """`(x + y - |x - y|)/2`."""
        x, y = Commuting.of(x), Commuting.of(y)
        return 0.5 * (x + y - _size(x - y))


def _size(x: Commuting) -> Commuting:
    """`|x|`, a symbol that x and -x share."""
    return variable("size", frozenset({x, -x}))

"""Polynomials in symbols that commute calculate as the numbers do that are put in their place."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxarch.lab.claims.checks.commuting import Commuting, Symbols, variable

NUMBERS = st.integers(-20, 20).map(lambda n: n / 4)


@st.composite
def polynomials(draw):
    x, y = variable("x"), variable("y")
    terms = draw(st.lists(st.tuples(NUMBERS, st.integers(0, 2), st.integers(0, 2)), max_size=3))
    total = Commuting.of(0)
    for coefficient, a, b in terms:
        term = Commuting.of(coefficient)
        for factor in [x] * a + [y] * b:
            term = term * factor
        total = total + term
    return total


def evaluated(polynomial, values):
    """A polynomial of numbers, sizes and powers included."""

    def of(symbol):
        if symbol[0] == "size":
            return abs(evaluated(next(iter(symbol[1])), values))
        return values[symbol[0]]

    return sum(
        coefficient * np.prod([of(symbol) ** power for symbol, power in monomial] or [Fraction(1)])
        for monomial, coefficient in polynomial.terms.items()
    )


@given(polynomials(), polynomials(), NUMBERS, st.fractions(-3, 3), st.fractions(-3, 3))
def test_symbols_calculate_as_numbers(first, second, number, x, y):
    values = {"x": x, "y": y}
    a, b, exact = evaluated(first, values), evaluated(second, values), Fraction(number)
    for found, expected in (
        (first + second, a + b),
        (first - second, a - b),
        (first * second, a * b),
        (number - 2 * first, exact - 2 * a),
        (Symbols.square(first), a * a),
        (Symbols.maximum(first, second), max(a, b)),
        (Symbols.minimum(first, number), min(a, exact)),
    ):
        assert evaluated(found, values) == expected
    if number:
        assert evaluated(Symbols.divide(first, Commuting.of(number)), values) == a / exact


def test_what_is_the_same_by_the_rules_is_the_same():
    x, y = variable("x"), variable("y")
    assert (x + y) * (x - y) == x * x - y * y
    assert Symbols.maximum(x, y) == Symbols.maximum(y, x)
    assert Symbols.maximum(0, x - y) == x - y + Symbols.maximum(0, y - x)
    assert Symbols.divide(x * x * y, 2 * x * y) == 0.5 * x
    assert Symbols.tanh(x + y) == Symbols.tanh(y + x)


def test_different_arguments_are_different_symbols():
    x, y = variable("x"), variable("y")
    assert Symbols.tanh(x) != Symbols.tanh(2 * x)
    assert Symbols.share(x, y) != Symbols.share(y, x)
    assert isinstance(Symbols.divide(x, 1 + y), Commuting)
    assert Symbols.divide(x, 1 + y) != Symbols.divide(x, 2 + y)

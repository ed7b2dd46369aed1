"""Polynomials in symbols that do not commute calculate as matrices do."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxarch.lab.claims.checks.exact_networks import same
from jaxarch.lab.claims.checks.free_algebra import Polynomial, linear_in, symbol


@st.composite
def polynomials(draw):
    words = st.lists(st.sampled_from("xyz"), max_size=2).map(tuple)
    return Polynomial(draw(st.dictionaries(words, st.integers(-3, 3), max_size=3)))


def evaluated(value, matrices):
    """A polynomial of matrices."""
    total = np.zeros((2, 2), int)
    for word, coefficient in value.terms.items():
        product = np.eye(2, dtype=int)
        for letter in word:
            product = product @ matrices[letter]
        total = total + coefficient * product
    return total


@given(polynomials(), polynomials(), st.integers(-3, 3), st.integers(0, 1000))
def test_words_calculate_as_the_matrices_that_are_put_in_their_place(first, second, number, seed):
    random = np.random.default_rng(seed)
    matrices = {letter: random.integers(-3, 4, (2, 2)) for letter in "xyz"}
    a, b, one = evaluated(first, matrices), evaluated(second, matrices), np.eye(2, dtype=int)
    for words, expected in (
        (first + second, a + b),
        (first - second, a - b),
        (first * second, a @ b),
        (number * first, number * a),
        (number + first, number * one + a),
        (number - first, number * one - a),
    ):
        np.testing.assert_array_equal(evaluated(words, matrices), expected)


def test_symbols_do_not_commute():
    x, y = symbol("x", 1, 1), symbol("y", 1, 1)
    assert not same(x @ y, y @ x)
    assert same((x + y) @ (x + y), x @ x + x @ y + y @ x + y @ y)


def test_the_linear_part_is_the_derivative_at_0():
    x, q = symbol("x", 1, 1), symbol("q", 1, 1)
    assert same(linear_in("q")((1 + q) @ x @ (1 + q)), q @ x + x @ q)

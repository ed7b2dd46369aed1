"""Interval arithmetic that never loses a number."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxarch.lab.claims.checks.interval_arithmetic import Intervals, interval

pytest.importorskip("flint")

NUMBERS = st.floats(-3, 3).map(lambda x: round(x, 3))


@st.composite
def intervals(draw):
    low, inside, high = sorted(draw(st.tuples(NUMBERS, NUMBERS, NUMBERS)))
    return interval(low, high), inside


def contains(found, exact):
    """Whether an interval contains a fraction."""
    low, high = (Fraction(*map(int, (end.fmpq().p, end.fmpq().q))) for end in (found.low, found.high))
    return low <= exact <= high


@given(intervals(), intervals())
def test_no_operation_loses_a_number(first, second):
    (x, a), (y, b) = first, second
    exact, other = Fraction(a), Fraction(b)
    for found, expected in (
        (x + y, exact + other),
        (x - y, exact - other),
        (x * y, exact * other),
        (2 - 3 * x, 2 - 3 * exact),
        (Intervals.square(x), exact**2),
        (Intervals.minimum(x, y), min(exact, other)),
        (Intervals.maximum(x, y), max(exact, other)),
        (Intervals.divide(y, Intervals.square(x) + 0.125), other / (exact**2 + Fraction(1, 8))),
    ):
        assert contains(found, expected)
    tanh = Intervals.tanh(x)
    assert float(tanh.low) - 1e-15 <= np.tanh(a) <= float(tanh.high) + 1e-15
    assert tanh.low >= -1
    assert tanh.high <= 1


@given(intervals(), intervals())
def test_a_share_is_within_0_and_1_and_loses_none(first, second):
    (x, a), (y, b) = (Intervals.square(first[0]), first[1]), (Intervals.square(second[0]), second[1])
    part, whole = Fraction(a) ** 2, Fraction(a) ** 2 + Fraction(b) ** 2
    found = Intervals.share(x, x + y)
    assert found.low >= 0
    assert found.high <= 1
    if whole:
        assert contains(found, part / whole)

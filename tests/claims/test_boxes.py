"""Interval arithmetic that never loses a number, proofs by halving, and the slacks that are proved."""

import itertools
from fractions import Fraction
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxarch.claims import boxes, proofs
from jaxarch.claims.boxes import Box, Intervals, Reals, interval
from jaxarch.claims.two_temperature import slope
from jaxarch.running.devices import float64

KEY = jax.random.key(0)
PROVED = {
    "slope": proofs.SLOPE,
    "lemma 4.2": proofs.LEMMA_4_2_IN_ONE_COORDINATE,
    "convexity": proofs.STRONG_CONVEXITY,
    "ratio from below": proofs.RATIO_BOUND[0],
    "ratio from above": proofs.RATIO_BOUND[1],
}
over = pytest.mark.parametrize("box", PROVED.values(), ids=PROVED)


@pytest.fixture
def with_flint():
    pytest.importorskip("flint")


@over
def test_it_is_proved_on_its_box_in_no_time(box, with_flint):
    found = box.run(KEY, 1000)
    assert found.kind == "proved on the box"
    assert found.holds
    assert found.margin >= 0
    assert "scores in [" in found.domain
    assert found.seconds < 10


@over
def test_without_the_library_the_same_statements_are_sampled(box, monkeypatch):
    monkeypatch.setattr(boxes, "flint", None)
    found = box.run(KEY, 1000)
    assert (found.kind, found.holds, found.cases) == ("sampled", True, 1000)
    assert not any(box.run(KEY, 1000, mutation).holds for mutation in box.mutations)


# Proofs ----------------------------------------------------------------------------------------------


def parabola(n, x, y, constant=0.26):
    """`x (1 - x) <= constant`, of which intervals say too little unless they are small."""
    return constant - x * (1 - x) + 0 * y


SQUARE = {"x": (0.0, 1.0), "y": (0.5, 2.0)}


def test_a_box_that_does_not_show_it_is_halved_until_its_parts_do(with_flint):
    found = Box(parabola, SQUARE).run(KEY, 1)
    assert found.holds
    assert found.cases > 10
    assert 0 <= found.margin <= 0.01


def test_a_violation_between_all_points_that_were_tried_is_found_by_halving(with_flint, monkeypatch):
    monkeypatch.setattr(boxes, "POINTS", 0)
    found = Box(lambda n, x, y: n.square(x - 0.3) - 1e-6 + 0 * y, SQUARE).run(KEY, 1)
    assert not found.holds
    assert found.margin < 0


def test_what_cannot_be_decided_counts_as_failing(with_flint):
    box = Box(lambda n, **case: parabola(n, **case, constant=0.25), SQUARE)
    found = box.proof(box.slack, limit=100)
    assert (found.kind, found.holds, found.cases) == ("undecided", False, 100)


# Intervals -------------------------------------------------------------------------------------------

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
    pytest.importorskip("flint")
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
    pytest.importorskip("flint")
    (x, a), (y, b) = (Intervals.square(first[0]), first[1]), (Intervals.square(second[0]), second[1])
    part, whole = Fraction(a) ** 2, Fraction(a) ** 2 + Fraction(b) ** 2
    found = Intervals.share(x, x + y)
    assert found.low >= 0
    assert found.high <= 1
    if whole:
        assert contains(found, part / whole)


# The slacks are those of the statements --------------------------------------------------------------


def test_the_bounds_of_the_curvature_are_identities_of_polynomials():
    # At one whole number more than its degree for each variable; floats of Python are exact there.
    n = SimpleNamespace(square=lambda x: x * x)
    for tau, share, ratio, u in itertools.product(range(9), range(9), range(3), range(2)):
        t = share * tau
        curvature = (1 - t**2) * ((1 - tau**2) + 2 * ratio * t * (1 + tau - 2 * u))
        assert proofs.curvature_below(n, tau, share, ratio, u) == curvature
        assert proofs.curvature_above(n, tau, share, ratio, u) == 1 + ratio**2 - curvature


CASE = {
    "w": st.floats(-3, 3),
    "hard": st.sampled_from([1.0, 4.0, 20.0]),
    "ratio": st.sampled_from([0.01, 0.5, 1.0]),
    "u": st.floats(0, 1),
}


@given(**CASE)
def test_that_curvature_is_the_divergence_s_along_the_scores(w, hard, ratio, u):
    w, soft = abs(w), ratio * hard
    with float64():
        first = jax.grad(lambda w: (jax.nn.sigmoid(hard * w) - u) / slope(w, soft))
        expected = slope(w, soft) ** 2 * first(w) / (hard * soft / 16)
        tau = jnp.tanh(hard * w / 2)
        share = Reals.share(jnp.tanh(soft * w / 2), tau)
        np.testing.assert_allclose(
            proofs.curvature_below(Reals, tau, share, ratio, u), expected, rtol=1e-9, atol=1e-9
        )


@given(**CASE, step=st.floats(-3, 3))
def test_the_other_slacks_are_their_sides_difference(w, hard, ratio, u, step):
    soft = ratio * hard
    with float64():
        largest = hard * soft / 16
        xi = w - u * step * slope(w, soft)
        p = slope(xi, hard) * slope(w, soft)
        right = max(1, largest - 1)
        for found, expected in (
            (proofs.slope(Reals, w, hard), 1 - slope(w, hard) / (hard / 4)),
            (proofs.lemma_4_2(Reals, w, hard, ratio, step, u), 1 - jnp.abs(1 - p) / right),
            (proofs.convexity(Reals, w, hard, ratio), 1 - slope(w, hard) * slope(w, soft) / largest),
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)

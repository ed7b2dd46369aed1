"""Inequalities proved on boxes with python-flint, and what is said and done without it."""

import functools
import sys

import jax
import pytest

from jaxarch import ArgumentError
from jaxarch.lab.claims import CLAIMS, Box, judge
from jaxarch.lab.claims.checks import boxes, proofs
from jaxarch.lab.claims.checks.interval_arithmetic import interval

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


@pytest.fixture
def without_flint(monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)


@over
def test_it_is_proved_on_its_box_by_a_few_boxes(box, with_flint):
    found = box.run(KEY, 1000)
    assert found.kind == "proved on the box"
    assert found.holds
    assert found.margin >= 0
    assert found.cases < 100
    assert "scores in [" in found.domain


@over
def test_without_flint_the_same_statements_are_sampled(box, without_flint):
    found = box.run(KEY, 1000)
    assert (found.kind, found.holds, found.cases) == ("sampled", True, 1000)
    assert not any(box.run(KEY, 1000, mutation).holds for mutation in box.mutations)


def test_without_flint_a_proof_is_refused_in_a_line_that_says_what_to_install(without_flint):
    for proof in (lambda: Box(parabola, SQUARE).proof(parabola), lambda: interval(0.0, 1.0)):
        with pytest.raises(ArgumentError, match=r"pip install 'jaxarch\[proofs\]'") as error:
            proof()
        assert "\n" not in str(error.value)


def test_without_flint_a_claim_has_the_same_verdict_and_says_that_it_was_sampled(without_flint):
    outcome = judge(CLAIMS["two-temperature.strong-convexity"], KEY, 1000)
    assert (outcome.verdict, outcome.kinds) == ("holds", "sampled")


# Halving ---------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("installed", [True, False])
def test_a_slack_that_is_not_the_statement_s_proves_nothing_though_it_is_nowhere_negative(installed, request):
    request.getfixturevalue("with_flint" if installed else "without_flint")

    def square(n, x, y):
        return n.square(x - 0.5) + 0 * y

    statement = functools.partial(parabola, constant=0.25)
    assert Box(statement, SQUARE, slack=square).run(KEY, 1000).holds
    other = Box(statement, SQUARE, slack=lambda n, x, y: n.square(x) + 0 * y).run(KEY, 1000)
    assert (other.holds, other.margin) == (False, -1.0)


def test_what_cannot_be_decided_counts_as_failing(with_flint):
    box = Box(lambda n, **case: parabola(n, **case, constant=0.25), SQUARE)
    found = box.proof(box.statement, limit=100)
    assert (found.kind, found.holds, found.cases) == ("undecided", False, 100)

"""What holds for every claim: its verdict is the one found by running, and its checks can fail."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxarch
from jaxarch.claims import CLAIMS, Inequality, judge
from jaxarch.claims.core import Sides, compiled, evaluate

KEY = jax.random.key(1)
CHECKS = {
    f"{claim.id} {position}": check
    for claim in CLAIMS.values()
    for position, check in enumerate(claim.checks)
}
INEQUALITIES = {name: check for name, check in CHECKS.items() if isinstance(check, Inequality)}
CASES = 1000
PRINTED = {
    f"{claim.id} {position}": counterexample
    for claim in CLAIMS.values()
    for position, counterexample in enumerate(claim.printed)
}


def over(table):
    return pytest.mark.parametrize("entry", table.values(), ids=table)


@over(CLAIMS)
def test_its_verdict_is_the_recorded_one_after_enough_cases(entry):
    outcome = judge(entry, KEY, cases=CASES)
    assert outcome.verdict == entry.verdict
    assert all(found.is_proof or found.kind == "exact" or found.cases >= CASES for found in outcome.evidence)


@over(CHECKS)
def test_every_mutated_statement_is_rejected(entry):
    assert entry.mutations
    if isinstance(entry, Inequality):
        rejected = all_rejected(entry)
    else:
        rejected = {name: not entry.run(KEY, CASES, name).holds for name in entry.mutations}
    assert all(rejected.values()), rejected


def all_rejected(check):
    """For every mutation, whether it fails in some case; all of them are compiled to one program."""

    def together(**case):
        sides = [mutated(**case) for mutated in check.mutations.values()]
        return Sides(*(jnp.stack([jnp.asarray(side) for side in part]) for part in zip(*sides, strict=True)))

    random = np.random.default_rng(np.asarray(jax.random.key_data(KEY)))
    points = random.random((check.cases or CASES, check.cube.dimension))
    holds = np.asarray(compiled(together, check.cube, len(points))(points).holds)
    return dict(zip(check.mutations, ~holds.all(axis=0), strict=True))


@over(INEQUALITIES)
def test_no_case_that_hypothesis_finds_breaks_it(entry):
    dimension = entry.cube.dimension

    @settings(max_examples=20)
    @given(st.lists(st.floats(0, 1), min_size=dimension, max_size=dimension))
    def holds(point):
        # As often as the other tests have cases: one program for all of them.
        found = evaluate(entry.statement, entry.cube, np.tile(point, (CASES, 1)))
        assert found.holds, found.worst

    holds()


@over(PRINTED)
def test_the_printed_line_shows_that_the_printed_form_fails_in_float32_too(entry):
    holds, left = jax.jit(lambda: (lambda s: (s.holds, s.left))(eval(entry.line, {"jaxarch": jaxarch})))()
    assert not holds
    assert float(left) == pytest.approx(entry.evaluate().left, rel=0.01)


def test_claims_refer_to_claims():
    assert {name for claim in CLAIMS.values() for name in claim.see} <= set(CLAIMS)

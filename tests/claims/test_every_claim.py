"""What holds for every claim: its verdict is the one found by running, and its checks can fail."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxarch
from jaxarch.claims import CLAIMS, Exact, Inequality, judge
from jaxarch.claims.core import margins_at

KEY = jax.random.key(1)
CHECKS = {
    f"{claim.id} {position}": check
    for claim in CLAIMS.values()
    for position, check in enumerate(claim.checks)
}
MUTATIONS = {
    f"{name}: {mutation}": (check, mutation) for name, check in CHECKS.items() for mutation in check.mutations
}
INEQUALITIES = {name: check for name, check in CHECKS.items() if isinstance(check, Inequality)}
PRINTED = {
    f"{claim.id} {position}": counterexample
    for claim in CLAIMS.values()
    for position, counterexample in enumerate(claim.printed)
}


def over(table):
    return pytest.mark.parametrize("entry", table.values(), ids=table)


@over(CLAIMS)
def test_its_verdict_is_the_recorded_one(entry):
    assert judge(entry, KEY, cases=1000).verdict == entry.verdict


@over(MUTATIONS)
def test_a_mutated_statement_is_rejected(entry):
    check, mutation = entry
    assert not check.run(KEY, 1000, mutation).holds


@over(CHECKS)
def test_every_check_has_a_mutation_and_enough_cases(entry):
    assert entry.mutations
    assert isinstance(entry, Exact) or entry.run(KEY, 1000).cases >= 1000


@over(INEQUALITIES)
def test_no_case_that_hypothesis_finds_breaks_it(entry):
    holds_at = margins_at(entry.statement, entry.cube)

    @given(st.lists(st.floats(0, 1), min_size=entry.cube.dimension, max_size=entry.cube.dimension))
    def holds(point):
        with jax.enable_x64(True):
            found, _ = holds_at(np.asarray([point]))
            assert found.all(), entry.cube.at(np.asarray(point))

    holds()


@over(PRINTED)
@pytest.mark.parametrize("float64", [True, False])
def test_the_printed_line_shows_that_the_printed_form_fails(entry, float64):
    with jax.enable_x64(float64):
        sides = eval(entry.line, {"jaxarch": jaxarch})
        assert not sides.holds
        assert not float64 or float(sides.left) == entry.evaluate().left


def test_claims_refer_to_claims():
    assert {name for claim in CLAIMS.values() for name in claim.see} <= set(CLAIMS)

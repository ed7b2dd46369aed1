"""What holds for every claim: its verdict is the one found by running, and its checks can fail."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxarch
from jaxarch import float64
from jaxarch.lab.claims import CLAIMS, Inequality, judge
from jaxarch.lab.claims.checks.core import Evidence, Sides, quick

KEY = jax.random.key(1)
CHECKS = {
    f"{claim.id} {position}": check
    for claim in CLAIMS.values()
    for position, check in enumerate(claim.checks)
}
INEQUALITIES = {name: check for name, check in CHECKS.items() if isinstance(check, Inequality)}
CASES = 1000


def own_ones_long(names):
    """What the papers state is checked by the quick suite, the library's own theorems by the long one."""
    own = pytest.mark.long
    return [name if name.startswith(("D.", "A.", "S.")) else pytest.param(name, marks=own) for name in names]


PRINTED = [(name, position) for name, claim in CLAIMS.items() for position in range(len(claim.printed))]


def stacked(check):
    """A statement and its mutations as one: they share a program."""

    def statement(**case):
        sides = [check.statement(**case), *(mutated(**case) for mutated in check.mutations.values())]
        return Sides(*(jnp.stack([jnp.asarray(side) for side in part]) for part in zip(*sides, strict=True)))

    return statement


@functools.cache
def program(name):
    """Whether a statement (first) and its mutations hold at points: all that is asked of them, compiled."""
    statement, cube = stacked(CHECKS[name]), CHECKS[name].cube
    return jax.jit(jax.vmap(lambda point: statement(**cube(point)).holds), compiler_options=quick())


def held(name, points):
    """Whether a statement (first) and its mutations hold, shape (cases, 1 + mutations)."""
    with float64():
        return np.asarray(program(name)(points))


@functools.cache
def held_when_drawn(name):
    return held(name, np.random.default_rng(1).random((CASES, CHECKS[name].cube.dimension)))


@dataclasses.dataclass(frozen=True)
class Ran:
    """An inequality that was run already."""

    name: str

    def run(self, key, cases):
        return Evidence("sampled", bool(held_when_drawn(self.name)[:, 0].all()), 0.0, CASES, {}, 0.0)


@functools.cache
def outcome_of(name):
    claim = CLAIMS[name]
    checks = tuple(
        Ran(f"{name} {position}") if isinstance(check, Inequality) else check
        for position, check in enumerate(claim.checks)
    )
    return judge(dataclasses.replace(claim, checks=checks), KEY, CASES)


@pytest.mark.parametrize("name", own_ones_long(CLAIMS))
def test_its_verdict_is_the_recorded_one_after_enough_cases(name):
    outcome = outcome_of(name)
    assert outcome.verdict == CLAIMS[name].verdict
    assert all(found.is_proof or found.kind == "exact" or found.cases >= CASES for found in outcome.evidence)


@pytest.mark.parametrize("name", own_ones_long(CHECKS))
def test_every_mutated_statement_is_rejected(name):
    check = CHECKS[name]
    assert check.mutations
    if name in INEQUALITIES:
        rejected = ~held_when_drawn(name)[:, 1:].all(axis=0)
    else:
        rejected = [not check.run(KEY, CASES, mutation).holds for mutation in check.mutations]
    assert all(rejected), dict(zip(check.mutations, rejected, strict=True))


@pytest.mark.long
@pytest.mark.parametrize("name", INEQUALITIES)
def test_no_case_that_hypothesis_finds_breaks_it(name):
    cube = CHECKS[name].cube

    @settings(max_examples=8)
    @given(st.lists(st.floats(0, 1), min_size=cube.dimension, max_size=cube.dimension))
    def holds(point):
        # The point itself, and others near it.
        noise = np.random.default_rng(0).normal(0, 0.1, (CASES, cube.dimension))
        points = np.clip(point + noise * (np.arange(CASES) > 0)[:, None], 0, 1)
        kept = held(name, points)[:, 0]
        assert kept.all(), points[np.argmin(kept)]

    holds()


@pytest.mark.parametrize(("name", "position"), PRINTED)
def test_the_printed_line_shows_that_the_printed_form_fails_in_float32_too(name, position):
    line = CLAIMS[name].printed[position].line
    holds, left = jax.jit(lambda: (lambda s: (s.holds, s.left))(eval(line, {"jaxarch": jaxarch})))()
    assert not holds
    assert float(left) == pytest.approx(outcome_of(name).printed[position].left, rel=0.01)


CONTROLS = [(name, position) for name, claim in CLAIMS.items() for position in range(len(claim.controls))]


def test_whatever_is_refuted_holds_somewhere():
    refuted = {name for name, claim in CLAIMS.items() if claim.verdict == "refuted"}
    assert {name for name, _ in CONTROLS} == refuted


@pytest.mark.parametrize(("name", "position"), CONTROLS)
def test_the_printed_form_of_what_is_refuted_holds_at_its_controls(name, position):
    assert outcome_of(name).controls[position].holds


@pytest.mark.parametrize("name", ["D.theorem-4.3", "A.theorem-2.1"])
def test_a_bound_that_is_copied_as_less_than_it_is_refutes_nothing(name):
    claim = CLAIMS[name]

    def copied(case):
        def less(**variables):
            sides = case.statement(**variables)
            return sides._replace(right=0.95 * sides.right)

        return dataclasses.replace(case, statement=less)

    controls = tuple(map(copied, claim.controls))
    assert not any(control.evaluate().holds for control in controls)
    assert judge(dataclasses.replace(claim, controls=controls), KEY, CASES).verdict == "fails"


def test_claims_refer_to_claims():
    assert {name for claim in CLAIMS.values() for name in claim.see} <= set(CLAIMS)

import dataclasses
import itertools
from types import SimpleNamespace

import jax
import pytest

from jaxarch import ArgumentError
from jaxarch.lab.claims import CLAIMS, Inequality, worst_case
from jaxarch.lab.claims.checks import adversary
from jaxarch.lab.claims.checks.adversary import drawn_checks

KEY = jax.random.key(0)


@pytest.mark.long
def test_it_finds_the_sharp_constant_of_lemma_4_2():
    found = worst_case("D.lemma-4.2", seconds=1, key=KEY)
    # The sharp constant is max(1, H S/16 - 1), in place of H S/16 + 1: they meet as H S goes to 0. The least
    # H S of the cases is .01^2.
    assert found.holds
    assert found.ratio == pytest.approx(1 / (0.01**2 / 16 + 1), abs=1e-4)
    assert found.kind == "searched"


@pytest.mark.long
def test_it_breaks_what_random_cases_do_not():
    (check, *_) = drawn_checks(CLAIMS["projected-sgd.convex"])
    barely = {"barely": lambda **case: check.statement(**case, constant=0.9999)}
    broken = Inequality(barely["barely"], check.cube, barely)
    assert broken.run(KEY, 100).holds
    claim = dataclasses.replace(CLAIMS["projected-sgd.convex"], id="broken", checks=(broken,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CLAIMS, "broken", claim)
        assert not worst_case("broken", seconds=1, key=KEY).holds


def test_it_keeps_to_its_time(monkeypatch):
    """By a clock on which each look takes a hundredth of a second."""
    looks = itertools.count()
    monkeypatch.setattr(adversary, "time", SimpleNamespace(perf_counter=lambda: next(looks) / 100))
    assert 1.0 <= worst_case("binarize.derivative", seconds=1.0, key=KEY).seconds < 1.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"claim": "D.lemma-4.3"}, "claim: unknown 'D.lemma-4.3'"),
        ({"claim": "D.theorem-4.3"}, "refuted by its counterexamples"),
        ({"claim": "D.eq-48"}, "checked exactly"),
        ({"claim": "D.eq-49", "seconds": 0}, "seconds: expected a positive"),
        ({"claim": "D.eq-49", "check": 1}, "check: expected 0 to 0, the inequalities of D.eq-49, got 1"),
    ],
)
def test_what_cannot_be_searched_is_said(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        worst_case(**arguments)

import dataclasses
import json

import pytest

from jaxarch.lab import cli
from jaxarch.lab.claims import CLAIMS, Outcome, Report

FEW = {name: CLAIMS[name] for name in ("D.eq-49", "D.theorem-4.3", "A.eq-57", "D.eq-48")}


@pytest.fixture
def few():
    """A short catalogue, and the whole one afterwards, in its order."""
    whole = dict(CLAIMS)
    for name in set(CLAIMS) - set(FEW):
        del CLAIMS[name]
    yield
    CLAIMS.clear()
    CLAIMS.update(whole)


@pytest.fixture
def jaxarch(monkeypatch, capsys):
    """Run the command; its exit status, output and errors."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["jaxarch", "claims", *arguments])
        # Devices and compilation cache are those of the test run.
        monkeypatch.setattr(cli, "_prepare_jax", lambda: None)
        with pytest.raises(SystemExit) as exit:
            cli.main()
        return int(exit.value.code or 0), *capsys.readouterr()

    return run


def test_all_of_them_have_a_line_each(few, jaxarch):
    status, out, _ = jaxarch("--cases", "1000")
    assert status == 0
    for name, claim in FEW.items():
        (line,) = [line for line in out.splitlines() if line.lstrip().startswith(name)]
        assert claim.verdict in line


def test_the_line_of_every_claim_is_whole_but_for_its_source():
    outcomes = [Outcome(claim, claim.verdict, (), ()) for claim in CLAIMS.values()]
    lines = str(Report(outcomes)).splitlines()[2:]
    assert len(lines) == len(CLAIMS)
    for line, (name, claim) in zip(lines, CLAIMS.items(), strict=True):
        cells = line.split()
        assert cells[0] == name
        assert claim.verdict in line
        assert "…" not in line.rpartition(claim.verdict)[2]


def test_markdown_has_formulas_in_fences_and_nothing_that_would_be_emphasis(few, jaxarch):
    _, out, _ = jaxarch("--format", "markdown", "--cases", "1000")
    for claim in FEW.values():
        assert f"```math\n{claim.latex}\n```" in out
    assert "$$" not in out


def test_one_is_told_in_full(few, jaxarch):
    status, out, _ = jaxarch("D.theorem-4.3")
    assert status == 0
    assert "refuted" in out
    assert out.count("The printed form fails at") == len(CLAIMS["D.theorem-4.3"].printed)
    assert CLAIMS["D.theorem-4.3"].printed[0].line in out
    assert out.count("The printed form holds at") == len(CLAIMS["D.theorem-4.3"].controls)


def test_json_is_a_list_of_objects(few, jaxarch):
    status, out, _ = jaxarch("--format", "json", "--cases", "1000")
    objects = json.loads(out)
    assert status == 0
    assert [entry["id"] for entry in objects] == list(CLAIMS)
    for entry in objects:
        assert {"id", "source", "verdict", "margin", "cases"} <= set(entry)
        assert entry["verdict"] == entry["recorded"]
        assert len(entry["counterexamples"]) == len(CLAIMS[entry["id"]].printed)


def test_markdown_ends_with_every_equation(few, jaxarch):
    status, out, _ = jaxarch("--format", "markdown", "--cases", "1000")
    assert status == 0
    assert "### D.eq-49" in out
    assert out.rpartition("### ")[2].startswith("Equation by equation")
    assert "| [D] | 49 | D.eq-49 |" in out


def test_a_search_prints_the_largest_ratio(few, jaxarch):
    status, out, _ = jaxarch("D.eq-49", "--search", "0.1")
    assert status == 0
    assert "largest ratio left/right" in out
    assert "steps = 1.0" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["D.eq-50"], "claim: unknown 'D.eq-50'"),
        (["D.theorem-4.3", "--search", "1"], "draws no cases"),
        (["D.eq-49", "--search", "-1"], "seconds: expected a positive"),
        (["--search", "1"], "--search: expected the id of one claim"),
        (["D.eq-49", "--cases", "0"], "cases: expected an integer of at least 1"),
    ],
)
def test_bad_input_is_one_line(few, jaxarch, arguments, message):
    status, out, err = jaxarch(*arguments)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err


def test_a_verdict_that_is_not_the_recorded_one_is_a_failure(few, jaxarch, monkeypatch):
    wrong = dataclasses.replace(CLAIMS["D.eq-49"], verdict="refuted")
    monkeypatch.setitem(CLAIMS, "D.eq-49", wrong)
    status, out, _ = jaxarch("D.eq-49", "--cases", "1000")
    assert status == 1
    assert "holds (recorded: refuted)" in out

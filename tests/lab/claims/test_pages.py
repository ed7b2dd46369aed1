"""The page of all claims is what the catalogue says, and its links lead to the proofs."""

import re

import pytest
from click.testing import CliRunner
from places import ROOT

from jaxarch.lab import cli
from jaxarch.lab.claims import CLAIMS, known_by, proof_of
from jaxarch.lab.claims.pages import PROVED_TOGETHER

DOCS = ROOT / "docs"
WRITE = "jaxarch claims --list --format markdown > docs/claims.md"


def typed(*arguments):
    return CliRunner().invoke(cli.app, ["claims", "--list", *arguments])


@pytest.fixture(autouse=True)
def as_it_runs(monkeypatch):
    """Devices and compilation cache are those of the test run."""
    monkeypatch.setattr(cli, "_prepare_jax", lambda: None)


def test_the_page_is_what_the_catalogue_says():
    message = f"docs/claims.md is not what the catalogue says; write it with: {WRITE}"
    assert (DOCS / "claims.md").read_text() == typed("--format", "markdown").output, message


def test_sections_are_those_of_the_page_with_the_proofs():
    headings = re.findall(r"^### (.+)$", (DOCS / "theory.md").read_text(), flags=re.M)
    assert [tuple(re.findall(r"`(.+?)`", heading)) for heading in headings] == list(PROVED_TOGETHER)


def test_every_claim_has_a_proof_or_a_counterexample():
    for claim in CLAIMS.values():
        assert claim.printed if claim.verdict == "refuted" else proof_of(claim), claim.id


def test_the_cases_of_every_check_are_said_in_words():
    for name, claim in CLAIMS.items():
        assert all(re.match(r"\w", check.domain) for check in claim.checks), name
        assert all(re.fullmatch(r"[^\n]+[^.:\s]", line) for line in known_by(claim)), name


def test_a_variable_is_drawn_from_what_is_said():
    (sampled,) = {check.domain for check in CLAIMS["D.lemma-4.2"].checks[1:]}
    assert sampled == (
        "gradient in [-100, 100]; scores 0 or in [-3, 3]; rate in [1e-08, 100]; hard, soft in [0.01, 100]"
    )


def test_every_claim_has_a_line():
    lines = typed().output.splitlines()
    for name, claim in CLAIMS.items():
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert claim.verdict in line
        assert "…" not in line


@pytest.mark.parametrize(
    "arguments", [("D.eq-49",), ("--cases", "10"), ("--search", "1"), ("--format", "json")]
)
def test_it_takes_no_more_than_a_format(arguments):
    assert "--list: cannot be combined with" in str(typed(*arguments).exception)

"""Every numbered equation of the papers is judged, or left out for a stated reason."""

import itertools

import pytest

from jaxarch.lab.claims import CLAIMS, read_equations

PAPERS = read_equations()
SECTIONS = {"2": 1, "3": 4, "4": 5, "5": 2, "A": 5, "B": 23, "C": 6, "D": 12, "E": 1}
NUMBERS = {
    "D": {str(n) for n in range(1, 50)},
    "A": {str(n) for n in range(1, 63)},
    "S": {f"{section}.{n}" for section, last in SECTIONS.items() for n in range(1, last + 1)},
}
NAMED = {
    "D": {"assumption 1", "lemma 4.1", "lemma 4.2", "theorem 4.3", "lemma B.1", "lemma B.2", "theorem B.3"},
    "A": {
        "assumption 1",
        "assumption 2",
        "theorem 2.1",
        "lemma B.1",
        "lemma B.2",
        "theorem B.3",
        "corollary B.4",
    },
    "S": {"figure 8"},
}


@pytest.mark.parametrize("paper", NUMBERS)
def test_every_number_occurs_once(paper):
    listed = [number for entry in PAPERS[paper] for number in entry.equations]
    assert sorted(listed) == sorted(NUMBERS[paper] | NAMED[paper])


def test_an_entry_names_claims_or_a_reason():
    for entry in itertools.chain.from_iterable(PAPERS.values()):
        assert set(entry.claims) <= set(CLAIMS), entry
        assert entry.claims or entry.note, entry
        assert "\n" not in entry.note, entry


@pytest.mark.parametrize("paper", NUMBERS)
def test_every_claim_on_a_paper_is_reached_from_its_equations(paper):
    named = {name for entries in PAPERS.values() for entry in entries for name in entry.claims}
    assert {name for name in CLAIMS if name.startswith(f"{paper}.")} <= named

"""docs/theory.md proves claims that exist, all that are the library's own, in formulas that render."""

import itertools
import pkgutil
import re

from places import ROOT

from jaxarch.lab.claims import CLAIMS

PAGE = (ROOT / "docs" / "theory.md").read_text()
SECTIONS = re.split(r"^### ", PAGE, flags=re.M)[1:]
HEADINGS = [section.partition("\n")[0] for section in SECTIONS]
PROVED = [name for heading in HEADINGS for name in re.findall(r"`(.+?)`", heading)]
OURS = ("two-temperature.", "spectral.", "certificate.")

PROSE = re.sub(r"`[^`\n]*`", "", PAGE)
DISPLAYED = re.findall(r"^\$\$(.+)\$\$$", PROSE, flags=re.M)
INLINE = re.findall(r"\$([^$\n]+)\$", re.sub(r"^\$\$.+\$\$$", "", PROSE, flags=re.M))


def test_every_section_is_headed_by_claims():
    assert PROVED
    assert not set(PROVED) - set(CLAIMS)


def test_every_claim_of_the_library_s_own_has_a_section():
    assert {name for name in CLAIMS if name.startswith(OURS)} <= set(PROVED)


def test_each_section_says_how_to_check_its_claims_and_what_they_give():
    for heading, section in zip(HEADINGS, SECTIONS, strict=True):
        checks = [f"`jaxarch claims {name}`" for name in re.findall(r"`(.+?)`", heading)]
        for text in [*checks, "**Proof.**", "**What it gives in practice.**"]:
            assert text in section, heading


def test_every_link_within_the_page_leads_to_a_heading():
    anchors = {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-").lower() for heading in HEADINGS}
    links = re.findall(r"\]\(#(.+?)\)", PAGE)
    assert set(links) == anchors


def test_equations_are_numbered_in_order():
    numbers = [int(n) for formula in DISPLAYED for n in re.findall(r"\\qquad \((\d+)\)$", formula)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_public_name_on_the_page_exists():
    for name in re.findall(r"`(jaxarch\.[\w.]+)`", PAGE):
        assert pkgutil.resolve_name(name)


def test_formulas_have_nothing_that_code_hosts_read_as_markdown_or_html():
    # An escaped character, an underscore that may open emphasis, and characters of Markdown or HTML.
    broken = re.compile(r"\\[^A-Za-z]|[^A-Za-z0-9]_|[*|<>&]|\\operatorname")
    assert [formula for formula in DISPLAYED + INLINE if broken.search(formula)] == []
    assert [formula for formula in INLINE if formula != formula.strip()] == []
    assert PROSE.count("$") == 4 * len(DISPLAYED) + 2 * len(INLINE)


def test_no_formula_touches_a_letter_or_a_hyphen():
    # Code hosts take a dollar sign for a formula's only beside spaces and punctuation.
    text = re.sub(r"^\$\$.+\$\$$", "", PROSE, flags=re.M)
    outside = re.split(r"\$[^$\n]+\$", text)
    for before, after in itertools.pairwise(outside):
        assert before == "" or before[-1] in " \n("
        assert after == "" or after[0] in " \n.,:;)"

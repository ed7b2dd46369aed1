"""On the site docstrings, signatures, names and formulas are shown as they are meant."""

import re
import sys

import pytest
from places import ROOT

sys.path.insert(0, str(ROOT / "docs"))

pytest.importorskip("sphinx")
pytest.importorskip("latex2mathml")

from building import public
from building.docstrings import with_literal_blocks, with_returned_text
from building.formulas import mathml
from building.links import described, target
from building.signatures import as_written


@pytest.mark.parametrize(
    ("text", "file", "own", "shown"),
    [
        ("masks.keep", None, (), "jaxarch.masks.keep"),
        ("jaxarch.masks.keep(scores, 0.1)", None, (), "jaxarch.masks.keep"),
        ("masks.density", None, (), "jaxarch.density"),
        ("keep", "jaxarch.masks._keeping", (), "jaxarch.masks.keep"),
        ("chain", "jaxarch.masks._largest", (), "jaxarch.chain"),
        ("keep", None, (), None),
        ("density", "jaxarch.masks._largest", ("density",), None),
        ("searched", "jaxarch.lab.claims.checks.core", (), None),
        ("w > 0", "jaxarch.masks._largest", (), None),
        ("nnx.Param", None, (), None),
    ],
)
def test_a_name_in_backticks_is_a_link_where_it_is_public(text, file, own, shown):
    assert target(text, file, frozenset(own)) == shown


def test_an_argument_is_no_link_to_a_function_of_its_name():
    file, names = described("jaxarch.masks", "keep")
    assert file == "jaxarch.masks._keeping"
    assert names == {"keep", "scores", "density", "scope", "units", "within", "return"}
    assert {"where", "hard", "density"} <= described("jaxarch.nnx", "Masked.mask")[1]


def test_what_is_indented_in_a_docstring_is_code():
    lines = ["Text:", "", "    a = 1", "", "    b = 2", "", "Text.", "", "Args:", "  c: d,", "    e."]
    made = with_literal_blocks(lines)
    assert made == ["Text:", "", "::", "", *lines[2:]]


def test_what_is_returned_is_text_and_no_type():
    lines = ["Returns:", "  A mask: booleans,", "  one a connection.", "", "Raises:", "  E: f."]
    made = [":returns: A mask: booleans,", "    one a connection.", "", "Raises:", "  E: f."]
    assert with_returned_text(lines) == made


@pytest.mark.parametrize(
    ("name", "arguments", "returned"),
    [
        ("search.dense", "**descent: ~jaxarch.DescentChanges", "~jaxarch.Training"),
        ("saliency.snip", "where: Where = matrices", "~jaxarch.PyTree"),
        ("Problem", "gather: Callable[[~jaxarch.PyTree, ~jaxarch.PyTree, Array], ~jaxarch.PyTree]", None),
    ],
)
def test_a_signature_is_shown_as_it_is_written(name, arguments, returned):
    value = {entry.name: entry.value for entry in public.entries()}[f"jaxarch.{name}"]
    what = "class" if isinstance(value, type) else "function"
    text, arrow = as_written(None, what, name, value, None, "()", None)
    assert arguments in text
    assert arrow == returned


def test_every_formula_of_the_proofs_becomes_mathml():
    text = (ROOT / "docs" / "theory.md").read_text()
    formulas = re.findall(r"\$\$(.+?)\$\$|\$([^$]+)\$", text, flags=re.S)
    assert len(formulas) > 500
    for block, inline in formulas:
        assert "\\" not in mathml(block or inline, "block" if block else "inline")


def test_log_is_not_run_into_what_follows_it():
    assert "<mi>log\N{THIN SPACE}</mi><mi>v</mi>" in mathml(r"\log v", "inline")
    assert "<mi>log</mi>" in mathml(r"\log (v)", "inline")

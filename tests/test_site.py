"""The documentation site has all that is public, and shows docstrings and formulas as they are meant."""

import re
import sys
import types
from pathlib import Path

import pytest

import jaxarch

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))

from building import pages, public  # noqa: E402


def names_of(module):
    """Its public names, those of the modules among them included."""
    for name in public.listed(module):
        value = getattr(module, name)
        if isinstance(value, types.ModuleType):
            yield from names_of(value)
        else:
            yield f"{module.__name__}.{name}"


def test_every_public_name_is_in_the_reference():
    known = {name for entry in public.entries() for name in entry.names}
    assert set(names_of(jaxarch)) <= known


def test_everything_public_stands_on_one_page_once():
    shown = []
    for name in public.PAGES:
        text = pages.reference_page(name)
        shown += re.findall(r"^\.\. auto(?:function|class|exception):: (\S+)", text, flags=re.M)
        constants = re.findall(r"^\.\. py:data:: (\S+)\n   :module: (\S+)", text, flags=re.M)
        shown += [f"{module}.{constant}" for constant, module in constants]
    assert sorted(shown) == sorted(entry.name for entry in public.entries())


def test_every_page_of_the_reference_is_in_its_list():
    assert re.findall(r"^   (\w+)$", pages.reference_index(), flags=re.M) == list(public.PAGES)


def test_a_public_name_without_a_page_ends_the_build():
    with pytest.raises(LookupError, match=r"jaxarch\.interruption has public names, and no page"):
        public.section("jaxarch.interruption")


def test_a_public_module_without_a_list_ends_the_build():
    with pytest.raises(LookupError, match=r"jaxarch\.errors is public and has no __all__"):
        public.listed(sys.modules["jaxarch.errors"])


def test_a_public_constant_that_nothing_explains_ends_the_build():
    with pytest.raises(LookupError, match=r"jaxarch\.nnx\.jnp is public, and no text under it"):
        pages.text_under("jaxarch.nnx", "jnp")


def test_what_is_public_twice_is_shown_by_its_shortest_name():
    shown = {name: entry.name for entry in public.entries() for name in entry.names}
    assert shown["jaxarch.masks.density"] == "jaxarch.density"
    assert shown["jaxarch.theory.bounds.interval_bounds"] == "jaxarch.theory.intervals.interval_bounds"


def test_every_page_in_docs_is_in_a_list_of_the_first_one():
    first = (ROOT / "docs" / "index.md").read_text()
    listed = re.findall(
        r"^(?:.* <)?([\w/]+)>?$", "\n".join(re.findall(r"```{toctree}(.*?)```", first, re.S)), re.M
    )
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"} <= set(listed)


def test_every_example_script_is_shown_with_what_it_is():
    source = [""]
    pages.with_scripts(None, "examples/README", source)
    for script in (ROOT / "docs" / "examples").glob("*.py"):
        assert f"```{{literalinclude}} {script.name}\n" in source[0]
        assert script.read_text().split('"""')[1].split("\n")[0] in source[0]


LINKS = {
    "[a](docs/theory.md)": "[a](theory.md)",
    "[a](docs/theory.md#b)": "[a](theory.md#b)",
    "[a](docs/examples)": "[a](examples/README.md)",
    "[a](notebooks/quickstart.ipynb)": "[a](quickstart.md)",
    "[a](CONTRIBUTING.md)": "[a](contributing.md)",
    "[a](LICENSE)": "[a](../LICENSE)",
    "[a](#b) and [a](https://b.org/c.md)": "[a](#b) and [a](https://b.org/c.md)",
}


@pytest.mark.parametrize("written", LINKS)
def test_links_between_files_are_links_between_pages(written):
    page = ROOT / "docs" / "overview.md"
    assert pages.relinked(written, ROOT / "README.md", page) == LINKS[written]


def test_the_notebook_is_shown_with_all_its_code():
    text = pages.notebook_page()
    assert text.startswith("# An architecture without trained weights")
    assert all(line in text for line in pages.NOTEBOOK.read_text().split("\n") if line.startswith("import"))


class TestWithSphinx:
    """What needs the packages of the site."""

    @pytest.fixture(autouse=True)
    def sphinx(self):
        for package in ("sphinx", "myst_parser", "furo", "latex2mathml"):
            pytest.importorskip(package)

    @pytest.mark.parametrize(
        ("text", "file", "own", "shown"),
        [
            ("masks.keep", None, (), "jaxarch.masks.keep"),
            ("jaxarch.masks.keep(scores, 0.1)", None, (), "jaxarch.masks.keep"),
            ("masks.density", None, (), "jaxarch.density"),
            ("keep", "jaxarch.masks.largest", (), "jaxarch.masks.keep"),
            ("chain", "jaxarch.masks.largest", (), "jaxarch.chain"),
            ("keep", None, (), None),
            ("density", "jaxarch.masks.largest", ("density",), None),
            ("searched", "jaxarch.claims.checks.core", (), None),
            ("w > 0", "jaxarch.masks.largest", (), None),
            ("nnx.Param", None, (), None),
        ],
    )
    def test_a_name_in_backticks_is_a_link_where_it_is_public(self, text, file, own, shown):
        from building.links import target

        assert target(text, file, frozenset(own)) == shown

    def test_an_argument_is_no_link_to_a_function_of_its_name(self):
        from building.links import described

        file, names = described("jaxarch.masks", "keep")
        assert file == "jaxarch.masks.largest"
        assert names == {"keep", "scores", "density", "per", "return"}

    def test_what_is_indented_in_a_docstring_is_code(self):
        from building.docstrings import with_literal_blocks

        lines = ["Text:", "", "    a = 1", "", "    b = 2", "", "Text.", "", "Args:", "  c: d,", "    e."]
        made = with_literal_blocks(lines)
        assert made == ["Text:", "", "::", "", *lines[2:]]

    def test_what_is_returned_is_text_and_no_type(self):
        from building.docstrings import with_returned_text

        lines = ["Returns:", "  A mask: booleans,", "  one a connection.", "", "Raises:", "  E: f."]
        made = [":returns: A mask: booleans,", "    one a connection.", "", "Raises:", "  E: f."]
        assert with_returned_text(lines) == made

    @pytest.mark.parametrize(
        ("name", "arguments", "returned"),
        [
            ("search.dense", "**descent: ~jaxarch.descent.DescentChanges", "~jaxarch.Training"),
            ("saliency.snip", "where: Where = matrices", "PyTree"),
            ("Problem", "gather: Callable[[PyTree, PyTree, Array], PyTree] = take_rows", None),
        ],
    )
    def test_a_signature_is_shown_as_it_is_written(self, name, arguments, returned):
        from building.signatures import as_written

        value = {entry.name: entry.value for entry in public.entries()}[f"jaxarch.{name}"]
        what = "class" if isinstance(value, type) else "function"
        text, arrow = as_written(None, what, name, value, None, "()", None)
        assert arguments in text
        assert arrow == returned

    def test_every_formula_of_the_proofs_becomes_mathml(self):
        from building.formulas import mathml

        text = (ROOT / "docs" / "theory.md").read_text()
        formulas = re.findall(r"\$\$(.+?)\$\$|\$([^$]+)\$", text, flags=re.S)
        assert len(formulas) > 500
        for block, inline in formulas:
            assert "\\" not in mathml(block or inline, "block" if block else "inline")

    def test_log_is_not_run_into_what_follows_it(self):
        from building.formulas import mathml

        assert "<mi>log\N{THIN SPACE}</mi><mi>v</mi>" in mathml(r"\log v", "inline")
        assert "<mi>log</mi>" in mathml(r"\log (v)", "inline")

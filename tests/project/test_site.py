"""The documentation site has all that is public, and shows docstrings and formulas as they are meant."""

import inspect
import re
import sys
import types

import pytest
from places import ROOT

import jaxarch

sys.path.insert(0, str(ROOT / "docs"))

from building import notebooks, pages, public


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
    with pytest.raises(LookupError, match=r"jaxarch\._internal\.interruption has public names, and no page"):
        public.section("jaxarch._internal.interruption")


def test_what_is_made_elsewhere_stands_where_it_is_listed():
    assert public.section("jaxarch._internal.interruption", "jaxarch.lab.data") == "lab.data"
    assert public.section("jaxarch.masks._largest", "jaxarch.lab.data") == "masks"


def test_a_public_module_without_a_list_ends_the_build():
    with pytest.raises(LookupError, match=r"jaxarch\._internal\.trees is public and has no __all__"):
        public.listed(sys.modules["jaxarch._internal.trees"])


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
    "[a](notebooks/quickstart.ipynb)": "[a](notebooks/quickstart.md)",
    "[a](README.md)": "[a](get_started.md)",
    "[a](CONTRIBUTING.md)": "[a](contributing.md)",
    "[a](LICENSE)": "[a](../LICENSE)",
    "[a](docs/building/public.py)": "[a](reference/index.rst)",
    "[a](#b) and [a](https://b.org/c.md)": "[a](#b) and [a](https://b.org/c.md)",
}


@pytest.mark.parametrize("written", LINKS)
def test_links_between_files_are_links_between_pages(written):
    page = ROOT / "docs" / "index.md"
    assert pages.relinked(written, ROOT / "README.md", page) == LINKS[written]


@pytest.mark.parametrize("notebook", pages.NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_shown_with_all_its_code_and_figures(notebook):
    text = notebooks.page(notebook)
    assert text.startswith("# ")
    code = notebook.with_suffix(".py").read_text().split("\n")
    assert all(line in text for line in code if line and not line.startswith("#"))
    shown = re.findall(rf"\]\({notebook.stem}_(\d+)\.png\)", text)
    assert shown == [str(number) for number, _ in enumerate(notebooks.figures(notebook), 1)]


def test_the_readme_is_the_page_of_first_steps_and_its_links_lead_to_pages():
    text = pages.relinked(
        (ROOT / "README.md").read_text(), ROOT / "README.md", ROOT / "docs" / "get_started.md"
    )
    assert "](what_it_finds.md)" in text
    assert "](docs/" not in text


def test_the_first_page_has_a_card_for_every_section():
    first = (ROOT / "docs" / "index.md").read_text()
    cards = re.findall(r"^:::{grid-item-card} (.+)$", first, re.M)
    assert cards == re.findall(r"^:caption: (.+)$", first, re.M)


def test_every_public_function_has_an_example():
    example = re.compile(r"^Example:\n+  >>> ", flags=re.M)
    functions = [entry for entry in public.entries() if entry.is_function]
    assert [f.name for f in functions if not example.search(inspect.getdoc(f.value) or "")] == []

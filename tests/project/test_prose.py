"""The prose of docstrings and pages: how sentences begin, and how long they are."""

import ast
import re
from statistics import median

import pytest
from places import ROOT

OPENERS = re.compile(r"(What|Which|Whether|How|Who|Whose|That|Those|Of)\b")
OPENS_SO = {"Those of a few neurons among the networks of integers."}
"""First lines that stay: docs/claims.md quotes them."""

LEFT_OUT = {"claims.md", "reproduction.md", "changelog.md", "contributing.md", "get_started.md"}
"""Pages that programs write, and copies that the site makes."""
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in LEFT_OUT),
]
LONGEST = 40
"""Words of the longest sentence."""


def docstrings():
    """Every docstring of the package with its place, those of fields and constants too."""
    for path in sorted((ROOT / "jaxarch").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            body = getattr(node, "body", None)
            for part in body if isinstance(body, list) else []:
                text = (
                    part.value.value if isinstance(part, ast.Expr) and hasattr(part.value, "value") else None
                )
                if isinstance(text, str):
                    yield f"{path.relative_to(ROOT)}:{part.lineno}", text


def lengths(text):
    """Sentences and their numbers of words, without code, tables and headings; a formula is a word."""
    text = re.sub(r"^```.*?^```|\$\$.*?\$\$", "", text, flags=re.M | re.S)
    text = re.sub(r"\$[^$]+\$", "X", text)
    text = "\n".join(line for line in text.splitlines() if not line.startswith(("|", "#", "!", ":")))
    found = []
    for block in re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.) ", text, flags=re.M):
        found += re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*\[(0-9])", " ".join(block.split()))
    return {sentence: len(sentence.split()) for sentence in found if len(sentence.split()) > 2}


def test_docstrings_begin_with_what_a_thing_is_or_does():
    first = {place: text.strip().split("\n")[0] for place, text in docstrings()}
    assert len(first) > 3000
    assert {
        place: line for place, line in first.items() if OPENERS.match(line) and line not in OPENS_SO
    } == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_sentences_of_a_page_are_short(page):
    found = lengths(page.read_text())
    assert {sentence: words for sentence, words in found.items() if words > LONGEST} == {}
    assert median([0, *found.values()]) <= 17


def test_a_long_sentence_is_counted_and_code_is_not():
    page = f"# {'Head ' * 50}\n\nA short one. {'Word ' * 41}$x = y + z$.\n\n```sh\n{'code ' * 90}\n```\n"
    assert list(lengths(page).values()) == [3, 42]

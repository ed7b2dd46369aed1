"""Where the project's files are, and the code that its pages print."""

import re
from importlib.util import find_spec
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
ADAPTERS = {"torch": "torchax", "keras": "keras"}
"""Rooms of the library for other frameworks, and the package that each needs. CI installs none of them."""
MISSING_ADAPTERS = tuple(room for room, package in ADAPTERS.items() if find_spec(package) is None)


def code_blocks(page, language="python"):
    """The blocks of code of a page, by its path from the root of the project."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), flags=re.M | re.S)


def smaller(text, changes):
    """Code of a page with other numbers, each of which must be there to be changed."""
    for old, new in changes.items():
        assert old in text, f"not there: {old}"
        text = text.replace(old, new)
    return text

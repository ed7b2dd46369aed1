"""Where the project's files are, and the code that its pages print."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent


def code_blocks(page, language="python"):
    """The blocks of code of a page, by its path from the root of the project."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), flags=re.M | re.S)


def smaller(text, changes):
    """Code of a page with other numbers, each of which must be there to be changed."""
    for old, new in changes.items():
        assert old in text, f"not there: {old}"
        text = text.replace(old, new)
    return text

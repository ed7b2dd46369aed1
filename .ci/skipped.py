"""The tests that a run of pytest skipped, by its `--junitxml` file, as names that pytest takes."""

import sys
from xml.etree import ElementTree

KINDS = {"pytest.skip", "collect"}
"""A test that was skipped, and a file that was as a whole; a test that is expected to fail is neither."""


def main() -> None:
    """Print a name a line."""
    for case in ElementTree.parse(sys.argv[-1]).iter("testcase"):
        skipped = case.find("skipped")
        if skipped is None or skipped.get("type", "collect") not in KINDS:
            continue
        # A file that is skipped as a whole has its own name where others have that of a test.
        file, name = case.attrib["classname"], case.attrib["name"]
        print(f"{file.replace('.', '/')}.py::{name}" if file else f"{name.replace('.', '/')}.py")


if __name__ == "__main__":
    main()

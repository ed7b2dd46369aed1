"""The tests that a run of pytest skipped, by its `--junitxml` file, as names that pytest takes."""

import sys
from xml.etree import ElementTree

for case in ElementTree.parse(sys.argv[1]).iter("testcase"):
    skipped = case.find("skipped")
    if skipped is not None and skipped.get("type") == "pytest.skip":
        print(f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}")

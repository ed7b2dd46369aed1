"""The seconds that each file of tests took, by pytest's `--junitxml` files, longest first.

They are those of all its processes together. Files below a hundredth of the sum are one line.
"""

import sys
from collections import Counter
from xml.etree import ElementTree


def main() -> None:
    """Print seconds, tests and name of a file a line."""
    seconds, tests = Counter(), Counter()
    for path in sys.argv[1:]:
        for case in ElementTree.parse(path).iter("testcase"):
            # A file that was skipped as a whole has its name where others have that of a test.
            file = f"{(case.attrib['classname'] or case.attrib['name']).replace('.', '/')}.py"
            seconds[file] += float(case.get("time", 0))
            tests[file] += 1
    shown = [file for file, took in seconds.most_common() if took * 100 >= seconds.total()]
    for file in shown:
        print(f"{seconds[file]:7.0f} s {tests[file]:6} tests  {file}")
    others = [file for file in seconds if file not in shown]
    rest = sum(seconds[file] for file in others)
    print(f"{rest:7.0f} s {sum(tests[file] for file in others):6} tests  {len(others)} other files")


if __name__ == "__main__":
    main()

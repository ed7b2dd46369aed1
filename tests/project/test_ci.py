"""What CI runs, seen through programs that only write down how they were called."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

PROGRAMS = "pip jaxarch pytest ruff mypy sphinx-build cffconvert pyproject-build twine check-wheel-contents"

PYTHON = f"""#!/bin/sh
if [ "$2" != venv ]; then exec {sys.executable} "$@"; fi
mkdir -p "$3/bin"
for name in {PROGRAMS}; do cp "$PROGRAM" "$3/bin/$name"; done
"""
"""Makes environments of programs that do nothing, and does everything else that Python does."""

PROGRAM = f"""#!{sys.executable}
import json, os, re, sys
from pathlib import Path

words = [Path(sys.argv[0]).parts[-4], Path(sys.argv[0]).name, *sys.argv[1:]]
call = {{
    "words": words,
    "data": os.environ.get("JAXARCH_DATA"),
    "folder": os.getcwd(),
    "home": os.listdir(os.environ["HOME"]),
    "bytecode": os.environ.get("PYTHONDONTWRITEBYTECODE"),
    "names": [Path(word[1:]).read_text().split() for word in words if word.startswith("@")],
}}
with open(os.environ["CALLS"], "a") as file:
    print(json.dumps(call), file=file)
if "--collect-only" in words:
    print("tests/test_a.py::test_long")
for path in re.findall("--junitxml=(\\\\S+)", " ".join([*words, os.environ.get("PYTEST_ADDOPTS", "")])):
    kind = "pytest.skip" if "quick" in path or "NEVER" in os.environ else "pytest.xfail"
    skipped = f'<skipped type="{{kind}}"/>'
    cases = f'<testcase classname="tests.b.test_c" name="test_d[1]">{{skipped}}</testcase>'
    Path(path).write_text(f'<all>{{cases}}<testcase classname="tests.b.test_c" name="test_e"/></all>')
failing = os.environ.get("FAILING", "").split()
sys.exit(words[1:] == failing or failing == ["last"] and any("rest.xml" in word for word in words))
"""


@pytest.fixture(scope="module")
def ci(tmp_path_factory):
    """Run `.ci/run` on a tree of nothing but itself and the README; what it said, and how it called what."""
    if not (shutil.which("git") and shutil.which("bash")):
        pytest.skip("CI needs git and bash")
    folder = tmp_path_factory.mktemp("ci")
    shutil.copytree(ROOT / ".ci", folder / "tree" / ".ci")
    shutil.copy(ROOT / "README.md", folder / "tree")
    subprocess.run(["git", "init", "--quiet", folder / "tree"], check=True)
    for name, source in {"python": PYTHON, "program": PROGRAM}.items():
        (folder / name).write_text(source)
        (folder / name).chmod(0o755)

    def run(**options):
        paths = {"PYTHON": folder / "python", "PROGRAM": folder / "program", "CALLS": folder / "calls"}
        environment = os.environ | {name: str(path) for name, path in paths.items()} | {"CHROMIUM": "bash"}
        environment |= options
        (folder / "calls").unlink(missing_ok=True)
        done = subprocess.run(
            ["bash", ".ci/run"],
            cwd=folder / "tree",
            env=environment | {"JAXARCH_DATA": str(folder)},
            capture_output=True,
            text=True,
        )
        return done, [json.loads(line) for line in (folder / "calls").read_text().splitlines()]

    return run


@pytest.fixture(scope="module")
def passed(ci):
    done, calls = ci()
    assert done.returncode == 0, done.stdout + done.stderr
    return calls


def readme(calls):
    """The calls of the README's commands, those of the first one first: they run at the same time."""
    return sorted((c for c in calls if c["words"][0].startswith("readme")), key=lambda c: c["words"][0])


def test_ci_begins_with_the_readme_s_two_commands_as_printed_each_in_an_environment_of_its_own(passed):
    section = (ROOT / "README.md").read_text().split("\n## Set up\n")[1]
    lines = re.search(r"```sh\n(.*?)```", section, flags=re.S)[1].splitlines()
    printed = [
        [f"readme-{i}", *shlex.split(command, comments=True)]
        for i, line in enumerate(lines, 1)
        for command in line.split("&&")
    ]
    assert [call["words"] for call in readme(passed)] == printed
    assert {call["words"][0] for call in passed[:2]} <= {"readme-1", "readme-2"}
    programs = [words[:2] for words in printed]
    assert programs == [
        [f"readme-{i}", p] for i, p in ((1, "pip"), (1, "jaxarch"), (2, "pip"), (2, "pytest"))
    ]


def test_the_readme_s_commands_have_no_data_sets_and_an_empty_home(passed):
    assert [(call["data"], call["home"]) for call in readme(passed)] == [(None, [])] * 4


def test_what_is_imported_is_compiled_once(ci):
    _, calls = ci(PYTHONDONTWRITEBYTECODE="1", FAILING="pytest")
    assert {call["bytecode"] for call in calls} == {None}


def test_ci_ends_with_what_the_quick_suite_left_out_or_skipped_by_name_and_with_the_data_sets(passed):
    assert passed[-1]["words"][:2] == ["all-extras", "pytest"]
    assert Path(passed[-1]["data"]).is_dir()
    assert passed[-1]["names"] == [["tests/b/test_c.py::test_d[1]", "tests/test_a.py::test_long"]]


def test_types_are_checked_with_all_extras_and_with_what_the_quick_suite_needs(passed):
    calls = [call["words"][2:] for call in passed if call["words"][1] == "mypy"]
    assert calls[0] == []
    assert calls[1][0] == "--python-executable"
    assert Path(calls[1][1]).parts[-4:] == ("readme-2", "environment", "bin", "python")


SITE = "sphinx-build -W --keep-going -q -b html docs docs/_build"


def test_ci_builds_the_site_with_warnings_as_errors(passed):
    assert ["all-extras", *SITE.split()] in [call["words"] for call in passed]


def test_ci_checks_what_would_be_published_and_uses_the_wheel_outside_of_a_checkout(passed):
    calls = [call["words"] for call in passed]
    built = ["build", "pyproject-build"]
    checks = [["build", "twine", "check", "--strict", "dist/*"], ["build", "cffconvert", "--validate"]]
    checks.append(["build", "check-wheel-contents", "--ignore", "W002", "--package", "jaxarch", "dist/*.whl"])
    assert built in calls
    assert all(check in calls for check in checks)
    of_wheel = [call for call in passed if call["words"][0] == "wheel"]
    assert of_wheel[0]["words"][-1].endswith("/build/tree/dist/*.whl")
    assert [call["words"][1] for call in of_wheel[1:]] == ["pip", *["jaxarch"] * 4]
    assert {Path(call["folder"]).name for call in of_wheel[2:]} == {"home"}


@pytest.mark.parametrize("failing", ["jaxarch run", "pytest", "mypy", "ruff format --check .", SITE])
def test_ci_fails_at_the_first_command_that_fails_and_says_which(failing, ci):
    done, calls = ci(FAILING=failing)
    [environment] = [call["words"][0] for call in calls if " ".join(call["words"][1:]) == failing]
    assert done.returncode != 0
    assert " ".join([c["words"] for c in calls if c["words"][0] == environment][-1][1:]) == failing
    assert not any("rest.xml" in word for call in calls for word in call["words"])
    assert re.search(rf"^== {environment}, after \d+ s: FAILED: .*{failing}", done.stdout, flags=re.M)


@pytest.mark.long
def test_ci_fails_where_one_of_the_last_tests_does_and_still_tells_the_seconds_of_all(ci):
    done, _ = ci(FAILING="last")
    assert done.returncode != 0
    assert "FAILED: pytest -m ''" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("other files")


@pytest.mark.long
def test_ci_gets_a_browser_where_there_is_none_and_it_may(ci, tmp_path):
    for name, source in {"apt-get": 'echo "$@" >>"$ASKED"', "id": "echo 0"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{source}\n")
        (tmp_path / name).chmod(0o755)
    asked = tmp_path / "asked"
    options = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ASKED": str(asked)}
    ci(**options)
    assert not asked.exists()
    done, _ = ci(**options, CHROMIUM="no-such-browser")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^install .* chromium", asked.read_text(), flags=re.M)


@pytest.mark.long
def test_ci_fails_where_a_test_is_skipped_even_with_all_extras_and_data(ci):
    done, _ = ci(NEVER="1")
    assert done.returncode != 0
    assert done.stdout.splitlines()[-1] == "tests/b/test_c.py::test_d[1]"


def test_a_file_that_was_skipped_as_a_whole_is_named_and_what_is_expected_to_fail_is_not(tmp_path):
    (tmp_path / "quick.xml").write_text(
        "<testsuites>"
        '<testcase classname="" name="tests.a.test_b"><skipped message="collection skipped"/></testcase>'
        '<testcase classname="tests.test_c" name="test_d[1]"><skipped type="pytest.skip"/></testcase>'
        '<testcase classname="tests.test_c" name="test_e"><skipped type="pytest.xfail"/></testcase>'
        '<testcase classname="tests.test_c" name="test_f"/></testsuites>'
    )
    command = [sys.executable, ROOT / ".ci" / "skipped.py", tmp_path / "quick.xml"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["tests/a/test_b.py", "tests/test_c.py::test_d[1]"]


def test_the_seconds_of_a_file_are_those_of_all_its_tests_in_both_runs_longest_first(tmp_path):
    for name, seconds in {"quick": 0.5, "rest": 2.5}.items():
        (tmp_path / f"{name}.xml").write_text(
            f'<testsuites><testcase classname="tests.test_a" name="test_{name}" time="{seconds}"/>'
            '<testcase classname="tests.claims.test_b" name="test_c" time="200"/>'
            '<testcase classname="tests.test_d" name="test_e" time="30"/></testsuites>'
        )
    command = [sys.executable, ROOT / ".ci" / "seconds.py", tmp_path / "quick.xml", tmp_path / "rest.xml"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["400", "s", "2", "tests", "tests/claims/test_b.py"],
        ["60", "s", "2", "tests", "tests/test_d.py"],
        ["3", "s", "2", "tests", "1", "other", "files"],
    ]

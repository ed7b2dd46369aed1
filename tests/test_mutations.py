"""Mistakes are rejected: each mutation of `mutations.py` makes the test fail that is named beside it."""

import ast
import compileall
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest
from mutations import MUTATIONS

ROOT = Path(__file__).parent.parent
TURN, TURNS = map(int, os.environ.get("MUTATIONS_TURN", "0/1").split("/"))
TRIED = MUTATIONS[TURN::TURNS]
"""All, unless `MUTATIONS_TURN=i/n` says that they are tried in n turns, of which this is the i-th, from 0."""
BROKEN = 1
"""The exit status of pytest where tests failed; from 2 on, it could not run them."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package with its tests, and with the pages that these read when they are imported."""
    place = tmp_path_factory.mktemp("copy")
    for folder in ("jaxarch", "tests", "docs"):
        shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, place)
    # By its hash, and not by time and size, Python knows a file that a mutation has changed.
    compileall.compile_dir(place, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    return place


@pytest.fixture(scope="module")
def outcome(copy, tmp_path_factory):
    """Run some tests of the copy: pytest's exit status, and what it says."""
    settings = ["-x", "-q", "-p", "no:cacheprovider", "-o", "addopts=--strict-markers --strict-config"]
    environment = os.environ | {
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
        # A third of the time that such a process takes would go to plugins.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        # A mutation changes few of the programs of its test; the others were compiled without it before.
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("programs")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, "tests/forking.py"]
    with subprocess.Popen(
        command, cwd=copy, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as forking:

        def run(*nodes):
            arguments = [*settings, *(f"tests/{node}" for node in nodes)]
            print(json.dumps(arguments), file=forking.stdin, flush=True)
            return json.loads(forking.stdout.readline())

        yield run
        forking.stdin.close()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.what)
def test_a_mutation_changes_a_text_that_is_there_once_for_a_test_that_is_there(mutation):
    text = (ROOT / "jaxarch" / mutation.file).read_text()
    assert text.count(mutation.old) == 1
    ast.parse(text.replace(mutation.old, mutation.new))
    file, name = mutation.rejected_by.partition("[")[0].split("::")
    tests = ast.parse((ROOT / "tests" / file).read_text()).body
    assert name in {node.name for node in tests if isinstance(node, ast.FunctionDef)}


def test_there_are_mutations_enough_and_no_two_alike():
    assert len({mutation[1:4] for mutation in MUTATIONS}) == len({m.what for m in MUTATIONS}) >= 40


@pytest.mark.long
@pytest.mark.parametrize("file", sorted({mutation.rejected_by.partition("::")[0] for mutation in TRIED}))
def test_without_a_mutation_these_tests_of_a_file_pass(file, outcome):
    tests = {mutation.rejected_by for mutation in TRIED if mutation.rejected_by.startswith(f"{file}::")}
    status, said = outcome(*sorted(tests))
    assert status == 0, said


@pytest.mark.long
@pytest.mark.parametrize("mutation", TRIED, ids=lambda mutation: mutation.what)
def test_a_mutation_is_rejected(mutation, copy, outcome):
    file = copy / "jaxarch" / mutation.file
    text = file.read_text()
    file.write_text(text.replace(mutation.old, mutation.new))
    try:
        status, said = outcome(mutation.rejected_by)
    finally:
        file.write_text(text)
    assert status != 0, f"it survives {mutation.rejected_by}"
    assert status == BROKEN, said

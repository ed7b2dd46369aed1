"""The catalogue has every file of claims, each in its room, and importing it costs no heavy library."""

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from jaxarch.lab.claims import CLAIMS, catalogue, disentangling, new_results, pruning, spectral

ROOMS = {"checks": 0, "disentangling": 1, "pruning": 2, "spectral": 3, "new_results": 4}
PACKAGE = Path(catalogue.__file__).parent
STATEMENTS = [disentangling, pruning, spectral, new_results]
FILES = [path for room in ROOMS for path in sorted((PACKAGE / room).glob("*.py"))]
PREFIXES = {
    "disentangling": {"D", "binarize", "graph"},
    "pruning": {"A"},
    "spectral": {"S"},
    "new_results": {"two-temperature", "projected-sgd", "spectral", "certificate", "relaxation"},
}


def test_every_file_of_claims_is_in_the_catalogue_once():
    files = [
        f"{package.__name__}.{module.name}"
        for package in STATEMENTS
        for module in pkgutil.iter_modules(package.__path__)
    ]
    assert sorted(idea.__name__ for idea in catalogue.IDEAS) == sorted(files)


def test_no_two_claims_have_one_id():
    assert sum(len(idea.CLAIMS) for idea in catalogue.IDEAS) == len(CLAIMS)


def test_a_claim_is_in_the_room_of_its_paper_or_in_the_library_s_own():
    for idea in catalogue.IDEAS:
        room = idea.__name__.split(".")[3]
        assert {claim.id.partition(".")[0] for claim in idea.CLAIMS} <= PREFIXES[room]


def test_machinery_imports_no_statement_and_a_room_none_of_a_later_one():
    imports = [
        (path, node.module)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jaxarch.lab.claims")
    ]
    assert imports
    assert not [
        (path, module) for path, module in imports if ROOMS[module.split(".")[3]] > ROOMS[path.parent.name]
    ]


@pytest.mark.long
def test_importing_the_claims_costs_no_heavy_library():
    code = (
        "import sys, jaxarch.lab.claims;"
        "heavy = {'flax', 'flint', 'matplotlib', 'pandas', 'scipy.optimize', 'scipy.stats', 'sklearn'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

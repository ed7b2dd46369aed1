"""Proofs that Coq checks: the page on them says what is in the files, and nothing in them is left open."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from places import ROOT

import jaxarch

PROOFS = ROOT / "docs" / "proofs"
FILES = sorted(PROOFS.glob("*.v"))
PAGE = (PROOFS / "README.md").read_text()
THEORY = (ROOT / "docs" / "theory.md").read_text()

spec = importlib.util.spec_from_file_location("check", PROOFS / "check.py")
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)

ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in re.findall(r"^\| .*\.v\).*$", PAGE, flags=re.M)
]


def in_backticks(text):
    return re.findall(r"`([^`]+)`", text)


def test_the_page_has_every_theorem_of_every_file_and_no_other():
    listed = [
        (re.search(r"\((\w+\.v)\)", file)[1], name)
        for *_, file, theorems in ROWS
        for name in in_backticks(theorems)
    ]
    proved = [(file.name, name) for file in FILES for name in check.theorems(file.read_text())]
    assert len(proved) > 20
    assert sorted(listed) == sorted(proved)


def test_every_claim_and_every_equation_of_the_page_is_one():
    claims = {claim for row in ROWS for claim in in_backticks(row[1])}
    assert claims <= set(jaxarch.lab.claims.CLAIMS)
    comments = "\n".join(re.findall(r"\(\*.*?\*\)", "\n".join(map(Path.read_text, FILES)), flags=re.S))
    quoted = set(re.findall(r"(?<!\w)\((\d+(?:\.\d+)?)\)", PAGE + comments))
    assert len(quoted) > 15
    of_the_papers = set(re.findall(r"[Ff]ormula \((4\.\d)\)", THEORY))
    assert quoted <= set(re.findall(r"\\qquad \((\d+)\)\$\$", THEORY)) | of_the_papers


def test_what_the_theory_says_that_coq_checked_is_on_the_page():
    named = re.findall(r"\[`([\w, `]+)`\]\(proofs/README\.md", THEORY)
    theorems = {name for row in ROWS for name in in_backticks(row[-1])}
    assert {name for names in named for name in names.split("`, `")} <= theorems
    assert len(named) > 5


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_file_leaves_a_proof_open_or_a_theorem_without_its_assumptions(file):
    source = file.read_text()
    closed = "Closed under the global context\n" * len(check.theorems(source))
    assert check.problems(source, closed) == []


PROVED = "Theorem a : 1 = 1.\nProof. easy. Qed.\nPrint Assumptions a.\n"
CLASSICAL = "Axioms:\nClassical_Prop.classic : forall P : Prop, P \\/ ~ P\n"

OPEN = {
    "Admitted": (PROVED.replace("easy. Qed", "Admitted"), CLASSICAL),
    "admit": (PROVED.replace("easy", "admit"), CLASSICAL),
    "Axiom": ("Axiom b : 1 = 2.\n" + PROVED, CLASSICAL),
    "assumes b": (PROVED, CLASSICAL + "b : 1 = 2\n"),
    "assumes c": (PROVED, CLASSICAL + "c\n  : forall n, n = 2\n"),
    "assumes Section": (PROVED, "Section Variables:\nx : nat\n" + CLASSICAL),
    "its theorems are": (PROVED.replace("Print Assumptions a.", ""), ""),
    "0 answers": (PROVED, ""),
}


@pytest.mark.parametrize("problem", OPEN)
def test_what_is_left_open_is_said(problem):
    assert any(problem in found for found in check.problems(*OPEN[problem]))


def test_what_is_proved_has_no_problem_and_comments_are_none():
    comment = "(* Admitted (* Axiom *) admit *)\n"
    assert check.problems(comment + PROVED, CLASSICAL) == []


# A test that is skipped fails CI, and Coq is no Python package: without it there is none.
if shutil.which("coqc") and shutil.which("make"):

    @pytest.mark.long
    def test_coq_checks_all_of_it(tmp_path):
        folder = tmp_path / "proofs"
        folder.mkdir()
        for file in [*FILES, PROOFS / "Makefile", PROOFS / "check.py"]:
            shutil.copy(file, folder)
        done = subprocess.run(["make", "-C", folder], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        said = dict(re.findall(r"^(\w+)\.v: (.*)$", done.stdout, flags=re.M))
        assert said == {
            file.stem: ", ".join(check.theorems(file.read_text())) or "what others need" for file in FILES
        }

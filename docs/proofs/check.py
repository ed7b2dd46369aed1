"""What a file of proofs proves, and that it assumes no more than it may: `coqc F.v | python check.py F.v`.

What comes in is what Coq printed, one answer to each `Print Assumptions` of the file.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ALLOWED = {
    "ClassicalDedekindReals.sig_not_dec",
    "ClassicalDedekindReals.sig_forall_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Classical_Prop.classic",
}
"""What Coq's real numbers are built on: classical logic, and that functions with equal values are equal."""

LEFT_OPEN = re.compile(r"\b(?:Admitted|admit|give_up|Axioms?|Parameters?|Conjectures?)\b")
"""How a proof is left open, or a statement taken for granted."""


def without_comments(source: str) -> str:
    """The text of a file, its comments left out, also those in comments."""
    while (shorter := re.sub(r"\(\*(?:(?!\(\*|\*\)).)*\*\)", "", source, flags=re.S)) != source:
        source = shorter
    return source


def theorems(source: str) -> list[str]:
    """The names of the theorems of a file; lemmas are what they need."""
    return re.findall(r"^Theorem\s+([\w']+)", without_comments(source), flags=re.M)


def problems(source: str, printed: str) -> list[str]:
    """What is wrong with a file, in lines: nothing, where all of it is proved."""
    source = without_comments(source)
    found = [f"{word}: nothing may be left open" for word in LEFT_OPEN.findall(source)]
    asked = re.findall(r"^Print Assumptions\s+([\w']+)\.", source, flags=re.M)
    if asked != theorems(source):
        found.append(f"asks for the assumptions of {asked}, and its theorems are {theorems(source)}")
    answers = re.findall(r"^(?:Closed under the global context|Axioms:)$", printed, flags=re.M)
    if len(answers) != len(asked):
        found.append(f"{len(answers)} answers to {len(asked)} questions")
    lines = [line for line in printed.splitlines() if line and line not in answers]
    named = {line.split()[0] for line in lines if not line.startswith(" ")}
    return found + [f"assumes {name}" for name in sorted(named - ALLOWED)]


def main() -> None:
    """Print what was proved, or what is wrong, and exit with 1."""
    file = Path(sys.argv[1])
    source = file.read_text()
    found = problems(source, sys.stdin.read())
    if found:
        sys.exit("\n".join(f"{file}: {problem}" for problem in found))
    print(f"{file}: {', '.join(theorems(source)) or 'what others need'}")


if __name__ == "__main__":
    main()

"""The claims that judge each numbered equation, lemma and theorem of the papers, from equations.toml."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from typing import NamedTuple


class Entry(NamedTuple):
    """Equations that are judged together, or left out for the same reason.

    Attributes:
      numbers: the equations' numbers as in the file, with ranges such as `31-34`.
      claims: ids of the claims that judge the equations; none if the equations are left out.
      note: the reason for leaving the equations out, or a remark that the claims do not make.
    """

    numbers: tuple[str, ...]
    claims: tuple[str, ...]
    note: str

    @property
    def equations(self) -> list[str]:
        """The numbers one by one, with ranges expanded."""
        return [number for numbers in self.numbers for number in _expanded(numbers)]


def read_equations() -> dict[str, list[Entry]]:
    """Read the entries of each paper, keyed by the paper's letter.

    Example:
      >>> import jaxarch
      >>> entry = jaxarch.lab.claims.read_equations()["A"][0]
      >>> entry.equations, entry.claims
      (['1', '2'], ('A.eq-2',))
    """
    text = resources.files("jaxarch.lab.claims").joinpath("equations.toml").read_text()
    return {
        paper: [
            Entry(tuple(entry["numbers"]), tuple(entry.get("claims", ())), entry.get("note", ""))
            for entry in entries
        ]
        for paper, entries in tomllib.loads(text).items()
    }


def _expanded(numbers: str) -> list[str]:
    """Expand a range: `31-34` into four numbers, `B.19-B.22` likewise; anything else is one number."""
    between = re.fullmatch(r"(?P<stem>(?:\w+\.)?)(\d+)-(?P=stem)(\d+)", numbers)
    if between is None:
        return [numbers]
    stem, first, last = between.groups()
    return [f"{stem}{number}" for number in range(int(first), int(last) + 1)]

"""Citations of results: the program that made them, and the papers that they are about."""

from __future__ import annotations

import re

from jaxarch.lab.reproduction import Paper

TITLE = "jaxarch: learned network architectures in JAX, measured apart from their weights"
AUTHORS = "The jaxarch developers"
"""Copied from CITATION.cff, which is in the checkout but not in the installed package."""


def program(version: str) -> str:
    """Return the citation of the program in BibTeX.

    Example:
      >>> from jaxarch.lab.html_report import citation
      >>> print(citation.program("0.1.0"))
      @software{jaxarch,
        author = {{The jaxarch developers}},
        title = {{jaxarch: learned network architectures in JAX, measured apart from their weights}},
        version = {0.1.0},
        license = {MIT}
      }
    """
    fields = {
        "author": f"{{{AUTHORS}}}",
        "title": f"{{{TITLE}}}",
        "version": re.sub(r"[{}\\]", "", version),
        "license": "MIT",
    }
    return _entry("software", "jaxarch", fields)


def paper(cited: Paper) -> str:
    """Return the citation of a paper in BibTeX."""
    authors = re.sub(r",? and |, ", " and ", cited.authors)
    first = re.sub(r"\W", "", authors.split(" and ")[0].split()[-1])
    key = f"{first}{cited.year}{cited.key}".lower()
    return _entry("article", key, {"author": authors, "title": cited.title, "year": str(cited.year)})


def _entry(kind: str, key: str, fields: dict[str, str]) -> str:
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return f"@{kind}{{{key},\n{lines}\n}}"

"""Record of reproduction: the papers' claims, the measurements made here, and whether they agree.

It has one TOML file per paper, in this folder; `jaxarch reproduction` and docs/reproduction.md show them.
"""

from jaxarch.lab.reproduction.findings import as_toml, read_findings
from jaxarch.lab.reproduction.line import VERDICTS, Line, Measurement, Paper
from jaxarch.lab.reproduction.reading import only, read
from jaxarch.lab.reproduction.rendering import as_json, details, document, overview, sections

__all__ = [
    "VERDICTS",
    "Line",
    "Measurement",
    "Paper",
    "as_json",
    "as_toml",
    "details",
    "document",
    "only",
    "overview",
    "read",
    "read_findings",
    "sections",
]

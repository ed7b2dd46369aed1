"""Every theorem of the papers as something to run: its verdict, its margin, its counterexample."""

from collections.abc import Iterable

from jax import Array

from jaxarch.claims.boxes import Box
from jaxarch.claims.catalogue import CLAIMS, chosen, outcomes
from jaxarch.claims.core import (
    CASES,
    Claim,
    Counterexample,
    Evidence,
    Exact,
    Inequality,
    Outcome,
    Sides,
    judge,
)
from jaxarch.claims.rendering import Report, as_json, as_markdown, details, overview, show


def check(ids: Iterable[str] | str | None = None, *, cases: int = CASES, key: Array | None = None) -> Report:
    """Check claims, all of them by default.

    Args:
      ids: such as `"D.lemma-4.2"`, or several.
      cases: how many are drawn for each inequality.
      key: a `jax.random.key` for them.

    Returns:
      Their outcomes; printed, a table.

    Raises:
      ArgumentError: an id that is unknown.
    """
    return Report(outcomes(ids, cases=cases, key=key))


__all__ = [
    "CASES",
    "CLAIMS",
    "Box",
    "Claim",
    "Counterexample",
    "Evidence",
    "Exact",
    "Inequality",
    "Outcome",
    "Report",
    "Sides",
    "as_json",
    "as_markdown",
    "check",
    "chosen",
    "details",
    "judge",
    "outcomes",
    "overview",
    "show",
]

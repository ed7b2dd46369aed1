"""Theorems of the papers as executable claims, each with a verdict, a margin and counterexamples."""

from collections.abc import Iterable

from jax import Array

from jaxarch.lab.claims.catalogue import CLAIMS, chosen, outcomes, worst_case
from jaxarch.lab.claims.checks.adversary import drawn_checks
from jaxarch.lab.claims.checks.boxes import Box, Rewritten
from jaxarch.lab.claims.checks.convexity import ConvexityGap, check_convex, convexity_gap
from jaxarch.lab.claims.checks.core import (
    CASES,
    Claim,
    Control,
    Counterexample,
    Evidence,
    Outcome,
    Sides,
    judge,
)
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.exact import Exact
from jaxarch.lab.claims.checks.own_loss import InsideBound, inside_bound
from jaxarch.lab.claims.checks.recorded_run import regret
from jaxarch.lab.claims.equations import read_equations
from jaxarch.lab.claims.pages import known_by, listed, listed_as_markdown, proof_of
from jaxarch.lab.claims.rendering import (
    Report,
    as_json,
    as_markdown,
    details,
    equations_as_markdown,
    overview,
    searched,
    show,
)


def check(ids: Iterable[str] | str | None = None, *, cases: int = CASES, key: Array | None = None) -> Report:
    """Check claims, all of them by default.

    Args:
      ids: one id, such as `"D.lemma-4.2"`, or several; all claims if None.
      cases: the number of cases to draw for each inequality.
      key: the `jax.random.key` that draws the cases.

    Returns:
      The claims' outcomes, which print as a table.

    Raises:
      ArgumentError: an unknown id.

    Example:
      >>> import jaxarch
      >>> report = jaxarch.lab.claims.check(["S.fig-5-text", "D.zero-mean-error"])
      >>> [(outcome.claim.statement, outcome.verdict) for outcome in report]
      [('Lambda_B has B + 1 diagonal blocks', 'holds as corrected'), ('E(r) = 0', 'refuted')]
      >>> report.as_recorded
      True
    """
    return Report(outcomes(ids, cases=cases, key=key))


__all__ = [
    "CASES",
    "CLAIMS",
    "Box",
    "Claim",
    "Control",
    "ConvexityGap",
    "Counterexample",
    "Evidence",
    "Exact",
    "Inequality",
    "InsideBound",
    "Outcome",
    "Report",
    "Rewritten",
    "Sides",
    "as_json",
    "as_markdown",
    "check",
    "check_convex",
    "chosen",
    "convexity_gap",
    "details",
    "drawn_checks",
    "equations_as_markdown",
    "inside_bound",
    "judge",
    "known_by",
    "listed",
    "listed_as_markdown",
    "outcomes",
    "overview",
    "proof_of",
    "read_equations",
    "regret",
    "searched",
    "show",
    "worst_case",
]

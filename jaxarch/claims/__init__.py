"""Every theorem of the papers as something to run: its verdict, its margin, its counterexample."""

from collections.abc import Iterable

from jax import Array

from jaxarch.claims.adversary import drawn_checks, worst_case
from jaxarch.claims.boxes import Box
from jaxarch.claims.catalogue import CLAIMS, chosen, outcomes
from jaxarch.claims.convexity import ConvexityGap, check_convex, convexity_gap
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
from jaxarch.claims.equations import read_equations
from jaxarch.claims.own_runs import InsideBound, inside_bound, regret
from jaxarch.claims.rendering import (
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
    "ConvexityGap",
    "Counterexample",
    "Evidence",
    "Exact",
    "Inequality",
    "InsideBound",
    "Outcome",
    "Report",
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
    "outcomes",
    "overview",
    "read_equations",
    "regret",
    "searched",
    "show",
    "worst_case",
]

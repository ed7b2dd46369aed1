"""The catalogue of claims by id, with functions that check them or search for their worst case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import jax
from jax import Array

from jaxarch import ArgumentError
from jaxarch.lab.checks import (
    check_count,
    check_one_key,
    check_positive,
    did_you_mean,
    items,
    real_number,
    shown,
)
from jaxarch.lab.claims import disentangling, new_results, pruning, spectral
from jaxarch.lab.claims.checks.adversary import drawn_checks, search
from jaxarch.lab.claims.checks.core import CASES, Claim, Evidence, Outcome, judge

IDEAS = (
    disentangling.binarization,
    disentangling.tightness,
    disentangling.step_error,
    pruning.step_error,
    disentangling.mean_loss,
    pruning.mean_loss,
    disentangling.convex_network,
    pruning.logistic_regression,
    disentangling.convergence,
    new_results.strongly_convex_sgd,
    pruning.convergence,
    new_results.convex_sgd,
    disentangling.convergence_proof,
    pruning.convergence_proof,
    new_results.mirror_flow,
    new_results.vertex_distance,
    new_results.scaling,
    new_results.regret,
    new_results.exact_step,
    new_results.iterates,
    new_results.heavy_ball,
    new_results.descent,
    pruning.search_problem,
    pruning.log_likelihood,
    pruning.penalty,
    spectral.inverse,
    spectral.adjacency,
    spectral.binomials,
    spectral.counts,
    new_results.rounding_of_inverses,
    new_results.forward_substitution,
    spectral.perceptron_start,
    new_results.recruitment,
    new_results.recruitment_at_a_kink,
    new_results.gated_form,
    new_results.gated_neurons,
    spectral.neurons,
    spectral.gamma,
    spectral.target,
    spectral.direct_space,
    disentangling.graphs,
    new_results.duality_gap,
    new_results.new_errors,
    new_results.randomized_errors,
    new_results.compression,
    new_results.relaxation,
    new_results.time_to_read_off,
    new_results.clipped_descent,
    new_results.held_size,
)
"""The modules of claims, in the order in which claims are listed."""

CLAIMS: dict[str, Claim] = {claim.id: claim for idea in IDEAS for claim in idea.CLAIMS}
"""Every claim by its id."""


def chosen(ids: Iterable[str] | str | None = None) -> list[Claim]:
    """Return the claims with these ids, or all claims.

    Raises:
      ArgumentError: an unknown id.

    Example:
      >>> import jaxarch
      >>> [(claim.id, claim.verdict) for claim in jaxarch.lab.claims.chosen(["D.lemma-4.2", "D.one-to-one"])]
      [('D.lemma-4.2', 'holds as corrected'), ('D.one-to-one', 'refuted')]
    """
    if isinstance(ids, str):
        ids = [ids]
    ids = list(CLAIMS) if ids is None else items("claim", ids, str, "ids such as 'D.lemma-4.2'")
    for name in ids:
        if name not in CLAIMS:
            raise ArgumentError(f"claim: unknown {shown(name)}; {did_you_mean(name, CLAIMS)}")
    return [CLAIMS[name] for name in ids]


def outcomes(
    ids: Iterable[str] | str | None = None, *, cases: int = CASES, key: Array | None = None
) -> Iterator[Outcome]:
    """Yield each claim's outcome as soon as it is known, in the order of `chosen(ids)`.

    Example:
      >>> import jaxarch
      >>> for outcome in jaxarch.lab.claims.outcomes(["S.fig-5-text", "D.zero-mean-error"]):
      ...     print(outcome.claim.id, "-", outcome.verdict, "-", outcome.kinds)
      S.fig-5-text - holds as corrected - formal, exact
      D.zero-mean-error - refuted - counterexample
    """
    key = jax.random.key(0) if key is None else key
    check_one_key(key)
    for claim in chosen(ids):
        # Keyed by the claim's place in the catalogue: its cases do not depend on which others are checked.
        yield judge(claim, jax.random.fold_in(key, list(CLAIMS).index(claim.id)), cases)


def worst_case(claim: str, *, seconds: float = 10.0, key: Array | None = None, check: int = 0) -> Evidence:
    """Search for the case in which a claim's inequality `left <= right` is tightest.

    The cases are points of a cube. Many points are drawn, and the worst start differential evolution. Then
    L-BFGS-B follows the gradient of the margin, first from the point that evolution found and afterwards from
    the worst drawn points.

    Args:
      claim: the id of a claim whose cases are drawn, such as `"D.lemma-4.2"`.
      seconds: the time for the search, without compilation; positive.
      key: a `jax.random.key`. The result also depends on how far the search gets in its time.
      check: the index of the claim's inequality; 0 is the statement itself, its consequences follow.

    Returns:
      Evidence with the worst case, its margin, `ratio` (left/right there), whether the inequality holds, and
      the number of cases evaluated.

    Raises:
      ArgumentError: an unknown id; a claim that draws no cases, or has no such check; seconds that are not
        positive.

    Example:
      >>> import jaxarch
      >>> found = jaxarch.lab.claims.worst_case("binarize.one-to-one", seconds=0.1)
      >>> found.kind, found.holds, sorted(found.worst)
      ('searched', True, ['hard', 'scores'])
    """
    if not isinstance(claim, str):
        raise ArgumentError(f"claim: expected one id, such as 'D.lemma-4.2', got {shown(claim)}")
    (found,) = chosen(claim)
    key = jax.random.key(0) if key is None else key
    check_one_key(key)
    check_positive("seconds", seconds)
    seconds = real_number("seconds", seconds)
    check_count("check", check, least=0)
    inequalities = drawn_checks(found)
    if check >= len(inequalities):
        raise ArgumentError(
            f"check: expected 0 to {len(inequalities) - 1}, the inequalities of {claim}, got {check}"
        )
    return search(inequalities[check], seconds, key)

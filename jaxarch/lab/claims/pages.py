"""Links from claims to their proofs in docs/theory.md, and the page that lists all claims."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.table import Table

from jaxarch.lab.checks import check_instance, items
from jaxarch.lab.claims.checks.core import Check, Claim

PROVED_TOGETHER = (
    ("two-temperature.mirror-flow", "two-temperature.strong-convexity"),
    ("two-temperature.vertex-distance",),
    ("two-temperature.time-to-read-off",),
    ("two-temperature.scaling",),
    ("two-temperature.convergence",),
    (
        "two-temperature.average-iterate",
        "two-temperature.exact-step",
        "two-temperature.last-iterate",
        "two-temperature.anytime",
        "two-temperature.heavy-ball",
    ),
    ("two-temperature.descent",),
    ("D.lemma-4.2", "D.error-bound-sharp", "D.error-sign", "A.lemma-B.2"),
    ("D.theorem-4.3", "projected-sgd.strongly-convex"),
    ("A.theorem-2.1", "projected-sgd.convex"),
    ("D.tightness", "binarize.relaxed-minimum"),
    ("binarize.limit",),
    ("spectral.forward-substitution",),
    (
        "spectral.recruitment-order",
        "spectral.one-layer-at-a-time",
        "spectral.linear-fit-is-stationary",
        "spectral.recruitment-at-a-kink",
    ),
    ("S.removed-neurons",),
    ("spectral.error-of-powers", "spectral.error-of-blocks", "spectral.error-of-bundles"),
    ("spectral.gated-spectrum", "spectral.gated-substitution"),
    ("spectral.gated-silence",),
    ("spectral.gated-recruitment", "spectral.gated-at-a-kink"),
    ("certificate.gap", "certificate.flips"),
    ("certificate.generalization",),
    ("certificate.randomized",),
    ("certificate.compression",),
    ("relaxation.piece", "relaxation.product"),
    ("relaxation.removal",),
    ("two-temperature.clipped-descent",),
    ("two-temperature.held-size", "certificate.gap-of-a-size"),
    ("binarize.slope", "binarize.derivative", "binarize.limit-at-zero", "binarize.one-to-one"),
    ("D.lemma-4.1", "A.lemma-B.1", "A.logistic-convex"),
    ("D.eq-48", "D.eq-49", "A.eq-55", "A.eq-57"),
    ("A.eq-2", "A.eq-12", "A.eq-17"),
    (
        "S.nilpotent",
        "S.inverse",
        "S.inverse-one-block",
        "S.inverse-two-block",
        "S.powers",
        "S.inverse-blocks",
        "S.binomial",
    ),
    ("S.adjacency-blocks", "S.spectrum", "S.shift", "S.parameter-count", "S.fig-5-text"),
    ("S.perceptron", "S.one-eigenvalue-one-neuron", "S.gamma", "S.linear-to-nonlinear"),
    ("S.zero-weights", "S.equal-neurons"),
    ("graph.laplacian-range", "graph.relabelling", "graph.footnote-14"),
)
"""The sections of docs/theory.md, each given by the claims in its heading."""

_SECTIONS = {name: section for section in PROVED_TOGETHER for name in section}

_HOW = {
    "formal": "in symbols",
    "exact": "exactly",
    "proved on the box": "proved on a box",
    "sampled": "sampled",
}


def proof_of(claim: Claim) -> str:
    """Return the link to the section of docs/theory.md with a claim's proof; empty if there is none.

    Example:
      >>> import jaxarch
      >>> jaxarch.lab.claims.proof_of(jaxarch.lab.claims.CLAIMS["two-temperature.scaling"])
      'theory.md#two-temperaturescaling'
    """
    check_instance("claim", claim, Claim, "a jaxarch.lab.claims.Claim")
    section = _SECTIONS.get(claim.id)
    if section is None:
        return ""
    heading = ", ".join(section)
    anchor = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-").lower()
    return f"theory.md#{anchor}"


def known_by(claim: Claim) -> list[str]:
    """List in words the evidence for a claim: its proof, its checks and their cases, its counterexamples.

    Example:
      >>> import jaxarch
      >>> for line in jaxarch.lab.claims.known_by(jaxarch.lab.claims.CLAIMS["D.eq-49"]):
      ...     print(line)
      proved
      sampled: steps 1 or of 1, ..., 10^300
    """
    check_instance("claim", claim, Claim, "a jaxarch.lab.claims.Claim")
    by_hand = "refuted by hand" if claim.verdict == "refuted" else "proved"
    lines = [by_hand] if proof_of(claim) else []
    # Checks of the same kind and cases are listed once.
    return [*lines, *dict.fromkeys(map(_told, claim.checks)), *_counterexamples(claim)]


def _told(check: Check) -> str:
    domain = check.domain
    return f"{_HOW[check.kind]}: {domain[0].lower() + domain[1:] if domain[1:2].islower() else domain}"


def _counterexamples(claim: Claim) -> Iterator[str]:
    count = len(claim.printed)
    if count:
        what = "a counterexample" if count == 1 else f"{count} counterexamples"
        yield what if claim.verdict == "refuted" else f"{what} to what is printed"


def listed(claims: Iterable[Claim]) -> Table:
    """Tabulate claims without running checks: verdict, kinds of evidence, and section with the proof.

    Example:
      >>> from jaxarch.lab import claims
      >>> claims.listed(claims.CLAIMS.values()).row_count == len(claims.CLAIMS)
      True
    """
    claims = items("claims", claims, Claim, "jaxarch.lab.claims.Claim")
    table = Table("claim", "verdict", "known", "proof", box=box.SIMPLE_HEAD, show_edge=False)
    for claim in claims:
        ways = dict.fromkeys(line.partition(":")[0] for line in known_by(claim))
        section = _SECTIONS.get(claim.id, ())
        table.add_row(
            claim.id, claim.verdict, ", ".join(ways), *(f"docs/theory.md, {n}" for n in section[:1])
        )
    return table


def listed_as_markdown(claims: Iterable[Claim]) -> str:
    """Render the list of claims as a Markdown page, with statements and the cases of the checks.

    Example:
      >>> import jaxarch
      >>> page = jaxarch.lab.claims.listed_as_markdown(jaxarch.lab.claims.chosen("D.zero-mean-error"))
      >>> print(page.splitlines()[-1])
      | `D.zero-mean-error` | E(r) = 0 | refuted | 2 counterexamples |
    """
    listed = items("claims", claims, Claim, "jaxarch.lab.claims.Claim")
    head = _HEAD.format(totals=_totals(listed))
    return "\n".join([head, *map(_row, listed), ""])


_HEAD = """# Claims

Each row is a statement of a paper, or of jaxarch, and programs check it. {totals}
`jaxarch claims CLAIM` runs the checks of a claim and says what they found. An id such as
`D.lemma-4.2` begins with its paper, [D], [A] or [S]; the other claims are jaxarch's own. The last
column says how a claim is known:

- *proved*, *refuted by hand*: the link leads to the proof, for all sizes.
- *in symbols*: by algebra.
- *proved on a box*: by interval arithmetic, over all of the ranges named.
- *exactly*: in whole numbers or fractions, in the cases named.
- *sampled*: in floating point, in 10,000 cases drawn from the ranges of the named variables.
- *counterexample*: cases in which the statement, or what is printed, is false.

`jaxarch claims --list --format markdown > docs/claims.md` writes this page.

| claim | statement | verdict | known |
| --- | --- | --- | --- |"""


def _totals(claims: Sequence[Claim]) -> str:
    """Count the claims of each verdict in a sentence."""
    counts = Counter[str](claim.verdict for claim in claims)
    verdicts = {"holds": "hold", "holds as corrected": "hold as corrected", "refuted": "are refuted"}
    parts = [f"{counts[verdict]} {words}" for verdict, words in verdicts.items()]
    return f"Of {len(claims)} claims {parts[0]}, {parts[1]}, and {parts[2]}."


def _row(claim: Claim) -> str:
    proof = proof_of(claim)
    known = [*map(_plain, known_by(claim))]
    if proof:
        known[0] = f"[{known[0]}]({proof})"
    return f"| `{claim.id}` | {_plain(claim.statement)} | {claim.verdict} | {'<br>'.join(known)} |"


def _plain(text: str) -> str:
    """Escape text so that Markdown emphasizes nothing and a table sees no cell border."""
    return re.sub(r"([*_<>\\`\[\]])", r"\\\1", text).replace("|", "&#124;")

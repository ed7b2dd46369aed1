"""Renderings of outcomes for the terminal, for papers (Markdown) and for programs (JSON)."""

from __future__ import annotations

import inspect
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from jaxarch.lab.checks import check_instance, check_mapping, items
from jaxarch.lab.claims.checks.core import Check, Evaluated, Evidence, Outcome
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.equations import Entry
from jaxarch.lab.claims.pages import proof_of

_OUTCOMES = "outcomes of jaxarch.lab.claims.check"
_STYLES = {"holds": "green", "holds as corrected": "yellow", "refuted": "red"}
_WIDEST, _WIDEST_SOURCE = 180, 50
_HEADINGS = ("claim", "source", "verdict", "found by", "margin", "cases", "seconds")


class Report(tuple[Outcome, ...]):
    """Outcomes that print as a table."""

    @property
    def as_recorded(self) -> bool:
        """True if every verdict is the recorded one."""
        return all(outcome.as_recorded for outcome in self)

    def __str__(self) -> str:
        console = Console(file=io.StringIO())
        show(console, overview(self))
        return console.file.getvalue().rstrip()  # type: ignore[attr-defined]


def show(console: Console, part: RenderableType) -> None:
    """Print without wrapping: each claim stays on one line, and so does each line of Python.

    The console's width is raised to 180 if it is less.

    Example:
      >>> import jaxarch
      >>> from rich.console import Console
      >>> from rich.text import Text
      >>> row = Text("S.parameter-count  [S] section 5, figure 8  holds")
      >>> jaxarch.lab.claims.show(Console(color_system=None, width=20), row)
      S.parameter-count  [S] section 5, figure 8  holds
    """
    check_instance("console", console, Console, "a rich.console.Console")
    console.width = max(console.width, _WIDEST)
    console.print(part, crop=False, highlight=False)


def overview(outcomes: Iterable[Outcome]) -> Table:
    """Tabulate outcomes, one row per claim.

    Example:
      >>> import jaxarch
      >>> table = jaxarch.lab.claims.overview(jaxarch.lab.claims.check(["S.fig-5-text", "D.zero-mean-error"]))
      >>> table.row_count, [column.header for column in table.columns][:3]
      (2, ['claim', 'source', 'verdict'])
    """
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for heading in _HEADINGS:
        right = heading in ("margin", "cases", "seconds")
        widest = _WIDEST_SOURCE if heading == "source" else None
        table.add_column(heading, justify="right" if right else "left", no_wrap=True, max_width=widest)
    for outcome in items("outcomes", outcomes, Outcome, _OUTCOMES):
        table.add_row(*_row(outcome))
    return table


def _row(outcome: Outcome) -> list[RenderableType]:
    claim, source, verdict, *rest = _cells(outcome)
    style = _STYLES.get(outcome.verdict, "bold red")
    return [Text(claim), Text(source), Text(verdict, style), *map(Text, rest)]


def details(outcome: Outcome) -> Group:
    """Show one claim in full: statement, assumptions, evidence, counterexamples, and claims that replace it.

    Example:
      >>> import jaxarch
      >>> from rich.console import Console
      >>> (outcome,) = jaxarch.lab.claims.check("D.zero-mean-error")
      >>> part = jaxarch.lab.claims.details(outcome)
      >>> jaxarch.lab.claims.show(Console(color_system=None), part)  # doctest: +ELLIPSIS
      D.zero-mean-error  refuted
      [D] eq. (39); [A] eq. (46)
      <BLANKLINE>
      E(r) = 0
      ...
    """
    check_instance("outcome", outcome, Outcome, f"one of the {_OUTCOMES}")
    return Group(*_details(outcome))


def _details(outcome: Outcome) -> Iterator[RenderableType]:
    claim = outcome.claim
    yield Text.assemble(
        (claim.id, "bold"), "  ", (_verdict(outcome), _STYLES.get(outcome.verdict, "bold red"))
    )
    yield Text(claim.source)
    yield Text(f"\n{claim.statement}")
    if claim.assumptions:
        yield Text(f"Assumed: {claim.assumptions}")
    if claim.remark:
        yield Text(f"\n{claim.remark}")
    if proof_of(claim):
        yield Text(f"\nProof: docs/{proof_of(claim)}")
    for check, found in zip(claim.checks, outcome.evidence, strict=True):
        held = "held" if found.holds else "FAILED"
        yield Text(f"\n{_title(check)}")
        yield Text(f"  {found.kind}: {held} in {found.cases:,} cases, smallest margin {number(found.margin)}")
        yield Text(f"  cases: {found.domain}")
        if found.worst:
            yield Text(f"  worst case: {_case(found.worst)}")
    for counterexample, sides in zip(claim.printed, outcome.printed, strict=True):
        yield Text("\nThe printed form fails at")
        yield Text(f"  {_case(counterexample.case)}")
        yield Text(f"  {_sides(sides)}")
        yield Text(f"  {counterexample.line}", no_wrap=True, overflow="ignore")
    for control, sides in zip(claim.controls, outcome.controls, strict=True):
        yield Text(f"\nThe printed form {'holds' if sides.holds else 'FAILS'} at")
        yield Text(f"  {_case(control.case)}")
        yield Text(f"  {_sides(sides)}")
    if claim.see:
        yield Text(f"\nSee {', '.join(claim.see)}.")


def searched(check: Inequality, found: Evidence) -> Group:
    """Show the result of a search for the worst case of an inequality.

    Example:
      >>> import jax, jaxarch
      >>> from rich.console import Console
      >>> (inequality,) = jaxarch.lab.claims.drawn_checks(jaxarch.lab.claims.CLAIMS["binarize.one-to-one"])
      >>> part = jaxarch.lab.claims.searched(inequality, inequality.run(jax.random.key(0), cases=100))
      >>> jaxarch.lab.claims.show(Console(color_system=None), part)  # doctest: +ELLIPSIS
      `w = logit(sigma(H w))/H`, with the error that v's rounding causes.
        held in 100 cases, largest ratio left/right 0...
        worst case: hard = ..., scores = ...
    """
    check_instance("check", check, Inequality, "a jaxarch.lab.claims.Inequality")
    check_instance("found", found, Evidence, "a jaxarch.lab.claims.Evidence")
    held = "held" if found.holds else "FAILED"
    return Group(
        Text(_title(check)),
        Text(f"  {held} in {found.cases:,} cases, largest ratio left/right {found.ratio:.10g}"),
        Text(f"  worst case: {_case(found.worst)}"),
    )


def _title(check: Check) -> str:
    """Return the first line of the docstring of a check's statement."""
    # So the first line of a statement's docstring is output, and has to be a sentence by itself.
    statement = next(
        (getattr(check, name) for name in ("statement", "holds", "slack") if hasattr(check, name)), check
    )
    return (inspect.getdoc(statement) or type(check).__name__).partition("\n")[0]


def as_markdown(outcomes: Sequence[Outcome]) -> str:
    """Render outcomes as Markdown: a table of verdicts, then each claim with its formula.

    Example:
      >>> import jaxarch
      >>> text = jaxarch.lab.claims.as_markdown(jaxarch.lab.claims.check("D.zero-mean-error"))
      >>> text.splitlines()[4:7]
      ['### D.zero-mean-error', '', '[D] eq. (39); [A] eq. (46): **refuted**']
    """
    outcomes = items("outcomes", outcomes, Outcome, _OUTCOMES)
    rows = [_markdown_row(_HEADINGS), _markdown_row(["---"] * len(_HEADINGS))]
    rows += [_markdown_row(_cells(outcome)) for outcome in outcomes]
    return "\n".join([*rows, "", *(part for outcome in outcomes for part in _section(outcome))])


def _section(outcome: Outcome) -> Iterator[str]:
    claim = outcome.claim
    yield f"### {claim.id}\n"
    yield f"{claim.source}: **{_verdict(outcome)}**\n"
    # Within a fence, Markdown leaves the underscores and backslashes of the formula alone.
    yield f"```math\n{claim.latex}\n```\n"
    yield f"{_plain(claim.statement)}\n"
    if claim.assumptions:
        yield f"Assumed: {_plain(claim.assumptions)}\n"
    if claim.remark:
        yield f"{_plain(claim.remark)}\n"
    if proof_of(claim):
        yield f"[Proof]({proof_of(claim)})\n"
    for counterexample, sides in zip(claim.printed, outcome.printed, strict=True):
        yield f"The printed form fails: {_sides(sides)}\n"
        yield f"```python\nimport {counterexample.statement.__module__}\n\n{counterexample.line}\n```\n"
    if claim.see:
        yield f"See {', '.join(claim.see)}.\n"


def equations_as_markdown(papers: Mapping[str, Sequence[Entry]]) -> str:
    """Tabulate every numbered equation with the claims that judge it, or the reason why there are none.

    Example:
      >>> import jaxarch
      >>> papers = {"A": jaxarch.lab.claims.read_equations()["A"][:1]}
      >>> for line in jaxarch.lab.claims.equations_as_markdown(papers).splitlines()[2:]:
      ...     print(line.rstrip(" |"))
      | paper | equation, lemma, theorem | claims | note
      | --- | --- | --- | ---
      | [A] | 1, 2 | A.eq-2
    """
    check_mapping("papers", papers, "a dict such as jaxarch.lab.claims.read_equations()")
    headings = ("paper", "equation, lemma, theorem", "claims", "note")
    rows = [_markdown_row(headings), _markdown_row(["---"] * len(headings))]
    rows += [
        _markdown_row((f"[{paper}]", ", ".join(entry.numbers), ", ".join(entry.claims) or "none", entry.note))
        for paper, entries in papers.items()
        for entry in items("papers", entries, Entry, "entries of jaxarch.lab.claims.read_equations()")
    ]
    return "\n".join(["### Equation by equation\n", *rows, ""])


def as_json(outcomes: Iterable[Outcome]) -> str:
    """Render outcomes as a JSON list with one object per claim.

    Example:
      >>> import jaxarch, json
      >>> (claim,) = json.loads(jaxarch.lab.claims.as_json(jaxarch.lab.claims.check("D.zero-mean-error")))
      >>> claim["verdict"], claim["recorded"], len(claim["counterexamples"])
      ('refuted', 'refuted', 2)
    """
    return json.dumps(
        [_object(outcome) for outcome in items("outcomes", outcomes, Outcome, _OUTCOMES)], indent=2
    )


def _object(outcome: Outcome) -> dict[str, Any]:
    claim = outcome.claim
    return {
        "id": claim.id,
        "source": claim.source,
        "verdict": outcome.verdict,
        "recorded": claim.verdict,
        "margin": _finite(outcome.margin),
        "cases": outcome.cases,
        "seconds": outcome.seconds,
        "found_by": outcome.kinds,
        "statement": claim.statement,
        "latex": claim.latex,
        "assumptions": claim.assumptions,
        "remark": claim.remark,
        "proof": proof_of(claim),
        "see": list(claim.see),
        "evidence": [
            {
                "statement": _title(check),
                "kind": found.kind,
                "domain": found.domain,
                "holds": found.holds,
                "margin": _finite(found.margin),
                "cases": found.cases,
                "worst": _written(found.worst),
                "rejects": list(check.mutations),
            }
            for check, found in zip(claim.checks, outcome.evidence, strict=True)
        ],
        "counterexamples": [
            {
                "case": dict(counterexample.case),
                "left": _finite(sides.left),
                "right": _finite(sides.right),
                "python": counterexample.line,
            }
            for counterexample, sides in zip(claim.printed, outcome.printed, strict=True)
        ],
        "controls": [
            {
                "case": dict(control.case),
                "left": _finite(sides.left),
                "right": _finite(sides.right),
                "python": control.line,
            }
            for control, sides in zip(claim.controls, outcome.controls, strict=True)
        ],
    }


def number(value: float) -> str:
    """Format a number with up to three significant digits."""
    return f"{value:.3g}"


def _cells(outcome: Outcome) -> list[str]:
    margin, cases, seconds = number(outcome.margin), f"{outcome.cases:,}", f"{outcome.seconds:.2f}"
    return [outcome.claim.id, outcome.claim.source, _verdict(outcome), outcome.kinds, margin, cases, seconds]


def _verdict(outcome: Outcome) -> str:
    return (
        outcome.verdict if outcome.as_recorded else f"{outcome.verdict} (recorded: {outcome.claim.verdict})"
    )


def _case(case: Any) -> str:
    return ", ".join(f"{name} = {value}" for name, value in case.items())


def _finite(value: float) -> float | None:
    """Return a finite number as a float, and None for others, for which JSON has no literal."""
    return float(value) if math.isfinite(value) else None


def _written(case: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in case.items()}


def _plain(text: str) -> str:
    """Escape text so that Markdown emphasizes nothing."""
    return re.sub(r"([*_<>|\\`])", r"\\\1", text)


def _sides(sides: Evaluated) -> str:
    return f"left {number(sides.left)} {'<=' if sides.holds else '>'} right {number(sides.right)}"


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"

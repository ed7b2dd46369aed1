"""Record as tables for the terminal, as docs/reproduction.md, and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jaxarch.lab.reproduction.line import VERDICTS, Line, Measurement, Paper
from jaxarch.lab.reproduction.reading import checked

WRITE = "jaxarch reproduction --format markdown > docs/reproduction.md"
_STYLES = dict(zip(VERDICTS, ("green", "yellow", "red", "dim"), strict=True))
_HEADINGS = ("measured", "median [quartiles]", "mean [95%]", "p", "runs")

_PREFACE = f"""# What reproduces

A line for each figure and table of the papers that shows a result, and for sentences that state one: what
the paper says, what was measured here, and the verdict. `jaxarch reproduction` prints it, `jaxarch
reproduction ID` one line, and `jaxarch reproduction --format json` all of it for programs.

Numbers are medians with quartiles over runs (seeds and splits), never the best run. A difference is taken run
by run, on the same splits: its mean has a 95% t interval, its p is from the two-sided Wilcoxon signed-rank
test, not adjusted for other tests.

This page is written from `jaxarch/lab/reproduction/*.toml`, which is where to change it, by
`{WRITE}`.
"""


def number(value: float) -> str:
    """Format a number as it is stored, up to six significant digits; integers in full."""
    return str(int(value)) if value == int(value) else f"{value:.6g}"


def overview(papers: Sequence[Paper]) -> Table:
    """Return a table with a row per line: id and verdict, claim and first measurement, first command.

    Example:
      >>> from jaxarch.lab import reproduction
      >>> papers = reproduction.only(reproduction.read(), "D.figure-2")
      >>> table = reproduction.overview(papers)
      >>> table.row_count, [column.header for column in table.columns]
      (1, ['line, verdict', 'what the paper says, and what was measured', 'command'])
    """
    papers = checked(papers)
    table = _plain_table()
    table.add_column("line, verdict", no_wrap=True)
    lines = [line for paper in papers for line in paper.lines]
    numbers = {line.id: _interval(m.median, m.q25, m.q75) for line in lines for m in line.measured[:1]}
    # Each number gets a line of its own, so that it is never broken.
    widest = max(map(len, numbers.values()), default=0)
    table.add_column("what the paper says, and what was measured", min_width=widest)
    table.add_column("command")
    for paper in papers:
        for line in paper.lines:
            says = [line.claim]
            if line.measured:
                says += [f"measured: {line.measured[0].what}:", numbers[line.id]]
            table.add_row(
                Text.assemble(f"{line.id}\n", (line.verdict, _STYLES[line.verdict])),
                Text("\n".join(says)),
                Text(line.commands[0] if line.commands else ""),
                end_section=line is paper.lines[-1],
            )
    return table


def details(papers: Iterable[Paper]) -> Group:
    """Return every line in full, for the terminal.

    Example:
      >>> from jaxarch.lab import reproduction
      >>> from rich.console import Console
      >>> papers = reproduction.only(reproduction.read(), "D.figure-2")
      >>> part = reproduction.details(papers)
      >>> Console(color_system=None, width=100).print(part)  # doctest: +ELLIPSIS
      D.figure-2  reproduced
      figure 2 of ...
      <BLANKLINE>
      The paper says: The shape of B_M(w) = sigma(M w) and of its derivative ...
    """
    return Group(
        *(part for paper in checked(papers) for line in paper.lines for part in _details(paper, line))
    )


def _details(paper: Paper, line: Line) -> Iterator[RenderableType]:
    yield Text.assemble((line.id, "bold"), "  ", (line.verdict, _STYLES[line.verdict]))
    yield Text(f"{line.source} of {_cited(paper)}")
    yield Text(f"\nThe paper says: {line.says}")
    yield Text(f"\n{line.conclusion}")
    if not line.measured:
        return
    what, median, mean, *rest = _HEADINGS
    table = _plain_table()
    table.add_column(what)
    # Put the mean below the median, so that no number is broken at 80 columns.
    for heading in (f"{median}\n{mean}", *rest):
        table.add_column(Text(heading), justify="right", no_wrap=True)
    for measurement in line.measured:
        what, median, mean, *rest = _cells(measurement)
        table.add_row(*map(Text, (what, f"{median}\n{mean}".rstrip(), *rest)))
    yield Text(f"\nSettings: {line.settings}\n")
    yield table
    yield Text("")
    for command in line.commands:
        # Keep a command in one piece, so that it can be copied.
        yield Text(command, no_wrap=True, overflow="ignore")
    if line.version or line.date:
        yield Text(_made(line))


def document(papers: Sequence[Paper]) -> str:
    """Return the whole record in Markdown: counts of verdicts, then every paper with its lines.

    Example:
      >>> from jaxarch.lab import reproduction
      >>> text = reproduction.document(reproduction.only(reproduction.read(), "D.figure-2"))
      >>> [line for line in text.splitlines() if line.startswith("#")]
      ['# What reproduces', '## [D]', '### D.figure-2']
    """
    papers = checked(papers)
    counts = [
        (f"[{paper.key}]", *(str(sum(line.verdict == v for line in paper.lines)) for v in VERDICTS))
        for paper in papers
    ]
    parts = [_PREFACE, _table(("paper", *VERDICTS), counts)]
    for paper in papers:
        links = [(f"[{line.id}](#{_anchor(line)})", line.claim, line.verdict) for line in paper.lines]
        parts += [
            f"## [{paper.key}]\n\n{_cited(paper, emphasis='*')}\n",
            _table(("line", "the paper says", "verdict"), links),
            sections([paper]),
        ]
    return "\n".join(parts)


def sections(papers: Iterable[Paper]) -> str:
    """Return every line in full, in Markdown, one section per line.

    Example:
      >>> from jaxarch.lab import reproduction
      >>> text = reproduction.sections(reproduction.only(reproduction.read(), "D.figure-2"))
      >>> text.splitlines()[:3]
      ['### D.figure-2', '', 'Figure 2: **reproduced**']
    """
    return "\n".join(part for paper in checked(papers) for line in paper.lines for part in _section(line))


def _section(line: Line) -> Iterator[str]:
    yield f"### {line.id}\n"
    yield f"{line.source[0].upper()}{line.source[1:]}: **{line.verdict}**\n"
    yield f"> {line.says}\n"
    yield f"{line.conclusion}\n"
    if not line.measured:
        return
    yield f"Settings: {line.settings}\n"
    yield _table(_HEADINGS, map(_cells, line.measured))
    yield "\n".join(["```sh", *line.commands, "```", ""])
    if line.version or line.date:
        yield f"{_made(line)}\n"


def as_json(papers: Iterable[Paper]) -> str:
    """Return every line as a JSON object: the fields of `Line` and the paper's key; absent numbers are null.

    Example:
      >>> import json
      >>> from jaxarch.lab import reproduction
      >>> (line,) = json.loads(reproduction.as_json(reproduction.only(reproduction.read(), "D.figure-2")))
      >>> line["paper"], line["id"], line["verdict"]
      ('D', 'D.figure-2', 'reproduced')
    """
    lines = [
        {"paper": paper.key, **dataclasses.asdict(line)} for paper in checked(papers) for line in paper.lines
    ]
    return json.dumps(lines, indent=2, default=str)


def _plain_table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)


def _cells(measurement: Measurement) -> tuple[str, ...]:
    return (
        measurement.what,
        _interval(measurement.median, measurement.q25, measurement.q75),
        _interval(measurement.mean, measurement.mean_low, measurement.mean_high),
        _interval(measurement.p),
        _interval(measurement.runs),
    )


def _interval(middle: float | None, low: float | None = None, high: float | None = None) -> str:
    if middle is None:
        return ""
    bounds = "" if low is None or high is None else f" [{number(low)}, {number(high)}]"
    return number(middle) + bounds


def _cited(paper: Paper, emphasis: str = "") -> str:
    return f"{paper.authors}, {emphasis}{paper.title}{emphasis} ({paper.year})"


def _made(line: Line) -> str:
    """Say when and with which version a line was measured, as far as that is known."""
    version = f" with jaxarch {line.version}" if line.version else ""
    return f"Measured{version}{f' on {line.date}' if line.date else ''}."


def _anchor(line: Line) -> str:
    """Return the anchor of a line's heading, as GitHub makes it."""
    return line.id.lower().replace(".", "")


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    escaped = [[cell.replace("|", "&#124;") for cell in row] for row in (headings, *rows)]
    rule = ["---"] * len(headings)
    lines = (f"| {' | '.join(row)} |" for row in (escaped[0], rule, *escaped[1:]))
    return "\n".join([*lines, ""])

"""The record: every line is checked, shown in full, and shown alike in every form."""

import dataclasses
import io
import json
import shlex
import tomllib

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from places import ROOT
from rich.console import Console

from jaxarch import ArgumentError
from jaxarch.lab import cli, reproduction
from jaxarch.lab.harness import read_settings
from jaxarch.lab.harness.catalogue import experiment

PAPERS = reproduction.read()
LINES = [line for paper in PAPERS for line in paper.lines]
COMMANDS = sorted({command for line in LINES for command in line.commands})
WRITE = "jaxarch reproduction --format markdown > docs/reproduction.md"


def typed(*arguments):
    """What a command prints."""
    done = CliRunner().invoke(cli.app, ["reproduction", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def shown(rendered, width=80):
    console = Console(file=io.StringIO(), width=width)
    console.print(rendered, crop=False)
    return console.file.getvalue()


def test_the_document_says_what_the_data_say():
    message = f"docs/reproduction.md is not what the data say; write it with: {WRITE}"
    assert (ROOT / "docs" / "reproduction.md").read_text() == typed("--format", "markdown"), message


def test_the_document_is_plain_text_and_names_the_command_that_writes_it():
    text = reproduction.document(PAPERS)
    assert text.isascii()
    assert WRITE in text


def test_the_data_are_installed_with_the_package():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "lab/reproduction/*.toml" in pyproject["tool"]["setuptools"]["package-data"]["jaxarch"]


@pytest.mark.parametrize("key, figures", [("D", range(2, 11)), ("A", range(1, 8)), ("S", range(7, 19))])
def test_every_figure_with_a_result_has_a_line(key, figures):
    ids = {line.id for line in LINES}
    assert {f"{key}.figure-{number}" for number in figures} <= ids


def test_every_command_is_one_that_can_be_run():
    for command in COMMANDS:
        name, run, *arguments = shlex.split(command)
        assert (name, run) == ("jaxarch", "run"), command
        given = cli.run.make_context("run", arguments).params
        values = dict(text.split("=") for text in given["assignments"])
        values |= {name: given[name] for name in ("seeds", "dataset") if given[name] is not None}
        read_settings(experiment(given["experiment"]).settings, values)


def test_the_overview_has_every_line_its_verdict_and_its_command_whole_in_80_columns():
    words = shown(reproduction.overview(PAPERS)).split()
    for line in LINES:
        assert line.id in words
        assert set(line.verdict.split()) <= set(words)
        assert set(" ".join(line.commands[:1]).split()) <= set(words)
    assert not any("…" in word for word in words)


@pytest.mark.parametrize("id", ["D.footnote-11", "D.figure-4", "S.table-4"])
def test_a_line_alone_is_shown_in_full(id):
    (paper,) = reproduction.only(PAPERS, id)
    (line,) = paper.lines
    printed = typed(id)
    flat = " ".join(printed.split())
    for text in (line.id, line.verdict, line.says, line.conclusion, line.settings, paper.title):
        assert text in flat
    for command in line.commands:
        assert command in printed.splitlines()
    assert all(measurement.what.split()[-1] in flat for measurement in line.measured)


def test_a_line_alone_in_markdown_is_its_section_of_the_document():
    section = typed("D.footnote-11", "--format", "markdown")
    assert section.startswith("### D.footnote-11\n")
    assert section in reproduction.document(PAPERS)


def test_json_is_a_list_with_an_object_a_line():
    everything = json.loads(typed("--format", "json"))
    assert [(one["paper"], one["id"]) for one in everything] == [
        (paper.key, line.id) for paper in PAPERS for line in paper.lines
    ]
    (one,) = json.loads(typed("D.footnote-11", "--format", "json"))
    (line,) = reproduction.only(PAPERS, "D.footnote-11")[0].lines
    assert one["verdict"] == line.verdict
    assert one["measured"][0] == dataclasses.asdict(line.measured[0])
    assert one["date"] == line.date.isoformat()


def test_brackets_and_bars_in_a_text_are_shown_as_they_are():
    (paper,) = reproduction.only(PAPERS, "D.footnote-11")
    odd = dataclasses.replace(paper.lines[0], claim="[bold] |m| a", says="[red] of |m|")
    papers = [dataclasses.replace(paper, lines=(odd,))]
    assert "[bold] |m| a" in shown(reproduction.overview(papers), 200)
    assert "[red] of |m|" in shown(reproduction.details(papers))
    assert "| [bold] &#124;m&#124; a |" in reproduction.document(papers)


HEAD = 'key = "D"\nauthors = "A. Author"\ntitle = "A Title"\nyear = 2021\n'
LINE = '''
[[lines]]
id = "D.figure-1"
source = "figure 1"
claim = "short"
says = """
what it
  says
"""
verdict = "partly"
conclusion = "why"
settings = "how"
commands = ["jaxarch run"]
measured = [
    { what = "a", median = 1, q25 = 0.5, q75 = 2, runs = 10, mean = 1, mean_low = 0, mean_high = 2, p = 1 },
]
date = 2026-01-02
'''


def read(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)
    return reproduction.read(folder)


def test_a_file_is_read_with_its_texts_on_one_line(tmp_path):
    ((line,),) = (paper.lines for paper in read(tmp_path, one=HEAD + LINE))
    assert line.says == "what it says"
    assert line.measured[0] == reproduction.Measurement("a", 1.0, 0.5, 2.0, 10, 1.0, 0.0, 2.0, 1.0)
    assert line.date.year == 2026
    assert line.version == ""


AT = "one.toml: lines D.figure-1: "
BROKEN = {
    "no TOML": ("year = 2021", "year 2021", "one.toml: cannot be read"),
    "field": ("claim =", "clam =", AT + "clam: unknown field; did you mean 'claim'?"),
    "missing": ('verdict = "partly"\n', "", AT + "verdict: missing"),
    "no id": ('id = "D.figure-1"\n', "", "one.toml: lines 1: id: missing"),
    "verdict": ('"partly"', '"partially"', AT + "verdict: unknown 'partially'; did you mean 'partly'?"),
    "empty": ('"why"', '" "', AT + "conclusion: expected a line of printable text, got ''"),
    "long": ('"short"', f'"{81 * "x"}"', AT + "claim: expected at most 80 characters, got 81"),
    "number": ("median = 1", 'median = "1"', AT + "measured 1: median: expected a number, got '1'"),
    "truth": ("runs = 10", "runs = true", AT + "measured 1: runs: expected an integer, got True"),
    "list": ('["jaxarch run"]', '"jaxarch run"', AT + "commands: expected a list, got 'jaxarch run'"),
    "table": ('["jaxarch run"]', "[1]", AT + "commands 1: expected a text, got 1"),
    "date": ("2026-01-02", "2026-01-02T03:04:05", AT + "date: expected a date"),
    "year": ("year = 2021", "year = 2021.5", "one.toml: year: expected an integer, got 2021.5"),
    "finite": ("median = 1", "median = nan", AT + "measured 1: median: expected a finite number, got nan"),
    "order": ("q25 = 0.5", "q25 = 1.5", AT + "measured 1: q25: expected q25 <= median <= q75, got 1.5"),
    "alone": ("q25 = 0.5, ", "", AT + "measured 1: q25: expected q25, median, q75 together"),
    "interval": ("mean = 1, ", "", AT + "measured 1: mean_low: expected mean_low, mean, mean_high together"),
    "p": ("p = 1", "p = 1.1", AT + "measured 1: p: expected a number in [0, 1], got 1.1"),
    "runs": ("runs = 10, ", "", AT + "measured 1: runs: missing; q25 needs"),
    "count": ("runs = 10", "runs = 0", AT + "measured 1: runs: expected an integer of at least 1, got 0"),
    "measured": ("{ what", "# what", AT + "measured: missing, but the verdict is 'partly'"),
    "settings": ('settings = "how"\n', "", AT + "settings: missing, but the verdict is 'partly'"),
    "not run": ('"partly"', '"not run"', AT + "measured: expected nothing with the verdict 'not run'"),
    "other paper": ("D.figure-1", "A.figure-1", "one.toml: id: expected D.SOMETHING, got 'A.figure-1'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_line_that_is_wrong_is_refused_with_its_place(case, tmp_path):
    right, wrong, message = BROKEN[case]
    assert right in HEAD + LINE
    with pytest.raises(ArgumentError) as error:
        read(tmp_path, one=(HEAD + LINE).replace(right, wrong))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_id_occurs_once(tmp_path):
    with pytest.raises(ArgumentError, match=r"one.toml: id: D.figure-1 occurs twice"):
        read(tmp_path, one=HEAD + LINE + LINE)


def test_a_paper_has_one_file(tmp_path):
    with pytest.raises(ArgumentError, match=r"two.toml: key: 'D' is used by another file"):
        read(tmp_path, one=HEAD + LINE, two=HEAD + LINE)


FINDINGS = """what,median,q25,q75,runs,mean,mean_low,mean_high,p
"AUC of ""bin"", digits",0.94449,0.94311,0.95206,10,,,,
bin minus real,-0.0037,-0.00682,-0.00123,10,-0.00437,-0.00804,-0.0007031,0.013671875
parameters,90345,,,,,,,
"""


def findings(folder, text):
    (folder / "findings.csv").write_text(text)
    return reproduction.read_findings(folder)


def test_what_an_experiment_found_is_printed_to_be_pasted(tmp_path):
    findings(tmp_path, FINDINGS)
    assert typed("--measured", str(tmp_path)) == (
        "measured = [\n"
        '    { what = "AUC of \\"bin\\", digits", median = 0.944, q25 = 0.943, q75 = 0.952, runs = 10 },\n'
        '    { what = "bin minus real", median = -0.0037, q25 = -0.00682, q75 = -0.00123, runs = 10, '
        "mean = -0.00437, mean_low = -0.00804, mean_high = -0.000703, p = 0.0137 },\n"
        '    { what = "parameters", median = 90345 },\n'
        "]\n"
    )


def test_what_is_pasted_is_read(tmp_path):
    pasted = reproduction.as_toml(findings(tmp_path, FINDINGS))
    before, _, after = LINE.partition("measured = [\n")
    (paper,) = read(tmp_path, one=HEAD + before + pasted + after.partition("]\n")[2])
    assert [m.what for m in paper.lines[0].measured] == [
        'AUC of "bin", digits',
        "bin minus real",
        "parameters",
    ]
    assert paper.lines[0].measured[0].runs == 10


@pytest.mark.long
@example("\N{GRINNING FACE}", [0.0, 0.5, 1.0], 0.5)
@given(
    st.text(min_size=1).filter(lambda text: text.isprintable() and text.strip()),
    st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3).map(sorted),
    st.floats(0, 1),
)
def test_any_measurement_keeps_three_digits_and_its_order(what, values, p):
    q25, median, q75 = values
    given = reproduction.Measurement(what, median, q25, q75, runs=10, p=p)
    (table,) = tomllib.loads(reproduction.as_toml([given]))["measured"]
    kept = reproduction.Measurement(**table)
    assert (kept.what, kept.runs) == (what, 10)
    for name in ("median", "q25", "q75", "p"):
        assert getattr(kept, name) == pytest.approx(getattr(given, name), rel=0.0051, abs=1e-300)


UNREADABLE = {
    "column": ("what,median,wins\na,1,2\n", "findings.csv row 1: wins: unknown field"),
    "no median": ("what\na\n", "findings.csv row 1: median: missing"),
    "empty cell": ("what,median\na,1\nb,\n", "findings.csv row 2: median: missing"),
    "text": ("what,median\na,1\nb,much\n", "findings.csv row 2: median: expected a number, got 'much'"),
    "runs": ("what,median,runs\na,1,2.5\n", "findings.csv row 1: runs: expected an integer, got 2.5"),
    "no rows": ("what,median\n", "findings.csv has no rows"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_findings_that_are_no_measurements_are_refused_with_their_row(case, tmp_path):
    text, message = UNREADABLE[case]
    with pytest.raises(ArgumentError, match=message):
        findings(tmp_path, text)

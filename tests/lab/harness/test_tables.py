"""Tables for the terminal: every number whole at 80 columns, whatever the table."""

import io

import pytest
from rich.console import Console

from jaxarch.lab import reproduction
from jaxarch.lab.harness import tables
from jaxarch.lab.reproduction.rendering import _interval

SPREAD = ".947 [.944 .955]"
METHODS = ("random search", "AP->reshuffled")
PAPERS = reproduction.read()


def shown(rendered, width=80):
    console = Console(file=io.StringIO(), width=width)
    console.print(rendered, highlight=False)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return lines


def wide(columns, first="method", names=METHODS):
    """Cells that are all different: column j of row i has .ij."""
    headings = (first, *(f"after {j} examples" for j in range(columns)))
    rows = [(name, *(f".{i}{j} [.944 .955]" for j in range(columns))) for i, name in enumerate(names)]
    return tables.table("accuracy, median [quartiles]", headings, rows)


@pytest.mark.parametrize("columns", [1, 3, 4, 9])
def test_no_number_is_parted_from_its_quartiles_at_80_columns(columns):
    text = "\n".join(shown(wide(columns)))
    for i in range(len(METHODS)):
        for j in range(columns):
            assert text.count(f".{i}{j} [.944 .955]") == 1


def test_every_block_of_a_wide_table_names_its_rows_and_columns():
    lines = shown(wide(9))
    blocks = sum(line.startswith("method") for line in lines)
    assert blocks > 1
    for name in METHODS:
        assert sum(line.startswith(name) for line in lines) == blocks
    assert sum(line.count("examples") for line in lines) == 9


def test_a_table_that_fits_is_one_block_with_whole_headings():
    lines = shown(wide(3), 75)
    assert sum("method" in line for line in lines) == 1
    assert any("after 0 examples  after 1 examples  after 2 examples" in line for line in lines)


def test_headings_are_broken_before_the_table_is():
    table = tables.table("", ("neurons", *["share of the range beyond"] * 4), [("1", *["0.5"] * 4)])
    assert sum("neurons" in line for line in shown(table)) == 1


def test_columns_move_closer_before_the_table_is_broken():
    table = tables.table("", ("", *map(str, range(11))), [("10 random->bin", *["0.25"] * 11)])
    assert sum("random->bin" in line for line in shown(table)) == 1


def test_a_first_column_that_leaves_no_room_is_broken_and_the_numbers_are_not():
    name = "random search, after 50 examples of each class, from a density-aware start, pooled"
    lines = shown(wide(2, names=[name]))
    assert sum("[.944 .955]" in line for line in lines) == 2
    assert any(line.startswith(" ".join(name.split()[:5])) for line in lines)


def test_a_title_longer_than_the_table_does_not_stretch_it():
    table = tables.table("a title that is longer than its table is", ("a", "b"), [("1", "2")])
    assert "1  2" in shown(table)


def test_brackets_are_shown_as_they_are():
    text = "\n".join(shown(tables.table("median [quartiles]", ("[D]", "[bold]"), [("[red]", "[x]")])))
    assert all(word in text for word in ("median [quartiles]", "[D]", "[bold]", "[red]", "[x]"))


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.key)
def test_what_reproduces_keeps_its_numbers_whole_at_80_columns(paper):
    console = Console(file=io.StringIO(), width=80)
    console.print(reproduction.overview([paper]), crop=False)
    overview = console.file.getvalue()
    console.print(reproduction.details([paper]), crop=False)
    everything = console.file.getvalue()
    for line in paper.lines:
        for index, m in enumerate(line.measured):
            assert _interval(m.median, m.q25, m.q75) in everything
            assert _interval(m.mean, m.mean_low, m.mean_high) in everything
            assert index or _interval(m.median, m.q25, m.q75) in overview


def test_a_table_without_rows_has_its_headings():
    assert any("method" in line for line in shown(wide(2, names=())))

"""The page of a result folder: what it has, and that no text of a user's becomes anything but text."""

import dataclasses
import itertools
import json
import re

import pandas as pd
import pytest
from matplotlib.figure import Figure
from pages import ODD, TOY, Page, charted, made
from places import ROOT

from jaxarch import ArgumentError
from jaxarch.lab import html_report, reproduction
from jaxarch.lab.charts import Chart, specification, vega_lite
from jaxarch.lab.charts.vega_lite import COLOURS
from jaxarch.lab.harness import Results, catalogue, read_settings
from jaxarch.lab.html_report import Reported, citation, grids, ledger
from jaxarch.lab.html_report.report import device
from jaxarch.lab.results import read_manifest, write_manifest
from jaxarch.plots._descriptions import described, plain

CSS = (ROOT / "jaxarch" / "lab" / "html_report" / "templates" / "style.css").read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def text(folder):
    return html_report.report_page(Reported.on(folder, TOY))


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


@pytest.fixture(scope="module")
def compared(folder):
    other = made(folder.parent / "other", seeds=4, offset=0.25)
    return html_report.compare(Reported.on(folder, TOY), Reported.on(other, TOY))


@pytest.mark.long
def test_every_element_ends_and_headings_come_in_order(page):
    assert page.left_open == []
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


@pytest.mark.long
def test_the_page_names_its_language_and_fits_a_telephone(page):
    assert page.all("html")[0]["lang"] == "en"
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")


def test_nothing_is_loaded_from_elsewhere_and_the_page_forbids_it(page):
    for _, attributes in page.elements:
        for name in ("src", "href", "action", "srcset", "data"):
            assert attributes.get(name, "#").startswith(("#", "data:image/"))
    (policy,) = [meta["content"] for meta in page.all("meta") if "http-equiv" in meta]
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


def test_texts_of_a_user_s_are_shown_as_they_are_and_run_nothing(page):
    assert page.text.count(ODD) > 5
    assert not [image for image in page.all("img") if "onerror" in image or image["src"] == "x"]
    assert "<b>column</b>" in page.text
    assert "more <b>.csv" in page.text
    kinds = [script.get("type") for script in page.all("script")]
    assert kinds == ["application/json"] * 2 + ["module", "text/plain", "module"]


def test_figures_are_within_the_page_and_have_a_text_for_who_cannot_see_them(page):
    (image,) = page.all("img")
    assert image["src"].startswith("data:image/")
    assert image["alt"] == f"Panels: {ODD}. Across: density. Up: accuracy. Shown: dense, {ODD}."


def test_tables_of_the_report_and_of_files_are_there_and_can_be_sorted_by_numbers(page):
    labels = [table["aria-label"] for table in page.all("table")]
    for name in (f"accuracy of {ODD}", "findings.csv", "results.csv", "more <b>.csv", "settings"):
        assert name in labels
    assert all("sortable" in table["class"] for table in page.all("table"))
    assert {"0.1", "0.5", "1.0"} <= {cell["data-order"] for cell in page.all("td") if "data-order" in cell}


def test_every_setting_stands_there_with_its_default_and_meaning(folder, page):
    for name in read_manifest(folder)["settings"]:
        assert name in page.text
    assert "added to every accuracy." in page.text


def test_the_device_of_a_run_over_a_cluster_is_that_of_its_workers():
    driver = {"backend": "cpu", "kind": "cpu", "count": 2}
    assert device({"devices": driver}) == "2 x cpu"
    assert device({"devices": driver, "cluster": {"devices": {"1 x gpu, H200": 5}}}) == "1 x gpu, H200"


def test_key_device_versions_data_and_time_of_the_manifest_are_there(folder, page):
    manifest = read_manifest(folder)
    for value in (manifest["key"]["implementation"], manifest["versions"]["jax"], manifest["platform"]):
        assert value in page.text
    assert f"{manifest['wall_seconds']:.6g}" in page.text
    assert manifest["command"] in page.text


def test_a_page_opens_with_the_conclusion_and_names_its_warnings_after_results_and_figures(text):
    places = [
        text.index(part)
        for part in (
            'class="conclusion">The highest median accuracy is ',
            '<a href="#warnings">Warnings (2)</a>',
            '<section id="results">',
            '<section id="figures">',
            '<section id="warnings">',
            "1 of 15 runs met NaN or infinity; they are left out",
            '<section id="papers">',
        )
    ]
    assert places == sorted(places)


def test_a_page_without_charts_has_no_library_for_them(folder, text):
    without = html_report.report_page(Reported.on(folder, dataclasses.replace(TOY, charts=None)))
    assert "vegaEmbed=" in text
    assert "vegaEmbed=" not in without
    assert len(without) < len(text)


def test_a_file_of_many_rows_is_shown_in_part_and_that_is_said():
    grid = grids.of_file("a.csv", pd.DataFrame({"a": range(grids.MOST_ROWS + 1)}))
    assert len(grid.rows) == grids.MOST_ROWS
    assert grid.note == "The first 1,000 of 1,001 rows; a.csv has all of them."


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (".947 [.944 .955]", 0.947),
        ("-1.5e-3", -0.0015),
        ("1,234", 1234.0),
        ("+.01 7/8", 0.01),
        ("1e999", None),
        ("1v2", None),
        ("bin", None),
        ("-", None),
        ("0.1.0", None),
    ],
)
def test_a_cell_is_sorted_by_the_number_that_it_begins_with(text, number):
    assert grids.leading_number(text) == number


def test_a_line_of_the_record_is_found_by_its_command_and_by_its_settings():
    experiment = catalogue.experiment("disentangling.strategies")
    settings = json.loads(json.dumps(vars(read_settings(experiment.settings, {}))))
    lines = {spoken.line.id: spoken for spoken in ledger.spoken_to(experiment, settings)}
    assert lines["D.footnote-11"].differing == {}
    assert lines["D.footnote-11"].command == "jaxarch run disentangling.strategies"
    other = ledger.spoken_to(experiment, settings | {"seeds": 3, "resume": "folder"})
    assert {"seeds": (10, 3)} in [spoken.differing for spoken in other]
    assert ledger._differing("jaxarch run --set resume=elsewhere", experiment, settings) == {}


@pytest.mark.long
def test_every_command_of_the_record_is_understood():
    for paper in reproduction.read():
        for line in paper.lines:
            for command in line.commands:
                name, values = ledger._run(command)
                if command.startswith("jaxarch run"):
                    read_settings(catalogue.experiment(name).settings, values)


def test_papers_are_those_of_the_lines_and_those_that_the_experiment_is_about():
    assert [paper.key for paper in ledger.papers_of("pruning.fig1", [])] == ["A"]
    assert ledger.papers_of("related_work.tickets", []) == []


def test_the_program_is_cited_as_in_the_citation_file():
    file = (ROOT / "CITATION.cff").read_text()
    assert f'title: "{citation.TITLE}"' in file
    assert f"name: {citation.AUTHORS}" in file
    assert "version = {1.2.3}" in citation.program("1.2.3")
    assert "license: MIT" in file


def test_each_paper_has_a_key_of_its_own():
    entries = [citation.paper(paper) for paper in reproduction.read()]
    assert len({entry.partition(",")[0] for entry in entries}) == len(entries)
    assert "author = {G. Peri and L. Chicchi and D. Fanelli and L. Giambagli}" in "".join(entries)


def test_a_chart_has_its_data_within_runs_and_medians_and_nothing_that_failed(folder):
    lines, strip = charted(folder, TOY)
    points, medians = lines["layer"][0]["data"]["values"], lines["layer"][1]["data"]["values"]
    assert len(points) == 2 * 3 * 5 - 1
    assert len(medians) == 2 * 3
    assert {row["runs"] for row in medians} == {4, 5}
    assert all(set(row) >= {"x", "y"} for row in points)
    assert strip["layer"][1]["mark"]["type"] == "tick"
    assert ODD in lines["description"]


def test_a_chart_on_logarithmic_axes_leaves_out_what_has_no_place_there():
    table = pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": [1.0, -1.0, 2.0], "of": "x", "seed": 0})
    assert Chart("", table, "a", "b", "of", logarithmic=(True, True)).points["a"].tolist() == [2.0]


def test_what_is_true_or_false_is_told_in_words():
    table = pd.DataFrame({"a": [1.0], "b": [2.0], "of": "x", "flipped": [True]})
    made_of = specification(Chart("", table, "a", "b", "of", tells=("flipped",)))
    assert made_of["layer"][0]["encoding"]["tooltip"][-1]["type"] == "nominal"
    assert list(made_of["data"]["values"][0].values())[-1] == "True"


def test_a_chart_of_columns_that_are_not_there_is_refused():
    table = pd.DataFrame({"a": ["x"], "b": [1.0], "seed": [0]})
    with pytest.raises(ArgumentError, match="columns: unknown 'c'"):
        Chart("", table, "b", "a", "c")
    with pytest.raises(ArgumentError, match="x: expected a column of numbers, got 'a'"):
        Chart("", table, "a", "b", "a")


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def palettes():
    blocks = re.findall(r":root \{(.*?)\}", CSS, re.S)
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in blocks)
    return light, dark


@pytest.mark.parametrize("palette", palettes(), ids=["light", "dark"])
def test_texts_and_marks_stand_out_in_both_colour_schemes(palette):
    on_page = [(text, page) for text in ("text", "quiet") for page in ("page", "raised", "mark")]
    for text, on in [*on_page, ("link", "page"), ("warn-text", "warn-page")]:
        assert contrast(palette[text], palette[on]) >= 4.5, (text, on)
    assert all(contrast(colour, palette["page"]) >= 3 for colour in COLOURS)


def test_a_figure_is_described_without_the_marks_of_mathematics():
    assert plain(r"$\beta$ = 5, $M_{\mathrm{hard}}$") == "beta = 5, M_hard"
    assert described(Figure()) == "A figure without texts."


def test_a_comparison_has_the_settings_that_differ_and_differences_of_medians(compared):
    assert compared.settings.rows[:2] == (("seeds", "5", "4"), ("offset", "0", "0.25"))
    first = compared.findings.rows[0]
    assert first[0].startswith("accuracy of")
    assert float(first[3]) == pytest.approx(float(first[1].split()[0]) - float(first[2].split()[0]), abs=1e-3)


def test_a_comparison_opens_with_the_number_of_medians_outside_the_quartiles(compared):
    assert compared.conclusion == (
        "For 2 of the 2 findings with quartiles in both folders, the median of "
        f"{compared.names[0]} is outside the quartiles of {compared.names[1]}."
    )
    same = dataclasses.replace(compared, second=compared.first)
    assert same.conclusion.startswith("For 0 of the 2 findings")


def test_the_page_of_a_comparison_has_both_folders_beside_one_another(compared):
    page = Page(html_report.comparison_page(compared))
    assert page.left_open == []
    assert [name in page.text for name in compared.names] == [True, True]
    labels = [table["aria-label"] for table in page.all("table")]
    assert labels.count(f"accuracy of {ODD}") == 2
    assert len(page.all("img")) == 2
    assert not [image for image in page.all("img") if "onerror" in image]


def test_folders_of_other_experiments_and_a_folder_with_itself_are_not_compared(folder):
    one = Reported.on(folder, TOY)
    other = made(folder.parent / "of another")
    write_manifest(other, read_manifest(other) | {"experiment": "spectral.fig8"})
    with pytest.raises(ArgumentError, match=r"against: expected a folder of toys.page, as .* is, got one of"):
        html_report.compare(one, dataclasses.replace(one, results=Results(other)))
    with pytest.raises(ArgumentError, match="against: expected another folder"):
        html_report.compare(one, one)


def test_a_median_is_of_all_runs_those_without_a_place_on_a_logarithmic_axis_too():
    runs = pd.DataFrame({"density": 0.1, "left": [0, 0, 0, 40, 50], "method": "SNIP", "seed": range(5)})
    empty = Chart("layers", runs, "density", "left", "method", at="density", logarithmic=(True, True))
    assert len(empty.points) == 2
    assert not len(empty.medians)
    full = dataclasses.replace(empty, table=runs.assign(left=[0, 20, 30, 40, 50]))
    assert full.medians[["left", "runs"]].to_numpy().tolist() == [[30, 5]]


def test_an_engine_that_ends_is_an_error_and_not_the_end_of_the_process(monkeypatch):
    monkeypatch.setattr(vega_lite, "_BUNDLE", "import os; os.abort()")
    with pytest.raises(ArgumentError, match=r"^charts: vl-convert, .*, ended with status -6"):
        vega_lite.javascript.__wrapped__()


def test_of_another_folder_nothing_is_drawn_there(folder, tmp_path):
    other = made(tmp_path / "other")
    for drawn in other.glob("accuracy.*"):
        drawn.unlink()
    figures = tmp_path / "figures"
    figures.mkdir()
    reported = Reported.on(other, TOY, figures)
    assert [figure.name for figure in reported.figures] == ["accuracy"]
    assert not list(other.glob("accuracy.*"))

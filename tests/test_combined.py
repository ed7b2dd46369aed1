"""Runs of several folders combined: whose they are, what they say together, which do not go together."""

import dataclasses
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from test_command_line import in_process

from jaxarch.errors import ArgumentError
from jaxarch.experiments.catalogue import experiment
from jaxarch.experiments.field.tickets import TicketSettings
from jaxarch.experiments.harness import Results, combine_in, run_in
from jaxarch.experiments.tournament.report import ranking_of
from jaxarch.experiments.tournament.settings import TournamentSettings
from jaxarch.reproduction import read_findings
from jaxarch.results import read_table

TICKETS, TOURNAMENT = experiment("field.tickets"), experiment("tournament")
SMALL = TicketSettings(seeds=2, widths=(6,), steps=4, every=2, rounds=1, reinitialised=1)
GAMES = TournamentSettings(
    seeds=2, steps=4, methods=("random", "SNIP"), densities=(0.5, 0.1), controls=("reshuffled",)
)


def combined(folder, of, *parts):
    folder.mkdir()
    combine_in(folder, of, [Results(part) for part in parts])
    return folder


@pytest.fixture(scope="module")
def shares(tmp_path_factory):
    """Tickets of three keys, two seeds each."""
    place = tmp_path_factory.mktemp("shares")
    for key in range(3):
        (place / str(key)).mkdir()
        run_in(place / str(key), TICKETS, dataclasses.replace(SMALL, key=key))
    return [place / str(key) for key in range(3)]


@pytest.fixture
def altered(shares, tmp_path):
    """The second share with other entries in its manifest."""

    def made(**entries):
        place = tmp_path / "altered"
        shutil.copytree(shares[1], place)
        manifest = json.loads((place / "manifest.json").read_text())
        for name, value in entries.items():
            manifest[name] = manifest[name] | value if isinstance(value, dict) else value
        (place / "manifest.json").write_text(json.dumps(manifest))
        return place

    return made


def test_every_run_is_there_once_and_seeds_are_numbered_on(shares, tmp_path):
    table = read_table(combined(tmp_path / "both", TICKETS, *shares[:2]))
    first, second = (read_table(share) for share in shares[:2])
    assert len(table) == len(first) + len(second)
    assert sorted(set(table["seed"])) == [0, 1, 2, 3]
    for expected, seeds in ((first, {0, 1}), (second, {2, 3})):
        part = table[table["seed"].isin(seeds)]
        assert part["accuracy"].tolist() == expected["accuracy"].tolist()


def test_findings_are_of_all_runs_together(shares, tmp_path):
    place = combined(tmp_path / "both", TICKETS, *shares[:2])
    (found,) = (line for line in read_findings(place) if line.what == "accuracy of tickets, density 1")
    tables = [read_table(share) for share in shares[:2]]
    values = np.concatenate([rows.loc[rows["round"] == 0, "accuracy"] for rows in tables])
    assert (found.runs, found.median) == (4, pytest.approx(np.median(values)))


def test_the_manifest_says_whose_runs_they_were(shares, tmp_path):
    manifest = Results(combined(tmp_path / "both", TICKETS, *shares[:2])).manifest
    assert (manifest["settings"]["seeds"], manifest["settings"]["key"]) == (4, [0, 1])
    assert manifest["pictures"] == Results(shares[0]).manifest["pictures"]
    told = [(part["folder"], part["key"], part["seeds"], part["first_seed"]) for part in manifest["combined"]]
    assert told == [(str(shares[0]), 0, 2, 0), (str(shares[1]), 1, 2, 2)]


def test_combining_what_is_combined_is_combining_all(shares, tmp_path):
    before = combined(tmp_path / "before", TICKETS, *shares[1:])
    twice = combined(tmp_path / "twice", TICKETS, shares[0], before)
    once = combined(tmp_path / "once", TICKETS, *shares)
    assert (twice / "results.csv").read_text() == (once / "results.csv").read_text()
    assert (twice / "findings.csv").read_text() == (once / "findings.csv").read_text()
    assert Results(twice).manifest["combined"] == Results(once).manifest["combined"]
    assert Results(twice).settings == Results(once).settings


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"settings": {"key": 0}}, "key: .* both have key 0"),
        ({"settings": {"steps": 5}}, "differ in settings: steps is 4 in the one and 5 in the other"),
        ({"pictures": {"sha256": "0"}}, "differ in data: pictures"),
        ({"jaxarch": "0.0.1"}, "differ in release of jaxarch"),
        ({"experiment": "tournament"}, "are of different experiments: field.tickets and tournament"),
    ],
    ids=["key", "settings", "data", "release", "experiment"],
)
def test_folders_that_do_not_go_together_are_refused(shares, altered, tmp_path, entries, message):
    with pytest.raises(ArgumentError, match=message):
        combined(tmp_path / "both", TICKETS, shares[0], altered(**entries))


def test_how_runs_were_spread_may_differ(shares, altered, tmp_path):
    other = altered(settings={"devices": 1, "at_once": 1, "resume": "elsewhere"})
    assert len(read_table(combined(tmp_path / "both", TICKETS, shares[0], other)))


def test_one_folder_and_experiments_without_statistics_of_tables_are_refused(shares, tmp_path):
    with pytest.raises(ArgumentError, match=r"^folders: expected two or more"):
        combined(tmp_path / "one", TICKETS, shares[0])
    with pytest.raises(ArgumentError, match=r"^folders: runs of spectral.rank cannot .* tournament"):
        combined(tmp_path / "other", experiment("spectral.rank"), *shares[:2])


def test_the_command_prints_the_report_and_writes_the_page(shares, tmp_path):
    done = in_process(tmp_path, "combine", *map(str, shares), "--out", "all")
    assert done.returncode == 0, done.stderr
    assert "tickets" in done.stdout
    assert "written to all" in done.stdout
    assert {"results.csv", "comparisons.csv", "report.html"} <= {
        path.name for path in (tmp_path / "all").iterdir()
    }


def test_the_command_refuses_in_one_line_and_leaves_nothing(shares, altered, tmp_path):
    for parts in ((), (shares[0],), (shares[0], shares[0]), (shares[0], altered(settings={"unknown": 1}))):
        done = in_process(tmp_path, "combine", *map(str, parts), "--out", "all")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert not (tmp_path / "all").exists()


@pytest.mark.long
def test_a_tournament_is_ranked_anew_and_its_controls_are_of_all_seeds(tmp_path):
    parts = [tmp_path / "0", tmp_path / "1"]
    for key, part in enumerate(parts):
        part.mkdir()
        run_in(part, TOURNAMENT, dataclasses.replace(GAMES, key=key))
    place = combined(tmp_path / "both", TOURNAMENT, *parts)
    ranks = pd.read_csv(place / "ranks.csv").set_index("strategy")["rank"]
    expected = ranking_of(read_table(place)).table.set_index("strategy")["rank"]
    assert ranks.to_dict() == pytest.approx(expected.to_dict())
    assert sorted(set(read_table(place, "controls.csv")["seed"])) == [0, 1, 2, 3]
    assert {line.runs for line in read_findings(place) if "reshuffled" in line.what} == {4}


def test_settings_that_each_folder_chose_for_itself_are_not_mixed(shares, altered, tmp_path):
    place = altered(settings={"tune": 2})
    with pytest.raises(ArgumentError, match=r"^tune: "):
        combined(tmp_path / "both", TOURNAMENT, place, place)

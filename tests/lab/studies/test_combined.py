"""Runs of several folders combined: whose they are, what they say together, which do not go together."""

import dataclasses
import errno
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from test_tournament import OWN
from typed import in_process

from jaxarch import ArgumentError
from jaxarch.lab.harness import Results, combined, report_on, run_in, write
from jaxarch.lab.harness.catalogue import experiment
from jaxarch.lab.html_report.report import device
from jaxarch.lab.related_work.tickets import TicketSettings
from jaxarch.lab.reproduction import read_findings
from jaxarch.lab.results import read_table
from jaxarch.lab.tournament.report import ranking_of
from jaxarch.lab.tournament.settings import TournamentSettings
from jaxarch.lab.tournament.task import prepare

pytestmark = pytest.mark.long
TICKETS, TOURNAMENT = experiment("related_work.tickets"), experiment("tournament")
SMALL = TicketSettings(seeds=2, widths=(6,), steps=4, every=2, rounds=1, reinitialised=1)
GAMES = TournamentSettings(
    seeds=2, steps=4, methods=("random", "SNIP"), densities=(0.5, 0.1), controls=("reshuffled",)
)


def combine(folder, of, *parts):
    folder.mkdir()
    made = combined(of, [Results(part) for part in parts])
    write(folder, of, made.outcome, made.settings, **made.facts)
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
            manifest[name] = manifest.get(name, {}) | value if isinstance(value, dict) else value
        (place / "manifest.json").write_text(json.dumps(manifest))
        return place

    return made


def test_every_run_is_there_once_and_seeds_are_numbered_on(shares, tmp_path):
    table = read_table(combine(tmp_path / "both", TICKETS, *shares[:2]))
    first, second = (read_table(share) for share in shares[:2])
    assert len(table) == len(first) + len(second)
    assert sorted(set(table["seed"])) == [0, 1, 2, 3]
    for expected, seeds in ((first, {0, 1}), (second, {2, 3})):
        part = table[table["seed"].isin(seeds)]
        assert part["accuracy"].tolist() == expected["accuracy"].tolist()


def test_findings_are_of_all_runs_together(shares, tmp_path):
    place = combine(tmp_path / "both", TICKETS, *shares[:2])
    (found,) = (line for line in read_findings(place) if line.what == "accuracy of tickets, density 1")
    tables = [read_table(share) for share in shares[:2]]
    values = np.concatenate([rows.loc[rows["round"] == 0, "accuracy"] for rows in tables])
    assert (found.runs, found.median) == (4, pytest.approx(np.median(values)))


def test_the_manifest_has_those_of_the_runs_and_the_time_of_all(shares, tmp_path):
    manifest = Results(combine(tmp_path / "both", TICKETS, *shares[:2])).manifest
    parts = [Results(share).manifest for share in shares[:2]]
    assert (manifest["settings"]["seeds"], manifest["settings"]["key"]) == (4, [0, 1])
    for name in ("pictures", "devices", "versions"):
        assert manifest[name] == parts[0][name]
    assert manifest["wall_seconds"] == pytest.approx(sum(part["wall_seconds"] for part in parts))
    told = [(part["folder"], part["settings"]["key"], part["first_seed"]) for part in manifest["combined"]]
    assert told == [(str(shares[0]), 0, 0), (str(shares[1]), 1, 2)]
    assert [part["key"] for part in manifest["combined"]] == [part["key"] for part in parts]


def test_circumstances_in_which_runs_differ_are_told_of_each_alone(shares, altered, tmp_path):
    gpu = {"backend": "gpu", "kind": "NVIDIA H100", "count": 1}
    place = combine(tmp_path / "both", TICKETS, shares[0], altered(devices=gpu))
    manifest = Results(place).manifest
    assert manifest["devices"] is None
    assert [part["devices"] for part in manifest["combined"]] == [Results(shares[0]).manifest["devices"], gpu]
    assert device(manifest).endswith("; 1 x gpu, NVIDIA H100")


def test_what_happened_to_workers_is_reported_of_every_part(shares, altered, tmp_path):
    died = {"devices": {}, "made again": {"round 1": 1}, "warnings": ["a worker was slow"]}
    place = combine(tmp_path / "both", TICKETS, shares[0], altered(cluster=died))
    assert report_on(place, TICKETS).warnings[-2:] == (
        "round 1 was begun 2 times, since its worker died",
        "a worker was slow",
    )


def test_combining_what_is_combined_is_combining_all(shares, tmp_path):
    before = combine(tmp_path / "before", TICKETS, *shares[1:])
    twice = combine(tmp_path / "twice", TICKETS, shares[0], before)
    once = combine(tmp_path / "once", TICKETS, *shares)
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
        ({"jaxarch": "0.0.1"}, "is of jaxarch '0.0.1', and this is "),
        ({"experiment": "tournament"}, "are of different experiments: related_work.tickets and tournament"),
    ],
    ids=["key", "settings", "data", "release", "experiment"],
)
def test_folders_that_do_not_go_together_are_refused(shares, altered, tmp_path, entries, message):
    with pytest.raises(ArgumentError, match=message):
        combine(tmp_path / "both", TICKETS, shares[0], altered(**entries))


def test_how_runs_were_spread_may_differ_and_is_told_of_each(shares, altered, tmp_path):
    other = altered(settings={"devices": 1, "max_parallel_runs": 1, "resume": "elsewhere"})
    manifest = Results(combine(tmp_path / "both", TICKETS, other, shares[0])).manifest
    told = manifest["combined"][0]["settings"]
    for name, value in {"devices": 1, "max_parallel_runs": 1, "resume": "elsewhere"}.items():
        assert (told[name], manifest["settings"][name]) == (value, getattr(SMALL, name))


def test_other_methods_of_one_s_own_are_refused(shares, altered, tmp_path):
    own = altered(**{"settings": {"own": "/elsewhere/mine.py"}, "own file": "digest"})
    with pytest.raises(ArgumentError, match="differ in data: own file is None in the one"):
        combine(tmp_path / "other", TICKETS, shares[0], own)


def test_one_folder_and_experiments_without_statistics_of_tables_are_refused(shares, tmp_path):
    with pytest.raises(ArgumentError, match=r"^folders: expected two or more"):
        combine(tmp_path / "one", TICKETS, shares[0])
    with pytest.raises(ArgumentError, match=r"^folders: runs of spectral.rank cannot .* tournament"):
        combine(tmp_path / "other", experiment("spectral.rank"), *shares[:2])


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


def test_no_part_is_replaced_by_what_is_made_of_it(shares, tmp_path):
    copies = [shutil.copytree(share, tmp_path / "all" / share.name) for share in shares[:2]]
    for out in (tmp_path / "all", copies[0] / ".." / "0"):
        done = in_process(tmp_path, "combine", *map(str, copies), "--out", str(out), "--force")
        assert (done.returncode, done.stderr.split()[1]) == (2, "out:")
        assert all((copy / "results.csv").exists() for copy in copies)


def test_a_disk_that_is_full_is_no_altered_file(shares, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("jaxarch.lab.results.write_findings", full)
    done = in_process(tmp_path, "combine", *map(str, shares), "--out", "all")
    assert "could not be written (No space left on device)" in done.stderr


def test_a_tournament_is_ranked_anew_its_controls_are_of_all_seeds_and_its_own_methods_in_any_place(tmp_path):
    parts = [tmp_path / "0", tmp_path / "1"]
    for key, part in enumerate(parts):
        part.mkdir()
        own = part.with_suffix(".py")
        own.write_text(OWN)
        run_in(part, TOURNAMENT, dataclasses.replace(GAMES, key=key, own=str(own)))
    place = combine(tmp_path / "both", TOURNAMENT, *parts)
    assert Results(place).manifest["own file"] == Results(parts[1]).manifest["own file"]
    ranks = pd.read_csv(place / "ranks.csv").set_index("strategy")["rank"]
    expected = ranking_of(read_table(place)).table.set_index("strategy")["rank"]
    assert "even layers" in ranks
    assert ranks.to_dict() == pytest.approx(expected.to_dict())
    assert sorted(set(read_table(place, "controls.csv")["seed"])) == [0, 1, 2, 3]
    assert {line.runs for line in read_findings(place) if "reshuffled" in line.what} == {4}


def test_runs_of_all_keys_are_tested_on_the_same_rows():
    tasks = [prepare(dataclasses.replace(SMALL, key=key).complete()) for key in (0, 1)]
    assert np.array_equal(tasks[0].test, tasks[1].test)
    assert not np.array_equal(tasks[0].held_out, tasks[1].held_out)


def test_settings_that_each_folder_chose_for_itself_are_not_mixed(shares, altered, tmp_path):
    place = altered(settings={"tune": 2})
    with pytest.raises(ArgumentError, match=r"^tune: "):
        combine(tmp_path / "both", TOURNAMENT, place, place)

"""The command line as a user types it: real runs, real files, and one line for bad input."""

import dataclasses
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from typed import in_process

from jaxarch import plots
from jaxarch.lab import cli, html_report, results
from jaxarch.lab.harness import catalogue, listed, read_settings
from jaxarch.lab.harness.setting_help import setting_help

CACHE = tempfile.TemporaryDirectory()
CHOSEN = ("real", "bin", "real->bin", "bin->real cold")
QUICK = ["--quiet", "--seeds", "3", "--set", "steps=40", "--set", f"strategies={','.join(CHOSEN)}"]


def jaxarch(*arguments, folder):
    """Run the command line in a process of its own, with every device and cache of its own, as users do."""
    command = [sys.executable, "-m", "jaxarch", *arguments]
    environment = os.environ | {"XDG_CACHE_HOME": str(CACHE.name)}
    environment.pop("XLA_FLAGS")
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture
def here(tmp_path):
    """Run the command line in a folder of its own, in this process."""
    return partial(in_process, tmp_path)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ran")
    return in_process(folder, "run", *QUICK), folder / "results" / "0001-disentangling.strategies"


@pytest.mark.long
def test_a_run_prints_its_tables_and_names_its_folder(ran):
    done, _ = ran
    assert done.returncode == 0, done.stderr
    for text in ("real->bin", "bin->real cold", "AUC", "density", "written to results/0001-"):
        assert text in done.stdout


@pytest.mark.long
def test_a_run_opens_with_the_medians_of_what_it_compares_and_explains_names_below_the_table(ran):
    done, folder = ran
    first = " ".join(done.stdout.split()).partition("(median [quartiles]")[0]
    table = results.read_table(folder)
    medians = table.groupby(["strategy", "flipped"])["auc"].median()
    assert any(
        f"(bin) has a test AUC of {medians['bin', side]:.3f}" in first
        and f"(real) have {medians['real', side]:.3f}" in first
        for side in (False, True)
    )
    assert done.stdout.index("AUC of bin minus") > done.stdout.index("- real->bin: real, then") > 0


@pytest.mark.long
def test_a_run_writes_one_row_for_each_run_and_strategy(ran):
    table = pd.read_csv(ran[1] / results.RESULTS)
    assert set(results.COLUMNS) <= set(table.columns)
    assert len(table) == len(CHOSEN) * 3 * 2
    assert table["auc"].between(0, 1).all()
    assert (table["seconds"] > 0).all()
    prerequisites = table.groupby("strategy")["seconds"].first()
    assert prerequisites["real->bin"] > prerequisites["real"]


@pytest.mark.long
def test_the_manifest_has_the_splits_and_all_that_is_needed_to_repeat_it(ran):
    manifest = json.loads((ran[1] / results.MANIFEST).read_text())
    assert manifest["settings"]["steps"] == 40
    assert manifest["devices"]["count"] >= 1
    assert manifest["vmap_width"]["bin"] == 6
    assert len(manifest["splits"]) == 3
    train, test = (set(manifest["splits"][0][part]) for part in ("train", "test"))
    assert len(train) == 600
    assert len(test) == 300
    assert not train & test


@pytest.mark.long
def test_figures_masks_and_comparisons_are_written(ran):
    names = {path.name for path in ran[1].iterdir()}
    assert {"auc.png", "auc.svg", "convergence.png", "masks.npz", "comparisons.csv"} <= names
    with np.load(ran[1] / "masks.npz", allow_pickle=False) as masks:
        assert masks["bin/w1"].shape == (6, 64, 64)
        assert masks["bin/w1"].dtype == bool
    pairs = pd.read_csv(ran[1] / "comparisons.csv")
    assert len(pairs) == 2 * len(CHOSEN) * (len(CHOSEN) - 1) / 2


@pytest.mark.long
def test_a_report_prints_the_same_tables_and_redraws_the_same_figures(ran):
    done, folder = ran
    figure = (folder / "auc.png").read_bytes()
    (folder / "auc.png").unlink()
    again = in_process(folder.parent, "report", str(folder))
    assert again.returncode == 0, again.stderr
    assert again.stdout.strip() == done.stdout.split("written to")[0].strip()
    assert (folder / "auc.png").read_bytes() == figure


@pytest.mark.long
def test_a_run_writes_its_page_and_a_report_writes_the_same_again(ran):
    folder = ran[1]
    page = (folder / "report.html").read_text()
    assert "https://" not in re.sub(r"<script.*?</script>", "", page, flags=re.S)
    (folder / "report.html").unlink()
    in_process(folder.parent, "report", str(folder))
    assert not (folder / "report.html").exists()
    done = in_process(folder.parent, "report", str(folder), "--html")
    assert done.stdout.splitlines()[-1] == f"written to {folder / 'report.html'}"
    assert (folder / "report.html").read_text() == page


def full(*arguments):
    """What writing to a full disk ends in."""
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.long
def test_a_page_that_cannot_be_written_does_not_cost_the_results(tmp_path, here, monkeypatch):
    monkeypatch.setattr(html_report, "write", full)
    done = here("run", "disentangling.fig2", "--out", "out", "--quiet")
    assert done.returncode == 2
    assert done.stderr == (
        "jaxarch: report.html: could not be written (No space left on device); the results are in out, "
        "and jaxarch report DIR --html writes it\n"
    )
    assert len(results.read_table(tmp_path / "out"))
    assert "written to out" in done.stdout
    done = here("report", "out", "--html")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("jaxarch: html: cannot write out/report.html (No space left on device)")


@pytest.mark.long
def test_two_folders_are_compared_and_one_of_another_experiment_is_refused(tmp_path, here):
    for name, points in (("one", "101"), ("two", "201")):
        here("run", "disentangling.fig2", "--set", f"points={points}", "--out", name, "--quiet")
    done = here("report", "one", "--against", "two", "--html")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^points +101 +201$", done.stdout, flags=re.M)
    assert done.stdout.splitlines()[-1] == "written to one/against-two.html"
    assert (tmp_path / "one" / "against-two.html").is_file()
    manifest = json.loads((tmp_path / "two" / results.MANIFEST).read_text())
    (tmp_path / "two" / results.MANIFEST).write_text(json.dumps(manifest | {"experiment": "spectral.fig8"}))
    done = here("report", "one", "--against", "two")
    assert done.returncode == 2
    assert done.stderr == (
        "jaxarch: against: expected a folder of disentangling.fig2, as one is, got one of spectral.fig8\n"
    )


@pytest.mark.long
def test_a_second_run_compiles_nothing_and_gives_the_same_numbers(tmp_path):
    few = ["--quiet", "--seeds", "2", "--set", "steps=40", "--set", "strategies=real->bin"]
    compiled = []
    for out in ("first", "second"):
        done = jaxarch("run", *few, "--out", out, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        compiled.append({path.name for path in Path(CACHE.name).rglob("*-cache")})
    assert compiled[0]
    assert compiled[1] == compiled[0]
    first, second = (
        pd.read_csv(tmp_path / out / results.RESULTS).drop(columns="seconds") for out in ("first", "second")
    )
    pd.testing.assert_frame_equal(first, second)


@pytest.mark.long
def test_an_npz_file_of_the_user_s_can_be_run_on(tmp_path, here):
    random = np.random.default_rng(0)
    y = np.repeat([0, 1], 40)
    np.savez(tmp_path / "mine.npz", x=random.random((80, 5)) + y[:, None] * [0, 1, 0, 1, 0], y=y)
    done = here(
        "run",
        *QUICK,
        *("--dataset", "mine.npz", "--out", "out"),
        *("--set", "positive=1", "--set", "negative=0", "--set", "train_per_class=20"),
        *("--set", "test_per_class=10", "--set", "depth=1", "--set", "strategies=real,bin"),
    )
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "out" / results.RESULTS)
    assert set(table["strategy"]) == {"real", "bin"}
    assert table["dataset"].unique().tolist() == ["mine"]


@pytest.mark.long
def test_a_dry_run_says_what_would_be_trained_and_writes_nothing(tmp_path, here):
    done = here("run", "--dry-run")
    assert done.returncode == 0
    assert "10 seeds x 2 orientations = 20" in done.stdout
    assert "training: two_temperature: 600 steps of batch 100 x 20 runs" in done.stdout
    said = " ".join(done.stdout.split())
    assert "memory of the first training (real: dense, 20 runs at once), on each of" in said
    assert re.search(r"devices: arguments \S+ .iB, temporaries \S+ .iB, outputs \S+ .iB; \S+ GiB free", said)
    assert list(tmp_path.iterdir()) == []


def everything(folder):
    """What is in a folder, at any depth, files with their contents."""
    paths = {path: path.read_text() if path.is_file() else None for path in folder.rglob("*")}
    return {path.relative_to(folder).as_posix(): content for path, content in paths.items()}


REFUSED = {
    "a link": ["--out", "link"],
    "a folder that is there": ["--out", "begun"],
    "no result folder": ["--out", "begun", "--force"],
    "a file in the way": ["--out", "file/below"],
    "a root that is a file": ["--root", "file"],
    "a name that is too long": ["--out", "made/" + "x" * 300],
    "to resume a file": ["--set", "resume=file"],
    "to resume below a file": ["--set", "resume=file/below"],
    "to resume another run": ["--set", "resume=begun"],
    "to resume what is damaged": ["--set", "resume=damaged"],
}


@pytest.mark.long
@pytest.mark.parametrize("case", REFUSED)
def test_a_dry_run_refuses_what_the_run_would_and_leaves_nothing(tmp_path, here, case):
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "file").write_text("")
    for name, content in (("begun", '{"seeds": 3}'), ("damaged", "?")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "settings.json").write_text(content)
    before = everything(tmp_path)
    command = ["run", "theory.temperature_ratio", "--seeds", "4", *REFUSED[case]]
    dry = here(*command, "--dry-run")
    assert everything(tmp_path) == before
    assert (dry.returncode, dry.stdout) == (2, "")
    assert dry.stderr == here(*command).stderr


def test_a_dry_run_that_names_fresh_folders_makes_none(tmp_path, here):
    done = here("run", "--dry-run", "--root", "some/where", "--set", "resume=kept/here")
    assert done.returncode == 0, done.stderr
    assert everything(tmp_path) == {}


@pytest.mark.parametrize(
    "name",
    [
        "disentangling.strategies",
        "disentangling.fig4",
        pytest.param("pruning.transfer", marks=pytest.mark.long),
    ],
)
def test_a_dry_run_says_nothing_twice(name, here):
    lines = here("run", name, "--dry-run").stdout.splitlines()
    assert len(lines) > 5
    assert len(set(lines)) == len(lines)


def own_data(folder, classes):
    """A file mine.npz of so many classes, 40 examples each, that are told apart by one feature."""
    y = np.repeat(np.arange(classes), 40)
    x = np.random.default_rng(0).random((len(y), 5)) + y[:, None] * [0, 1, 0, 0, 0]
    np.savez(folder / "mine.npz", x=x, y=y + 3)


SMALL = ["--set", "train_per_class=20", "--set", "test_per_class=10"]


@pytest.mark.parametrize(
    ("experiment", "sizes", "named"),
    [
        ("disentangling.strategies", SMALL, "task 4 v 3"),
        ("disentangling.fig3", SMALL, "task 4 v 3"),
        pytest.param("theory.temperature_ratio", SMALL, "task 4 v 3", marks=pytest.mark.long),
        ("pruning.fig1", [], "80 examples of 3 and 4"),
    ],
)
def test_the_two_classes_of_a_file_are_taken_as_they_are(tmp_path, here, experiment, sizes, named):
    own_data(tmp_path, 2)
    done = here("run", experiment, "--dry-run", "--dataset", "mine.npz", *sizes)
    assert done.returncode == 0, done.stderr
    assert named in done.stdout


@pytest.mark.parametrize(
    ("experiment", "given", "options"),
    [
        ("disentangling.strategies", [], "--set positive=... --set negative=..."),
        ("disentangling.strategies", ["--set", "positive=3"], "--set negative=..."),
        ("pruning.fig1", [], "--set classes=..."),
    ],
)
def test_of_a_file_with_more_classes_the_options_are_named_that_group_them(
    tmp_path, here, experiment, given, options
):
    own_data(tmp_path, 3)
    done = here("run", experiment, "--dataset", "mine.npz", *given)
    assert done.returncode == 2
    assert done.stderr == (
        f"jaxarch: dataset: 'mine.npz' has the classes [3, 4, 5]; group them by {options}\n"
    )


def test_the_list_shows_experiments_strategies_data_and_settings():
    listed = CliRunner().invoke(cli.app, ["list"]).output
    for text in ("disentangling.strategies", "bin->real warm", "digits", "FILE.npz"):
        assert text in listed
    settings = CliRunner().invoke(cli.app, ["list", "disentangling.strategies"]).output
    for text in ("learning_rate", "0.3", "of gradient descent."):
        assert text in settings


BAD = {
    "experiment": (["run", "disentangling.strategy"], "did you mean 'disentangling.strategies'"),
    "command": (["rum"], "command: unknown 'rum'; did you mean 'run'"),
    "option": (["run", "--sed", "3"], "--se"),
    "setting": (["run", "--set", "step=3"], "step: no such setting; did you mean 'steps'"),
    "assignment": (["run", "--set", "steps"], "--set: expected NAME=VALUE, got 'steps'"),
    "integer": (["run", "--seeds", "ten"], "seeds: expected an integer, got 'ten'"),
    "count": (["run", "--seeds", "0"], "seeds: expected an integer of at least 1"),
    "number": (["run", "--set", "hard=warm"], "hard: expected a number, got 'warm'"),
    "temperature": (["run", "--set", "hard=-1"], "hard: expected a positive finite number"),
    "soft": (["run", "--set", "soft=80"], "soft: expected at most hard = 50"),
    "overlap": (["run", "--set", "positive=1,4"], "the groups must not overlap"),
    "empty": (["run", "--set", "positive="], "positive: expected at least one class"),
    "examples": (["run", "--set", "train_per_class=500"], "train_per_class: class 1 of digits has 182"),
    "strategy": (["run", "--set", "strategies=bim"], "strategies: unknown 'bim'; did you mean 'bin'"),
    "data": (["run", "--dataset", "digit"], "dataset: unknown 'digit'; did you mean 'digits'"),
    "file": (["run", "--dataset", "none.npz"], "dataset: no such file"),
    "root": (["run", "--root", "file"], "root: cannot write to"),
    "out": (["run", "--out", "there"], "out: there exists"),
    "family": (["run", "fig4"], "experiment: unknown 'fig4'; did you mean 'disentangling.fig4'?"),
    "long name": (["run", "x" * 10_000], "experiment: unknown 'xxx"),
    "long command": (["x" * 10_000], "command: unknown 'xxx"),
    "long option": (["run", "--" + "x" * 10_000], "No such option"),
    "long setting": (["run", "--set", "x" * 10_000 + "=1"], "xxx: no such setting"),
    "long value": (["run", "--set", "steps=" + "1" * 10_000], "steps: expected an integer, got '111"),
    "long assignment": (["run", "--set", "x" * 10_000], "--set: expected NAME=VALUE, got 'xxx"),
    "long folder": (["report", "x" * 10_000], "folder: "),
    "long out": (["run", "--out", "x" * 10_000], "File name too long"),
    "control": (["run", "a\nb\x1b[31m"], r"experiment: unknown 'a\nb\x1b[31m'"),
    "report": (["report", "there"], "folder: there is not a result folder"),
    "missing": (["report"], "Missing argument"),
    "list": (["list", "nothing"], "experiment: unknown 'nothing'"),
    "line": (["reproduction", "D.figure4"], "line: unknown 'D.figure4'; did you mean 'D.figure-4'"),
    "format": (["reproduction", "--format", "html"], "'html' is not one of 'text', 'markdown', 'json'"),
    "findings": (["reproduction", "--measured", "there"], "folder: there/findings.csv cannot be read"),
    "paste": (["reproduction", "D.figure-4", "--measured", "there"], "--measured: cannot be combined with"),
    "key": (["run", "--set", "key=99999999999999999999"], "key: expected an integer from 0 to"),
    "choice": (["run", "--set", "lottery_form=literal"], "lottery_form: expected rewind or printed"),
    "tasks": (
        ["run", "disentangling.fig4", "--set", "tasks=1,2"],
        "tasks: expected groups of classes such as",
    ),
    "temperatures": (
        ["run", "disentangling.fig3", "--set", "ratios=0.5"],
        "ratios: expected M_hard / M_soft",
    ),
    "rate": (["run", "--set", "learning_rate=nan"], "learning_rate: expected a positive finite number"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_status_two_and_writes_nothing(case, tmp_path, here):
    arguments, message = BAD[case]
    (tmp_path / "file").write_text("")
    (tmp_path / "there").mkdir()
    done = here(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr[:-1].isprintable()
    assert len(done.stderr) <= cli.LONGEST_MESSAGE + len("jaxarch: \n")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "there"]


@pytest.mark.long
def test_bad_data_in_a_file_is_one_line_in_a_real_process(tmp_path):
    np.savez(tmp_path / "bad.npz", x=np.array([[np.nan], [1.0]]), y=[0, 1])
    done = jaxarch("run", "--dataset", "bad.npz", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "jaxarch: x: 1 examples hold NaN or infinite values, or some beyond float32; remove or impute "
        "them first\n"
    )


@pytest.mark.long
@pytest.mark.filterwarnings("default::jaxarch.NonFiniteWarning")
def test_runs_that_diverge_are_reported_and_left_out_and_the_results_are_kept(tmp_path, here):
    done = here(
        "run",
        *QUICK,
        *("--set", "strategies=real,real->bin,random", "--set", "learning_rate=1e38"),
    )
    assert done.returncode == 0, done.stderr
    printed = " ".join(done.stdout.split())
    assert "real: 6 of 6 runs met NaN or infinity; they are left out" in printed
    assert "the loss is NaN or infinite at step" in printed
    table = pd.read_csv(tmp_path / "results" / "0001-disentangling.strategies" / results.RESULTS)
    assert table[table["strategy"] != "random"]["auc"].isna().all()
    assert (table[table["strategy"] == "random"]["auc"] == 0.5).all()


@pytest.mark.long
def test_a_folder_that_was_altered_is_refused_by_report_in_one_line(ran, tmp_path, here):
    shutil.copytree(ran[1], tmp_path / "out")
    (tmp_path / "out" / results.RESULTS).write_text("a,b\n1,2\n")
    again = here("report", "out")
    assert again.returncode == 2
    assert "folder: out cannot be reported on" in again.stderr
    assert again.stderr.count("\n") == 1


def figure_2(folder, here):
    """A result folder of the quickest experiment."""
    done = here("run", "disentangling.fig2", "--set", "points=50", "--out", "out", "--quiet")
    assert done.returncode == 0, done.stderr
    return folder / "out"


@pytest.mark.long
def test_a_report_replaces_links_by_figures_and_never_writes_through_them(tmp_path, here):
    out = figure_2(tmp_path, here)
    (tmp_path / "thesis").write_text("years of work")
    for name in ("binarisation.png", "binarisation.svg"):
        (out / name).unlink()
        (out / name).symlink_to(tmp_path / "thesis")
    assert here("report", "out").returncode == 0
    assert (tmp_path / "thesis").read_text() == "years of work"
    assert not (out / "binarisation.png").is_symlink()


FOREIGN = {
    "experiment": lambda manifest: manifest | {"experiment": ["a"]},
    "unknown": lambda manifest: manifest | {"experiment": "[red]a[/]\x1b[31m" * 1000},
    "settings": lambda manifest: manifest | {"settings": 3},
    "data": lambda manifest: manifest | {"data": None},
    "number": lambda manifest: manifest | {"settings": {"seeds": float("nan")}},
    "types": lambda manifest: manifest | {"settings": {"seeds": "[/]", "train_per_class": []}},
    "missing": lambda manifest: {"experiment": manifest["experiment"], "settings": {}},
    "notes": lambda manifest: manifest | {"notes": 5},
    "notes of a strategy": lambda manifest: manifest | {"notes": {"bin": 5}},
    "list of notes": lambda manifest: manifest | {"notes": ["a", "b"]},
    "costs": lambda manifest: manifest | {"costs": [1]},
}


@pytest.mark.long
@pytest.mark.parametrize("case", FOREIGN)
def test_a_manifest_that_is_odd_is_refused_by_report_in_one_line(ran, tmp_path, here, case):
    shutil.copytree(ran[1], tmp_path / "out")
    path = tmp_path / "out" / results.MANIFEST
    path.write_text(json.dumps(FOREIGN[case](json.loads(path.read_text()))))
    again = here("report", "out")
    assert again.returncode == 2
    assert again.stderr.count("\n") == 1
    assert again.stderr[:-1].isprintable()
    assert len(again.stderr) < 600
    assert "Error" not in again.stderr
    assert again.stdout == ""


def test_a_manifest_that_is_nested_without_end_is_refused_in_words(tmp_path, here):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / results.MANIFEST).write_text("[" * 100_000)
    again = here("report", "out")
    assert again.returncode == 2
    assert again.stderr == "jaxarch: folder: out/manifest.json cannot be read (nested too deeply)\n"


@pytest.mark.long
@pytest.mark.parametrize("number", ["1e99990", "-inf", "nonsense"])
def test_a_table_with_a_number_that_is_none_is_refused_by_report_in_one_line(tmp_path, here, number):
    out = figure_2(tmp_path, here)
    lines = (out / results.RESULTS).read_text().splitlines()
    lines[5] = ",".join([*lines[5].split(",")[:-1], number])
    (out / results.RESULTS).write_text("\n".join(lines))
    again = here("report", "out")
    assert again.returncode == 2
    assert again.stderr.startswith("jaxarch: folder: out")
    assert again.stderr.count("\n") == 1


@pytest.mark.long
def test_markup_in_what_a_folder_says_is_printed_as_it_is(ran, tmp_path, here):
    shutil.copytree(ran[1], tmp_path / "out")
    path = tmp_path / "out" / results.MANIFEST
    manifest = json.loads(path.read_text())
    manifest["notes"] = {"bin": ["[red]loud[/red] [/] :smile:"]}
    manifest["data"]["name"] = "[bold]digits[/]"
    path.write_text(json.dumps(manifest))
    again = here("report", "out")
    assert again.returncode == 0, again.stderr
    assert "! [red]loud[/red] [/] :smile:" in again.stdout
    assert "[bold]digits[/]" in again.stdout


def test_figures_that_cannot_be_written_cost_no_results(tmp_path, here, monkeypatch):
    monkeypatch.setattr(plots, "save", full)
    done = here("run", "disentangling.fig2", "--out", "out", "--quiet")
    assert done.returncode == 2
    assert done.stderr == (
        "jaxarch: figures: could not be written (No space left on device); the results are in out, and "
        "jaxarch report DIR draws them\n"
    )
    assert len(results.read_table(tmp_path / "out"))


def test_results_that_cannot_be_written_are_kept_as_far_as_they_are(tmp_path, here, monkeypatch):
    monkeypatch.setattr(results, "write_manifest", full)
    done = here("run", "disentangling.fig2", "--out", "out", "--quiet")
    assert done.returncode == 2
    assert "out-incomplete" in done.stderr
    assert done.stderr.count("\n") == 1
    assert len(results.read_table(tmp_path / "out-incomplete"))


@pytest.mark.long
def test_on_a_full_disk_all_results_go_to_a_temporary_folder(tmp_path, here, monkeypatch):
    write = results.write_manifest
    (tmp_path / "elsewhere").mkdir()

    def full_but_there(folder, manifest):
        (write if folder.parent.name == "elsewhere" else full)(folder, manifest)

    monkeypatch.setattr(results, "write_manifest", full_but_there)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    done = here("run", "disentangling.fig2", "--out", "out", "--quiet")
    assert done.returncode == 2
    (kept,) = (tmp_path / "elsewhere").iterdir()
    assert done.stderr == (
        "jaxarch: results: they could not be written where they belong (No space left on device); they are "
        f"in {kept}\n"
    )
    assert here("report", str(kept)).returncode == 0
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".unfinished-*"))


@pytest.mark.long
def test_a_folder_that_appears_while_the_run_goes_on_is_left_alone(tmp_path, here, monkeypatch):
    def meanwhile(*arguments, **facts):
        (tmp_path / "out").mkdir()
        return {}

    monkeypatch.setattr(results, "manifest", meanwhile)
    done = here("run", "disentangling.fig2", "--out", "out", "--quiet")
    assert done.returncode == 2
    assert done.stderr == (
        "jaxarch: out: another process made out during this run, so it is left alone; the results are in "
        "out-2\n"
    )
    assert not list((tmp_path / "out").iterdir())
    assert len(results.read_table(tmp_path / "out-2"))


@dataclasses.dataclass(frozen=True)
class Switch:
    on: bool = True


def test_a_setting_that_is_true_or_false_takes_nothing_else():
    assert read_settings(Switch, {"on": "False"}) == Switch(False)
    with pytest.raises(ValueError, match="on: expected true or false, got 'no'"):
        read_settings(Switch, {"on": "no"})


@dataclasses.dataclass(frozen=True)
class Named:
    names: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a, b", ("a", "b")),
        ('"a, b",c', ("a, b", "c")),
        ('c, "a, b"', ("c", "a, b")),
        ("a,,b,", ("a", "b")),
        ('a,\n\t"b, c"\n', ("a", "b, c")),
        ('a "b" c', ('a "b" c',)),
        ("", ()),
    ],
)
def test_a_name_with_a_comma_is_one_name_in_quotation_marks(text, names):
    assert read_settings(Named, {"names": text}) == Named(names)


@pytest.mark.parametrize("text", ['"a, b', 'a,"b', '"a"b,c'])
def test_quotation_marks_that_are_not_around_a_whole_name_are_refused(text):
    with pytest.raises(ValueError, match="names: quotation marks are around whole names"):
        read_settings(Named, {"names": text})


def test_defaults_are_listed_as_a_command_takes_them():
    for names in (("a, b", "c"), ("a",), ()):
        assert read_settings(Named, {"names": listed(names)}) == Named(names)


def test_help_is_short_and_complete():
    for command in ([], ["run"], ["report"], ["list"], ["data"], ["reproduction"]):
        done = CliRunner().invoke(cli.app, [*command, "--help"])
        assert done.exit_code == 0
        assert len(done.output.splitlines()) < 30


@pytest.mark.parametrize("name", catalogue.EXPERIMENTS)
def test_every_setting_has_a_line_of_help_where_it_is_declared(name):
    settings = catalogue.experiment(name).settings
    described = setting_help(settings)
    assert list(described) == [field.name for field in dataclasses.fields(settings)]
    assert all(text.endswith(".") for text in described.values())


HELP = """
import sys
from jaxarch.__main__ import main
sys.argv = ["jaxarch", *sys.argv[1:]]
try:
    main()
except SystemExit:
    costly = {"jax", "numpy", "rich", "flax", "pandas", "matplotlib", "altair", "jinja2"} & set(sys.modules)
    assert not costly, costly
"""


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
def test_help_imports_nothing_that_takes_time(arguments):
    done = subprocess.run([sys.executable, "-c", HELP, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""The command line as a user types it: real runs, real files, and one line for bad input."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from jaxarch import cli, results
from jaxarch.experiments.harness import read_settings
from jaxarch.search.disentangling import disentangling_strategies

CACHE = tempfile.TemporaryDirectory()
QUICK = ["--quiet", "--seeds", "3", "--set", "steps=40"]
QUICK += ["--set", "lottery_rounds=2", "--set", "agnostic_draws=2", "--set", "agnostic_weights=2"]
STRATEGIES = len(disentangling_strategies())


def jaxarch(*arguments, folder):
    """Run the command line in a process of its own, with every device and cache of its own, as users do."""
    command = [sys.executable, "-m", "jaxarch", *arguments]
    environment = os.environ | {"XDG_CACHE_HOME": str(CACHE.name)}
    environment.pop("XLA_FLAGS")
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """Run the command line in this process, which has its devices and its cache already."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(cli, "_prepare_jax", lambda: None)
        monkeypatch.setattr(sys, "argv", ["jaxarch", *arguments])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        captured = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, exit_.value.code, captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ran")
    return jaxarch("run", *QUICK, folder=folder), folder / "results" / "0001-disentangling.strategies"


def test_a_run_prints_its_tables_and_names_its_folder(ran):
    done, _ = ran
    assert done.returncode == 0, done.stderr
    for text in ("real->bin", "bin->real cold", "AUC", "density", "written to results/0001-"):
        assert text in done.stdout


def test_a_run_writes_one_row_for_each_run_and_strategy(ran):
    table = pd.read_csv(ran[1] / results.RESULTS)
    assert set(results.COLUMNS) <= set(table.columns)
    assert len(table) == STRATEGIES * 3 * 2
    assert table["auc"].between(0, 1).all()
    assert (table["seconds"] > 0).all()
    prerequisites = table.groupby("strategy")["seconds"].first()
    assert prerequisites["real->bin"] > prerequisites["real"]


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


def test_figures_masks_and_comparisons_are_written(ran):
    names = {path.name for path in ran[1].iterdir()}
    assert {"auc.png", "auc.svg", "convergence.png", "masks.npz", "comparisons.csv"} <= names
    with np.load(ran[1] / "masks.npz", allow_pickle=False) as masks:
        assert masks["bin/w1"].shape == (6, 64, 64)
        assert masks["bin/w1"].dtype == bool
    pairs = pd.read_csv(ran[1] / "comparisons.csv")
    assert len(pairs) == 2 * STRATEGIES * (STRATEGIES - 1) / 2


def test_a_report_prints_the_same_tables_and_redraws_the_same_figures(ran):
    done, folder = ran
    figure = (folder / "auc.png").read_bytes()
    (folder / "auc.png").unlink()
    again = jaxarch("report", str(folder), folder=folder.parent)
    assert again.returncode == 0, again.stderr
    assert again.stdout.strip() == done.stdout.split("written to")[0].strip()
    assert (folder / "auc.png").read_bytes() == figure


def test_a_second_run_compiles_nothing_and_gives_the_same_numbers(ran):
    _, folder = ran
    compiled = {path.name for path in Path(CACHE.name).rglob("*-cache")}
    again = jaxarch("run", *QUICK, folder=folder.parent.parent)
    assert again.returncode == 0, again.stderr
    assert compiled
    assert {path.name for path in Path(CACHE.name).rglob("*-cache")} == compiled
    first, second = (
        pd.read_csv(path / results.RESULTS).drop(columns="seconds")
        for path in (folder, folder.with_name("0002-disentangling.strategies"))
    )
    pd.testing.assert_frame_equal(first, second)


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


def test_a_dry_run_says_what_would_be_trained_and_writes_nothing(tmp_path, here):
    done = here("run", "--dry-run")
    assert done.returncode == 0
    assert "10 seeds x 2 orientations = 20" in done.stdout
    assert "training: two_temperature: 600 steps of batch 100 x 20 runs" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_list_shows_experiments_strategies_data_and_settings():
    listed = CliRunner().invoke(cli.app, ["list"]).output
    for text in ("disentangling.strategies", "bin->real warm", "digits", "FILE.npz"):
        assert text in listed
    settings = CliRunner().invoke(cli.app, ["list", "disentangling.strategies"]).output
    assert "learning_rate" in settings


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
    "report": (["report", "there"], "folder: there is no result folder"),
    "missing": (["report"], "Missing argument"),
    "list": (["list", "nothing"], "experiment: unknown 'nothing'"),
    "line": (["ledger", "D.figure4"], "line: unknown 'D.figure4'; did you mean 'D.figure-4'"),
    "format": (["ledger", "--format", "html"], "'html' is not one of 'text', 'markdown', 'json'"),
    "findings": (["ledger", "--measured", "there"], "folder: there/findings.csv cannot be read"),
    "paste": (["ledger", "D.figure-4", "--measured", "there"], "--measured: expected no line"),
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
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "there"]


def test_bad_data_in_a_file_is_one_line_in_a_real_process(tmp_path):
    np.savez(tmp_path / "bad.npz", x=np.array([[np.nan], [1.0]]), y=[0, 1])
    done = jaxarch("run", "--dataset", "bad.npz", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "jaxarch: x: 1 examples hold NaN or infinite values; remove or impute them first\n"


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


def test_a_folder_that_was_altered_is_refused_by_report_in_one_line(ran, tmp_path, here):
    shutil.copytree(ran[1], tmp_path / "out")
    (tmp_path / "out" / results.RESULTS).write_text("a,b\n1,2\n")
    again = here("report", "out")
    assert again.returncode == 2
    assert "folder: out cannot be reported on" in again.stderr
    assert again.stderr.count("\n") == 1


@dataclasses.dataclass(frozen=True)
class Switch:
    on: bool = True


def test_a_setting_that_is_true_or_false_takes_nothing_else():
    assert read_settings(Switch, {"on": "False"}) == Switch(False)
    with pytest.raises(ValueError, match="on: expected true or false, got 'no'"):
        read_settings(Switch, {"on": "no"})


def test_help_is_short_and_complete():
    for command in ([], ["run"], ["report"], ["list"], ["data"], ["ledger"]):
        done = CliRunner().invoke(cli.app, [*command, "--help"])
        assert done.exit_code == 0
        assert len(done.output.splitlines()) < 30

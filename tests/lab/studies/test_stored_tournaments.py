"""Stored tournaments side by side: what is read, what is compared, what is refused."""

import dataclasses
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from places import ROOT

from jaxarch import ArgumentError
from jaxarch.lab.harness import Results, plan_of, report_on, run_in
from jaxarch.lab.harness.catalogue import experiment
from jaxarch.lab.tournament.across_tasks import STORED, AcrossTasksSettings, mean_regrets, stored
from jaxarch.metrics import across_tasks

ACROSS = experiment("tournament.across_tasks")


def folder(place, dataset, accuracy, **settings):
    """A folder as `resume` keeps it: the accuracies of each method, of shape (seeds, densities)."""
    place.mkdir()
    seeds, densities = np.shape(next(iter(accuracy.values())))
    said = {"experiment": "tournament", "dataset": dataset, "model": "mlp", "budget": "equal"}
    said |= {"seeds": seeds, "densities": [0.5, 0.1][:densities]} | settings
    (place / "settings.json").write_text(json.dumps(said))
    for name, of in accuracy.items():
        np.savez(place / f"{name}.npz", accuracy=np.asarray(of, float).T.ravel())
    return str(place)


@pytest.fixture
def two(tmp_path):
    """Two tasks; STR took part in the first alone."""
    high, low = [[0.9, 0.8], [0.9, 0.7], [0.8, 0.6]], [[0.8, 0.5], [0.8, 0.6], [0.7, 0.1]]
    first = folder(tmp_path / "first", "digits", {"SNIP": high, "random-ERK": low, "STR": high})
    own = "own-mine-0123abcd"
    second = folder(tmp_path / "second", "mnist", {"SNIP": low, "random-ERK": high, own: high})
    return first, second


def test_accuracies_are_read_seed_by_seed_and_density_by_density(two):
    found = stored(two[0])
    assert found.task == "digits, mlp"
    np.testing.assert_allclose(found.accuracy["random ERK"], [[0.8, 0.5], [0.8, 0.6], [0.7, 0.1]])


def test_regrets_compare_methods_that_took_part_in_every_task(two, tmp_path):
    run_in(tmp_path, ACROSS, AcrossTasksSettings(two))
    regrets = pd.read_csv(tmp_path / "regrets.csv")
    # SNIP loses .1 and .2 on the second task, random ERK as much on the first.
    assert mean_regrets(regrets).round(6).to_dict() == {"SNIP": 0.075, "random ERK": 0.075}
    assert set(regrets["strategy"]) == {"SNIP", "random ERK", "STR", "mine (0123abcd)"}


def test_differences_are_paired_by_seed_and_averaged_over_densities(two, tmp_path):
    run_in(tmp_path, ACROSS, AcrossTasksSettings(two, reference="random ERK"))
    (row,) = pd.read_csv(tmp_path / "differences.csv").to_dict("records")
    first = np.array([0.2, 0.1, 0.3])  # the means over densities of (.1, .3), (.1, .1) and (.1, .5)
    expected = across_tasks({"digits": first, "mnist": -first})
    assert row.pop("method") == "SNIP"
    assert row == pytest.approx(dataclasses.asdict(expected))


def test_the_report_maps_all_methods_and_says_who_is_where(two, tmp_path):
    run_in(tmp_path, ACROSS, AcrossTasksSettings(two))
    made = report_on(tmp_path, ACROSS)
    said = made.conclusion
    assert "Over 2 tasks" in said
    assert "of the 2 methods that took part in each" in said
    assert (tmp_path / "regrets.png").is_file()
    assert "mine (0123abcd)" in Results(tmp_path).read("regrets.csv")["strategy"].tolist()


def test_the_stored_results_of_a_checkout_are_read_by_default():
    assert AcrossTasksSettings().folders == STORED
    lines = plan_of(ACROSS, AcrossTasksSettings(tuple(str(ROOT / place) for place in STORED)))
    assert len(lines) == len(STORED)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda first, second: (first,), "folders: expected two folders of `resume` or more"),
        (lambda first, second: (first, first), "is named twice"),
        (lambda first, second: (first, first + "-missing"), "folders: .*missing"),
        (
            lambda first, second: (first, shutil.copytree(first, first + "-copy")),
            "has the task of another folder",
        ),
    ],
)
def test_folders_that_are_no_two_tasks_are_refused(change, message, two):
    with pytest.raises(ArgumentError, match=message):
        plan_of(ACROSS, AcrossTasksSettings(tuple(map(str, change(*two)))))


def test_a_folder_of_another_experiment_or_without_methods_or_with_other_sizes_is_refused(two, tmp_path):
    low = [[0.8, 0.5], [0.8, 0.6]]
    other = folder(tmp_path / "a", "text", {"SNIP": low, "STR": low}, experiment="pruning.fig1")
    alone = folder(tmp_path / "b", "text", {"SNIP": low})
    sizes = folder(tmp_path / "c", "text", {"SNIP": low, "STR": low}, seeds=5)
    for place, message in (
        (other, "is of another experiment"),
        (alone, "has 1 methods; expected two or more"),
        (sizes, "no accuracies of 2 densities and 5 seeds"),
    ):
        with pytest.raises(ArgumentError, match=message):
            plan_of(ACROSS, AcrossTasksSettings((two[0], place)))


def test_a_reference_of_a_single_task_is_refused(two):
    with pytest.raises(ArgumentError, match="reference: 'STR' took part in fewer than two tasks"):
        plan_of(ACROSS, AcrossTasksSettings(two, reference="STR"))

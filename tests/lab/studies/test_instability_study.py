"""The study of two trainings that part at a step."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from pages import charted

from jaxarch import ArgumentError
from jaxarch.lab.analysis import instability
from jaxarch.lab.analysis.instability import InstabilitySettings, _comparisons, connected_from
from jaxarch.lab.harness import plan_of, report_on, run_in

SMALL = InstabilitySettings(
    seeds=2, widths=(6,), steps=30, densities=(0.5,), part_at=(0, 29), fraction=0.5, points=3
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("instability")
    run_in(place, instability.EXPERIMENT, SMALL)
    return place


def rows_of(strategy, density, barriers):
    """Return rows of one seed: a barrier for each step."""
    return [
        {"strategy": strategy, "density": density, "seed": 0, "part_at": step, "error_barrier": height,
         "loss_barrier": 2 * height}
        for step, height in barriers.items()
    ]  # fmt: skip


BY_HAND = pd.DataFrame(
    [
        *rows_of("dense", 1.0, {0: 0.01, 10: 0.03, 20: 0.02, 30: 0.0}),
        *rows_of("lottery tickets", 0.1, {0: 0.04, 10: 0.0, 20: 0.01, 30: np.nan}),
        *rows_of("random", 0.1, {0: 0.01, 10: 0.0, 20: 0.01, 30: 0.02}),
    ]
)


def test_networks_are_connected_from_the_step_after_which_no_barrier_is_larger():
    assert connected_from(BY_HAND, 0.02) == {
        ("dense", 1.0): 20,
        ("lottery tickets", 0.1): np.inf,
        ("random", 0.1): 0,
    }


def test_tickets_are_compared_with_networks_that_part_at_the_same_step():
    compared = _comparisons(BY_HAND).set_index(["part_at", "against", "barrier"])["median"]
    assert compared[0, "dense", "error_barrier"] == pytest.approx(0.03)
    assert compared[0, "random", "loss_barrier"] == pytest.approx(0.06)
    assert compared[10, "dense", "error_barrier"] == pytest.approx(-0.03)


@pytest.mark.long
def test_every_mask_is_trained_twice_from_each_step(folder):
    table = pd.read_csv(folder / "results.csv")
    assert len(table) == 2 * 2 * 3  # steps, seeds, masks
    assert table["accuracy"].between(0, 1).all()
    assert (table[["error_barrier", "loss_barrier"]] >= 0).all(axis=None)


@pytest.mark.long
def test_two_trainings_of_one_step_are_closer_than_whole_ones(folder):
    barriers = pd.read_csv(folder / "results.csv").groupby("part_at")["loss_barrier"]
    assert barriers.max()[29] < 1e-3 < barriers.max()[0]


@pytest.mark.long
def test_the_report_draws_both_barriers(folder):
    report_on(folder, instability.EXPERIMENT)
    assert {"error_barrier.png", "loss_barrier.png"} <= {file.name for file in folder.iterdir()}
    assert charted(folder, instability.EXPERIMENT)


def test_the_plan_names_the_steps():
    told = "\n".join(plan_of(instability.EXPERIMENT, SMALL))
    assert "part at steps 0, 29 of 30" in told


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"part_at": (0, 30)}, "part_at: expected steps below 30, got 30"),
        ({"part_at": (5, 5)}, "part_at: "),
        ({"part_at": (-1,)}, "part_at: expected an integer of at least 0, got -1"),
        ({"densities": (2.0,)}, "densities: "),
        ({"fraction": 0.0}, "fraction: expected"),
        ({"points": 2}, "points: expected an integer of at least 3, got 2"),
        ({"stable": 0.0}, "stable: expected"),
        ({"seeds": 1}, "seeds: expected at least 2"),
        ({"model": "resnet20", "widths": ()}, "model: unknown 'resnet20'"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_by_name(changes, message):
    with pytest.raises(ArgumentError, match=message):
        plan_of(instability.EXPERIMENT, dataclasses.replace(SMALL, **changes))

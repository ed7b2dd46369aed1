"""Width and depth of teachers that students find: which run is taken, and the experiment, small."""

import jax
import numpy as np
import pandas as pd
import pytest
from pages import charted

import jaxarch
from jaxarch.lab.harness import Results, report_on, run_in
from jaxarch.lab.reproduction import read_findings
from jaxarch.lab.results import read_table
from jaxarch.lab.spectral import recovery
from jaxarch.lab.spectral.neurons_left import smallest
from jaxarch.lab.spectral.rivals import RIVALS

SMALL = {
    "seeds": 2,
    "depths": (1, 2),
    "neurons": (2,),
    "hidden": (6, 6),
    "strengths": (1e-4, 1e-1),
    "enough": 0.5,
    "epochs": 10,
    "examples": 400,
    "held_out": 60,
    "batch_size": 20,
    "learning_rate": 1e-2,
}


# Each rival compiles anew for each width: one rival, the cheapest, stands for all where there are two widths.
WIDTHS = {**SMALL, "neurons": (2, 3), "rivals": ("weights, no skips",)}


def reported(folder, settings):
    run_in(folder, recovery.EXPERIMENT, recovery.Settings(**settings))
    report_on(folder, recovery.EXPERIMENT)
    assert charted(folder, recovery.EXPERIMENT)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return reported(tmp_path_factory.mktemp("recovery"), SMALL)


def runs(neurons, quality):
    return pd.DataFrame({"neurons": neurons, "r2": quality})


def test_the_run_with_the_fewest_neurons_of_those_that_are_good_enough_is_taken():
    table = runs([5, 3, 1], [0.99, 0.95, 0.5])
    assert smallest(table, table["r2"] > 0.9, "r2")["neurons"] == 3


def test_of_equally_few_neurons_the_better_run_is_taken():
    table = runs([3, 3, 3], [0.95, 0.99, 0.97])
    assert smallest(table, table["r2"] > 0.9, "r2")["r2"] == 0.99


def test_where_no_run_is_good_enough_none_is_taken():
    table = runs([3, 3], [0.5, np.nan])
    assert smallest(table, table["r2"] > 0.9, "r2") is None


def test_rows_to_judge_on_choose_and_rows_to_test_on_do_not():
    table = pd.DataFrame(
        {
            "width": 3,
            "depth": 1,
            "rival": ["a"] * 3 + ["b"] * 2,
            "seed": 0,
            "strength": [0.1, 0.2, 0.3, 0.1, 0.2],
            "neurons": [9.0, 5.0, 2.0, np.nan, 4.0],
            "layers": [2, 2, 1, np.nan, 1],
            "validation_r2": [0.99, 0.95, 0.8, np.nan, 0.7],
            "test_r2": [0.5, 0.6, 0.99, np.nan, 0.99],
        }
    )
    a, b = recovery.chosen_of(table, 0.9).to_dict("records")
    assert (a["strength"], a["neurons"], a["layers"], a["test_r2"]) == (0.2, 5.0, 2, 0.6)
    assert np.isnan([b["strength"], b["neurons"], b["layers"], b["test_r2"]]).all()


@pytest.mark.long
def test_every_rival_may_have_biases():
    for name in recovery.NAMES:
        model = recovery.Settings().rival(name).network((3, 4, 2), bias=True)
        params, state = model.init(jax.random.key(0))
        outputs, _ = model.apply(params, state, np.zeros((5, 3), np.float32), None)
        assert outputs.shape == (5, 2), name


def test_layers_are_taken_out_of_the_same_network_that_is_gated():
    settings = recovery.Settings()
    taken_out, gated = settings.rival(recovery.LAYERS_OUT), RIVALS["gated spectral"]
    assert taken_out.network is gated.network
    assert len(taken_out.strategy(1e-4, 0.05).stages) > len(gated.strategy(1e-4, 0.05).stages)


@pytest.mark.long
def test_every_teacher_is_learned_by_every_rival_at_every_strength(folder):
    check_every_teacher(read_table(folder), recovery.NAMES, {2})


@pytest.mark.long
def test_teachers_of_every_width_are_learned(tmp_path):
    table = read_table(reported(tmp_path, WIDTHS))
    check_every_teacher(table, WIDTHS["rivals"], {2, 3})
    found = read_findings(tmp_path)
    assert len({line.what for line in found}) == len(found) >= 2 * 2


def check_every_teacher(table, rivals, widths):
    by = ["width", "depth", "rival", "strength"]
    assert len(table) == 2 * 2 * 2 * len(widths) * len(rivals)
    assert (table.groupby(by).size() == 2).all()
    assert [set(table[column]) for column in by] == [widths, {1, 2}, set(rivals), {1e-4, 1e-1}]
    assert table["neurons"].between(0, 12).all()
    assert table["layers"].between(0, 2).all()
    assert ((table["neurons"] == 0) == (table["layers"] == 0)).all()


@pytest.mark.long
def test_what_is_chosen_is_good_enough_on_the_rows_to_judge_on_and_the_smallest(folder):
    table, chosen = read_table(folder), read_table(folder, recovery.CHOSEN)
    by = ["width", "depth", "rival", "seed"]
    fewest = table[table["validation_r2"] >= 0.5].groupby(by)["neurons"].min()
    found = chosen.set_index(by)["neurons"].dropna()
    assert len(found)
    assert found.sort_index().equals(fewest.sort_index())


@pytest.mark.long
def test_a_stronger_penalty_leaves_fewer_neurons(folder):
    table = read_table(folder)
    left = table[table["rival"] == "gated spectral"].groupby("strength")["neurons"].median()
    assert left[1e-1] < left[1e-4]


@pytest.mark.long
def test_the_conclusion_compares_every_rival_with_the_teachers(folder):
    words = " ".join(recovery.conclusion(Results(folder)))
    for rival, runs in read_table(folder, recovery.CHOSEN).groupby("rival"):
        times = (runs["neurons"] / (runs["width"] * runs["depth"])).dropna()
        found = (runs["layers"] == runs["depth"]).sum()
        assert f"for {rival} ({len(times)} of {len(runs)} runs)" in words
        assert times.empty or f"{times.median():.2f} [" in words
        assert f"{found} of {len(runs)} for {rival}" in words


@pytest.mark.long
def test_findings_are_ready_for_the_record(folder):
    found = read_findings(folder)
    assert len({line.what for line in found}) == len(found) >= 2 * len(recovery.NAMES)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depths": (4,)}, "hidden: expected at least 4 layers, as the deepest teacher has, got 3"),
        (
            {"neurons": (70,)},
            "hidden: expected at least 70 neurons a layer, as the widest teacher has, got 60",
        ),
        ({"rivals": ("lasso",)}, "rivals: unknown 'lasso'"),
        ({"rivals": ("spectral", "spectral")}, "rivals: 'spectral' is named twice"),
        ({"strengths": (-1.0,)}, "strengths: expected"),
        ({"neurons": ()}, "neurons: expected at least one"),
        ({"neurons": (5, 5)}, "neurons: 5 is named twice"),
        ({"enough": 1.5}, "enough: expected numbers between 0 and 1, got 1.5"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        recovery.Settings(**settings).check()

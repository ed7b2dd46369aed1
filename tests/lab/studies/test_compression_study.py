"""The study of errors that are certified by the few examples that a network was trained on."""

import dataclasses
import math

import numpy as np
import pytest
from pages import charted

from jaxarch import ArgumentError
from jaxarch.lab.harness import plan_of, report_on, run_in
from jaxarch.lab.results import read_table
from jaxarch.lab.theory import compression
from jaxarch.lab.theory.compression import AFTER, HELD_OUT, PICKED, ROUNDS, Settings, prepare
from jaxarch.theory.generalization import binomial_upper, compression_bound

SMALL = Settings(
    seeds=2, widths=(8,), rounds=4, per_round=3, per_round_after=1, steps=40, steps_after=20, densities=(0.5,)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("compression")
    run_in(place, compression.EXPERIMENT, SMALL)
    return place


@pytest.mark.long
def test_a_bound_is_of_the_round_with_the_fewest_picked_and_wrong(folder):
    table, rounds = read_table(folder), read_table(folder, ROUNDS)
    for name, examples in ((PICKED, 1348), (AFTER, 674)):
        for _, row in table[table["strategy"] == name].iterrows():
            path = rounds[(rounds["strategy"] == name) & (rounds["seed"] == row["seed"])]
            assert row["trained_on"] + row["errors"] == (path["trained_on"] + path["errors"]).min()
            assert row["examples"] + row["trained_on"] == examples
            counts = int(row["errors"]), examples, int(row["trained_on"])
            assert row["bound"] == compression_bound(*counts, 0.05, choices=5 * 100)


@pytest.mark.long
def test_held_out_examples_bound_by_their_errors_alone(folder):
    table = read_table(folder)
    held = table[table["strategy"] == HELD_OUT]
    assert sorted(held["share"].unique()) == [0.5, 0.8]
    for _, row in held.iterrows():
        assert row["trained_on"] == round(row["share"] * 1348) == 1348 - row["examples"]
        errors, examples = int(row["errors"]), int(row["examples"])
        assert row["bound"] == binomial_upper(errors, examples, 0.05, length=math.log(100))


@pytest.mark.long
def test_the_report_has_a_figure_and_a_chart(folder):
    report_on(folder, compression.EXPERIMENT)
    assert (folder / "rounds.png").exists()
    assert charted(folder, compression.EXPERIMENT)


@pytest.mark.long
def test_errors_are_measured_on_examples_that_chose_nothing():
    problem = prepare(SMALL.complete()).problem
    train, test = np.asarray(problem.training_rows()), np.asarray(problem.validation)
    assert not np.intersect1d(train, test).size
    assert len(train) + len(test) == 1797


def test_the_plan_counts_examples_and_trainings():
    lines = "\n".join(plan_of(compression.EXPERIMENT, SMALL))
    assert "1,348 examples" in lines
    assert "4 rounds that pick 3 examples" in lines


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shares": (1.0,)}, "shares"),
        ({"densities": (1.5,)}, "densities"),
        ({"densities": ()}, "densities"),
        ({"rounds": 0}, "rounds"),
        ({"rate_after": -1.0}, "rate_after"),
    ],
)
def test_bad_settings_are_refused(change, words):
    with pytest.raises(ArgumentError, match=words):
        dataclasses.replace(SMALL, **change).complete().check()

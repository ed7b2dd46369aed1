"""The study of the smallest random subspace in which masks learn."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from pages import charted

from jaxarch import ArgumentError
from jaxarch.lab.analysis import intrinsic_dimension
from jaxarch.lab.analysis.intrinsic_dimension import IntrinsicDimensionSettings, _comparisons, _runs
from jaxarch.lab.harness import plan_of, report_on, run_in

SMALL = IntrinsicDimensionSettings(
    methods=("random", "SNIP"), seeds=2, widths=(5,), steps=40, densities=(0.5,), dimensions=(5, 1000)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("intrinsic_dimension")
    run_in(place, intrinsic_dimension.EXPERIMENT, SMALL)
    return place


def scores_of(strategy, density, seed, accuracy, scores):
    about = {"strategy": strategy, "family": "any", "density": density, "seed": seed, "kept": 100}
    return [
        {**about, "accuracy": accuracy, "dimension": dimension, "score": score}
        for dimension, score in zip((10, 20, 40), scores, strict=True)
    ]


BY_HAND = pd.DataFrame(
    [
        *scores_of("dense", 1.0, 0, 1.0, (0.5, 0.91, 0.95)),
        *scores_of("random", 0.5, 0, 0.8, (0.6, 0.75, 0.8)),
        *scores_of("SNIP", 0.5, 0, 0.9, (0.2, 0.85, 0.92)),
    ]
)


def test_dimensions_are_interpolated_in_their_logarithm_where_a_share_of_an_accuracy_is_reached():
    runs = _runs(BY_HAND, 0.9).set_index("strategy")
    between = 10 * 2 ** (0.40 / 0.41)  # from .5 at 10 to .91 at 20, where .9 is reached
    assert runs["of_dense"]["dense"] == runs["of_own"]["dense"] == pytest.approx(between)
    assert runs["of_dense"]["SNIP"] == pytest.approx(20 * 2 ** (0.05 / 0.07))
    assert np.isnan(runs["of_dense"]["random"])
    assert runs["of_own"]["random"] == pytest.approx(10 * 2 ** (0.12 / 0.15))


def test_a_mask_that_reaches_no_target_counts_as_twice_its_parameters():
    runs = _runs(BY_HAND, 0.9)
    compared = _comparisons(runs).set_index(["strategy", "against", "target"])["median"]
    dense, _, snip = runs["of_dense"]
    assert compared["random", "dense", "of_dense"] == pytest.approx(np.log2(200 / dense))
    assert compared["SNIP", "random", "of_dense"] == pytest.approx(np.log2(snip / 200))


@pytest.mark.long
def test_every_mask_is_trained_in_each_dimension_that_it_has(folder):
    scores = pd.read_csv(folder / "scores.csv")
    tried = scores.groupby(["strategy", "density"], sort=False)["dimension"].unique()
    assert {name: of.tolist() for name, of in tried.items()} == {
        ("dense", 1.0): [5, 385],
        ("random", 0.5): [5, 200],
        ("SNIP", 0.5): [5, 200],
    }
    assert scores["score"].between(0, 1).all()
    table = pd.read_csv(folder / "results.csv")
    assert table["kept"].tolist() == [385, 385, 200, 200, 200, 200]


@pytest.mark.long
def test_the_report_draws_accuracies_and_dimensions(folder):
    report_on(folder, intrinsic_dimension.EXPERIMENT)
    assert {"accuracy.png", "dimensions.png"} <= {file.name for file in folder.iterdir()}
    assert charted(folder, intrinsic_dimension.EXPERIMENT)


def test_the_plan_tells_the_dimensions():
    told = "\n".join(plan_of(intrinsic_dimension.EXPERIMENT, SMALL))
    assert "random subspaces of 5, 1000 dimensions" in told


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ("SNAP",)}, "methods: unknown 'SNAP'; did you mean 'SNIP'"),
        ({"seeds": 1}, "seeds: expected at least 2, for pairs of runs, got 1"),
        ({"dimensions": (5, 5)}, "dimensions: "),
        ({"dimensions": (0, 5)}, "dimensions: expected"),
        ({"share": 1.5}, "share: expected"),
        ({"subspace_rate": 0.0}, "subspace_rate: expected"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_by_name(changes, message):
    with pytest.raises(ArgumentError, match=message):
        plan_of(intrinsic_dimension.EXPERIMENT, dataclasses.replace(SMALL, **changes))

"""Radii of pictures, proven and attacked, and the study of them."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from pages import charted

from jaxarch import ArgumentError
from jaxarch.lab.analysis import robustness
from jaxarch.lab.analysis.radii import radii
from jaxarch.lab.analysis.robustness import RobustnessSettings, Study
from jaxarch.lab.harness import plan_of, report_on, run_in

SMALL = RobustnessSettings(
    methods=("SNIP",), seeds=2, widths=(5,), steps=100, densities=(0.8, 0.5), examples=4, rounds=6, attacks=3
)
bounds = partial(radii, radius=jnp.float32(0.1), rounds=14, attacks=5)


def linear(params, x):
    return jnp.stack([x @ params["first"], x @ params["second"]])


@pytest.fixture(scope="module")
def of_a_plane():
    """Radii of three examples under a linear network, and what they are by hand."""
    draw = np.random.default_rng(0)
    params = {name: draw.normal(size=6).astype(np.float32) for name in ("first", "second")}
    difference = params["first"] - params["second"]
    x = (0.5 + draw.uniform(-0.02, 0.02, (3, 6))).astype(np.float32)
    labels = jnp.asarray((x @ difference < 0).astype(int))
    return bounds(linear, params, x, labels), np.abs(x @ difference) / np.abs(difference).sum(), params


@pytest.mark.parametrize("side", ["proven", "attacked"])
def test_a_linear_network_has_the_distance_to_its_border_on_both_sides(of_a_plane, side):
    found, by_hand, _ = of_a_plane
    np.testing.assert_allclose(getattr(found, side), by_hand, atol=2**-13)
    assert (found.proven <= by_hand).all()
    assert (by_hand <= found.attacked).all()


def test_the_slope_of_a_linear_network_is_the_largest_sum_of_its_weights(of_a_plane):
    found, _, params = of_a_plane
    np.testing.assert_allclose(found.slope, max(np.abs(row).sum() for row in params.values()), rtol=1e-4)


def test_an_example_of_a_wrong_class_has_no_radius(of_a_plane):
    params = of_a_plane[2]
    x = np.full((2, 6), 0.5, np.float32)
    wrong = int(np.argmin(linear(params, x[0])))
    found = bounds(linear, params, x, jnp.array([wrong, 1 - wrong]))
    assert found.proven[0] == found.attacked[0] == 0
    assert found.attacked[1] > 0


def test_a_network_on_scaled_pixels_is_that_of_its_problem():
    settings = SMALL.complete()
    study = Study.of(settings)
    problem, pixels = study.task.problem, study.pixels
    params, state = problem.init(jax.random.key(0))
    rows = study.task.test[np.linspace(0, len(study.task.test) - 1, settings.examples).astype(int)]
    expected = problem.predict(params, state, problem.gather(problem.data, None, jnp.asarray(rows)))
    scaled = jax.vmap(partial(study.logits, params))(pixels)
    np.testing.assert_allclose(scaled, expected, rtol=1e-4, atol=1e-5)
    assert pixels.min() == 0
    assert pixels.max() <= 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("robustness")
    run_in(place, robustness.EXPERIMENT, SMALL)
    return place


@pytest.mark.long
def test_every_run_is_measured_beside_the_dense_network(folder):
    table = pd.read_csv(folder / "results.csv")
    assert table.groupby(["strategy", "density"], sort=False).size().to_dict() == {
        ("dense", 1.0): 2,
        ("SNIP", 0.8): 2,
        ("SNIP", 0.5): 2,
    }
    some_right = table.dropna()
    assert (some_right["proven"] <= some_right["attacked"]).all()
    assert table["certified"].le(table["withstanding"]).all()
    compared = pd.read_csv(folder / "comparisons.csv")
    pictures = pd.read_csv(folder / "pictures.csv")
    assert len(pictures) == 6 * 4
    dense, snip = (pictures[(pictures["strategy"] == name)] for name in ("dense", "SNIP"))
    both = snip[snip["density"] == 0.5].merge(dense, on=["seed", "picture"], suffixes=("", "_dense"))
    both = both[(both["attacked"] > 0) & (both["attacked_dense"] > 0)]
    by_hand = (both["slope"] - both["slope_dense"]).groupby(both["seed"]).median().median()
    is_meant = (compared["quantity"] == "slope") & (compared["density"] == 0.5)
    assert compared.loc[is_meant, "median"].item() == pytest.approx(by_hand)


@pytest.mark.long
def test_the_report_draws_radii_slopes_and_accuracy(folder):
    report_on(folder, robustness.EXPERIMENT)
    assert {"radii.png", "slopes.png", "accuracy.png"} <= {file.name for file in folder.iterdir()}
    assert charted(folder, robustness.EXPERIMENT)


def test_the_plan_tells_how_many_boxes_are_bounded():
    told = "\n".join(plan_of(robustness.EXPERIMENT, SMALL))
    assert "radii of 4 test pictures of each network: 6 boxes bounded and 6 attacked by 3 steps" in told


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "cnn"}, "model: unknown 'cnn'"),
        ({"methods": ("SNAP",)}, "methods: unknown 'SNAP'; did you mean 'SNIP'"),
        ({"seeds": 1}, "seeds: expected at least 2, for pairs of runs, got 1"),
        ({"radius": 0.0}, "radius: expected"),
        ({"rounds": 0}, "rounds: expected"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_by_name(changes, message):
    with pytest.raises(ArgumentError, match=message):
        plan_of(robustness.EXPERIMENT, dataclasses.replace(SMALL, **changes))

"""Distances between and within groups of vectors, by hand and against SciPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from jaxarch.structure.distances import between, principal_plane, within

SQUARE = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])


def random_groups(seed, entries=7):
    random = np.random.default_rng(seed)
    return {name: random.normal(size=(runs, entries)) for name, runs in (("a", 4), ("b", 5), ("c", 6))}


def test_centroids_and_spreads_are_those_computed_by_hand():
    groups = {"square": SQUARE, "moved": 2 * SQUARE + [3.0, 4.0], "point": np.zeros((3, 2))}
    pairs = between(groups).set_index(["first", "second"])
    assert list(pairs.index) == [("square", "moved"), ("square", "point"), ("moved", "point")]
    assert pairs["distance"].tolist() == [5, 0, 5]
    np.testing.assert_allclose(pairs["standard_error"], np.sqrt([2 / 3 + 8 / 3, 2 / 3, 8 / 3]))
    np.testing.assert_allclose(within(groups)["spread"], [np.sqrt(2), np.sqrt(8), 0])


def test_the_spread_is_the_median_over_runs_with_its_quartiles():
    runs = np.array([[-8.0], [0.0], [0.0], [1.0], [7.0]])
    row = within({"a": runs}).iloc[0]
    assert (row["spread"], row["q25"], row["q75"]) == (1, 0, 7)


def test_groups_of_one_distribution_are_about_a_standard_error_apart():
    random = np.random.default_rng(0)
    ratios = []
    for _ in range(100):
        row = between({"a": random.normal(size=(5, 30)), "b": random.normal(size=(20, 30))}).iloc[0]
        ratios.append(row["distance"] / row["standard_error"])
    assert np.mean(np.square(ratios)) == pytest.approx(1, abs=0.1)


def test_failed_runs_are_left_out_and_counted():
    spoiled = np.concatenate([SQUARE, [[np.nan, 0.0], [0.0, np.inf]]])
    table = within({"a": spoiled, "none": np.full((3, 2), np.nan)}).set_index("group")
    assert table.loc["a", ["runs", "failed"]].tolist() == [4, 2]
    assert table.loc["none", ["runs", "failed"]].tolist() == [0, 3]
    assert table.loc["a", "spread"] == pytest.approx(np.sqrt(2))
    assert np.isnan(table.loc["none", "spread"])
    row = between({"a": spoiled, "none": np.full((3, 2), np.nan)}).iloc[0]
    assert np.isnan(row["distance"])
    assert principal_plane({"a": spoiled, "b": SQUARE * [2, 3]}).points["a"].shape == (4, 2)


def test_one_group_has_no_pairs_and_one_run_no_standard_error():
    assert list(between({"a": SQUARE}).columns) == ["first", "second", "distance", "standard_error"]
    row = between({"a": SQUARE[:1], "b": SQUARE}).iloc[0]
    assert row["distance"] == pytest.approx(np.sqrt(2))
    assert np.isnan(row["standard_error"])


def test_vectors_that_lie_in_a_plane_keep_their_distances_there():
    random = np.random.default_rng(0)
    axes = np.linalg.qr(random.normal(size=(9, 2)))[0].T
    groups = {"a": random.normal(size=(6, 2)) @ axes + 1, "b": random.normal(size=(4, 2)) @ axes + 1}
    found = principal_plane(groups)
    np.testing.assert_allclose(
        pdist(np.concatenate(list(found.points.values()))), pdist(np.concatenate(list(groups.values())))
    )
    assert found.explained.sum() == pytest.approx(1)
    apart = np.linalg.norm(found.centroids["a"] - found.centroids["b"])
    assert apart == pytest.approx(between(groups)["distance"][0])


@given(seed=st.integers(0, 10**6))
def test_the_plane_holds_the_two_directions_of_the_largest_variance(seed):
    groups = random_groups(seed)
    found = principal_plane(groups)
    runs = np.concatenate(list(groups.values()))
    variances = np.linalg.eigvalsh(np.cov(runs.T))[::-1]
    np.testing.assert_allclose(found.explained, variances[:2] / variances.sum())
    points = np.concatenate(list(found.points.values()))
    np.testing.assert_allclose(points.var(axis=0, ddof=1), variances[:2])
    np.testing.assert_allclose((runs - found.mean) @ found.components.T, points)


@given(seed=st.integers(0, 10**6))
def test_the_sign_of_a_component_does_not_depend_on_that_of_the_runs(seed):
    groups = random_groups(seed)
    mirrored = {name: -runs for name, runs in groups.items()}
    components = principal_plane(groups).components
    np.testing.assert_allclose(components, principal_plane(mirrored).components, atol=1e-9)
    assert (components[[0, 1], np.abs(components).argmax(axis=1)] > 0).all()


@pytest.mark.parametrize("runs", [np.full((3, 4), np.nan), np.ones((3, 4)), np.ones((1, 4))])
def test_runs_that_do_not_differ_span_no_plane(runs):
    found = principal_plane({"a": runs})
    assert np.isnan(found.explained).all()
    assert not found.points["a"].any()
    assert len(found.points["a"]) == np.isfinite(runs).all(axis=1).sum()


@pytest.mark.parametrize("function", [between, within, principal_plane])
@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({}, "groups: expected a mapping"),
        ([SQUARE], "groups: expected a mapping"),
        ({"a": np.ones(3)}, r"groups: 'a': expected shape \(runs, entries\), got \(3,\)"),
        ({"a": np.ones((3, 0))}, r"groups: 'a': expected shape \(runs, entries\)"),
        ({"a": SQUARE * 1j}, "groups: 'a': expected real numbers, got complex"),
        ({"a": [[1.0], [1.0, 2.0]]}, "groups: 'a': expected an array, got rows of different lengths"),
    ],
)
def test_groups_that_are_no_vectors_are_refused(function, groups, message):
    with pytest.raises(ValueError, match=message):
        function(groups)


@pytest.mark.parametrize("function", [between, principal_plane])
def test_vectors_of_other_lengths_are_refused(function):
    with pytest.raises(
        ValueError, match="groups: expected vectors of equal length, got 3 entries in 'b' and 2 in 'a'"
    ):
        function({"a": SQUARE, "b": np.ones((2, 3))})


def test_a_plane_needs_two_entries():
    with pytest.raises(ValueError, match="groups: expected vectors of at least two entries"):
        principal_plane({"a": np.ones((3, 1))})

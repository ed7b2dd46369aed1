"""Mean ranks of strategies, the tests of them, and how many runs a difference needs."""

import numpy as np
import pytest
from scipy import stats

import jaxarch
from jaxarch.metrics import ranking, runs_needed

RANDOM = np.random.default_rng(0)
VALUES = {name: np.round(RANDOM.normal(i / 3, 1, 12), 1) for i, name in enumerate("abcde")}


def ranks_of(found):
    return dict(zip(found.table["strategy"], found.table["rank"], strict=True))


def test_friedman_s_statistic_is_scipy_s_ties_included():
    expected = stats.friedmanchisquare(*VALUES.values())
    found = ranking(VALUES)
    np.testing.assert_allclose((found.chi_square, found.p), expected, rtol=1e-12)


@pytest.mark.parametrize(("strategies", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_is_that_of_demsar_s_table(strategies, q):
    found = ranking({str(i): RANDOM.normal(size=14) for i in range(strategies)})
    expected = q * np.sqrt(strategies * (strategies + 1) / (6 * 14))
    assert found.critical_difference == pytest.approx(expected, rel=5e-4)


def test_equal_values_share_a_rank():
    assert ranks_of(ranking({"a": np.array([1.0, 2]), "b": np.array([1.0, 1])})) == {"a": 1.25, "b": 1.75}


def test_a_run_that_failed_comes_last_and_is_counted():
    found = ranking({"a": np.array([np.nan, np.nan]), "b": np.array([-9.0, -9]), "c": np.array([1.0, 1])})
    assert ranks_of(found) == {"c": 1, "b": 2, "a": 3}
    assert found.table["failures"].tolist() == [0, 0, 2]


def test_all_alike_is_no_evidence():
    found = ranking({name: np.zeros(3) for name in "abc"})
    assert np.isnan(found.chi_square)
    assert found.p == 1
    assert found.alike() == [["a", "b", "c"]]


def test_cells_of_a_run_are_no_runs_of_their_own():
    once = {name: of[:, None] for name, of in VALUES.items()}
    often = {name: np.tile(of[:, None], 9) for name, of in VALUES.items()}
    assert ranking(often).p == ranking(once).p == ranking(VALUES).p


def test_each_cell_of_a_run_counts_alike_whatever_its_spread():
    values = {"a": np.array([[100.0, 1, 1]] * 2), "b": np.array([[0.0, 2, 2]] * 2)}
    assert ranks_of(ranking(values)) == {"b": 1, "a": 2}


def test_intervals_hold_the_mean_rank_and_shrink_with_the_runs():
    few, many = (
        ranking({name: np.random.default_rng(i).normal(i / 5, 1, n) for i, name in enumerate("abcd")})
        for n in (10, 400)
    )
    for found in (few, many):
        assert found.table["rank"].between(found.table["low"], found.table["high"]).all()
    widths = [(found.table["high"] - found.table["low"]).mean() for found in (few, many)]
    assert 4 < widths[0] / widths[1] < 10  # the root of 40 is 6.3


def test_groups_are_those_within_the_critical_difference_and_none_is_part_of_another():
    found = ranking({name: i + np.zeros(40) for i, name in enumerate("abcdef")})  # ranks 6 to 1
    assert 1 < found.critical_difference < 2
    assert found.alike() == [["f", "e"], ["e", "d"], ["d", "c"], ["c", "b"], ["b", "a"]]


@pytest.mark.parametrize(
    "values",
    [
        {"a": np.zeros(3)},
        {"a": np.zeros(3), "b": np.zeros(4)},
        {"a": np.zeros(1), "b": np.zeros(1)},
        {"a": np.zeros((2, 2, 2)), "b": np.zeros((2, 2, 2))},
    ],
    ids=["one strategy", "other runs", "one run", "three axes"],
)
def test_what_cannot_be_ranked_is_refused(values):
    with pytest.raises(jaxarch.ArgumentError, match="values: expected two"):
        ranking(values)


@pytest.mark.parametrize(("effect", "runs"), [(11.0, 3), (5.5, 3), (1.0, 10), (0.5, 34), (0.2, 199)])
def test_as_many_runs_are_needed_as_tables_of_the_paired_t_test_say(effect, runs):
    difference = np.array([-1.0, 1.0]) / np.sqrt(2) + effect
    assert runs_needed(difference) == runs
    assert runs_needed(-difference) == runs


def test_no_difference_needs_no_number_of_runs_and_a_sure_one_two():
    assert runs_needed(np.array([-1.0, 1.0])) == 0
    assert runs_needed(np.array([1.1e5, 2.2e5, -3.3e5]) * 1.1) == 0  # but for rounding
    assert runs_needed(np.array([2.0, 2.0, np.nan])) == 2
    assert runs_needed(np.array([1000.0, 1000.1])) == 2


def test_too_few_runs_to_tell_are_refused():
    with pytest.raises(jaxarch.ArgumentError, match="expected two runs or more, got 1"):
        runs_needed(np.array([1.0, np.nan]))
    with pytest.raises(jaxarch.ArgumentError, match=r"power: expected a number in \(0, 1\)"):
        runs_needed(np.array([1.0, 2.0]), power=1.0)


def test_the_diagram_has_a_line_for_every_group_and_the_best_at_the_top():
    plt = pytest.importorskip("matplotlib.pyplot")
    found = ranking({name: i + np.zeros(40) for i, name in enumerate("abcdef")})
    figure = jaxarch.plots.ranks(found, "six")
    axes, bars = figure.axes
    assert len(bars.lines) == 5
    assert [label.get_text() for label in axes.get_yticklabels()] == list("fedcba")
    top, bottom = axes.get_ylim()[::-1]
    assert top < bottom
    plt.close(figure)

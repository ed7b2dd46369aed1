"""AUC and paired comparisons, against scikit-learn and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from jaxarch.metrics import auc, paired_differences


@pytest.mark.long
@given(seed=st.integers(0, 10**6), levels=st.sampled_from([2, 5, 1000]))
def test_auc_is_scikit_learn_s_for_many_runs_at_once_ties_included(seed, levels):
    random = np.random.default_rng(seed)
    outputs = random.integers(0, levels, (3, 4, 30)).astype(float)
    labels = np.stack([np.roll(np.arange(30) % 2, i) for i in range(12)]).reshape(3, 4, 30)
    mine = auc(labels, outputs)
    for index in np.ndindex(3, 4):
        assert mine[index] == pytest.approx(roc_auc_score(labels[index], outputs[index]), abs=1e-12)


def test_auc_of_a_constant_output_is_one_half_and_of_nan_is_nan():
    labels = np.array([0, 1, 0, 1])
    assert auc(labels, np.ones(4)) == 0.5
    assert np.isnan(auc(labels, np.array([0, np.nan, 1, 2])))


def test_auc_of_one_class_and_of_other_shapes_is_refused():
    with pytest.raises(ValueError, match="labels: expected both labels, 0 and 1"):
        auc(np.ones((1, 3)), np.ones((1, 3)))
    with pytest.raises(ValueError, match="outputs: expected the labels' shape"):
        auc(np.ones(3), np.ones(4))


def test_a_strategy_that_is_better_in_every_run_has_effect_one():
    values = {"a": np.arange(10) + 1.0, "b": np.arange(10) * 1.0, "c": np.arange(10) * 1.0}
    table = paired_differences(values).set_index(["first", "second"])
    better, equal = table.loc[("a", "b")], table.loc[("b", "c")]
    assert better["median"] == better["mean"] == 1
    assert better["effect"] == 1
    assert better["wins"] == 10
    assert better["p"] == pytest.approx(2 / 2**10)
    assert better["p_adjusted"] >= better["p"]
    assert equal["effect"] == 0
    assert equal["p"] == 1
    assert equal["wins"] == 5


def test_the_effect_is_the_rank_biserial_correlation():
    table = paired_differences({"a": np.array([3.0, -1.0, 2.0]), "b": np.zeros(3)})
    assert table["effect"][0] == pytest.approx((3 + 2 - 1) / 6)


def test_failed_runs_are_left_out_of_pairs_and_one_run_has_no_test():
    table = paired_differences({"a": np.array([1.0, np.nan]), "b": np.array([0.0, 0.0])})
    assert table["runs"][0] == 1
    assert np.isnan(table["p"][0])
    assert np.isnan(table["p_adjusted"][0])
    nothing = paired_differences({"a": np.array([np.nan]), "b": np.array([0.0])})
    assert nothing["runs"][0] == 0


def test_differences_that_are_equal_on_paper_are_ties():
    table = paired_differences({"a": np.array([0.3, 0.1]), "b": np.array([0.2, 0.2])})
    assert table["effect"][0] == 0


def test_the_interval_is_student_s_and_the_adjustment_that_of_benjamini_and_yekutieli():
    random = np.random.default_rng(0)
    values = {name: random.normal(mean, 1, 12) for name, mean in (("a", 0), ("b", 0.5), ("c", 2))}
    table = paired_differences(values)
    difference = values["a"] - values["b"]
    half = 2.20098516 * difference.std(ddof=1) / np.sqrt(12)
    assert table["mean_low"][0] == pytest.approx(difference.mean() - half)
    assert table["mean_high"][0] == pytest.approx(difference.mean() + half)
    p = np.sort(table["p"])
    by_hand = p * 3 * (1 + 1 / 2 + 1 / 3) / np.arange(1, 4)
    by_hand = np.minimum(np.minimum.accumulate(by_hand[::-1])[::-1], 1)
    np.testing.assert_allclose(np.sort(table["p_adjusted"]), by_hand)


def test_one_strategy_alone_has_no_pairs_but_the_same_columns():
    alone, pair = ({name: np.arange(4.0) for name in names} for names in ("a", "ab"))
    table = paired_differences(alone)
    assert table.empty
    assert list(table.columns) == list(paired_differences(pair).columns)


@pytest.mark.parametrize("runs", [2, 5, 13, 14])
@pytest.mark.parametrize("digits", [0, 1, 9], ids=["many ties and zeros", "ties", "no ties"])
def test_the_p_of_a_pair_is_scipys(runs, digits):
    names = "ab" if runs == 13 else "abcd"  # SciPy takes a second for each pair of 13 runs with ties.
    values = np.round(np.random.default_rng(runs).normal(size=(len(names), runs)), digits)
    table = paired_differences(dict(zip(names, values, strict=True)))
    for first, second, p in table[["first", "second", "p"]].itertuples(index=False):
        difference = values[names.index(first)] - values[names.index(second)]
        expected = stats.wilcoxon(np.round(difference, 12)).pvalue if difference.any() else 1.0
        np.testing.assert_allclose(p, expected, rtol=1e-12)

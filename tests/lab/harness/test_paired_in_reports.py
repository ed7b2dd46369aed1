"""Paired differences in reports: their sign, their words, and whether a p can be small."""

import numpy as np
import pandas as pd
import pytest

from jaxarch.lab.harness import paired
from jaxarch.metrics import paired_differences

VALUES = {"a": np.array([1.0, 2.0, 4.0]), "b": np.array([0.5, 3.0, 1.0]), "c": np.array([1.0, 1.0, 1.0])}


@pytest.mark.parametrize(("reference", "other"), [("a", "b"), ("b", "a"), ("c", "a")])
def test_a_difference_has_its_sign_whatever_the_order_of_the_methods(reference, other):
    (pair,) = paired.against(paired_differences(VALUES), reference, other).to_dict("records")
    expected = paired.difference(pd.Series(VALUES[reference]), pd.Series(VALUES[other]))
    for name in ("runs", "median", "q25", "q75", "mean", "mean_low", "mean_high", "wins", "effect", "p"):
        assert pair[name] == pytest.approx(expected[name])


def test_runs_are_paired_by_their_index():
    first, second = pd.Series([1.0, 2.0], [0, 1]), pd.Series([5.0, 1.0], [7, 1])
    assert paired.difference(first, second)["median"] == 1.0
    assert paired.difference(first, second)["runs"] == 1


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ([2.0] * 6, "+1.00 [+1.00, +1.00], n = 6, p = 0.031"),
        ([2.0], "+1.00 [+1.00, +1.00], n = 1"),
        ([np.nan], "-"),
    ],
)
def test_a_difference_in_words_has_its_n_and_a_p_if_there_is_one(first, words):
    pair = paired.difference(pd.Series(first), pd.Series(np.ones(len(first))))
    assert paired.in_words(pair, ".2f") == words


@pytest.mark.parametrize(
    ("runs", "words"), [(5, "none of 1 can be with n = 5"), (6, "1 above and 0 below 0, of 1")]
)
def test_it_is_said_if_there_are_too_few_runs_for_any_p(runs, words):
    pair = paired.difference(pd.Series(np.full(runs, 2.0)), pd.Series(np.ones(runs)))
    assert paired.decidable(runs) == (runs > 5)
    assert paired.significant(pd.DataFrame([pair]), "p") == words


@pytest.mark.parametrize(("runs", "enough"), [(6, False), (7, False), (8, True)])
def test_an_adjusted_p_needs_more_runs(runs, enough):
    """Eight methods that all differ in the same order have the least p that 28 tests can have."""
    values = {f"method {i}": i + np.linspace(0, 0.1 * i, runs) for i in range(8)}
    pairs = paired_differences(values)
    assert paired.decidable(runs, len(pairs)) == enough == (pairs["p_adjusted"].min() < paired.LEVEL)

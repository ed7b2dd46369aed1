"""The bound of a network that a few examples determine: exact, and never below the truth."""

from fractions import Fraction

import pytest
from scipy.stats import binom

from jaxarch import ArgumentError
from jaxarch.lab.claims.new_results.compression import excess
from jaxarch.theory.generalization import binomial_upper, compression_bound


@pytest.mark.parametrize("count", [0, 1, 4, 9])
@pytest.mark.parametrize("delta", [0.5, 0.05, 1e-9])
def test_the_sum_passes_its_limit_just_there(count, delta):
    bound = Fraction(compression_bound(count, 10, 0, delta))
    assert excess(count, 10, bound) > 10 / Fraction(delta)
    # A ten-thousandth more of the right ones, and the sum is below the limit.
    assert excess(count, 10, 1 - (1 - bound) * (1 + Fraction(1, 10**4))) < 10 / Fraction(delta)


@pytest.mark.parametrize(
    ("count", "examples"), [(1, 2), (92, 1348), (740, 60_000), (3000, 60_000), (59_000, 60_000)]
)
def test_the_sum_is_a_tail_over_a_binomial_probability(count, examples):
    # n e P(Bin(n, e) = k) = delta P(Bin(n, e) > k)
    bound = compression_bound(count, examples, 0, 0.01)
    law = binom(examples, bound)
    assert examples * bound * law.pmf(count) == pytest.approx(0.01 * law.sf(count), rel=1e-6)
    assert bound > count / examples


def test_picked_and_wrong_examples_count_alike():
    assert compression_bound(3, 50, 4) == compression_bound(0, 50, 7) == compression_bound(7, 50, 0)


def test_choices_divide_delta():
    assert compression_bound(3, 50, 4, 0.05, choices=10) == pytest.approx(compression_bound(3, 50, 4, 0.005))


def test_one_example_without_error_is_worth_what_it_is_by_counting():
    assert compression_bound(0, 1, 0, 0.05) == pytest.approx(0.95)
    assert compression_bound(0, 1, 0, 0.05) >= 0.95


def test_nothing_is_bounded_where_all_examples_are_picked_or_wrong():
    assert compression_bound(6, 10, 4) == 1.0


def test_it_is_above_the_bound_for_a_network_that_chose_nothing():
    assert compression_bound(20, 1000, 0) > binomial_upper(20, 1000, 0.05)


def test_it_grows_with_the_count():
    bounds = [compression_bound(count, 30, 0) for count in range(31)]
    assert bounds == sorted(set(bounds))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((5, 10, 6), "errors: expected at most the 10 - 6"),
        ((-1, 10, 6), "errors"),
        ((0, 0, 0), "examples"),
        ((0, 10, -1), "picked"),
        ((0, 10, 1, 0.0), "delta"),
        ((0, 10, 1.5), "picked"),
    ],
)
def test_bad_numbers_are_refused(arguments, words):
    with pytest.raises(ArgumentError, match=words):
        compression_bound(*arguments)

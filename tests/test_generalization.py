"""Bounds on how often a mask errs on new examples: exact where that can be checked, never below the truth."""

import itertools
import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import beta

import jaxarch
from jaxarch.claims.own.new_errors import prior, tail
from jaxarch.theory.generalization import binomial_upper, description_length, masked_bound


@pytest.mark.parametrize("errors", [0, 1, 4, 9])
@pytest.mark.parametrize("delta", [0.5, 0.05, 1e-12])
def test_a_bound_is_just_where_so_few_errors_have_become_a_surprise(errors, delta):
    bound = binomial_upper(errors, 10, delta)
    assert tail(errors, 10, Fraction(bound)) < Fraction(delta)
    assert tail(errors, 10, Fraction(bound * (1 - 1e-11))) > Fraction(delta)


@pytest.mark.parametrize(("errors", "examples"), [(0, 1), (7, 100), (999, 1000), (5340, 60_000)])
def test_it_is_that_of_clopper_and_pearson_and_not_below(errors, examples):
    bound, exact = binomial_upper(errors, examples, 0.05), beta.ppf(0.95, errors + 1, examples - errors)
    assert bound == pytest.approx(exact, rel=1e-9)
    assert bound >= exact * (1 - 1e-13)


def test_nothing_is_bounded_where_all_examples_are_errors():
    assert binomial_upper(10, 10, 0.05) == 1.0


def test_a_length_is_as_if_delta_were_that_much_smaller():
    assert binomial_upper(3, 50, 0.05, length=math.log(10)) == pytest.approx(binomial_upper(3, 50, 0.005))


def test_lengths_of_thousands_of_nats_do_not_underflow():
    bound = binomial_upper(5340, 60_000, 0.05, length=3518.0)
    divergence = 0.089 * math.log(0.089 / bound) + 0.911 * math.log(0.911 / (1 - bound))
    # Below what Chernoff's bound allows, and by little.
    assert 0.995 < divergence * 60_000 / (3518 + math.log(20)) < 1


@pytest.mark.parametrize("leaves", [(3,), (1, 2), (2, 2)])
def test_the_length_of_every_mask_is_minus_the_logarithm_of_its_prior(leaves):
    ends = list(itertools.accumulate(leaves, initial=0))
    for bits in itertools.product((0, 1), repeat=sum(leaves)):
        mask = {str(i): np.array(bits[i:j], bool) for i, j in itertools.pairwise(ends)}
        exact = -math.log(prior(leaves, bits))
        assert exact <= description_length(mask) <= exact + 1e-9


def test_where_densities_differ_leaves_are_named_one_by_one():
    mask = {"sparse": np.arange(10_000) < 10, "dense": np.arange(1000) < 500}
    pooled = {"all": np.concatenate([mask["sparse"], mask["dense"]])}
    assert description_length(mask) < 0.8 * description_length(pooled)


def test_leaves_without_a_mask_cost_nothing():
    mask = {"a": jnp.array([True, False]), "b": None}
    assert description_length(mask) == description_length({"a": mask["a"]})


def test_who_chose_among_several_pays_for_their_number():
    mask = {"a": np.arange(100) < 10}
    assert masked_bound(5, 500, mask, 0.05, choices=4) == pytest.approx(masked_bound(5, 500, mask, 0.0125))


def test_the_mask_that_fits_random_labels_best_is_not_certified_to_beat_chance():
    random, d, n, draws = np.random.default_rng(0), 6, 40, 100
    masks = np.array(list(itertools.product((0, 1), repeat=d)), bool)
    below, unpaid = 0, 0
    for _ in range(draws):
        x, y = random.normal(size=(n, d)), random.integers(0, 2, n)
        errors = ((x @ masks.T > 0) != y[:, None]).sum(axis=0)
        best = int(errors.argmin())
        below += masked_bound(int(errors[best]), n, {"w": masks[best]}, 0.1) < 0.5
        unpaid += binomial_upper(int(errors[best]), n, 0.1) < 0.5
    assert below <= 0.1 * draws
    assert unpaid > 0.1 * draws  # what paying nothing for the choice would have promised


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: binomial_upper(11, 10, 0.05), "errors"),
        (lambda: binomial_upper(-1, 10, 0.05), "errors"),
        (lambda: binomial_upper(1, 0, 0.05), "examples"),
        (lambda: binomial_upper(1, 10, 0.0), "delta"),
        (lambda: binomial_upper(1, 10, 0.05, length=-1.0), "length"),
        (lambda: masked_bound(1, 10, {"a": np.ones(3, bool)}, choices=0), "choices"),
        (lambda: description_length({"a": np.full(3, 1.5)}), "a"),
        (lambda: description_length({"a": None}), "mask"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(call, named):
    with pytest.raises(jaxarch.ArgumentError, match=named):
        call()

"""Bounds on how often a mask errs on new examples: exact where that can be checked, never below the truth."""

import itertools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import beta

import jaxarch
from jaxarch import float64
from jaxarch.lab.claims.new_results.new_errors import prior, tail
from jaxarch.theory.generalization import (
    binomial_upper,
    description_length,
    kl_inverse,
    masked_bound,
    randomized_bound,
    relaxed_length,
)
from jaxarch.theory.generalization._bounds import _log_maurer


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


def exact_divergence(chances):
    """`KL(prod Bern(v_i) || P)` by all masks of one leaf."""
    total = 0.0
    for bits in itertools.product((0, 1), repeat=len(chances)):
        share = math.prod(v if bit else 1 - v for v, bit in zip(chances, bits, strict=True))
        if share:
            total += share * (math.log(share) - math.log(prior((len(chances),), bits)))
    return total


@pytest.mark.parametrize("chances", [(0.5,), (0.2, 0.9, 0.0), (0.01, 0.01, 0.99, 1.0), (0.5,) * 6])
def test_the_length_of_chances_is_at_least_the_divergence_and_close_to_it(chances):
    length = description_length({"a": np.array(chances)})
    exact = exact_divergence(chances)
    assert exact <= length <= exact + 0.5


def test_numbers_that_are_0_or_1_are_described_as_booleans():
    mask = np.arange(300) % 7 == 0
    assert description_length({"a": mask.astype(float)}) == pytest.approx(description_length({"a": mask}))


def test_under_a_prior_a_mask_costs_the_logarithms_of_its_chances():
    mask, chances = {"a": np.array([True, False, True])}, {"a": np.array([0.9, 0.2, 0.4])}
    exact = -math.log(0.9) - math.log(0.8) - math.log(0.4)
    assert exact <= description_length(mask, chances) <= exact + 1e-9


def test_under_a_prior_chances_cost_their_divergence():
    v, pi = np.array([0.3, 1.0]), np.array([0.4, 0.5])
    exact = 0.3 * math.log(0.3 / 0.4) + 0.7 * math.log(0.7 / 0.6) + math.log(2)
    assert exact <= description_length({"a": v}, {"a": pi}) <= exact + 1e-9


def test_what_a_prior_gave_no_chance_is_not_bounded():
    mask, never = {"a": np.array([True])}, {"a": np.array([0.0])}
    assert description_length(mask, never) == math.inf
    assert masked_bound(0, 100, mask, prior=never) == 1.0


def test_a_good_prior_makes_the_bound_smaller_and_certainty_makes_it_that_of_one_network():
    mask = {"a": np.arange(1000) < 50}
    plain = masked_bound(30, 1000, mask)
    near = masked_bound(30, 1000, mask, prior={"a": np.where(mask["a"], 0.9, 0.01)})
    certain = masked_bound(30, 1000, mask, prior={"a": mask["a"].astype(float)})
    assert binomial_upper(30, 1000, 0.05) == pytest.approx(certain)
    assert certain < near < plain


def test_the_relaxed_length_is_the_length_where_numbers_are_0_or_1():
    mask = {"a": np.arange(300) % 7 == 0, "b": np.arange(50) < 20}
    with float64():
        relaxed = relaxed_length({path: jnp.asarray(leaf, jnp.float64) for path, leaf in mask.items()})
    assert float(relaxed) == pytest.approx(description_length(mask), rel=1e-12)


def test_a_mask_in_half_precision_is_counted_exactly():
    mask = {"a": jnp.arange(5000) < 1001}
    half, whole = (relaxed_length({"a": mask["a"].astype(dtype)}) for dtype in (jnp.bfloat16, jnp.float32))
    assert half.dtype == jnp.float32
    assert float(half) == float(whole)


def test_a_connection_more_costs_about_the_logarithm_of_those_that_are_not_there_over_those_that_are():
    slope = jax.grad(relaxed_length)({"w": jnp.full(1000, 0.1)})["w"][0]
    assert float(slope) == pytest.approx(math.log(900 / 100), rel=0.01)


def test_the_relaxed_length_by_a_prior_is_its_length():
    mask, chances = {"a": np.array([1.0, 0.0, 1.0])}, {"a": np.array([0.9, 0.2, 0.4])}
    assert float(relaxed_length(mask, chances)) == pytest.approx(description_length(mask, chances), rel=1e-6)


@pytest.mark.parametrize(
    ("rate", "budget"), [(0.0, 0.05), (0.1, 0.0), (0.1, 1e-6), (0.3, 2.0), (0.999, 1e-3)]
)
def test_the_inverse_is_just_where_the_divergence_is_the_budget(rate, budget):
    def kl(p):
        there = rate * math.log(rate / p) if rate else 0.0
        return there + (1 - rate) * math.log((1 - rate) / (1 - p))

    bound = kl_inverse(rate, budget)
    assert rate <= bound < 1
    assert kl(bound) >= budget * (1 - 1e-9)
    assert kl(bound - 1e-7 * (bound - rate) - 1e-15) <= budget + 1e-12


def test_nothing_is_bounded_by_an_infinite_budget():
    assert kl_inverse(0.1, math.inf) == kl_inverse(1.0, 0.0) == 1.0


@pytest.mark.parametrize("n", [1, 2, 8, 30])
def test_the_constant_is_the_exact_one_from_above_and_below_that_of_maurer(n):
    exact = math.log(
        sum(math.comb(n, k) * Fraction(k, n) ** k * Fraction(n - k, n) ** (n - k) for k in range(n + 1))
    )
    assert exact <= _log_maurer(n) <= exact + 1e-9
    if n >= 8:
        assert _log_maurer(n) < math.log(2 * math.sqrt(n))


def test_a_randomised_mask_pays_for_its_draws_and_its_length():
    mask = {"a": np.where(np.arange(1000) < 50, 0.9, 0.01)}
    length = description_length(mask)
    rate = binomial_upper(600, 6000, 0.2 * 0.05)
    budget = (length + _log_maurer(3000) + math.log(1 / (0.8 * 0.05))) / 3000
    assert randomized_bound(600, 6000, 3000, mask) == pytest.approx(kl_inverse(rate, budget), rel=1e-12)


def test_who_looks_at_the_draws_of_several_pays_in_both_parts():
    v = {"w": np.array([0.5])}
    # Of 1,000 families that err on half of the examples, some has at most 4 errors in 20 draws.
    assert randomized_bound(4, 20, 100_000, v, choices=1000, prior=v) > 0.5


def test_a_relaxed_length_by_a_prior_that_is_certain_is_0_or_infinite():
    certain = {"a": jnp.array([1.0, 0.0])}
    assert float(relaxed_length({"a": jnp.array([1.0, 0.0])}, certain)) == 0
    assert float(relaxed_length({"a": jnp.array([0.5, 0.0])}, certain)) == math.inf


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: relaxed_length({"a": jnp.ones(3)}, {"a": jnp.full((3, 1), 0.5)}), "prior"),
        (lambda: relaxed_length({"a": jnp.ones(3)}, {"b": jnp.full(3, 0.5)}), "prior"),
        (lambda: kl_inverse("a", 0.1), "rate"),
        (lambda: randomized_bound(1, 10, 10, {"a": np.ones(3)}, share="a"), "share"),
        (lambda: kl_inverse(1.5, 0.1), "rate"),
        (lambda: kl_inverse(0.5, -0.1), "length"),
        (lambda: randomized_bound(1, 10, 10, {"a": np.ones(3)}, share=1.0), "share"),
        (lambda: description_length({"a": np.ones(3, bool)}, {"b": np.ones(3)}), "prior"),
        (lambda: description_length({"a": np.ones(3, bool)}, {"a": np.ones(2)}), "prior"),
        (lambda: description_length({"a": np.ones(3, bool)}, {"a": np.full(3, -0.1)}), "prior"),
        (lambda: description_length({"a": np.ones(3, int)}), "a"),
        (lambda: relaxed_length({"a": None}), "mask"),
        (lambda: masked_bound(1, 10, {"a": np.ones(3)}), "a"),
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

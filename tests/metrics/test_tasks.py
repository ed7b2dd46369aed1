"""Differences over several tasks, against integrals and simulations that share no code with them; regrets."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from jaxarch import ArgumentError
from jaxarch.metrics import across_tasks, regret

TASKS = {"digits": [0.04, 0.05, 0.06, 0.02], "text": [0.01, 0.03, 0.04], "speech": [0.05, 0.09]}


def widened_error(runs):
    """The standard error by which the 95% interval of a mean is that of a t-test."""
    low, high = stats.t.interval(0.95, len(runs) - 1, np.mean(runs), stats.sem(runs))
    return (high - low) / (2 * stats.norm.ppf(0.975))


def test_the_probabilities_of_a_new_task_are_integrals_over_mean_and_spread():
    # The model as it is written down, on a grid of both; beyond its bounds is less than 1e-3 of the mass.
    mu, tau = np.linspace(-1, 1, 1001)[:, None], np.geomspace(1e-6, 10, 1001)
    density = stats.halfcauchy.pdf(tau, scale=0.03) * tau  # the last factor is of a grid of log(tau)
    for runs in TASKS.values():
        density = density * stats.norm.pdf(np.mean(runs), mu, np.hypot(widened_error(runs), tau))
    density /= density.sum()
    found = across_tasks(TASKS, 0.01, scale=0.03)
    assert found.better == pytest.approx((density * stats.norm.sf(0.01, mu, tau)).sum(), abs=2e-3)
    assert found.worse == pytest.approx((density * stats.norm.cdf(-0.01, mu, tau)).sum(), abs=2e-3)
    assert found.better + found.alike + found.worse == pytest.approx(1)


def test_without_spread_between_tasks_the_mean_is_weighted_by_precision():
    weights = np.asarray([widened_error(runs) ** -2 for runs in TASKS.values()])
    means = np.asarray([np.mean(runs) for runs in TASKS.values()])
    found = across_tasks(TASKS, scale=1e-9)
    assert found.mean == pytest.approx(weights @ means / weights.sum(), abs=1e-6)
    half = stats.norm.ppf(0.975) / np.sqrt(weights.sum())
    np.testing.assert_allclose((found.low, found.high), (found.mean - half, found.mean + half), atol=1e-6)


@pytest.mark.long
def test_intervals_hold_what_they_say_where_tasks_are_drawn_from_the_prior():
    key, inside, next_inside, trials = np.random.default_rng(0), 0, 0, 400
    for _ in range(trials):
        tau = min(stats.halfcauchy.rvs(scale=0.05, random_state=key), 50)
        *tasks, new = 0.02 + tau * key.standard_normal(6)
        found = across_tasks({str(i): of + 0.01 * key.standard_normal(8) for i, of in enumerate(tasks)})
        inside += found.low <= 0.02 <= found.high
        next_inside += found.next_low <= new <= found.next_high
    # The standard error of a share of .95 is .011; few runs make intervals a little too wide.
    assert 0.92 <= inside / trials <= 0.985
    assert 0.92 <= next_inside / trials <= 0.985


def test_more_runs_on_the_same_tasks_leave_the_next_task_as_uncertain():
    key = np.random.default_rng(1)
    few, many = (
        across_tasks({str(i): i / 20 + 0.01 * key.standard_normal(runs) for i in range(4)})
        for runs in (10, 1000)
    )
    assert many.next_high - many.next_low > 0.9 * (few.next_high - few.next_low)


def test_the_other_direction_has_the_other_signs():
    found = across_tasks(TASKS)
    turned = across_tasks({task: -np.asarray(runs) for task, runs in TASKS.items()})
    assert (turned.mean, turned.low, turned.next_high) == pytest.approx(
        (-found.mean, -found.high, -found.next_low)
    )
    assert (turned.better, turned.worse) == pytest.approx((found.worse, found.better))


def test_percent_in_place_of_shares_change_the_units_alone():
    percent = {task: 100 * np.asarray(runs) for task, runs in TASKS.items()}
    found = across_tasks(percent, equivalent=1.0, scale=5.0)
    shares = dataclasses.astuple(across_tasks(TASKS))
    expected = [100 * of for of in shares[:6]]
    np.testing.assert_allclose(dataclasses.astuple(found), [*expected, *shares[6:]], rtol=1e-9)


@pytest.mark.parametrize("tasks", [2, 50])
@pytest.mark.parametrize("value", [0.0, 0.1, -0.07, 1234.5])
def test_equal_differences_everywhere_are_no_error(value, tasks):
    found = across_tasks({str(i): [value] * 3 for i in range(tasks)})
    assert found.mean == pytest.approx(value)
    assert found.low < value < found.high


def test_a_prior_far_wider_than_the_data_leaves_the_spread_to_them():
    permuted = {"a": [0.04, 0.05, 0.06], "b": [0.06, 0.04, 0.05], "c": [0.02, 0.03, 0.04]}
    wide, wider = (across_tasks(permuted, scale=scale) for scale in (100.0, 1e4))
    assert wide.spread == pytest.approx(wider.spread, rel=0.01)
    assert 0.005 < wide.spread < 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({"a": [1.0, 2.0]},), r"differences: expected two tasks or more, got \['a'\]"),
        (({"a": [1.0, 2.0], "b": [1.0, np.nan]},), r"differences: 'b': expected shape \(runs,\)"),
        (({"a": [1.0, 2.0], "b": 1.0},), r"differences: 'b': expected shape \(runs,\)"),
        ((TASKS, -1.0), "equivalent: expected at least 0, got -1.0"),
        ((TASKS, 0.01, 0.0), "scale: expected a positive finite number, got 0.0"),
    ],
)
def test_bad_differences_are_refused(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        across_tasks(*arguments)


def test_regret_is_the_distance_of_medians_to_the_best_of_each_cell():
    values = {"ours": [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]], "theirs": [[0.7, 0.6], [0.7, 0.7], [0.7, 0.2]]}
    found = regret({name: np.asarray(of) for name, of in values.items()})
    np.testing.assert_allclose(found["ours"], (0.0, 0.4))
    np.testing.assert_allclose(found["theirs"], (0.1, 0.0))


def test_a_strategy_that_failed_in_most_runs_has_an_infinite_regret_and_one_failure_counts_as_the_worst():
    found = regret({"fine": np.array([0.5, 0.6, 0.7]), "failed": np.array([np.nan, np.nan, 0.9])})
    assert (found["fine"], found["failed"]) == (0, np.inf)
    once = regret({"fine": np.array([0.5, 0.6, 0.7]), "once": np.array([np.nan, 0.5, 0.9])})
    assert once["once"] == pytest.approx(0.1)
    assert np.isnan(regret({"a": np.full(3, np.nan), "b": np.full(3, np.nan)})["a"])

"""The strategies of [D], and what holds of stages in a row. Every method's contract: test_contract.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compilations
from small import RUNS, close, keys, problem, same, task

import jaxarch

STRATEGIES = jaxarch.disentangling_strategies(lottery_rounds=1, agnostic_draws=2, agnostic_weights=2)


@pytest.mark.long
@pytest.mark.parametrize("name", STRATEGIES)
def test_over_seeds_gives_one_result_a_run(name):
    network, report = jaxarch.over_seeds(STRATEGIES[name], keys(), problem())
    outputs = jaxarch.evaluate(STRATEGIES[name], network, problem(), task().test)
    assert outputs.shape == task().test.shape
    assert np.isfinite(outputs).all()
    assert report.seconds >= 0
    assert all(leaf.shape[0] == RUNS for leaf in jax.tree.leaves(network))


@pytest.mark.long
@pytest.mark.parametrize("name", ["real->bin", "bin", "random->bin", "lottery->bin", "agnostic"])
def test_binary_strategies_have_no_weights_but_zero_and_one(name):
    network, _ = jaxarch.over_seeds(STRATEGIES[name], keys(), problem())
    for params, mask in zip(jax.tree.leaves(network.params), jax.tree.leaves(network.mask), strict=True):
        assert same(params, mask.astype(jnp.float32))


@pytest.mark.long
@pytest.mark.parametrize("name", ["bin->real warm", "bin->real cold"])
def test_retraining_leaves_the_architecture_as_it_was_found(name):
    results = jaxarch.compare({n: STRATEGIES[n] for n in ("bin", name)}, keys(), problem())
    architecture, retrained = results["bin"][0], results[name][0]
    assert same(architecture.mask, retrained.mask)
    pruned = jax.tree.map(lambda m, w: jnp.where(m, 0, w), retrained.mask, retrained.params)
    assert all(not leaf.any() for leaf in jax.tree.leaves(pruned))
    assert all((leaf >= 0).all() for leaf in jax.tree.leaves(retrained.params))


@pytest.mark.long
def test_a_warm_start_is_at_the_found_weights_and_a_cold_one_is_not():
    from jaxarch.run import _training as training

    network = jaxarch.chain(STRATEGIES["bin"])(keys()[0], problem().of_run(0))
    for start, is_found in (("warm", True), ("cold", False)):
        stage = jaxarch.retrain(start)
        carry = training.begin(stage, keys()[1], problem().of_run(0), network)
        assert close(stage.params(stage.settings, carry.state), network.params) == is_found


@pytest.mark.long
def test_strategies_that_begin_alike_share_the_beginning_exactly():
    together = jaxarch.compare({n: STRATEGIES[n] for n in ("real", "real->bin")}, keys(), problem())
    alone, _ = jaxarch.over_seeds(STRATEGIES["real->bin"], keys(), problem())
    assert same(together["real->bin"][0].mask, alone.mask)
    assert same(together["real->bin"][0].info["loss"], together["real"][0].info["loss"])
    reports = [together[n][1] for n in ("real", "real->bin")]
    assert reports[0].stages[0] is reports[1].stages[0]
    assert reports[1].seconds > reports[0].seconds


@pytest.mark.long
def test_all_stages_of_a_chain_take_their_keys_from_one_program():
    drawn = lambda key, problem: jaxarch.Network({"w": jax.random.normal(key)})  # noqa: E731
    again = lambda key, problem, network: drawn(key, problem)  # noqa: E731
    five = jax.random.split(jax.random.key(0), 5)
    with compilations() as seen:
        found, _ = jaxarch.over_seeds(jaxarch.chain(drawn, again, again), five, problem(runs=5))
    assert seen.count("jit(_stage_keys)") <= 1
    assert found.params["w"][0] == jax.random.normal(jax.random.fold_in(five[0], 2))


@pytest.mark.long
def test_runs_with_different_keys_differ_and_with_equal_keys_are_equal():
    learning = problem()
    first, _ = jaxarch.over_seeds(STRATEGIES["bin"], keys(), learning)
    again, _ = jaxarch.over_seeds(STRATEGIES["bin"], keys(), learning)
    assert same(first, again)
    assert not same(first.of_run(0).mask, first.of_run(1).mask)


def test_a_host_search_says_that_it_cannot_be_jitted_or_finished():
    logistic = STRATEGIES["logistic regression"]
    with pytest.raises(ValueError, match="logistic regression: it runs on the host"):
        jaxarch.chain(logistic)(keys()[0], problem().of_run(0))
    with pytest.raises(ValueError, match="logistic regression runs on the host, so no stage can follow it"):
        jaxarch.chain(logistic, jaxarch.threshold())


def test_chains_of_chains_are_chains():
    search, binary, retrained = jaxarch.search.dense(), jaxarch.threshold(), jaxarch.retrain()
    flat = jaxarch.chain(search, binary, retrained)
    assert jaxarch.chain(jaxarch.chain(search, binary), retrained) == flat
    assert jaxarch.chain(search, jaxarch.chain(binary, retrained)) == flat


def test_things_that_are_no_stages_are_refused():
    with pytest.raises(ValueError, match=r"chain: expected stages, or functions .* got str"):
        jaxarch.chain("bin")


def test_a_problem_with_rows_of_many_runs_asks_for_one_of_them():
    with pytest.raises(ValueError, match=r"its rows have shape \(4, 120\), one set per run"):
        jaxarch.chain(STRATEGIES["bin"])(keys()[0], problem())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: jaxarch.search.two_temperature(-1.0, 1.0), "hard: expected a positive"),
        (lambda: jaxarch.search.two_temperature(1.0, 2.0), "soft: expected at most hard"),
        (lambda: jaxarch.search.two_temperature(weights="random"), "weights: expected 'ones', 'initial'"),
        (lambda: jaxarch.search.two_temperature(scale="hard"), "scale: expected '1/hard' or 'absolute'"),
        (lambda: jaxarch.retrain("lukewarm"), "start: expected 'warm', 'cold' or 'rewind'"),
        (lambda: jaxarch.threshold((10, 120)), "percentiles: expected numbers in"),
        (lambda: jaxarch.threshold(()), "percentiles: expected numbers in"),
        (lambda: jaxarch.search.logistic_regression(C=0), "C: expected a positive"),
    ],
)
def test_bad_arguments_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_retrain_cannot_begin_a_strategy():
    with pytest.raises(ValueError, match="retrain cold: it needs a network; put a search before it"):
        jaxarch.over_seeds(jaxarch.retrain(), keys(), problem())


@pytest.mark.parametrize(
    "weights", ["initial", lambda key, masked: jax.tree.map(lambda w: -jnp.ones_like(w), masked)]
)
def test_the_weights_under_the_mask_can_be_chosen(weights):
    search = jaxarch.search.two_temperature(weights=weights)
    network = jaxarch.chain(search)(keys()[0], problem().of_run(0))
    kept = network.params["w1"][network.mask["w1"]]
    if weights == "initial":
        assert kept.std() > 0.1
    else:
        assert (kept == -1).all()


@pytest.mark.long
def test_absolute_scores_are_those_in_units_of_one_over_hard():
    learning = problem(steps=1).of_run(0)
    relative = jaxarch.search.two_temperature(50.0, 5.0, mean=-10.0, std=5.0)
    absolute = jaxarch.search.two_temperature(50.0, 5.0, mean=-0.2, std=0.1, scale="absolute")
    scores = [jaxarch.chain(s)(keys()[0], learning).info["scores"] for s in (relative, absolute)]
    assert close(*scores)

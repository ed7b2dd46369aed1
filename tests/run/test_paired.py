"""Strategies on equal terms: initial weights and batches that are of a run, whatever the stages are."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import same

import jaxarch
from jaxarch import search

RUNS = 3
PAIRS = jax.random.split(jax.random.key(7), RUNS)
KEYS = jax.random.split(jax.random.key(0), RUNS)
X = np.linspace(-1, 1, 160, dtype=np.float32).reshape(20, 8)


@cache
def unpaired():
    return jaxarch.supervised(
        jaxarch.models.tanh_network((8, 6, 1)),
        (X, X[:, :1] > 0),
        loss=lambda outputs, y: jnp.square(outputs - y[..., 0]),
        optimizer=optax.sgd(0.1),
        steps=3,
        batch_size=2,
    )


def learning(paired):
    return dataclasses.replace(unpaired(), paired=paired)


@cache
def dense(is_paired):
    """Train the whole network, once for all tests."""
    return jaxarch.over_seeds(DENSE, KEYS, learning(PAIRS if is_paired else None))[0]


DENSE, SNIP = search.dense(nonnegative=False), search.snip(0.5)


def weights_before_training(strategy, problem):
    network, _ = jaxarch.over_seeds(strategy, KEYS, problem)
    start = network.get(jaxarch.Start)
    return network[jaxarch.ByDensity].weights if start is None else start.params


@pytest.mark.long
def test_all_searches_begin_from_the_same_weights():
    for strategy in (SNIP, search.random_mask(0.5)):
        assert same(dense(True)[jaxarch.Start].params, weights_before_training(strategy, learning(PAIRS)))


@pytest.mark.long
def test_without_pairs_every_search_draws_its_own():
    assert not same(dense(False)[jaxarch.Start].params, weights_before_training(SNIP, learning(None)))


@pytest.mark.long
def test_every_run_has_its_own_weights_unless_there_is_one_pair_for_all():
    own = weights_before_training(SNIP, learning(PAIRS))
    one = weights_before_training(SNIP, learning(PAIRS[0]))
    assert not same(*(jax.tree.map(lambda leaf, i=i: leaf[i], own) for i in (0, 1)))
    assert same(*(jax.tree.map(lambda leaf, i=i: leaf[i], one) for i in (0, 1)))
    assert same(*(jax.tree.map(lambda leaf: leaf[0], tree) for tree in (own, one)))


@pytest.mark.long
def test_trainings_see_the_same_batches_at_whatever_place_they_are():
    full = search.random_mask(1.0)
    for_start = jaxarch.chain(full, jaxarch.retrain("warm", nonnegative=False))
    later = jaxarch.chain(full, jaxarch.reshuffle(), jaxarch.retrain("warm", nonnegative=False))
    for strategy in (for_start, later):
        network, _ = jaxarch.over_seeds(strategy, KEYS, learning(PAIRS))
        assert same(network.info["loss"], dense(True).info["loss"])


@pytest.mark.long
def test_fresh_weights_of_a_network_that_is_there_are_other_ones():
    strategy = jaxarch.chain(search.random_mask(1.0), jaxarch.retrain("cold", nonnegative=False))
    cold = jaxarch.over_seeds(strategy, KEYS, learning(PAIRS))[0]
    assert not np.isclose(cold.info["loss"][:, 0], dense(True).info["loss"][:, 0]).any()


@pytest.mark.parametrize(
    ("paired", "message"),
    [
        (3, "key: expected one random key, such as jax.random.key"),
        (PAIRS[:2], "expected 2 keys, one for each run of the problem, got 3"),
    ],
    ids=["a number", "too few"],
)
def test_what_is_no_key_is_refused(paired, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.over_seeds(search.snip(0.5), KEYS, learning(paired))


@pytest.mark.long
def test_what_goes_on_with_a_network_draws_none_of_the_numbers_that_its_search_drew():
    problem, begun = learning(None), dense(False)
    again = jaxarch.retrain("cold", nonnegative=False)
    cold, _ = jaxarch.over_seeds(again, KEYS, problem, network=begun)
    assert not np.isclose(begun.info["loss"][:, 0], cold.info["loss"][:, 0]).any()
    alone = jax.jit(jaxarch.chain(again))(KEYS[1], problem, begun.of_run(1))
    np.testing.assert_allclose(alone.info["loss"], cold.info["loss"][1], rtol=1e-4)

"""Weight-agnostic search: the best of random architectures under the best of a few shared weights."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import close, digits, keys, problem, task

import jaxarch

DRAWS, WEIGHTS = 3, 4


@pytest.fixture(scope="module")
def one():
    return problem().of_run(0)


@pytest.fixture(scope="module")
def network(one):
    return jax.jit(jaxarch.search.agnostic(DRAWS, WEIGHTS))(keys()[0], one)


@pytest.mark.long
def test_every_draw_is_judged_at_every_percentile(network):
    assert network.info["candidates"].shape == (DRAWS, 10)
    assert np.isfinite(network.info["candidates"]).all()


@pytest.mark.long
def test_the_least_loss_is_that_of_the_architecture_with_its_shared_weight(one, network):
    weight = float(network[jaxarch.SharedWeight].weight)
    w1, w2 = (weight * np.asarray(network.mask[name], np.float64) for name in ("w1", "w2"))
    x, y = digits().x[np.asarray(one.train)], task().labels(digits(), task().train)[0]
    outputs = np.log1p(np.exp(np.tanh(np.tanh(x @ w1.T) @ w2.T).sum(1)))
    assert close((outputs * (1 - 2 * y)).mean(), network.info["candidates"].min(), 1e-4)


def test_the_density_is_what_the_percentile_leaves(network):
    assert abs(float(jaxarch.density(network.mask)) - (1 - float(network.info["percentile"]) / 100)) < 1e-3


@pytest.mark.parametrize("weight", ["best", "random"])
def test_a_shared_weight_is_one_weight_on_all_connections(one, network, weight):
    shared = jaxarch.share_weight(weight)(keys()[1], one, network)
    for mask, params in zip(jax.tree.leaves(network.mask), jax.tree.leaves(shared.params), strict=True):
        assert close(params, mask * shared[jaxarch.SharedWeight].weight)
    is_found = bool(shared[jaxarch.SharedWeight].weight == network[jaxarch.SharedWeight].weight)
    assert is_found == (weight == "best")


@pytest.mark.long
def test_networks_whose_loss_is_nan_are_not_found(one):
    def loss(params, state, batch, key):
        value, state = one.loss(params, state, batch, key)
        return jnp.where((params["w1"] != 0).mean() > 0.55, jnp.nan, value), state

    broken = dataclasses.replace(one, loss=loss)
    network = jax.jit(jaxarch.search.agnostic(2, 2))(keys()[0], broken)
    assert float(network.info["percentile"]) >= 50


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: jaxarch.search.agnostic(0), "draws: expected an integer of at least 1"),
        (lambda: jaxarch.search.agnostic(weights=0), "weights: expected an integer of at least 1"),
        (lambda: jaxarch.search.agnostic(percentiles=()), "percentiles: expected numbers in"),
        (lambda: jaxarch.share_weight("mean"), "weight: expected 'best' or 'random'"),
    ],
)
def test_bad_arguments_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_best_weight_is_known_only_after_the_search():
    strategy = jaxarch.chain(jaxarch.search.untrained(), jaxarch.share_weight("best"))
    with pytest.raises(ValueError, match=r"needs a network with `SharedWeight`; .*search\.agnostic"):
        jaxarch.over_seeds(strategy, keys(), problem())

"""Thresholding by eq. (13) of [D]: against a plain loop, with its ties and its constant networks."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import digits, keys, problem, task

import jaxarch
from jaxarch import Network

PERCENTILES = list(range(10, 101, 10))


def thresholded(weights, learning):
    network = Network(weights, jax.tree.map(lambda w: jnp.ones(w.shape, bool), weights), {})
    return jax.jit(jaxarch.threshold())(keys()[0], learning, network)


def numpy_loss(w1, w2, x, y):
    outputs = np.log1p(np.exp(np.tanh(np.tanh(x @ w1.T) @ w2.T).sum(1)))
    return (outputs * (1 - 2 * y)).mean()


@pytest.mark.long
def test_the_threshold_is_the_best_of_ten_percentiles_of_all_weights_pooled():
    learning = problem().of_run(0)
    network = jax.jit(jaxarch.chain(jaxarch.search.dense()))(keys()[0], problem(steps=100).of_run(0))
    result = thresholded(network.params, learning)
    w1, w2 = (np.float64(network.params[name]) for name in ("w1", "w2"))
    rows = np.asarray(learning.train)
    x, y = np.float64(digits().x[rows]), task().labels(digits(), task().train)[0]
    pooled = np.percentile(np.concatenate([w1.ravel(), w2.ravel()]), PERCENTILES)
    losses = [numpy_loss(1.0 * (w1 > xi), 1.0 * (w2 > xi), x, y) for xi in pooled]
    np.testing.assert_allclose(result.info["candidates"], losses, rtol=1e-3, atol=1e-3)
    assert float(result.info["percentile"]) == PERCENTILES[int(np.argmin(losses))]
    best = pooled[int(np.argmin(losses))]
    assert (np.asarray(result.mask["w1"]) == (w1 > best)).all()
    assert int(result.info["ties"]) == 0
    assert not bool(result.info["constant"])


@pytest.mark.long
def test_a_saturated_network_ties_at_zero_and_is_reported_as_constant():
    # All weights equal: every threshold but the last keeps nothing; balanced classes give F = 0.
    weights = {"w1": jnp.ones((64, 64)), "w2": jnp.ones((64, 64))}
    result = thresholded(weights, problem().of_run(0))
    assert int(result.info["ties"]) == len(PERCENTILES) - 1
    assert bool(result.info["constant"])
    assert float(result.info["percentile"]) == 10


@pytest.mark.long
def test_leaves_without_a_mask_are_neither_pooled_nor_changed():
    def init(key):
        return {"w": jax.random.normal(key, (1, 64)), "b": jnp.full((1,), 100.0)}

    def apply(params, x):
        return (x @ params["w"].T + params["b"][None])[:, 0]

    learning = jaxarch.supervised(
        (init, apply),
        (digits().x[:50], digits().y[:50] % 2),
        loss=optax.sigmoid_binary_cross_entropy,
        optimizer=optax.sgd(0.1),
        steps=1,
    )
    params, _ = learning.init(keys()[0])
    mask = {"w": jnp.ones((1, 64), bool), "b": None}
    result = jaxarch.threshold((50,))(keys()[0], learning, Network(params, mask, {}))
    assert float(jaxarch.density(result.mask)) == 0.5
    assert result.params["b"].tolist() == [100.0]


@pytest.mark.long
def test_thresholding_is_a_function_of_the_percentiles_given():
    network = jaxarch.chain(jaxarch.search.dense())(keys()[0], problem().of_run(0))
    result = jaxarch.threshold((75,))(keys()[0], problem().of_run(0), network)
    assert float(jaxarch.density(result.mask)) == pytest.approx(0.25, abs=1e-3)


@pytest.mark.long
def test_a_candidate_whose_loss_is_nan_is_never_chosen():
    # Outputs are divided by their norm, which is 0 when nothing is kept.
    def apply(params, x):
        outputs = (x @ params["w"].T)[:, 0]
        return outputs / jnp.linalg.norm(outputs)

    learning = jaxarch.supervised(
        (lambda key: {"w": jnp.ones((1, 64))}, apply),
        (digits().x[:50], digits().y[:50] % 2),
        loss=optax.sigmoid_binary_cross_entropy,
        optimizer=optax.sgd(0.1),
        steps=1,
    )
    result = thresholded({"w": jnp.linspace(0, 1, 64).reshape(1, 64)}, learning)
    assert np.isnan(result.info["candidates"][-1])
    assert float(result.info["percentile"]) < 100
    assert int(result.info["ties"]) >= 0


def test_outputs_may_be_any_pytree():
    learning = jaxarch.supervised(
        (lambda key: {"w": jnp.ones((1, 64))}, lambda params, x: {"y": x @ params["w"].T, "n": x[:, :1] * 0}),
        (digits().x[:50], digits().y[:50, None] % 2),
        loss=lambda outputs, y: jnp.square(outputs["y"] - y),
        optimizer=optax.sgd(0.1),
        steps=1,
    )
    assert not bool(thresholded({"w": jnp.linspace(0, 1, 64).reshape(1, 64)}, learning).info["constant"])


@pytest.mark.long
def test_a_warm_nonnegative_start_from_negative_weights_is_reported():
    strategy = jaxarch.chain(jaxarch.search.dense(nonnegative=False), jaxarch.retrain("warm"))
    with pytest.warns(jaxarch.NonFiniteWarning, match=r"at step 0; .* nonnegative=False"):
        network, _ = jaxarch.over_seeds(strategy, keys(), problem())
    assert (network.info.failed_at == 0).all()
    free = jaxarch.chain(jaxarch.search.dense(nonnegative=False), jaxarch.retrain("warm", nonnegative=False))
    assert (jaxarch.over_seeds(free, keys(), problem())[0].info.failed_at == -1).all()

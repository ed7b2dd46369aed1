"""Hutchinson scores as a search: by hand, the estimate's mean and variance, and exact sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import keys, problem

import jaxarch
from jaxarch import masks, saliency
from jaxarch.search import hutchinson

WEIGHTS = np.float32([[1.0, -2.0, 0.5]])
FACTORS = np.float32([[1.0, 0.0, 2.0], [3.0, 1.0, -6.0]])
KEY = jax.random.key(0)


def fourth_powers(batch_size):
    """The loss of an example a is `sum_i a_i w_i^4`: g = 4 a w^3, and the Hessian has 12 a w^2, no more."""

    def loss(params, state, batch, key):
        assert key is None  # that is, evaluation
        return (batch @ (params["w"] ** 4)[0]).mean(), state

    descent = jaxarch.Descent(optax.sgd(0.1), steps=1, batch_size=batch_size, sampling="epochs")
    return jaxarch.Problem(lambda key: ({"w": jnp.asarray(WEIGHTS)}, {}), loss, FACTORS, descent)


@pytest.mark.long
@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize(("first_order", "factor"), [(True, 2), (False, 6)])
def test_one_sample_is_exact_where_the_hessian_is_diagonal(batch_size, first_order, factor):
    # Of the mean loss, a is 2, 1/2 and -2: |4 a w^4 - 6 a w^4|, or 6 |a| w^4, of negative ones too.
    search = hutchinson(1 / 3, batches=2 // batch_size, samples=1, first_order=first_order)
    network = jax.jit(search)(KEY, fourth_powers(batch_size))
    expected = factor * np.float32([[2 * 1, 0.5 * 16, 2 / 16]])
    np.testing.assert_allclose(network.info["saliency"]["w"], expected, rtol=1e-6)
    assert network.mask["w"].tolist() == [[False, True, False]]


@pytest.mark.long
def test_an_estimate_is_unbiased_and_has_the_variance_of_the_entries_beside_the_diagonal():
    hessian = jnp.float32([[1.0, 2.0, 0.0], [2.0, -3.0, 1.0], [0.0, 1.0, 4.0]])
    params = {"w": jnp.ones((1, 3)), "bias": jnp.ones(1)}

    def loss(params):
        w = params["w"][0]
        return w @ hessian @ w / 2 + 100 * w.sum() * params["bias"][0]

    def estimate(key):
        return saliency.hessian_diagonal(loss, params, key, samples=4)[1]["w"][0]

    estimates = np.asarray(jax.vmap(estimate)(jax.random.split(KEY, 4000)))
    variances = np.float32([4.0, 5.0, 1.0]) / 4  # the bias, which is not scored, adds nothing
    error = 5 * np.sqrt(variances / len(estimates))
    assert (np.abs(estimates.mean(0) - jnp.diag(hessian)) < error).all()
    np.testing.assert_allclose(estimates.var(0), variances, rtol=0.15)


@pytest.mark.long
def test_batches_have_signs_of_their_own():
    # H is ((0, 1), (1, 0)) in each of two batches: estimates are 1 or -1, their mean 0 for half the keys.
    def loss(params, state, batch, key):
        return params["w"][0, 0] * params["w"][0, 1] * batch.mean(), state

    descent = jaxarch.Descent(optax.sgd(0.1), steps=1)
    learning = jaxarch.Problem(lambda key: ({"w": jnp.ones((1, 2))}, {}), loss, np.ones(4), descent)
    search = hutchinson(0.5, batches=2, samples=1, first_order=False)
    found = jax.vmap(lambda key: search(key, learning).info["saliency"]["w"][0, 0])(jax.random.split(KEY, 20))
    assert sorted(set(found.tolist())) == [0.0, 0.5]


@pytest.mark.long
def test_the_temperature_divides_the_outputs_of_the_loss():
    learning = jaxarch.supervised(
        (lambda key: {"w": jnp.full((1, 1), 3.0)}, lambda params, x: x @ params["w"]),
        (np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)),
        loss=optax.l2_loss,
        optimizer=optax.sgd(0.1),
        steps=1,
    )
    # L = w^2 / (2 T^2): g = w / T^2 and h = 1 / T^2.
    for temperature in (1.0, 2.0):
        found = jax.jit(hutchinson(1.0, temperature=temperature))(KEY, learning).info["saliency"]["w"]
        np.testing.assert_allclose(found, (9 - 9 / 2) / temperature**2, rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("density", [0.013, 0.5])
def test_a_mask_has_exactly_its_size(density):
    network = jax.jit(hutchinson(density, samples=2))(keys()[0], problem().of_run(0))
    size = sum(leaf.size for leaf in jax.tree.leaves(network.mask))
    assert int(masks.connections(network.mask)) == round(density * size)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"densities": 1.5}, r"densities: expected a number in \(0, 1\]"),
        ({"samples": 0}, "samples: expected an integer of at least 1"),
        ({"temperature": 0.0}, "temperature: expected"),
        ({"warm_up": 1.5}, "warm_up: expected an integer of at least 0"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(options, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        hutchinson(**{"densities": 0.5} | options)

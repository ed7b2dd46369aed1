"""GraSP as a search: saliencies by hand, over batches together, and exact sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import keys, problem, same

import jaxarch
from jaxarch import masks, saliency
from jaxarch.search import grasp

WEIGHTS = np.float32([[1.0, -2.0, 0.5]])
FACTORS = np.float32([[1.0, 0.0, 2.0], [3.0, 1.0, -2.0]])


def cubes(batch_size):
    """The loss of an example a is `sum_i a_i w_i^3`: g = 3 a w^2, H = 6 a w, and w H g = 18 a^2 w^4."""

    def loss(params, state, batch, key):
        return (batch @ (params["w"] ** 3)[0]).mean(), state

    descent = jaxarch.Descent(optax.sgd(0.1), steps=1, batch_size=batch_size, sampling="epochs")
    return jaxarch.Problem(lambda key: ({"w": jnp.asarray(WEIGHTS)}, {}), loss, FACTORS, descent)


@pytest.mark.long
def test_a_saliency_is_the_weight_times_the_hessian_times_the_gradient():
    # Of the mean loss, a is 2, 1/2 and 0.
    network = jax.jit(grasp(0.5))(jax.random.key(0), cubes(2))
    np.testing.assert_allclose(network.info["saliency"]["w"], [[18 * 4, 18 / 4 * 16, 0]], rtol=1e-6)


@pytest.mark.long
def test_over_batches_it_is_that_of_their_mean_loss_and_no_mean_of_theirs():
    network = jax.jit(grasp(0.5, batches=2))(jax.random.key(0), cubes(1))
    np.testing.assert_allclose(network.info["saliency"]["w"], [[18 * 4, 18 / 4 * 16, 0]], rtol=1e-6)


def test_the_temperature_divides_the_outputs_of_the_loss_alone():
    learning = jaxarch.supervised(
        (
            lambda key: {"a": jnp.full((1, 1), 2.0), "b": jnp.full((1, 1), 3.0)},
            lambda params, x: x @ params["a"] @ params["b"],
        ),
        (np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)),
        loss=optax.l2_loss,
        optimizer=optax.sgd(0.1),
        steps=1,
    )
    # L = a^2 b^2 / (2 T^2): g = (a b^2, a^2 b) / T^2, H = ((b^2, 2 a b), (2 a b, a^2)) / T^2.
    for temperature in (1.0, 2.0):
        search = grasp(0.5, temperature=temperature)
        found = jax.jit(search)(jax.random.key(0), learning).info["saliency"]
        np.testing.assert_allclose(found["a"], 2 * (9 * 18 + 12 * 12) / temperature**4, rtol=1e-6)
        np.testing.assert_allclose(found["b"], 3 * (12 * 18 + 4 * 12) / temperature**4, rtol=1e-6)


def test_the_temperature_leaves_outputs_that_are_integers():
    learning = jaxarch.supervised(
        (lambda key: {"w": jnp.full((1, 1), 6.0)}, lambda params, x: (x @ params["w"], jnp.full((1, 1), 3))),
        (np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)),
        loss=lambda outputs, y: outputs[0] * outputs[1] - y,
        optimizer=optax.sgd(0.1),
        steps=1,
    )
    assert learning.softened(2.0).objective(*learning.init(jax.random.key(0))) == 6 / 2 * 3


def test_a_temperature_is_refused_where_the_problem_s_loss_takes_none():
    with pytest.raises(jaxarch.ArgumentError, match="temperature: this problem's loss does not take one"):
        jax.jit(grasp(0.5, temperature=200.0))(jax.random.key(0), cubes(1))


def test_the_largest_are_kept_with_their_signs():
    # By its size the first one, without which |g|^2 is larger, would be kept.
    def loss(params, state, batch, key):
        w = params["w"][0]
        return (w[0] * w[1] - 4 * w[1] + w[2] ** 2 / 4) * batch.mean(), state

    descent = jaxarch.Descent(optax.sgd(0.1), steps=1)
    start = {"w": jnp.float32([[2.0, -1.0, 1.0]])}
    learning = jaxarch.Problem(lambda key: (start, {}), loss, jnp.ones(1), descent)
    network = jax.jit(grasp(1 / 3))(jax.random.key(0), learning)
    # g = (-1, -2, 1/2); H g = (-2, -1, 1/4).
    np.testing.assert_allclose(network.info["saliency"]["w"], [[-4, 1, 0.25]])
    assert network.mask["w"].tolist() == [[False, True, False]]


@pytest.mark.long
@pytest.mark.parametrize("density", [0.013, 0.5])
def test_a_mask_has_exactly_its_size(density):
    network = jax.jit(grasp(density))(keys()[0], problem().of_run(0))
    assert int(masks.connections(network.mask)) == round(density * 2 * 64 * 64)


@pytest.mark.long
def test_in_one_s_own_loop_it_gives_the_mask_of_the_search():
    one, key = problem().of_run(0), keys()[0]
    found = jax.jit(grasp(0.3))(key, one)
    params_key, batch_key, loss_key = jax.random.split(key, 3)
    params, state = one.init(params_key)
    batch = one.batch(batch_key, 0)
    scores = saliency.grasp(lambda p: one.loss(p, state, batch, jax.random.fold_in(loss_key, 0))[0], params)
    assert same(masks.keep(scores, 0.3), found.mask)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: grasp(1.5), r"densities: expected a number in \(0, 1\]"),
        (lambda: grasp(0.5, temperature=0.0), "temperature: expected a positive finite number"),
        (lambda: grasp(0.5, batches=0), "batches: expected an integer of at least 1"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(make, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        make()

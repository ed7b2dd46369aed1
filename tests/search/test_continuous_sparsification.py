"""A mask that hardens while weights are trained under it: values and gradients by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import same, straight

import jaxarch
from jaxarch.run import begin
from jaxarch.run._training import step

WEIGHTS, SLOPES, SCORES = np.array([2.0, 3.0]), np.array([1.0, -1.0]), np.array([0.25, -0.5])
KEY = jax.random.key(0)


def search(**settings):
    return jaxarch.search.continuous_sparsification(where="w", **settings)


def learning(steps=4, rate=0.1):
    return straight({"w": WEIGHTS}, {"w": SLOPES}, rate, steps)


def at(training, done, steps=4):
    """The carry of a training after some of its steps, with the scores above."""
    carry = begin(training, KEY, learning(steps), None)
    trainable = {**carry.state.trainable, "scores": {"w": jnp.float32(SCORES)}}
    return carry._replace(state=carry.state._replace(trainable=trainable, step=jnp.int32(done)))


@pytest.mark.parametrize(("done", "beta"), [(0, 1.0), (1, 2.0), (2, 4.0), (4, 16.0)])
def test_beta_grows_from_1_to_its_last_value_by_the_same_factor_at_every_step(done, beta):
    training = search(beta=16.0)
    params = training.params(training.settings, at(training, done).state)
    np.testing.assert_allclose(params["w"], WEIGHTS / (1 + np.exp(-beta * SCORES)), rtol=1e-6)


def test_a_step_is_that_of_the_gradients_by_hand():
    training, strength, beta = search(beta=16.0, strength=0.5), 0.5, 4.0
    mask = 1 / (1 + np.exp(-beta * SCORES))
    carry, loss = step(training, KEY, learning(), at(training, 2), 2)
    assert np.isclose(loss, (SLOPES * mask * WEIGHTS).sum() + strength * mask.sum())
    moved = carry.state.trainable
    np.testing.assert_allclose(moved["weights"]["w"], WEIGHTS - 0.1 * SLOPES * mask, rtol=1e-6)
    slope = (SLOPES * WEIGHTS + strength) * beta * mask * (1 - mask)
    np.testing.assert_allclose(moved["scores"]["w"], SCORES - 0.1 * slope, rtol=1e-6)


def test_beta_may_be_a_function_of_the_step():
    number = jax.jit(search(beta=16.0))(KEY, learning())
    schedule = jax.jit(search(beta=optax.exponential_decay(1.0, 4, 16.0)))(KEY, learning())
    np.testing.assert_allclose(number.info["loss"], schedule.info["loss"], rtol=1e-5)
    constant = jax.jit(search(beta=lambda step: 16.0 + 0 * step))(KEY, learning())
    assert not np.allclose(number.info["loss"], constant.info["loss"], rtol=1e-3)


def test_scores_begin_at_start():
    carry = begin(search(start=-0.25), KEY, learning(), None)
    assert carry.state.trainable["scores"]["w"].tolist() == [-0.25, -0.25]


def test_its_own_mask_is_of_the_positive_scores_and_weights_are_whole_under_it():
    training = search()
    network = training.network(training.settings, at(training, 4).state)
    assert network.mask["w"].tolist() == [True, False]
    assert network.params["w"].tolist() == [2.0, 0.0]


def test_masks_of_a_density_are_of_the_largest_scores():
    training = search(densities=(1.0, 0.5))
    network = training.network(training.settings, at(training, 4).state)
    assert network.mask["w"].tolist() == [True, False]
    assert same(network[jaxarch.ByDensity].weights["w"], jnp.float32(WEIGHTS))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beta": 0.0}, "beta: expected a positive finite number"),
        ({"beta": "fast"}, "beta: expected a positive number"),
        ({"beta": lambda: 1.0}, "beta: expected a number or a function of the step; .*positional argument"),
        ({"beta": lambda step: -1.0}, "beta at step 0: expected a positive finite number, got -1.0"),
        ({"start": np.nan}, "start: expected a finite number"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        search(**settings)


def test_a_schedule_that_ends_below_0_is_refused_before_the_first_step():
    with pytest.raises(jaxarch.ArgumentError, match="beta at step 4: expected a positive finite number"):
        search(beta=optax.linear_schedule(1.0, -1.0, 4))(KEY, learning())

"""Random gates that are closed or open: their distribution, gradients by hand, and noise that is a key's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import Interrupted, interrupt_at, keys, problem, same, straight

import jaxarch
from jaxarch.run import begin
from jaxarch.run._training import step

KEY = jax.random.key(0)
MANY = 40_000


def sigma(x):
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


def search(**settings):
    return jaxarch.search.hard_concrete(where="w", std=0.0, **settings)


def learning(weights, slopes=None, rate=0.1):
    return straight({"w": weights}, {"w": np.ones_like(weights) if slopes is None else slopes}, rate)


def gates(training, done=0, key=KEY):
    """Those of many connections at a step."""
    state = begin(training, key, learning(np.ones(MANY)), None).state
    return np.asarray(training.params(training.settings, state._replace(step=jnp.int32(done)))["w"])


@pytest.mark.parametrize(
    ("mean", "beta", "gamma", "zeta"),
    [(0.0, 2 / 3, -0.1, 1.1), (1.0, 0.5, -0.3, 1.2), (-1.5, 0.8, -0.1, 1.4)],
)
def test_gates_are_closed_and_open_as_often_as_the_distribution_says(mean, beta, gamma, zeta):
    drawn = gates(search(mean=mean, beta=beta, gamma=gamma, zeta=zeta))
    closed = sigma(beta * np.log(-gamma / zeta) - mean)
    opened = sigma(mean - beta * np.log((1 - gamma) / (zeta - 1)))
    half = (0.5 - gamma) / (zeta - gamma)
    below = sigma(beta * np.log(half / (1 - half)) - mean)
    for share, expected in [((drawn == 0), closed), ((drawn == 1), opened), ((drawn <= 0.5), below)]:
        assert abs(share.mean() - expected) < 4 * np.sqrt(expected * (1 - expected) / MANY)


def test_the_penalty_is_the_expected_number_of_gates_that_are_not_closed():
    training = search(mean=0.7, strength=0.01)
    state = begin(training, KEY, learning(np.ones(MANY)), None).state
    expected = MANY * sigma(0.7 - 2 / 3 * np.log(0.1 / 1.1))
    assert np.isclose(training.penalty(training.settings, state), 0.01 * expected, rtol=1e-5)
    assert abs((gates(training) > 0).sum() - expected) < 4 * np.sqrt(MANY) / 2


def test_a_step_is_that_of_the_gradients_by_hand():
    weights, slopes = np.linspace(0.5, 2.0, 50), np.linspace(-1.0, 1.0, 50)
    training = search(mean=0.3, strength=0.05)
    before = begin(training, KEY, learning(weights, slopes), None)
    z = np.float64(training.params(training.settings, before.state)["w"]) / weights
    moved = step(training, KEY, learning(weights, slopes), before, 0)[0].state.trainable
    s = (z + 0.1) / 1.2
    through = np.where((z > 0) & (z < 1 - 1e-6), 1.2 * s * (1 - s) / (2 / 3), 0)
    p = sigma(0.3 - 2 / 3 * np.log(0.1 / 1.1))
    assert 5 < (through > 0).sum() < 45
    np.testing.assert_allclose(moved["weights"]["w"], weights - 0.1 * slopes * z, atol=1e-6)
    np.testing.assert_allclose(
        moved["scores"]["w"], 0.3 - 0.1 * (slopes * weights * through + 0.05 * p * (1 - p)), atol=1e-6
    )


def test_noise_is_drawn_anew_at_every_step_out_of_the_key_and_the_step_alone():
    training = search(mean=0.0)
    first = gates(training)
    assert same(first, gates(training))
    for other in (gates(training, done=1), gates(training, key=jax.random.key(1))):
        assert abs(np.corrcoef(first, other)[0, 1]) < 4 / np.sqrt(MANY)


def test_leaves_of_one_shape_have_noise_of_their_own():
    training = jaxarch.search.hard_concrete(where=["a", "b"], mean=0.0)
    ones = {"a": np.ones(MANY), "b": np.ones(MANY)}
    drawn = training.params(training.settings, begin(training, KEY, straight(ones, ones), None).state)
    assert abs(np.corrcoef(drawn["a"], drawn["b"])[0, 1]) < 4 / np.sqrt(MANY)


def ended(**settings):
    training = search(**settings)
    carry = begin(training, KEY, learning([1.0, 2.0, 4.0, 5.0]), None)
    scores = {"w": jnp.array([0.0, -3.0, 3.0, -2.3])}
    state = carry.state._replace(trainable={**carry.state.trainable, "scores": scores})
    return training.network(training.settings, state)


def test_what_is_found_are_weights_times_gates_without_noise():
    network = ended()
    np.testing.assert_allclose(network.params["w"], [0.5, 0.0, 4.0, 5 * (1.2 * sigma(-2.3) - 0.1)], rtol=1e-5)
    assert network.mask["w"].tolist() == [True, False, True, True]
    assert network.info["own_density"] == 0.75


def test_masks_of_a_density_are_of_the_largest_log_alpha():
    masks = ended(densities=(0.5, 0.25))[jaxarch.ByDensity].masks
    assert masks["0.5"]["w"].tolist() == [True, False, True, False]
    assert masks["0.25"]["w"].tolist() == [False, False, True, False]


def test_initial_scores_have_their_mean_and_standard_deviation():
    training = jaxarch.search.hard_concrete(where="w", mean=1.5, std=0.2)
    scores = begin(training, KEY, learning(np.ones(MANY)), None).state.trainable["scores"]["w"]
    assert abs(scores.mean() - 1.5) < 0.01
    assert abs(scores.std() - 0.2) < 0.01


@pytest.mark.long
def test_a_fit_that_goes_on_has_the_noise_of_one_that_was_not_stopped(tmp_path):
    def learned(**options):
        training = jaxarch.search.hard_concrete(0.5)
        return jaxarch.over_seeds(training, keys(), problem(steps=8, width=8), chunk=4, **options)[0]

    with pytest.raises(Interrupted):
        learned(checkpoint=jaxarch.Checkpoints(tmp_path), progress=interrupt_at(4))
    assert same(learned(checkpoint=jaxarch.Checkpoints(tmp_path)), learned())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beta": 0.0}, "beta: expected a positive finite number"),
        ({"gamma": 0.0}, "gamma: expected a negative number, got 0.0"),
        ({"zeta": 1.0}, "zeta: expected a number above 1, got 1.0"),
        ({"mean": np.inf}, "mean: expected a finite number"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.search.hard_concrete(**settings)


def test_a_negative_std_is_refused():
    with pytest.raises(jaxarch.ArgumentError, match="std: expected a finite number of at least 0"):
        jaxarch.search.hard_concrete(std=-1.0)

"""Thresholds that are learned with the weights under them: values and gradients by hand."""

import jax.numpy as jnp
import numpy as np
import pytest
from small import straight

import jaxarch
from jaxarch.run import begin
from jaxarch.run._training import step

WEIGHTS, SLOPES = [1.0, -0.5, 0.2], [1.0, 2.0, 4.0]
QUARTER = float(np.log(1 / 3))
"""A score whose sigmoid is 1/4."""


def stepped(rate=0.1, **settings):
    """The carry after a step, and its loss."""
    search = jaxarch.search.soft_threshold(where="w", **settings)
    problem = straight({"w": WEIGHTS}, {"w": SLOPES}, rate)
    return step(search, jnp.zeros(2, jnp.uint32), problem, carry_of(search, problem), 0)


def carry_of(search, problem):
    return begin(search, jnp.zeros(2, jnp.uint32), problem, None)


def test_weights_shrink_by_the_threshold_and_those_below_are_0():
    search = jaxarch.search.soft_threshold(where="w", start=QUARTER)
    state = carry_of(search, straight({"w": WEIGHTS}, {"w": SLOPES})).state
    np.testing.assert_allclose(search.params(search.settings, state)["w"], [0.75, -0.25, 0.0], rtol=1e-6)


@pytest.mark.long
def test_the_loss_is_that_of_the_shrunk_weights_with_the_decay_of_weights_and_scores():
    _, loss = stepped(start=QUARTER, strength=0.2)
    decay = 0.2 / 2 * (1 + 0.25 + 0.04 + QUARTER**2)
    assert np.isclose(loss, 0.75 * 1 - 0.25 * 2 + decay)


@pytest.mark.long
def test_a_step_is_that_of_the_gradients_by_hand():
    moved = stepped(start=QUARTER, strength=0.2)[0].state.trainable
    np.testing.assert_allclose(moved["weights"]["w"], [1 - 0.12, -0.5 - 0.19, 0.2 - 0.004], rtol=1e-6)
    # -g'(s) (1 - 2), with g' = 1/4 * 3/4, and lambda s.
    np.testing.assert_allclose(moved["scores"]["w"], QUARTER - 0.1 * (3 / 16 + 0.2 * QUARTER), rtol=1e-6)


def test_a_threshold_may_be_an_exponential():
    moved = stepped(start=QUARTER, strength=0.0, function="exp")[0].state.trainable
    np.testing.assert_allclose(moved["weights"]["w"], [0.9, -0.7, 0.2], rtol=1e-6)
    np.testing.assert_allclose(moved["scores"]["w"], QUARTER - 0.1 * (1 / 3), rtol=1e-6)


def both(**settings):
    """A search over two leaves whose thresholds are 1/4 and 1/2, at its end."""
    search = jaxarch.search.soft_threshold(where=["a", "b"], **settings)
    weights = {"a": [0.6, -0.3, 0.1], "b": [0.7, 0.4, -0.52], "c": [3.0]}
    state = carry_of(search, straight(weights, weights)).state
    state.trainable["scores"].update(a=jnp.float32(QUARTER), b=jnp.float32(0.0))
    return search.network(search.settings, state)


def test_its_own_mask_is_of_the_weights_above_their_threshold():
    network = both()
    assert {name: leaf.astype(int).tolist() for name, leaf in network.mask.items() if name != "c"} == {
        "a": [1, 1, 0],
        "b": [1, 0, 1],
    }
    np.testing.assert_allclose(network.params["b"], [0.2, 0.0, -0.02], atol=1e-6)
    assert network.params["c"].tolist() == [3.0]
    np.testing.assert_allclose([network.info["thresholds"][name] for name in "ab"], [0.25, 0.5])


def test_masks_of_a_density_are_of_the_weights_furthest_above_their_threshold():
    masks = both(densities=(0.5, 1.0))[jaxarch.ByDensity].masks
    # .35, .05 and -.15 above it in a; .2, -.1 and .02 in b, whose weights are larger.
    assert {name: masks["0.5"][name].astype(int).tolist() for name in "ab"} == {
        "a": [1, 1, 0],
        "b": [1, 0, 0],
    }
    assert all(masks["1"][name].all() for name in "ab")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"function": "relu"}, "function: expected 'sigmoid' or 'exp', got 'relu'"),
        ({"start": -np.inf}, "start: expected a finite number"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.search.soft_threshold(**settings)

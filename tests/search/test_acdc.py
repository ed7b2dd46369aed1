"""Phases with all connections and phases under a mask: when they come, and what each keeps, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import straight

import jaxarch
from jaxarch.run import begin
from jaxarch.run._training import step

KEY = jax.random.key(0)


def states(training, problem):
    """The state after every step, each leaf with a leading axis of steps."""

    def one(carry, index):
        carry, _ = step(training, KEY, problem, carry, index)
        return carry, carry.state

    steps = jnp.arange(training.on(problem).descent.steps)
    return jax.jit(lambda: jax.lax.scan(one, begin(training, KEY, problem, None), steps)[1])()


def kept(steps, **settings):
    """The number of connections, out of 100, after every step."""
    weights = {"w": np.arange(1.0, 101.0)}
    training = jaxarch.search.acdc(0.1, where="w", **settings)
    memory = states(training, straight(weights, weights, rate=0.0, steps=steps)).memory
    return np.asarray(memory["w"].sum(1)).tolist()


def phases(*lengths):
    """Numbers of connections in phases of these lengths, the first one with all of them."""
    return [count for index, length in enumerate(lengths) for count in [10 if index % 2 else 100] * length]


@pytest.mark.long
def test_its_phases_are_those_of_the_authors_on_imagenet():
    # Compressed in epochs 10 to 15, 20 to 25, ... 70 to 75 and 85 to 100, of 100.
    assert kept(100) == phases(10, *[5] * 13, 10, 15)


def test_its_phases_are_those_of_the_authors_on_cifar_10():
    # Of 20 epochs, compressed from 10, 50, 90 and 130 on, and from 170 to the 200th: here an epoch is 1/10.
    assert kept(40, begin=0.1, end=0.9, every=4) == phases(4, *[4] * 8, 4)


def test_without_a_warm_up_the_first_mask_is_that_of_the_initial_weights():
    assert kept(16, begin=0.0, end=0.5, every=4) == phases(0, 4, 4, 8)


@pytest.mark.long
def test_a_single_phase_before_the_last_one_has_all_connections():
    assert kept(2) == phases(1, 1)


@pytest.mark.long
def test_a_compressed_phase_keeps_the_largest_weights_that_all_connections_have_grown_to():
    training = jaxarch.search.acdc(0.5, begin=0.0, end=0.5, every=2, where="w")
    found = states(training, straight({"w": [4.0, -3.0, 2.0, 1.0]}, {"w": [1.0, -1.0, -3.0, 1.5]}, steps=8))
    np.testing.assert_allclose(
        found.trainable["w"],
        [
            [3, -2, 0, 0],
            [2, -1, 0, 0],
            [2, -1, 0, 0],  # All connections come back, in place of a step.
            [1, 0, 3, -1.5],
            [0, 0, 3, -1.5],  # The two largest are others now.
            [0, 0, 6, -3],
            [0, 0, 9, -4.5],
            [0, 0, 12, -6],
        ],
    )
    assert np.asarray(found.memory["w"])[[1, 3, 7]].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"density": 0.0}, r"density: expected a number in \(0, 1\]"),
        ({"begin": 1.0}, r"begin: expected a fraction of the steps, in \[0, 1\), got 1.0"),
        ({"end": 0.05}, "end: expected more than begin = 0.1, got 0.05"),
        (
            {"every": 40},
            "steps: AC/DC would never change its mask in 40 steps, with every=40; give more",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.search.acdc(where="w", **settings)(KEY, straight({"w": [1.0]}, {"w": [1.0]}, steps=40))

"""Top-KAST: which weights the network has, which of them move, and by how much, by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import descent_of, straight

import jaxarch

KEY = jax.random.key(0)


def noisy(optimizer, size=200, steps=30):
    """A problem of one leaf whose gradient is drawn anew at every step."""

    def loss(params, state, batch, key):
        return jnp.sum(params["w"] * jax.random.normal(key, (size,))), state

    weights = np.random.default_rng(0).normal(size=size)
    problem = straight({"w": weights}, {"w": weights}, steps=steps)
    descent = dataclasses.replace(problem.descent, optimizer=optimizer)
    return dataclasses.replace(problem, loss=loss, descent=descent)


def test_the_larger_set_moves_and_its_weights_take_over_once_they_are_the_largest():
    training = jaxarch.search.top_kast(0.25, exploration=0.25, strength=0.0, every=1, where="w")
    found, losses = descent_of(training, straight({"w": [4, 3, 2, 1]}, {"w": [1, -1, 5, 5]}, steps=5))
    assert found.trainable["w"].tolist() == [
        [4, 3, 2, 1],
        [3, 4, 2, 1],
        [2, 5, 2, 1],  # Of the two weights of 2, the first one is in the larger set.
        [1, 6, 2, 1],
        [1, 7, -3, 1],
        [1, 8, -8, 1],
    ]
    # The network has a single weight: 4 at a slope of 1, then the second one at a slope of -1.
    assert losses.tolist() == [4, -4, -5, -6, -7]
    assert found.memory.forward["w"].argmax(1).tolist() == [0, 1, 1, 1, 1, 1]
    larger = found.memory.backward["w"].astype(int).tolist()
    assert larger == [[1, 1, 0, 0]] * 3 + [[0, 1, 1, 0]] * 3


@pytest.mark.long
def test_the_network_has_the_last_mask_that_the_loss_has_seen():
    training = jaxarch.search.top_kast(0.25, exploration=0.25, strength=0.0, every=1, where="w")
    network = training(KEY, straight({"w": [4, 3, 2, 1]}, {"w": [1, -1, 5, 5]}, steps=5))
    # The third weight has just become as large as the second one.
    assert network.params["w"].tolist() == [0, 8, 0, 0]
    assert network.mask["w"].tolist() == [False, True, False, False]


def test_the_penalty_is_larger_by_one_over_the_density_outside_of_the_network():
    training = jaxarch.search.top_kast(0.25, exploration=0.25, strength=0.5, every=1, where="w")
    problem = straight({"w": [4, 3, 2, 1], "b": [5]}, {"w": [0, 0, 0, 0], "b": [0]}, steps=2)
    found, losses = descent_of(training, problem)
    # .5 / 2 (4^2 + 3^2 / .25), then .5 / 2 (3^2 + 2^2 / .25). Slopes are .5 w and .5 w / .25.
    np.testing.assert_allclose(losses, [13, 6.25])
    assert found.trainable["w"][:3].tolist() == [[4, 3, 2, 1], [2, -3, 2, 1], [-2, -1.5, 2, 1]]
    assert found.trainable["b"].ravel().tolist() == [5, 5, 5]


def in_numpy(weights, slopes, rate, strength, few, more):
    """Steps of plain gradient descent by the formulas, with sorting in place of masks."""
    rows = [weights]
    for slope in slopes:
        order = np.argsort(-np.abs(weights), kind="stable")
        gradient = np.zeros_like(weights)
        gradient[order[:few]] = slope[order[:few]] + strength * weights[order[:few]]
        others = order[few:more]
        gradient[others] = slope[others] + strength * weights[others] * len(weights) / few
        weights = weights - rate * gradient
        rows.append(weights)
    return np.array(rows)


def test_steps_are_those_of_the_formulas_in_numpy():
    weights, slopes = np.random.default_rng(1).normal(size=(2, 40))
    training = jaxarch.search.top_kast(0.2, exploration=0.3, strength=0.2, every=1, where="w")
    found, _ = descent_of(training, straight({"w": weights}, {"w": slopes}, rate=0.1, steps=12))
    expected = in_numpy(weights, [slopes] * 12, 0.1, 0.2, 8, 20)
    np.testing.assert_allclose(found.trainable["w"], expected, rtol=1e-4, atol=1e-5)
    assert (found.memory.forward["w"][0] != found.memory.forward["w"][-1]).any()


@pytest.mark.parametrize("optimizer", [optax.sgd(0.3, momentum=0.9), optax.adamw(0.1, weight_decay=0.1)])
def test_exactly_the_larger_set_moves_whatever_the_moments_are(optimizer):
    training = jaxarch.search.top_kast(0.1, exploration=0.2, every=3, where="w")
    found, _ = descent_of(training, noisy(optimizer))
    forward, backward = (np.asarray(leaf["w"]) for leaf in found.memory)
    assert (forward.sum(1) == 20).all() and (backward.sum(1) == 60).all()
    assert not (forward & ~backward).any()
    weights = np.asarray(found.trainable["w"])
    assert ((weights[1:] != weights[:-1]) == backward[:-1]).all()
    # Weights leave the larger set with moments, and others join it.
    assert backward.any(0).sum() > 60
    for chosen, sizes in zip(forward[:30:3], np.abs(weights[:30:3]), strict=True):
        assert sizes[chosen].min() >= sizes[~chosen].max()


def test_sets_change_every_few_steps_and_not_after_the_last_one():
    training = jaxarch.search.top_kast(0.1, exploration=0.2, every=5, where="w")
    rows = np.asarray(descent_of(training, noisy(optax.sgd(0.3)))[0].memory.backward["w"])
    assert np.flatnonzero((rows[1:] != rows[:-1]).any(1)).tolist() == [4, 9, 14, 19, 24]


@pytest.mark.parametrize(("until", "last"), [(0.0, 0), (0.5, 15), (1.0, 31)])
def test_exploration_stops_after_a_share_of_the_steps(until, last):
    training = jaxarch.search.top_kast(0.1, exploration=0.2, until=until, every=3, where="w")
    masks = descent_of(training, noisy(optax.sgd(0.3)))[0].memory
    counts = np.asarray(masks.backward["w"].sum(1)).tolist()
    assert counts == [60] * last + [20] * (31 - last)


def test_exploration_of_all_is_dense_training_of_what_is_not_used():
    training = jaxarch.search.top_kast(0.5, exploration=1.0, strength=0.0, every=1, where="w")
    found, _ = descent_of(training, straight({"w": [4, 3, 2, 1]}, {"w": [1, 1, 1, 1]}, rate=0.5, steps=2))
    assert found.memory.backward["w"].all()
    assert found.trainable["w"].tolist() == [[4, 3, 2, 1], [3.5, 2.5, 1.5, 0.5], [3, 2, 1, 0]]


@pytest.mark.long
def test_each_leaf_has_its_share_unless_all_are_compared():
    weights = {"a": [8.0, 7.0, 6.0, 5.0], "b": [4.0, 3.0, 2.0, 1.0]}
    problem = straight(weights, weights, rate=0.0, steps=3)
    for scope, kept in {"layer": [2, 2], "global": [4, 0]}.items():
        network = jaxarch.search.top_kast(0.5, scope=scope, where=["a", "b"])(KEY, problem)
        assert [int(leaf.sum()) for leaf in network.mask.values()] == kept


@pytest.mark.long
def test_weights_of_another_dtype_are_compared_under_strict_promotion():
    def loss(params, state, batch, key):
        return jnp.sum(params["w"]), state

    problem = straight({"w": [4, 3, 2, 1]}, {"w": [0, 0, 0, 0]}, steps=4)
    narrow = {"w": jnp.array([4, 3, 2, 1], jnp.bfloat16)}
    problem = dataclasses.replace(problem, init=lambda key: (narrow, {}), loss=loss)
    with jax.numpy_dtype_promotion("strict"):
        network = jaxarch.search.top_kast(0.5, every=2, where="w")(KEY, problem)
    assert network.params["w"].dtype == jnp.bfloat16
    assert network.mask["w"].sum() == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"density": 0.0}, r"density: expected a number in \(0, 1\]"),
        ({"exploration": 1.5}, r"exploration: expected a number in \[0, 1\], got 1.5"),
        ({"strength": -1.0}, "strength: expected"),
        ({"until": 2.0}, r"until: expected a fraction of the steps, in \[0, 1\], got 2.0"),
        ({"every": 9}, "steps: Top-KAST would never change its mask in 9 steps, with every=9; give more"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.search.top_kast(where="w", **settings)(KEY, straight({"w": [1.0]}, {"w": [1.0]}, steps=9))

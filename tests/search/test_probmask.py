"""Probabilities under a bound on their sum: the projection, a step by hand, samples of a step, sizes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import straight

import jaxarch
from jaxarch.run import begin
from jaxarch.run._training import step
from jaxarch.search._probmask import _projected
from jaxarch.search._scored import logistic_noise

KEY = jax.random.key(0)
MANY = 40_000


def search(density=0.5, **settings):
    return jaxarch.search.probmask(density, where="w", **settings)


def after(training, probabilities, done, problem):
    """The carry of a training after some of its steps, with some probabilities."""

    @jax.jit
    def changed(probabilities, done):
        carry = begin(training, KEY, problem, None)
        trainable = {**carry.state.trainable, "scores": {"w": probabilities}}
        return carry._replace(state=carry.state._replace(trainable=trainable, step=done))

    return changed(np.float32(probabilities), np.int32(done))


def next_step(training, problem, carry, index):
    return jax.jit(lambda carry, index: step(training, KEY, problem, carry, index))(carry, index)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        # .9 + .6 + .3 + .1 = 1.9, and 1.2 and -.2 are outside of [0, 1].
        (0.9, {"a": [1.0, 0.9, 0.6], "b": [0.3, 0.1, 0.0]}),
        # (1.2 - v) + (.9 - v) + (.6 - v) + (.3 - v) = 1.8 at v = .3.
        (0.3, {"a": [0.9, 0.6, 0.3], "b": [0.0, 0.0, 0.0]}),
        # 1 + (.9 - v) + (.6 - v) + (.3 - v) = 2.4 at v = .1333: the first one stays at 1.
        (0.4, {"a": [1.0, 0.7667, 0.4667], "b": [0.1667, 0.0, 0.0]}),
    ],
)
def test_the_projection_takes_the_same_from_all_and_clips_by_hand(share, expected):
    scores = {"a": jnp.array([1.2, 0.9, 0.6]), "b": jnp.array([0.3, 0.1, -0.2])}
    found = _projected(scores, jnp.float32(share))
    for name, leaf in expected.items():
        np.testing.assert_allclose(found[name], leaf, atol=1e-4)


def test_no_point_of_the_set_is_nearer_than_the_projection():
    rng = np.random.default_rng(0)
    far = rng.normal(0.5, 1.0, 50).astype(np.float32)
    found = np.asarray(_projected({"w": jnp.asarray(far)}, jnp.float32(0.3))["w"])
    assert found.min() >= 0 and found.max() <= 1 and abs(found.sum() - 15) < 1e-4
    others = rng.dirichlet(np.ones(50), 200) * 15
    others = np.clip(others, 0, 1)  # their sums are at most 15
    # The angle between the way to the projection and the way on to any other point is obtuse.
    assert ((others - found) @ (far - found) < 1e-3).all()


def noise_of(done, sample):
    @jax.jit
    def drawn(done, sample):
        key = jax.random.fold_in(begin(search(), KEY, ones(), None).state.fixed.key, done)
        return logistic_noise(jax.random.fold_in(key, sample), {"w": jnp.zeros(2)})["w"]

    return np.asarray(drawn(done, sample), float)


def ones(steps=10):
    return straight({"w": [3.0, 5.0]}, {"w": [1.0, -2.0]}, rate=0.1, steps=steps)


@pytest.mark.long
def test_a_step_is_that_of_the_mean_gradient_of_its_samples_by_hand():
    s, w, slopes = np.array([0.4, 0.5]), np.array([3.0, 5.0]), np.array([1.0, -2.0])
    training = search(0.47, samples=2, temperature=0.2)
    moved, loss = next_step(training, ones(), after(training, s, 5, ones()), 5)
    gates = [1 / (1 + np.exp(-(np.log(s / (1 - s)) + noise_of(5, sample)) / 0.6)) for sample in (0, 1)]
    np.testing.assert_allclose(loss, np.mean([(slopes * w * m).sum() for m in gates]), rtol=1e-5)
    np.testing.assert_allclose(
        moved.state.trainable["weights"]["w"], w - 0.1 * slopes * np.mean(gates, axis=0), rtol=1e-5
    )
    by_s = np.mean([slopes * w * m * (1 - m) / 0.6 / (s * (1 - s)) for m in gates], axis=0)
    free = np.clip(s - 0.1 * by_s, 0, 1)
    excess = (free.sum() - 0.47 * 2) / 2
    assert 0 < excess < free.min()
    np.testing.assert_allclose(moved.state.trainable["scores"]["w"], free - excess, rtol=1e-4)


@pytest.mark.parametrize(
    ("done", "expected"), [(0, 1.0), (15, 1.0), (37, 0.2 + 0.8 * 0.5**3), (59, 0.2), (99, 0.2)]
)
def test_the_bound_on_the_mean_falls_as_the_cube(done, expected):
    # After the step, at shares .16, .38 and .6 of 100 steps.
    weights = {"w": np.ones(1000)}
    problem = straight(weights, {"w": np.zeros(1000)}, steps=100)
    training = search(0.2)
    moved, _ = next_step(training, problem, after(training, np.ones(1000), done, problem), done)
    np.testing.assert_allclose(moved.state.trainable["scores"]["w"].mean(), expected, rtol=1e-5)


@pytest.mark.long
def test_at_a_low_temperature_gates_are_open_as_often_as_their_probability_says():
    problem = straight({"w": np.ones(MANY)}, {"w": np.ones(MANY)}, steps=1000)
    training = search(temperature=1e-3)
    for s in (0.03, 0.4, 0.9):
        state = after(training, np.full(MANY, s), 999, problem).state
        gates = np.asarray(training.params(training.settings, state)["w"])
        assert abs((gates > 0.5).mean() - s) < 4 * np.sqrt(s * (1 - s) / MANY)
        assert abs(gates.mean() - s) < 5e-3 + 4 * np.sqrt(s * (1 - s) / MANY)


@pytest.mark.long
def test_probabilities_of_0_and_1_have_a_gradient():
    problem = straight({"w": [1.0, 1.0]}, {"w": [1.0, -1.0]}, rate=1e-2, steps=1000)
    training = search(1.0)
    moved, _ = step(training, KEY, problem, after(training, [1.0, 0.0], 0, problem), 0)
    assert moved.state.trainable["scores"]["w"][0] < 1
    assert moved.state.trainable["scores"]["w"][1] > 0


@pytest.mark.long
def test_a_model_s_state_goes_from_sample_to_sample():
    def loss(params, state, batch, key):
        return params["w"].sum(), state + 1

    counting = dataclasses.replace(ones(), init=lambda key: ({"w": jnp.ones(2)}, jnp.zeros(())), loss=loss)
    training = search(samples=3)
    carry, _ = step(training, KEY, counting, begin(training, KEY, counting, None), 0)
    assert carry.state.model == 3


TWO_LEAVES = straight(*[{"w": np.linspace(-1, 1, 777), "v": np.linspace(1, 2, 55)}] * 2, steps=5)


@pytest.mark.long
def test_the_mask_has_exactly_the_size_that_was_asked_for_and_the_largest_probabilities():
    densities = [0.013, 0.21, 1.0]

    def found(density):
        network = jaxarch.search.probmask(density, where=["w", "v"], optimizer=optax.adam(0.1))(
            KEY, TWO_LEAVES
        )
        return network.mask, network.info["probabilities"]

    masks, probabilities = jax.jit(jax.vmap(found))(jnp.array(densities))
    flat, s = (np.hstack([np.asarray(tree[name]) for name in ("w", "v")]) for tree in (masks, probabilities))
    assert flat.sum(1).tolist() == [round(density * 832) for density in densities]
    assert (s.mean(1) <= np.array(densities) + 1e-5).all() and s.min() >= 0 and s.max() <= 1
    for row, values in zip(flat[:2], s[:2], strict=True):
        assert values[row].min() >= values[~row].max()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"density": 0.0}, r"density: expected a number in \(0, 1\]"),
        ({"begin": 0.7}, "end: expected more than begin = 0.7, got 0.6"),
        ({"temperature": 0.0}, "temperature: expected a positive finite number"),
        ({"samples": 0}, "samples: expected an integer of at least 1, got 0"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        search(**settings)

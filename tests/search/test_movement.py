"""Connections that are kept while their weights move away from 0: gradients, densities on the way, sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import straight

import jaxarch
from jaxarch.run import begin
from jaxarch.run._training import step

KEY = jax.random.key(0)


def search(density=0.5, **settings):
    return jaxarch.search.movement(density, where="w", **settings)


def after(training, scores, done, problem):
    """The carry of a training after some of its steps, with some scores."""
    carry = begin(training, KEY, problem, None)
    trainable = {**carry.state.trainable, "scores": {"w": jnp.float32(scores)}}
    return carry._replace(state=carry.state._replace(trainable=trainable, step=jnp.int32(done)))


@pytest.mark.long
def test_scores_get_the_gradient_of_what_is_pruned_too_and_weights_do_not():
    problem = straight({"w": [3.0, 5.0]}, {"w": [1.0, -2.0]}, rate=0.1, steps=10)
    training = search()
    moved, loss = step(training, KEY, problem, after(training, [2.0, 1.0], 9, problem), 9)
    assert loss == 3
    np.testing.assert_allclose(moved.state.trainable["weights"]["w"], [2.9, 5.0], rtol=1e-6)
    np.testing.assert_allclose(moved.state.trainable["scores"]["w"], [2 - 0.1 * 3, 1 + 0.1 * 10], rtol=1e-6)


@pytest.mark.long
def test_scores_add_up_how_far_weights_move_away_from_0():
    problem = straight({"w": [3.0, -5.0]}, {"w": [1.0, 1.0]}, rate=0.1, steps=2)
    training = search(1.0)
    carry = begin(training, KEY, problem, None)
    assert carry.state.trainable["scores"]["w"].tolist() == [0, 0]
    for index in range(2):
        carry, _ = step(training, KEY, problem, carry, index)
    np.testing.assert_allclose(
        carry.state.trainable["scores"]["w"], [-0.1 * (3 + 2.9), 0.1 * (5 + 5.1)], rtol=1e-6
    )


def kept(training, done, steps=100, size=1000):
    """How many connections are there at a step, of scores that are all different."""
    ones = {"w": np.ones(size)}
    problem = straight(ones, ones, steps=steps)
    state = after(training, np.random.default_rng(0).normal(size=size), done, problem).state
    return int((training.params(training.settings, state)["w"] != 0).sum())


@pytest.mark.parametrize(
    ("done", "expected"), [(0, 1000), (10, 1000), (24, 610), (45, 300), (66, 206), (80, 200), (99, 200)]
)
def test_the_density_falls_as_the_cube_between_warm_up_and_cool_down(done, expected):
    # At a fifth, a half and four fifths of the way, .2 + .8 (.8^3, .5^3, .2^3).
    assert kept(search(0.2), done) == expected


@pytest.mark.parametrize(("done", "expected"), [(49, 1000), (50, 1000), (51, 200)])
def test_warm_up_and_cool_down_may_be_all_there_is(done, expected):
    assert kept(search(0.2, warmup=0.5, cooldown=0.5), done) == expected


def test_the_density_may_be_a_function_of_the_step():
    training = search(optax.linear_schedule(1.0, 0.2, 80))
    assert [kept(training, done) for done in (0, 40, 80)] == [1000, 600, 200]


SCORES = {"a": [9.0, 8.0, 7.0, 6.0, 5.0], "b": [4.0, 3.0, 2.0, 1.0, 0.0, -1.0]}


def ended(density, **settings):
    training = jaxarch.search.movement(density, **settings, where=["a", "b"])
    carry = begin(training, KEY, straight(SCORES, SCORES), None)
    scores = {name: jnp.array(leaf) for name, leaf in SCORES.items()}
    state = carry.state._replace(trainable={**carry.state.trainable, "scores": scores})
    network = training.network(training.settings, state)
    return {name: leaf.astype(int).tolist() for name, leaf in network.mask.items()}


def test_the_largest_scores_are_kept_of_every_leaf_or_of_all():
    assert ended(0.4) == {"a": [1, 1, 0, 0, 0], "b": [1, 1, 0, 0, 0, 0]}
    assert ended(0.4, scope="global") == {"a": [1, 1, 1, 1, 0], "b": [0] * 6}


TWO_LEAVES = straight(*[{"w": np.linspace(-1, 1, 777), "v": np.linspace(1, 2, 55)}] * 2, steps=5)


def sizes(density, scope):
    network = jaxarch.search.movement(density, scope=scope, where=["w", "v"])(KEY, TWO_LEAVES)
    return jaxarch.masks.connections(network.mask)


@pytest.mark.parametrize("scope", ["global", "layer"])
@pytest.mark.parametrize("density", [0.013, 0.21])
def test_the_mask_has_exactly_the_size_that_was_asked_for(scope, density):
    assert jax.jit(lambda: sizes(density, scope))() == round(density * 832)


@pytest.mark.long
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_so_it_has_for_traced_densities(scope):
    densities = [0.013, 0.21, 0.5, 1.0]
    found = jax.jit(jax.vmap(lambda density: sizes(density, scope)))(jnp.array(densities))
    assert found.tolist() == [round(density * 832) for density in densities]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"density": 0.0}, r"density: expected a number in \(0, 1\]"),
        ({"density": "half"}, r"density: expected a number in \(0, 1\]"),
        ({"density": lambda step: 0.5}, "density at step 0: expected 1, .*; got 0.5"),
        ({"density": lambda: 0.5}, "density: expected a number or a function of the step"),
        (
            {"density": optax.linear_schedule(1.0, 0.5, 9), "warmup": 0.1},
            "warmup: the density is already a function",
        ),
        (
            {"density": optax.linear_schedule(1.0, 0.5, 9), "cooldown": 0.1},
            "cooldown: the density is already a",
        ),
        ({"warmup": -0.1}, "warmup: expected a finite number of at least 0"),
        ({"warmup": 0.9}, "warmup: expected at most 1 - cooldown, with cooldown=0.2, got 0.9"),
        ({"scope": "erk"}, "scope: expected 'global' or 'layer', got 'erk'"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        search(**settings)


def test_a_schedule_that_ends_at_0_is_refused_before_the_first_step():
    problem = straight({"w": [3.0, 5.0]}, {"w": [1.0, -2.0]}, steps=4)
    with pytest.raises(jaxarch.ArgumentError, match=r"density at step 4: expected a number in \(0, 1\]"):
        search(optax.linear_schedule(1.0, 0.0, 4))(KEY, problem)

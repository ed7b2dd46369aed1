"""Scores that are clipped: the mask stays within [eps, 1 - eps], under any optimiser and in any loop."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import keys, problem, same, straight

import jaxarch
from jaxarch import masks, optim

HARD = 50.0
OPTIMIZERS = {
    "sgd": optax.sgd(1.0),
    "momentum": optax.sgd(0.3, momentum=0.9),
    "adam": optax.adam(0.5),
    "MultiSteps": optax.MultiSteps(optax.sgd(3.0), 2),
}


def limit(clip, hard=HARD):
    return np.log((1 - clip) / clip) / hard


def largest(scores):
    return max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(scores))


def test_the_mask_of_clipped_scores_ends_where_it_is_said_to():
    scores = {"w": jnp.linspace(-9, 9, 7), "b": None}
    for clip in (1e-6, 0.01, 0.49):
        mask = masks.soft_mask(masks.clip_scores(scores, clip, HARD), HARD, 5.0)["w"]
        np.testing.assert_allclose(mask, jnp.where(scores["w"] > 0, 1 - clip, clip).at[3].set(0.5), rtol=1e-5)


def test_scores_inside_of_the_box_are_what_they_were():
    scores = {"w": jnp.linspace(-0.9, 0.9, 8) * limit(0.01)}
    assert same(masks.clip_scores(scores, 0.01, HARD), scores)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_scores_stay_in_the_box_and_come_to_its_edges_under_any_optimiser(name):
    tx = optax.chain(OPTIMIZERS[name], optim.clip_scores(0.01, HARD))
    scores = masks.clip_scores({"w": jnp.array([-0.2, 0.0, 0.3]), "b": None}, 0.01, HARD)

    @jax.jit
    def step(scores, state, index):
        gradient = {"w": jnp.array([1.0, -1.0, 1.0]) * jnp.where(index < 6, 1, -1), "b": None}
        updates, state = tx.update(gradient, state, scores)
        return optax.apply_updates(scores, updates), state

    state, seen = tx.init(scores), []
    for index in range(24):
        scores, state = step(scores, state, index)
        seen.append(scores["w"])
    assert largest(seen) <= limit(0.01) * (1 + 1e-6)
    for sign in (-1, 1):
        assert (jnp.stack(seen) * sign).max() == pytest.approx(limit(0.01), rel=1e-6)


def test_a_step_within_the_box_is_the_optimiser_s_own():
    scores, gradient = jnp.array([-0.01, 0.02]), jnp.array([0.3, -0.1])
    plain = optax.sgd(0.1)
    tx = optax.chain(plain, optim.clip_scores(1e-4, HARD))
    after, _ = tx.update(gradient, tx.init(scores), scores)
    expected, _ = plain.update(gradient, plain.init(scores), scores)
    np.testing.assert_allclose(after, expected, rtol=1e-6)


def test_a_grid_of_clips_and_temperatures_is_one_vmap():
    scores = jnp.array([-3.0, 0.01, 3.0])
    clips, hards = jnp.array([0.01, 0.1]), jnp.array([10.0, 50.0])

    def after(clip, hard):
        return optim.clip_scores(clip, hard).update(jnp.ones(3), optax.EmptyState(), scores)[0]

    mapped = jax.jit(jax.vmap(after))(clips, hards)
    np.testing.assert_allclose(mapped, [after(0.01, 10.0), after(0.1, 50.0)], rtol=1e-6)


@pytest.mark.parametrize("clip", [0.0, 0.5, -0.1, float("nan"), "few"])
def test_a_clip_that_is_none_is_refused_by_name(clip):
    for call in (
        lambda: masks.clip_scores({"w": jnp.ones(2)}, clip, HARD),
        lambda: optim.clip_scores(clip, HARD),
        lambda: jaxarch.search.two_temperature(clip=clip),
    ):
        with pytest.raises(jaxarch.ArgumentError, match="clip: expected a"):
            call()


def test_the_transformation_needs_the_scores():
    tx = optim.clip_scores(0.1, HARD)
    with pytest.raises(jaxarch.ArgumentError, match="params: clip_scores needs the scores"):
        tx.update(jnp.ones(2), tx.init(jnp.ones(2)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"density": 0.5}, "so a density cannot rank them"), ({"units": "2:4"}, "so N:M cannot rank them")],
)
def test_a_clip_goes_with_nothing_that_compares_scores(settings, message):
    with pytest.raises(jaxarch.ArgumentError, match=f"clip: .* {message}"):
        jaxarch.search.two_temperature(clip=0.1, **settings)


@pytest.mark.long
def test_a_search_begins_and_stays_in_the_box():
    search, key, learning = jaxarch.search.two_temperature(clip=0.02), keys()[0], problem(rate=30.0).of_run(0)
    begun = search.init(search.settings, key, learning, None).trainable
    assert largest(begun) == pytest.approx(limit(0.02), rel=1e-6)
    network = search(key, learning)
    assert largest(network.info["scores"]) == pytest.approx(limit(0.02), rel=1e-6)
    assert same(network.mask, masks.hard_mask(network.info["scores"]))


def test_a_search_in_a_box_that_it_never_leaves_is_the_one_without():
    key, learning = keys()[0], problem().of_run(0)
    clipped, free = (jaxarch.search.two_temperature(clip=clip)(key, learning) for clip in (1e-30, None))
    np.testing.assert_allclose(clipped.info["scores"]["w1"], free.info["scores"]["w1"], rtol=1e-5, atol=1e-7)


@pytest.mark.long
def test_a_sweep_over_clips_keeps_each_run_in_its_own_box():
    def at(clip):
        return jaxarch.search.two_temperature(clip=clip)

    clips = jnp.array([0.05, 0.02, 0.01, 0.001])
    network, _ = jaxarch.over_seeds(at, keys(), problem(), clips)
    found = [largest(network.of_run(run).info["scores"]) for run in range(4)]
    np.testing.assert_allclose(found, limit(np.asarray(clips)), rtol=1e-5)


def test_an_entry_at_the_wrong_corner_comes_back_sooner_than_without():
    learning = straight({"w": [[1.0]]}, {"w": [[-1.0]]}, rate=0.05, steps=40)
    found = [
        jaxarch.search.two_temperature(4.0, 4.0, mean=-8.0, std=0.0, clip=clip)(jax.random.key(0), learning)
        for clip in (None, 0.05)
    ]
    assert [bool(network.mask["w"].item()) for network in found] == [False, True]


@pytest.mark.long
def test_scores_of_a_flax_model_are_clipped_in_a_loop_of_one_s_own():
    model = jaxarch.nnx.Masked(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), where="kernel", hard=HARD, scores=0.0)
    tx = optax.chain(optax.sgd(1.0, momentum=0.9), optim.clip_scores(0.1, HARD))
    optimizer = nnx.Optimizer(model, tx, wrt=jaxarch.nnx.Score)
    wrt = nnx.DiffState(0, jaxarch.nnx.Score)
    for _ in range(3):
        gradient = nnx.grad(lambda model: jnp.sum(model(jnp.ones((1, 3)))), argnums=wrt)(model)
        optimizer.update(model, gradient)
    np.testing.assert_allclose(jnp.abs(model.scores["kernel"][...]), limit(0.1), rtol=1e-6)

"""Flips of single connections: the best by the loss, until none is better."""

import dataclasses
import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxarch

MASK = np.array([[True, False], [False, True], [True, True]])
TEACHER = np.array([[1, 0], [1, 1], [0, 0]])


@cache
def problem(seed=0):
    """To find three connections of six, the initial weights of the seed; the output layer has no mask."""
    x = jax.random.normal(jax.random.key(100 + seed), (10, 3))

    def init(key):
        return {"w": jax.random.normal(key, (3, 2)), "out": jnp.array([[1.0, 0.5], [0.25, 2.0]])}

    def apply(params, x):
        return jnp.tanh(x @ params["w"]) @ params["out"]

    teacher = init(jax.random.key(seed))
    y = apply(teacher | {"w": teacher["w"] * TEACHER}, x)
    return jaxarch.supervised((init, apply), (x, y), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=1)


def network(weights, mask=MASK):
    mask = {"w": jnp.asarray(mask), "out": None}
    return jaxarch.Network(
        jaxarch.masks.apply_mask(mask, weights), mask, {}, records=(jaxarch.Start(weights),)
    )


@cache
def start(seed=0, ones=True):
    weights = problem(seed).init(jax.random.key(seed))[0]
    return weights | {"w": jnp.ones((3, 2))} if ones else weights


def losses(seed, weights):
    """Of every mask, by its bits."""
    objective = jax.jit(problem(seed).objective)
    return {
        bits: float(objective(network(weights, np.reshape(bits, (3, 2)).astype(bool)).params, {}))
        for bits in itertools.product((0, 1), repeat=6)
    }


def neighbours(bits):
    return [tuple(b ^ (i == j) for j, b in enumerate(bits)) for i in range(6)]


def bits_of(network):
    return tuple(np.asarray(network.mask["w"]).ravel().astype(int).tolist())


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ones", [True, False])
def test_all_flips_tried_it_descends_to_a_mask_that_no_flip_betters(seed, ones):
    weights = start(seed, ones)
    known, bits, path = losses(seed, weights), tuple(MASK.ravel().astype(int).tolist()), []
    while True:
        path.append(known[bits])
        best = min(neighbours(bits), key=known.get)
        if known[best] >= known[bits]:
            break
        bits = best
    found = jaxarch.flip(20, returning="start")(jax.random.key(0), problem(seed), network(weights))
    assert bits_of(found) == bits
    assert found.info["locally_optimal"]
    assert int(found.info["flips"]) == len(path) - 1
    np.testing.assert_allclose(found.info["objective"][: len(path)], path, rtol=1e-5, atol=1e-9)
    assert (found.info["objective"][len(path) :] == found.info["objective"][len(path) - 1]).all()


@pytest.mark.long
def test_what_comes_back_has_the_weight_that_was_said():
    grown = network(start(0, ones=False), np.zeros((3, 2), bool))
    for returning, expected in (("start", start(0, ones=False)["w"]), ("ones", jnp.ones((3, 2), bool))):
        found = jaxarch.flip(3, returning=returning)(jax.random.key(0), problem(), grown)
        np.testing.assert_array_equal(found.params["w"], jnp.where(found.mask["w"], expected, 0))
        assert found.mask["w"].any()


@pytest.mark.long
def test_by_default_connections_are_removed_only_and_the_others_keep_their_weights():
    weights = start(0, ones=False)
    full = network(weights, np.ones((3, 2), bool))
    found = jaxarch.flip(6)(jax.random.key(0), problem(), full)
    assert 0 < found.mask["w"].sum() < 6
    assert found.info["locally_optimal"]
    np.testing.assert_array_equal(found.params["w"], jnp.where(found.mask["w"], weights["w"], 0))
    again = jaxarch.flip(6)(jax.random.key(0), problem(), found)
    assert bits_of(again) == bits_of(found)


def test_it_ends_after_its_rounds_and_says_no_more_than_it_knows():
    found = jaxarch.flip(1, returning="start")(jax.random.key(0), problem(), network(start()))
    assert int(found.info["flips"]) == 1
    assert not found.info["locally_optimal"]


@pytest.mark.parametrize("seed", range(4))
def test_few_tried_at_a_time_it_ends_where_no_flip_betters(seed):
    known = losses(seed, start(seed))
    found = jaxarch.flip(50, tried=2, returning="start")(
        jax.random.key(0), problem(seed), network(start(seed))
    )
    assert found.info["locally_optimal"]
    assert known[bits_of(found)] <= min(known[bits] for bits in neighbours(bits_of(found)))
    assert (np.diff(found.info["objective"]) <= 0).all()


@pytest.mark.long
def test_a_mask_is_said_to_be_optimal_only_when_all_flips_were_tried():
    best = jaxarch.flip(20, returning="start")(jax.random.key(0), problem(), network(start()))
    for rounds, optimal in ((2, False), (3, True)):  # of two flips each, of six
        found = jaxarch.flip(rounds, tried=2, returning="start")(jax.random.key(0), problem(), best)
        assert int(found.info["flips"]) == 0
        assert bool(found.info["locally_optimal"]) == optimal


def of_mask(function, size):
    """A problem whose F is a function of the mask of so many weights of 1."""
    return jaxarch.Problem(
        lambda key: ({"w": jnp.ones(size)}, {}),
        lambda params, state, batch, key: (function(params["w"]), state),
        jnp.zeros((1, 1)),
        jaxarch.Descent(optax.sgd(0.1), steps=1),
    )


def flipped_from(mask, function, **settings):
    mask = {"w": jnp.asarray(mask, bool)}
    given = jaxarch.Network({"w": mask["w"].astype(float)}, mask, {})
    strategy = jaxarch.flip(returning="ones", **settings)
    return strategy(jax.random.key(0), of_mask(function, mask["w"].size), given)


def test_what_was_worse_than_its_slope_is_not_tried_first_again():
    slopes, curvatures = jnp.array([-10.0] * 4 + [-1.0] * 4), jnp.array([12.0] * 4 + [0.0] * 4)
    found = flipped_from(
        [0] * 8, lambda w: jnp.sum(slopes * w + curvatures * w * w), rounds=4 + 4 + 8, tried=1
    )
    assert found.mask["w"].tolist() == [False] * 4 + [True] * 4
    assert found.info["locally_optimal"]  # four misled, four flipped, and then all once


def test_a_flip_whose_loss_was_nan_is_tried_again():
    def loss(w):
        return w[0] - 10 * w[1] + jnp.where(w[0] * w[1] > 0.5, jnp.nan, 0.0)

    found = flipped_from([1, 0], loss, rounds=10, tried=1)
    assert found.mask["w"].tolist() == [False, True]
    assert found.info["locally_optimal"]


@pytest.mark.long
def test_rows_a_few_at_a_time_make_the_same_flips():
    whole, parts = (
        jaxarch.flip(20, returning="start", batch_size=size, at_once=4)(
            jax.random.key(0), problem(), network(start())
        )
        for size in (None, 3)
    )
    assert bits_of(whole) == bits_of(parts)
    np.testing.assert_allclose(whole.info["objective"], parts.info["objective"], rtol=1e-5)


def test_a_flip_whose_loss_is_nan_is_not_made():
    weights = {"w": jnp.array([1.0, jnp.nan])}
    problem = jaxarch.supervised(
        (lambda key: {"w": jnp.ones(2)}, lambda params, x: x @ params["w"]),
        (jnp.ones((3, 2)), jnp.full(3, 2.0)),
        loss=optax.l2_loss,
        optimizer=optax.sgd(0.1),
        steps=1,
    )
    mask = {"w": jnp.array([True, False])}
    found = jaxarch.flip(3, returning="start")(
        jax.random.key(0),
        problem,
        jaxarch.Network({"w": jnp.array([1.0, 0.0])}, mask, {}, records=(jaxarch.Start(weights),)),
    )
    assert found.mask["w"].tolist() == [True, False]


def test_a_weight_that_is_no_number_does_not_come_back_and_spoils_nothing():
    weights = start() | {"w": start()["w"].at[0, 1].set(jnp.nan)}
    found = jaxarch.flip(20, returning="start")(jax.random.key(0), problem(), network(weights))
    assert not found.mask["w"][0, 1]
    assert np.isfinite(found.info["objective"]).all()
    assert int(found.info["flips"]) > 0


@pytest.mark.long
def test_a_connection_that_changes_nothing_is_not_flipped():
    x = jnp.zeros((7, 3)).at[:, 0].set(jnp.linspace(-1.0, 2.0, 7))
    useless = dataclasses.replace(problem(), data=(x, problem().data[1][:7]))
    found = jaxarch.flip(20, returning="start")(jax.random.key(0), useless, network(start()))
    again = jaxarch.flip(20, returning="start", at_once=3)(jax.random.key(0), useless, found)
    assert (found.mask["w"][1:] == MASK[1:]).all()
    assert int(again.info["flips"]) == 0


@pytest.mark.long
def test_half_precision_adds_up_losses_of_many_rows_a_few_at_a_time():
    x = jnp.ones((4000, 3), jnp.bfloat16)
    many = dataclasses.replace(problem(), data=(x, jnp.ones((4000, 2), jnp.bfloat16)))
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), start())
    whole, parts = (many.objective(params, {}, batch_size=size) for size in (None, 7))
    padded = dataclasses.replace(many, train=jnp.arange(4000), train_size=jnp.asarray(4000))
    assert float(parts) == pytest.approx(float(whole), rel=0.02)
    assert float(padded.objective(params, {})) == pytest.approx(float(whole), rel=0.02)


def test_a_start_that_there_is_none_of_is_refused_before_anything_is_computed():
    drawn = network(start()).without(jaxarch.Start)
    with pytest.raises(jaxarch.ArgumentError, match=r"flip: .*`Start`"):
        jaxarch.flip(returning="start")(jax.random.key(0), problem(), drawn)


@pytest.mark.parametrize(("name", "value"), [("rounds", 0), ("tried", 0), ("at_once", 0), ("batch_size", 0)])
def test_counts_below_one_are_refused(name, value):
    with pytest.raises(jaxarch.ArgumentError, match=name):
        jaxarch.flip(**{name: value})


def test_another_word_for_what_comes_back_is_refused():
    with pytest.raises(jaxarch.ArgumentError, match="returning"):
        jaxarch.flip(returning="zeros")


def followed(seed, weights, tried, rounds):
    """The losses after each round by the rule: slope and what a flip was beyond it when it was tried last."""
    known, bits = losses(seed, weights), tuple(MASK.ravel().astype(int).tolist())
    kernel = np.asarray(weights["w"])

    def objective(mask):
        return problem(seed).objective(weights | {"w": kernel * mask.reshape(3, 2)}, {})

    gradient = jax.jit(jax.grad(objective))
    beyond, untried, path = np.zeros(6), np.ones(6, bool), [known[bits]]
    while untried.any() and len(path) <= rounds:
        slopes = np.asarray(gradient(jnp.asarray(bits, jnp.float32))) * (1 - 2 * np.asarray(bits))
        order = sorted(np.flatnonzero(untried), key=lambda i: slopes[i] + beyond[i])[:tried]
        changes = {i: known[neighbours(bits)[i]] - known[bits] for i in order}
        for i, change in changes.items():
            beyond[i] = change - slopes[i]
        best = min(changes, key=changes.get)
        if changes[best] < 0:
            bits, untried = neighbours(bits)[best], np.ones(6, bool)
        else:
            untried[order] = False
        path.append(known[bits])
    return path


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tried", [2, 4, 5])
def test_flips_are_tried_in_the_order_of_the_rule(seed, tried):
    weights = start(seed)
    path = followed(seed, weights, tried, rounds=12)
    search = jaxarch.flip(12, tried=tried, returning="start")
    found = search(jax.random.key(0), problem(seed), network(weights)).info["objective"]
    np.testing.assert_allclose(found[: len(path)], path, rtol=1e-5)

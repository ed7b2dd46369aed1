"""Pruning and regrowth at one change: counts on the cubic schedule, exchanges within each leaf, by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import descent_of, straight

import jaxarch

KEY = jax.random.key(0)


def masks_of(steps, **settings):
    """The mask of 100 connections after every step, the first one before."""
    weights = {"w": np.arange(1.0, 101.0)}
    training = jaxarch.search.granet(0.1, every=2, where="w", **settings)
    return np.asarray(descent_of(training, straight(weights, weights, rate=0.0, steps=steps))[0].memory["w"])


@pytest.mark.long
def test_the_density_falls_from_the_initial_one_along_the_cubic_schedule():
    # 10 + 40 u^3 with u = .8, .6, .4, .2 and 0 from step 2 to step 10.
    counts = masks_of(20, initial=0.5, end=0.5).sum(1).tolist()
    assert counts == [50] * 3 + [30] * 2 + [19] * 2 + [13] * 2 + [10] * 12


@pytest.mark.long
def test_each_leaf_replaces_a_share_of_what_pruning_over_all_leaves_has_left_it():
    weights = {"a": [8.0, 7.0, 6.0, 5.0], "b": [4.0, 3.0, 2.0, 1.0]}
    slopes = {"a": [1.0, 1.0, 1.0, 1.0], "b": [0.0, 10.0, 20.0, -30.0]}
    training = jaxarch.search.granet(0.75, replaced=0.6, end=0.25, every=1, where=["a", "b"])
    found, _ = descent_of(training, straight(weights, slopes, rate=0.0, steps=4))
    # At step 1 the 6 largest of 8 are left, and .6 / 2 (1 + cos(pi / 4)) = .51 of each leaf's are replaced:
    # 2 of 4 and 1 of 2. All of the 3 would grow in b if their slopes were compared with those of a.
    after = jax.tree.map(lambda leaf: leaf[2], found)
    assert {name: leaf.astype(int).tolist() for name, leaf in after.memory.items()} == {
        "a": [1, 1, 1, 1],
        "b": [1, 0, 0, 1],
    }
    assert {name: leaf.tolist() for name, leaf in after.trainable.items()} == {
        "a": [8, 7, 0, 0],
        "b": [4, 0, 0, 0],
    }


@pytest.mark.long
def test_the_exchange_goes_on_after_the_density_has_fallen_and_does_not_begin_before():
    def loss(params, state, batch, key):
        return jnp.sum(params["w"] * jax.random.normal(key, (100,))), state

    ones = straight({"w": np.ones(100)}, {"w": np.ones(100)}, rate=0.1, steps=20)
    training = jaxarch.search.granet(0.1, initial=0.5, begin=0.2, end=0.5, every=2, where="w")
    rows = np.asarray(descent_of(training, dataclasses.replace(ones, loss=loss))[0].memory["w"])
    assert np.flatnonzero((rows[1:] != rows[:-1]).any(1)).tolist() == [4, 6, 8, 10, 12, 14]
    assert rows[11:].sum(1).tolist() == [10] * 10  # at step 16, .5 / 2 (1 + cos(.8 pi)) of 10 is .48


@pytest.mark.long
@pytest.mark.parametrize("initial", [0.6, 1.0])
def test_the_first_mask_has_exactly_the_initial_density(initial):
    assert masks_of(20, initial=initial)[0].sum() == 100 * initial


@pytest.mark.long
def test_without_regrowth_it_is_gradual_magnitude_pruning():
    def of(make, **settings):
        training = make(0.2, begin=0.1, end=0.6, every=2, where="w", **settings)
        weights = np.random.default_rng(0).normal(size=50)
        return jax.jit(training)(KEY, straight({"w": weights}, {"w": weights}, rate=0.0, steps=20))

    found, expected = of(jaxarch.search.granet, replaced=0.0), of(jaxarch.search.gradual_magnitude)
    assert found.mask["w"].tolist() == expected.mask["w"].tolist()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: jaxarch.search.granet(0.5, initial=0.4),
            "initial: expected at least density = 0.5, got 0.4",
        ),
        (lambda: jaxarch.search.granet(initial=2.0), r"initial: expected a number in \(0, 1\]"),
        (lambda: jaxarch.search.granet(replaced=1.0), r"replaced: expected a number in \[0, 1\), got 1.0"),
        (lambda: jaxarch.search.granet(end=0.0), "end: expected more than begin = 0, got 0"),
        (
            lambda: jaxarch.search.granet(every=9, where="w")(
                KEY, straight({"w": [1.0]}, {"w": [1.0]}, steps=9)
            ),
            "steps: GraNet would never change its mask in 9 steps, with every=9",
        ),
        (
            lambda: jaxarch.optim.sparse(optax.sgd(0.1), 0.5, regrow_scope="erk"),
            "regrow_scope: expected 'layer' or None, got 'erk'",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused(make, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        make()

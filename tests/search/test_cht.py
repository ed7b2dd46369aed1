"""Cannistraci-Hebb training: scores of the topology by counting paths, and what a change keeps and grows."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import descent_of, straight

import jaxarch
from jaxarch.search._cht import _drawn, _enough, _size, topology

KEY = jax.random.key(0)


def by_paths(mask):
    """CH3-L3 of every free place, by the nodes on its paths of length 3: i, an output z, an input v, j."""
    scores = np.zeros(mask.shape)
    for i, j in np.argwhere(~mask):
        ends = itertools.product(np.flatnonzero(mask[i]), np.flatnonzero(mask[:, j]))
        paths = [(z, v) for z, v in ends if mask[v, z]]
        for v in {v for _, v in paths}:
            inside = sum(mask[i] & mask[v])
            scores[i, j] += 1 / (1 + mask[v].sum() - inside - 1)
        for z in {z for z, _ in paths}:
            inside = sum(mask[:, j] & mask[:, z])
            scores[i, j] += 1 / (1 + mask[:, z].sum() - inside - 1)
    return scores


@pytest.mark.parametrize("share", [0.15, 0.3, 0.6])
def test_scores_are_those_of_the_nodes_on_paths_of_length_3(share):
    mask = np.random.default_rng(0).random((9, 7)) < share
    found = np.asarray(topology(jnp.asarray(mask)))
    np.testing.assert_allclose(found[~mask], by_paths(mask)[~mask], rtol=1e-6)
    assert found[~mask].max() > 0


def test_a_path_counts_less_if_links_of_its_nodes_lead_elsewhere():
    # 0 - 0 - 1 - 1: both nodes inside count 1. Input 1 has another link in the second graph.
    one = jnp.array([[True, False, False], [True, True, False]])
    other = one.at[1, 2].set(True)
    assert topology(one)[0, 1] == 2
    assert topology(other)[0, 1] == 1.5
    assert topology(jnp.eye(3, dtype=bool))[0, 1] == 0  # no path


def test_leaves_of_other_shapes_are_matrices_of_their_last_axis():
    mask = jnp.asarray(np.random.default_rng(0).random((2, 3, 4)) < 0.4)
    assert (topology(mask) == topology(mask.reshape(6, 4)).reshape(2, 3, 4)).all()
    assert topology(jnp.array([True, False]))[1] == 0


def test_draws_are_without_replacement_with_the_given_weights():
    weights = jnp.array([1.0, 2.0, 3.0, 0.0])
    keys = jax.random.split(KEY, 20000)
    drawn = jax.vmap(lambda key: jax.lax.top_k(_drawn(key, {"w": jnp.log(weights)})["w"], 2)[1])(keys)
    first, second = np.asarray(drawn).T
    np.testing.assert_allclose(np.bincount(first, minlength=4) / 20000, [1 / 6, 1 / 3, 1 / 2, 0], atol=0.02)
    after = second[first == 2]
    np.testing.assert_allclose(np.bincount(after, minlength=4) / after.size, [1 / 3, 2 / 3, 0, 0], atol=0.02)


def test_relative_sizes_are_shares_of_rows_and_columns():
    found = _size(jnp.array([[1.0, -3.0], [1.0, 0.0]]), "relative")
    np.testing.assert_allclose(found, [[1 / 2 + 1 / 4, 1 + 3 / 4], [1 / 2 + 1, 0]])


def test_places_without_a_path_can_grow_only_if_others_are_too_few():
    scores, left = jnp.array([0.0, 2.0, 3.0, 1.0]), jnp.array([False, False, False, True])
    assert _enough(scores, left, jnp.asarray(2)).tolist() == scores.tolist()
    np.testing.assert_allclose(_enough(scores, left, jnp.asarray(3)), scores + 1e-5)


def masks_of(weights, slopes, steps=20, rate=0.0, **settings):
    """Weights and masks of a leaf before every step and after the last one."""
    problem = straight({"w": weights}, {"w": slopes}, rate=rate, steps=steps)
    training = jaxarch.search.cht(where="w", **settings)
    found, _ = descent_of(training, problem)
    return np.asarray(found.trainable["w"]), np.asarray(found.memory["w"])


@pytest.mark.long
@pytest.mark.parametrize("removal", ["magnitude", "relative"])
def test_a_change_keeps_the_number_and_grows_from_0_where_the_remaining_mask_has_paths(removal):
    weights = np.random.default_rng(0).normal(size=(12, 10))
    held, masks = masks_of(weights, weights, density=0.3, replaced=0.25, every=5, removal=removal)
    assert (masks.sum((1, 2)) == 36).all()
    assert np.flatnonzero((masks[1:] != masks[:-1]).any((1, 2))).tolist() == [5, 10, 15]
    # A connection that was removed may grow again. Its weight is then 0, and stays so at a rate of 0.
    left = masks[6] & (held[6] != 0)
    assert left.sum() == 27 and not (left & ~masks[5]).any()
    assert (by_paths(left)[masks[6] & ~left] > 0).all()
    assert (held[~masks] == 0).all()


@pytest.mark.long
def test_small_weights_are_removed_more_often():
    weights = np.where(np.arange(400).reshape(20, 20) % 2, 10.0, 0.1)
    held, masks = masks_of(weights, weights, steps=3, density=0.5, replaced=0.3, every=2)
    gone = masks[2] & (held[3] == 0)
    assert gone.sum() == 60
    assert (weights[gone] < 1).sum() > 55


@pytest.mark.long
def test_draws_become_sharper_with_the_steps():
    weights = np.where(np.arange(400).reshape(20, 20) % 2, 3.0, 1.0)

    def large_ones_gone(steps):
        held, masks = masks_of(weights, weights, steps=steps, density=0.5, replaced=0.3, every=2)
        return (weights[masks[2] & (held[3] == 0)] > 2).sum()

    # After 2 of 3 steps a large weight counts 3^(7/3), and after 2 of 40 steps 3^(11/10).
    assert 1.5 * large_ones_gone(3) < large_ones_gone(40)


@pytest.mark.long
def test_connections_grow_anywhere_where_no_place_has_a_path():
    weights = np.ones((30, 30))
    held, masks = masks_of(weights, weights, steps=3, density=0.006, replaced=0.6, every=2)
    left = masks[3] & (held[3] != 0)
    assert by_paths(left).max() == 0
    assert np.argwhere(masks[3] & ~left)[:, 0].max() > 0  # not all in the first row


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"density": 0.0}, r"density: expected a number in \(0, 1\]"),
        ({"replaced": 1.0}, r"replaced: expected a number in \[0, 1\), got 1.0"),
        ({"removal": "random"}, "removal: expected"),
        (
            {"every": 9},
            "steps: Cannistraci-Hebb training would never change its mask in 9 steps, with every=9",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.search.cht(where="w", **settings)(KEY, straight({"w": [[1.0]]}, {"w": [[1.0]]}, steps=9))

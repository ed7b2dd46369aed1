"""Scores, masks and what is counted on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxarch import masks
from jaxarch.trees import select

TREE = {"a": jnp.arange(12.0).reshape(3, 4) - 6, "b": {"c": jnp.linspace(-1, 1, 8).reshape(4, 2)}}
SEEDS = st.integers(0, 2**31 - 1)


def random_tree(seed):
    return masks.init_scores(jax.random.key(seed), TREE, 0.0, 1.0)


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_scores_have_the_given_mean_and_standard_deviation():
    like = {"w": jnp.zeros((400, 500))}
    scores = masks.init_scores(jax.random.key(0), like, mean=-0.2, std=0.1)["w"]
    assert float(scores.mean()) == pytest.approx(-0.2, abs=2e-3)
    assert float(scores.std()) == pytest.approx(0.1, rel=1e-2)


def test_scores_in_units_of_one_over_hard_give_the_same_initial_mask_at_every_temperature():
    key = jax.random.key(1)
    initial = [
        masks.soft_mask(masks.init_scores(key, TREE, -10.0, 5.0, hard), hard, 1.0)
        for hard in (5.0, 50.0, 500.0)
    ]
    for other in initial[1:]:
        np.testing.assert_allclose(flat(initial[0]), flat(other), rtol=1e-3, atol=1e-7)


def test_scores_keep_the_leaf_s_dtype_and_leave_unselected_leaves_out():
    tree = {"kernel": jnp.zeros((2, 3), jnp.bfloat16), "bias": jnp.zeros(3)}
    scores = masks.init_scores(jax.random.key(0), select(tree))
    assert scores["kernel"].dtype == jnp.bfloat16
    assert scores["bias"] is None


def test_a_negative_standard_deviation_is_refused():
    with pytest.raises(ValueError, match="std: expected a finite number of at least 0"):
        masks.init_scores(jax.random.key(0), TREE, std=-1.0)


def test_the_hard_mask_keeps_positive_scores_and_prunes_zero():
    mask = masks.hard_mask({"w": jnp.asarray([-1.0, -0.0, 0.0, 1e-30])})
    assert mask["w"].tolist() == [False, False, False, True]


def test_the_soft_mask_tends_to_the_hard_mask():
    scores = {"w": jnp.asarray([-0.5, -0.01, 0.01, 0.5])}
    np.testing.assert_allclose(
        masks.soft_mask(scores, 1e5, 1.0)["w"], masks.hard_mask(scores)["w"], atol=1e-6
    )


def test_masked_parameters_are_zero_where_pruned_even_if_a_weight_overflowed():
    params = {"w": jnp.asarray([jnp.inf, jnp.nan, 3.0])}
    masked = masks.apply_mask({"w": jnp.asarray([False, False, True])}, params)
    assert masked["w"].tolist() == [0.0, 0.0, 3.0]


def test_leaves_without_a_mask_pass_through():
    params = {"kernel": jnp.full((2, 2), 3.0), "bias": jnp.full(2, 7.0)}
    mask = {"kernel": jnp.eye(2, dtype=bool), "bias": None}
    assert masks.apply_mask(mask, params)["bias"].tolist() == [7.0, 7.0]
    free = masks.weight_free(mask, params)
    assert free["bias"].tolist() == [7.0, 7.0]
    assert free["kernel"].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert free["kernel"].dtype == jnp.float32


@given(seed=SEEDS)
def test_density_is_the_share_of_ones_over_all_leaves_together(seed):
    mask = masks.hard_mask(random_tree(seed))
    assert float(masks.density(mask)) == pytest.approx(flat(mask).mean())


def test_layer_density_is_by_path():
    mask = {"a": jnp.asarray([[True, False]]), "b": {"c": jnp.ones((2, 2), bool), "d": None}}
    assert {path: float(d) for path, d in masks.layer_density(mask).items()} == {"a": 0.5, "b/c": 1.0}


def test_density_is_exact_beyond_the_integers_of_float32():
    mask = {"w": jnp.ones((2**12, 2**12 + 1), bool).at[0, 0].set(False)}
    assert int(masks._count(mask["w"])) == 2**12 * (2**12 + 1) - 1


def test_density_of_no_masked_leaf_is_refused():
    with pytest.raises(ValueError, match="mask: no leaf is masked"):
        masks.density({"w": None})


def test_overlap_is_one_for_equal_zero_for_disjoint_and_one_for_empty_masks():
    mask = {"w": jnp.asarray([True, True, False, False])}
    other = {"w": ~mask["w"]}
    nothing = {"w": jnp.zeros(4, bool)}
    half = {"w": jnp.asarray([True, False, True, False])}
    assert float(masks.overlap(mask, mask)) == 1
    assert float(masks.overlap(mask, other)) == 0
    assert float(masks.overlap(nothing, nothing)) == 1
    assert float(masks.overlap(mask, half)) == pytest.approx(1 / 3)


@given(seed=SEEDS)
def test_reshuffling_keeps_the_density_of_every_layer(seed):
    mask = masks.hard_mask(random_tree(seed))
    shuffled = masks.reshuffle(jax.random.key(seed), mask)
    assert masks.layer_density(shuffled) == masks.layer_density(mask)


def test_reshuffling_moves_connections():
    mask = {"w": jnp.arange(400).reshape(20, 20) < 100}
    shuffled = masks.reshuffle(jax.random.key(0), mask)
    assert float(masks.overlap(mask, shuffled)) < 0.4


@given(seed=SEEDS, k=st.integers(0, 20))
def test_top_k_keeps_exactly_the_k_largest_scores(seed, k):
    scores = random_tree(seed)
    mask = flat(masks.top_k(scores, k))
    values = flat(scores)
    assert mask.sum() == k
    if 0 < k < values.size:
        assert values[mask].min() > values[~mask].max()


def test_top_k_is_exact_among_ties_and_puts_nan_last():
    mask = masks.top_k({"w": jnp.asarray([jnp.nan, 1.0, 1.0, 1.0])}, 2)
    assert mask["w"].tolist() == [False, True, True, False]


def test_top_k_takes_a_traced_k():
    sizes = jax.vmap(lambda k: masks.top_k(TREE, k))(jnp.arange(5))
    assert [int(flat(jax.tree.map(lambda leaf, i=i: leaf[i], sizes)).sum()) for i in range(5)] == list(
        range(5)
    )


@pytest.mark.parametrize("k", [-1, 21, 2.5])
def test_a_k_out_of_range_is_refused(k):
    with pytest.raises(ValueError, match="k: expected an integer from 0 to 20"):
        masks.top_k(TREE, k)


@given(seed=SEEDS)
def test_thresholds_are_percentiles_of_all_leaves_pooled(seed):
    values = random_tree(seed)
    mine = masks.percentile_thresholds(values, [10, 50, 100])
    np.testing.assert_allclose(mine, np.percentile(flat(values), [10, 50, 100]), rtol=1e-5, atol=1e-6)


def test_the_threshold_at_the_hundredth_percentile_leaves_nothing():
    xi = masks.percentile_thresholds(TREE, [100])[0]
    assert not flat(masks.threshold_mask(TREE, xi)).any()

"""Scores, masks and what is counted on them."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import close, in_float64

import jaxarch
from jaxarch import masks, select
from jaxarch.masks import _arithmetic

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


def test_leaves_of_one_shape_have_scores_of_their_own():
    scores = masks.init_scores(jax.random.key(0), {"a": jnp.ones((2, 3)), "b": jnp.ones((2, 3))})
    assert not np.array_equal(scores["a"], scores["b"])


def test_scores_in_units_of_one_over_hard_give_the_same_initial_mask_at_every_temperature():
    key = jax.random.key(1)
    initial = [
        masks.soft_mask(masks.init_scores(key, TREE, -10.0, 5.0, hard), hard, 1.0)
        for hard in (5.0, 50.0, 500.0)
    ]
    for other in initial[1:]:
        np.testing.assert_allclose(flat(initial[0]), flat(other), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_scores_are_float32_whatever_the_parameters_are_and_leave_unselected_leaves_out(dtype):
    with in_float64(dtype == "float64"):
        tree = {"kernel": jnp.zeros((2, 3), dtype), "bias": jnp.zeros(3)}
        scores = masks.init_scores(jax.random.key(0), select(tree))
        assert scores["kernel"].dtype == jnp.float32
        assert scores["bias"] is None
        assert masks.apply_mask(masks.soft_mask(scores, 50.0, 5.0), tree)["kernel"].dtype == dtype


def test_a_key_draws_the_same_scores_with_and_without_float64():
    drawn = []
    for enabled in (False, True):
        with in_float64(enabled):
            drawn.append(flat(masks.init_scores(jax.random.key(0), TREE)))
    assert np.array_equal(*drawn)


@pytest.mark.long
def test_the_scores_of_bfloat16_parameters_move_under_small_steps():
    problem = jaxarch.supervised(
        (lambda key: {"w": jax.random.normal(key, (8, 1), jnp.bfloat16)}, lambda p, x: x @ p["w"]),
        (np.random.default_rng(0).normal(size=(40, 8)).astype("float32"), np.ones((40, 1), np.float32)),
        loss=lambda outputs, y: jnp.square(outputs - y)[:, 0],
        optimizer=optax.sgd(1e-4),
        steps=1,
    )
    search = jaxarch.search.two_temperature(weights="initial")
    before = search.init(search.settings, jax.random.split(jax.random.key(0), 3)[0], problem, None).trainable
    after = search(jax.random.key(0), problem).info["scores"]
    assert after["w"].dtype == jnp.float32
    assert (np.asarray(before["w"]) != np.asarray(after["w"])).all()


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


def test_a_mask_of_integers_leaves_nothing_of_a_pruned_weight_that_overflowed():
    params = {"w": jnp.asarray([jnp.inf, jnp.nan, 3.0])}
    assert masks.apply_mask({"w": jnp.asarray([0, 0, 1])}, params)["w"].tolist() == [0.0, 0.0, 3.0]


def test_a_soft_mask_that_rounds_to_0_still_carries_its_gradient():
    gradient = jax.grad(lambda m: masks.apply_mask({"w": m}, {"w": jnp.asarray([3.0])})["w"].sum())
    assert gradient(jnp.zeros(1)).tolist() == [3.0]


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


def test_connections_are_counted_exactly_beyond_the_integers_of_float32():
    mask = {"w": jnp.ones((2**12, 2**12 + 1), bool).at[0, 0].set(False)}
    assert int(masks.connections(mask)) == 2**12 * (2**12 + 1) - 1


def test_connections_are_counted_exactly_beyond_31_bits(monkeypatch):
    # Of its size without its memory; the count of a leaf, whose size is below 2^31, stands in.
    leaf = np.broadcast_to(True, (2**15, 2**15))

    def connections(full, leaves):
        monkeypatch.setattr(_arithmetic, "_count", lambda leaf: full - 1)
        return masks.connections(leaves)

    assert int(connections(jnp.int32(2**30), [leaf] * 5)) == 5 * (2**30 - 1)
    traced = jax.jit(lambda full: connections(full, [leaf] * 3))(jnp.int32(2**30))
    assert int(traced) == 3 * (2**30 - 1)


def test_the_density_of_more_than_32_bits_of_connections_is_right(monkeypatch):
    leaf = np.broadcast_to(True, (2**15, 2**15))
    monkeypatch.setattr(_arithmetic, "_count", lambda leaf: jnp.int32(2**28))
    assert float(masks.density([leaf] * 6)) == 0.25


def test_more_connections_than_32_bits_count_are_refused_where_they_are_traced():
    mask = [jax.ShapeDtypeStruct((2**16, 2**14), bool)] * 4
    with pytest.raises(ValueError, match=r"mask: 4294967296 connections are too many for 32-bit integers"):
        jax.eval_shape(masks.connections, mask)
    assert jax.eval_shape(masks.density, mask).dtype == jnp.float32
    with in_float64(True):
        assert jax.eval_shape(masks.connections, mask).dtype == jnp.int64


@pytest.mark.parametrize("function", [masks.apply_mask, masks.weight_free])
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ({"w": jnp.ones(3, bool), "b": None}, r"mask: leaf 'w' has shape \(3,\), the model's.*\(2, 3\)"),
        ({"w": jnp.ones((1, 1), bool), "b": None}, "mask: leaf 'w' has shape"),
        ({"v": jnp.ones((2, 3), bool), "b": None}, "mask: the model has no parameter 'v'; it has b, w"),
        ({"w": jnp.ones((2, 3), bool)}, "mask: expected the structure of the parameters"),
        ([jnp.ones((2, 3), bool)], "mask: the model has no parameter '0'"),
    ],
)
def test_a_mask_that_does_not_fit_the_parameters_is_refused(function, mask, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        function(mask, {"w": jnp.ones((2, 3)), "b": jnp.ones(3)})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"w": jnp.ones((1, 2), bool)}, r"other: leaf 'w' has shape \(1, 2\), but shape \(2, 2\) in"),
        ({"v": jnp.ones((2, 2), bool)}, "other: expected the leaves of the first mask; leaf 'v' is"),
    ],
)
def test_the_overlap_of_masks_that_do_not_fit_each_other_is_refused(other, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        masks.overlap({"w": jnp.ones((2, 2), bool)}, other)


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
    for nan in (jnp.nan, -jnp.nan):
        assert masks.top_k({"w": jnp.asarray([nan, -jnp.inf])}, 1)["w"].tolist() == [False, True]


def test_top_k_tells_integers_apart_that_float32_does_not():
    assert masks.top_k({"w": jnp.asarray([2**24, 2**24 + 1])}, 1)["w"].tolist() == [False, True]


def test_top_k_takes_a_traced_k():
    sizes = jax.vmap(lambda k: masks.top_k(TREE, k))(jnp.arange(5))
    assert [int(flat(jax.tree.map(lambda leaf, i=i: leaf[i], sizes)).sum()) for i in range(5)] == list(
        range(5)
    )


@pytest.mark.parametrize("k", [-1, 21, 2.5, "2", True])
def test_a_k_out_of_range_is_refused(k):
    with pytest.raises(ValueError, match="k: expected an integer from 0 to 20"):
        masks.top_k(TREE, k)


@given(seed=SEEDS)
def test_thresholds_are_percentiles_of_all_leaves_pooled(seed):
    values = random_tree(seed)
    mine = masks.percentile_thresholds(values, [0, 10, 50, 100])
    np.testing.assert_allclose(mine, np.percentile(flat(values), [0, 10, 50, 100]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "percentiles", [[150.0, -10.0], [50, 101], -1, [np.nan], "50", [True], [[50], [50, 60]]]
)
def test_percentiles_out_of_range_are_refused(percentiles):
    with pytest.raises(ValueError, match=r"^percentiles: expected numbers in \[0, 100\], got "):
        masks.percentile_thresholds(TREE, percentiles)


def test_percentiles_of_integers_are_refused_as_their_thresholds_would_be_rounded():
    with pytest.raises(ValueError, match=r"^values: leaf 'w' has dtype int32"):
        masks.percentile_thresholds({"w": jnp.arange(4)}, [50])


FUNCTIONS = {
    "two_temperature": lambda tree, mask: masks.two_temperature(tree["a"], 50.0, 5.0),
    "its gradient": lambda tree, mask: jax.vjp(lambda w: masks.two_temperature(w, 5.0, 1.0), tree["a"])[1](
        jnp.ones_like(tree["a"])
    )[0],
    "init_scores": lambda tree, mask: masks.init_scores(jax.random.key(0), tree),
    "soft_mask": lambda tree, mask: masks.soft_mask(tree, 50.0, 5.0),
    "hard_mask": lambda tree, mask: masks.hard_mask(tree),
    "full_mask": lambda tree, mask: masks.full_mask(tree),
    "apply_mask": lambda tree, mask: masks.apply_mask(mask, tree),
    "apply_mask to soft masks": lambda tree, mask: masks.apply_mask(masks.soft_mask(tree, 5.0, 1.0), tree),
    "weight_free": lambda tree, mask: masks.weight_free(mask, tree),
    "density": lambda tree, mask: masks.density(mask),
    "connections": lambda tree, mask: masks.connections(mask),
    "layer_density": lambda tree, mask: masks.layer_density(mask),
    "overlap": lambda tree, mask: masks.overlap(mask, mask),
    "reshuffle": lambda tree, mask: masks.reshuffle(jax.random.key(0), mask),
    "top_k": lambda tree, mask: masks.top_k(tree, 7),
    "top_k of ties": lambda tree, mask: masks.top_k(jax.tree.map(jnp.sign, tree), 7),
    "percentile_thresholds": lambda tree, mask: masks.percentile_thresholds(tree, [10, 50, 100]),
    "threshold_mask": lambda tree, mask: masks.threshold_mask(tree, 0.5),
}


@pytest.mark.parametrize(
    ("transform", "inside"),
    [(lambda f: f, False), (jax.jit, True)],
    ids=["alone", "jit in set_mesh"],
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_arrays_split_over_explicit_axes_give_what_whole_ones_do_and_stay_split(name, transform, inside):
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "x"))
    mask = masks.hard_mask(TREE)
    expected = FUNCTIONS[name](TREE, mask)
    if name == "init_scores" and not inside and jax.__version_info__ < (0, 8):
        pytest.skip("JAX before 0.8 draws on a mesh inside of jax.set_mesh alone")
    with jax.set_mesh(mesh) if inside else contextlib.nullcontext():
        found = transform(FUNCTIONS[name])(*jax.device_put((TREE, mask), spec))
    # Compiled and not, the last digit of a product may differ.
    assert close(found, expected, 1e-6)
    for leaf in jax.tree.leaves(found):
        assert leaf.ndim < 2 or leaf.sharding.spec == spec.spec


def test_every_public_function_of_masks_is_tried_on_split_arrays():
    public = {
        name
        for name, value in vars(masks).items()
        if getattr(value, "__module__", None) == masks.__name__ and not name.startswith(("_", "check"))
    }
    assert public <= FUNCTIONS.keys()


def test_the_threshold_at_the_hundredth_percentile_leaves_nothing():
    xi = masks.percentile_thresholds(TREE, [100])[0]
    assert not flat(masks.threshold_mask(TREE, xi)).any()


def test_random_scores_begin_where_their_parameters_are():
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    scores = masks.init_scores(jax.random.key(0), {"w": jax.device_put(jnp.ones((4, 3)), split)})
    assert scores["w"].sharding.is_equivalent_to(split, 2)

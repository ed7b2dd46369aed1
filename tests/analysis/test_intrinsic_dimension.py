"""A network's intrinsic dimension is that of the smallest random subspace in which it learns well."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxarch
from jaxarch import ArgumentError, Descent, Network, Problem
from jaxarch.analysis import in_subspace, intrinsic_dimension
from jaxarch.analysis._subspace import project, slots_for

KEYS = jax.random.split(jax.random.key(0), 3)
TARGET = jnp.asarray(np.random.default_rng(0).normal(size=24), jnp.float32)
MASK = jnp.asarray(np.random.default_rng(1).uniform(size=16) < 0.5).reshape(4, 4)


def quadratic(params, state, batch, key):
    """The squared distance to a target, whose minimum in a subspace is a projection."""
    flat = jnp.concatenate([params["kernel"].reshape(-1), params["bias"]])
    return jnp.square(flat - TARGET).sum() / 2, state


def start(key):
    draw = jax.random.normal(key, (24,))
    return {"kernel": draw[:16].reshape(4, 4), "bias": draw[16:]}, {}


CONVEX = Problem(start, quadratic, jnp.zeros(1), Descent(optax.sgd(0.5), steps=60))


@functools.cache
def matrix(kept):
    """P with all its columns, of a count of parameters."""
    angles = jax.random.uniform(jax.random.key(1), (3, slots_for(kept) // 2), maxval=2 * np.pi)
    whole = jax.jacobian(lambda z: project(z, angles, jnp.int32(kept)))(jnp.zeros(kept))
    return np.asarray(whole)


@pytest.mark.parametrize("kept", [1, 2, 3, 13, pytest.param(200, marks=pytest.mark.long)])
def test_columns_are_orthonormal_and_reach_no_slot_beyond_the_count(kept):
    whole = matrix(kept)
    np.testing.assert_allclose(whole.T @ whole, np.eye(kept), atol=3e-6)
    assert not whole[kept:].any()


@pytest.mark.long
def test_few_columns_are_as_spread_out_as_gaussian_ones():
    columns = matrix(200)[:200, :20]
    kurtosis = (columns**4).mean() / (columns**2).mean() ** 2
    assert 2.5 < kurtosis < 3.5  # 3 for Gaussian numbers, 1 for signs, 200 for single weights
    energy = np.square(columns).sum(1) * 200 / 20
    assert 0.2 < energy.min() < energy.max() < 3


@functools.cache
def masked(dimension, begin="cold"):
    network = Network(start(jax.random.key(7))[0], {"kernel": MASK, "bias": None}, {})
    return jax.jit(lambda key: in_subspace(dimension, begin)(key, CONVEX, network))(KEYS[0])


@pytest.mark.long
def test_a_quadratic_loss_is_minimized_by_the_projection_of_its_minimum():
    training, key = in_subspace(5), KEYS[0]
    found = jax.jit(lambda key: training(key, CONVEX))(key)
    state = jaxarch.run.begin(training, key, CONVEX, None).state

    def flat(params):
        return jnp.concatenate([params["kernel"].reshape(-1), params["bias"]])

    columns = jax.jacobian(lambda z: flat(training.params(training.settings, state._replace(trainable=z))))
    by_hand = columns(state.trainable).T @ (TARGET - flat(state.fixed.start))
    np.testing.assert_allclose(found.info["coordinates"], by_hand, atol=1e-5)


def test_removed_connections_stay_exactly_0():
    params = masked(6).params
    assert (np.asarray(params["kernel"] != 0) == np.asarray(MASK)).all()
    assert masked(6).info["kept"] == MASK.sum() + 8


def test_all_dimensions_reach_what_training_of_all_kept_weights_reaches():
    kept = int(MASK.sum()) + 8
    params = masked(kept).params
    np.testing.assert_allclose(params["bias"], TARGET[16:], atol=1e-5)
    np.testing.assert_allclose(params["kernel"], jnp.where(MASK, TARGET[:16].reshape(4, 4), 0), atol=1e-5)


@pytest.mark.long
def test_a_warm_start_moves_from_the_found_weights():
    given = start(jax.random.key(7))[0]
    few = Network(given, {"kernel": MASK, "bias": None}, {})
    still = in_subspace(2, "warm", optimizer=optax.set_to_zero(), steps=1)(KEYS[0], CONVEX, few)
    assert (still.params["bias"] == given["bias"]).all()
    assert (still.params["kernel"] == jnp.where(MASK, given["kernel"], 0)).all()


@pytest.mark.long
def test_many_seeds_are_what_each_is_alone():
    many = jax.jit(jax.vmap(lambda key: in_subspace(4)(key, CONVEX).params["bias"]))(KEYS)
    each = [jax.jit(lambda key: in_subspace(4)(key, CONVEX).params["bias"])(key) for key in KEYS]
    np.testing.assert_allclose(many, each, rtol=1e-4, atol=1e-6)
    assert np.abs(many[0] - many[1]).max() > 0.1


@pytest.mark.long
def test_a_smaller_dimension_has_the_first_columns_of_a_larger():
    def column(dimension):
        training = in_subspace(dimension)
        state = training.init(training.settings, KEYS[0], CONVEX, None)
        one = state._replace(trainable=state.trainable.at[1].set(1.0))
        return training.params(training.settings, one)["bias"]

    np.testing.assert_array_equal(column(2), column(7))


def mixed_start(key):
    params = {
        "half": jnp.ones((3, 2), jnp.bfloat16),
        "single": jnp.ones(()),
        "count": jnp.int32(3),
        "key": jax.random.key(5),
        "none": None,
    }
    return params, {}


def mixed_loss(params, state, batch, key):
    return params["half"].astype(jnp.float32).sum() ** 2 + params["single"] ** 2, state


@pytest.mark.long
def test_only_floating_leaves_move_and_all_keep_their_dtypes_under_strict_promotion():
    problem = Problem(mixed_start, mixed_loss, jnp.zeros(1), Descent(optax.sgd(0.05), steps=3))
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        network, _ = jaxarch.over_seeds(in_subspace(7), KEYS[:2], problem)
    params = network.of_run(0).params
    assert [params[name].dtype for name in ("half", "single", "count")] == [
        jnp.bfloat16,
        jnp.float32,
        jnp.int32,
    ]
    assert params["count"] == 3
    assert params["key"] == jax.random.key(5)
    assert (params["half"] != 1).any()
    assert params["single"] != 1
    assert network.info["coordinates"].dtype == jnp.float32


class Normed(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(3, 2, rngs=rngs)
        self.norm = nnx.BatchNorm(2, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.linear(x))


@pytest.mark.long
def test_running_statistics_are_updated():
    x = jax.random.normal(jax.random.key(1), (20, 3)) + 5
    problem = jaxarch.supervised(Normed, (x, x[:, :2]), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=5)
    network = jax.jit(lambda key: in_subspace(3)(key, problem))(KEYS[0])
    _, state = problem.init(KEYS[0])
    moved = [jnp.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (network.state, state)), strict=True)]
    assert max(moved) > 0.1


WANTED = jnp.arange(1.0, 11.0)


def toy(params, state, batch, key):
    """Li et al.'s example: ten groups of 100 parameters have the sums 1 to 10."""
    return jnp.square(params["w"].reshape(10, 100).sum(1) - WANTED).sum(), state


def closeness(params, state, batch):
    return jnp.exp(-toy(params, state, batch, None)[0])


@pytest.mark.long
def test_ten_equations_in_a_thousand_parameters_have_intrinsic_dimension_ten():
    problem = Problem(
        lambda key: ({"w": jnp.zeros(1000)}, {}),
        toy,
        jnp.zeros(1),
        Descent(optax.sgd(0.2, momentum=0.95), steps=2000),
    )
    found = intrinsic_dimension(problem, KEYS, [11, 8, 10, 9], score=closeness, baseline=1.0)
    assert found.dimensions.tolist() == [8, 9, 10, 11]
    assert found.smallest.tolist() == [10, 10, 10]
    assert found.kept.tolist() == [1000] * 3
    assert (found.scores[2:] > 0.99).all()


def nearness(params, state, batch):
    return jnp.exp(-quadratic(params, state, batch, None)[0])


@pytest.mark.long
def test_each_seed_has_the_mask_of_its_network_and_its_own_baseline():
    search = jaxarch.search.random_mask(0.5)
    network, _ = jaxarch.over_seeds(search, KEYS, CONVEX)
    found = intrinsic_dimension(CONVEX, KEYS, [1, 16], network, score=nearness)
    assert found.kept.tolist() == [16] * 3
    best = [
        np.exp(-(np.square(TARGET[:16]) @ ~np.asarray(mask).reshape(-1)) / 2)
        for mask in network.mask["kernel"]
    ]
    np.testing.assert_allclose(found.baseline, best, rtol=1e-4)
    np.testing.assert_allclose(found.scores[1], best, rtol=1e-4)
    assert found.smallest.tolist() == [16] * 3
    np.testing.assert_allclose(found.threshold, 0.9 * found.baseline)


@pytest.mark.long
def test_a_threshold_that_no_dimension_reaches_leaves_none():
    mask = {"kernel": MASK, "bias": None}
    found = intrinsic_dimension(CONVEX, KEYS, [1, 2], mask, score=nearness, baseline=[1.0, 1.0, 1e-30])
    assert np.isnan(found.smallest).tolist() == [True, True, False]
    assert found.smallest[2] == 1


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([25],), {}, "dimensions: expected at most 24, the number of parameters that are kept, got 25"),
        (([0, 1],), {}, "dimensions: expected an integer of at least 1"),
        (([1, 1],), {}, "dimensions: expected each once"),
        (([],), {}, "dimensions: expected at least one"),
        ((5,), {}, "dimensions: expected a list of integers"),
        (([1],), {"share": 0.0}, r"share: expected a number in \(0, 1\]"),
        (([1],), {"baseline": -1.0}, "score: expected baselines above 0"),
        (([1],), {"baseline": [0.5, 0.5]}, "baseline: expected a finite number, or one for each of 3 seeds"),
        (([1],), {"score": "accuracy"}, "score: the problem has no metrics"),
        (
            ([1],),
            {"score": lambda *of: jnp.ones(2)},
            r"score: expected one real number, got float32",
        ),
        (([1],), {"start": "warm"}, "start: 'warm' needs a network"),
        (([1], {"kernel": MASK.astype(int), "bias": None}), {}, "mask: expected booleans"),
        (([1], {"kernel": MASK[:2], "bias": None}), {}, "mask: leaf 'kernel' has shape"),
        (([1], {"kernel": jnp.zeros((4, 4), bool), "bias": jnp.zeros(8, bool)}), {}, "mask: it removes all"),
        (([17], {"kernel": jnp.arange(16).reshape(4, 4) < 8, "bias": None}), {}, "at most 16"),
    ],
)
def test_what_has_no_intrinsic_dimension_is_refused_before_anything_is_trained(arguments, options, message):
    with pytest.raises(ArgumentError, match=message):
        intrinsic_dimension(CONVEX, KEYS, *arguments, **{"score": nearness, **options})


def test_a_dimension_above_the_number_of_kept_parameters_is_refused_or_told():
    with pytest.raises(ArgumentError, match="dimension: expected at most 24"):
        in_subspace(25)(KEYS[0], CONVEX)
    network = Network(None, {"kernel": MASK, "bias": jnp.zeros(8, bool)})
    with pytest.raises(ArgumentError, match=f"dimension: expected at most {int(MASK.sum())}"):
        in_subspace(int(MASK.sum()) + 1)(KEYS[0], CONVEX, network)


@pytest.mark.long
def test_masks_of_many_runs_that_keep_too_few_are_reported():
    with pytest.warns(jaxarch.ResultWarning, match="3 of 3 masks keep fewer parameters than"):
        jaxarch.over_seeds(
            jaxarch.chain(jaxarch.search.random_mask(0.5), in_subspace(20)), KEYS, CONVEX.descending(steps=2)
        )


def test_complex_parameters_are_refused():
    problem = Problem(
        lambda key: ({"w": jnp.ones(3, jnp.complex64)}, {}),
        lambda params, state, batch, key: (jnp.abs(params["w"]).sum(), state),
        jnp.zeros(1),
        Descent(optax.sgd(0.1), steps=1),
    )
    with pytest.raises(ArgumentError, match="parameter 'w' is complex"):
        in_subspace(1)(KEYS[0], problem)

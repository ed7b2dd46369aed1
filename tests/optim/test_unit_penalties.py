"""Penalties on whole units, and on the connections that a mask removes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxarch
from jaxarch import ArgumentError
from jaxarch.optim import add_group_lasso, add_growing_penalty

WIDTH = 6


def model(params, x):
    """A residual stream that two layers write to, with neurons between."""
    x = jnp.tanh(x @ params["stem"])
    x = x + jnp.tanh(x @ params["in"] + params["bias"][None]) @ params["out"]
    return x @ params["head"]


@pytest.fixture(scope="module")
def params():
    shapes = {"stem": (3, 4), "in": (4, WIDTH), "bias": (WIDTH,), "out": (WIDTH, 4), "head": (4, 2)}
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return {name: jax.random.normal(key, shapes[name]) for name, key in zip(shapes, keys, strict=True)}


@pytest.fixture(scope="module")
def groups(params):
    return jaxarch.structure.axis_groups(model, params, jnp.ones((1, 3)))


def slopes(tx, params):
    return tx.update(jax.tree.map(jnp.zeros_like, params), tx.init(params), params)[0]


@pytest.mark.long
def test_the_lasso_adds_the_gradient_of_the_norms_of_its_units(groups, params):
    def penalty(params):
        squares = (params["in"] ** 2).sum(0) + (params["out"] ** 2).sum(1)
        return 0.3 * jnp.sqrt(8.0) * jnp.sqrt(squares).sum()

    found = slopes(add_group_lasso(groups, 0.3, units="bias[0]"), params)
    for name, expected in jax.grad(penalty)(params).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-5)


@pytest.mark.long
def test_a_feature_of_a_stream_has_one_norm_over_all_layers(groups, params):
    (stream,) = [name for name, group in groups.groups.items() if ("stem", 1) in group.axes]

    def penalty(params):
        written = (params["stem"] ** 2).sum(0) + (params["out"] ** 2).sum(0)
        read = (params["in"] ** 2).sum(1) + (params["head"] ** 2).sum(1)
        return jnp.sqrt(3.0 + WIDTH + WIDTH + 2) * jnp.sqrt(written + read).sum()

    found = slopes(add_group_lasso(groups, 1.0, units=stream), params)
    for name, expected in jax.grad(penalty)(params).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-5)


def test_a_unit_of_zeros_has_no_slope(groups, params):
    empty = {**params, "in": params["in"].at[:, 0].set(0), "out": params["out"].at[0].set(0)}
    found = slopes(add_group_lasso(groups, 1.0, units="bias[0]"), empty)
    assert np.isfinite(found["in"]).all()
    assert not found["in"][:, 0].any() and not found["out"][0].any()


@pytest.mark.long
def test_under_the_lasso_units_that_the_loss_does_not_need_vanish(groups, params):
    x = jax.random.normal(jax.random.key(1), (64, 3))
    needed = {**params, "out": params["out"].at[2:].set(0)}
    target = model(needed, x)

    def loss(params):
        return ((model(params, x) - target) ** 2).mean()

    def trained(strength):
        tx = optax.chain(add_group_lasso(groups, strength, units="bias[0]"), optax.adam(1e-2))

        def step(carry, _):
            params, state = carry
            updates, state = tx.update(jax.grad(loss)(params), state, params)
            return (optax.apply_updates(params, updates), state), None

        (after, _), _ = jax.lax.scan(step, (params, tx.init(params)), length=1500)
        return jnp.sort((after["in"] ** 2).sum(0) + (after["out"] ** 2).sum(1))

    penalized, plain = jax.jit(jax.vmap(trained))(jnp.array([3e-3, 0.0]))
    assert penalized[3] < 1e-3 < penalized[-2]
    assert plain[0] > 0.1


def test_the_growing_penalty_decays_what_the_mask_removes_and_leaves_the_rest(groups, params):
    mask = dict.fromkeys(params) | {"in": jnp.arange(4 * WIDTH).reshape(4, WIDTH) % 2 == 0}
    tx = add_growing_penalty(mask, lambda step: 0.1 * step)
    state = tx.init(params)
    for step in range(3):
        updates, state = tx.update(jax.tree.map(jnp.zeros_like, params), state, params)
        assert np.allclose(updates["in"], np.where(mask["in"], 0, 0.1 * step * params["in"]))
        assert not updates["out"].any()


def test_after_a_growing_penalty_the_cut_changes_little(groups, params):
    x = jax.random.normal(jax.random.key(1), (64, 3))
    target = model(params, x)
    plan = jaxarch.structure.plan(model, params, x, budget="60% multiply_adds")

    def loss(params):
        return ((model(params, x) - target) ** 2).mean()

    tx = optax.chain(add_growing_penalty(plan.mask, optax.linear_schedule(0.0, 1.0, 500)), optax.sgd(0.02))

    @jax.jit
    def train(params):
        def step(carry, _):
            params, state = carry
            updates, state = tx.update(jax.grad(loss)(params), state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, tx.init(params)), length=1500)[0][0]

    after = train(params)
    smaller = plan.groups.smaller(plan.kept)

    def change(params):
        return float(abs(smaller(plan.cut(params), x) - model(params, x)).max())

    assert change(after) < 1e-3 < 0.1 < change(params)


def test_updates_keep_their_dtype(groups, params):
    halves = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    for tx in (add_group_lasso(groups, 1.0), add_growing_penalty({"in": jnp.zeros((4, WIDTH), bool)}, 1.0)):
        found = slopes(tx, halves)
        assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype(jnp.bfloat16)}


def test_bad_arguments_are_refused(groups, params):
    with pytest.raises(ArgumentError, match="groups"):
        add_group_lasso({}, 1.0)
    with pytest.raises(ArgumentError, match="strength"):
        add_group_lasso(groups, -1.0)
    with pytest.raises(ArgumentError, match="strength"):
        add_growing_penalty({"in": jnp.ones((4, WIDTH), bool)}, -1.0)
    with pytest.raises(ArgumentError, match="mask"):
        add_growing_penalty(params, 1.0)
    with pytest.raises(ArgumentError, match="params: add_group_lasso"):
        add_group_lasso(groups, 1.0).update(params, None)
    with pytest.raises(ArgumentError, match="another model"):
        slopes(add_group_lasso(groups, 1.0), {"in": jnp.ones((3, 3))})


def test_float16_weights_neither_overflow_nor_vanish(groups, params):
    for scale in (1e-4, 400.0):
        halves = jax.tree.map(lambda leaf: (leaf * scale).astype(jnp.float16), params)  # noqa: B023
        found = slopes(add_group_lasso(groups, 1.0), halves)
        expected = slopes(add_group_lasso(groups, 1.0), jax.tree.map(lambda x: x.astype(jnp.float32), halves))
        assert np.allclose(found["in"], expected["in"], rtol=1e-2) and found["in"].any()


def test_parameters_without_gradients_are_refused(params):
    tx = optax.chain(
        add_growing_penalty({"in": jnp.zeros((4, WIDTH), bool)}, 1.0), optax.lookahead(optax.sgd(1.0), 5, 0.5)
    )
    both = optax.LookaheadParams.init_synced(params)
    with pytest.raises(ArgumentError, match=r"optax\.lookahead"):
        tx.update(jax.tree.map(jnp.zeros_like, params), tx.init(both), both)


def test_schedules_return_one_number(params):
    tx = add_growing_penalty({"in": jnp.zeros((4, WIDTH), bool)}, lambda step: jnp.ones(2))
    with pytest.raises(ArgumentError, match="strength: expected one number"):
        slopes(tx, params)

"""Loops over stacked layers, as layers with arrays of their own."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxarch
from jaxarch import ArgumentError
from jaxarch.structure import axis_groups, plan, unroll

DRAW = np.random.default_rng(0)
LAYERS = 3
PARAMS = {
    "in": jnp.asarray(DRAW.normal(size=(LAYERS, 4, 8)), jnp.float32),
    "out": jnp.asarray(DRAW.normal(size=(LAYERS, 8, 4)), jnp.float32),
    "up": jnp.eye(4),
    "head": jnp.asarray(DRAW.normal(size=(4, 2)), jnp.float32),
}
X = jnp.asarray(DRAW.normal(size=(5, 4)), jnp.float32)


def layer(x, p):
    return x + jnp.tanh(x @ p["in"]) @ p["out"]


def scan(p, x, step=layer, **options):
    stacked = {"in": p["in"], "out": p["out"]}
    x, means = jax.lax.scan(lambda x, p: (step(x, p), x.mean()), x, stacked, **options)
    return x @ p["head"], means


def in_half_precision(p, x):
    return scan(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), p), x.astype(jnp.bfloat16))


def near(one, other, exact=1e-6):
    """Compare arrays, in units of the largest number."""
    np.testing.assert_allclose(one, other, rtol=0, atol=exact * np.abs(np.asarray(one, float)).max())


MODELS = {
    "a scan": scan,
    "backwards": lambda p, x: scan(p, x, reverse=True),
    "checkpointed layers": lambda p, x: scan(p, x, jax.checkpoint(layer)),
    "in a program that is called": jax.jit(scan),
    "parts in programs of their own": lambda p, x: jax.jit(scan)(p, jax.jit(lambda p, x: x @ p["up"])(p, x)),
    "in half precision": in_half_precision,
    "two loops": lambda p, x: scan(p, jax.lax.scan(lambda x, w: (x @ w[:, :4], None), x, p["in"])[0]),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_unrolled_model_computes_the_same_and_has_the_same_gradient(model):
    function, tree = unroll(model, PARAMS, X)
    assert [leaf.shape for leaf in tree["in"]] == [(4, 8)] * LAYERS
    assert tree["head"] is PARAMS["head"]

    def loss(function, tree):
        return sum(jnp.square(each).sum() for each in function(tree, X[:2])).astype(jnp.float32)

    exact = 1e-6 if model is not in_half_precision else 0.02
    of_both = (jax.jit(each)(tree, X) for each, tree in ((model, PARAMS), (function, tree)))
    jax.tree.map(lambda *each: near(*each, exact), *of_both)
    one = jax.jit(jax.grad(lambda tree: loss(model, tree)))(PARAMS)
    other = jax.jit(jax.grad(lambda tree: loss(function, tree)))(tree)
    for name in ("in", "out"):
        near(one[name], np.stack(other[name]), exact)


def test_each_layer_may_lose_other_units_and_more_of_them_than_the_next():
    function, tree = unroll(scan, PARAMS, X)
    neurons = [f"in/{number}[1]" for number in range(LAYERS)]
    assert list(axis_groups(function, tree, X).groups) == neurons
    kept = {name: np.arange(8) % (number + 1) == 0 for number, name in enumerate(neurons)}
    small = plan(function, tree, X, kept=kept).apply()
    assert [leaf.shape[1] for leaf in small.tree["in"]] == [8, 4, 3]
    mask = jnp.stack([kept[name] for name in neurons])
    masked = PARAMS | {"in": PARAMS["in"] * mask[:, None], "out": PARAMS["out"] * mask[..., None]}
    near(small.function(small.tree, X)[0], scan(masked, X)[0])


ANOTHER_WAY = {
    "outside of the loop": lambda p, x: scan(p, x)[0] * jnp.square(p["in"]).sum(),
    "by one of two programs": lambda p, x: scan(p, x)[0] + jax.jit(lambda p: p["in"].sum())(p),
    "whole in each layer": lambda p, x: scan(p, x, lambda x, w: layer(x, w) + p["in"].sum())[0],
}


@pytest.mark.parametrize("model", ANOTHER_WAY.values(), ids=ANOTHER_WAY)
def test_a_leaf_that_is_read_in_another_way_too_stays_stacked(model):
    function, tree = unroll(model, PARAMS, X)
    assert tree["in"] is PARAMS["in"] and len(tree["out"]) == LAYERS
    near(function(tree, X), model(PARAMS, X))


def test_the_unrolled_model_takes_lists_and_other_dtypes_and_returns_arrays():
    def model(p, x):
        return jax.lax.scan(lambda x, w: ((x @ w[:, :4]).astype(x.dtype), True), x, p["in"])

    function, tree = unroll(model, {"in": PARAMS["in"]}, X)
    half = {"in": [leaf.astype(jnp.bfloat16) for leaf in tree["in"]]}
    outputs, flags = function(half, X.astype(jnp.bfloat16))
    assert (outputs.dtype, flags.astype(int).tolist()) == (jnp.bfloat16, [1] * LAYERS)


def test_a_loop_without_rounds_and_a_leaf_that_is_returned_stay_stacked():
    def model(p, x):
        rest = jax.lax.scan(lambda x, w: (x @ w, x), x, p["none"])
        return scan(p, x)[0], rest, p["out"]

    params = PARAMS | {"none": jnp.ones((0, 4, 4))}
    function, tree = unroll(model, params, X)
    assert (len(tree["in"]), tree["none"] is params["none"], tree["out"] is params["out"]) == (3, True, True)
    jax.tree.map(np.testing.assert_array_equal, function(tree, X)[1], model(params, X)[1])


def test_layers_of_a_scan_of_flax_are_unrolled_from_their_shapes_alone():
    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            return x + nn.Dense(4)(nn.relu(nn.Dense(8)(x))), None

    module = nn.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=LAYERS)()
    shapes = jax.eval_shape(module.init, jax.random.key(0), X, None)
    function, tree = unroll(lambda p, x: module.apply(p, x, None)[0], shapes, X)
    assert [group.size for group in axis_groups(function, tree, X).groups.values()] == [8] * LAYERS


def test_what_cannot_be_unrolled_is_refused_in_one_line():
    with pytest.raises(ArgumentError, match="no leaf can be split into layers"):
        unroll(lambda p, x: x @ p["head"], PARAMS, X)
    function, tree = unroll(scan, PARAMS, X)
    with pytest.raises(ArgumentError, match=r"expected 'in/1' with shape \(4, 8\), got \(4, 7\)"):
        function(tree | {"in": (tree["in"][0], tree["in"][1][:, :7], tree["in"][2])}, X)
    with pytest.raises(ArgumentError, match="two leaves have the same path"):
        unroll(scan, PARAMS | {"in/0": X}, X)
    with pytest.raises(ArgumentError, match="function: expected a function"):
        jaxarch.structure.unroll(3, PARAMS, X)

"""Alignment finds the order of units that makes two networks most alike, and changes nothing they compute."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from long_suite import partly_long
from places import ROOT

import jaxarch
from jaxarch import ArgumentError
from jaxarch.analysis import align, unit_correlations
from jaxarch.structure import axis_groups

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT / "benchmarks")
    import jax_models

X = jax.random.normal(jax.random.key(9), (16, 5))


def mlp(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["kernel"] + layer["bias"][None])
    return x @ params[-1]["kernel"]


def drawn(seed, widths=(5, 7, 6, 3), dtype=jnp.float32):
    draw = np.random.default_rng(seed)
    layers = [
        {"kernel": draw.normal(size=sizes), "bias": draw.normal(size=sizes[1])}
        for sizes in itertools.pairwise(widths)
    ]
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), layers)


def random_orders(groups, seed=1, left=()):
    draw = np.random.default_rng(seed)
    return {name: draw.permutation(of.size) for name, of in groups.groups.items() if name not in left}


def equal(one, other):
    return jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b), one, other))


def inner(one, other):
    products = jax.tree.map(lambda a, b: float(np.vdot(a, b).real), one, other)
    return sum(jax.tree.leaves(products))


ROTARY, TIMES = {"features": [2]}, {"neurons": [8]}
MODELS = {"Llama under scan": ROTARY, "MoE, dispatch": ROTARY | {"experts": [4]}, "Mamba 2": {}, "Swin": {}}
MODELS |= {"bidirectional LSTM": {}, "DiT": TIMES, "GNN": {}}


@pytest.mark.parametrize("name", partly_long(MODELS, ("Swin", "DiT", "MoE, dispatch")))
def test_a_copy_in_another_order_is_aligned_exactly_where_the_model_has_no_order(name):
    with jax.numpy_rank_promotion("allow"):
        model = jax_models.made(name)
        groups = axis_groups(model.apply, model.params, *model.inputs)
        same = align(model.apply, model.params, model.params, *model.inputs)
        told_apart = {groups.groups[of].kind: [groups.groups[of].size] for of in same.left}
        assert told_apart == MODELS[name]
        copy = groups.permute(model.params, random_orders(groups, left=same.left))
        assert equal(align(model.apply, model.params, copy, *model.inputs).second, model.params)


@pytest.mark.long
def test_a_resnet_in_another_order_is_aligned_exactly_with_its_batch_statistics():
    model = jaxarch.models.ResNet20(inputs=3, outputs=10, rngs=nnx.Rngs(0))
    model.eval()
    graph, params, state = nnx.split(model, nnx.Param, ...)
    draw = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: jnp.asarray(0.2 * draw.normal(size=leaf.shape), leaf.dtype), params)
    state = jax.tree.map(lambda leaf: jnp.asarray(0.5 + draw.random(leaf.shape), leaf.dtype), state)
    tree = params, state

    def function(tree, x):
        return nnx.merge(graph, *tree, copy=True)(x)

    x = jax.random.normal(jax.random.key(0), (2, 32, 32, 3))
    groups = axis_groups(function, tree, x)
    assert len(groups.groups) == 12
    copy = groups.permute(tree, random_orders(groups))
    assert equal(align(function, tree, copy, x).second, tree)


def test_one_group_has_the_largest_inner_product_of_all_orders():
    a, b = drawn(0, (5, 5, 3)), drawn(1, (5, 5, 3))
    aligned = align(mlp, a, b, X)
    (name,) = aligned.orders
    every = [
        inner(a, aligned.groups.permute(b, {name: list(order)})) for order in itertools.permutations(range(5))
    ]
    assert inner(a, aligned.second) == pytest.approx(max(every), rel=1e-6)
    assert sorted(every)[-2] < max(every) - 1e-3


def test_restarts_find_no_worse_an_order_and_their_key_decides_which():
    a, b = (drawn(seed, (5, 20, 20, 20, 3)) for seed in (3, 4))
    single, many, again = (
        align(mlp, a, b, X, restarts=restarts, key=jax.random.key(0)) for restarts in (0, 20, 20)
    )
    assert inner(a, many.second) > inner(a, single.second) + 1e-3
    assert equal(many.second, again.second)


def test_no_swap_of_two_units_brings_aligned_networks_nearer():
    a, b = drawn(0), drawn(1)
    aligned = align(mlp, a, b, X)
    reached = inner(a, aligned.second)
    for name, order in aligned.orders.items():
        for pair in itertools.combinations(range(len(order)), 2):
            swapped = np.arange(len(order))
            swapped[[*pair]] = swapped[[*pair[::-1]]]
            assert inner(a, aligned.groups.permute(aligned.second, {name: swapped})) < reached


def test_a_kernel_with_the_same_units_on_both_axes_loses_nothing():
    def recurrent(params, x):
        h = x @ params["in"]
        for _ in range(2):
            h = jnp.tanh(h + h @ params["within"])
        return h @ params["out"]

    def of(seed):
        draw = np.random.default_rng(seed)
        sizes = {"in": (5, 8), "within": (8, 8), "out": (8, 3)}
        # The kernel within outweighs the others, which know the order from the inputs.
        return {
            name: jnp.asarray(draw.normal(size=of) * (3 if name == "within" else 1))
            for name, of in sizes.items()
        }

    for seed in range(5):
        a, b = of(seed), of(seed + 50)
        aligned = align(recurrent, a, b, X)
        assert inner(a, aligned.second) > inner(a, b)
        assert np.allclose(recurrent(aligned.second, X), recurrent(b, X), atol=1e-4)


@pytest.mark.long
def test_an_aligned_network_computes_the_same_and_so_does_its_optimizer():
    b = drawn(1)
    aligned = align(mlp, drawn(0), b, X)
    assert not equal(aligned.second, b)
    optimizer = optax.adam(0.1)

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(jax.grad(lambda p: (mlp(p, X) ** 2).mean())(params), state)
        return optax.apply_updates(params, updates), state

    _, state = step(b, optimizer.init(b))
    after, _ = step(b, state)
    after_aligned, _ = step(aligned.second, aligned.permute(state))
    assert np.allclose(mlp(after_aligned, X), mlp(after, X), atol=1e-4)


def test_units_that_a_constant_tells_apart_stay_where_they_are():
    def scaled(params, x):
        return (
            mlp([*params[:1], *params[1:]], x) + jnp.tanh(x @ params[0]["kernel"]) @ jnp.arange(7.0)[:, None]
        )

    a = drawn(0)
    aligned = align(scaled, a, drawn(1), X)
    (name,) = aligned.left
    assert (aligned.groups.groups[name].size, aligned.left[name]) == (7, "the function tells its units apart")
    assert [len(order) for order in aligned.orders.values()] == [6]
    assert "tells its units apart" in str(aligned)


@pytest.mark.parametrize("blind", ["dead units", "inputs of 0"])
def test_units_are_told_apart_where_the_example_does_not_show_it(blind):
    def scaled(params, x):
        return jax.nn.relu(x @ params["in"] + params["bias"][None]) * jnp.arange(8.0)[None] @ params["out"]

    draw = np.random.default_rng(0)
    a = {"in": draw.normal(size=(5, 8)), "bias": -10 * np.ones(8), "out": draw.normal(size=(8, 3))}
    x = X * 0 if blind == "inputs of 0" else X / 100
    aligned = align(scaled, a, {**a, "in": a["in"][:, ::-1]}, x)
    assert not aligned.orders and len(aligned.left) == 1


@pytest.mark.parametrize("scale", [1e-20, 1e25])
def test_scales_change_no_order(scale):
    def net(params, x):
        return jnp.tanh(x @ params["in"]) @ params["out"]

    a, b = ({"in": of[0]["kernel"], "out": of[1]["kernel"]} for of in (drawn(s, (5, 6, 3)) for s in (0, 1)))
    huge = jax.tree.map(lambda leaf: leaf * scale, (a, b))
    assert equal(align(net, a, b, X).orders, align(net, *huge, X / np.float32(scale)).orders)


def test_leaves_that_are_split_over_explicit_axes_stay_so():
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    params = drawn(0, (5, 8, 3))
    groups = axis_groups(mlp, params, X)
    split = jax.NamedSharding(mesh, jax.P(None, "d"))
    with jax.set_mesh(mesh):
        kernel = jax.device_put(params[0]["kernel"], split)
        moved = groups.permute([{**params[0], "kernel": kernel}, params[1]], random_orders(groups))
    assert moved[0]["kernel"].sharding == split
    assert equal(moved, groups.permute(params, random_orders(groups)))


def test_units_are_matched_by_their_values_too():
    a = drawn(0)
    groups = axis_groups(mlp, a, X)
    copy = jax.tree.map(lambda leaf: 2 * leaf, groups.permute(a, random_orders(groups)))
    aligned = align(mlp, a, copy, X, by=unit_correlations(mlp, a, copy, [X[:9], X[9:]]))
    assert equal(aligned.second, jax.tree.map(lambda leaf: 2 * leaf, a))
    first, second = groups.groups
    alone = align(mlp, a, copy, X, by={second: np.eye(groups.groups[second].size)})
    assert alone.left == {first: "`by` has no entry for it"}
    assert (alone.orders[second] == np.arange(groups.groups[second].size)).all()


@pytest.mark.long
def test_networks_are_aligned_with_their_masks_and_lose_what_has_the_old_order():
    model, rate = (lambda key: drawn(2), mlp), optax.sgd(0.1)
    problem = jaxarch.supervised(model, (X, X[:, :3]), loss=optax.squared_error, optimizer=rate, steps=1)

    def network(seed):
        params = drawn(seed)
        mask = jaxarch.masks.keep(jax.tree.map(jnp.abs, jaxarch.select(params)), 0.4)
        start = jaxarch.Start(params)
        return jaxarch.Network(jaxarch.masks.apply_mask(mask, params), mask, {}).with_records(start)

    first, second = network(0), network(1)
    aligned = align(problem, first, second)
    found = aligned.second
    assert aligned.cosine[1] > aligned.cosine[0] + 0.05
    assert found.get(jaxarch.Start) is None and second.get(jaxarch.Start) is not None
    assert equal(found.mask, aligned.permute(second.mask)) and not equal(found.mask, second.mask)
    assert equal(found.params, jaxarch.masks.apply_mask(found.mask, found.params))
    assert np.allclose(*(mlp(of.params, X) for of in (second, found)), atol=1e-5)
    units = unit_correlations(problem, first, second, [(X, X[:, :3])])
    assert align(problem, first, second, by=units).orders.keys() == units.keys() == aligned.orders.keys()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.complex64])
def test_weights_of_other_dtypes_are_aligned(dtype):
    def apply(params, x):
        return jnp.abs(jnp.tanh(x.astype(dtype) @ params["in"]) @ params["out"])

    draw = np.random.default_rng(0)
    sizes = {"in": (5, 9, 2), "out": (9, 2, 2)}
    parts = {name: draw.normal(size=of) for name, of in sizes.items()}
    a = {
        name: jnp.asarray(of[..., 0] + (1j * of[..., 1] if dtype == jnp.complex64 else 0), dtype)
        for name, of in parts.items()
    }
    groups = axis_groups(apply, a, X)
    assert equal(align(apply, a, groups.permute(a, random_orders(groups)), X).second, a)


def test_arrays_stay_on_their_devices_and_integers_go_along():
    mesh = Mesh(np.array(jax.devices()[:2]), ("d",))
    a = {
        "in": jnp.arange(40.0).reshape(5, 8) % 7,
        "out": jnp.arange(16.0).reshape(8, 2),
        "uses": jnp.arange(8),
    }

    def apply(params, x):
        return (x @ params["in"] * params["uses"][None]) @ params["out"]

    groups = axis_groups(apply, a, X)
    copy = groups.permute(a, random_orders(groups))
    split = {"in": PartitionSpec(None, "d"), "out": PartitionSpec("d"), "uses": PartitionSpec()}
    copy = {name: jax.device_put(leaf, NamedSharding(mesh, split[name])) for name, leaf in copy.items()}
    aligned = align(apply, a, copy, X).second
    assert equal(aligned, a)
    assert [aligned[name].sharding == copy[name].sharding for name in copy] == [True] * 3


A = drawn(0)
NAN = jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), A)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((mlp, A, drawn(1, (5, 7, 7, 3)), X), {}, "second: expected '1/bias' with the first's shape"),
        ((mlp, A, NAN, X), {}, "second: '0/bias' has entries that are NaN or infinite"),
        ((mlp, A, A, X / 0), {}, "second: it computes NaN"),
        ((mlp, A, A), {}, "function: it cannot be traced"),
        ((lambda p, x: mlp(p, x).argmax(-1), A, A, X), {}, "model: expected outputs of real numbers"),
        ((mlp, jaxarch.Network(A), A, X), {}, "first: expected parameters, got a Network; give its `params`"),
        (
            (lambda p, x: x @ p["w"], {"w": jnp.ones((5, 2))}, {"w": jnp.ones((5, 2))}, X),
            {},
            "model: no groups",
        ),
        (
            (mlp, A, A, X),
            {"by": {"0/bias[0]": jnp.ones((2, 2))}},
            r"by: expected finite numbers of shape \(7, 7\)",
        ),
        ((mlp, A, A, X), {"restarts": 2}, "key: expected a random key for the restarts"),
        ((mlp, A, A, X), {"restarts": 2, "by": {}}, "restarts: a match by similarities has one optimum"),
        ((mlp, A, A, X), {"by": {"other": jnp.ones((2, 2))}}, "by: unknown group 'other'"),
    ],
)
def test_what_cannot_be_aligned_is_refused(arguments, options, message):
    with pytest.raises(ArgumentError, match=message):
        align(*arguments, **options)

"""Smaller models that compute what the masked ones do: by hand, and for NNX and Linen models."""

import itertools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st
from small import same

import jaxarch
from jaxarch.masks import apply_mask, full_mask
from jaxarch.network import Network
from jaxarch.trees import map_selected, named_leaves, select

LOSS = optax.softmax_cross_entropy_with_integer_labels
X = np.random.default_rng(0).normal(size=(6, 4, 4, 1)).astype(np.float32)
Y = np.arange(6) % 3
CHAIN = (("convs/0", "norms/0"), ("convs/1", "norms/1"), "dense/0", "dense/1")


class MLP(nnx.Module):
    def __init__(self, rngs, hidden=(8, 7)):
        self.layers = nnx.List([nnx.Linear(m, n, rngs=rngs) for m, n in itertools.pairwise((16, *hidden, 3))])

    def __call__(self, x):
        x = x.reshape(x.shape[0], -1)
        for layer in self.layers[:-1]:
            x = nnx.relu(layer(x))
        return self.layers[-1](x)


class CNN(nnx.Module):
    """Two convolutions with batch norm, a flatten, two dense layers."""

    def __init__(self, rngs, channels=(4, 5), hidden=6):
        first, second = channels
        self.convs = nnx.List(
            [nnx.Conv(1, first, (3, 3), rngs=rngs), nnx.Conv(first, second, (3, 3), rngs=rngs)]
        )
        self.norms = nnx.List([nnx.BatchNorm(n, momentum=0.5, rngs=rngs) for n in channels])
        self.dense = nnx.List([nnx.Linear(4 * second, hidden, rngs=rngs), nnx.Linear(hidden, 3, rngs=rngs)])

    def __call__(self, x):
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = nnx.relu(norm(conv(x)))
        x = nnx.max_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1)
        return self.dense[1](nnx.relu(self.dense[0](x)))


class Linen(nn.Module):
    channels: int = 4

    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.Conv(self.channels, (3, 3), name="conv")(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train, name="norm")(x))
        return nn.Dense(3, name="head")(x.reshape(x.shape[0], -1))


def problem_of(model, steps=3, x=X):
    return jaxarch.supervised(model, (x, Y), loss=LOSS, optimizer=optax.sgd(0.1), steps=steps)


def with_random_mask(params, state, seed, share, biases=0.0):
    """A network with random connections, whole nodes without any among them, and random biases."""
    generator = np.random.default_rng(seed)

    def drawn(leaf):
        mask = generator.random(leaf.shape) < share
        mask[..., generator.random(leaf.shape[-1]) < 0.3] = False
        mask[..., generator.random(leaf.shape[-2]) < 0.2 * (leaf.shape[-2] > 1), :] = False
        return jnp.asarray(mask)

    mask = map_selected(drawn, select(params))
    shifted = jax.tree.map(
        lambda leaf: leaf + biases * jnp.asarray(generator.normal(size=leaf.shape), leaf.dtype), params
    )
    return Network(apply_mask(mask, shifted), mask, state)


def outputs(problem, network):
    return jax.jit(problem.predict)(network.params, network.state, (X, Y))


def assert_equal_outputs(problem, small, network):
    np.testing.assert_allclose(outputs(problem, small), outputs(problem, network), rtol=1e-5, atol=1e-5)


DENSE, PICTURES = problem_of(MLP), problem_of(CNN)


def dense(kernel, bias=None):
    layer = {"kernel": jnp.asarray(kernel, jnp.float32)}
    return layer if bias is None else layer | {"bias": jnp.asarray(bias, jnp.float32)}


def by_hand(**layers):
    """A network whose connections are its weights that are not 0."""
    mask = {name: dict.fromkeys(layer) for name, layer in layers.items()}
    for name, layer in layers.items():
        mask[name]["kernel"] = layer["kernel"] != 0
    return Network(layers, mask, {})


TWO = ("hidden", "head")


def test_what_is_left_of_a_small_network_by_hand():
    # Neuron 0 lives; 1 gets nothing and is relu(.5) = .5; 2 goes nowhere; 3 is relu(-1) = 0.
    small = jaxarch.shrink(
        by_hand(
            hidden=dense([[1, 0, 3, 0], [2, 0, 4, 0]], [0.1, 0.5, 0.2, -1.0]),
            head=dense([[5, 6], [7, 8], [0, 0], [9, 9]], [1.0, 2.0]),
        ),
        TWO,
    )
    assert same(small.params["hidden"], dense([[1], [2]], [0.1]))
    assert same(small.params["head"], dense([[5, 6]], [1 + 0.5 * 7, 2 + 0.5 * 8]))
    assert same(small.mask["head"]["kernel"], np.ones((1, 2), bool))
    assert small.widths == {"hidden": 1, "head": 2}
    assert small.neurons["hidden"].tolist() == [0]
    assert small.kept == {"hidden": 0}


def test_a_neuron_fed_by_constants_is_one():
    # Neuron 0 of `b` is relu(.5 * 2 + 1) = 2, since all it gets is neuron 0 of `a`, relu(.5).
    small = jaxarch.shrink(
        by_hand(
            a=dense([[0, 1]], [0.5, 0.0]), b=dense([[2, 0], [0, 1]], [1.0, 0.0]), c=dense([[3], [1]], [0.0])
        ),
        ("a", "b", "c"),
    )
    assert small.widths == {"a": 1, "b": 1, "c": 1}
    assert small.params["c"]["bias"].tolist() == [6.0]


def test_without_a_bias_to_take_it_a_constant_stays_unless_it_is_0():
    first = dense([[1, 0, 0]], [0.0, 0.5, 0.0])
    small = jaxarch.shrink(by_hand(hidden=first, head=dense([[1, 1], [1, 1], [1, 1]])), TWO)
    assert small.neurons["hidden"].tolist() == [0, 1]
    assert small.kept == {"hidden": 1}
    # A bias that is masked is pruned, not there to be filled.
    network = by_hand(hidden=first, head=dense([[1, 1], [1, 1], [1, 1]], [0.0, 0.0]))
    network.mask["head"]["bias"] = jnp.zeros(2, bool)
    assert jaxarch.shrink(network, TWO).neurons["hidden"].tolist() == [0, 1]


def test_the_activation_says_what_a_neuron_without_inputs_is_worth():
    network = by_hand(hidden=dense([[1, 0]], [0.0, 0.0]), head=dense([[1], [4]], [0.0]))
    small = jaxarch.shrink(network, TWO, activation=jax.nn.sigmoid)
    assert small.params["head"]["bias"].tolist() == [2.0]


def test_a_layer_keeps_one_neuron_at_least():
    network = by_hand(hidden=dense([[0, 0]], [1.0, 2.0]), head=dense([[3], [4]], [0.5]))
    small = jaxarch.shrink(network, TWO)
    assert small.widths["hidden"] == 1
    value = jax.nn.relu(small.params["hidden"]["bias"]) @ small.params["head"]["kernel"]
    assert float(value[0] + small.params["head"]["bias"][0]) == 11.5
    assert small.kept == {"hidden": 1}


def test_a_layer_without_a_mask_keeps_all_its_connections():
    network = by_hand(hidden=dense([[1, 0]], [0.0, 0.0]), head=dense([[1], [4]], [0.0]))
    network.mask["head"]["kernel"] = None
    small = jaxarch.shrink(network, TWO)
    assert small.params["head"]["kernel"].tolist() == [[1.0]]
    assert small.mask["head"]["kernel"] is None


def mlp(params):
    """What `MLP` computes, in NumPy: arrays of new shapes cost no compilation."""
    x, leaves = X.reshape(len(X), -1), named_leaves(params)
    for i in range(3):
        x = x @ np.asarray(leaves[f"layers/{i}/kernel"]) + np.asarray(leaves[f"layers/{i}/bias"])
        x = np.maximum(x, 0) if i < 2 else x
    return x


@pytest.mark.long
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 0.4]), st.sampled_from([0.0, 1.0]))
def test_a_smaller_mlp_has_the_same_outputs_and_no_dead_neuron(seed, share, biases):
    network = with_random_mask(*DENSE.init(jax.random.key(0)), seed, share, biases)
    small = jaxarch.shrink(network)
    np.testing.assert_allclose(mlp(small.params), mlp(network.params), rtol=1e-4, atol=1e-5)
    alive = {
        name: int((~gone).sum()) for name, gone in jaxarch.structure.nodes.dead_nodes(network.mask).items()
    }
    for name, count in alive.items():
        assert small.widths[name] == count + small.kept[name]
    if all(alive.values()):
        assert not any(small.kept.values())


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 6, 9])
def test_a_smaller_network_of_convolutions_has_the_same_outputs(seed):
    params, state = PICTURES.init(jax.random.key(0))
    state = jax.tree.map(lambda leaf: leaf + 0.1, state)
    network = with_random_mask(params, state, seed, 0.5, biases=1.0)
    small = jaxarch.shrink(network, CHAIN)
    assert_equal_outputs(PICTURES, small, network)
    assert sum(small.widths.values()) < 18
    for name, gone in jaxarch.structure.nodes.dead_nodes(network.mask, CHAIN).items():
        assert small.widths[name] == int((~gone).sum()) + small.kept[name]


@pytest.mark.long
def test_before_training_all_dead_nodes_go():
    network = with_random_mask(*PICTURES.init(jax.random.key(0)), seed=6, share=0.5)
    dead = jaxarch.structure.nodes.dead_nodes(network.mask, CHAIN)
    small = jaxarch.shrink(network, CHAIN)
    assert sum(int(gone.sum()) for gone in dead.values()) > 3
    assert {name: small.widths[name] for name in dead} == {n: int((~g).sum()) for n, g in dead.items()}
    assert not any(small.kept.values())


@pytest.fixture(scope="module")
def trained():
    """A random architecture with dead channels, trained: biases, batch norm and running means have moved."""
    start = with_random_mask(*PICTURES.init(jax.random.key(0)), seed=6, share=0.5)
    return jax.jit(jaxarch.retrain("warm", nonnegative=False))(jax.random.key(1), PICTURES, start)


def test_after_training_outputs_are_the_same_and_what_had_to_stay_is_counted(trained):
    small = jaxarch.shrink(trained, CHAIN)
    moved = [*trained.params["norms"].values(), *trained.params["dense"].values()]
    assert all(np.any(layer["bias"][...]) for layer in moved)
    assert all(np.any(layer["mean"][...]) for layer in trained.state["norms"].values())
    assert_equal_outputs(PICTURES, small, trained)
    # Constants in front of a convolution may stay; in front of dense layers none.
    assert small.kept["convs/1"] == small.kept["dense/0"] == 0
    assert small.widths["dense/1"] == 3


@pytest.mark.long
def test_a_smaller_model_class_takes_the_smaller_arrays_and_is_retrained(trained):
    small = jaxarch.shrink(trained, CHAIN)
    channels, hidden = [small.widths[f"convs/{i}"] for i in range(2)], small.widths["dense/0"]
    again = problem_of(lambda rngs: CNN(rngs, channels, hidden))
    assert_equal_outputs(again, small, small)
    network = Network(small.params, small.mask, small.state)
    result = jax.jit(jaxarch.retrain("cold", nonnegative=False))(jax.random.key(2), again, network)
    assert np.isfinite(result.info["loss"]).all()
    module = CNN(nnx.Rngs(0), channels, hidden)
    module.eval()
    nnx.update(module, small.params, small.state)
    np.testing.assert_allclose(module(jnp.asarray(X)), outputs(PICTURES, small), rtol=1e-5, atol=1e-5)


def batch_norm_network(**changes):
    """A convolution whose second channel has nothing coming in, batch norm, a second convolution."""
    params = {
        "conv": {"kernel": jnp.ones((1, 1, 1, 2)).at[..., 1].set(0), "bias": jnp.array([0.0, 0.25])},
        "norm": {"scale": jnp.ones(2), "bias": jnp.array([0.0, -1.0])},
        "last": {"kernel": jnp.ones((1, 1, 2, 1)), "bias": jnp.zeros(1)},
    }
    state = {"norm": {"mean": jnp.array([0.0, 0.25]), "var": jnp.ones(2)}}
    for path, value in changes.items():
        tree = state if path in ("mean", "var") else params
        tree["norm"] = tree["norm"] | {path: jnp.asarray(value)}
    mask = {name: dict.fromkeys(layer) for name, layer in params.items()}
    mask["conv"]["kernel"], mask["last"]["kernel"] = (
        params["conv"]["kernel"] != 0,
        jnp.ones((1, 1, 2, 1), bool),
    )
    return Network(params, mask, state)


@pytest.mark.parametrize(
    ("changes", "width"),
    [
        ({}, 1),
        ({"mean": [0.0, 0.5]}, 2),
        ({"mean": [0.0, 0.5], "scale": [1.0, 0.0]}, 1),
        ({"bias": [0.0, 1.0]}, 2),
    ],
)
def test_behind_batch_norm_a_channel_goes_if_its_value_is_the_mean_and_becomes_0(changes, width):
    small = jaxarch.shrink(batch_norm_network(**changes), (("conv", "norm"), "last"))
    assert small.widths["conv"] == width
    assert small.kept["conv"] == width - 1
    assert small.state["norm"]["mean"].shape == small.params["norm"]["scale"].shape == (width,)


def test_a_constant_that_is_not_0_makes_no_constant_of_the_convolution_behind_it():
    # Each of two paths has a channel a layer; the second one begins with relu(.5), padded with zeros.
    straight = jnp.zeros((3, 3, 2, 2)).at[..., 0, 0].set(1).at[..., 1, 1].set(1)
    network = by_hand(
        conv0={"kernel": jnp.ones((3, 3, 1, 2)).at[..., 1].set(0), "bias": jnp.array([0.0, 0.5])},
        conv1={"kernel": straight, "bias": jnp.zeros(2)},
        dense=dense(jnp.ones((8, 3)), jnp.zeros(3)),
    )
    small = jaxarch.shrink(network)
    assert small.widths == {"conv0": 2, "conv1": 2, "dense": 3}
    assert small.kept == {"conv0": 1, "conv1": 1}


def test_linen_models_are_made_anew_with_the_widths_left():
    learning = problem_of(Linen())
    params, state = learning.init(jax.random.key(0))
    params = jax.tree.map(lambda leaf: leaf + 0.1, params)
    mask = full_mask(select(params))
    mask["conv"]["kernel"] = mask["conv"]["kernel"].at[..., 1:3].set(False)
    network = Network(apply_mask(mask, params), mask, state)
    # Values .1 are not the running mean 0, but a scale of 0 says enough.
    network.params["norm"]["scale"] = network.params["norm"]["scale"].at[1].set(0)
    small = jaxarch.shrink(network, (("conv", "norm"), "head"))
    assert small.widths == {"conv": 3, "head": 3}
    result = Linen(channels=3).apply({"params": small.params, **small.state}, X, train=False)
    np.testing.assert_allclose(result, outputs(learning, network), rtol=1e-5, atol=1e-5)
    with pytest.raises(Exception, match="initializer is expected to generate shape"):
        outputs(learning, small)


NUMBERED = by_hand(a0=dense([[1, 0]]), a1=dense([[1], [4]])).replace(state={"norm": {"mean": jnp.zeros(2)}})
SMALL = by_hand(hidden=dense([[1, 0]], [0.0, 0.0]), head=dense([[1], [4]], [0.0]))


@pytest.mark.parametrize(
    ("network", "options", "message"),
    [
        (SMALL, {"layers": (("hidden", "norm"), "head")}, "there is no module 'norm'"),
        (SMALL, {"layers": TWO, "activation": jnp.sum}, "activation: expected a function of one value each"),
        (SMALL.replace(failed_at=np.array([-1, -1])), {}, r"network: expected that of one run"),
        (
            by_hand(hidden=dense([[1.0]], [[0.0], [0.0]])),
            {"layers": ("hidden",)},
            r"'hidden/bias' has shape \(2, 1\)",
        ),
        (NUMBERED, {}, "'norm/mean' is batch norm's, of a layer that is not known"),
        (
            batch_norm_network().replace(state={}),
            {"layers": (("conv", "norm"), "last")},
            "'norm' keeps no running mean and variance",
        ),
        (
            Network({"w": jnp.ones((1, 1))}, {"w": jnp.ones((1, 1), bool)}, {}),
            {"layers": ("w",)},
            "`kernel`",
        ),
    ],
)
def test_what_cannot_be_shrunk_exactly_is_refused(network, options, message):
    with pytest.raises(ValueError, match=message):
        jaxarch.shrink(network, **options)


def test_it_is_refused_inside_of_jit():
    with pytest.raises(ValueError, match="shrink outside of jit"):
        jax.jit(lambda network: jaxarch.shrink(network, TWO).params)(SMALL)

"""Smaller models that compute what the masked ones do: by hand, of every family, Flax's and plain ones."""

import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import close, same
from test_axis_groups import SOME, family
from test_needed_units import masked

import jaxarch
from jaxarch import ArgumentError, Network, Start, TrainingInfo, float64, map_selected, named_leaves, select
from jaxarch.masks import apply_mask

LOSS = optax.softmax_cross_entropy_with_integer_labels
DRAW = np.random.default_rng(0)
X = jnp.asarray(DRAW.normal(size=(6, 5)), jnp.float32)
PICTURES = jnp.asarray(DRAW.normal(size=(6, 4, 4, 1)), jnp.float32)
Y = np.arange(6) % 3


def dense(kernel, bias=None):
    layer = {"kernel": jnp.asarray(kernel, jnp.float32)}
    return layer if bias is None else layer | {"bias": jnp.asarray(bias, jnp.float32)}


def layer(p, x):
    made = x @ p["kernel"]
    return made + p["bias"].reshape(*[1] * (x.ndim - 1), -1) if "bias" in p else made


def chain(activation=jax.nn.relu):
    """Layers in the order of their names."""

    def function(params, x):
        *hidden, last = params.values()
        for p in hidden:
            x = activation(layer(p, x))
        return layer(last, x)

    return function


def shrunk(function, params, x=None):
    x = jnp.ones((2, next(iter(params.values()))["kernel"].shape[-2])) if x is None else x
    small = jaxarch.shrink(function, params, x)
    assert close(jax.jit(small.function)(small.tree, x), jax.jit(function)(params, x), 1e-5)
    return small


# Constants and dead units, by hand -------------------------------------------------------------------


def test_what_is_left_of_a_small_network_by_hand():
    # Neuron 0 lives; 1 gets nothing and is relu(.5) = .5; 2 goes nowhere; 3 is relu(-1) = 0.
    small = shrunk(
        chain(),
        {
            "a": dense([[1, 0, 3, 0], [2, 0, 4, 0]], [0.1, 0.5, 0.2, -1.0]),
            "b": dense([[5, 6], [7, 8], [0, 0], [9, 9]], [1.0, 2.0]),
        },
    )
    assert same(small.tree["a"], dense([[1], [2]], [0.1]))
    assert same(small.tree["b"], dense([[5, 6]], [1 + 0.5 * 7, 2 + 0.5 * 8]))
    assert small.kept["a/bias[0]"].tolist() == [True, False, False, False]
    assert small.left == {}
    assert small.same_function


@pytest.mark.long
def test_a_neuron_fed_by_constants_is_one():
    # Neuron 0 of `b` is relu(.5 * 2 + 1) = 2, since all it gets is neuron 0 of `a`, relu(.5).
    params = {
        "a": dense([[0, 1]], [0.5, 0.0]),
        "b": dense([[2, 0], [0, 1]], [1.0, 0.0]),
        "c": dense([[3], [1]], [0.0]),
    }
    small = shrunk(chain(), params)
    assert [leaf["kernel"].shape for leaf in small.tree.values()] == [(1, 1), (1, 1), (1, 1)]
    assert small.tree["c"]["bias"].tolist() == [6.0]


@pytest.mark.long
def test_the_activation_says_what_a_neuron_without_inputs_is_worth():
    params = {"a": dense([[1, 0]], [0.0, 0.0]), "b": dense([[1], [4]], [0.0])}
    assert shrunk(chain(jax.nn.sigmoid), params).tree["b"]["bias"].tolist() == [2.0]


@pytest.mark.long
def test_without_a_bias_to_take_it_up_a_constant_stays_unless_it_is_0():
    params = {"a": dense([[1, 0, 0]], [0.0, 0.5, 0.0]), "b": dense(jnp.ones((3, 2)))}
    small = shrunk(chain(), params)
    assert small.kept["a/bias[0]"].tolist() == [True, True, False]
    (why,) = small.left["a/bias[0]"]
    assert why == "their product has no bias of its own to fold them into"
    assert "a/bias[0]: 1 of the kept units do not depend on the inputs: their product has no bias" in str(
        small
    )


def test_a_bias_that_is_added_elsewhere_too_takes_nothing_up():
    def function(p, x):
        return layer(p["b"], jax.nn.relu(layer(p["a"], x))) + p["b"]["bias"][None] * x.sum()

    params = {"a": dense([[1, 0]], [0.0, 0.5]), "b": dense(jnp.ones((2, 1)), [1.0])}
    assert shrunk(function, params).kept["a/bias[0]"].all()


def test_a_bias_along_which_its_product_is_repeated_takes_nothing_up():
    def function(p, x):
        hidden = jax.nn.relu(layer(p["a"], x))
        return (hidden @ p["b"]["kernel"])[:, None] + p["b"]["bias"][None, :, None]

    params = {"a": dense([[1, 0]], [0.0, 0.5]), "b": dense(jnp.ones((2, 3)), jnp.arange(4.0))}
    assert shrunk(function, params).kept["a/bias[0]"].all()


def test_a_bias_that_is_subtracted_takes_a_constant_up():
    def function(p, x):
        return p["b"]["bias"][None] - jax.nn.relu(layer(p["a"], x)) @ p["b"]["kernel"]

    small = shrunk(function, {"a": dense([[1, 0]], [0.0, 0.5]), "b": dense(jnp.ones((2, 1)), [1.0])})
    assert small.tree["b"]["bias"].tolist() == [0.5]


def test_weights_that_are_used_twice_take_up_what_is_the_same_in_both_uses():
    def function(p, both):
        left, right = (layer(p["b"], jax.nn.relu(layer(p["a"], x))) for x in both)
        return left - 2 * right

    params = {"a": dense([[1, 0]], [0.0, 0.5]), "b": dense(jnp.ones((2, 1)), [1.0])}
    small = shrunk(function, params, (jnp.ones((2, 1)), jnp.ones((2, 1))))
    assert small.tree["b"]["bias"].tolist() == [1.5]


def test_a_bias_behind_two_unlike_products_takes_nothing_up():
    def function(p, x):
        hidden = jax.nn.relu(layer(p["a"], x))
        return layer(p["b"], hidden) * layer(p["b"], 2 * hidden)

    params = {"a": dense([[1, 0]], [0.0, 0.5]), "b": dense(jnp.ones((2, 1)), [1.0])}
    assert shrunk(function, params).kept["a/bias[0]"].all()


@pytest.mark.long
def test_a_constant_that_differs_from_place_to_place_stays():
    def function(p, x):
        hidden = jax.nn.relu(layer(p["a"], x) + p["places"]["kernel"][None])
        return layer(p["b"], hidden)

    params = {"a": dense([[1, 0, 0]]), "b": dense(jnp.ones((3, 1)), [1.0])}
    params["places"] = dense([[0, 0.5, 0.5], [0, 0.5, 1.0]])
    small = shrunk(function, params, jnp.ones((3, 2, 1)))
    assert small.kept["a/kernel[1]"].tolist() == [True, False, True]
    assert list(small.left["a/kernel[1]"]) == ["their values differ between positions, as with padding"]


def convolution(p, x, padding):
    numbers = ("NHWC", "HWIO", "NHWC")
    made = jax.lax.conv_general_dilated(x, p["kernel"], (1, 1), padding, dimension_numbers=numbers)
    return made + p["bias"][None, None, None]


@pytest.mark.long
@pytest.mark.parametrize(("padding", "left"), [("SAME", 2), ("VALID", 1)])
def test_a_constant_goes_into_the_bias_of_a_convolution_that_pads_nothing(padding, left):
    def function(p, x):
        return convolution(p["b"], jax.nn.relu(convolution(p["a"], x, "SAME")), padding).sum((1, 2))

    straight = jnp.ones((3, 3, 1, 2)).at[..., 1].set(0)
    params = {"a": dense(straight, [0.0, 0.5]), "b": dense(jnp.ones((3, 3, 2, 3)), [0.0, 0.0, 1.0])}
    assert shrunk(function, params, PICTURES).kept["a/bias[0]"].sum() == left


@pytest.mark.long
def test_constants_keep_their_precision_through_pooling():
    def function(p, x):
        pooled = jax.lax.reduce_window(
            jax.nn.relu(layer(p["a"], x)), -jnp.inf, jax.lax.max, (1, 2, 1), (1, 1, 1), "VALID"
        )
        return layer(p["b"], pooled).sum(1)

    with float64():
        params = {"a": dense([[1, 0]], [0.0, 0.1]), "b": dense(jnp.ones((2, 1)), [1.0])}
        params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64) / 3, params)
        small = jaxarch.shrink(function, params, jnp.ones((2, 3, 1)))
        assert small.kept["a/bias[0]"].tolist() == [True, False]
        assert small.difference < 1e-15


def test_a_running_mean_takes_a_constant_up():
    def function(p, x):
        hidden = jax.nn.relu(layer(p["a"], x)) @ p["b"]["kernel"]
        return (hidden - p["b"]["mean"][None]) * p["b"]["scale"][None]

    params = {"a": dense([[1, 0]], [0.0, 0.5]), "b": dense(jnp.ones((2, 1)))}
    params["b"] |= {"mean": jnp.array([2.0]), "scale": jnp.array([3.0])}
    assert shrunk(function, params).tree["b"]["mean"].tolist() == [1.5]


def test_a_layer_keeps_one_neuron_at_least_and_says_so():
    params = {"a": dense([[0, 0]], [1.0, 2.0]), "b": dense([[3], [4]], [0.5])}
    small = shrunk(chain(), params)
    assert small.tree["a"]["kernel"].shape == (1, 1)
    assert list(small.left["a/bias[0]"]) == ["a group keeps one unit"]


# Any model -------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", SOME)
def test_a_masked_model_of_every_family_becomes_smaller_and_computes_the_same(name):
    function, tree, inputs, _ = family(name)
    # With biases: what has no inputs is a constant.
    pruned = masked(tree, np.random.default_rng(5), 0.2, biases=0.3)
    small = jaxarch.shrink(function, pruned, *inputs)
    outputs = jax.jit(small.function)(small.tree, *inputs)
    assert close(outputs, jax.jit(function)(pruned, *inputs), 1e-4)
    assert any(not units.all() for units in small.kept.values())


def residual(params, x):
    x = layer(params["stem"], x)
    for block in params["blocks"]:
        x = x + layer(block["out"], jax.nn.relu(layer(block["in"], x)))
    return layer(params["head"], x)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(24))
def test_residual_networks_become_smaller_and_compute_the_same(seed):
    draw = np.random.default_rng(seed)

    def random(*shape):
        kernel, keep = draw.normal(size=shape), draw.random(shape) < 0.4
        return dense(kernel * keep * (draw.random(shape[1]) < 0.7), draw.normal(size=shape[1]) * (seed % 2))

    blocks = [{"in": random(8, 12), "out": random(12, 8)} for _ in range(2)]
    params = {"stem": random(5, 8), "blocks": blocks, "head": random(8, 3)}
    small = jaxarch.shrink(residual, params, X)
    assert close(residual(small.tree, X), residual(params, X), 1e-5)
    assert sum(int((~units).sum()) for units in small.kept.values()) > 0


@pytest.mark.long
def test_a_function_that_does_not_take_the_smaller_arrays_runs_as_a_program():
    def heads(p, x):
        parts = (x @ p["a"]["kernel"]).reshape(-1, 4, 3)
        return jnp.tanh(parts).sum(-1) @ p["b"]["kernel"]

    params = {"a": dense(jnp.ones((5, 12))), "b": dense(jnp.ones((4, 2)).at[1].set(0))}
    small = shrunk(heads, params, X)
    assert not small.same_function
    assert small.tree["a"]["kernel"].shape == (5, 9)
    assert small.function(small.tree, X[:1]).shape == (1, 2)  # another batch size
    gradient = jax.jit(jax.grad(lambda tree: jax.jit(small.function)(tree, X).sum()))(small.tree)
    whole = jax.jit(jax.grad(lambda tree: heads(tree, X).sum()))(params)
    assert close(gradient["b"]["kernel"], whole["b"]["kernel"][jnp.array([0, 2, 3])], 1e-6)


WRITTEN_OTHERWISE = {
    "elu": jax.nn.elu,
    "clip": lambda x: jnp.clip(x, 0, 6),
    "where": lambda x: jnp.where(x > 0, x, 0),
    "variance": lambda x: x / jnp.sqrt(x.var(0, keepdims=True) + 1e-5),
    "cond": lambda x: jax.lax.cond(x.sum() > 0, lambda x: x, lambda x: -x, x),
    "full": lambda x: x * jnp.full(x.shape, 2.0),
}


@pytest.mark.parametrize("name", WRITTEN_OTHERWISE)
def test_a_function_that_reads_its_sizes_takes_the_smaller_arrays(name):
    def function(params, x):
        return WRITTEN_OTHERWISE[name](x @ params["in"]) @ params["out"]

    params = {"in": jnp.ones((5, 6)).at[:, :3].set(0.0), "out": jnp.ones((6, 2)).at[:3].set(0.0)}
    small = jaxarch.shrink(function, params, X)
    assert small.same_function and small.tree["in"].shape == (5, 3)


def test_it_says_what_it_does_when_that_takes_long(capsys, monkeypatch):
    monkeypatch.setattr(sys.modules["jaxarch.structure._shrink"], "_PATIENCE", 0.0)
    shrunk(chain(), {"a": dense([[1, 0]], [0.0, 0.5]), "b": dense([[3], [4]], [0.5])})
    assert capsys.readouterr().err.startswith("jaxarch: shrink traces the model")


def test_what_is_not_understood_stays_and_is_named():
    def function(p, x):
        return jnp.sort(layer(p["a"], x), axis=-1) @ p["b"]["kernel"]

    small = shrunk(function, {"a": dense([[1, 0]], [0.0, 0.0]), "b": dense(jnp.ones((2, 1)))})
    assert small.kept == {}
    assert "its units are sorted" in str(small)


def test_the_table_shows_units_before_and_after():
    small = shrunk(chain(), {"a": dense([[1, 0]], [0.0, 0.5]), "b": dense([[3], [4]], [0.5])})
    assert str(small).splitlines() == [
        "group      kind     units  kept",
        "a/bias[0]  neurons      2     1",
        "",
        "layer  numbers  now  multiply-adds an example  now",
        "a            4    2                         2    1",
        "b            3    2                         2    1",
        "total        7    4                         4    2",
        "",
        "7 numbers before, 4 now; the function runs on these arrays unchanged",
        "outputs on the example differ by at most 0.0e+00 of the largest",
    ]


# Networks and their problems -------------------------------------------------------------------------


class CNN(nnx.Module):
    """A convolution with batch norm, dropout, a flatten, two dense layers."""

    def __init__(self, rngs):
        self.conv, self.norm = nnx.Conv(1, 6, (3, 3), rngs=rngs), nnx.BatchNorm(6, momentum=0.5, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.hidden, self.head = nnx.Linear(24, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x):
        x = self.dropout(nnx.relu(self.norm(self.conv(x))))
        x = nnx.max_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1)
        return self.head(nnx.relu(self.hidden(x)))


class Linen(nn.Module):
    """The same in Linen, whose layers compare shapes with their fields."""

    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.Conv(6, (3, 3), name="conv")(x)
        x = nn.relu(nn.BatchNorm(momentum=0.5, use_running_average=not train, name="norm")(x))
        x = nn.Dropout(0.2, deterministic=not train)(x)
        x = nn.max_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1)
        return nn.Dense(3, name="head")(nn.relu(nn.Dense(8, name="hidden")(x)))


def problem_of(model):
    return jaxarch.supervised(model, (PICTURES, Y), loss=LOSS, optimizer=optax.sgd(0.1), steps=3)


def trained(problem):
    """A random architecture with dead channels, trained: biases, batch norm and running means have moved."""
    params, state = problem.init(jax.random.key(0))
    draw = np.random.default_rng(6)

    def drawn(leaf):
        mask = draw.random(leaf.shape) < 0.5
        mask[..., draw.random(leaf.shape[-1]) < 0.3] = False
        return jnp.asarray(mask)

    mask = map_selected(drawn, select(params))
    start = Network(apply_mask(mask, params), mask, state, records=(Start(params),))
    return jax.jit(jaxarch.retrain("warm", nonnegative=False))(jax.random.key(1), problem, start)


@pytest.fixture(scope="module", params=[lambda: CNN, Linen], ids=["NNX", "Linen"])
def pruned(request):
    problem = problem_of(request.param())
    network = trained(problem)
    return problem, network, jaxarch.shrink(network, problem)


@pytest.mark.long
def test_a_trained_network_with_batch_norm_becomes_smaller_and_predicts_the_same(pruned):
    problem, network, small = pruned
    predicted = small.problem.predict(small.network.params, small.network.state, (PICTURES, Y))
    assert close(predicted, problem.predict(network.params, network.state, (PICTURES, Y)), 1e-5)
    assert sum(leaf.size for leaf in jax.tree.leaves(small.network.params)) < 0.7 * sum(
        leaf.size for leaf in jax.tree.leaves(network.params)
    )


@pytest.mark.long
def test_mask_state_and_start_are_cut_alike(pruned):
    small = pruned[-1]
    for tree in (small.network.mask, small.network[Start].params):
        for path, leaf in named_leaves(tree).items():
            assert leaf.shape == named_leaves(small.network.params)[path].shape
    sizes = {leaf.shape for leaf in jax.tree.leaves(small.network.state)}
    assert len(sizes) == 1 and sizes != {(6,)}


@pytest.mark.long
def test_what_is_left_has_the_gradient_that_it_had(pruned):
    problem, network, small = pruned

    def gradient(problem, network):
        grad = jax.grad(lambda params: problem.loss(params, network.state, (PICTURES, Y), None)[0])
        return jax.jit(grad)(network.params)

    whole = small.groups.cut(gradient(problem, network), small.kept)
    assert close(gradient(small.problem, small.network), whole, 1e-5)


@pytest.mark.long
def test_the_smaller_network_is_retrained_by_strategies(pruned):
    _, _, small = pruned
    one = jax.tree.map(lambda leaf: leaf[None], small.network)
    for strategy in ("warm", "rewind", "cold"):
        stage = jaxarch.retrain(strategy, nonnegative=False)
        found, _ = jaxarch.over_seeds(
            stage, jax.random.split(jax.random.key(0), 1), small.problem, network=one
        )
        assert np.isfinite(found.info["loss"]).all()


def test_a_bias_that_is_pruned_is_not_there_to_be_filled():
    x = jnp.ones((4, 1))
    net = (lambda key: {"a": dense([[1, 0]], [0.0, 0.5]), "b": dense(jnp.ones((2, 1)), [0.0])}, chain())
    problem = jaxarch.supervised(net, (x, x), loss=optax.squared_error, optimizer=optax.sgd(0.1), steps=1)
    params, state = problem.init(jax.random.key(0))
    mask = jax.tree.map(lambda leaf: jnp.ones_like(leaf, bool), params)
    assert not jaxarch.shrink(Network(params, mask, state), problem).kept["a/bias[0]"].all()
    mask["b"]["bias"] = jnp.zeros(1, bool)
    assert jaxarch.shrink(Network(params, mask, state), problem).kept["a/bias[0]"].all()


def moving_mean(p, s, x, key):
    """A network whose running mean, as Haiku's, is a sum that training alone reads, over its share."""
    hidden = x @ p["in"]
    if key is None:
        return jax.nn.relu(hidden - s["average"]) @ p["out"], s
    mean = hidden.mean(0, keepdims=True)
    total = 0.9 * s["hidden"] + 0.1 * mean
    state = {"hidden": total, "average": total / (1 - 0.9 ** (s["counter"] + 1)), "counter": s["counter"] + 1}
    return jax.nn.relu(hidden - mean) @ p["out"], state


@pytest.mark.long
def test_state_that_training_alone_reads_is_cut_with_what_it_becomes():
    params = {"in": jnp.ones((5, 6)), "out": jnp.ones((6, 2))}
    state = {"hidden": jnp.ones((1, 6)), "average": jnp.zeros((1, 6)), "counter": jnp.zeros(())}
    model = jaxarch.Model(lambda key: (params, state), moving_mean)
    descent = {"loss": lambda o, y: jnp.square(o - y).sum(-1), "optimizer": optax.sgd(0.1), "steps": 1}
    problem = jaxarch.supervised(model, (X, X[:, :2]), **descent)
    mask = {"in": jnp.ones((5, 6), bool), "out": jnp.ones((6, 2), bool).at[1:3].set(False)}
    network = Network(apply_mask(mask, params), mask, state)
    small = jaxarch.shrink(network, problem)
    assert {path: leaf.shape for path, leaf in small.network.state.items()} == {
        "hidden": (1, 4), "average": (1, 4), "counter": ()
    }  # fmt: skip
    batch, key = (X, X[:, :2]), jax.random.key(0)
    value, after = small.problem.loss(small.network.params, small.network.state, batch, key)
    whole, of_whole = problem.loss(network.params, state, batch, key)
    assert close(value, whole, 1e-6) and close(after["hidden"], of_whole["hidden"][:, [0, 3, 4, 5]], 1e-6)


# Flax NNX modules, and programs for other machines --------------------------------------------------


@pytest.mark.long
def test_a_smaller_module_has_its_sizes_written_in_its_layers():
    model = CNN(nnx.Rngs(0))
    model.eval()
    model.conv.kernel[..., :2], model.hidden.kernel[:, 3:] = 0.0, 0.0
    small = jaxarch.nnx.shrink(model, PICTURES)
    assert close(small.model(PICTURES), model(PICTURES), 1e-5)
    assert (small.model.conv.out_features, small.model.norm.num_features) == (4, 4)
    assert small.model.hidden.in_features == 16
    assert small.model.hidden.kernel.shape == (16, small.model.hidden.out_features)
    assert (model.conv.out_features, model.conv.kernel.shape[-1]) == (6, 6)  # as it was


@pytest.mark.long
def test_a_module_that_writes_its_heads_down_has_fewer():
    model = nnx.MultiHeadAttention(4, 8, 12, decode=False, rngs=nnx.Rngs(0))
    model.out.kernel[1] = 0.0
    x = jnp.asarray(DRAW.normal(size=(2, 5, 8)), jnp.float32)
    small = jaxarch.nnx.shrink(model, x)
    assert not small.same_function and small.model.num_heads == 3
    assert close(small.model(x), model(x), 1e-5)
    assert close(small.function(small.tree, x), model(x), 1e-5)
    assert named_leaves(small.tree)["out/kernel"].shape[0] == 3


def test_what_is_no_module_is_refused():
    with pytest.raises(ArgumentError, match="model: expected a Flax NNX module"):
        jaxarch.nnx.shrink({}, X)


def heads_in_rows(p, x):
    """Attention with heads and examples in one axis, a slice, numbers for each example, and a scan."""
    batch, length, _ = x.shape
    ones, numbers = jnp.ones((batch, 1, 1)), jax.lax.broadcasted_iota(jnp.float32, (batch, length, 24), 2)

    def of_heads(w):
        rows = (x @ w).reshape(batch, length, 4, 6).swapaxes(1, 2)
        return rows.reshape(batch * 4, length, 6)

    weights = jax.nn.softmax(of_heads(p["q"]) @ of_heads(p["k"]).swapaxes(1, 2))
    weights = jax.lax.slice_in_dim(weights, 1, length, axis=2)
    values = jax.lax.slice_in_dim(of_heads(p["v"]), 1, length, axis=1)
    rows = (weights @ values).reshape(batch, 4, length, 6).swapaxes(1, 2)
    x = (ones * rows.reshape(batch, length, 24) + numbers) @ p["o"] + ones
    return jax.lax.scan(lambda h, w: (jax.nn.relu(h @ w), None), x, p["more"])[0].sum(1)


def drawn(**shapes):
    return {name: jnp.asarray(DRAW.normal(size=shape), jnp.float32) for name, shape in shapes.items()}


HEADS = drawn(q=(7, 24), k=(7, 24), v=(7, 24), o=(24, 7), more=(2, 7, 7))


def exported(small, *shape):
    sizes = jax.export.symbolic_shape(", ".join(map(str, shape)))
    x = jax.ShapeDtypeStruct(sizes, jnp.float32)
    return jax.export.export(jax.jit(small.function))(small.tree, x)


def without_two_heads(function, x):
    return jaxarch.structure.plan(function, HEADS, x, kept={"k[1]": jnp.arange(4) < 2}).apply()


@pytest.mark.long
def test_a_smaller_model_is_exported_for_any_number_of_examples():
    x = drawn(x=(3, 5, 7))["x"]
    small = without_two_heads(heads_in_rows, x)
    assert not small.same_function
    program = exported(small, "examples", 5, 7)
    for count in (1, 3):
        assert close(program.call(small.tree, x[:count]), small.function(small.tree, x[:count]), 1e-6)


INDEXED = {
    "x[:, 0]": lambda x: x[:, 0],
    "x[:, -1:]": lambda x: x[:, -1:],
    "x[..., ::2]": lambda x: x[..., ::2],
    "x[:, [3, 0]]": lambda x: x[:, jnp.array([3, 0])],
    "x.at[:, 1].set(0)": lambda x: x.at[:, 1].set(0),
    "x.at[:, [2, 0]].add(1)": lambda x: x.at[:, jnp.array([2, 0])].add(x[:, :2]),
}


@pytest.mark.long
@pytest.mark.parametrize("indexed", INDEXED.values(), ids=INDEXED)
def test_a_model_that_takes_parts_of_each_example_is_exported_for_any_number(indexed):
    x = drawn(x=(3, 5, 7))["x"]
    small = without_two_heads(lambda p, x: indexed(heads_in_rows(p, jnp.tanh(x)[:, :, None][:, :, 0])), x)
    program = exported(small, "examples", 5, 7)
    for count in (1, 3):
        assert close(program.call(small.tree, x[:count]), small.function(small.tree, x[:count]), 1e-6)


def test_units_that_are_tiled_for_each_example_are_exported():
    def function(p, x):
        rows = jnp.tanh(x @ p["a"]).reshape(x.shape[0] * 8) * jnp.tile(p["s"], x.shape[0])
        return rows.reshape(x.shape[0], 8) @ p["b"]

    params, x = drawn(a=(4, 8), s=(8,), b=(8, 3)), drawn(x=(3, 4))["x"]
    small = jaxarch.structure.plan(function, params, x, kept={"a[1]": np.arange(8) < 5}).apply()
    assert close(exported(small, "examples", 4).call(small.tree, x), small.function(small.tree, x), 1e-6)


def test_a_smaller_model_is_exported_as_any_function():
    params = {"a": dense([[1, 0]], [0.0, 0.5]), "b": dense([[3], [4]], [0.5])}
    small = shrunk(chain(), params)
    x = jnp.ones((2, 1))
    assert close(exported(small, *x.shape).call(small.tree, x), chain()(params, x), 1e-6)


def joined(p, x):
    return heads_in_rows(p, x).reshape(1, -1).sum(1)


REFUSED = {
    "joined": (joined, ("examples", 5, 7), "with this symbolic size the program cannot be cut"),
    "a length": (heads_in_rows, (2, "length", 7), "with this symbolic size the program cannot be cut"),
    "pairs": (heads_in_rows, ("2*pairs", 5, 7), "expected one symbol"),
    "two symbols": (heads_in_rows, ("examples", "length", 7), "expected one symbol"),
    "their number": (
        lambda p, x: heads_in_rows(p, x) * (1 + x.shape[0] // 4),
        ("examples", 5, 7),
        "whatever their number",
    ),
    "a choice by their number": (
        lambda p, x: heads_in_rows(p, x) * (2 if x.shape[0] in (2, 3) else 1),
        ("examples", 5, 7),
        "whatever their number",
    ),
    "more places for more": (
        lambda p, x: heads_in_rows(p, x)[:, : x.shape[0] + 1 : 2].sum(1),
        ("examples", 5, 7),
        "whatever their number|inconclusive",
    ),
    "a branch": (
        lambda p, x: heads_in_rows(p, x if x.shape[0] < 9 else 2 * x),
        ("examples", 5, 7),
        "comparison 'examples' < '9' is inconclusive",
    ),
}


@pytest.mark.parametrize("function, shape, why", REFUSED.values(), ids=REFUSED)
def test_symbols_that_are_no_number_of_separate_examples_are_refused(function, shape, why):
    small = without_two_heads(function, jnp.ones((2, 5, 7)))
    with pytest.raises(ArgumentError, match=why):
        exported(small, *shape)


def test_the_derivative_of_a_rule_is_not_exported_for_any_number_of_examples():
    small = without_two_heads(heads_in_rows, jnp.ones((2, 5, 7)))

    def gradient(tree, x):
        return jax.grad(lambda tree: small.function(tree, x).sum())(tree)

    sizes = jax.export.symbolic_shape("examples, 5, 7")
    with pytest.raises(ArgumentError, match="only cut for numbers as sizes"):
        jax.export.export(jax.jit(gradient))(small.tree, jax.ShapeDtypeStruct(sizes, jnp.float32))


@pytest.mark.long
def test_what_shrink_returns_is_exported_if_each_example_is_computed_on_its_own():
    params = {**HEADS, "o": HEADS["o"].at[:6].set(0)}
    x = drawn(x=(3, 5, 7))["x"]
    small = jaxarch.shrink(heads_in_rows, params, x)
    assert small.kept["k[1]"].sum() == 3
    assert close(exported(small, "examples", 5, 7).call(small.tree, x), heads_in_rows(params, x), 1e-5)
    mixing = jaxarch.shrink(lambda p, x: heads_in_rows(p, x - x.mean(0, keepdims=True)), params, x)
    with pytest.raises(ArgumentError, match="each must be computed on its own"):
        exported(mixing, "examples", 5, 7)


def test_what_does_nothing_for_few_examples_alone_is_not_exported_for_many():
    def function(p, x):
        return jax.nn.relu((x if x.shape[0] >= 8 else jnp.abs(x)) @ p["a"]) @ p["b"]

    params = {"a": jnp.array([[1.0, -1.0]]), "b": jnp.ones((2, 1))}
    small = jaxarch.shrink(function, params, jnp.ones((2, 1)))
    assert small.same_function and small.tree["a"].shape == (1, 1)
    (many,) = jax.export.symbolic_shape("many", constraints=["many >= 8"])
    with pytest.raises(ArgumentError, match="'many' >= '8' is inconclusive"):
        jax.export.export(jax.jit(small.function))(small.tree, jax.ShapeDtypeStruct((many, 1), jnp.float32))


def test_a_copy_of_all_units_may_go():
    params = drawn(a=(4, 8), b=(16, 3))
    x = drawn(x=(3, 4))["x"]

    def function(p, x):
        return jnp.tile(jnp.tanh(x @ p["a"]), (1, 2)) @ p["b"]

    small = jaxarch.structure.plan(function, params, x, kept={"b[0]": np.arange(2) < 1}).apply()
    assert close(small.function(small.tree, x), jnp.tanh(x @ params["a"]) @ params["b"][:8], 1e-6)


def test_a_loop_with_a_condition_for_each_example_is_cut():
    def function(p, x):
        def grown(row):
            return jax.lax.while_loop(lambda h: h.sum() < 5, lambda h: 1.5 * h + 0.1, row)

        return jax.vmap(grown)(jax.nn.relu(x @ p["a"])) @ p["b"]

    params = drawn(a=(4, 8), b=(8, 3))
    x = drawn(x=(3, 4))["x"]
    small = jaxarch.structure.plan(function, params, x, kept={"a[1]": np.arange(8) < 5}).apply()
    masked = {"a": params["a"][:, :5], "b": params["b"][:5]}
    assert close(small.function(small.tree, x), function(masked, x), 1e-6)


PLAIN = jaxarch.supervised(
    (lambda key: {"a": dense(jnp.ones((5, 2)))}, lambda p, x: layer(p["a"], x)),
    (X, X[:, :2]),
    loss=lambda outputs, y: jnp.square(outputs - y).sum(-1),
    optimizer=optax.sgd(0.1),
    steps=1,
)
PARAMS, STATE = PLAIN.init(jax.random.key(0))
NETWORK = Network(PARAMS, None, STATE)


def of_unit_norm(p, x):
    return jax.nn.relu(x @ (p["w"] / jnp.linalg.norm(p["w"], axis=0, keepdims=True))) @ p["v"]


BAD = {
    "model: the masked model computes NaN at outputs[0, 0], first in div of 'w', for": lambda: jaxarch.shrink(
        of_unit_norm, {"w": jnp.eye(5, 3, 1), "v": jnp.ones((3, 2))}, X
    ),
    "model: the masked model computes NaN at outputs[0, 0], so outputs cannot be compared": lambda: (
        jaxarch.shrink(lambda p, x: jnp.log(-x @ p), jnp.ones((5, 2)), jnp.abs(X))
    ),
    "network: it holds many runs; ": lambda: jaxarch.shrink(
        NETWORK.replace(info=TrainingInfo(failed_at=np.array([-1, -1]))), PLAIN
    ),
    "network: it is a bare architecture": lambda: jaxarch.shrink(Network(), PLAIN),
    "model: expected a network of one run or a function": lambda: jaxarch.shrink({}, PLAIN),
    "problem: expected the network's problem and no other inputs": lambda: jaxarch.shrink(NETWORK, X),
    "problem: it has no `predict`": lambda: jaxarch.shrink(
        NETWORK, jaxarch.Problem(PLAIN.init, PLAIN.loss, PLAIN.data, PLAIN.descent)
    ),
    "function: it cannot be traced": lambda: jaxarch.shrink(lambda p, x: float(p.sum()), X, X),
    "network: its values are traced": lambda: jax.jit(
        lambda network: jaxarch.shrink(network, PLAIN).network.params
    )(NETWORK),
}


@pytest.mark.parametrize("message", BAD)
def test_what_cannot_be_shrunk_is_refused_in_one_line(message):
    with pytest.raises(ArgumentError) as error:
        BAD[message]()
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_a_function_that_reads_one_constant_twice_takes_the_smaller_arrays_as_it_is():
    def function(p, x):
        least = jnp.zeros((1, p["a"].shape[1]))
        return (jnp.maximum(x @ p["a"], least) + least) @ p["b"]

    params = {"a": jnp.ones((3, 4)).at[:, 1].set(0), "b": jnp.ones((4, 2))}
    small = jaxarch.shrink(function, params, jnp.ones((1, 3)))
    assert small.tree["a"].shape == (3, 3)
    assert small.same_function


@pytest.mark.parametrize("rule", [lambda n, g: (g / n,), lambda n, g: (g - g.mean(-1, keepdims=True),)])
def test_a_rule_that_reads_the_width_gives_the_gradient_of_the_whole_model(rule):
    @jax.custom_vjp
    def clipped(x):
        return jnp.clip(x, 0, 1)

    clipped.defvjp(lambda x: (jnp.clip(x, 0, 1), float(x.shape[-1])), rule)
    params = {"a": jnp.ones((3, 8)).at[:, 2:].set(0), "b": jnp.ones((8, 2)).at[2:].set(0)}
    x = jnp.ones((2, 3)) / 9

    def model(params, x):
        return clipped(x @ params["a"]) @ params["b"]

    def gradient(function, params):
        return jax.grad(lambda params: (function(params, x) ** 2).sum())(params)["a"]

    small = jaxarch.shrink(model, params, x)
    assert small.tree["a"].shape == (3, 2)
    np.testing.assert_allclose(
        gradient(small.function, small.tree), gradient(model, params)[:, :2], rtol=1e-6
    )


def test_weights_that_are_no_numbers_are_named_where_the_model_computes_nan():
    params = {"a": jnp.ones((3, 4)).at[0, 0].set(jnp.nan), "b": jnp.ones((4, 2))}
    with pytest.raises(ArgumentError, match=r"NaN at outputs\[0, 0\], since 'a' has NaN or infinite numbers"):
        jaxarch.shrink(lambda p, x: x @ p["a"] @ p["b"], params, jnp.ones((1, 3)))

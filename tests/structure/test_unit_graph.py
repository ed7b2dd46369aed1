"""Any model as a graph of its units: by hand, and as [D] has it where layers are a chain."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import close, same
from test_axis_groups import SOME, family

import jaxarch
from jaxarch import ArgumentError
from jaxarch.structure import graphs, unit_graph

DRAW = np.random.default_rng(0)


def random(*shape):
    return jnp.asarray(DRAW.normal(size=shape), jnp.float32)


def mlp(params, x):
    *hidden, last = params.values()
    for p in hidden:
        x = jnp.tanh(x @ p["kernel"] + p["bias"][None])
    return x @ last["kernel"]


def layers(*sizes):
    return {
        f"w{i}": {"kernel": random(*pair), "bias": random(pair[1])}
        for i, pair in enumerate(itertools.pairwise(sizes))
    }


@pytest.mark.parametrize("self_loops", [True, False])
def test_of_a_chain_of_layers_it_is_the_graph_of_d(self_loops):
    params = layers(5, 4, 3, 2)
    graph = unit_graph(mlp, params, jnp.ones((1, 5)), self_loops=self_loops)
    weights = [p["kernel"].T for p in params.values()]
    assert same(graph.adjacency, graphs.adjacency(weights, self_loops=self_loops))
    assert list(graph.layers.values()) == [2, 3, 4, 5]


def test_a_residual_stream_is_one_layer_of_nodes():
    params = {"stem": random(2, 3), "in": random(3, 4), "out": random(4, 3), "head": random(3, 1)}

    def model(p, x):
        x = x @ p["stem"]
        return (x + jnp.tanh(x @ p["in"]) @ p["out"]) @ p["head"]

    graph = unit_graph(model, params, jnp.ones((1, 2)), self_loops=False)
    assert sorted(graph.layers.values()) == [1, 2, 3, 4]
    # Both ways, in and out, join the same nodes.
    places = np.cumsum([0, *graph.layers.values()])
    (stream, hidden) = (list(graph.layers.values()).index(size) for size in (3, 4))
    block = graph.adjacency[places[stream] : places[stream + 1], places[hidden] : places[hidden + 1]]
    assert close(block, params["in"] + params["out"].T, 1e-6)


def test_weights_of_a_unit_to_itself_are_one_edge():
    params = {"w": random(3, 3), "head": random(3, 1)}

    def model(p, x):
        x = x @ jnp.ones((2, 3))
        return (x + x @ p["w"]) @ p["head"]

    graph = unit_graph(model, params, jnp.ones((1, 2)), self_loops=False)
    assert close(
        graph.adjacency[1:4, 1:4], params["w"] + params["w"].T - jnp.diag(jnp.diag(params["w"])), 1e-6
    )


def test_places_of_a_window_and_of_a_picture_that_is_flattened_are_added_up():
    params = {"c": random(3, 3, 2, 4), "d": random(4 * 4 * 4, 3)}

    def model(p, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(x, p["c"], (1, 1), "SAME", dimension_numbers=numbers)
        return x.reshape(x.shape[0], -1) @ p["d"]

    graph = unit_graph(model, params, jnp.ones((1, 4, 4, 2)), self_loops=False)
    weights = [params["c"].sum((0, 1)).T, params["d"].reshape(16, 4, 3).sum(0).T]
    assert close(graph.adjacency, graphs.adjacency(weights, self_loops=False), 1e-5)


def test_groups_of_channels_are_not_joined():
    def model(p, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, p["c"], (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=2
        ).sum((1, 2))

    graph = unit_graph(model, {"c": jnp.ones((1, 1, 2, 6))}, jnp.ones((1, 3, 3, 4)), self_loops=False)
    assert list(graph.layers.values()) == [6, 4]
    joined = graph.adjacency[:6, 6:]
    assert same(joined, jnp.kron(jnp.eye(2), jnp.ones((3, 2))))


def test_rounds_of_a_scan_are_added_up():
    params = {"stack": random(4, 3, 3), "head": random(3, 1)}

    def model(p, x):
        x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, p["stack"])
        return x @ p["head"]

    graph = unit_graph(model, params, jnp.ones((1, 3)), self_loops=False)
    total = params["stack"].sum(0)
    assert close(graph.adjacency[1:, 1:], total + total.T - jnp.diag(jnp.diag(total)), 1e-5)


@pytest.mark.parametrize("name", SOME)
def test_models_of_every_family_have_a_spectrum_between_0_and_2(name):
    function, tree, inputs, _ = family(name)
    graph = unit_graph(function, tree, *inputs)
    assert same(graph.adjacency, graph.adjacency.T)
    assert sum(graph.layers.values()) == len(graph.adjacency)
    laplacian = np.asarray(graphs.normalized_laplacian(graph.adjacency), float)
    one = np.eye(len(laplacian))
    # Positive definite matrices alone have a Cholesky factor, which is quicker than all eigenvalues.
    np.linalg.cholesky(laplacian + 1e-4 * one)
    np.linalg.cholesky((2 + 1e-4) * one - laplacian)


@pytest.mark.long
def test_of_a_network_it_is_the_masked_one():
    def module(rngs):
        return nnx.Sequential(nnx.Linear(3, 4, rngs=rngs), nnx.relu, nnx.Linear(4, 2, rngs=rngs))

    problem = jaxarch.supervised(
        module,
        (np.ones((4, 3), np.float32), np.arange(4) % 2),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.sgd(0.1),
        steps=1,
    )
    network = jaxarch.search.random_mask(0.5)(jax.random.key(0), problem)
    graph = unit_graph(network, problem, self_loops=False)
    assert int((graph.adjacency != 0).sum()) == 2 * int(jaxarch.masks.connections(network.mask))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: unit_graph({}, {}), "model: expected a network of one run or a function"),
        (
            lambda: unit_graph(lambda p, x: x + p["b"], {"b": jnp.ones(2)}, jnp.ones(2)),
            "function: it has no product of its leaves",
        ),
        (
            lambda: jax.jit(lambda p: unit_graph(mlp, p, jnp.ones((1, 3))).adjacency)(layers(3, 2)),
            "tree: its values are traced",
        ),
        (lambda: unit_graph(jaxarch.Network({}, None, {}), {}), "problem: expected the network's problem"),
    ],
)
def test_what_has_no_graph_is_refused_in_one_line(make, message):
    with pytest.raises(ArgumentError) as error:
        make()
    assert str(error.value).startswith(message) and "\n" not in str(error.value)

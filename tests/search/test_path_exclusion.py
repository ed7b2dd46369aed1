"""Path exclusion: scores by hand, the bound on the kernel's trace, held activations, models without paths."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from methods import problem_of
from small import same

import jaxarch
from jaxarch import saliency
from jaxarch.search import path_exclusion

KEY = jax.random.key(0)


def scores_of(outputs, params, x, **where):
    return jax.jit(lambda params, x: saliency.path_exclusion(outputs, params, x, **where))(params, x)


def mlp(params, x):
    return jax.nn.relu(x @ params["a"]) @ params["b"]


SMALL = {"a": jnp.float32([[1, -2]]), "b": jnp.float32([[1, 2], [0, 0.5]])}
X = jnp.float32([[3], [-1]])


def test_a_score_is_the_share_of_the_squared_paths_weighed_by_the_open_ones_to_each_output():
    # The first neuron is open for 3, the second for -1; the connection of 0 is removed. The outputs have the
    # weights 9 and 9 + 1. The squares of paths are 1 to the first output, 4 and 1 to the second: S is 59.
    scores = scores_of(mlp, SMALL, X)
    np.testing.assert_allclose(scores["a"] * 59, [[9 + 40, 10]], rtol=1e-6)
    np.testing.assert_allclose(scores["b"] * 59, [[9, 40], [0, 10]], rtol=1e-6)


def learning(x=X, model=(lambda key: SMALL, mlp)):
    return jaxarch.supervised(
        model, (x, jnp.zeros((len(x), 2))), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=1
    )


def test_the_connections_with_the_largest_shares_are_kept():
    search = jax.jit(path_exclusion((5 / 6, 4 / 6, 2 / 6), rounds=1))
    found = search(KEY, learning())[jaxarch.ByDensity].masks
    left = {density: [mask[name].astype(int).tolist() for name in "ab"] for density, mask in found.items()}
    assert left == {
        "0.833333": [[[1, 1]], [[1, 1], [0, 1]]],
        "0.666667": [[[1, 1]], [[0, 1], [0, 1]]],
        "0.333333": [[[1, 0]], [[0, 1], [0, 0]]],
    }


def paths(params, x):
    """Every path of a network of three layers: its parameters, its output, and its squared input if open."""
    kernels, biases = params["kernels"], params["biases"]
    hidden, values = [np.ones((len(x), x.shape[1]), bool)], np.asarray(x)
    for kernel, bias in zip(kernels[:-1], biases[:-1], strict=True):
        values = np.maximum(values @ kernel + bias, 0)
        hidden.append(values > 0)
    widths = [kernel.shape[0] for kernel in kernels] + [kernels[-1].shape[1]]
    for start in range(len(kernels) + 1):  # 0 for an input; a bias of layer `start` else
        for units in itertools.product(*map(range, widths[start:])):
            layers = zip(range(start, len(kernels)), itertools.pairwise(units), strict=True)
            on_path = [("kernels", layer, pair) for layer, pair in layers]
            if start:
                on_path.insert(0, ("biases", start - 1, units[0]))
            open_ = [hidden[start + i][:, unit] for i, unit in enumerate(units) if start + i < len(hidden)]
            enters = np.ones(len(x)) if start else np.square(x[:, units[0]])
            yield on_path, units[-1], (enters * np.prod(open_, axis=0)).sum() if open_ else enters.sum()


@pytest.mark.long
def test_the_scores_are_those_of_all_paths_and_their_bound_is_above_the_trace_of_the_kernel():
    rng = np.random.default_rng(0)
    params = {
        "kernels": [rng.normal(size=size).astype(np.float32) for size in [(2, 3), (3, 4), (4, 2)]],
        "biases": [rng.normal(size=size).astype(np.float32) for size in (3, 4, 2)],
    }
    x = rng.normal(size=(5, 2)).astype(np.float32)

    def outputs(params, x):
        for index, (kernel, bias) in enumerate(zip(params["kernels"], params["biases"], strict=True)):
            x = (jax.nn.relu(x) if index else x) @ kernel + bias[None]
        return x

    weights, squares = np.zeros(2), [{}, {}]
    through = jax.tree.map(np.zeros_like, params), jax.tree.map(np.zeros_like, params)
    for on_path, output, entered in paths(params, x):
        weights[output] += entered
        square = np.prod([params[kind][layer][at] ** 2 for kind, layer, at in on_path])
        squares[output][tuple(map(str, on_path))] = square
        for kind, layer, at in on_path:
            through[output][kind][layer][at] += square
    whole = sum(weight * sum(of.values()) for weight, of in zip(weights, squares, strict=True))
    expected = jax.tree.map(lambda a, b: (weights[0] * a + weights[1] * b) / whole, *through)
    scores = scores_of(outputs, params, x, where=lambda *_: True)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=2e-5), scores, expected)
    bound = (
        sum((s / p**2).sum() for s, p in zip(*map(jax.tree.leaves, (scores, params)), strict=True)) * whole
    )
    jacobian = jax.jit(jax.jacobian(lambda params: outputs(params, x)))(params)
    trace = sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(jacobian))
    assert 0 < trace < bound


def weights_of_outputs(outputs, params, x):
    """The weights of two outputs, as multiples of the second, which has one path of the square 1."""
    scores = scores_of(outputs, params, x, where=lambda *_: True)
    return scores["first"] / scores["second"]


@pytest.mark.parametrize(
    ("activation", "weight"),
    [
        (lambda x: jax.nn.leaky_relu(x, 0.5), 9 + 16 / 4),
        (lambda x: x * (x > 0), 9),
        (lambda x: jnp.where(x > 0, x, 0), 9),
        (lambda x: -jnp.abs(x) / 2, 25 / 4),
        (lambda x: jax.nn.relu6(4 * x), 1 * 36),  # the path starts at the 6, without a parameter before
        (lambda x: x + jax.lax.stop_gradient(jnp.tanh(x)), None),
    ],
    ids=["leaky", "product", "where", "abs", "relu6", "stopped"],
)
def test_activations_are_held_at_the_data(activation, weight):
    params = {"scale": jnp.ones(1), "first": jnp.ones(1), "second": jnp.ones(1)}
    x = jnp.float32([[3], [-4]])

    def outputs(params, x):
        return activation(x * params["scale"][None]) * params["first"][None], params["second"][None]

    if weight is None:
        weight = 25 + np.square(np.tanh([3, -4])).sum()
    # The second output is a bias: its weight is the number of examples. Numbers of activations have one path.
    paths = 2 if weight not in (13, 9, 6.25, 36) else 1
    found = weights_of_outputs(outputs, params, x)
    np.testing.assert_allclose(found, weight / 2 * paths, rtol=1e-5)


def test_a_pooling_holds_the_entry_that_is_the_largest():
    # 4 and 3 are pooled: the first, whose input is 1.
    params = {"scale": jnp.float32([4, 1]), "first": jnp.ones(1), "second": jnp.ones(1)}

    def outputs(params, x):
        pooled = nnx.max_pool((x * params["scale"][None])[..., None], (2,))
        return pooled[:, 0] * params["first"][None], params["second"][None]

    # The open paths have the squares 16 and 1; the largest goes on.
    np.testing.assert_allclose(weights_of_outputs(outputs, params, jnp.float32([[1, 3]])), 1 * 16)


def test_branches_of_unlike_size_are_compared():
    params = {name: jnp.full((1, 1), of) for name, of in (("a", 3.0), ("b", 5.0), ("c", 7.0))}
    scores = scores_of(lambda p, x: jax.nn.relu(x @ p["a"]) @ p["b"] + x @ p["c"], params, jnp.ones((1, 1)))
    np.testing.assert_allclose(scores["b"], 15**2 / (15**2 + 7**2), rtol=1e-6)


@pytest.mark.long
def test_a_deep_network_does_not_overflow():
    # Half of 512 neurons are open, so there are 256^16 paths: more than float32 holds.
    kernels = [jax.random.normal(key, (512, 512)) / 16 for key in jax.random.split(KEY, 16)]

    def outputs(kernels, x):
        for kernel in kernels:
            x = jax.nn.relu(x @ kernel)
        return x

    scores = scores_of(outputs, kernels, jnp.ones((2, 512)))
    np.testing.assert_allclose([leaf.sum() for leaf in scores], 1, rtol=1e-4)


@pytest.mark.long
def test_every_density_is_exact_with_batch_norm_over_runs():
    search, keys = path_exclusion((0.5, 0.031), rounds=4), jax.random.split(KEY, 3)
    problem = problem_of("path_exclusion")
    network = jax.jit(jax.vmap(search, in_axes=(0, problem.in_axes())))(keys, problem)
    size = 8 * 5 + 5
    for density in (0.5, 0.031):
        mask = network[jaxarch.ByDensity].masks[f"{density}"]
        kept = sum(leaf.reshape(3, -1).sum(1) for leaf in jax.tree.leaves(mask))
        assert kept.tolist() == [round(density * size)] * 3


@pytest.mark.long
def test_the_data_matter_from_the_second_round_on():
    rng = np.random.default_rng(1)
    params = {"a": jnp.float32(rng.normal(size=(6, 12))), "b": jnp.float32(rng.normal(size=(12, 2)))}

    problem = learning(jnp.ones((4, 6)), (lambda key: params, mlp))
    both = [
        dataclasses.replace(problem, data=(x, problem.data[1]))
        for x in jnp.float32(rng.normal(size=(2, 4, 6)))
    ]
    for rounds in (1, 8):
        search = jax.jit(path_exclusion(0.2, rounds=rounds))
        one, other = (search(KEY, problem).mask for problem in both)
        assert same(one, other) == (rounds == 1)


def layer_norm(params, x):
    x = x @ params["a"]
    return x / jnp.std(x, axis=-1, keepdims=True)


def shared(params, x):
    return x @ params["a"] @ params["a"]


def loop(params, x):
    return jax.lax.scan(lambda x, kernel: (x @ kernel, None), x, params["a"][None])[0]


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (lambda p, x: jnp.tanh(x @ p["a"]), "outputs: 'tanh' has no paths to follow"),
        (lambda p, x: jax.nn.softmax(x @ p["a"]), "outputs: 'exp' has no paths to follow"),
        (layer_norm, "has no paths"),
        (shared, "outputs: a parameter meets itself in a product"),
        (loop, "outputs: 'scan' has no paths to follow"),
        (lambda p, x: p["a"][x[:, 0].astype(int)], "inputs: some of them index parameters"),
        (lambda p, x: (x @ p["a"]).astype(int), "outputs: expected floating-point arrays, got none"),
        (lambda p, x: x @ p["c"], "outputs: it cannot be traced"),
    ],
)
def test_models_without_paths_are_refused(outputs, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        saliency.path_exclusion(outputs, {"a": jnp.ones((3, 3))}, jnp.ones((2, 3)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: path_exclusion(0.0), r"densities: expected a number in \(0, 1\]"),
        (lambda: path_exclusion(0.5, rounds=0), "rounds: expected an integer of at least 1"),
        (lambda: path_exclusion(0.5, batches=0), "batches: expected an integer of at least 1"),
        (lambda: path_exclusion(0.5, units="2:4"), "rounds: 2:4 is pruned in one round; give rounds=1"),
        (lambda: saliency.path_exclusion(mlp, SMALL, (X, X[:1])), "inputs: expected arrays with one leading"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(make, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        make()

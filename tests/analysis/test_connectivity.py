"""A mask's layers are bipartite graphs with known spectra; its paths are those of products of matrices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

import jaxarch
from jaxarch import ArgumentError
from jaxarch.analysis import connectivity, paths


def drawn(seed, *shape, share=0.4):
    return np.random.default_rng(seed).random(shape) < share


def of_one(matrix, **axes):
    return connectivity({"kernel": jnp.asarray(matrix)}, **axes)["kernel"]


def same(one, other):
    return all(np.allclose(a, b, atol=1e-5, equal_nan=True) for a, b in zip(one, other, strict=True))


# Layers -----------------------------------------------------------------------------------------------


def test_a_complete_graph_has_one_singular_value_and_the_largest_gap():
    found = of_one(np.ones((4, 9), bool))
    assert np.allclose(found.singular_values, [6, 0], atol=1e-5)  # sqrt(4 * 9)
    assert (found.density, found.inputs, found.outputs) == (1, 4, 9)
    assert (found.input_degree, found.output_degree) == (9, 4)
    assert np.isclose(found.bound, np.sqrt(8) + np.sqrt(3))
    assert np.isclose(found.gap, found.bound, atol=1e-5)


def test_two_parts_without_a_link_have_two_equal_singular_values():
    part = np.ones((3, 3), bool)
    found = of_one(np.kron(np.eye(2, dtype=bool), part))
    assert np.allclose(found.singular_values, [3, 3], atol=1e-5)
    assert np.isclose(found.gap, 2 * np.sqrt(2) - 3, atol=1e-5)  # not Ramanujan


def test_units_without_a_connection_do_not_count_in_degrees():
    kernel = np.zeros((5, 7), bool)
    kernel[:2, :3] = True
    found, whole = of_one(kernel), of_one(kernel[:2, :3])
    assert same(found[1:], whole[1:])
    assert np.isclose(found.density, 6 / 35)


def test_a_matching_is_below_the_bound_of_0():
    assert of_one(np.eye(4, dtype=bool)).gap == pytest.approx(-1, abs=1e-5)


@pytest.mark.long
def test_a_random_regular_graph_comes_near_the_bound():
    draw = np.random.default_rng(0)
    kernel = np.zeros((300, 300), bool)
    while kernel.sum() < 300 * 4:  # four matchings without a common edge
        one = np.eye(300, dtype=bool)[draw.permutation(300)]
        kernel |= one if not (kernel & one).any() else False
    found = of_one(kernel)
    assert found.singular_values[0] == pytest.approx(4, abs=1e-4)
    assert abs(found.gap) < 0.1 * found.bound  # the bound is 2 sqrt(3)


def test_singular_values_are_those_of_numpy():
    kernel = drawn(1, 12, 30)
    wanted = np.linalg.svd(kernel.astype(float), compute_uv=False)[:2]
    assert np.allclose(of_one(kernel).singular_values, wanted, atol=1e-5)


def test_an_empty_leaf_has_no_degrees():
    found = of_one(np.zeros((3, 2), bool))
    assert (found.density, found.inputs, found.outputs) == (0, 0, 0)
    assert np.array_equal(found.singular_values, [0, 0])
    assert np.isnan([found.input_degree, found.output_degree, found.bound, found.gap]).all()


def test_a_leaf_with_one_output_has_one_singular_value():
    found = of_one(np.ones((4, 1), bool))
    assert np.allclose(found.singular_values, [2, 0])
    assert np.isclose(found.gap, np.sqrt(3))


def test_taps_of_a_convolution_are_inputs_in_any_layout():
    kernel = drawn(2, 3, 3, 4, 5)
    flat = of_one(kernel.reshape(36, 5))
    assert same(of_one(kernel, outputs=-1), flat)
    assert same(of_one(kernel.transpose(3, 2, 0, 1), outputs=0), flat)
    assert same(of_one(kernel, outputs={"kernel": 3}), flat)


def test_stacked_layers_are_graphs_of_their_own():
    kernel = drawn(3, 2, 6, 5)
    found = connectivity({"kernel": kernel}, stacked="kernel")
    assert list(found) == ["kernel[0]", "kernel[1]"]
    assert all(same(found[f"kernel[{layer}]"], of_one(kernel[layer])) for layer in range(2))
    turned = connectivity({"kernel": kernel.mT}, stacked="kernel", outputs=0)
    assert same(turned["kernel[1]"], found["kernel[1]"])


def test_many_masks_are_one_call():
    masks = {"kernel": jnp.asarray(drawn(4, 3, 6, 5)), "bias": None}
    found = jax.jit(jax.vmap(connectivity))(masks)
    assert list(found) == ["kernel"]
    assert same(jax.tree.map(lambda leaf: leaf[1], found["kernel"]), of_one(masks["kernel"][1]))


@pytest.mark.parametrize(
    ("mask", "axes", "message"),
    [
        ({"a": np.ones((2, 2))}, {}, "mask: expected booleans, got float64 as leaf 'a'"),
        ({"a": np.ones(2, bool)}, {}, "mask: expected an axis of inputs and one of outputs"),
        ({"a": np.ones((2, 0), bool)}, {}, "mask: expected an axis of inputs and one of outputs"),
        ({"a": np.ones((3, 2, 2), bool)}, {}, r"outputs: leaf 'a' has the shape \(3, 2, 2\); say which"),
        ({"a": np.ones((2, 2), bool)}, {"outputs": 2}, "outputs: expected an axis of the 2 of leaf 'a'"),
        ({"a": np.ones((2, 2), bool)}, {"outputs": {"b": 0}}, "outputs: the mask has no leaf 'b'; it has a"),
        ({"a": np.ones((2, 2), bool)}, {"stacked": "b"}, "stacked: no leaf is selected by 'b'"),
        ({"a": np.ones((2, 2), bool)}, {"stacked": "a"}, "mask: expected an axis of inputs and one of"),
        ({"a": None}, {}, "mask: expected at least one masked leaf, got none"),
        ({"a/b": np.ones((2, 2), bool), "a": {"b": np.ones((2, 2), bool)}}, {}, "mask: two leaves have the"),
    ],
)
def test_masks_that_are_no_graphs_are_refused(mask, axes, message):
    with pytest.raises(ArgumentError, match=f"^{message}"):
        connectivity(mask, **axes)


# Paths ------------------------------------------------------------------------------------------------

SIZES = {"a": (5, 6), "b": (6, 6), "c": (6, 4)}
PARAMS = {name: jnp.zeros(size) for name, size in SIZES.items()} | {"bias": jnp.ones(6)}
X = np.ones((3, 5), np.float32)


def with_skip(params, x):
    hidden = jax.nn.leaky_relu(x @ params["a"] + params["bias"][None])
    hidden = hidden + jnp.tanh(hidden @ params["b"])
    return jax.nn.relu6(hidden) @ params["c"]


def masks_of(seed):
    return {name: drawn(seed + i, *size) for i, (name, size) in enumerate(SIZES.items())}


def count(mask):
    a, b, c = (mask[name].astype(int) for name in SIZES)
    return (a @ (np.eye(6, dtype=int) + b) @ c).sum()


@jax.jit
@jax.vmap
def measured(mask):
    return paths(with_skip, PARAMS, X, mask=mask | {"bias": None})


def test_the_number_of_paths_is_the_sum_of_the_product_of_matrices():
    masks = [masks_of(seed) for seed in range(0, 30, 3)]
    found = measured(jax.tree.map(lambda *leaves: np.stack(leaves), *masks))
    assert np.allclose(np.exp(found.log_count), list(map(count, masks)), rtol=1e-5)


def test_a_connection_is_effective_if_paths_are_lost_without_it():
    mask = masks_of(2)
    found = measured(jax.tree.map(lambda leaf: leaf[None], mask))
    effective = {name: np.zeros(size, bool) for name, size in SIZES.items()}
    for name, leaf in mask.items():
        for at in np.argwhere(leaf):
            less = {**mask, name: leaf.copy()}
            less[name][tuple(at)] = False
            effective[name][tuple(at)] = count(less) < count(mask)
    assert 0 < sum(leaf.sum() for leaf in effective.values()) < sum(leaf.sum() for leaf in mask.values())
    assert all(np.array_equal(found.effective[name][0], leaf) for name, leaf in effective.items())
    assert np.isclose(found.density[0], sum(leaf.sum() for leaf in effective.values()) / (30 + 36 + 24))


def test_a_neuron_that_only_its_bias_feeds_is_on_no_path():
    params = {"a": jnp.ones((2, 2)), "bias": jnp.ones(2), "b": jnp.ones((2, 1))}
    mask = {"a": jnp.array([[True, False]] * 2), "bias": None, "b": jnp.ones((2, 1), bool)}
    found = paths(
        lambda p, x: jax.nn.relu(x @ p["a"] + p["bias"][None]) @ p["b"], params, X[:, :2], mask=mask
    )
    assert found.effective["b"].ravel().tolist() == [True, False]
    assert found.effective["bias"] is None


def test_a_cut_network_has_no_paths():
    mask = {name: np.ones(size, bool) for name, size in SIZES.items()} | {"bias": None}
    found = paths(with_skip, PARAMS, X, mask={**mask, "c": np.zeros((6, 4), bool)})
    assert (found.log_count, found.density) == (-np.inf, 0)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16])
def test_a_deep_network_has_more_paths_than_any_float_can_hold(dtype):
    params = {f"{layer:02}": jnp.ones((300, 300), dtype) for layer in range(20)}

    def model(params, x):
        for kernel in params.values():
            x = jnp.sin(x @ kernel)
        return x

    @jax.jit
    @jax.vmap
    def measured_deep(masks):
        return paths(model, params, jnp.ones((1, 300), dtype), mask=masks)

    whole = np.ones((300, 300), bool)
    one, apart = ~whole, ~whole
    one[3, 4] = True
    apart[:299, :299] = apart[299, 299] = True
    last = apart & (np.arange(300) == 299)
    mask = {name: np.stack([whole, whole, apart, apart]) for name in params}
    found = measured_deep({**mask, "19": np.stack([whole, one, apart, last])})
    # e^119 is beyond float32. The last unit of the third mask has one path among so many, and is alone in the
    # fourth.
    wanted = [21 * np.log(300), 19 * np.log(300), 21 * np.log(299), 0]
    assert np.allclose(found.log_count, wanted, rtol=1e-5, atol=1e-5)
    assert all(np.array_equal(leaf[2], apart) for leaf in found.effective.values())
    assert np.allclose(found.density[2:], [(299**2 + 1) / 300**2, 1 / 300**2])


class Cnn(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.BatchNorm(use_running_average=True)(nn.Conv(4, (3, 3))(x)))
        x = nn.max_pool(x, (2, 2), (2, 2))
        x = x + nn.relu(nn.Conv(4, (3, 3))(x))
        x = nn.avg_pool(x, (2, 2), (2, 2))
        return nn.Dense(3)(x.reshape(len(x), -1))


def linear(mask, x):
    """The same network without biases and activations, on ones."""
    first, second, last = (mask[name]["kernel"] for name in ("Conv_0", "Conv_1", "Dense_0"))

    def convolved(x, kernel):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)

    def pooled(x):
        return x.reshape(len(x), x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1).sum((2, 4))

    x = pooled(convolved(x, first))
    return (pooled(x + convolved(x, second)).reshape(len(x), -1) @ last).sum()


@pytest.mark.long
def test_paths_lead_through_convolutions_pooling_and_batch_norm():
    x = jnp.ones((2, 8, 8, 2))
    variables = Cnn().init(jax.random.key(0), x)
    selected = jaxarch.select(variables["params"])
    mask = jax.tree.map(lambda leaf: jnp.asarray(drawn(leaf.size, *leaf.shape, share=0.1)), selected)
    statistics = jax.tree.map(lambda leaf: None, variables["batch_stats"])
    found = paths(Cnn().apply, variables, x, mask={"params": mask, "batch_stats": statistics})
    numbers = jax.tree.map(lambda leaf: leaf.astype(float), mask)
    total, slopes = jax.value_and_grad(linear)(numbers, x[:1])
    assert found.log_count == pytest.approx(np.log(total), rel=1e-5)
    assert 0 < found.density < jaxarch.density(mask)
    wanted = jax.tree.map(lambda leaf, slope: leaf & (slope > 0), mask, slopes)
    assert jax.tree.all(jax.tree.map(np.array_equal, found.effective["params"], wanted))


@pytest.mark.long
def test_a_network_is_measured_with_its_own_mask():
    problem = jaxarch.supervised(
        jaxarch.direct_network((4, 8, 3), skips=False),
        (jnp.eye(4), jnp.eye(4, 3)),
        loss=lambda y, labels: ((y - labels) ** 2).sum(-1),
        optimizer=optax.sgd(0.1),
        steps=1,
    )
    network = jaxarch.search.random_mask(0.5)(jax.random.key(0), problem)
    found = paths(network, problem)
    first, second = (np.asarray(leaf).astype(int) for leaf in jax.tree.leaves(network.mask))
    assert np.exp(found.log_count) == pytest.approx((second @ first).sum(), rel=1e-5)
    with pytest.raises(ArgumentError, match=r"^mask: the network has its own mask"):
        paths(network, problem, mask=network.mask)


def of_small(model, dtype=jnp.float32):
    params = {"a": jnp.ones((2, 3)), "b": jnp.ones((3, 2))}
    mask = {"a": jnp.array([[True, True, False]] * 2), "b": jnp.ones((3, 2), bool)}
    return paths(model, params, jnp.ones((1, 2), dtype), mask=mask)


@pytest.mark.parametrize(
    ("activation", "number"),
    [
        (lambda x: jnp.clip(x, -1, 1), 8),  # the bounds begin no path
        (jnp.sign, 8),
        (lambda x: jnp.maximum(x, 2 * x), 8),
        (lambda x: x[:, jnp.array([0, 2, 2])], 4),  # the third neuron reads nothing
        (lambda x: jnp.concatenate([x[:, 1:], jnp.ones((1, 1))], 1), 4),
        (lambda x: x + 0 * x, 8),  # a product with 0 leads nowhere
        (lambda x: jnp.broadcast_to(x.max(1, keepdims=True), (1, 3)), 24),  # maxima add: 2 + 2 + 0
        (lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), 8),
    ],
)
def test_paths_follow_what_a_model_does_with_its_values(activation, number):
    found = of_small(lambda p, x: activation(x @ p["a"]) @ p["b"])
    assert np.exp(found.log_count) == pytest.approx(number)


def test_paths_to_all_outputs_add():
    found = of_small(lambda p, x: (x @ p["a"], {"of b": x @ p["a"] @ p["b"]}))
    assert np.exp(found.log_count) == pytest.approx(4 + 8)


@pytest.mark.long
def test_a_skip_beside_a_deep_network_is_effective():
    params = {f"{layer:02}": jnp.ones((100, 100)) for layer in range(30)}

    def model(params, x):
        skip, *others = params.values()
        return functools.reduce(lambda values, kernel: jnp.tanh(values @ kernel), others, x) + x @ skip

    mask = {name: np.ones((100, 100), bool) for name in params}
    mask["29"][:, 1:] = False  # only the skip leads to the other outputs
    found = paths(model, params, jnp.ones((1, 100)), mask=mask)
    assert all(np.array_equal(found.effective[name], leaf) for name, leaf in mask.items())


def gated(model):
    params = {"gate": jnp.ones((2, 3)), "a": jnp.ones((2, 3)), "b": jnp.ones((3, 1))}
    mask = {
        "gate": jnp.array([[True, False, False]] * 2),
        "a": jnp.array([[True, True, False]] * 2),
        "b": jnp.ones((3, 1), bool),
    }
    return paths(model, params, jnp.ones((1, 2)), mask=mask)


@pytest.mark.parametrize(
    "is_open",
    [
        lambda gate: gate > 0,
        lambda gate: ~(gate <= 0) & jnp.isfinite(gate),
        lambda gate: jnp.concatenate([gate[:, :1] > 0, gate[:, 1:] > 0], 1),
    ],
)
def test_a_gate_that_chooses_by_a_comparison_is_on_paths(is_open):
    # Removing its connections closes the first unit, which changes the output.
    found = gated(lambda p, x: jnp.where(is_open(x @ p["gate"]), x @ p["a"], 0) @ p["b"])
    assert found.effective["gate"].tolist() == [[True, False, False]] * 2
    assert found.effective["a"].tolist() == [[True, True, False]] * 2
    assert found.effective["b"].ravel().tolist() == [True, True, False]
    assert np.exp(found.log_count) == pytest.approx(4)  # the larger number of gate and value


@pytest.mark.parametrize(
    ("is_open", "message"),
    [
        (lambda p, x: jnp.broadcast_to((x @ p["gate"] > 0).any(), (1, 3)), "'broadcast_in_dim' chooses"),
        (lambda p, x: (x @ p["gate"]).astype(int) > 0, "'gt' chooses between values"),
        (lambda p, x: p["gate"][:1] > 0, "'gt' chooses between values"),
    ],
)
def test_gates_without_paths_are_refused(is_open, message):
    with pytest.raises(ArgumentError, match=f"^model: {message}"):
        gated(lambda p, x: jnp.where(is_open(p, x), x @ p["a"], 0) @ p["b"])


def test_an_output_that_reads_no_input_has_no_paths():
    for found in (of_small(lambda p, x: p["b"]), of_small(lambda p, x: jnp.ones((1, 2)))):
        assert (found.log_count, found.density) == (-np.inf, 0)


def test_weights_of_fewer_bits_are_still_pruned():
    found = of_small(lambda p, x: x @ jnp.sign(p["a"]) @ p["b"].astype(jnp.bfloat16).astype(jnp.float32))
    assert np.exp(found.log_count) == pytest.approx(8)


@pytest.mark.long
def test_masks_that_are_split_over_explicit_axes_are_measured_as_others():
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    masks = {"a": drawn(0, 4, 6), "b": drawn(1, 6, 2)}
    params = {"a": jnp.zeros((4, 6)), "b": jnp.zeros((6, 2))}
    with jax.set_mesh(mesh):
        rows = jax.NamedSharding(mesh, jax.P("d"))
        split = jax.tree.map(lambda leaf: jax.device_put(leaf, rows), masks)
        layers = connectivity(split)
        found = paths(lambda p, x: x @ p["a"] @ p["b"], params, jnp.ones((1, 4)), mask=split)
    assert all(same(layers[name], of_one(masks[name])) for name in masks)
    number = (masks["a"].astype(int) @ masks["b"].astype(int)).sum()
    assert np.exp(found.log_count) == pytest.approx(number, rel=1e-5)


@pytest.mark.parametrize(
    ("activation", "message"),
    [
        (jax.nn.gelu, "model: 'mul' multiplies two values of the inputs"),
        (jax.nn.softmax, "model: 'exp' has no paths to follow"),
        (lambda x: x / (1 + jnp.abs(x)), "model: it divides by numbers that depend on masked leaves"),
        (lambda x: (x > 0).astype(x.dtype), "model: 'gt' has no paths to follow"),
        (lambda x: jnp.sort(x), "model: 'sort' has no paths to follow"),
    ],
)
def test_models_without_paths_are_refused(activation, message):
    with pytest.raises(ArgumentError, match=f"^{message}"):
        of_small(lambda p, x: activation(x @ p["a"]) @ p["b"])


@pytest.mark.parametrize(("name", "function"), [("cos", jnp.cos), ("integer_pow", lambda w: w**-1)])
def test_a_function_of_weights_that_is_not_0_at_a_pruned_one_is_refused(name, function):
    with pytest.raises(ArgumentError, match=f"^model: '{name}' has no paths to follow"):
        of_small(lambda p, x: x @ function(p["a"]) @ p["b"])


def test_inputs_and_masks_that_do_not_fit_are_refused():
    with pytest.raises(ArgumentError, match=r"^inputs: expected floating-point numbers"):
        of_small(lambda p, x: p["a"][x] @ p["b"], jnp.int32)
    with pytest.raises(ArgumentError, match=r"^mask: the model has no parameter 'd'"):
        paths(with_skip, PARAMS, X, mask={"d": np.ones((2, 2), bool)})
    same_paths = {"a/b": jnp.ones((2, 3)), "a": {"b": jnp.ones((2, 3))}}
    with pytest.raises(ArgumentError, match=r"^tree: two leaves have the same path"):
        paths(
            lambda p, x: x @ p["a"]["b"] + p["a/b"][:1],
            same_paths,
            X[:, :2],
            mask={"a/b": None, "a": {"b": jnp.ones((2, 3), bool)}},
        )
    with pytest.raises(ArgumentError, match=r"^mask: expected booleans, got float32"):
        paths(with_skip, PARAMS, X, mask=PARAMS)
    with pytest.raises(ArgumentError, match=r"^mask: expected at least one masked leaf"):
        paths(with_skip, PARAMS, X, mask=None)
    with pytest.raises(ArgumentError, match=r"^inputs: expected arrays with examples"):
        paths(with_skip, PARAMS, mask={"a": np.ones((5, 6), bool), "b": None, "c": None, "bias": None})

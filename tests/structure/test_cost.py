"""What models cost: parameters, multiply-adds and activations, by hand, as XLA counts, and of cut models."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax import lax
from small import abstract
from test_axis_groups import family
from test_needed_units import masked as sparse

import jaxarch
from jaxarch import ArgumentError, named_leaves, select
from jaxarch.masks import apply_mask, full_mask
from jaxarch.structure import Counts, axis_groups
from jaxarch.structure._cost import cost_of

KINDS = ("dense", "masked", "effective", "shrunk")


def ones(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def drawn(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def work(function, tree, *inputs, **options):
    """The multiply-adds of each layer that has some, all connections."""
    layers = jaxarch.cost(function, tree, *inputs, **options).layers
    found = {name: layer.dense.multiply_adds for name, layer in layers.items()}
    return {name: count for name, count in found.items() if count}


def mlp(p, x):
    hidden = jax.nn.relu(x @ p["hidden"]["kernel"] + p["hidden"]["bias"][None])
    return hidden @ p["head"]["kernel"]


LEAVES = {"hidden": {"kernel": drawn(3, 8), "bias": jnp.zeros(8)}, "head": {"kernel": drawn(8, 2)}}


# Dense, by hand --------------------------------------------------------------------------------------


def test_the_layers_of_an_mlp_by_hand():
    cost = jaxarch.cost(mlp, LEAVES, ones(1, 3))
    assert cost.layers["hidden"].dense == Counts(3 * 8 + 8, 4 * (3 * 8 + 8), 3 * 8, 8)
    assert cost.layers["head"].dense == Counts(8 * 2, 4 * 8 * 2, 8 * 2, 2)
    assert cost.total.dense == Counts(48, 192, 40, 10)


@pytest.mark.long
def test_numbers_are_those_of_one_example_whatever_the_batch():
    one, many = (jaxarch.cost(mlp, LEAVES, ones(batch, 3)) for batch in (1, 7))
    assert (one.layers, one.total) == (many.layers, many.total)
    assert (one.batch, many.batch) == (1, 7)


def test_inputs_without_an_axis_of_examples_are_one_example():
    cost = jaxarch.cost(lambda p, x: p["kernel"] @ x, {"kernel": ones(2, 3)}, ones(3))
    assert (cost.batch, cost.total.dense.multiply_adds) == (1, 6)


def test_a_batch_that_the_inputs_cannot_be_is_refused():
    with pytest.raises(
        jaxarch.ArgumentError, match="batch: expected the number of examples in the inputs, got 5"
    ):
        jaxarch.cost(lambda p, x: x @ p, jnp.ones((4, 6)), jnp.ones((8, 4)), batch=5)


def test_where_outputs_are_no_batch_of_examples_or_there_are_no_inputs_nothing_is_divided():
    assert jaxarch.cost(lambda p, x: (x @ p["w"]).sum(), {"w": ones(4, 3)}, ones(5, 4)).batch == 1
    assert jaxarch.cost(lambda p: p["w"] @ p["w"], {"w": ones(3, 3)}).batch == 1
    assert jaxarch.cost(lambda p, x: (p["w"] * x).sum(), {"w": ones(3)}, ones()).batch == 1


def rounds(p, x):
    """A recurrent network over the positions of one sequence."""
    return lax.scan(lambda h, row: (jnp.tanh(h @ p + row),) * 2, jnp.zeros(4), x)[1]


def picture(p, x):
    return lax.conv(x[None], p, (1, 1), "SAME")[0]


def with_penalty(p, x):
    return x @ p, jnp.square(x @ p).mean()


SQUARE_WEIGHTS, KERNEL = ones(4, 4), ones(3, 3, 3, 3)
EXAMPLES = {
    "one vector, as long as the outputs": (lambda p, x: x @ p, SQUARE_WEIGHTS, ones(4), "unknown", 1),
    "one picture, channels first": (picture, KERNEL, ones(3, 8, 8), "unknown", 1),
    "pictures": (jax.vmap(picture, (None, 0)), KERNEL, ones(5, 3, 8, 8), "found", 5),
    "one sequence": (rounds, SQUARE_WEIGHTS, ones(7, 4), "unknown", 1),
    "sequences": (jax.vmap(rounds, (None, 0)), SQUARE_WEIGHTS, ones(5, 7, 4), "found", 5),
    "one sequence, attended": (lambda p, x: x @ p @ x.T @ x, SQUARE_WEIGHTS, ones(7, 4), "unknown", 1),
    "a batch, with a penalty": (with_penalty, SQUARE_WEIGHTS, ones(8, 4), "found", 8),
}


@pytest.mark.parametrize("case", EXAMPLES)
def test_an_axis_is_the_batch_if_twice_as_many_are_twice_the_work(case):
    function, tree, x, batch_is, batch = EXAMPLES[case]
    cost = jaxarch.cost(function, tree, x)
    assert (cost.batch_is, cost.batch) == (batch_is, batch)
    whole = jaxarch.cost(function, tree, x, batch=1).total.dense.multiply_adds
    assert cost.total.dense.multiply_adds * batch == whole


def test_the_first_line_says_whose_cost_it_is():
    tree, x = {"w": ones(4, 3)}, ones(5, 4)
    said = [
        str(jaxarch.cost(lambda p, x: (x @ p["w"]).sum(), tree, x)),
        str(jaxarch.cost(lambda p, x: (x @ p["w"]).sum(), tree, x, batch=5)),
        str(jaxarch.cost(lambda p, x: x @ p["w"], tree, x)),
    ]
    assert [text.splitlines()[0].split("multiply-adds of ")[1] for text in said] == [
        "the whole call",
        "one example, batch of 5: as given",
        "one example, batch of 5: the input's first axis",
    ]


def test_parameters_of_few_bits_take_few_bytes():
    cost = jaxarch.cost(lambda p, x: x @ p["w"], {"w": ones(3, 8, dtype=jnp.bfloat16)}, ones(1, 3))
    assert cost.total.dense.bytes == 2 * 24


def convolution(kernel, picture=(1, 9, 9, 4), **options):
    options = {
        "window_strides": (1, 1),
        "padding": "SAME",
        "dimension_numbers": ("NHWC", "HWIO", "NHWC"),
    } | options

    def function(p, x):
        return lax.conv_general_dilated(x, p["conv"]["kernel"], **options)

    return function, {"conv": {"kernel": ones(*kernel)}}, ones(*picture)


CONVOLUTIONS = {
    # Places of the window, padding among them, times inputs of a group, times outputs.
    "padding": (convolution((3, 3, 4, 6)), 9 * 9 * 9 * 4 * 6),
    "stride": (convolution((3, 3, 4, 6), window_strides=(2, 2)), 5 * 5 * 9 * 4 * 6),
    "no padding": (convolution((3, 3, 4, 6), padding="VALID"), 7 * 7 * 9 * 4 * 6),
    "groups": (convolution((3, 3, 2, 6), feature_group_count=2), 9 * 9 * 9 * 2 * 6),
    "depthwise": (convolution((3, 3, 1, 4), feature_group_count=4), 9 * 9 * 9 * 1 * 4),
    "a dilated kernel": (convolution((3, 3, 4, 6), rhs_dilation=(2, 2)), 9 * 9 * 9 * 4 * 6),
    "a transposed one": (
        convolution((2, 2, 4, 6), padding=((1, 1), (1, 1)), lhs_dilation=(2, 2)),
        9 * 9 * 4 * 4 * 6,
    ),
    # Along each axis the outer two of three places meet 8 of 9 entries, and zeros between them.
    "another transposed one": (
        convolution((3, 3, 4, 6), padding=((1, 1), (1, 1)), lhs_dilation=(2, 2)),
        25 * 25 * 4 * 6,
    ),
    # Padding by two places on each side, as for "VALID": each entry of the input meets the whole kernel.
    "a transposed one, with padding": (
        convolution((3, 3, 4, 6), padding=((2, 2), (2, 2)), lhs_dilation=(2, 2)),
        81 * 9 * 4 * 6,
    ),
    "a batch": (convolution((3, 3, 4, 6), (5, 9, 9, 4)), 9 * 9 * 9 * 4 * 6),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_a_convolution_by_hand(case):
    (function, tree, x), expected = CONVOLUTIONS[case]
    assert work(function, tree, x) == {"conv": expected}


def attention(p, x):
    query, key, value = (jnp.einsum("btd,dhf->bthf", x, p[name]["kernel"]) for name in "qkv")
    weights = jax.nn.softmax(jnp.einsum("bthf,bshf->bhts", query, key))
    return jnp.einsum("bhts,bshf,hfd->btd", weights, value, p["o"]["kernel"])


HEADS = {name: {"kernel": drawn(12, 2, 6)} for name in "qkv"} | {"o": {"kernel": drawn(2, 6, 12)}}


@pytest.mark.long
def test_products_of_two_activations_have_a_line_of_their_own():
    found = work(attention, HEADS, ones(1, 5, 12))
    assert found == dict.fromkeys("qkvo", 5 * 12 * 12) | {"(no parameters)": 2 * 5 * 5 * 12}
    assert list(found)[-1] == "(no parameters)"


RESNET_20 = (
    32 * 32 * 9 * 3 * 16
    + 32 * 32 * 9 * 16 * 16 * 6
    + 16 * 16 * 9 * (16 * 32 + 32 * 32 * 5)
    + 8 * 8 * 9 * (32 * 64 + 64 * 64 * 5)
    + 64 * 10
)


def test_resnet_20_has_the_parameters_and_multiply_adds_of_the_literature():
    model = abstract(jaxarch.models.ResNet20, inputs=3, outputs=10)
    model.eval()
    graph, params, state = nnx.split(model, nnx.Param, ...)

    def function(params, x, state):
        return nnx.merge(graph, params, state, copy=True)(x)

    cost = jaxarch.cost(function, params, ones(1, 32, 32, 3), state)
    assert cost.total.dense.parameters == 269_722
    assert cost.total.dense.multiply_adds == RESNET_20 == 40_551_040


# Dense, as XLA counts --------------------------------------------------------------------------------

AS_XLA = {
    "a chain": (lambda p, x: x @ p["a"] @ p["b"], {"a": ones(16, 32), "b": ones(32, 8)}, ones(4, 16)),
    "a batched product": (
        lambda p, x: jnp.einsum("bhi,hio->bho", x, p["a"]),
        {"a": ones(3, 16, 8)},
        ones(4, 3, 16),
    ),
    "activations": (lambda p, x: x @ jnp.swapaxes(x @ p["a"], 1, 2), {"a": ones(16, 16)}, ones(4, 9, 16)),
    "a convolution": convolution((3, 3, 4, 6), padding="VALID"),
    "a stride": convolution((3, 3, 4, 6), padding="VALID", window_strides=(2, 2)),
    "groups": convolution((3, 3, 2, 6), padding="VALID", feature_group_count=2),
    "a dilated kernel": convolution((3, 3, 4, 6), padding="VALID", rhs_dilation=(2, 2)),
}


@pytest.mark.parametrize("case", AS_XLA)
def test_xla_counts_two_operations_for_each_multiply_add(case):
    function, tree, x = AS_XLA[case]
    flops = jax.jit(function).lower(tree, x).compile().cost_analysis()["flops"]
    cost = jaxarch.cost(function, tree, x)
    assert flops == 2 * cost.total.dense.multiply_adds * cost.batch


# Programs in programs --------------------------------------------------------------------------------

SQUARE, SQUARE_OF_ONES, ROW = {"w": ones(4, 4)}, {"w": jnp.ones((4, 4))}, ones(1, 4)


@jax.custom_jvp
def own_derivative(x, w):
    return x @ w


@jax.custom_vjp
def own_pullback(x, w):
    return x @ w


own_derivative.defjvp(
    lambda values, tangents: (own_derivative(*values), tangents[0] @ values[1] + values[0] @ tangents[1])
)
own_pullback.defvjp(lambda x, w: (x @ w, w), lambda w, made: (made @ w.T, w))

CALLED = {
    "jit": lambda p, x: jax.jit(jnp.matmul)(x, p["w"]),
    "remat": lambda p, x: jax.checkpoint(jnp.matmul)(x, p["w"]),
    "custom_jvp": lambda p, x: own_derivative(x, p["w"]),
    "custom_vjp": lambda p, x: own_pullback(x, p["w"]),
    "vmap": lambda p, x: jax.vmap(lambda row: p["w"] @ row)(x),
}


@pytest.mark.parametrize("call", CALLED)
def test_a_call_counts_once(call):
    assert work(CALLED[call], SQUARE, ROW) == {"w": 16}


def test_a_scan_counts_as_often_as_it_has_rounds():
    def function(p, x):
        inner = lambda h: lax.scan(lambda h, _: (jnp.tanh(h @ p["w"]), None), h, length=3)[0]  # noqa: E731
        return lax.scan(lambda h, _: (inner(h), None), x, length=5)[0]

    assert work(function, SQUARE, ROW) == {"w": 15 * 16}


def test_weights_that_a_scan_carries_or_takes_row_by_row_keep_their_layer():
    def function(p, x):
        def layer(carry, kernel):
            h, last = carry
            return (jnp.tanh(h @ kernel), last), None

        (h, last), _ = lax.scan(layer, (x, p["last"]["kernel"]), p["layers"]["kernel"])
        return h @ last

    tree = {"layers": {"kernel": ones(6, 4, 4)}, "last": {"kernel": ones(4, 4)}}
    assert work(function, tree, ROW) == {"layers": 6 * 16, "last": 16}


def test_a_carry_that_begins_as_a_leaf_is_an_activation():
    def function(p, x):
        def step(h, row):
            return jnp.tanh(row @ p["in"]["kernel"] + h @ p["back"]["kernel"]), None

        return lax.scan(step, p["start"]["value"], x)[0]

    tree = {"in": {"kernel": ones(3, 4)}, "back": {"kernel": ones(4, 4)}, "start": {"value": ones(4)}}
    assert work(function, tree, ones(7, 3)) == {"in": 7 * 12, "back": 7 * 16}


def test_of_branches_the_dearest_counts():
    def function(p, x):
        branches = [lambda x: x, lambda x: x @ p["w"] @ p["w"], lambda x: x @ p["v"]]
        return lax.switch(x[0, 0].astype(int), branches, x)

    cost = jaxarch.cost(function, {"w": ones(4, 4), "v": ones(4, 4)}, ROW)
    assert {name: layer.dense.multiply_adds for name, layer in cost.layers.items()} == {"w": 32, "v": 0}
    assert "of the branches of a cond, the most expensive is counted" in str(cost)


def test_products_in_a_while_loop_are_named_and_not_counted():
    def function(p, x):
        return lax.while_loop(lambda h: h.sum() > 1, lambda h: h @ p["w"], x) @ p["w"]

    cost = jaxarch.cost(function, SQUARE, ROW)
    assert (cost.total.dense.multiply_adds, cost.uncounted) == (16, ("while",))
    assert "not counted: while" in str(cost)


def test_a_while_loop_without_products_is_not_named():
    cost = jaxarch.cost(lambda p, x: lax.while_loop(lambda h: h.sum() > 1, jnp.sin, x @ p["w"]), SQUARE, ROW)
    assert cost.uncounted == ()


def test_primitives_that_are_not_understood_are_named():
    cost = jaxarch.cost(lambda p, x: x @ jnp.linalg.cholesky(p["w"]), SQUARE, ROW)
    assert (cost.uncounted, cost.total.dense.multiply_adds) == (("cholesky",), 16)


# Layers ----------------------------------------------------------------------------------------------

VIEWS = {
    "transposed": lambda w: w.T,
    "reshaped": lambda w: w.reshape(2, 2, 4).reshape(4, 4),
    "of another dtype": lambda w: w.astype(jnp.bfloat16).astype(jnp.float32),
    "concatenated": lambda w: jnp.concatenate([w[:2], w[2:]]),
    "broadcast": lambda w: jnp.broadcast_to(w[:, :1], (4, 4)),
    "under a mask": lambda w: jnp.where(jnp.eye(4) > 0, 0.0, w),
    "normalized": lambda w: w / jnp.linalg.norm(w),
    "of a batch": lambda w: w[None].repeat(2, 0)[1],
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_leaf_is_followed_to_its_product(view):
    tree = {"block": {"dense": {"kernel": ones(4, 4)}}}
    assert work(lambda p, x: x @ VIEWS[view](p["block"]["dense"]["kernel"]), tree, ROW) == {"block/dense": 16}


def test_a_kernel_over_the_norm_of_all_is_of_its_own_module():
    def function(p, x):
        norm = jnp.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(p)))
        return x @ (p["a"] / norm) @ (p["b"] / norm)

    assert work(function, {"a": ones(4, 4), "b": ones(4, 4)}, ROW) == {"a": 16, "b": 16}


def test_a_tree_of_one_leaf_is_a_layer():
    assert work(lambda w, x: x @ w, ones(4, 4), ROW) == {".": 16}


def test_weights_of_several_modules_in_one_product_have_a_line_of_their_own():
    tree = {name: {"kernel": ones(4, 2)} for name in ("query", "key")}

    def function(p, x):
        return x @ jnp.concatenate([p["query"]["kernel"], p["key"]["kernel"]], -1)

    assert work(function, tree, ROW) == {"query + key": 16}
    assert jaxarch.cost(function, tree, ROW).layers["query"].dense.parameters == 8


@pytest.mark.long
def test_a_leaf_that_is_used_twice_counts_its_parameters_once_and_its_multiply_adds_twice():
    function, tree, inputs, _ = family("siamese")
    cost = jaxarch.cost(function, tree, *inputs)
    (kernel, bias) = (named_leaves(tree)[f"0/a/{name}"] for name in ("kernel", "bias"))
    assert cost.layers["0/a"].dense.parameters == kernel.size + bias.size
    assert cost.layers["0/a"].dense.multiply_adds == 2 * kernel.size


def test_a_lookup_is_no_product():
    cost = jaxarch.cost(
        lambda p, i: p["table"][i] @ p["table"].T, {"table": ones(9, 4)}, ones(1, 5, dtype=jnp.int32)
    )
    assert cost.layers["table"].dense == Counts(36, 144, 5 * 4 * 9, 5 * 9)


def test_layers_are_in_the_order_of_the_program():
    assert list(jaxarch.cost(mlp, LEAVES, ones(1, 3)).layers) == ["hidden", "head"]


# Masked, effective, shrunk ---------------------------------------------------------------------------


def counted(kind, function, tree, *inputs, mask):
    counts = getattr(jaxarch.cost(function, tree, *inputs, mask=mask).total, kind)
    return counts.parameters, counts.multiply_adds, counts.activations


HALF = jnp.ones((3, 8), bool).at[:, :4].set(False).at[0].set(False)
MASK = {
    "hidden": {"kernel": HALF, "bias": None},
    "head": {"kernel": jnp.ones((8, 2), bool).at[7, 0].set(False)},
}


def test_a_masked_mlp_by_hand():
    # Of the hidden kernel four columns and the last two rows; of the head all but one; biases whole.
    assert counted("masked", mlp, LEAVES, ones(1, 3), mask=MASK) == (8 + 8 + 15, 8 + 15, 4 + 2)


def test_what_matters_of_a_masked_mlp_by_hand():
    # Four neurons are constants, 0: they, their biases and what reads them do not count.
    assert counted("effective", mlp, LEAVES, ones(1, 3), mask=MASK) == (8 + 4 + 7, 8 + 7, 4 + 2)


def test_what_is_left_of_a_masked_mlp_without_its_dead_neurons_by_hand():
    # Arrays of three inputs, four neurons, two outputs; the input that is not read stays.
    assert counted("shrunk", mlp, LEAVES, ones(1, 3), mask=MASK) == (12 + 4 + 8, 12 + 8, 4 + 2)


def test_a_neuron_that_is_a_constant_other_than_0_is_parameters_and_no_work():
    tree = LEAVES | {"hidden": {"kernel": LEAVES["hidden"]["kernel"], "bias": jnp.ones(8)}}
    # Their biases and what reads them count as parameters.
    assert counted("effective", mlp, tree, ones(1, 3), mask=MASK) == (8 + 8 + 15, 8 + 7, 4 + 2)


def test_what_no_output_reads_does_not_matter():
    mask = full_mask(select(LEAVES)) | {"head": {"kernel": jnp.zeros((8, 2), bool).at[:5].set(True)}}
    assert counted("effective", mlp, LEAVES, ones(1, 3), mask=mask) == (5 * (3 + 1 + 2), 5 * (3 + 2), 5 + 2)


def test_only_positions_that_an_output_reads_matter():
    function = lambda p, x: jnp.tanh(x @ p["w"])[:, 0] @ p["w"]  # noqa: E731
    tree = {"w": drawn(4, 4)}
    assert counted("dense", function, tree, ones(1, 5, 4), mask=None) == (16, 6 * 16, 6 * 4)
    assert counted("effective", function, tree, ones(1, 5, 4), mask=None) == (16, 2 * 16, 2 * 4)


def test_a_masked_convolution_counts_what_is_left_at_all_places():
    function, tree, x = convolution((3, 3, 2, 6), window_strides=(2, 2), feature_group_count=2)
    tree = {"conv": {"kernel": drawn(3, 3, 2, 6)}}
    mask = {"conv": {"kernel": jnp.asarray(np.random.default_rng(0).random((3, 3, 2, 6)) < 0.3)}}
    left = int(mask["conv"]["kernel"].sum())
    assert counted("masked", function, tree, x, mask=mask) == (left, 25 * left, 25 * 6)
    assert counted("effective", function, tree, x, mask=mask) == (left, 25 * left, 25 * 6)


def test_what_matters_of_two_convolutions_by_hand():
    def function(p, x):
        for name in "ab":
            x = lax.conv_general_dilated(
                x, p[name]["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        return x

    tree = {"a": {"kernel": drawn(3, 3, 4, 5)}, "b": {"kernel": drawn(3, 3, 5, 2)}}
    # Of five channels, two read nothing, one other is not read.
    mask = full_mask(tree)
    mask["a"]["kernel"] = mask["a"]["kernel"].at[..., :2].set(False)
    mask["b"]["kernel"] = mask["b"]["kernel"].at[:, :, 4].set(False)
    a, b = 9 * 4 * 2, 9 * 2 * 2
    assert counted("effective", function, tree, ones(1, 6, 6, 4), mask=mask) == (a + b, 36 * (a + b), 36 * 4)


def test_each_round_of_a_scan_over_layers_has_its_own_mask():
    def function(p, x):
        return lax.scan(lambda h, kernel: (jnp.tanh(h @ kernel), None), x, p["layers"]["kernel"])[0]

    tree = {"layers": {"kernel": drawn(2, 4, 4)}}
    # What one layer has lost, the other has: one two columns less an entry, the other that and two columns.
    first = (jnp.arange(16).reshape(4, 4) % 2 == 0) & (jnp.arange(16).reshape(4, 4) > 0)
    mask = {"layers": {"kernel": jnp.stack([first, ~first])}}
    assert counted("masked", function, tree, ROW, mask=mask) == (16, 7 + 9, 2 + 3)
    assert counted("effective", function, tree, ROW, mask=mask) == (16, 7 + 9, 2 + 3)


def test_weights_that_all_rounds_of_a_scan_share_count_in_each():
    def function(p, x):
        return lax.scan(lambda h, _: (jnp.tanh(h @ p["w"]), None), x, length=5)[0]

    mask = {"w": jnp.arange(16).reshape(4, 4) % 3 > 0}
    assert counted("masked", function, {"w": drawn(4, 4)}, ROW, mask=mask) == (10, 50, 20)
    assert counted("effective", function, {"w": drawn(4, 4)}, ROW, mask=mask) == (10, 50, 20)


def test_scans_in_a_scan_have_each_round_its_own_mask():
    def function(p, x):
        def inner(h, kernel):
            return jnp.tanh(h @ kernel @ p["last"]["kernel"]), None

        return lax.scan(lambda h, rows: lax.scan(inner, h, rows), x, p["layers"]["kernel"])[0]

    tree = {"layers": {"kernel": drawn(2, 3, 4, 4)}, "last": {"kernel": drawn(4, 4)}}
    mask = jax.tree.map(lambda leaf: leaf > 0.3, tree)
    left = {name: int(of["kernel"].sum()) for name, of in mask.items()}
    layers = jaxarch.cost(function, tree, ROW, mask=mask).layers
    found = {name: layer.masked.multiply_adds for name, layer in layers.items()}
    assert found == {"layers": left["layers"], "last": 6 * left["last"]}


def test_a_round_that_is_a_loop_itself_has_its_own_mask_in_all_rounds_of_that():
    def function(p, x):
        def layer(h, kernel):
            return lax.scan(lambda h, _: (jnp.tanh(h @ kernel), None), h, length=5)[0], None

        return lax.scan(layer, x, p["layers"]["kernel"])[0]

    tree = {"layers": {"kernel": drawn(2, 4, 4)}}
    kernel = tree["layers"]["kernel"] > 0.3
    masked = jaxarch.cost(function, tree, ROW, mask={"layers": {"kernel": kernel}}).total.masked
    assert masked.multiply_adds == 5 * int(kernel.sum())
    assert masked.activations == 5 * int(kernel.any(1).sum())


def test_what_outer_and_inner_rounds_make_together_is_0_where_either_is():
    def function(p, x):
        def outer(h, kernels):
            kernel, rows = kernels
            return lax.scan(lambda h, row: (jnp.tanh(h @ (kernel * row)), None), h, rows)[0], None

        return lax.scan(outer, x, (p["outer"], p["inner"]))[0]

    tree = {"outer": drawn(2, 4, 4), "inner": drawn(2, 3, 4, 4, seed=1)}
    mask = jax.tree.map(lambda leaf: leaf > 0, tree)
    left = int((mask["outer"][:, None] & mask["inner"]).sum())
    assert counted("masked", function, tree, ROW, mask=mask)[1] == left


def test_of_a_matrix_that_is_no_leaf_what_is_not_0_matters():
    cost = jaxarch.cost(lambda p, x: x @ p["w"] @ jnp.tril(jnp.ones((4, 4))), SQUARE_OF_ONES, ROW)
    layer = cost.layers["(no parameters)"]
    assert (layer.dense.multiply_adds, layer.effective.multiply_adds) == (16, 10)


def test_random_keys_are_leaves_and_no_parameters():
    def function(p, x):
        def layer(h, row):
            key, kernel = row
            return jnp.tanh(h @ kernel) + jax.random.normal(key, h.shape), None

        return lax.scan(layer, x, (p["keys"], p["kernels"]))[0]

    tree = {"keys": jax.random.split(jax.random.key(0), 3), "kernels": drawn(3, 4, 4)}
    cost = jaxarch.cost(function, tree, ROW, mask={"keys": None, "kernels": tree["kernels"] > 0})
    assert cost.total.masked.multiply_adds == int((tree["kernels"] > 0).sum())
    assert cost.total.dense.parameters == 48


def test_what_is_the_same_for_all_inputs_is_no_work_without_a_mask_too():
    cost = jaxarch.cost(lambda p, x: x @ p["w"], {"w": jnp.zeros((4, 4))}, ROW)
    assert (cost.total.dense.multiply_adds, cost.total.effective.multiply_adds) == (16, 0)


def test_where_a_loop_looks_up_its_weights_the_mask_is_not_seen_and_that_is_said():
    def function(p, x):
        return lax.fori_loop(0, 3, lambda i, h: jnp.tanh(h @ p["layers"]["kernel"][i]), x)

    tree = {"layers": {"kernel": drawn(3, 4, 4)}}
    mask = {"layers": {"kernel": jnp.ones((3, 4, 4), bool).at[0].set(False)}}
    cost = jaxarch.cost(function, tree, ROW, mask=mask)
    assert (cost.layers["layers"].dense.multiply_adds, cost.layers["layers"].masked.multiply_adds) == (48, 48)
    assert "the weights of layers are chosen at run time" in str(cost)


@pytest.mark.long
def test_attention_is_less_by_a_head_that_nothing_reads():
    mask = full_mask(HEADS)
    mask["o"]["kernel"] = mask["o"]["kernel"].at[0].set(False)
    cost = jaxarch.cost(attention, HEADS, ones(1, 5, 12), mask=mask)
    for layer in cost.layers.values():
        assert layer.effective == layer.shrunk
        assert layer.effective.multiply_adds == layer.dense.multiply_adds / 2
    of_activations = cost.layers["(no parameters)"]
    assert of_activations.masked == of_activations.dense


@cache
def of_all_kinds(name):
    function, tree, inputs, groups = family(name)
    tree = sparse(tree, np.random.default_rng(5), 0.2)
    mask = jax.tree.map(lambda leaf: leaf != 0, select(tree))
    return function, tree, inputs, groups, jaxarch.cost(function, tree, *inputs, mask=mask)


LARGE = ("MobileNet and groups", "CNN with batch norm", "siamese")
FAMILIES = ["residual MLP", *(pytest.param(name, marks=pytest.mark.long) for name in LARGE)]


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_shrunk_is_what_the_cut_model_costs_dense(name):
    _, tree, inputs, groups, cost = of_all_kinds(name)
    kept = groups.needed(tree)
    smaller = jaxarch.cost(groups.smaller(kept), jax.eval_shape(lambda t: groups.cut(t, kept), tree), *inputs)
    assert smaller.total.dense == cost.total.shrunk
    assert cost.total.shrunk.parameters < cost.total.dense.parameters


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_no_kind_of_connections_is_more_than_those_that_it_is_of(name):
    cost = of_all_kinds(name)[-1]
    for layer in cost.layers.values():
        for small, large in [
            ("masked", "dense"),
            ("effective", "masked"),
            ("effective", "shrunk"),
            ("shrunk", "dense"),
        ]:
            for field in ("parameters", "bytes", "multiply_adds", "activations"):
                assert getattr(getattr(layer, small), field) <= getattr(getattr(layer, large), field)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_the_effective_weights_are_those_that_the_outputs_change_with(seed):
    draw = np.random.default_rng(seed)
    tree = {name: drawn(*shape, seed=seed) for name, shape in {"a": (5, 9), "b": (9, 7), "c": (7, 3)}.items()}
    mask = {name: jnp.asarray(draw.random(leaf.shape) < 0.2) for name, leaf in tree.items()}
    model = lambda p, x: jnp.tanh(jnp.tanh(x @ p["a"]) @ p["b"]) @ p["c"]  # noqa: E731
    slopes = jax.jacobian(model)(apply_mask(mask, tree), drawn(20, 5, seed=9))
    cost = jaxarch.cost(model, tree, ones(1, 5), mask=mask)
    for name, slope in slopes.items():
        changes = (slope != 0).any((0, 1)) & mask[name]
        assert cost.layers[name].effective.parameters == int(changes.sum())
        assert cost.layers[name].effective.multiply_adds == int(changes.sum())


def test_what_is_kept_can_be_chosen():
    groups = axis_groups(mlp, LEAVES, ones(1, 3))
    counts = cost_of(groups, {"head/kernel[0]": np.arange(8) < 5})
    assert counts == {"hidden": Counts(20, 80, 15, 5), "head": Counts(10, 40, 10, 2)}


def test_scattered_zeros_are_said_to_make_nothing_smaller():
    two_of_four = jnp.arange(24).reshape(3, 8) % 4 < 2
    mask = {"hidden": {"kernel": two_of_four, "bias": None}, "head": {"kernel": None}}
    # The columns would be empty: shifted from row to row, none is.
    mask["hidden"]["kernel"] = jnp.stack([jnp.roll(row, i) for i, row in enumerate(two_of_four)])
    cost = jaxarch.cost(mlp, LEAVES, ones(1, 3), mask=mask)
    assert cost.total.masked.parameters < cost.total.dense.parameters
    assert str(cost).endswith(
        "\nthe zeros are scattered, so no array becomes smaller and dense hardware saves nothing"
    )
    for other in (None, MASK):
        assert "scattered" not in str(jaxarch.cost(mlp, LEAVES, ones(1, 3), mask=other))


# Both forms, what is shown, what is refused ----------------------------------------------------------


class Model(nnx.Module):
    """A convolution, a batch norm, a dense layer."""

    def __init__(self, rngs):
        self.convolution, self.norm = nnx.Conv(1, 3, (3, 3), rngs=rngs), nnx.BatchNorm(3, rngs=rngs)
        self.head = nnx.Linear(48, 2, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.relu(self.norm(self.convolution(x))).reshape(len(x), -1))


def found(**changes):
    """A network of one run, its problem, and the split model."""
    model = Model(nnx.Rngs(0))
    data = drawn(6, 4, 4, 1), np.arange(6) % 2
    loss = optax.softmax_cross_entropy_with_integer_labels
    problem = jaxarch.supervised(model, data, loss=loss, optimizer=optax.sgd(0.1), steps=1)
    params, state = problem.init(jax.random.key(0))
    mask = jaxarch.masks.keep(jaxarch.saliency.magnitude(params), 0.2)
    return jaxarch.Network(apply_mask(mask, params), mask, state).replace(**changes), problem


@pytest.mark.long
def test_a_network_costs_what_its_function_does_and_its_state_is_no_parameters():
    network, problem = found()
    one = jaxarch.cost(network, problem)

    def function(params, x):
        return problem.predict(params, network.state, (x, None))

    other = jaxarch.cost(function, network.params, ones(3, 4, 4, 1), mask=network.mask)
    assert (one.layers, one.total) == (other.layers, other.total)
    assert one.layers["norm"].dense.parameters == 6
    assert one.total.masked.parameters < one.total.dense.parameters


def test_of_shapes_alone_the_dense_column_is_known():
    cost = jaxarch.cost(mlp, jax.eval_shape(lambda: LEAVES), ones(1, 3))
    assert cost.total.dense == jaxarch.cost(mlp, LEAVES, ones(1, 3)).total.dense
    assert (cost.total.masked, cost.total.effective, cost.total.shrunk) == (None, None, None)
    assert "effective" not in str(cost)


def test_without_a_mask_there_is_no_masked_column():
    cost = jaxarch.cost(mlp, LEAVES, ones(1, 3))
    assert "masked" not in str(cost)
    assert cost.total.masked == cost.total.dense


TABLE = """\
        parameters                        multiply-adds of one example, batch of 2: the input's first axis
layer   dense  masked  effective  shrunk  dense  masked  effective  shrunk
hidden     32      16         12      16     24       8          8      12
head       16      15          7       8     16      15          7       8
total      48      31         19      24     40      23         15      20
bytes of parameters: 192 dense, 124 masked, 76 effective, 96 shrunk
activations: 10 dense, 6 masked, 6 effective, 6 shrunk"""


def test_the_table():
    assert str(jaxarch.cost(mlp, LEAVES, ones(2, 3), mask=MASK)) == TABLE


def test_the_frame_has_a_row_for_each_layer_and_kind():
    frame = jaxarch.cost(mlp, LEAVES, ones(1, 3), mask=MASK).to_frame()
    assert frame.connections.tolist() == [*KINDS, *KINDS]
    assert frame[frame.connections == "effective"].multiply_adds.tolist() == [8, 7]


def test_the_figure_has_a_bar_for_each_layer_and_kind_and_leaves_out_what_is_tiny():
    pytest.importorskip("matplotlib")
    tree = LEAVES | {"scale": ones(1, 1)}
    tree["hidden"] = {"kernel": ones(3, 800), "bias": ones(800)}
    tree["head"] = {"kernel": ones(800, 2)}
    shapes = jaxarch.cost(lambda p, x: mlp(p, x) * p["scale"], tree, ones(1, 3))
    figure = jaxarch.plots.cost(shapes, "title")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["hidden", "head"]
    (bars,) = figure.axes[1].containers
    assert [bar.get_width() for bar in bars] == [2400, 1600]
    whole = jaxarch.plots.cost(jaxarch.cost(mlp, LEAVES, ones(1, 3), mask=MASK))
    assert [text.get_text() for text in whole.legends[0].get_texts()] == list(KINDS)


REFUSED = {
    "function: it cannot be traced": lambda: jaxarch.cost(lambda p, x: x @ p["w"], SQUARE, ones(1, 3)),
    "model: expected a network of one run or a function": lambda: jaxarch.cost(3, SQUARE, ROW),
    "function: it has side effects": lambda: jaxarch.cost(
        lambda p, x: (jax.debug.print("{}", x), x @ p["w"])[1], SQUARE, ROW
    ),
    "mask: the model has no parameter 'v'": lambda: jaxarch.cost(
        mlp, LEAVES, ones(1, 3), mask={"v": jnp.ones(2, bool)}
    ),
    "mask: a masked count needs arrays": lambda: jaxarch.cost(mlp, SQUARE, ROW, mask=SQUARE),
    "mask: expected booleans, got float32": lambda: jaxarch.cost(mlp, LEAVES, ones(1, 3), mask=LEAVES),
    "mask: leaf 'hidden/kernel' has shape": lambda: jaxarch.cost(
        mlp, LEAVES, ones(1, 3), mask=MASK | {"hidden": {"kernel": jnp.ones((3, 9), bool), "bias": None}}
    ),
    "tree: expected arrays or their shapes, got 1.5 as 'w'": lambda: jaxarch.cost(mlp, {"w": 1.5}, ROW),
    "tree: its values are traced": lambda: jax.jit(
        lambda tree: jaxarch.cost(mlp, tree, ones(1, 3)).total.dense.parameters
    )(LEAVES),
    "network: it holds many runs": lambda: jaxarch.cost(
        jax.tree.map(
            lambda leaf: jnp.stack([leaf] * 2),
            found()[0].replace(info=jaxarch.TrainingInfo(failed_at=jnp.array(-1))),
        ),
        found()[1],
    ),
    "network: it is a bare architecture": lambda: jaxarch.cost(found(params=None)[0], found()[1]),
    "batch: a network is always traced with one example": lambda: jaxarch.cost(*found(), batch=2),
    "batch: expected an integer of at least 1": lambda: jaxarch.cost(mlp, LEAVES, ones(1, 3), batch=0),
    "mask: the network has its own mask": lambda: jaxarch.cost(*found(), mask=MASK),
    "problem: expected the network's problem and no other inputs, got None": lambda: jaxarch.cost(found()[0]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused_in_one_line(message):
    with pytest.raises(ArgumentError) as error:
        REFUSED[message]()
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)

"""Two models are compared layer by layer, whatever made the second."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxarch
from jaxarch import ArgumentError
from jaxarch.structure import same

X = jax.random.normal(jax.random.key(9), (3, 5))
SIZES = {"one": (5, 6), "two": (6, 7), "three": (7, 2)}


def model(params, x):
    for name in ("one", "two"):
        x = jnp.tanh(x @ params[name]["kernel"] + params[name]["bias"][None])
    return x @ params["three"]["kernel"]


@pytest.fixture(scope="module")
def params():
    keys = jax.random.split(jax.random.key(0), 2 * len(SIZES))
    return {
        name: {
            "kernel": jax.random.normal(first, shape),
            "bias": jax.random.normal(second, shape[1:]),
        }
        for (name, shape), first, second in zip(SIZES.items(), keys[::2], keys[1::2], strict=True)
    }


@pytest.fixture(scope="module")
def small(params):
    return jaxarch.structure.plan(model, params, X, budget="50% multiply_adds").apply()


@pytest.fixture(scope="module")
def masked(params, small):
    kept = small.groups.mask(small.kept)
    return {
        name: {part: leaf * kept[f"{name}/{part}"] for part, leaf in of.items()}
        for name, of in params.items()
    }


def changed(tree, layer, part, by=0.1):
    return tree | {layer: tree[layer] | {part: tree[layer][part] + by}}


@pytest.mark.long
def test_a_cut_model_is_the_masked_one(masked, small):
    found = same((model, masked), (small.function, small.tree), X)
    assert found and found.first == "" and not found.alike
    assert max(max(layer.read, layer.made) for layer in found.layers) < 1e-5
    assert "6 -> " in str(found) and "the same" in str(found)


def test_a_model_is_itself(params):
    found = same((model, params), (model, params), X)
    assert found and found.alike and found.difference == 0


@pytest.mark.parametrize(
    ("layer", "part", "first"),
    [
        ("one", "kernel", "in one"),
        ("one", "bias", "between one and two"),
        ("two", "kernel", "in two"),
        ("two", "bias", "between two and three"),
        ("three", "kernel", "in three"),
    ],
)
def test_the_first_layer_that_differs_is_named(masked, small, layer, part, first):
    found = same((model, masked), (small.function, changed(small.tree, layer, part)), X)
    assert not found and found.first == first
    assert f"begin to differ {first}" in str(found)


def test_a_difference_behind_the_last_layer_is_named(params):
    found = same((model, params), (lambda params, x: model(params, x) + 1, params), X)
    assert not found and found.first == "after three"


def test_layers_of_other_names_are_compared_in_their_order(masked, small):
    other = {f"layers/{name}": of for name, of in small.tree.items()}
    found = same(
        (model, masked),
        (lambda tree, x: small.function({name[7:]: of for name, of in tree.items()}, x), other),
        X,
    )
    assert found and len(found.layers) == 3


def test_layers_that_one_model_lacks_are_named(params):
    shorter = {name: of for name, of in params.items() if name != "two"}
    shorter["three"] = {"kernel": jnp.ones((6, 2))}

    def without(params, x):
        return jnp.tanh(x @ params["one"]["kernel"] + params["one"]["bias"][None]) @ params["three"]["kernel"]

    found = same((model, params), (without, shorter), X)
    assert found.only == (("two",), ()) and "only in the first: two" in str(found)
    assert found.first == "between one and three"


def test_layers_in_loops_are_compared_round_by_round():
    stacked = {"kernel": jax.random.normal(jax.random.key(0), (4, 5, 5)), "head": jnp.ones((5, 2))}

    def loop(params, x):
        x, _ = jax.lax.scan(lambda x, kernel: (jnp.tanh(x @ kernel), None), x, params["kernel"])
        return x @ params["head"]

    last = {**stacked, "kernel": stacked["kernel"].at[3].add(0.1)}
    assert same((loop, stacked), (loop, stacked), X)
    assert not same((loop, stacked), (loop, last), X)


def test_a_pruned_convolution_is_compared_too():
    shapes = {"one": (3, 3, 2, 6), "two": (3, 3, 6, 4)}
    kernels = {name: jax.random.normal(jax.random.key(1), shape) for name, shape in shapes.items()}
    pictures = jax.random.normal(jax.random.key(2), (2, 8, 8, 2))

    def convolutions(params, x):
        for name in params:
            x = jax.lax.conv_general_dilated(
                x, params[name], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jnp.tanh(x)
        return x

    masked = {**kernels, "one": kernels["one"].at[..., 3:].set(0)}
    cut = {"one": kernels["one"][..., :3], "two": kernels["two"][:, :, :3]}
    assert same((convolutions, masked), (convolutions, cut), pictures)
    wrong = {**cut, "two": kernels["two"][:, :, 1:4]}
    assert same((convolutions, masked), (convolutions, wrong), pictures).first == "in two"


def test_half_precision_is_compared_by_its_own_rounding(masked, small):
    whole, cut, x = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (masked, small.tree, X))
    found = same((model, whole), (model, cut), x)
    assert found
    assert not same((model, whole), (model, changed(cut, "two", "kernel", by=1)), x)


def test_anything_but_pairs_is_refused(params):
    with pytest.raises(ArgumentError, match="first: expected a pair"):
        same(model, (model, params), X)
    with pytest.raises(ArgumentError, match="second"):
        same((model, params), (3, params), X)
    with pytest.raises(ArgumentError, match="arrays"):
        same((model, params), (model, jax.eval_shape(lambda: params)), X)


def test_integers_and_the_structure_of_outputs_count(params):
    def token(params, x):
        return jnp.argmax(model(params, x), -1) + 50_000

    def named(params, x):
        return {"logits": model(params, x)}

    assert same((token, params), (token, params), X)
    other = (lambda params, x: token(params, x) + 1, params)
    assert same((token, params), other, X).difference == np.inf
    assert not same((model, params), (named, params), X)


def test_a_layer_that_keeps_a_unit_twice_is_named(params, small, masked):
    kernel = small.tree["one"]["kernel"].at[:, 1].set(small.tree["one"]["kernel"][:, 0])
    twice = small.tree | {"one": small.tree["one"] | {"kernel": kernel}}
    assert same((model, masked), (small.function, twice), X).first == "in one"


def test_units_are_counted_by_the_leaves(masked, small):
    def mapped(params, x):
        return jax.vmap(lambda row: model(params, row[None])[0])(x)

    found = same((mapped, masked), (small.function, small.tree), X)
    assert found and [layer.units[0] for layer in found.layers] == [6, 7, 2]


def test_a_unit_of_nan_that_goes_does_not_count(params):
    whole = {**params, "two": {**params["two"], "kernel": params["two"]["kernel"].at[:, 0].set(jnp.nan)}}

    def selected(params, x):
        x = jnp.tanh(x @ params["one"]["kernel"])
        return (x @ params["two"]["kernel"])[:, -3:]

    cut = {**params, "two": {**params["two"], "kernel": params["two"]["kernel"][:, -3:]}}
    assert same((selected, whole), (selected, cut), X)


def test_many_units_are_matched_in_a_moment():
    wide = jax.random.normal(jax.random.key(0), (8, 1024))
    x = jax.random.normal(jax.random.key(1), (64, 8))
    linear = lambda params, x: (x @ params["w"])[:, :16]  # noqa: E731
    found = same((linear, {"w": wide}), (linear, {"w": wide[:, :512]}), x)
    assert found and found.layers[0].units == (1024, 512)

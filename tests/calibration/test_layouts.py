"""Inputs of a model's weights, for the ways in which models write their products.

Each layout returns the outputs of its products, and stops gradients at their inputs. A connection's squared
inputs are then the squares of its derivatives, and second moments are products of two derivatives.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxarch
from jaxarch.calibration._calibrate import captured

LAYOUTS = {}
LEFT = {}
"""The leaves whose inputs are not known, by layout."""


def layout(function=None, /, left=(), same_as=None, **shapes):
    if function is None:
        return functools.partial(layout, left=left, same_as=same_as, **shapes)
    name = function.__name__.replace("_", " ")
    LAYOUTS[name], LEFT[name] = (function, same_as or function, shapes), set(left)
    return function


def fixed(values):
    return lax.stop_gradient(jnp.tanh(values))


@layout(w=(4, 3))
def inputs_by_outputs(p, x):
    return x @ p["w"]


@layout(w=(3, 4))
def outputs_by_inputs(p, x):
    return x @ p["w"].T


@layout(w=(4, 3), v=(3, 2))
def two_layers(p, x):
    first = x @ p["w"]
    return first, fixed(first) @ p["v"]


@layout(w=(4, 3))
def inputs_on_the_first_axis(p, x):
    return jnp.einsum("kb,kn->nb", x.T, p["w"])


@layout(w=(3, 4))
def the_weight_first(p, x):
    return p["w"] @ x.T


@layout(w=(4, 3))
def one_example_at_a_time(p, x):
    return jax.vmap(lambda row: row @ p["w"])(x)


@layout(w=(4, 2, 3))
def into_heads(p, x):
    return jnp.einsum("bd,dhk->bhk", x, p["w"])


@layout(w=(2, 2, 3))
def out_of_heads(p, x):
    return jnp.einsum("bhk,hkd->bd", x.reshape(-1, 2, 2), p["w"])


@layout(w=(2, 2, 3))
def a_matrix_for_each_head(p, x):
    return jnp.einsum("bhk,hkd->bhd", x.reshape(-1, 2, 2), p["w"])


@layout(w=(4, 3))
def matrices_one_below_the_other(p, x):
    return jnp.einsum("bhk,hkd->bhd", x.reshape(-1, 2, 2), p["w"].reshape(2, 2, 3))


@layout(w=(4, 6))
def fused_and_split_afterwards(p, x):
    return jnp.split(x @ p["w"], 3, axis=1)


@layout(w=(4, 6))
def fused_and_split_before(p, x):
    return [x @ part for part in jnp.split(p["w"], 3, axis=1)]


@layout(q=(4, 2), k=(4, 3))
def joined_side_by_side(p, x):
    return x @ jnp.concatenate([p["q"], p["k"]], axis=1)


@layout(a=(1, 3), b=(3, 3))
def joined_along_the_inputs(p, x):
    return x @ jnp.concatenate([p["a"], p["b"]])


@layout(w=(4, 6))
def only_a_part(p, x):
    return x @ p["w"][:, 1:4]


@layout(w=(3, 4, 2))
def experts_by_vmap(p, x):
    return jax.vmap(lambda w: x @ w)(p["w"])


@layout(w=(3, 4, 2))
def experts_by_einsum(p, x):
    return jnp.einsum("bi,eio->ebo", x, p["w"])


def _experts_by_rows(p, x):
    return x[: len(x) - 3] @ p["w"][0], x[-3:-1] @ p["w"][2]


# JAX has no derivative of `ragged_dot` under `vmap`.
@layout(w=(3, 4, 2), same_as=_experts_by_rows)
def experts_by_ragged_dot(p, x):
    # The last row belongs to no expert, and the second expert has no row.
    return lax.ragged_dot(x, p["w"], jnp.array([len(x) - 3, 0, 2]))


@layout(w=(3, 4, 4))
def layers_of_a_scan(p, x):
    def body(h, w):
        made = h @ w
        return fixed(made), made

    return lax.scan(body, x, p["w"])[1]


@layout(w=(3, 4, 4))
def layers_of_a_scan_in_reverse(p, x):
    def body(h, w):
        made = h @ w.T
        return fixed(made), made

    return lax.scan(body, x, p["w"], reverse=True)[1]


@layout(w=(2, 3, 4, 4), v=(4, 4), u=(2, 4, 4))
def loops_in_a_loop(p, x):
    def inner(h, w):
        made = h @ w
        return fixed(made), made

    def outer(h, rows):
        w, u = rows
        beside = h @ u, h @ p["v"]
        h, made = lax.scan(inner, h, w)
        return h, (made, beside)

    return lax.scan(outer, x, (p["w"], p["u"]))[1]


@layout(w=(4, 4), u=(4, 4))
def a_recurrent_layer(p, x):
    def body(h, row):
        made = h @ p["u"], row @ p["w"]
        return fixed(sum(made)), made

    return lax.scan(body, jnp.zeros(4), x)[1]


@layout(w=(4, 4))
def a_loop_that_carries_its_weight(p, x):
    def body(carry, _):
        h, w = carry
        made = h @ w
        return (fixed(made), w), made

    return lax.scan(body, (x, p["w"]), None, length=2)[1]


@layout(w=(3, 4, 4))
def layers_by_the_index_of_a_loop(p, x):
    def body(index, carry):
        h, made = carry
        new = h @ p["w"][index]
        return fixed(new), made.at[index].set(new)

    return lax.fori_loop(0, 3, body, (x, jnp.zeros((3, *x.shape))))[1]


@layout(w=(3, 4, 4))
def layers_counted_backwards(p, x):
    def body(carry, _):
        h, index = carry
        new = h @ p["w"][index]
        return (fixed(new), index - 1), new

    return lax.scan(body, (x, 2), None, length=3, reverse=True)[1]


@layout(w=(4, 4))
def a_mask_made_in_a_loop(p, x):
    mask = lax.fori_loop(0, 3, lambda i, m: m.at[i, i].set(1.0), jnp.zeros((4, 4)))
    return x @ (p["w"] * mask)


@layout(w=(3, 4, 4))
def factors_made_in_a_loop(p, x):
    factors = lax.scan(lambda c, _: (c * 0.5, c), 1.0, None, length=3)[1]
    return jnp.einsum("bi,kij->kbj", x, p["w"] * factors[:, None, None])


@layout(w=(4, 4), left=("w",))
def a_factor_that_a_while_loop_changes(p, x):
    def body(carry):
        index, factor, made = carry
        return index + 1, factor * 0.5, made.at[index].set(x @ (p["w"] * factor))

    return lax.while_loop(lambda carry: carry[0] < 3, body, (0, 1.0, jnp.zeros((3, *x.shape))))[2]


@layout(w=(4, 4))
def rounds_written_out(p, x):
    first = x @ p["w"].astype(jnp.float32)
    return first, fixed(first) @ p["w"].astype(jnp.float32)


@layout(w=(4, 4))
def a_while_loop(p, x):
    def body(carry):
        index, h, made = carry
        new = h @ p["w"]
        return index + 1, fixed(new), made.at[index].set(new)

    return lax.while_loop(lambda carry: carry[0] < 3, body, (0, x, jnp.zeros((3, *x.shape))))[2]


@layout(w=(4, 3), v=(4, 3), u=(4, 3))
def the_branch_that_is_taken(p, x):
    both = x @ p["u"]
    return lax.cond(x[0, 0] > 0, lambda x: x @ p["w"], lambda x: fixed(x) @ p["v"], x), both


@layout(w=(4, 3), left=("w",))
def branches_of_each_example(p, x):
    # Under vmap, JAX chooses a copy of the weight for each example.
    return jax.vmap(lambda x: lax.cond(x[0] > 0, lambda x: x @ p["w"], lambda x: 2 * (x @ p["w"]), x))(x)


@layout(w=(4, 3))
def two_uses(p, x):
    return x @ p["w"], fixed(x + 1) @ p["w"]


@layout(w=(4, 4))
def a_matrix_and_its_transpose(p, x):
    return x @ p["w"], fixed(x + 1) @ p["w"].T


@layout(w=(5, 4))
def an_embedding_and_its_transpose(p, x):
    tokens = (10 * x[:, 0]).astype(int) % 5
    h = p["w"][tokens]
    return h, fixed(h) @ p["w"].T


@layout(w=(5, 4))
def a_look_up(p, x):
    return p["w"][(10 * x[:, :2]).astype(int) % 5]


@layout(w=(5, 4))
def a_look_up_by_one_hot_rows(p, x):
    return jax.nn.one_hot((10 * x[:, 0]).astype(int) % 5, 5) @ p["w"]


@layout(w=(5, 4))
def a_dynamic_slice(p, x):
    return lax.dynamic_slice(p["w"], (jnp.argmax(x[0]), 0), (2, 4))


@layout(w=(3, 3, 2, 4))
def a_convolution(p, x):
    return _conv(_pictures(x, 2), p["w"])


@layout(w=(3, 2, 1, 4))
def a_grouped_convolution(p, x):
    return _conv(_pictures(x, 2), p["w"], feature_group_count=2, window_strides=(2, 1))


@layout(w=(3, 2, 2, 4))
def a_dilated_convolution(p, x):
    return _conv(_pictures(x, 2), p["w"], rhs_dilation=(1, 2), padding="VALID")


@layout(w=(3, 3, 2, 4))
def a_transposed_convolution(p, x):
    return lax.conv_transpose(_pictures(x, 2), p["w"], (2, 2), "SAME")


@layout(w=(4, 2, 3))
def a_convolution_along_one_axis(p, x):
    x = x.reshape(-1, 2, 2)
    return lax.conv_general_dilated(x, p["w"], (1,), "SAME", dimension_numbers=("NCH", "OIH", "NCH"))


@layout(w=(4, 3))
def a_fixed_mask(p, x):
    mask = jnp.asarray(np.arange(12).reshape(4, 3) % 3 > 0, jnp.float32)
    return x @ (p["w"] * mask)


@layout(w=(4, 3))
def a_random_mask(p, x):
    return x @ (p["w"] * jax.random.bernoulli(jax.random.PRNGKey(0), shape=(4, 3)).astype(jnp.float32))


@layout(w=(4, 3))
def a_factor(p, x):
    return x @ (p["w"] / 2.0)


@layout(w=(4, 3), m=(4, 3))
def a_mask_among_the_leaves(p, x):
    return x @ (p["w"] * p["m"])


@layout(w=(4, 3), a=(4, 2), b=(2, 3), left=("a", "b"))
def a_low_rank_update_of_the_weight(p, x):
    return x @ (p["w"] + lax.stop_gradient(p["a"] @ p["b"]))


@layout(w=(4, 3), a=(4, 2), b=(2, 3))
def a_low_rank_update_of_the_outputs(p, x):
    low = x @ p["a"]
    return x @ p["w"], low, fixed(low) @ p["b"]


@layout(a=(4, 2), b=(2, 3), left=("a", "b"))
def a_product_of_leaves(p, x):
    return x @ (p["a"] @ p["b"])


@layout(v=(4, 3), g=(3,), left=("v", "g"))
def weight_norm(p, x):
    return x @ (lax.stop_gradient(p["v"] / jnp.linalg.norm(p["v"], axis=0, keepdims=True)) * p["g"][None])


@layout(w=(4, 4), left=("w",))
def a_loop_that_changes_its_weight(p, x):
    def body(w, row):
        return w * 0.5, row @ w

    return lax.scan(body, p["w"], x)[1]


@layout(w=(4, 3), left=("w",))
def a_sum_of_products_entry_by_entry(p, x):
    return (x[:, :, None] * p["w"][None]).sum(1)


@layout(w=(4, 3), b=(3,), left=("b",))
def a_bias(p, x):
    return x @ p["w"] + lax.stop_gradient(p["b"])[None]


@layout(w=(4, 3), left=("w",))
def a_branch_that_chooses_its_weight(p, x):
    return x @ lax.cond(x[0, 0] > 0, lambda: p["w"], lambda: 2 * p["w"])


@layout(w=(2, 4), left=("w",))
def a_leaf_beside_itself(p, x):
    return x @ jnp.concatenate([p["w"], -p["w"]])


@layout(w=(4, 3), left=("w",))
def a_cast_to_integers(p, x):
    return x @ p["w"].astype(jnp.int8).astype(jnp.float32)


@layout(w=(4, 3), left=("w",))
def complex_inputs(p, x):
    return jnp.real((1j * x) @ p["w"].astype(jnp.complex64))


@layout(w=(3, 4, 2), left=("w",))
def an_expert_for_each_example(p, x):
    return jnp.einsum("bi,bij->bj", x, p["w"][jnp.argmax(x[:, :3], axis=1)])


@layout(w=(4, 3))
def beside_a_shard_map(p, x):
    mesh = jax.make_mesh((1,), ("one",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.PartitionSpec("one")
    return jax.shard_map(lambda x: 2 * x, mesh=mesh, in_specs=rows, out_specs=rows)(x) @ p["w"]


@layout(w=(4, 3))
def rematerialized(p, x):
    return jax.checkpoint(lambda w: x @ w)(p["w"])


@layout(w=(4, 3))
def compiled_twice(p, x):
    product = jax.jit(lambda w, x: x @ w)
    return product(p["w"], x), product(p["w"], fixed(x))


@layout(w=(12,))
def a_flat_leaf(p, x):
    return x @ p["w"].reshape(3, 4).swapaxes(0, 1)


@layout(w=(4, 3))
def in_reverse(p, x):
    return x @ p["w"][::-1]


def _pictures(x, channels):
    return jnp.tanh(jnp.resize(x, (2, 5, 4, channels)))


def _conv(x, kernel, window_strides=(1, 1), padding="SAME", **options):
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, window_strides, padding, dimension_numbers=numbers, **options)


@functools.cache
def given(name):
    function, _, shapes = LAYOUTS[name]
    rng = np.random.default_rng(0)
    params = {path: jnp.asarray(rng.normal(size=shape), jnp.float32) for path, shape in shapes.items()}
    batches = [jnp.asarray(rng.normal(size=(rows, 4)), jnp.float32) for rows in (6, 6)]
    return function, params, batches


@functools.cache
def calibration(name):
    return captured(*given(name), with_products=True)


@functools.cache
def derivatives(name):
    """Return the derivatives of all outputs with respect to each leaf, as (outputs, entries)."""
    _, params, batches = given(name)
    function = LAYOUTS[name][1]

    def flat(params, x):
        return jnp.concatenate([jnp.ravel(of) for of in jax.tree.leaves(function(params, x))])

    derivative = jax.jit(jax.jacfwd(flat))
    by_batch = [derivative(params, x) for x in batches]
    return {
        path: np.concatenate([np.asarray(of[path]).reshape(len(of[path]), -1) for of in by_batch])
        for path in params
    }


@pytest.mark.parametrize("name", LAYOUTS)
def test_squared_inputs_are_squared_derivatives(name):
    params = given(name)[1]
    squares = calibration(name).squares(params)
    for path, of in derivatives(name).items():
        if path not in LEFT[name]:
            expected = (of.astype(float) ** 2).sum(0).reshape(params[path].shape)
            np.testing.assert_allclose(squares[path], expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", LAYOUTS)
def test_leaves_that_are_not_followed_are_named(name):
    of = calibration(name)
    assert {*of.left} == LEFT[name]
    assert all(of.squares(given(name)[1])[path] is None for path in LEFT[name])


@pytest.mark.parametrize("name", LAYOUTS)
def test_second_moments_are_products_of_derivatives(name):
    of = calibration(name)
    for path, by_entry in derivatives(name).items():
        try:
            read = of.read(path)
        except jaxarch.ArgumentError:
            continue
        # With several uses, derivatives belong to all of them together.
        for places, products in read if len(read) == 1 else ():
            for block, output in itertools.product(range(len(places)), range(2)):
                column = places[block, :, output]
                if (column >= 0).all():
                    own = by_entry[:, column].astype(float)
                    np.testing.assert_allclose(products[block], own.T @ own, rtol=2e-5, atol=2e-5)


def test_inputs_are_the_axes_that_all_products_sum_over():
    assert calibration("experts by einsum").inputs == {"w": (1,)}
    assert calibration("out of heads").inputs == {"w": (0, 1)}
    assert calibration("a convolution").inputs == {"w": (0, 1, 2)}
    # Its products disagree; and here one axis counts matrices and inputs.
    assert calibration("a matrix and its transpose").inputs == {}
    assert calibration("matrices one below the other").inputs == {}


def test_a_reason_names_where_a_leaf_is_lost():
    assert calibration("a branch that chooses its weight").left["w"] == "a branch chooses it"
    assert calibration("a leaf beside itself").left["w"].startswith("its entries are repeated")
    assert calibration("a cast to integers").left["w"] == "it is cast to int8"

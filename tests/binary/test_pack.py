"""A packed network computes what the network computes, from bits."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

import jaxarch
from jaxarch import ArgumentError
from jaxarch.binary import pack
from jaxarch.binary._bits import as_bits, matrix_of
from jaxarch.binary._products import by_counting, by_rounding, by_tables
from jaxarch.structure._shrink import relative_difference

VALUES = {"-c, c": (-1, 1), "0, c": (0, 1), "-c, 0, c": (-1, 0, 1)}
SIGNS = {
    "sign": jnp.sign,
    "step": lambda x: (x > 0).astype(x.dtype),
    "two halves": lambda x: jnp.where(x > 0, jnp.full_like(x, 0.5), jnp.full_like(x, -0.5)),
    "step down": lambda x: -(x > 0).astype(x.dtype),
    "computed": lambda x: 2 * (x > 0).astype(x.dtype) - 1,
    "three": lambda x: jnp.where(jnp.abs(x) < 0.5, jnp.zeros_like(x), jnp.sign(x)),
}


def drawn(values, *shape, seed=0):
    return np.random.default_rng(seed).choice(VALUES[values], shape).astype(np.float32)


def inputs(*shape):
    return jnp.asarray(np.random.default_rng(1).standard_normal(shape), jnp.float32)


def bits_of(matrix):
    return jax.tree.map(jnp.asarray, as_bits(matrix))


def product(params, x):
    return x @ params["kernel"]


# Bits -------------------------------------------------------------------------------------------------


def test_a_word_holds_32_rows_of_a_column_the_first_in_its_lowest_bit():
    matrix = np.zeros((35, 40), np.float32)
    matrix[[0, 5, 33], 2] = (3, -3, 3)
    bits = as_bits(matrix)
    assert bits.present[:, 2].tolist() == [2**0 + 2**5, 2**1]
    assert bits.negative[:, 2].tolist() == [2**5, 0]
    assert (bits.present[:, :2] == 0).all() and bits.scale == 3


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("rows", [32, 45])
def test_bits_hold_every_entry_of_a_matrix(values, rows):
    matrix = drawn(values, rows, 50) * np.float32(0.3)
    bits = as_bits(matrix)
    assert bits.values == values
    assert (matrix_of(jax.tree.map(jnp.asarray, bits)) == matrix).all()


def test_each_column_may_have_a_size_of_its_own():
    matrix = drawn("-c, 0, c", 64, 3) * np.array([0.5, 2, 0], np.float32)
    assert (matrix_of(bits_of(matrix)) == matrix).all()


def test_a_column_of_zeros_needs_no_size_of_its_own():
    matrix = drawn("-c, 0, c", 64, 3) * np.array([0.5, 0.5, 0], np.float32)
    assert as_bits(matrix).scale.shape == ()


@pytest.mark.parametrize(
    "odd", [[[1, 2], [1, 1]], [[1, np.nan], [1, 1]], [[1, np.inf], [1, 1]], [[1, -2], [1, 1]]]
)
def test_other_matrices_are_not_packed(odd):
    matrix = np.ones((64, 2), np.float32)
    matrix[:2] = odd
    assert as_bits(matrix) is None


def test_a_matrix_that_would_not_become_smaller_stays():
    row = np.array([[1, 1, 1, -1]], np.float32)
    assert as_bits(row) is None  # Four words, and the size of the weights.


def test_a_matrix_of_one_value_needs_no_bits():
    x = jnp.where(inputs(2, 40) > 0, jnp.float32(2), jnp.float32(2))
    assert (by_counting(x, (2.0,), bits_of(np.full((40, 9), 0.5, np.float32))) == 40).all()


# Products ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("activations", VALUES)
def test_counting_gives_the_integers_of_the_product(values, activations):
    x, matrix = drawn(activations, 3, 45, seed=1), drawn(values, 45, 50)
    found = by_counting(jnp.asarray(x), VALUES[activations], bits_of(matrix))
    assert found.dtype == jnp.int32
    assert (found == x @ matrix).all()


@pytest.mark.parametrize("values", VALUES)
def test_tables_hold_the_sums_of_all_parts_of_eight_activations(values):
    x, matrix = inputs(2, 45), drawn(values, 45, 50)
    assert np.allclose(by_tables(x, bits_of(matrix)), np.asarray(x) @ matrix, atol=1e-4)


@pytest.mark.parametrize("values", VALUES)
def test_rounded_activations_are_off_by_half_a_step_at_most(values):
    x, matrix = inputs(3, 45), drawn(values, 45, 50)
    steps = np.ptp(np.asarray(x), axis=1) / 15
    apart = np.abs(by_rounding(x, 4, bits_of(matrix)) - np.asarray(x) @ matrix)
    assert apart.max() > 0.1
    assert (apart <= steps[:, None] / 2 * np.abs(matrix).sum(0) + 1e-4).all()


def test_activations_of_256_levels_lose_nothing_to_eight_bits():
    x = jnp.asarray(np.random.default_rng(1).permutation(256)[None], jnp.float32)
    matrix = drawn("-c, 0, c", 256, 50)
    assert (by_rounding(x, 8, bits_of(matrix)) == x @ matrix).all()


def test_equal_activations_have_no_step():
    matrix = drawn("0, c", 45, 50)
    assert np.allclose(by_rounding(jnp.full((1, 45), 2.0), 8, bits_of(matrix)), 2 * matrix.sum(0))


# Networks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", SIGNS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_activations_of_few_values_are_counted_on_either_side(activation, side):
    signs, kernel, x = SIGNS[activation], drawn("-c, 0, c", 40, 37), inputs(3, 40)

    def function(params, x):
        return signs(x) @ params["kernel"] if side == "right" else (params["kernel"] @ signs(x).T).T

    params = {"kernel": jnp.asarray(kernel if side == "right" else kernel.T)}
    packed = pack(function, params, x)
    assert packed.layers["kernel"].how == "counted"
    assert (packed(x) == function(params, x)).all()


def test_a_straight_through_sign_is_not_counted():
    def function(params, x):
        return (x + jax.lax.stop_gradient(jnp.sign(x) - x)) @ params["kernel"]

    packed = pack(function, {"kernel": jnp.asarray(drawn("-c, c", 40, 37))}, inputs(3, 40))
    assert packed.layers["kernel"].how == "summed"


def test_activations_of_two_sizes_are_not_counted():
    def function(params, x):
        return ((x > 0).astype(x.dtype) + (x > 1).astype(x.dtype)) @ params["kernel"]

    packed = pack(function, {"kernel": jnp.asarray(drawn("-c, c", 40, 37))}, inputs(3, 40))
    assert packed.layers["kernel"].how == "summed" and packed.difference == 0


def unsigned(x):
    return jnp.maximum(jnp.sign(x), 1).astype(jnp.int32).astype(x.dtype)


def largest_of_none(x):
    return jax.lax.reduce_max((x > 0).astype(jnp.int32)[:0], (0,)).astype(x.dtype)


OTHERS = {
    "a sort beside booleans": lambda x: jax.lax.sort((x > 0, x), num_keys=1)[1],
    "a barrier beside booleans": lambda x: jax.lax.optimization_barrier((x > 0, x))[1],
    "a cond": lambda x: jax.lax.cond(x.sum() > 0, lambda x: (x > 0, x), lambda x: (x > 1, 2 * x), x)[1],
    "a scan": lambda x: jax.lax.scan(lambda c, _: ((c[1] > 0, 2 * c[1]), None), (x > 0, x), length=1)[0][1],
    "a largest entry of none": lambda x: jnp.zeros_like(x) + largest_of_none(x)[None],
    "calls that return nothing": lambda x: (jax.lax.optimization_barrier(()), x)[1],
    "integers made of NaN": unsigned,
}


@pytest.mark.parametrize("activation", OTHERS)
def test_activations_of_other_values_give_the_products_of_the_network(activation):
    def function(params, x):
        return OTHERS[activation](x) @ params["kernel"]

    params, x = {"kernel": jnp.asarray(drawn("-c, c", 40, 37))}, inputs(3, 40)
    packed = pack(function, params, x)
    assert packed.difference < 1e-6
    bad = x.at[0, 0].set(jnp.nan)
    assert np.allclose(packed(bad), function(params, bad), equal_nan=True, atol=1e-4)


def test_integers_that_a_float_cannot_hold_are_not_counted():
    with jax.enable_x64(True):

        def function(params, x):
            large = (x > 0).astype(jnp.int64) * 2**53 + 1
            return (large - 2**53).astype(jnp.float32) @ params["kernel"]

        packed = pack(function, {"kernel": jnp.asarray(drawn("-c, c", 40, 37))}, inputs(3, 40))
        assert packed.layers["kernel"].how == "summed" and packed.difference < 1e-6


def test_activations_are_counted_at_the_precision_that_they_have():
    def function(params, x):
        third = jax.lax.reduce_precision(jnp.sign(x) * 0.3, exponent_bits=8, mantissa_bits=7)
        return third @ params["kernel"]

    packed = pack(function, {"kernel": jnp.asarray(drawn("-c, c", 40, 37))}, inputs(3, 40))
    assert packed.layers["kernel"].how == "counted" and packed.difference < 1e-6


def test_inputs_of_booleans_are_counted_and_numbers_beside_them_are_not():
    def function(params, x, factor):
        return (x.astype(jnp.float32) @ params["first"]) @ params["second"] * factor

    params = {"first": jnp.asarray(drawn("-c, c", 64, 40)), "second": jnp.asarray(drawn("0, c", 40, 30))}
    packed = pack(function, params, inputs(2, 64) > 0, 3.0)
    assert [layer.how for layer in packed.layers.values()] == ["counted", "summed"]
    assert (packed(inputs(3, 64) > 0, 0.5) == function(params, inputs(3, 64) > 0, 0.5)).all()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("examples", [0, 1, 4, 5, 9])
def test_any_number_of_examples_gives_the_products_of_the_network(examples, side):
    def function(params, x):
        return x @ params["kernel"] if side == "right" else (params["kernel"] @ x.T).T

    kernel = drawn("-c, 0, c", 70, 37)
    params = {"kernel": jnp.asarray(kernel if side == "right" else kernel.T)}
    packed = pack(function, params, inputs(2, 70))
    assert np.allclose(packed(inputs(examples, 70)), function(params, inputs(examples, 70)), atol=1e-4)


def test_leaves_without_entries_stay():
    def function(params, x):
        return x @ params["kernel"] + x[:, :0] @ params["rows"], x @ params["columns"], params["stay"]

    params = {"columns": jnp.zeros((64, 0)), "kernel": jnp.asarray(drawn("-c, c", 64, 37))}
    params |= {"rows": jnp.zeros((0, 37)), "stay": jnp.zeros((3, 0))}
    packed = pack(function, params, inputs(2, 64))
    assert list(packed.layers) == ["kernel"] and packed.difference < 1e-6


def test_bits_take_a_32th_of_two_values_and_a_16th_of_three():
    for values, smaller in {"-c, c": 32, "0, c": 32, "-c, 0, c": 16}.items():
        packed = pack(product, {"kernel": jnp.asarray(drawn(values, 512, 256))}, inputs(1, 512))
        assert (packed.before, packed.now) == (4 * 512 * 256, 4 * 512 * 256 // smaller + 4)


def test_the_arrays_of_a_mask_and_weights_that_meet_inside_are_not_kept():
    mask = jnp.asarray(drawn("0, c", 64, 37))

    def function(params, x):
        return x @ (params["mask"] * params["weight"]) + params["bias"][None]

    params = {"bias": jnp.arange(37.0), "mask": mask, "weight": jnp.full((64, 37), 0.2)}
    packed = pack(function, params, inputs(2, 64))
    assert set(packed.tree["factors"]) == {"mask"} and set(packed.tree["leaves"]) == {"bias"}
    assert packed.difference < 1e-6


def test_a_matrix_that_meets_the_activations_twice_is_packed_for_each():
    def function(params, x):
        return jnp.sign(x @ params["kernel"]) @ params["kernel"].T

    params = {"kernel": jnp.asarray(drawn("-c, c", 64, 33))}  # 33 signs do not add to 0
    packed = pack(function, params, inputs(2, 64))
    assert {name: layer.how for name, layer in packed.layers.items()} == {
        "kernel": "summed",
        "kernel again": "counted",
    }
    assert packed.difference == 0


def test_kernels_of_convolutions_are_unpacked_when_they_are_used():
    kernel = jnp.asarray(drawn("-c, 0, c", 3, 3, 8, 32))

    def function(params, x):
        pictures = jax.lax.conv_general_dilated(
            x, params["conv"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return pictures.mean(axis=(1, 2)) @ params["head"]

    params = {"conv": kernel, "head": inputs(32, 10)}
    packed = pack(function, params, inputs(2, 6, 6, 8))
    assert packed.layers["conv"].how == "unpacked" and list(packed.layers) == ["conv"]
    assert packed.difference == 0


def test_products_of_several_axes_are_packed():
    """Multi-head projections sum over one axis and have two, or sum over two."""

    def function(params, x):
        heads = jnp.einsum("btd,hkd->bthk", x, params["in"])
        return jnp.einsum("bthk,hkd->btd", heads, params["out"])

    params = {"in": jnp.asarray(drawn("0, c", 4, 8, 40)), "out": jnp.asarray(drawn("-c, c", 4, 8, 40))}
    for examples in (1, 2):  # Three tokens, whose sums are looked up, and six
        packed = pack(function, params, inputs(examples, 3, 40))
        assert set(packed.tree["factors"]) == {"in", "out"}
        assert packed.difference < 1e-6


def test_stacked_matrices_stay_bits_and_are_unpacked():
    def function(params, x):
        return jnp.einsum("nbd,ndk->nbk", jnp.stack([x, 2 * x, 3 * x]), params["a"])

    packed = pack(function, {"a": jnp.asarray(drawn("-c, c", 3, 64, 20))}, inputs(2, 64))
    assert packed.layers["a"].how == "unpacked" and packed.difference == 0


@pytest.mark.long
def test_a_search_s_network_is_packed_with_its_problem():
    x = inputs(40, 64)
    model = jaxarch.models.MLP
    problem = jaxarch.supervised(
        lambda rngs: model((64, 32, 3), rngs=rngs),
        (x, (x[:, 0] > 0).astype(int)),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(0.1),
        steps=3,
    )
    search = jaxarch.search.two_temperature(weights="signed constant")
    networks, _ = jaxarch.over_seeds(search, jax.random.split(jax.random.key(0), 1), problem)
    network = networks.of_run(0)
    packed = pack(network, problem)
    batch = problem.gather(problem.data, None, jnp.arange(7))
    whole = problem.predict(network.params, network.state, batch)
    assert all(layer.values == "-c, 0, c" for layer in packed.layers.values()) and len(packed.layers) == 2
    assert np.allclose(packed(batch), whole, atol=1e-5)


@pytest.mark.long
def test_a_linen_module_is_packed_through_apply():
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(5)(jnp.sign(nn.Dense(64)(x)))

    model, x = Model(), inputs(3, 64)
    variables = model.init(jax.random.key(0), x)
    signs = jax.tree.map(lambda leaf: jnp.sign(leaf) if leaf.ndim == 2 else leaf + 0.5, variables)
    packed = pack(model.apply, signs, x)
    assert [layer.how for layer in packed.layers.values()] == ["summed", "counted"]
    assert packed.difference < 1e-6


@pytest.mark.long
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_an_example_that_is_not_finite_gives_nan_and_no_other_does(bad, values):
    params, x = {"kernel": jnp.asarray(drawn(values, 64, 37))}, inputs(3, 64).at[1, 2].set(bad)
    for activation_bits in (None, 8):
        packed = pack(product, params, inputs(1, 64), activation_bits=activation_bits)
        found = packed(x)
        assert np.isnan(found[1]).all() and np.isfinite(found[jnp.array([0, 2])]).all()
    counted = pack(lambda params, x: jnp.sign(x) @ params["kernel"], params, inputs(1, 64))
    assert np.isnan(counted(x.at[1, 2].set(jnp.nan))[1]).all()


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_outputs_have_the_dtype_of_the_network(dtype):
    with jax.enable_x64(dtype == "float64"):
        params = {"kernel": jnp.asarray(drawn("-c, 0, c", 64, 37), dtype)}
        x = jnp.asarray(inputs(2, 64), dtype)
        for activation_bits in (None, 8):
            packed = pack(product, params, x, activation_bits=activation_bits)
            assert packed(x).dtype == dtype
            rounding = 1e-14 if dtype == "float64" else 0.01
            assert packed.difference < (rounding if activation_bits is None else 0.05)


@pytest.mark.long
def test_a_packed_network_can_be_mapped_jitted_and_kept_strict():
    params, x = {"kernel": jnp.asarray(drawn("-c, 0, c", 64, 37))}, inputs(6, 64)
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        for activation_bits in (None, 8):
            packed = pack(product, params, x, activation_bits=activation_bits)
            each = jax.vmap(lambda row, packed=packed: packed(row[None])[0])(x)
            assert np.allclose(each, jax.jit(packed)(x), atol=0.5 if activation_bits else 1e-4)


def test_a_function_that_cannot_be_hashed_is_packed():
    class Function:
        __hash__ = None

        def __call__(self, params, x):
            return product(params, x)

    x = inputs(1, 64)
    assert pack(Function(), {"kernel": jnp.asarray(drawn("-c, c", 64, 37))}, x).difference < 1e-6


def test_a_saved_tree_is_read_again(tmp_path):
    params, x = {"kernel": jnp.asarray(drawn("0, c", 64, 37))}, inputs(2, 64)
    packed = pack(product, params, x)
    jaxarch.save_tree(tmp_path / "packed.npz", packed.tree)
    again = jaxarch.load_tree(tmp_path / "packed.npz", like=packed.tree)
    assert (packed.function(again, x) == packed(x)).all()


@pytest.mark.parametrize("activation_bits", [None, 8])
def test_a_program_exported_by_jax_holds_the_bits_and_takes_any_number_of_examples(activation_bits):
    params, x = {"kernel": jnp.asarray(drawn("-c, c", 512, 256))}, inputs(8, 512)
    packed = pack(product, params, x, activation_bits=activation_bits)
    (examples,) = jax.export.symbolic_shape("examples")
    exported = jax.export.export(jax.jit(packed))(jax.ShapeDtypeStruct((examples, 512), jnp.float32))
    assert len(exported.mlir_module_serialized) < packed.before / 16
    assert np.allclose(exported.call(x), packed(x), atol=1e-4)


def test_random_keys_among_the_outputs_differ_by_their_numbers():
    keys = jax.random.split(jax.random.key(0))
    assert relative_difference(keys[0], keys[0]) == 0
    assert relative_difference(keys[0], keys[1]) == np.inf


def test_the_table_names_matrices_sizes_and_the_difference():
    lines = str(pack(product, {"kernel": jnp.asarray(drawn("-c, c", 64, 37))}, inputs(1, 64))).splitlines()
    assert lines[1].split() == ["kernel", "64", "x", "37", "-c,", "c", "summed", "9,472", "300"]
    assert lines[-1].startswith("31.6 times smaller; outputs on the example differ by at most")


# Refused ----------------------------------------------------------------------------------------------


def test_a_network_without_a_matrix_of_few_values_is_refused():
    with pytest.raises(ArgumentError, match="about: no matrix holds -c, 0 and c alone"):
        pack(product, {"kernel": inputs(64, 37)}, inputs(1, 64))


@pytest.mark.parametrize("bits", [0, 9, 2.0, True])
def test_activation_bits_outside_1_to_8_are_refused(bits):
    params = {"kernel": jnp.asarray(drawn("-c, c", 64, 37))}
    with pytest.raises(ArgumentError, match="activation_bits: expected"):
        pack(product, params, inputs(1, 64), activation_bits=bits)


def test_inputs_with_which_the_function_is_another_program_are_refused():
    def function(params, x):
        if len(x) == 1:
            return x @ params["a"]
        return x @ params["b"]

    params = {"a": jnp.asarray(drawn("-c, c", 64, 37)), "b": jnp.asarray(drawn("-c, c", 64, 30))}
    packed = pack(function, params, inputs(1, 64))
    with pytest.raises(ArgumentError, match="inputs: the function is another program"):
        packed(inputs(2, 64))


def test_a_matrix_of_the_same_shape_is_not_taken_for_another():
    def function(params, x):
        (name,) = x
        return x[name] @ params[name]

    params = {"a": jnp.asarray(drawn("-c, c", 64, 37)), "b": jnp.asarray(drawn("0, c", 64, 37))}
    packed = pack(function, params, {"a": inputs(2, 64)})
    with pytest.raises(ArgumentError, match="inputs: the function is another program"):
        packed({"b": inputs(2, 64)})


TRANSPOSED = {
    "transposed": lambda x, kernel: x @ kernel.T,
    "summed over its columns": lambda x, kernel: jnp.einsum("bk,dk->bd", x, kernel),
}


@pytest.mark.parametrize("other", TRANSPOSED)
@pytest.mark.parametrize("columns", [37, 64])
def test_a_matrix_is_not_taken_for_its_transpose(columns, other):
    def function(params, x):
        return x["in"] @ params["kernel"] if "in" in x else TRANSPOSED[other](x["out"], params["kernel"])

    packed = pack(function, {"kernel": jnp.asarray(drawn("-c, c", 64, columns))}, {"in": inputs(2, 64)})
    with pytest.raises(ArgumentError, match="inputs: the function is another program"):
        packed({"out": inputs(2, columns)})


def test_inputs_that_are_no_arrays_are_refused():
    with pytest.raises(ArgumentError, match="inputs: it cannot be traced"):
        pack(product, {"kernel": jnp.asarray(drawn("-c, c", 64, 37))}, "a text")


def test_shapes_and_traced_values_are_refused():
    kernel = jnp.asarray(drawn("-c, c", 64, 37))
    with pytest.raises(ArgumentError, match="about: expected arrays"):
        pack(product, {"kernel": jax.ShapeDtypeStruct((64, 37), jnp.float32)}, inputs(1, 64))
    with pytest.raises(ArgumentError, match="inputs: expected arrays"):
        jax.jit(lambda x: pack(product, {"kernel": kernel}, x)(x))(inputs(1, 64))

"""Host computations have the bits that JAX computes, and compile nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compilations
from flax import nnx
from jax import lax

import jaxarch
from jaxarch.models import GPT
from jaxarch.structure import _host as host
from jaxarch.structure import axis_groups

DRAW = np.random.default_rng(0)


def marks(*shape):
    return DRAW.random(shape) < 0.4


def floats(*shape):
    return DRAW.normal(size=shape).astype(np.float32)


def equation(function, *arrays):
    (eqn,) = jax.make_jaxpr(function)(*arrays).jaxpr.eqns
    return eqn


def convolution(numbers, **options):
    return lambda x, y: lax.conv_general_dilated(x, y, dimension_numbers=numbers, **options)


LAST, FIRST = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
PRODUCTS = {
    "a matrix": (lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ()))), (3, 4), (4, 5)),
    "stacks": (
        lambda x, y: lax.dot_general(x, y, (((1, 3), (2, 0)), ((0,), (1,)))),
        (2, 3, 4, 5),
        (5, 2, 3, 6),
    ),
    "vectors": (lambda x, y: lax.dot_general(x, y, (((0,), (0,)), ((), ()))), (3,), (3,)),
    "strides": (
        convolution(LAST, window_strides=(2, 3), padding=((2, 1), (0, 3))),
        (2, 7, 6, 3),
        (3, 2, 3, 4),
    ),
    "a dilated kernel": (
        convolution(FIRST, window_strides=(2, 2), padding="VALID", rhs_dilation=(2, 1)),
        (2, 3, 7, 6),
        (4, 3, 2, 3),
    ),
    "transposed": (
        convolution(LAST, window_strides=(3, 2), padding=((2, 2), (1, 2)), lhs_dilation=(2, 3)),
        (2, 4, 5, 3),
        (3, 3, 3, 2),
    ),
    "cut": (
        convolution(LAST, window_strides=(1, 1), padding=((-1, -1), (0, -2))),
        (2, 7, 8, 3),
        (3, 3, 3, 4),
    ),
    "groups": (
        convolution(LAST, window_strides=(1, 1), padding="SAME", feature_group_count=2),
        (2, 5, 6, 4),
        (3, 3, 2, 6),
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_marks_are_those_of_jax(name):
    function, *shapes = PRODUCTS[name]
    x, y = (marks(*shape) for shape in shapes)
    as_floats = x.astype(np.float32), y.astype(np.float32)
    eqn, made = equation(function, *as_floats), function(*as_floats)
    assert np.array_equal(host.multiplied(eqn, x, y), made)
    needed = marks(*made.shape)
    _, transposed = jax.vjp(function, *as_floats)
    for index, (of, other) in enumerate(zip(transposed(needed.astype(np.float32)), (y, x), strict=True)):
        assert np.array_equal(host.multiplied_back(eqn, index, other, needed), np.asarray(of) > 0)


MOVES = {
    "broadcast": (lambda x: lax.broadcast_in_dim(x, (4, 2, 3), (1, 2)), (1, 3)),
    "concatenate": (lambda x, y: lax.concatenate([x, y], 1), (2, 3), (2, 4)),
    "pad": (lambda x, v: lax.pad(x, v, ((-1, -1, 1), (0, 2, 0))), (4, 3), ()),
    "reverse": (lambda x: lax.rev(x, (1,)), (2, 6)),
    "slice": (lambda x: lax.slice(x, (0, 1), (2, 6), (1, 2)), (2, 6)),
    "split": (lambda x: tuple(lax.split(x, (1, 2, 3), 1)), (2, 6)),
    "transpose": (lambda x: lax.transpose(x, (2, 0, 1)), (2, 4, 3)),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves_and_the_way_back_are_those_of_jax(name):
    function, *shapes = MOVES[name]
    arrays = [floats(*shape) for shape in shapes]
    eqn, made = equation(function, *arrays), jax.tree.leaves(function(*arrays))
    for one, other in zip(host.computed(eqn, arrays), made, strict=True):
        assert np.array_equal(one, other)
    needed = [marks(*array.shape) for array in made]
    _, transposed = jax.vjp(lambda *of: tuple(jax.tree.leaves(function(*of))), *arrays)
    expected = transposed(tuple(np.float32(each) for each in needed))
    for one, other in zip(host.moved_back(eqn, shapes, needed), expected, strict=True):
        assert np.array_equal(one, np.asarray(other) > 0)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32])
def test_functions_of_entries_have_the_bits_of_jax(dtype):
    x, y = (jnp.asarray(8 * floats(40), dtype) for _ in range(2))
    for function in (lax.add, lax.sub, lax.mul, lax.div, lax.max, lax.gt):
        if function is lax.div and dtype == jnp.int32:
            continue
        (made,) = host.computed(equation(function, x, y), [x, y])
        assert made.dtype == function(x, y).dtype and np.array_equal(made, function(x, y))


def test_numbers_that_are_too_small_are_0_as_in_jax():
    x, y = np.float32(1e-30), np.float32(1e-10)
    (made,) = host.computed(equation(lax.mul, x, y), [x, y])
    assert made.tobytes() == np.asarray(lax.mul(x, y)).tobytes()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.int32])
def test_places_along_an_axis_are_those_of_jax(dtype):
    def function():
        return lax.broadcasted_iota(dtype, (2, 300, 3), 1)

    (made,) = host.computed(equation(function), [])
    assert made.dtype == function().dtype and np.array_equal(made, function())


@pytest.mark.parametrize("fill", [0.0, -0.0, 1.0])
def test_reductions_of_an_array_of_one_number_have_the_bits_of_jax(fill):
    array = np.full((2, 3), fill, np.float32)
    for function in (jnp.sum, jnp.max, jnp.min):
        eqn = equation(lambda x, function=function: function(x, 1), array)
        (made,) = host.computed(eqn, [array])
        assert made.tobytes() == np.asarray(function(array, 1)).tobytes()


@pytest.mark.long
def test_reading_a_language_model_compiles_what_numpy_rounds_otherwise_and_lookups():
    model = GPT(depth=2, features=8, heads=2, length=5, vocabulary=7, rngs=nnx.Rngs(0))
    hidden = model.encoder[0].layers[0]
    hidden.kernel[:, 3:9], hidden.bias[3:9] = 0.0, 0.0
    tokens = jnp.zeros((1, 5), int)
    with compilations() as compiled:
        jaxarch.nnx.shrink(model, tokens)
    assert len(compiled) <= 14 and "jit(stage)" not in compiled


def test_reading_a_program_compiles_next_to_nothing():
    def function(p, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        x = lax.conv_general_dilated(x, p["conv"], (2, 2), "SAME", dimension_numbers=numbers)
        x = jax.nn.relu(x * p["scale"]).reshape(len(x), -1) @ p["hidden"] + p["bias"]
        return jnp.tanh(x) @ p["out"]

    params = {
        "conv": floats(3, 3, 2, 6),
        "scale": floats(1, 1, 1, 6),
        "hidden": floats(54, 7),
        "bias": floats(1, 7),
        "out": floats(7, 3),
    }
    groups = axis_groups(function, params, jnp.ones((1, 5, 5, 2)))
    with compilations() as compiled:
        groups.fold(params)
    assert len(compiled) <= 3

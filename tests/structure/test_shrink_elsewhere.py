"""What `shrink` must not believe of one example: other inputs, other sizes, other derivatives, bad calls."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxarch
from jaxarch import ArgumentError, Network, Start
from jaxarch.structure import axis_groups

pytestmark = pytest.mark.usefixtures("as_users_write")


@pytest.fixture(scope="module")
def as_users_write():
    with jax.numpy_rank_promotion("allow"):
        yield


def normal(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


def agree(function, params, example, other):
    small = jaxarch.shrink(function, params, example)
    whole = np.asarray(function(params, other), np.float64)
    try:
        made = np.asarray(small.function(small.tree, other), np.float64)
    except ArgumentError:
        return  # said in one line
    np.testing.assert_allclose(made, whole, rtol=1e-3, atol=1e-4)


DEAD = {"in": normal(0, 3, 8).at[:, 4:].set(0), "out": normal(1, 1, 2)}


def mean_of_units(p, x):
    return jax.nn.relu(x @ p["in"]).mean(-1, keepdims=True) @ p["out"]


# The function is chosen by what it computes on one example


@pytest.mark.long
def test_a_function_that_divides_by_the_new_number_is_not_taken_for_an_example_of_zeros():
    agree(mean_of_units, DEAD, jnp.zeros((1, 3)), normal(2, 4, 3))


@pytest.mark.long
def test_a_function_that_divides_by_the_new_number_is_not_taken_for_its_rounded_outputs():
    params = {**DEAD, "out": jnp.ones((1, 1))}
    agree(lambda p, x: mean_of_units(p, x)[:, 0] > 0.2, params, 5 * jnp.ones((1, 3)), 0.5 * normal(2, 64, 3))


@pytest.mark.long
def test_a_function_that_divides_by_the_new_number_is_not_taken_within_half_precision():
    params = {"in": normal(0, 3, 24).at[:, 23:].set(0).astype(jnp.bfloat16)}
    x = jnp.ones((1, 3), jnp.bfloat16)
    small = jaxarch.shrink(lambda p, x: jax.nn.relu(x @ p["in"]).mean(-1), params, x)
    assert not small.same_function


@pytest.mark.long
def test_a_function_that_divides_by_the_new_number_is_not_taken_beside_a_large_output():
    def function(p, x):
        h = jax.nn.relu(x @ p["in"]).mean(-1, keepdims=True)
        return jnp.concatenate([h, jnp.full_like(h, 1e6)], -1)

    agree(function, DEAD, normal(3, 2, 3), normal(4, 2, 3))


# What an example has one of, or few of


@pytest.mark.long
def test_constants_that_are_summed_over_the_length_of_the_input_depend_on_it():
    params = {
        "in": normal(0, 3, 4).at[:, 2:].set(0),
        "b": jnp.ones(4),
        "out": normal(1, 4, 2),
        "c": jnp.ones(2),
    }
    agree(
        lambda p, x: jax.nn.relu(x @ p["in"] + p["b"]).sum(0) @ p["out"] + p["c"],
        params,
        normal(2, 5, 3),
        normal(3, 9, 3),
    )


@pytest.mark.long
def test_a_batch_of_one_says_nothing_of_others():
    def function(p, x):
        h = jnp.tanh(x @ p["in"])
        return ((h @ h.T) * (1 - jnp.eye(len(x)))).sum(-1)

    agree(function, {"in": normal(0, 3, 5)}, jnp.ones((1, 3)), normal(1, 4, 3))


@pytest.mark.long
def test_taps_that_meet_padding_alone_in_a_short_example_are_needed_in_a_long_one():
    def function(p, x):
        h = jax.lax.conv_general_dilated(x, p["in"], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))
        return jax.nn.relu(h) @ p["out"]

    params = {"in": normal(0, 3, 2, 6).at[1, :, 3:].set(0), "out": normal(1, 6, 2)}
    agree(function, params, jnp.ones((1, 1, 2)), normal(2, 3, 7, 2))


@pytest.mark.long
def test_positions_beyond_the_example_stay():
    model = jaxarch.models.GPT(depth=1, features=8, heads=2, length=16, vocabulary=11, rngs=nnx.Rngs(0))
    model.eval()
    small = jaxarch.nnx.shrink(model, jnp.zeros((1, 4), int))
    assert small.function(small.tree, jnp.zeros((1, 12), int)).shape == (1, 12, 11)


# Leaves that the outputs do not read


def test_a_leaf_that_another_method_reads_stays():
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.layer, self.scale = nnx.Linear(3, 2, rngs=rngs), nnx.Param(jnp.arange(1.0, 3.0))

        def __call__(self, x):
            return self.layer(x)

        def scaled(self, x):
            return self(x) * self.scale[...]

    model, x = Model(nnx.Rngs(0)), jnp.ones((1, 3))
    np.testing.assert_allclose(jaxarch.nnx.shrink(model, x).model.scaled(x), model.scaled(x))


X, Y = normal(1, 32, 3), normal(2, 32, 2)


def network_and_problem(loss):
    def init(key):
        into = jax.random.normal(key, (3, 6)).at[:, 3:].set(0)
        return {"in": into, "out": normal(3, 6, 2), "log_var": jnp.array([0.0, 3.0])}, {}

    def predict(params, state, batch):
        return jax.nn.relu(batch[0] @ params["in"]) @ params["out"]

    problem = jaxarch.Problem(init, loss, (X, Y), jaxarch.Descent(optax.sgd(0.1), steps=2), predict=predict)
    params, state = init(jax.random.key(0))
    mask = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, bool), params)
    return Network(params, mask, state, records=(Start(params),)), problem


def noise_model(params, state, batch, key):
    error = jnp.square(jax.nn.relu(batch[0] @ params["in"]) @ params["out"] - batch[1])
    return (error * jnp.exp(-params["log_var"]) + params["log_var"]).mean(), state


def with_a_penalty(params, state, batch, key):
    hidden = jax.nn.relu(batch[0] @ params["in"])
    return jnp.square(hidden @ params["out"] - batch[1]).mean() + hidden.mean(), state


@pytest.mark.long
@pytest.mark.parametrize("loss", [noise_model, with_a_penalty])
def test_the_smaller_problem_has_the_loss_of_the_whole_one(loss):
    network, problem = network_and_problem(loss)
    small = jaxarch.shrink(network, problem)
    whole, _ = problem.loss(network.params, network.state, (X, Y), None)
    made, _ = small.problem.loss(small.network.params, small.network.state, (X, Y), None)
    assert jnp.allclose(made, whole, rtol=1e-4)


# Signs


GATED = {"in": jnp.abs(normal(0, 3, 5)), "c": normal(1, 3, 5), "out": normal(2, 5, 2)}


@pytest.mark.long
def test_exponentials_of_complex_numbers_have_any_sign():
    agree(
        lambda p, x: jax.nn.relu(-jnp.real(jnp.exp(1j * (x @ p["in"])))) @ p["out"],
        GATED,
        jnp.zeros((1, 3)),
        normal(5, 3, 3),
    )


@pytest.mark.long
def test_a_root_may_be_no_number_and_at_least_nothing():
    def function(p, x):
        return (jnp.where(jnp.sqrt(x @ p["in"]) >= 0, 0.0, x @ p["c"])) @ p["out"]

    agree(function, GATED, jnp.ones((1, 3)), -jnp.ones((2, 3)))


@pytest.mark.long
@pytest.mark.parametrize("wraps", [jnp.square, lambda x: jnp.abs(x).astype(jnp.int8)])
def test_integers_wrap_around(wraps):
    def function(p, x):
        return jax.nn.relu(-(wraps(x).astype(jnp.float32) @ p["in"])) @ p["out"]

    for large in (200, 50000):
        agree(function, GATED, jnp.zeros((1, 3), jnp.int32), jnp.full((1, 3), large, jnp.int32))


def test_an_integer_by_0_is_not_0():
    def function(p, x):
        return jax.lax.div(jnp.zeros_like(x), x).astype(jnp.float32) @ p["in"] @ p["out"]

    agree(function, GATED, jnp.ones((1, 3), jnp.int32), jnp.zeros((1, 3), jnp.int32))


@pytest.mark.long
def test_what_is_looked_up_outside_of_an_array_is_what_it_is_filled_with():
    params = {"table": normal(0, 7, 5).at[:, 2:].set(0), "out": normal(1, 5, 2)}

    def function(p, i):
        return jnp.take(p["table"], i, axis=0, mode="fill", fill_value=7.0) @ p["out"]

    agree(function, params, jnp.array([1, 2]), jnp.array([1, 100]))


@pytest.mark.long
def test_minus_0_is_not_positive():
    def function(p, x):
        return jnp.minimum(jnp.tanh(1 / -jnp.minimum(x @ p["c"], 0)), 0) @ p["out"]

    agree(function, GATED, normal(3, 4, 3), normal(4, 4, 3))


# Derivatives


@jax.custom_jvp
def spike(x, k):
    return (x > 0).astype(x.dtype) * k


@spike.defjvp
def _(values, tangents):
    return spike(*values), 7.0 * tangents[0]


def through_heads(h):
    return h.reshape(-1, 2, 3).swapaxes(1, 2).reshape(-1, 6)


@pytest.mark.long
def test_a_function_of_an_integer_keeps_its_derivative_in_the_program():
    def function(p, x, k):
        return spike(x @ p["a"], k) @ p["o"] + through_heads(jax.nn.relu(x @ p["b"])) @ p["q"]

    params = {
        "a": normal(0, 3, 4),
        "b": normal(1, 3, 6).at[:, 3:].set(0),
        "o": normal(2, 4, 2),
        "q": normal(3, 6, 2),
    }
    x, k = normal(4, 2, 3), jnp.int32(2)
    small = jaxarch.shrink(function, params, x, k)
    whole = jax.grad(lambda p: function(p, x, k).sum())(params)["a"]
    made = jax.grad(lambda p: small.function(p, x, k).sum())(small.tree)["a"]
    np.testing.assert_allclose(made, whole, rtol=1e-5)


@jax.custom_jvp
def size(x):
    return jnp.abs(x)


@jax.custom_jvp
def slope(x):
    return jnp.sign(x)


size.defjvp(lambda p, t: (size(*p), slope(p[0]) * t[0]))
slope.defjvp(lambda p, t: (slope(*p), 3.0 * t[0]))


@pytest.mark.long
def test_second_derivatives_are_those_of_the_function():
    def function(p, x):
        return through_heads(size(x @ p["a"])) @ p["o"]

    params = {"a": normal(0, 3, 6), "o": normal(1, 6, 1).at[jnp.array([0, 2, 4])].set(0)}
    small, x = jaxarch.shrink(function, params, normal(2, 4, 3)), normal(3, 4, 3)

    def second(function, tree):
        return jax.jvp(jax.grad(lambda x: function(tree, x).sum()), (x,), (x,))[1]

    np.testing.assert_allclose(second(small.function, small.tree), second(function, params), rtol=1e-4)


@jax.custom_vjp
def backwards(x):
    return jnp.tanh(x)


backwards.defvjp(lambda x: (jnp.tanh(x), x), lambda _, g: (5 * g,))


# Raised, and should not be


@pytest.mark.long
@pytest.mark.parametrize("of", ["inputs", "params"])
def test_a_function_with_a_derivative_backwards_is_shrunk(of):
    def function(p, x):
        h = backwards(x @ p["a"]) if of == "inputs" else x @ backwards(p["a"])
        return h @ p["o"] + jax.nn.relu(x @ p["b"]).mean(-1, keepdims=True)

    params = {"a": normal(0, 3, 4), "b": normal(1, 3, 6).at[:, 3:].set(0), "o": normal(2, 4, 2).at[1].set(0)}
    assert jaxarch.shrink(function, params, normal(3, 2, 3)).tree["a"].shape == (3, 3)


@pytest.mark.long
def test_a_model_that_computes_in_half_precision_is_shrunk():
    into, out = (nnx.Linear(*s, dtype=jnp.bfloat16, rngs=nnx.Rngs(0)) for s in [(6, 32), (32, 4)])
    into.kernel[...] = into.kernel[...].at[:, 16:].set(0)
    into.bias[...] = 0.3 * normal(3, 32)
    jaxarch.nnx.shrink(nnx.Sequential(into, nnx.relu, out, lambda x: x.astype(jnp.float32)), normal(1, 16, 6))


FOLD = {
    "a": normal(0, 3, 4).at[:, 2:].set(0),
    "ab": jnp.ones(4),
    "w": normal(1, 4, 2) + 0.3,
    "b": normal(2, 2),
}


def hidden(p, x):
    return jax.nn.relu(x @ p["a"] + p["ab"]) @ p["w"]


def rounded(p, x):
    return hidden(p, x).astype(jnp.int32).astype(jnp.float32) + p["b"]


@pytest.mark.long
@pytest.mark.parametrize(
    "function",
    [lambda p, x: (hidden(p, x) + p["b"], p["b"] - hidden(p, x)), rounded],
    ids=["signs", "rounded"],
)
def test_a_bias_that_cannot_take_a_constant_up_does_not(function):
    jaxarch.shrink(function, FOLD, normal(3, 8, 3))


def test_a_scan_of_no_rounds_is_followed():
    def function(p, x):
        return jax.lax.scan(lambda c, w: (c @ w, None), x, p["w"][:0])[0] @ p["o"]

    jaxarch.shrink(function, {"w": normal(0, 2, 3, 3), "o": normal(1, 3, 2)}, normal(2, 2, 3))


def test_a_scan_that_hands_on_its_rows_takes_the_smaller_arrays_as_it_is():
    def function(p, x):
        def step(hidden, row):
            return jnp.tanh(hidden + row), {"row": row, "largest": hidden.max()}

        last, rows = jax.lax.scan(step, jnp.zeros(p["in"].shape[1]), x @ p["in"])
        return (last + rows["row"].sum(0)) @ p["out"]

    params = {"in": normal(0, 3, 4).at[:, 1].set(0), "out": normal(1, 4, 2)}
    small = jaxarch.shrink(function, params, normal(2, 2, 3))
    assert small.tree["in"].shape == (3, 3)
    assert small.same_function


def test_a_key_that_is_closed_over_is_a_constant():
    key = jax.random.key(0)
    jaxarch.shrink(lambda p, x: x @ p + jax.random.normal(key, (4,)), normal(0, 3, 4), normal(1, 2, 3))


# Bad calls


with jax.numpy_rank_promotion("allow"):
    GROUPS = axis_groups(lambda p, x: hidden(p, x) + p["b"], FOLD, jnp.ones((1, 3)))

BAD = {
    "a leaf that is no array": lambda: axis_groups(lambda p, x: x * p["s"], {"s": 2.0}, jnp.ones(3)),
    "inputs of shapes alone": lambda: jaxarch.shrink(
        lambda p, x: hidden(p, x), FOLD, jax.ShapeDtypeStruct((1, 3), jnp.float32)
    ),
    "traced inputs": lambda: jax.jit(lambda x: jaxarch.shrink(hidden, FOLD, x).tree)(jnp.ones((1, 3))),
    "shapes for values": lambda: GROUPS.needed(jax.eval_shape(lambda: FOLD)),
    "numbers for arrays": lambda: GROUPS.needed({**FOLD, "b": 1.0}),
    "no such path": lambda: GROUPS.fold(FOLD, fixed=["bias"]),
    "a path for paths": lambda: GROUPS.fold(FOLD, fixed="b"),
    "no paths": lambda: GROUPS.fold(FOLD, fixed=None),
    "a number for a name": lambda: GROUPS.cut(FOLD, {3: np.ones(4, bool)}),
    "traced units": lambda: jax.jit(lambda k: GROUPS.cut(FOLD, {"a[1]": k}))(jnp.ones(4, bool)),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_said_in_one_line(case):
    with pytest.raises(ArgumentError) as error:
        BAD[case]()
    assert "\n" not in str(error.value)

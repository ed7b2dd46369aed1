"""Local Lipschitz constants: true for every pair of points, and what has none is infinite or refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxarch.theory.lipschitz import lipschitz_bound

generator = np.random.default_rng(0)
FIRST, LAST = (generator.normal(size=shape).astype(np.float32) for shape in ((4, 8), (8, 3)))
ORDERS = [1, 2, np.inf]


def network(x):
    return jax.nn.relu(x["a"] @ FIRST) @ LAST + jnp.tanh(x["b"])


@pytest.mark.long
@pytest.mark.parametrize("order", ORDERS)
def test_no_two_points_of_the_box_are_further_apart_in_the_outputs(order):
    generator = np.random.default_rng(1)
    centre, width = generator.normal(size=7), 0.3
    slope = lipschitz_bound(network, order)(split(centre - width), split(centre + width))
    x, y = np.float32(centre + width * generator.uniform(-1, 1, (2, 5000, 7)))
    y[:2500] = x[:2500] + 1e-2 * np.sign(y[:2500] - x[:2500])
    inputs = np.linalg.norm(x - y, order, axis=1)
    outputs = np.linalg.norm(jax.vmap(network)(split(x)) - jax.vmap(network)(split(y)), order, axis=1)
    assert (outputs <= slope * inputs * (1 + 1e-4)).all()
    assert slope < 3 * (outputs / inputs).max()


def split(x):
    return {"a": jnp.asarray(x[..., :4], jnp.float32), "b": jnp.asarray(x[..., 4:], jnp.float32)}


@pytest.mark.parametrize("order", ORDERS)
def test_a_linear_map_has_its_operator_norm(order):
    slope = lipschitz_bound(lambda x: x @ FIRST, order)(-jnp.ones(4), jnp.ones(4))
    np.testing.assert_allclose(slope, np.linalg.norm(FIRST.T, order), rtol=2e-4)


@pytest.mark.long
def test_a_slope_too_small_to_be_squared_is_bounded():
    assert lipschitz_bound(lambda x: 1e-25 * x * x, 2)(jnp.zeros(1), jnp.ones(1)) >= 2e-25


def test_what_is_clipped_by_itself_has_its_slope():
    slope = lipschitz_bound(lambda x: jax.lax.clamp(x, x, jnp.full(2, 5.0)))(jnp.zeros(2), jnp.ones(2))
    assert slope >= 1


@pytest.mark.long
@pytest.mark.parametrize(
    "fun",
    [
        lambda x: x.max(),
        lambda x: jnp.minimum(x[:2], x[2:]),
        lambda x: jnp.sort(x.reshape(2, 2)),
        lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2,), (1,), "SAME"),
        lambda x: jnp.sin(x),
    ],
    ids=["maximum", "smaller of two", "sorted pairs", "windows", "sine"],
)
def test_what_passes_one_entry_on_has_the_slope_of_one_entry(fun):
    assert 1 <= lipschitz_bound(fun)(-jnp.ones(4), jnp.ones(4)) < 1.01


def test_a_sort_of_many_numbers_has_no_slope_to_bound():
    with pytest.raises(ValueError, match="fun: its 'sort' sorts more than 32 numbers"):
        lipschitz_bound(jnp.sort)(jnp.zeros(33), jnp.ones(33))


@pytest.mark.long
def test_where_all_neurons_are_decided_a_network_is_linear():
    centre = jnp.asarray([1.0, -0.5, 0.3, 2.0])
    slope = lipschitz_bound(lambda x: jax.nn.relu(x @ FIRST) @ LAST)(centre - 1e-3, centre + 1e-3)
    jacobian = (FIRST * np.asarray(centre @ FIRST > 0)) @ LAST
    np.testing.assert_allclose(slope, np.abs(jacobian).sum(0).max(), rtol=1e-4)


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: jnp.where(x > 0, 1.0, 0.0),
        lambda x: jnp.where(x.sum() > 0, x, 2 * x),
        lambda x: 1 / x,
        jnp.sqrt,
    ],
    ids=["step", "choice by a sum", "pole", "root"],
)
def test_a_function_without_a_bounded_slope_has_an_infinite_one(fun):
    assert jax.jit(lipschitz_bound(fun))(jnp.float32([-1, 0]), jnp.float32([1, 1])) == np.inf


@pytest.mark.long
@pytest.mark.parametrize(
    ("fun", "width"),
    [
        (lambda x: jnp.where(x > 0, 1 / (x * x - x + 1), 0.0), 2),
        (lambda x: jnp.where(x > 0, jnp.exp(x), 0 * x), 15),
        (lambda x: jnp.where(x > 0, 1e-30 * x + 1, 1e-30 * x), 3e38),
        (lambda x: jnp.where((x > 0) & (x < jnp.full(1, jnp.inf)), x, x - 1), 1),
    ],
    ids=["a pole nearby", "large elsewhere", "a box of overflow", "an endless end"],
)
def test_a_jump_is_seen_whatever_is_around_it(fun, width):
    assert lipschitz_bound(fun)(jnp.float32([-width]), jnp.float32([width])) == np.inf


@jax.custom_vjp
def square_that_states_no_slope(x):
    return x * x


square_that_states_no_slope.defvjp(lambda x: (x * x, None), lambda _, g: (jnp.zeros_like(g),))


@pytest.mark.parametrize(
    "fun", [square_that_states_no_slope, lambda x: x * jax.lax.stop_gradient(x)], ids=["custom", "stopped"]
)
def test_the_slope_is_that_of_what_is_computed_whatever_derivative_is_stated(fun):
    np.testing.assert_allclose(lipschitz_bound(fun)(jnp.ones(2), 2 * jnp.ones(2)), 4, rtol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("fun", "slope"),
    [(lambda x: x.max(), 2.0), (lambda x: jax.nn.relu(x).min(), 2.0), (jax.nn.softmax, 1.3)],
    ids=["max", "min", "softmax"],
)
def test_maxima_have_bounded_slopes(fun, slope):
    assert lipschitz_bound(fun)(jnp.float32([0.3, 0.5]), jnp.float32([0.6, 0.7])) <= slope + 1e-4


@pytest.mark.parametrize(
    "fun",
    [
        jnp.sign,
        jnp.round,
        lambda x: (x > 0).astype(jnp.float32),
        lambda x: x.astype(jnp.bfloat16) + x,
        lambda x: x > 0,
    ],
)
def test_a_function_that_jumps_by_its_nature_is_refused(fun):
    with pytest.raises(ValueError, match=r"fun: (it uses the primitive .*, which jumps|expected outputs of)"):
        lipschitz_bound(fun)(-jnp.ones(2), jnp.ones(2))


@pytest.mark.parametrize("order", [0, 3, True, "2"])
def test_other_norms_are_refused(order):
    with pytest.raises(ValueError, match="order: expected 1, 2 or infinity"):
        lipschitz_bound(jnp.tanh, order)


@pytest.mark.parametrize(
    "box", [{"a": jnp.arange(3)}, jnp.zeros(2, jnp.float16)], ids=["integers", "16 bits"]
)
def test_inputs_that_are_no_floats_of_32_bits_are_refused(box):
    with pytest.raises(ValueError, match="lower: expected float32 or float64 everywhere"):
        lipschitz_bound(lambda x: x)(box, box)


@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_of_inputs_of_two_types_the_one_that_does_not_fit_is_named(dtype):
    with jax.enable_x64(True):
        box = {"a": jnp.ones(2, jnp.float32), "b": jnp.ones(2, dtype)}
        with pytest.raises(ValueError, match=rf"lower: expected .* everywhere, got {dtype} at 'b'"):
            lipschitz_bound(lambda x: x["a"])(box, box)

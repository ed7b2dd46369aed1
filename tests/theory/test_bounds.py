"""Interval bounds of JAX functions, and certified gradient bounds: sound, and how loose."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st
from small import digits, in_float64

import jaxarch
from jaxarch.models import signed_output_loss, tanh_network
from jaxarch.theory.bounds import gradient_bound, gradient_bounds, largest_norms, looseness
from jaxarch.theory.intervals import interval_bounds

SEEDS = st.integers(0, 2**31 - 1)


def slope(function):
    return jax.grad(lambda x: function(x).sum())


def picture(x):
    return jnp.concatenate([x, 2 * x, -x, x]).reshape(1, 1, 4, 4)


def pooled(x, start, take):
    return jax.lax.reduce_window(picture(x), start, take, (1, 1, 3, 2), (1, 1, 2, 1), "SAME")


def shares(x):
    """Exponentials over sums, shifted by different numbers or not beside their own terms."""
    x = 3 * jnp.tanh(x)
    terms, columns = jnp.exp(x - x[::-1]), jnp.exp(jnp.outer(x, jnp.cos(jnp.arange(4.0))) - x[:, None])
    total = columns.sum(0)
    return (
        terms / terms.sum(),
        columns / total[None],
        columns / total[:, None],
        columns / total[::-1][None],
        columns * (1 / total)[:, None],
        columns * (1 / total[:, None]),
        columns.T * (1 / total)[None],
    )


FUNCTIONS = {
    "relu": slope(jax.nn.relu),
    "tanh": slope(jnp.tanh),
    "sigmoid": slope(jax.nn.sigmoid),
    "softplus": slope(jax.nn.softplus),
    "slope of logaddexp": slope(lambda x: jnp.logaddexp(x, x[::-1])),
    "silu": slope(jax.nn.silu),
    "gelu": slope(jax.nn.gelu),
    "elu": slope(jax.nn.elu),
    "second derivative": slope(slope(jnp.tanh)),
    "cross-entropy": lambda x: optax.softmax_cross_entropy_with_integer_labels(x, 1),
    "slope of cross-entropy": slope(lambda x: optax.softmax_cross_entropy_with_integer_labels(x, 1)),
    "slope of binary cross-entropy": slope(lambda x: optax.sigmoid_binary_cross_entropy(x, 0.3)),
    "softmax": jax.nn.softmax,
    "log softmax": jax.nn.log_softmax,
    "shares of no softmax": shares,
    "norm": jnp.linalg.norm,
    "layer norm": lambda x: (x - x.mean()) * jax.lax.rsqrt(x.var() + 0.1),
    "recomputed": jax.checkpoint(slope(jax.nn.softplus)),
    "product with itself": lambda x: x * x + x**3 - x**-2,
    "logarithms": lambda x: jnp.log(jnp.abs(x) + 1) + jnp.log1p(jnp.square(x)) + jnp.expm1(-x),
    "outer product": lambda x: jnp.outer(x, jnp.sin(jnp.arange(4.0))) @ jnp.outer(x, x),
    "convolution": lambda x: jax.lax.conv(picture(x), picture(x[::-1])[..., :2, :2], (1, 1), "SAME"),
    "sort of selection": lambda x: jnp.where(x > x[::-1], jnp.cumsum(x), jnp.clip(x, -1, 0.5)),
    "one-hot": lambda x: jax.nn.one_hot(jnp.argmax(x), 4),
    "integers": lambda x: (jnp.floor(3 * x).astype(jnp.int32), x.round() == 1),
    "indices": lambda x: jnp.stack([x[jnp.asarray([2, 0])], jax.lax.dynamic_slice(x, (1,), (2,))]),
    "waves": lambda x: (jnp.sin(x), jnp.cos(x)),
    "maxima of windows": lambda x: pooled(x, -jnp.inf, jax.lax.max),
    "minima of windows": lambda x: pooled(x, jnp.inf, jax.lax.min),
    "sums of windows": lambda x: pooled(x, 0.0, jax.lax.add),
    "sorts": lambda x: (jnp.sort(x), jnp.median(x)),
    "half precision": lambda x: (x.astype(jnp.bfloat16) * 3).astype(jnp.float32),
}  # fmt: skip


def boxes(seed, count, size=4):
    """Boxes of many widths, points and those with a corner at 0 among them, and points in each."""
    generator = np.random.default_rng(seed)
    centre = generator.normal(0, 2, (count, size)) * 10 ** generator.uniform(-1, 1.5, (count, 1))
    radius = 10 ** generator.uniform(-4, 1, (count, size)) * (generator.random((count, size)) < 0.9)
    lower, upper = (centre - radius).astype(np.float32), (centre + radius).astype(np.float32)
    lower = np.where(generator.random((count, size)) < 0.1, np.minimum(0, upper), lower)
    share = generator.random((count, 30, size))
    share[:, :10] = share[:, :10].round()
    points = (lower[:, None] * (1 - share) + upper[:, None] * share).astype(np.float32)
    return lower, upper, np.clip(points, lower[:, None], upper[:, None])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bounds_enclose_what_is_computed_at_every_point(name):
    function = FUNCTIONS[name]
    lower, upper, points = boxes(0, 300)
    low, high = jax.jit(jax.vmap(interval_bounds(function)))(lower, upper)
    values = jax.jit(jax.vmap(jax.vmap(function)))(points)
    for least, value, largest in zip(*map(jax.tree.leaves, (low, values, high)), strict=True):
        inside = (np.asarray(least)[:, None] <= value) & (value <= np.asarray(largest)[:, None])
        assert (inside | np.isnan(value)).all()
        assert not np.isnan(least).any()
        assert not np.isnan(largest).any()


@pytest.mark.parametrize(
    ("name", "share"),
    [("relu", 0.999), ("tanh", 0.999), ("sigmoid", 0.999), ("softplus", 0.999),
     ("slope of cross-entropy", 0.98), ("slope of binary cross-entropy", 0.999), ("softmax", 0.98)],
)  # fmt: skip
@pytest.mark.long
def test_bounds_of_slopes_are_no_looser_than_values_that_are_attained(name, share):
    lower, upper = jnp.asarray([-2.0, -0.5, 0.25, 1.0]), jnp.asarray([-1.0, 0.75, 3.0, 1.5])
    low, high = interval_bounds(FUNCTIONS[name])(lower, upper)
    grid = jnp.stack(jnp.meshgrid(*jnp.linspace(0, 1, 9)[:, None].repeat(4, 1).T), -1).reshape(-1, 4)
    values = jax.vmap(FUNCTIONS[name])(lower[None] + (upper - lower)[None] * grid)
    # The grid holds all corners; an extreme inside (at 0) may fall between its points.
    attained = values.max(0) - values.min(0)
    assert (attained >= (share - 0.02) * (high - low)).all()


@pytest.mark.long
@given(seed=SEEDS)
def test_a_sum_s_bounds_enclose_the_exact_sum_and_every_order_of_summation(seed):
    generator = np.random.default_rng(seed)
    terms = (generator.normal(size=4000) * 10 ** generator.uniform(-6, 6, 4000)).astype(np.float32)
    weights = generator.normal(size=4000).astype(np.float32)
    low, high = enclosed_sums(terms, terms, weights)
    exact = [np.sum(terms, dtype=np.float64), np.dot(terms.astype(np.float64), weights)]
    shuffled = generator.permutation(4000)
    sums = [terms[shuffled].cumsum(dtype=np.float32)[-1], np.dot(terms[shuffled], weights[shuffled])]
    for i in range(2):
        assert low[i] < exact[i] < high[i]
        assert low[i] < sums[i] < high[i]


@jax.jit
def enclosed_sums(lower, upper, weights):
    return interval_bounds(lambda x: jnp.stack([x.sum(), x @ weights]))(lower, upper)


@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize(
    ("function", "exact", "low", "high"),
    [
        (jnp.exp, np.exp, -100, 80),
        (jnp.log, np.log, 1e-30, 1e30),
        (jnp.log2, np.log2, 1e-30, 1e30),
        (jnp.log1p, np.log1p, -0.99, 1e3),
        (jnp.expm1, np.expm1, -30, 60),
        (jnp.tanh, np.tanh, -20, 20),
        (jax.nn.sigmoid, lambda x: 1 / (1 + np.exp(-x)), -80, 30),
        (jax.lax.rsqrt, lambda x: 1 / np.sqrt(x), 1e-30, 1e30),
        (jnp.sinh, np.sinh, -80, 80),
        (jnp.cosh, np.cosh, -80, 80),
        (jnp.sin, np.sin, -1e5, 1e5),
        (jnp.cos, np.cos, -1e5, 1e5),
    ],
)
def test_elementary_functions_are_as_accurate_as_is_assumed(function, exact, low, high, double):
    dtype = np.float64 if double else np.float32
    generator = np.random.default_rng(0)
    x = np.concatenate(
        [np.linspace(low, high, 5000), generator.choice([-1, 1], 5000) * 10 ** generator.uniform(-9, 0, 5000)]
    )
    x = x[(x >= low) & (x <= high)].astype(dtype)
    with in_float64(double):
        least, largest = jax.jit(interval_bounds(function))(x, x)
        least, largest = np.asarray(least, np.longdouble), np.asarray(largest, np.longdouble)
    truth = exact(x.astype(np.longdouble))
    assert ((least <= truth) & (truth <= largest)).all()


@pytest.mark.parametrize(("first", "width"), [(0.0, 3.0), (-0.1, 0.2), (10.0, 20.0), (2.9, 0.1), (3e8, 1e-3)])
def test_a_wave_reaches_its_extremes_only_where_the_box_has_them(first, width):
    low, high = interval_bounds(lambda x: jnp.stack([jnp.sin(x), jnp.cos(x)]))(
        jnp.float32(first), jnp.float32(first + width)
    )
    x = np.float64(np.float32(first)) + np.linspace(0, 1, 20_001) * width
    waves = np.stack([np.sin(x), np.cos(x)])
    if first > 1e5:  # Neighbours in float32 are several turns apart.
        waves = np.array([[-1.0, 1.0]] * 2)
    np.testing.assert_allclose(low, waves.min(1), atol=1e-5)
    np.testing.assert_allclose(high, waves.max(1), atol=1e-5)


def test_a_wave_s_extremes_are_found_however_narrow_the_box_and_far_out():
    tops = np.pi / 2 + 2 * np.pi * np.arange(-12_000, 12_000, 7)
    lower, upper = (np.nextafter(np.float32(tops), np.float32(end)) for end in (-np.inf, np.inf))
    assert (interval_bounds(jnp.sin)(lower, upper)[1] == 1).all()
    assert (interval_bounds(jnp.sin)(-upper, -lower)[0] == -1).all()


@pytest.mark.long
def test_the_sum_of_a_long_window_has_the_bounds_of_a_sum():
    x = np.full(4000, 2.0**-25, np.float32)  # In order, each is lost beside the first.
    x[0] = 1
    low, high = interval_bounds(lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (4000,), (1,), "VALID"))(
        jnp.asarray(x), jnp.array(x)
    )
    exact = x.sum(dtype=np.float64)
    assert low[0] < min(exact, x.cumsum(dtype=np.float32)[-1])
    assert high[0] > max(exact, x.cumsum(dtype=np.float32)[-1])


def test_bounds_are_pytrees_of_the_function_s_outputs_and_map_over_what_it_closes_over():
    def bounds(scale):
        return interval_bounds(lambda x: {"y": scale * x["a"], "z": x["b"].sum()})(
            {"a": -jnp.ones(2), "b": jnp.zeros(3)}, {"a": jnp.ones(2), "b": jnp.ones(3)}
        )

    low, high = jax.jit(jax.vmap(bounds))(jnp.asarray([1.0, -4.0]))
    np.testing.assert_allclose(low["y"], [[-1, -1], [-4, -4]], rtol=1e-6)
    np.testing.assert_allclose(high["z"], [3, 3], rtol=1e-5)


def test_a_value_that_is_not_defined_in_the_box_has_infinite_bounds():
    low, high = interval_bounds(lambda x: jnp.stack([1 / x, jnp.log(x)]))(jnp.float32(-1), jnp.float32(1))
    assert low.tolist() == [-np.inf, -np.inf]
    assert high[0] == np.inf
    assert 0 <= high[1] < 1e-5


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: jax.scipy.special.gammaln(x), "the primitive 'lgamma', which has no interval rule"),
        (lambda x: jax.lax.scan(lambda y, _: (2 * y, None), x, None, 3)[0], "primitive 'scan', which has no"),
        (jnp.argsort, "it sorts several arrays together"),
        (lambda x: jnp.arange(3)[jnp.argmax(x)], "the indices of its 'dynamic_slice' depend on the box"),
    ],
)  # fmt: skip
def test_what_has_no_interval_rule_is_refused_by_name(function, message):
    with pytest.raises(ValueError, match=f"fun: .*{message}"):
        interval_bounds(function)(jnp.zeros(3), jnp.ones(3))


def test_what_does_not_depend_on_the_box_needs_no_rule():
    fixed = jax.lax.fori_loop(0, 3, lambda i, y: 2 * y, 1.0)
    low, high = interval_bounds(lambda x: x * jax.scipy.special.gammaln(fixed))(jnp.ones(()), jnp.ones(()))
    assert low < np.log(5040) < high


@pytest.mark.parametrize(
    ("upper", "message"),
    [
        (jnp.ones(3), r"upper: expected shape \(2,\)"),
        (-jnp.ones(2), "upper: expected values of at least lower"),
        ({"a": jnp.ones(2)}, "upper: expected the same structure as lower"),
    ],
)
def test_a_box_that_is_none_is_refused(upper, message):
    with pytest.raises(ValueError, match=message):
        interval_bounds(jnp.tanh)(jnp.zeros(2), upper)


# Gradients


def network_11(width=8):
    y = np.isin(digits().y, [4, 5, 6]).astype(np.float32)
    return jaxarch.supervised(
        tanh_network((64, width, width)),
        (digits().x[:6], y[:6]),
        loss=signed_output_loss,
        optimizer=optax.sgd(0.3),
        steps=1,
    )


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(64, 16, rngs=rngs)
        self.head = nnx.Linear(16, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.relu(self.hidden(x)))


def mlp():
    return jaxarch.supervised(
        MLP,
        (digits().x[:6], digits().y[:6]),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.sgd(0.3),
        steps=1,
    )


@pytest.mark.long
@pytest.mark.parametrize(("make", "weights", "factor"), [(network_11, "ones", 2), (mlp, "initial", 4)])
def test_a_certified_bound_is_above_every_gradient_found_and_within_a_factor(make, weights, factor):
    problem = make()
    params, state = problem.init(jax.random.key(0))
    certified = gradient_bounds(problem, params, state, weights=weights, batch_size=4)
    found = largest_norms(jax.random.key(1), problem, params, state, weights=weights)
    assert certified.shape == found.shape == (6,)
    assert (found <= certified).all()
    assert certified.max() < factor * found.max()


@pytest.mark.long
def test_looseness_is_the_certified_bound_over_the_largest_gradient_found():
    problem = network_11()
    params, _ = problem.init(jax.random.key(0))
    key = jax.random.key(1)
    got = looseness(key, problem, params)
    assert got.certified == gradient_bounds(problem, params).max()
    assert got.found == largest_norms(key, problem, params).max()
    assert got.ratio == got.certified / got.found


@pytest.mark.long
def test_a_bound_over_all_inputs_is_above_the_bound_of_each():
    problem = network_11()
    params, _ = problem.init(jax.random.key(0))

    @jax.jit
    def bound(lower, upper):
        return gradient_bound(lambda v, x, y: problem.loss(v, {}, (x, y), None)[0], params, lower, upper)

    x, y = problem.data[0][:1], problem.data[1][:1]
    one = bound((x, y), (x, y))
    np.testing.assert_allclose(one, gradient_bounds(problem, params, rows=jnp.arange(1))[0], rtol=1e-5)
    assert one < bound((jnp.zeros_like(x), y), (jnp.ones_like(x), y)) < np.inf


def test_the_bound_of_a_linear_loss_is_the_norm_of_its_slope():
    slope = {"w": jnp.asarray([3.0, -4.0]), "b": None}
    bound = gradient_bound(lambda mask: jnp.dot(slope["w"], mask["w"]), slope)
    assert 5 <= bound < 5 * (1 + 1e-5)


def test_tiny_and_huge_gradients_are_bounded_without_underflow():
    for size in (1e-30, 1e30):
        bound = gradient_bound(lambda mask, size=size: size * mask.sum(), jnp.zeros(4))
        np.testing.assert_allclose(bound, 2 * size, rtol=1e-5)


@pytest.mark.long
def test_unknown_weights_are_refused():
    problem = network_11()
    params, _ = problem.init(jax.random.key(0))
    with pytest.raises(ValueError, match="weights: expected 'ones' or 'initial', got 'random'"):
        gradient_bounds(problem, params, weights="random")

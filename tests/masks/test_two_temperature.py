"""The two-temperature gradient: value, derivative, limits, transformations, and Algorithm 1 in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import digits, keys, problem, same

import jaxarch
from jaxarch.masks import two_temperature
from jaxarch.models import signed_output_loss, tanh_network
from jaxarch.run import _training as training

SCORES = st.lists(st.floats(-2, 2, width=32), min_size=8, max_size=8).map(lambda v: np.array(v, np.float32))
TEMPERATURES = st.tuples(st.floats(0.1, 500), st.floats(0.01, 1)).map(lambda t: (t[0], t[0] * t[1]))


def sigmoid(x):
    return 0.5 * (1 + np.tanh(x / 2))


def slope(w, hard, soft, **options):
    return jax.grad(lambda w: two_temperature(w, hard, soft, **options).sum())(jnp.asarray(w))


@given(w=SCORES, temperatures=TEMPERATURES)
def test_the_value_is_the_sharp_sigmoid(w, temperatures):
    hard, soft = temperatures
    np.testing.assert_allclose(two_temperature(w, hard, soft), sigmoid(np.float64(w) * hard), atol=1e-5)


@given(w=SCORES, temperatures=TEMPERATURES)
def test_the_gradient_is_the_slope_of_the_soft_sigmoid_with_its_factor(w, temperatures):
    hard, soft = temperatures
    s = sigmoid(np.float64(w) * soft)
    np.testing.assert_allclose(slope(w, hard, soft), soft * s * (1 - s), rtol=1e-4, atol=1e-6)


@given(w=SCORES, temperatures=TEMPERATURES)
def test_without_the_factor_the_gradient_is_divided_by_soft(w, temperatures):
    hard, soft = temperatures
    with_it, without = slope(w, hard, soft), slope(w, hard, soft, factor=False)
    np.testing.assert_allclose(with_it, soft * without, rtol=1e-4, atol=1e-6)


@given(w=SCORES, hard=st.floats(0.1, 500))
def test_at_equal_temperatures_it_is_autodiff_of_the_sigmoid(w, hard):
    exact = jax.grad(lambda w: jax.nn.sigmoid(hard * w).sum())(jnp.asarray(w))
    # Autodiff rounds 1 - sigma to a multiple of 6e-8, and multiplies it by `hard`.
    np.testing.assert_allclose(slope(w, hard, hard), exact, rtol=2e-6, atol=2e-7 * hard)


@pytest.mark.long
@pytest.mark.parametrize("transform", [jax.jacfwd, jax.jacrev])
def test_forward_and_reverse_mode_give_the_same_slope_bit_for_bit(transform):
    w = jnp.linspace(-1, 1, 11)
    jacobian = transform(lambda w: two_temperature(w, 50.0, 5.0))(w)
    np.testing.assert_array_equal(jacobian, jnp.diag(slope(w, 50.0, 5.0)))


def test_it_is_linearized():
    w = jnp.linspace(-1, 1, 11)
    _, linear = jax.linearize(lambda w: two_temperature(w, 50.0, 5.0), w)
    np.testing.assert_array_equal(linear(jnp.ones_like(w)), slope(w, 50.0, 5.0))


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_value_and_gradient_are_finite_at_any_score_and_temperature(dtype):
    limits = jnp.finfo(dtype)
    w = jnp.asarray([0, limits.tiny, -limits.tiny, 1, -1, limits.max, limits.min, jnp.inf, -jnp.inf], dtype)
    # Traced, so that the temperatures' own check does not refuse the extremes.
    extremes = jnp.asarray([1e-38, 1e-3, 1.0, 1e6, 3e38, jnp.inf], jnp.float32)

    def value_and_slope(soft, hard):
        return two_temperature(w, hard, soft), slope(w, hard, soft)

    grid = jax.vmap(jax.vmap(value_and_slope, (0, None)), (None, 0))(extremes, extremes)
    for array in grid:
        assert array.dtype == jnp.dtype(dtype)
        assert not bool(jnp.isnan(array).any())
    assert bool(((grid[0] >= 0) & (grid[0] <= 1)).all())


@given(w=SCORES, temperatures=TEMPERATURES)
def test_it_equals_the_form_out_of_stop_gradient(w, temperatures):
    hard, soft = temperatures

    def oracle(w, hard, soft):
        surrogate = jax.nn.sigmoid(soft * w)
        stop = jax.lax.stop_gradient
        return stop(jax.nn.sigmoid(hard * w)) + (surrogate - stop(surrogate))

    np.testing.assert_array_equal(two_temperature(w, hard, soft), oracle(jnp.asarray(w), hard, soft))
    expected = jax.grad(lambda w: oracle(w, hard, soft).sum())(jnp.asarray(w))
    np.testing.assert_allclose(slope(w, hard, soft), expected, rtol=2e-6, atol=2e-7 * soft)


def test_the_gradient_does_not_vanish_where_one_minus_sigma_rounds_to_zero():
    far = slope(np.float32([20.0]), 1.0, 1.0)
    np.testing.assert_allclose(far, np.exp(-20.0), rtol=1e-4)


def test_a_grid_of_temperatures_is_one_vmap_and_equals_the_loop():
    w = jnp.linspace(-1, 1, 7)
    hards, softs = jnp.asarray([10.0, 50.0, 500.0]), jnp.asarray([1.0, 5.0, 500.0])
    mapped = jax.vmap(lambda h, s: slope(w, h, s))(hards, softs)
    looped = [slope(w, h, s) for h, s in zip(hards, softs, strict=True)]
    np.testing.assert_allclose(mapped, jnp.stack(looped), rtol=1e-6)


def test_temperatures_receive_no_gradient():
    gradients = jax.grad(lambda h, s: two_temperature(jnp.ones(3), h, s).sum(), argnums=(0, 1))(50.0, 5.0)
    assert gradients[0] == 0
    assert gradients[1] == 0


@pytest.mark.parametrize("factor", [True, False])
def test_temperatures_receive_no_gradient_of_the_slope_either(factor):
    def value(w, h, s):
        return two_temperature(w, h, s, factor=factor)

    gradients = jax.grad(jax.grad(value), argnums=(1, 2))(0.1, 50.0, 5.0)
    assert [float(gradient) for gradient in gradients] == [0, 0]
    assert jax.grad(jax.grad(value))(0.1, 50.0, 5.0) != 0


@pytest.mark.parametrize(
    ("hard", "soft", "message"),
    [
        (-1.0, 1.0, "hard: expected a positive finite number"),
        (0, 1.0, "hard: expected a positive finite number"),
        (50.0, 0.0, "soft: expected a positive finite number"),
        (5.0, 50.0, "soft: expected at most hard = 5.0"),
        (float("nan"), 1.0, "hard: expected a positive finite number"),
        ("fifty", 1.0, "hard: expected a positive number, got 'fifty'"),
    ],
)
def test_bad_temperatures_are_refused_by_name(hard, soft, message):
    with pytest.raises(ValueError, match=message):
        two_temperature(jnp.zeros(2), hard, soft)


def test_integer_scores_are_refused():
    with pytest.raises(ValueError, match=r"scores: leaf .* has dtype int32"):
        two_temperature(jnp.arange(3), 50.0, 5.0)


def numpy_algorithm_1(w, x, y, hard, soft, rate):
    """One full-batch step of Algorithm 1 of [D] on network (11) and loss (12), by hand."""
    v1, v2 = sigmoid(hard * w["w1"]), sigmoid(hard * w["w2"])
    h1 = np.tanh(x @ v1.T)
    h2 = np.tanh(h1 @ v2.T)
    g = ((1 - 2 * y) * sigmoid(h2.sum(1)) / len(x))[:, None] * (1 - h2**2)
    g1 = (g @ v2) * (1 - h1**2)
    gradient = {"w1": g1.T @ x, "w2": g.T @ h1}
    s = {name: sigmoid(soft * w[name]) for name in w}
    return {name: w[name] - rate * gradient[name] * soft * s[name] * (1 - s[name]) for name in w}


@pytest.mark.parametrize(("hard", "soft"), [(50.0, 5.0), (10.0, 10.0), (50.0, 0.5)])
def test_algorithm_1_equals_ten_lines_of_numpy_step_by_step(hard, soft):
    data = digits()
    x, y = data.x[:120], (data.y[:120] % 2).astype(np.float32)
    problem = jaxarch.supervised(
        tanh_network((64, 64, 64)), (x, y), loss=signed_output_loss, optimizer=optax.sgd(0.3), steps=40
    )
    search = jaxarch.search.two_temperature(hard, soft)
    key = jax.random.key(3)
    carry = training.begin(search, key, problem, None)
    step = jax.jit(lambda carry, t: training.step(search, key, problem, carry, t)[0])
    mine = {name: np.float64(scores) for name, scores in carry.state.trainable.items()}
    for t in range(40):
        carry = step(carry, t)
        mine = numpy_algorithm_1(mine, np.float64(x), np.float64(y), hard, soft, 0.3)
        for name in mine:
            np.testing.assert_allclose(carry.state.trainable[name], mine[name], atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("density", [0.1, 0.5, 1.0])
def test_a_network_of_a_given_density_has_the_largest_scores_whatever_their_signs(density):
    def at(share):
        return jaxarch.search.two_temperature(density=share, weights="signed constant")

    learning = problem(steps=3, runs=1)
    network = jaxarch.over_seeds(at(density), keys(1), learning)[0].of_run(0)
    scores = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(network.info["scores"])])
    mask = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(network.mask)])
    count = round(density * scores.size)
    assert mask.sum() == count
    assert scores[mask].min() >= jnp.sort(scores)[::-1][count - 1]
    traced, _ = jaxarch.over_seeds(at, keys(1), learning, jnp.array([density]))
    assert same(traced.of_run(0).mask, network.mask)


@pytest.fixture(scope="module")
def half():
    """A search whose temperature grows, from 1 to 50 in half of the steps."""
    grown = optax.exponential_decay(1.0, 6, 50.0, end_value=50.0)
    return jaxarch.search.two_temperature(grown, 0.5, mean=0.0, std=0.5)


@pytest.mark.long
def test_a_temperature_that_does_not_change_is_as_the_number():
    args = jax.random.key(0), problem().of_run(0)
    number = jaxarch.search.two_temperature(20.0, 2.0)(*args)
    schedule = jaxarch.search.two_temperature(optax.constant_schedule(20.0), 2.0)(*args)
    assert same(number.info, schedule.info)


@pytest.mark.long
def test_a_temperature_that_grows_is_that_of_the_step(half):
    one = problem().of_run(0)
    carry = training.begin(half, jax.random.key(0), one, None)
    for step, hard in ((0, 1.0), (3, 50**0.5), (6, 50.0), (11, 50.0)):
        state = carry.state._replace(step=step)
        mask = jax.tree.map(lambda leaf, hard=hard: two_temperature(leaf, hard, 0.5), state.trainable)
        params = half.params(half.settings, state)
        jax.tree.map(lambda leaf, other: np.testing.assert_allclose(leaf, other, rtol=1e-5), params, mask)


def test_initial_scores_are_in_units_of_the_first_temperature():
    one = problem().of_run(0)
    grown = optax.linear_schedule(4.0, 50.0, 10)
    scores = training.begin(
        jaxarch.search.two_temperature(grown, 1.0, mean=-2.0, std=0.0), jax.random.key(0), one, None
    ).state.trainable
    assert all((leaf == -0.5).all() for leaf in jax.tree.leaves(scores))


def test_a_soft_temperature_above_the_hard_one_at_either_end_is_refused():
    falling = optax.linear_schedule(50.0, 1.0, 12)
    with pytest.raises(jaxarch.ArgumentError, match="soft"):
        jaxarch.search.two_temperature(optax.linear_schedule(1.0, 50.0, 12), 5.0)
    search = jaxarch.search.two_temperature(falling, 5.0)
    with pytest.raises(jaxarch.ArgumentError, match="soft"):
        search(jax.random.key(0), problem().of_run(0))


def ten_times_the_size(mask):
    return 10 * sum(leaf.sum() for leaf in jax.tree.leaves(mask))


@pytest.mark.long
def test_a_penalty_of_the_mask_is_added_to_the_loss():
    one, key = problem().of_run(0), jax.random.key(0)
    plain, priced = (
        jaxarch.search.two_temperature(20.0, 2.0, steps=1, penalty=penalty)(key, one)
        for penalty in (None, ten_times_the_size)
    )
    carry = training.begin(jaxarch.search.two_temperature(20.0, 2.0, steps=1), key, one, None)
    mask = jax.tree.map(lambda leaf: two_temperature(leaf, 20.0, 2.0), carry.state.trainable)
    added = priced.info["loss"][0] - plain.info["loss"][0]
    np.testing.assert_allclose(added, ten_times_the_size(mask), rtol=1e-4)


@pytest.mark.long
def test_a_penalty_moves_the_scores():
    one, key = problem().of_run(0), jax.random.key(0)
    plain, priced = (
        jaxarch.search.two_temperature(20.0, 2.0, penalty=penalty)(key, one)
        for penalty in (None, ten_times_the_size)
    )
    assert jaxarch.density(priced.mask) < 0.5 * jaxarch.density(plain.mask)


def test_a_penalty_that_is_no_function_is_refused():
    with pytest.raises(jaxarch.ArgumentError, match="penalty"):
        jaxarch.search.two_temperature(penalty=0.1)


@pytest.mark.parametrize("value", [lambda mask: jnp.ones(3), lambda mask: mask])
def test_a_penalty_that_is_no_number_is_refused(value):
    search = jaxarch.search.two_temperature(20.0, 2.0, penalty=value)
    with pytest.raises(jaxarch.ArgumentError, match="penalty"):
        search(jax.random.key(0), problem().of_run(0))


def test_a_temperature_that_falls_in_between_is_refused_by_its_step():
    search = jaxarch.search.two_temperature(lambda step: jnp.where(step == 7, -1.0, 50.0))
    with pytest.raises(jaxarch.ArgumentError, match="step 7"):
        search(jax.random.key(0), problem().of_run(0))


def test_clipped_scores_are_within_the_box_of_the_temperature_that_they_meet():
    hard = optax.exponential_decay(1.0, 12, 50.0, end_value=50.0)
    search = jaxarch.search.two_temperature(hard, 0.1, clip=0.2, optimizer=optax.sgd(1e3), mean=0.0, std=1.0)
    one, key = problem().of_run(0), jax.random.key(0)
    carry = training.begin(search, key, one, None)
    carry, _ = training.advance(search, key, one, carry, 0, 6, 6)
    for leaf in jax.tree.leaves(carry.state.trainable):
        mask = two_temperature(leaf, hard(6), 0.1)
        assert 0.2 - 1e-5 <= mask.min() < 0.2 + 1e-5
        assert mask.max() <= 0.8 + 1e-5

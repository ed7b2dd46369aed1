"""The mirror map of the two-temperature gradient, its exact step and divergence, rates and bounds."""

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import digamma, expit
from small import in_float64, keys, problem

import jaxarch
from jaxarch import float64, masks, optim
from jaxarch.theory import mirror

TEMPERATURES = st.tuples(st.floats(0.5, 100), st.floats(0.01, 0.99)).map(lambda t: (t[0], t[0] * t[1]))
PRECISIONS = pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])


def root(y):
    """The x >= 0 with x + sinh x = y, in extended precision."""
    x = np.where(y < 1, y / 2, np.log(2 * np.maximum(y, 1)))
    for _ in range(60):
        x = x - (x + np.sinh(x) - y) / (1 + np.cosh(x))
    return x


def units(mine, exact, dtype):
    """The largest relative error, in units of the last place."""
    exact = np.asarray(exact, np.longdouble)
    return float(np.max(np.abs(np.asarray(mine).astype(np.longdouble) / exact - 1)) / np.finfo(dtype).eps)


# The mirror map


@PRECISIONS
@pytest.mark.parametrize("soft", [1e-3, 0.5, 5.0, 500.0])
def test_the_inverse_mirror_map_is_right_to_a_few_units_in_the_last_place(double, soft):
    dtype = np.float64 if double else np.float32
    theta = np.geomspace(1e-20, 1e300 if double else 3e38, 4000).astype(dtype)
    with in_float64(double):
        scores = mirror.inverse_mirror_map(theta, dtype(soft))
    wide = np.longdouble(dtype(soft))
    assert scores.dtype == dtype
    assert units(scores, root(wide**2 * theta.astype(np.longdouble) / 2) / wide, dtype) < 4


@pytest.mark.parametrize("soft", [0.5, 5.0])
def test_the_inverse_undoes_the_mirror_map_from_1e_8_to_80(soft):
    with float64():
        x = np.geomspace(1e-8, 80, 500)
        scores = np.concatenate([-x, [0.0], x]) / soft
        back = mirror.inverse_mirror_map(mirror.mirror_map(scores, soft), soft)
    np.testing.assert_allclose(back, scores, rtol=1e-14)


def test_the_inverse_takes_infinite_duals_to_infinite_scores():
    assert mirror.inverse_mirror_map(jnp.asarray([-jnp.inf, 0.0, jnp.inf]), 5.0).tolist() == [
        -jnp.inf,
        0.0,
        jnp.inf,
    ]


def test_the_derivative_of_the_mirror_map_is_one_over_the_slope_of_the_soft_mask():
    scores = jnp.linspace(-2, 2, 41)
    slope = jax.grad(lambda w: masks.two_temperature(w, 50.0, 5.0).sum())(scores)
    derivative = jax.vmap(jax.grad(lambda w: mirror.mirror_map(w, 5.0)))(scores)
    np.testing.assert_allclose(derivative * slope, 1, rtol=1e-5)


# The exact step


@PRECISIONS
def test_the_exact_step_moves_the_dual_variable_by_the_rate_times_the_mask_s_gradient(double):
    """In the score itself to three units in the last place, in the move too where it is small."""
    dtype = np.float64 if double else np.float32
    generator = np.random.default_rng(0)
    x = (generator.choice([-1, 1], 4000) * np.geomspace(1e-8, 80, 4000)).astype(dtype)
    step = generator.choice([-1, 1], 4000) * 10 ** generator.uniform(-15, 3, 4000)
    step = step.astype(dtype)
    with in_float64(double):
        # At soft = 1, scores are x, and a rate of -1 makes the gradient the first-order step.
        moved = np.asarray(mirror.mirror_update(x, step, 1.0, -1.0)).astype(np.longdouble)
    x, step = x.astype(np.longdouble), step.astype(np.longdouble)
    y = x + np.sinh(x) + step * (1 + np.cosh(x))
    exact = np.sign(y) * root(np.abs(y)) - x
    for _ in range(3):
        sinh = 2 * np.cosh(x + exact / 2) * np.sinh(exact / 2)
        exact = exact - (exact + sinh - step * (1 + np.cosh(x))) / (1 + np.cosh(x + exact))
    small = np.abs(step) <= 0.5
    assert units(moved[small], exact[small], dtype) < 5
    scale = np.abs(x) + np.abs(exact)
    assert np.max(np.abs(moved - exact) / scale) < 4 * np.finfo(dtype).eps


@pytest.mark.long
def test_a_gradient_of_zero_moves_nothing_and_no_score_overflows():
    scores = jnp.asarray([0.0, 1e-30, 3.0, -90.0, 1e4, -1e30])
    assert mirror.mirror_update(scores, jnp.zeros(6), 1.0, 0.3).tolist() == [0.0] * 6
    for gradient in (1e-30, -0.3, 5.0, -1e6):
        assert np.isfinite(mirror.mirror_update(scores, jnp.full(6, gradient), 1.0, 1.0)).all()


def test_a_small_rate_gives_the_ordinary_step():
    scores = jnp.linspace(-0.5, 0.5, 21)
    gradient = jnp.cos(17 * scores)
    exact = mirror.mirror_update(scores, gradient, 5.0, 1e-6)
    np.testing.assert_allclose(exact, -1e-6 * gradient, rtol=1e-5)


@pytest.mark.long
def test_the_optimiser_is_the_exact_step_through_the_two_temperature_gradient():
    scores = {"w": jnp.linspace(-0.3, 0.3, 12).reshape(3, 4), "bias": None}
    target = jnp.sin(jnp.arange(12.0)).reshape(3, 4)

    def loss(mask):
        return jnp.sum(target * mask["w"]) + jnp.sum(mask["w"] ** 2)

    optimizer = optim.mirror_descent(lambda count: 0.5 / (1 + count), 5.0)
    state = optimizer.init(scores)
    for count in range(3):
        mask = masks.soft_mask(scores, 50.0, 5.0)
        gradient = jax.grad(lambda s: loss(masks.soft_mask(s, 50.0, 5.0)))(scores)
        update, state = jax.jit(optimizer.update)(gradient, state, scores)
        moved = optax.apply_updates(scores, update)
        expected = mirror.mirror_map(scores["w"], 5.0) - 0.5 / (1 + count) * jax.grad(loss)(mask)["w"]
        np.testing.assert_allclose(mirror.mirror_map(moved["w"], 5.0), expected, rtol=2e-5, atol=1e-5)
        assert moved["bias"] is None
        scores = moved


@pytest.mark.long
def test_the_two_temperature_search_trains_with_it_over_a_sweep_of_rates():
    def search(settings):
        optimizer = optax.chain(optax.clip(1e3), optim.mirror_descent(settings["rate"], 5.0))
        return jaxarch.search.two_temperature(50.0, 5.0, optimizer=optimizer)

    network, _ = jaxarch.over_seeds(
        search, keys(), problem(width=16), {"rate": jnp.asarray([0.1, 0.3, 0.3, 1.0])}
    )
    loss = np.asarray(network.info["loss"])
    assert np.isfinite(loss).all()
    assert (loss[:, -1] < loss[:, 0]).all()


def test_the_optimiser_without_scores_is_refused():
    optimizer = optim.mirror_descent(0.3, 5.0)
    with pytest.raises(ValueError, match="params: mirror descent needs the scores"):
        optimizer.update(jnp.ones(2), optimizer.init(jnp.ones(2)))


def test_a_soft_temperature_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="soft: expected a positive finite number"):
        optim.mirror_descent(0.3, soft=0.0)


# The divergence


def integral(mask, at, ratio):
    """`int_{logit u}^{b} (sigma(x) - u) (1 + cosh(rho x)) dx` by adaptive quadrature, in pieces."""
    start = np.log(mask) - np.log1p(-mask) if 0 < mask < 1 else np.inf * (2 * mask - 1)

    def rise(x):
        if np.isinf(start):
            return expit(-abs(x) if x * start > 0 else abs(x)) * (1 + np.cosh(ratio * x))
        return abs(np.expm1(start - x)) * expit(x) * expit(-start) * (1 + np.cosh(ratio * x))

    low, high = sorted([at, np.clip(start, -700, 700)])
    knots = [low, *[k for k in np.arange(-700, 701, 5.0) if low < k < high], high]
    return sum(quad(rise, p, q, epsabs=0, epsrel=1e-13)[0] for p, q in pairwise(knots))


@pytest.mark.long
@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9, 1.0])
@PRECISIONS
def test_the_divergence_is_its_integral(double, ratio):
    hard, soft = 2.0, 2.0 * ratio
    dtype = np.float64 if double else np.float32
    # At equal temperatures the vertices are infinitely far away.
    masks = (1e-6, 0.3, 0.625, *((0.0, 1.0) if ratio < 1 else (0.1, 0.9)))
    cases = [(float(dtype(u)), b) for u in masks for b in (-17.0, -1.5, 0.0, 0.25, 1.75, 21.0)]
    mask, at = np.asarray(cases, dtype).T
    with in_float64(double):
        mine = mirror.bregman_divergence(mask, at / hard, dtype(hard), dtype(soft))
    exact = [2 / (hard * soft) * integral(u, b, float(dtype(soft) / dtype(hard))) for u, b in cases]
    np.testing.assert_allclose(mine, exact, rtol=1e-12 if double else 2e-5)


@pytest.mark.long
@pytest.mark.parametrize("ratio", [1e-3, 0.5, 0.99])
def test_from_one_half_the_distance_to_a_vertex_is_log_2_plus_i_of_the_ratio(ratio):
    def beta(s):
        return (digamma((s + 1) / 2) - digamma(s / 2)) / 2

    constant = np.log(2) + (beta(1 - ratio) + beta(1 + ratio)) / 2
    with float64():
        distance = mirror.start_distance(7, 50.0, 50.0 * ratio)
    np.testing.assert_allclose(distance, 7 * 2 / (50.0 * 50.0 * ratio) * constant, rtol=1e-14)


@jax.jit
@partial(jax.vmap, in_axes=(0, None, None, None))
def derivatives(w, mask, hard, soft):
    distance = jax.grad(lambda w: mirror.bregman_divergence(mask, w, hard, soft))(w)
    return distance, jax.grad(lambda w: mirror.mirror_map(w, soft))(w)


@pytest.mark.long
@given(temperatures=TEMPERATURES, mask=st.sampled_from([0.0, 0.001, 0.3, 0.5, 1.0]))
def test_the_derivative_of_the_divergence_is_the_mask_s_error_over_the_soft_slope(temperatures, mask):
    hard, soft = temperatures
    with float64():
        scores = np.asarray([-9.0, -1.1, -0.3, 0.0, 0.4, 2.0, 11.0]) / hard
        derivative, slope = jax.device_get(derivatives(scores, mask, hard, soft))
    expected = (expit(hard * scores) - mask) * slope
    np.testing.assert_allclose(derivative, expected, rtol=1e-9, atol=1e-11 * float(slope.max()))


@pytest.mark.long
def test_a_vertex_is_at_a_finite_distance_exactly_below_equal_temperatures():
    assert np.isfinite(mirror.bregman_divergence(1.0, 0.0, 50.0, 49.9))
    assert np.isinf(mirror.bregman_divergence(1.0, 0.0, 50.0, 50.0))
    assert np.isfinite(mirror.bregman_divergence(0.999, 0.0, 50.0, 50.0))


@pytest.mark.long
def test_the_divergence_from_the_mask_itself_is_zero():
    scores = jnp.linspace(-0.1, 0.1, 9)
    mask = jax.nn.sigmoid(50.0 * scores)
    np.testing.assert_allclose(mirror.bregman_divergence(mask, scores, 50.0, 5.0), 0, atol=1e-10)


@pytest.mark.long
def test_the_total_divergence_is_summed_over_masked_leaves():
    scores = {"a": jnp.zeros((2, 3)), "b": None, "c": jnp.zeros(4)}
    mask = {"a": jnp.ones((2, 3), bool), "b": None, "c": jnp.zeros(4, bool)}
    total = mirror.total_divergence(mask, scores, 50.0, 5.0)
    np.testing.assert_allclose(total, mirror.start_distance(10, 50.0, 5.0), rtol=1e-6)


def test_a_mask_outside_the_unit_interval_is_refused():
    with pytest.raises(ValueError, match=r"mask: expected numbers in \[0, 1\]"):
        mirror.bregman_divergence(1.5, 0.0, 50.0, 5.0)


def test_equal_temperatures_have_no_start_distance():
    with pytest.raises(ValueError, match=r"soft: expected less than hard = 5.0 .* got 5.0"):
        mirror.start_distance(10, 5.0, 5.0)


# Rates and bounds


def test_the_prescribed_rate_is_its_formula_and_least_in_the_bound_of_the_exact_step():
    d, G, T, hard, soft = 100, 3.0, 1000, 50.0, 5.0
    distance = mirror.start_distance(d, hard, soft)
    rate = mirror.prescribed_rate(distance, hard, soft, gradient_bound=G, steps=T)
    constant = distance * hard * soft / (2 * d)
    np.testing.assert_allclose(rate, 8 / (hard * soft * G) * np.sqrt(d * constant / T), rtol=1e-6)

    def bound(rate, exact=True):
        return mirror.average_iterate_bound(
            distance, rate, hard, soft, gradient_bound=G, steps=T, exact=exact
        )

    np.testing.assert_allclose(bound(rate), G / 2 * np.sqrt(d * constant / T), rtol=1e-6)
    assert bound(rate) < min(bound(1.1 * rate), bound(0.9 * rate))
    assert bound(rate, exact=False) <= (1 + 1.44 * 1.01) / 2 * bound(rate)


@pytest.mark.parametrize("exact", [False, True])
def test_runs_on_a_linear_loss_stay_within_the_bounds_and_close_to_them(exact):
    """A linear loss of alternating signs, whose best mask is a vertex: bounds hold for any gradients."""
    d, hard, soft, T = 4, 10.0, 2.0, 400
    slope = jnp.asarray([1.0, -1.0, 0.5, -0.5])
    best = (slope < 0).astype(jnp.float32)
    G = float(jnp.linalg.norm(slope))
    distance = mirror.start_distance(d, hard, soft)
    rate = mirror.prescribed_rate(distance, hard, soft, gradient_bound=G, steps=T)
    step = mirror.mirror_update if exact else lambda w, g, soft, rate: -rate * g

    def run(rates):
        def body(w, rate):
            v, pull = jax.vjp(lambda w: masks.two_temperature(w, hard, soft), w)
            return w + step(w, pull(slope)[0], soft, rate), jnp.dot(slope, v - best)

        return jax.lax.scan(body, jnp.zeros(d), rates)[1]

    given_ = {"gradient_bound": G, "steps": T, "exact": exact}
    gaps = run(jnp.full(T, rate))
    average = mirror.average_iterate_bound(distance, rate, hard, soft, **given_)
    assert 0.2 * average < gaps.mean() <= average
    assert gaps[-1] <= mirror.last_iterate_bound(distance, rate, hard, soft, **given_)
    rates = 2 * rate / jnp.sqrt(jnp.arange(1, T + 1))
    weighted = jnp.average(run(rates), weights=rates)
    assert weighted <= mirror.anytime_bound(distance, 2 * rate, hard, soft, **given_)


def test_the_constant_of_the_regret_bound_keeps_its_digits_at_small_rates():
    constant = partial(mirror.regret_constant, hard=50.0, soft=5.0, gradient_bound=1.0)
    for rate in (1e-12, 1e-6, 1e-3, 0.1, 0.16, 0.2, 1.0):
        x = np.float64(2 * rate * 25 / 4)
        psi = sum(2 * x**k / np.prod(np.arange(1.0, k + 3)) for k in range(60))
        np.testing.assert_allclose(constant(rate), 1.01 * psi * 250 / 32, rtol=1e-5)


def test_without_momentum_the_heavy_ball_bound_is_no_less_than_the_ordinary_one():
    arguments = {"gradient_bound": 1.0, "steps": 100}
    heavy = mirror.heavy_ball_bound(1.0, 0.01, 50.0, 5.0, momentum=0.0, **arguments)
    plain = mirror.average_iterate_bound(1.0, 0.01, 50.0, 5.0, **arguments)
    assert plain <= heavy <= 1.2 * plain
    assert np.isinf(mirror.heavy_ball_bound(1.0, 0.01, 50.0, 5.0, momentum=0.95, **arguments))


def test_full_gradient_steps_lower_a_smooth_loss_within_the_descent_bound():
    """F = cos(3 v), not convex, at the largest rate."""
    hard, soft, smoothness, T = 8.0, 2.0, 9.0, 50
    rate = mirror.largest_descent_rate(hard, soft, smoothness=smoothness)
    np.testing.assert_allclose(rate, 16 / (9 * 16), rtol=1e-6)

    def body(w, _):
        v, pull = jax.vjp(lambda w: masks.two_temperature(w, hard, soft), w)
        gradient = -3 * jnp.sin(3 * v)
        moved = w - rate * pull(gradient)[0]
        # v - v+ = rate ds_hard(xi) ds_soft(w) g
        return moved, (jnp.cos(3 * v), gradient * (v - jax.nn.sigmoid(hard * moved)) / rate)

    _, (values, stationarity) = jax.lax.scan(body, jnp.asarray(-0.4), None, length=T)
    assert (np.diff(values) <= 1e-6).all()
    bound = mirror.descent_bound(values[0] + 1, rate, hard, soft, smoothness=smoothness, steps=T)
    assert 0 < stationarity.min() <= bound
    assert np.isinf(mirror.descent_bound(1.0, 1.01 * rate, hard, soft, smoothness=smoothness, steps=T))


def test_the_stochastic_descent_bound_is_its_formula():
    bound = mirror.stochastic_descent_bound(
        2.0, 0.1, 8.0, 2.0, smoothness=9.0, largest_entry=3.0, second_moment=5.0, steps=100
    )
    np.testing.assert_allclose(bound, 0.2 + 0.1 * 8 * (9 / 16 + 3 / (6 * np.sqrt(3))) * 5, rtol=1e-6)


def clipped(steps, soft, clip=None, drop=0.5, smoothness=2.0):
    """The clip prescribed for d = 30, G_1 = 8, hard = 10 and the largest rate; and the bound at some clip."""
    rate = mirror.largest_descent_rate(10.0, soft, smoothness=smoothness)
    given = {"connections": 30, "largest_sum": 8.0, "steps": steps}
    best = mirror.prescribed_clip(drop, rate, 10.0, soft, **given)
    clip = jnp.minimum(best, 0.4999) if clip is None else clip
    bound = mirror.clipped_descent_bound(drop, clip, rate, 10.0, soft, smoothness=smoothness, **given)
    return float(best), bound


def test_the_clipped_descent_bound_is_its_formula_and_infinite_beyond_the_largest_rate():
    _, bound = clipped(1000, 4.0, clip=0.02)
    b, drop = np.log(0.98 / 0.02), 2 * 0.5 / 1000
    omega = (np.cosh(b / 2) * np.cosh(0.4 * b / 2)) ** 2
    moving = 0.96 * omega * np.sqrt(30 * 2 * drop / (2 * omega - 1))
    np.testing.assert_allclose(bound, drop / 2 + moving + 0.02 * 8, rtol=1e-5)
    given = {"smoothness": 2.0, "connections": 30, "largest_sum": 8.0, "steps": 1000}
    assert np.isfinite(mirror.clipped_descent_bound(0.5, 0.02, 0.1, 10.0, 4.0, **given))
    assert np.isinf(mirror.clipped_descent_bound(0.5, 0.02, 0.21, 10.0, 4.0, **given))


@pytest.mark.long
@pytest.mark.parametrize("soft", [0.01, 4.0, 10.0])
def test_the_prescribed_clip_has_the_least_bound_of_all(soft):
    clips = jnp.geomspace(1e-6, 0.49, 4000)
    for steps in (20, 1000, 10**7):
        best, bound = clipped(steps, soft)
        others = clipped(steps, soft, clip=clips)[1]
        assert bound <= others.min() * (1 + 1e-6)
        assert clips[others.argmin()] == pytest.approx(best, rel=0.05)


def test_no_clip_is_prescribed_up_to_the_number_of_steps_that_the_theorem_names():
    few = 8 * 30 * 2 * 0.5 / 8**2  # 8 d L (F - inf F) / G_1^2
    assert clipped(0.99 * few, 4.0)[0] == 0.5
    assert clipped(1.01 * few, 4.0)[0] < 0.5


@pytest.mark.parametrize(("ratio", "power"), [(1e-4, 1 / 3), (0.5, 1 / 3.5), (1.0, 1 / 4)])
def test_the_bound_at_the_prescribed_clip_falls_by_the_power_of_the_ratio(ratio, power):
    with float64():
        early, late = (float(clipped(steps, 10 * ratio)[1]) for steps in (1e12, 1e15))
    assert np.log(early / late) / np.log(1e3) == pytest.approx(power, abs=0.005)


def test_bounds_are_traced_over_ratios_of_temperatures():
    def bound(soft):
        distance = mirror.start_distance(10, 50.0, soft)
        rate = mirror.prescribed_rate(distance, 50.0, soft, gradient_bound=1.0, steps=100)
        return mirror.last_iterate_bound(distance, rate, 50.0, soft, gradient_bound=1.0, steps=100)

    assert np.isfinite(jax.jit(jax.vmap(bound))(jnp.geomspace(0.05, 45.0, 5))).all()


@pytest.mark.parametrize("name", ["gradient_bound", "steps", "distance"])
def test_a_number_that_is_not_positive_is_refused_by_name(name):
    numbers = {"distance": 1.0, "gradient_bound": 1.0, "steps": 10, name: 0.0}
    with pytest.raises(ValueError, match=f"{name}: expected a positive finite number"):
        mirror.prescribed_rate(numbers.pop("distance"), 50.0, 5.0, **numbers)

"""The main statements of [D] and [A], on what hypothesis makes of their variables; it shrinks what fails."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxarch import float64
from jaxarch.lab.claims.checks import algorithm_1, projected_sgd, two_temperature
from jaxarch.lab.claims.disentangling import binarization, convergence, mean_loss, step_error
from jaxarch.lab.claims.new_results import convex_sgd, strongly_convex_sgd
from jaxarch.lab.claims.pruning import penalty
from jaxarch.lab.claims.pruning import step_error as smaller

SHARPNESS = st.floats(0.01, 200)
SCORE = st.floats(-5, 5)
GRADIENT = st.floats(-1e3, 1e3)
RATE = st.floats(0, 1e3)
IN_CUBE = st.floats(0, 1)


def vector(of, size=3):
    return st.lists(of, min_size=size, max_size=size)


def holds(statement):
    """Compiled once; its variables are Python numbers and lists."""
    program = jax.jit(lambda **case: statement(**case).holds)

    def at(**case):
        with float64():
            return bool(program(**{name: np.asarray(value, np.float64) for name, value in case.items()}))

    return at


ERROR_BOUND = holds(step_error.error_bound)
SHARP_ERROR_BOUND = holds(step_error.sharp_error_bound)
UPDATE = holds(step_error.update)
MEAN_VALUE = holds(step_error.mean_value)
SMALLER_BOUND = holds(smaller.smaller_error_bound)
SIGN = holds(step_error.error_has_the_sign_of_the_gradient)
BINARIZATION = holds(binarization.binarization_error)
EXTRACTION = holds(binarization.extraction_cost)
MEAN_OF_LOSSES = holds(mean_loss.mean_of_convex_losses)
REGRET = holds(strongly_convex_sgd.strongly_convex_regret)
CONVEX_REGRET = holds(convex_sgd.convex_regret)
PENALTY = holds(penalty.penalty_pulls)


@given(vector(GRADIENT), vector(SCORE), RATE, SHARPNESS, SHARPNESS)
def test_lemma_4_2_error_bound(gradient, scores, rate, hard, soft):
    assert ERROR_BOUND(gradient=gradient, scores=scores, rate=rate, hard=hard, soft=soft)


@given(vector(GRADIENT), vector(SCORE), RATE, SHARPNESS, SHARPNESS)
def test_sharp_error_bound(gradient, scores, rate, hard, soft):
    assert SHARP_ERROR_BOUND(gradient=gradient, scores=scores, rate=rate, hard=hard, soft=soft)


@given(GRADIENT, SCORE, RATE, SHARPNESS, SHARPNESS)
def test_lemma_4_2_update(gradient, scores, rate, hard, soft):
    assert UPDATE(gradient=gradient, scores=scores, rate=rate, hard=hard, soft=soft)


@given(GRADIENT, SCORE, RATE, SHARPNESS, SHARPNESS)
def test_lemma_4_2_mean_value(gradient, scores, rate, hard, soft):
    assert MEAN_VALUE(gradient=gradient, scores=scores, rate=rate, hard=hard, soft=soft)


@given(GRADIENT, SCORE, RATE, SHARPNESS, SHARPNESS)
def test_the_error_has_the_sign_of_the_gradient(gradient, scores, rate, hard, soft):
    assert SIGN(gradient=gradient, scores=scores, rate=rate, hard=hard, soft=soft)


@given(vector(GRADIENT), vector(SCORE), RATE, SHARPNESS, SHARPNESS)
def test_lemma_b_2(gradient, scores, rate, hard, soft):
    assert SMALLER_BOUND(gradient=gradient, scores=scores, rate=rate, hard=hard, soft=soft)


@given(st.floats(-20, 20), SHARPNESS)
def test_binarization_error(scores, sharpness):
    assert BINARIZATION(scores=scores, sharpness=sharpness)


@given(vector(SCORE), vector(st.floats(-2, 2)), st.floats(0, 10), SHARPNESS)
def test_extraction_cost(scores, center, lipschitz, hard):
    assert EXTRACTION(scores=scores, center=center, lipschitz=lipschitz, hard=hard)


@given(
    vector(vector(st.floats(-9, 9)), 4),
    vector(vector(st.floats(-9, 9)), 4),
    vector(IN_CUBE),
    vector(IN_CUBE),
    IN_CUBE,
)
def test_lemma_4_1(slopes, directions, point, other, share):
    assert MEAN_OF_LOSSES(slopes=slopes, directions=directions, point=point, other=other, share=share)


@given(
    vector(st.floats(0.01, 100), 1),
    vector(vector(st.floats(-3, 3), 1), projected_sgd.LONGEST),
    vector(IN_CUBE, 1),
    st.floats(1, 10),
    st.integers(1, projected_sgd.LONGEST),
)
def test_strongly_convex_regret(curvature, slopes, start, scale, steps):
    assert REGRET(curvature=curvature, slopes=slopes, start=start, scale=scale, steps=steps)


@given(
    vector(st.floats(0, 10), 1),
    vector(vector(st.floats(0.1, 3) | st.floats(-3, -0.1), 1), projected_sgd.LONGEST),
    vector(IN_CUBE, 1),
    st.floats(0.1, 10),
    st.integers(1, projected_sgd.LONGEST),
)
def test_convex_regret(curvature, slopes, start, scale, steps):
    assert CONVEX_REGRET(curvature=curvature, slopes=slopes, start=start, scale=scale, steps=steps)


@given(st.floats(-10, 10), st.floats(0, 1), st.floats(0, 1), st.sampled_from([-1.0, 0.0]))
def test_the_penalty_pulls(value, rate, strength, target):
    assert PENALTY(value=value, rate=rate, strength=strength, target=target)


def test_the_sharp_constant_is_attained_in_the_limit():
    def ratio(position, product):
        hard = jnp.sqrt(product)
        sides = step_error.sharp_error_bound(
            jnp.ones(1), jnp.full(1, position) / hard, 1e-9, hard, product / hard
        )
        return sides.left / sides.right

    with float64():
        products = jnp.asarray([4.0, 16.0, 32.0, 250.0])
        small, saturated = (jax.jit(jax.vmap(ratio, (None, 0)))(at, products) for at in (0.0, 50.0))
    np.testing.assert_allclose(np.maximum(small, saturated), 1, atol=1e-6)


def test_theorem_4_3_fails_for_every_c_once_there_are_enough_steps():
    c = jnp.asarray([0.01, 0.1, 1.0])
    sides = jax.jit(jax.vmap(lambda c: convergence.theorem_4_3(1.0, 0.0, 4.0, 4.0, c, 0.0, 300_000)))(c)
    assert (sides.left > 10 * sides.right).all()


@pytest.mark.long
def test_theorem_4_3_fails_where_the_error_that_its_proof_takes_to_be_0_on_average_is_0():
    w = algorithm_1.WITHOUT_ERROR
    with float64():
        gradient = 2 * jax.nn.sigmoid(8.0 * w) - 1
        assert float(gradient) == pytest.approx(algorithm_1.SLOPE_WITHOUT_ERROR, rel=1e-15)
        factor, rounding = two_temperature.update_factor(gradient, jnp.asarray(w), 0.001, 8.0, 8.0)
        assert abs(factor - 1) <= rounding
        sides = convergence.theorem_4_3(0.0, 1.0, 8.0, 8.0, 0.001, w, 1)
    # By hand: the gap is about 1/8, and C = 5, so the bound is 26/2000.
    assert float(sides.left) == pytest.approx(0.1246, abs=1e-4)
    assert float(sides.right) == pytest.approx(0.013, rel=1e-12)


def test_the_mean_slope_is_a_difference_quotient():
    with float64():
        quotient = (jax.nn.sigmoid(250.0 * 0.02) - jax.nn.sigmoid(250.0 * 0.01)) / 0.01
        assert float(two_temperature.mean_slope(0.02, 0.01, 250.0)) == pytest.approx(
            float(quotient), rel=1e-12
        )

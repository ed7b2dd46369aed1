"""The regret of the two-temperature step: at cases that hypothesis finds, and of runs that were recorded."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import in_float64

from jaxarch import float64
from jaxarch.lab.claims import CLAIMS, regret
from jaxarch.lab.claims.checks.drawn import compiled
from jaxarch.lab.claims.checks.two_temperature import trajectory
from jaxarch.lab.claims.new_results.regret import STEPS, convergence
from jaxarch.theory import mirror

CONVERGENCE = jax.jit(convergence)
THEOREM = CLAIMS["two-temperature.convergence"].checks[0]
HARD, SOFT, RATE = 10.0, 2.0, 0.05


@given(
    steps=st.integers(1, STEPS),
    gradients=st.lists(st.floats(-1, 1), min_size=2 * STEPS, max_size=2 * STEPS),
    positions=st.lists(st.floats(-30, 30), min_size=2, max_size=2),
    comparator=st.lists(st.floats(0, 1), min_size=2, max_size=2),
    hard=st.floats(0.1, 1000),
    ratio=st.floats(1e-3, 1),
    reach=st.floats(1e-4, 20),
)
def test_the_convergence_theorem_holds_for_any_vectors(steps, gradients, positions, comparator, **numbers):
    gradients = np.reshape(np.asarray(gradients), (STEPS, 2))
    gradients[0, 0] = 1.0
    with float64():
        sides = CONVERGENCE(
            jnp.asarray(float(steps)),
            gradients,
            positions=np.asarray(positions),
            comparator=np.asarray(comparator),
            **{name: jnp.asarray(value) for name, value in numbers.items()},
        )
    assert sides.holds
    assert np.isfinite(sides.right)


def test_the_theorem_s_cases_hardly_need_the_allowance_for_rounding():
    points = np.random.default_rng(0).random((1000, THEOREM.cube.dimension))

    def without_rounding(**case):
        return THEOREM.statement(**case)._replace(rounding=0.0)

    with float64():
        assert compiled(without_rounding, THEOREM.cube, 1000)(points).holds.mean() > 0.99


@pytest.mark.long
def test_the_theorem_s_cases_include_fast_steps_on_sharp_and_on_equal_temperatures():
    case = jax.vmap(THEOREM.cube)(np.random.default_rng(0).random((1000, THEOREM.cube.dimension)))
    assert (case["ratio"] == 1).mean() > 0.2
    assert ((case["ratio"] < 0.01) & (case["reach"] > 1)).mean() > 0.05
    assert ((case["ratio"] < 0.1) & (case["reach"] < 0.01)).mean() > 0.05


# Recorded runs


def recorded(dtype=np.float32, hard=HARD, soft=SOFT, steps=50):
    """A run with vectors that are no gradients of anything."""
    random = np.random.default_rng(0)
    vectors = random.standard_normal((steps, 3)).astype(dtype)
    rates = jnp.full(steps, RATE, dtype)
    scores, gradients = trajectory(
        lambda _, g: g, jnp.asarray([0.0, 0.3, -0.2], dtype), vectors, rates, hard, soft
    )
    return {"scores": scores, "gradients": gradients, "hard": hard, "soft": soft, "rate": RATE}


@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("comparator", [(0.0, 1.0, 0.5), (1.0, 1.0, 1.0)])
def test_the_regret_of_a_recorded_run_is_within_its_bound(comparator, double):
    with in_float64(double):
        run = recorded(np.float64 if double else np.float32)
        sides = regret(comparator=np.asarray(comparator), **run)
        masks = jax.nn.sigmoid(HARD * run["scores"][:-1])
        assert sides.holds
        assert abs(sides.left - np.sum(run["gradients"] * (masks - np.asarray(comparator)[None]))) < 1e-4
        assert sides.rounding < (1e-10 if double else 1e-2)


@pytest.mark.long
def test_the_right_side_is_the_two_divergences_and_the_noise():
    with float64():
        run, u = recorded(np.float64), np.asarray([1.0, 0.0, 0.25])
        ends = [mirror.total_divergence(u, run["scores"][at], HARD, SOFT) for at in (0, -1)]
        largest = jnp.max(jnp.abs(run["gradients"]))
        constant = mirror.regret_constant(RATE, HARD, SOFT, gradient_bound=largest)
        noise = RATE * constant * jnp.sum(run["gradients"] ** 2)
        sides = regret(comparator=u, **run)
        np.testing.assert_allclose(sides.right, (ends[0] - ends[1]) / RATE + noise, rtol=1e-12)


def test_the_regret_is_jitted_and_mapped_over_comparators():
    run = recorded()
    sides = jax.jit(jax.vmap(lambda u: regret(comparator=u, **run)))(jnp.eye(3))
    assert sides.holds.shape == (3,)
    assert sides.holds.all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gradients": np.ones((49, 3))}, r"gradients: expected shape \(50, 3\), .* got \(49, 3\)"),
        ({"scores": np.ones(3, np.float32)}, r"scores: .* of shape \(T\+1, d\), got \(3,\)"),
        ({"comparator": np.ones(2)}, r"comparator: expected shape \(3,\), got \(2,\)"),
        ({"comparator": np.full(3, 1.5)}, r"comparator: expected numbers in \[0, 1\]"),
        ({"soft": 20.0}, r"soft: expected at most hard = 10.0"),
        ({"rate": 0.0}, r"rate: expected a positive finite number"),
        ({"rate": 0.06}, r"scores: w_2 is not w_1 - rate g_1 ds_soft\(w_1\)"),
        ({"gradients": -np.ones((50, 3), np.float32)}, r"scores: w_2 is not w_1"),
    ],
)
def test_a_run_that_does_not_fit_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        regret(**{"comparator": np.ones(3), **recorded(), **change})


def test_at_equal_temperatures_a_vertex_is_refused():
    run = recorded(hard=2.0, soft=2.0)
    assert regret(comparator=np.full(3, 0.5), **run).holds
    with pytest.raises(ValueError, match=r"comparator: expected numbers in \(0, 1\)"):
        regret(comparator=np.ones(3), **run)


@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
def test_of_a_run_that_diverged_the_bound_is_said_not_to_be_defined(double):
    with in_float64(double):
        ones = jnp.ones((3, 1))
        scores, _ = trajectory(lambda _, g: g, jnp.zeros(1), ones, jnp.full(3, 200.0), 50.0, 5.0)
        run = {"gradients": ones, "comparator": jnp.ones(1), "hard": 50.0, "soft": 5.0, "rate": 200.0}
        with pytest.raises(ValueError, match=r"the bound is not finite, .* did not diverge") as error:
            regret(scores, **run)
        assert "\n" not in str(error.value)
        # What is traced cannot be refused: it is no number, and does not hold.
        assert not jax.jit(regret)(scores, **run).holds

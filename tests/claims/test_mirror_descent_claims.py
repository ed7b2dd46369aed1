"""The theorems on the two-temperature step, at cases that hypothesis finds and on runs of one's own."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxarch.claims import CLAIMS, inside_bound, regret
from jaxarch.claims.core import compiled
from jaxarch.claims.mirror_descent import STEPS, average_iterate, convergence
from jaxarch.claims.own_runs import trajectory
from jaxarch.running.devices import float64
from jaxarch.theory import mirror

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
        sides = jax.jit(convergence)(
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


def test_the_theorem_s_cases_include_fast_steps_on_sharp_and_on_equal_temperatures():
    case = jax.vmap(THEOREM.cube)(np.random.default_rng(0).random((1000, THEOREM.cube.dimension)))
    assert (case["ratio"] == 1).mean() > 0.2
    assert ((case["ratio"] < 0.01) & (case["reach"] > 1)).mean() > 0.05
    assert ((case["ratio"] < 0.1) & (case["reach"] < 0.01)).mean() > 0.05


def test_an_average_iterate_s_bound_is_almost_reached_by_a_linear_loss():
    case = {
        "slopes": (1.0, 0.0),
        "difference": (0.0, 0.0),
        "disagreement": 0.0,
        "bend": 0.0,
        "center": (0.5, 0.5),
        "positions": (0.0, 0.0),
        "comparator": (0.0, 0.0),
        "beyond": 1.0,
        "hard": 50.0,
        "ratio": 1e-3,
        "reach": 1e-3,
        "steps": 3.0,
    }
    with float64():
        sides = jax.jit(average_iterate)(**{name: jnp.asarray(value) for name, value in case.items()})
        assert sides.holds
        assert sides.left / sides.right > 0.999


# A run of one's own


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
    with jax.enable_x64(double):
        run = recorded(np.float64 if double else np.float32)
        sides = regret(comparator=np.asarray(comparator), **run)
        masks = jax.nn.sigmoid(HARD * run["scores"][:-1])
        assert sides.holds
        assert abs(sides.left - np.sum(run["gradients"] * (masks - np.asarray(comparator)[None]))) < 1e-4
        assert sides.rounding < (1e-10 if double else 1e-2)


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


# A loss of one's own


@dataclasses.dataclass(frozen=True)
class Logistic:
    """Logistic regression with masked weights, convex in the mask."""

    sign: float = 1.0

    def __call__(self, mask, example):
        logit = example["x"] @ mask
        return self.sign * (jax.nn.softplus(logit) - example["y"] * logit)


RANDOM = np.random.default_rng(1)
X = RANDOM.standard_normal((20, 4))
DATA = {"x": X, "y": (X @ np.asarray([2.0, 0.0, -1.0, 1.0]) > 0).astype(float)}
OWN = {
    "loss": Logistic(),
    "data": DATA,
    "scores": np.zeros(4),
    "hard": 10.0,
    "soft": 2.0,
    "steps": 200,
    "runs": 8,
}


def test_runs_on_a_convex_loss_stay_inside_the_bound_at_the_prescribed_rate():
    found = inside_bound(**OWN)
    assert 0 < found.ratio < 1
    assert found.ratio == found.gap / found.bound
    assert found.gaps.shape == (8,)
    assert found.gap == found.gaps.mean()
    with float64():
        distance = mirror.total_divergence(found.comparator, np.zeros(4), 10.0, 2.0)
        settings = {"gradient_bound": found.gradient_bound, "steps": 200}
        rate = mirror.prescribed_rate(distance, 10.0, 2.0, **settings)
        bound = mirror.average_iterate_bound(distance, rate, 10.0, 2.0, **settings)
    np.testing.assert_allclose([found.rate, found.bound], [rate, bound], rtol=1e-12)


def test_the_comparator_is_where_the_loss_is_least():
    found = inside_bound(**OWN)

    def mean(v):
        return np.mean([Logistic()(v, {"x": x, "y": y}) for x, y in zip(DATA["x"], DATA["y"], strict=True)])

    for other in RANDOM.random((20, 4)):
        assert mean(found.comparator) <= mean(other) + 1e-6


def test_a_linear_loss_uses_up_nearly_all_of_the_bound():
    """Small steps from the middle to where the run ends, hard and soft far apart: the bound is sharp."""
    data, steps, rate = np.ones((1, 1)), 5, 0.1
    end = np.float64(0.5)
    with float64():
        scores, _ = trajectory(
            lambda _, g: g, jnp.zeros(1), np.ones((steps, 1)), jnp.full(steps, rate), 1.0, 1e-3
        )
        end = jax.nn.sigmoid(scores[-1])
    found = inside_bound(
        lambda v, z: z @ v, data, np.zeros(1), 1.0, 1e-3, steps=steps, rate=rate, comparator=end, runs=1
    )
    assert 0.999 < found.ratio <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": Logistic(-1.0)}, r"loss: expected one that is convex .* midway between v = .* and v = "),
        ({"loss": lambda v, z: v}, r"loss: expected a real scalar of a mask and one example"),
        ({"rate": -1.0}, "rate: expected a positive finite number"),
        ({"soft": 11.0}, r"soft: expected at most hard"),
        ({"scores": np.zeros((2, 2))}, r"scores: expected shape \(d,\), got \(2, 2\)"),
        ({"comparator": np.ones(3)}, r"comparator: expected shape \(4,\), got \(3,\)"),
        ({"soft": 10.0, "comparator": np.ones(4)}, r"comparator: expected numbers in \(0, 1\)"),
        ({"gradient_bound": 0.01}, r"gradient_bound: expected at least the largest norm .* got 0.01"),
        ({"data": {"x": X, "y": np.ones(3)}}, r"data: expected arrays with one leading axis"),
        ({"comparator": np.full(4, 0.5)}, "rate: none is prescribed where the comparator is v_1 itself"),
        ({"steps": 0}, "steps: expected an integer of at least 1"),
    ],
)
def test_what_inside_bound_cannot_use_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message) as error:
        inside_bound(**OWN | change)
    assert "\n" not in str(error.value)

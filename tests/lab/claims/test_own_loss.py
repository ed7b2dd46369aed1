"""How far inside the bounds of the library's theorems runs on losses are."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxarch import float64
from jaxarch.lab.claims import inside_bound
from jaxarch.lab.claims.checks.two_temperature import trajectory
from jaxarch.lab.claims.new_results.iterates import average_iterate
from jaxarch.theory import mirror


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


@pytest.fixture(scope="module")
def found():
    """What runs on logistic regression give."""
    return inside_bound(**OWN)


@pytest.mark.long
def test_runs_on_a_convex_loss_stay_inside_the_bound_at_the_prescribed_rate(found):
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


@pytest.mark.long
def test_the_comparator_is_where_the_loss_is_least(found):
    masks = np.stack([found.comparator, *RANDOM.random((20, 4))])
    losses = jax.jit(jax.vmap(jax.vmap(Logistic(), (None, 0)), (0, None)))(masks, DATA)
    assert np.argmin(losses.mean(axis=1)) == 0


@pytest.mark.long
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
        ({"loss": Logistic(-1.0)}, r"loss: expected a loss that is convex .* midway between v = .* and v = "),
        ({"loss": lambda v, z: v}, r"loss: expected a real scalar for a mask and one example"),
        ({"rate": -1.0}, "rate: expected a positive finite number"),
        ({"soft": 11.0}, r"soft: expected at most hard"),
        ({"scores": np.zeros((2, 2))}, r"scores: expected shape \(d,\), got \(2, 2\)"),
        ({"comparator": np.ones(3)}, r"comparator: expected shape \(4,\), got \(3,\)"),
        ({"soft": 10.0, "comparator": np.ones(4)}, r"comparator: expected numbers in \(0, 1\)"),
        ({"gradient_bound": 0.01}, r"gradient_bound: expected at least .*, the largest norm .* got 0.01"),
        ({"data": {"x": X, "y": np.ones(3)}}, r"data: expected arrays with one leading axis of examples"),
        (
            {"comparator": np.full(4, 0.5)},
            "rate: missing; no rate is prescribed where the comparator is v_1 itself",
        ),
        ({"steps": 0}, "steps: expected an integer of at least 1"),
    ],
)
def test_what_inside_bound_cannot_use_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message) as error:
        inside_bound(**OWN | change)
    assert "\n" not in str(error.value)

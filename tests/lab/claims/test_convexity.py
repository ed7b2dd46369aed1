import jax
import jax.numpy as jnp
import pytest

from jaxarch import ArgumentError
from jaxarch.lab.claims import CLAIMS, check_convex, convexity_gap
from jaxarch.models import signed_output_loss, tanh_network

NETWORK = tanh_network((1, 1, 1))


def network_loss(v):
    outputs, _ = NETWORK.apply({"w1": v[:1, None], "w2": v[1:, None]}, {}, jnp.ones((1, 1)), None)
    return signed_output_loss(outputs, jnp.zeros(1))[0]


@pytest.mark.parametrize("printed", CLAIMS["D.assumption-1"].printed, ids=["label 0", "label 1"])
def test_the_loss_of_the_counterexample_is_that_of_the_network_that_is_trained(printed):
    def loss(v):
        params = {"w1": v[:1, None], "w2": v[1:, None]}
        outputs, _ = NETWORK.apply(params, {}, jnp.full((1, 1), printed.case["x"]), None)
        return signed_output_loss(outputs, jnp.full(1, printed.case["y"]))[0]

    u, v = (jnp.asarray(printed.case[name]) for name in ("first", "second"))
    sides = printed.evaluate()
    assert float(loss((u + v) / 2)) == pytest.approx(sides.left, rel=1e-6)
    assert float((loss(u) + loss(v)) / 2) == pytest.approx(sides.right, rel=1e-6)


def logistic_loss(v):
    logits = jnp.asarray([[3.0, -4.0], [1.0, 2.0]]) @ v
    return jnp.sum(jax.nn.softplus(logits) - jnp.asarray([1.0, 0.0]) * logits)


def test_the_network_of_the_paper_is_not_convex():
    found = convexity_gap(network_loss, 2)
    ends = (network_loss(jnp.asarray(found.first)) + network_loss(jnp.asarray(found.second))) / 2
    middle = network_loss(jnp.asarray((found.first + found.second) / 2))
    assert not found.convex
    assert found.gap == pytest.approx(float(middle - ends), abs=1e-6)
    # The gradient finds more than the corners (0, 1) and (1, 0), which random pairs contain.
    assert found.gap >= 0.8130 - 0.6931


def test_the_gradient_finds_what_drawing_does_not():
    def narrow_bump(v):
        return jnp.sum((v - 0.3) ** 2) + 0.5 * jnp.exp(-50 * jnp.sum((v - 0.8) ** 2))

    assert convexity_gap(narrow_bump, 4).gap > convexity_gap(narrow_bump, 4, steps=0).gap + 0.05


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_convex_loss_passes_in_its_own_precision(dtype):
    check_convex(lambda v: logistic_loss(v.astype(dtype)), 2)


def test_a_linear_loss_has_no_gap_but_rounding():
    found = convexity_gap(jnp.sum, 64)
    assert found.convex
    assert found.rounding < 1e-11


def test_the_error_names_two_points():
    with pytest.raises(
        ArgumentError, match=r"^loss: .* convex .* v = \[.*\] and v = \[.*\] it exceeds .* by 0\.\d+"
    ):
        check_convex(lambda v: -jnp.sum((v - 0.5) ** 2), 3)


@pytest.mark.parametrize(
    ("loss", "dimension", "message"),
    [
        (lambda v: v, 2, "loss: expected a real scalar"),
        (lambda v: jnp.sum(jnp.log(v)), 2, "loss: expected finite values"),
        (jnp.sum, 0, "dimension: expected an integer"),
    ],
)
def test_what_is_no_loss_is_said(loss, dimension, message):
    with pytest.raises(ArgumentError, match=message):
        convexity_gap(loss, dimension)

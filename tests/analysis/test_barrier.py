"""The barrier is the rise of the loss along a line, above the line between the losses of its ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compilations
from hypothesis import given
from hypothesis import strategies as st

import jaxarch
from jaxarch import ArgumentError
from jaxarch.analysis import barrier


def hill(params):
    return (params["w"] ** 2 - 1) ** 2


def squares(params, batch):
    x, y = batch
    return ((x @ params["w"] - y) ** 2).mean()


def at(*values, dtype=jnp.float32):
    return [{"w": jnp.asarray(value, dtype)} for value in values]


@pytest.mark.long
@given(st.integers(0, 2**16), st.sampled_from([3, 11]))
def test_a_convex_loss_has_no_barrier(seed, points):
    draw = np.random.default_rng(seed)
    one, other = at(*draw.normal(size=(2, 3)))
    batch = draw.normal(size=(5, 3)), draw.normal(size=5)
    found = barrier(squares, one, other, [batch], points=points)
    assert 0 <= found.height <= 1e-5 * max(found.losses)


def test_it_rises_above_the_line_between_unequal_ends():
    found = barrier(hill, *at(-1.0, 2.0), points=4)  # at -1, 0, 1, 2: losses 0, 1, 0, 9
    assert found.losses.tolist() == [0, 1, 0, 9]
    assert found.height == 0  # the line from 0 to 9 is at 3 where the loss is 1
    assert barrier(hill, *at(-1.0, 1.0), points=3).height == 1


def test_batches_of_unequal_sizes_count_by_their_examples():
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(7, 3)), draw.normal(size=7)
    pair = at(*draw.normal(size=(2, 3)))
    parts = barrier(squares, *pair, [(x[:4], y[:4]), (x[4:6], y[4:6]), (x[6:], y[6:])])
    assert np.allclose(parts.losses, barrier(squares, *pair, [(x, y)]).losses, rtol=1e-5)


def test_many_pairs_are_one_call_and_it_can_be_differentiated():
    pairs = [jnp.array([-1.0, -2.0]), jnp.array([1.0, 0.5])]
    many = jax.vmap(lambda a, b: barrier(hill, {"w": a}, {"w": b}))(*pairs)
    each = [barrier(hill, *at(*pair)).height for pair in zip(*pairs, strict=True)]
    assert np.allclose(many.height, each, rtol=1e-6)
    assert many.losses.shape == (2, 25)
    slope = jax.grad(lambda a: barrier(hill, {"w": a}, {"w": jnp.float32(1)}, points=3).height)(
        jnp.float32(-1)
    )
    assert np.isfinite(slope)


def test_integers_that_differ_under_vmap_leave_no_loss():
    def height(first, second):
        return barrier(lambda params: params["w"] * params["n"], first, second, points=3).height

    one, other = ({"w": jnp.ones(2), "n": jnp.array(n)} for n in ([1, 2], [1, 3]))
    assert np.array_equal(jax.vmap(height)(one, other), [0, np.nan], equal_nan=True)


def test_trees_of_other_containers_are_matched_by_path():
    found = barrier(lambda params: (params[0] ** 2 - 1) ** 2, [jnp.float32(-1)], (jnp.float32(1),), points=3)
    assert found.height == 1


def test_a_loss_that_is_nan_between_the_ends_is_not_hidden():
    assert np.isnan(
        barrier(lambda params: jnp.log(jnp.abs(params["w"])) * 0, *at(-1.0, 1.0), points=3).height
    )


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_the_ends_are_the_networks_themselves_and_keep_their_dtype(dtype):
    seen = []

    def loss(params):
        seen.append(params["w"].dtype)
        return params["w"].astype(jnp.float32).sum()

    pair = at([0.1, 3.0], [1e-3, 7.0], dtype=dtype)
    found = barrier(loss, *pair)
    assert set(seen) == {pair[0]["w"].dtype}
    assert [found.losses[0], found.losses[-1]] == [loss(params) for params in pair]


def test_a_second_equal_call_compiles_nothing():
    pair, others = at(-1.0, 1.0), at(-2.0, 1.0)
    barrier(hill, *pair)
    with compilations() as seen:
        barrier(hill, *others)
    assert seen == []


COUNTED = [{"w": jnp.ones(2), "steps": jnp.int32(steps)} for steps in (1, 2)]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (
            (hill, *at(0.0), *at(0.0, dtype=jnp.bfloat16)),
            {},
            "second: expected 'w' of float32, like the first's",
        ),
        ((hill, jaxarch.Network({"w": 0.0}), *at(0.0)), {}, "first: expected parameters, got a Network"),
        ((lambda params: None, *at(0.0, 1.0)), {}, "loss: expected one real number"),
        ((lambda params: float(params["w"]), *at(0.0, 1.0)), {}, "loss: it cannot be traced"),
        (
            (squares, *at([0.0], [1.0]), [(jnp.ones((3, 1)), jnp.ones(3)), (jnp.ones((0, 1)), jnp.ones(0))]),
            {},
            "batches: expected",
        ),
        ((hill, *at(0.0, [0.0])), {}, r"second: expected 'w' with the first's shape \(\), got \(1,\)"),
        ((hill, *COUNTED), {}, "second: 'steps' has no values between"),
        ((hill, *at(0.0, 1.0)), {"points": 2}, "points: expected an integer of at least 3"),
        (
            (lambda params: params["w"], *at([0.0], [1.0])),
            {},
            r"loss: expected one real number, got shapes \(1,\)",
        ),
        ((squares, *at(0.0, 1.0), []), {}, "batches: expected at least one example, got none"),
        ((squares, *at(0.0, 1.0), jnp.ones(3)), {}, "batches: expected a list of batches"),
        (
            (squares, *at(0.0, 1.0), [(jnp.ones(3), jnp.ones(2))]),
            {},
            "batches: expected at least 1 examples along the first axis",
        ),
        ((squares, *at(0.0, 1.0)), {}, r"loss: expected a function \(params\)"),
    ],
)
def test_what_has_no_barrier_is_refused(arguments, options, message):
    with pytest.raises(ArgumentError, match=message):
        barrier(*arguments, **options)

"""Two traces of a function that differ in the number of examples alone, each computed on its own."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxarch
from jaxarch import ArgumentError
from jaxarch.structure import Groups
from jaxarch.structure._batches import differ_in_examples

W = jnp.ones((4, 4))


def recurrent(x):
    carry = jnp.zeros((len(x), 4))
    return lax.scan(lambda h, row: (jnp.tanh(h @ W + row), h), carry, jnp.swapaxes(x, 0, 1))[1]


def image(x):
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, jnp.ones((3, 3, 2, 2)), (1, 1), "SAME", dimension_numbers=numbers)


def looked_up(whole, sizes):
    return lax.gather(whole, jnp.zeros(1, int), lax.GatherDimensionNumbers((0, 1), (), (0,)), sizes)


def written(whole, part):
    return lax.scatter(whole, jnp.zeros(1, int), part, lax.ScatterDimensionNumbers((0, 1), (), (0,)))


APART = {
    "layers": (lambda x: jax.nn.elu(x @ W) @ W, (4,)),
    "a softmax": (jax.nn.softmax, (4,)),
    "flattened": (lambda x: x.reshape(len(x), -1) @ jnp.ones((8, 3)), (2, 4)),
    "positions as examples": (lambda x: (x.reshape(-1, 4) @ W).reshape(len(x), 2, 4), (2, 4)),
    "a class token": (lambda x: jnp.concatenate([jnp.broadcast_to(W[0], (len(x), 1, 4)), x], 1), (3, 4)),
    "a class token, tiled": (lambda x: jnp.concatenate([jnp.tile(W[:1], (len(x), 1, 1)), x], 1), (3, 4)),
    "repeated values": (lambda x: jnp.tile(x, (1, 2)), (4,)),
    "a recurrent network": (recurrent, (3, 4)),
    "a convolution": (image, (5, 5, 2)),
    "pooling": (lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2), (1, 2), "VALID"), (4,)),
    "a lookup": (lambda x: W[x.astype(int)], (2,)),
    "parts of each example": (lambda x: x[:, jnp.array([2, 0])], (3, 4)),
    "parts of each example, written": (lambda x: x.at[:, jnp.array([2, 0])].add(x[:, :2]), (3, 4)),
    "a lookup that fills with NaN": (lambda x: jnp.take(W, x.astype(int), axis=0), (2,)),
}
TOGETHER = {
    "a mean of examples": (lambda x: x - x.mean(0, keepdims=True), (4,)),
    "the number of an example": (lambda x: jnp.where(jnp.arange(len(x))[:, None] < 5, x, 0), (4,)),
    "the number of examples": (lambda x: x * len(x), (4,)),
    "the first example": (lambda x: x + jnp.broadcast_to(x[:1], x.shape), (4,)),
    "the first half": (lambda x: x.reshape(-1, 4)[: len(x)], (2, 4)),
    "another order": (lambda x: x.T.reshape(x.shape), (4,)),
    "products of examples": (lambda x: (x @ x.T) @ x, (4,)),
    "a loop over examples": (lambda x: lax.scan(lambda h, r: (h + r, h), jnp.zeros(4), x)[1], (4,)),
    "a window over examples": (lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 1), (1, 1), "SAME"), (4,)),
    "a shift": (lambda x: jnp.roll(x, 1, 0), (4,)),
    "examples looked up": (lambda x: x[jnp.arange(len(x))], (4,)),
    "the first rows of a table": (lambda x: x * jnp.ones((100, 4))[: len(x), jnp.arange(4)], (4,)),
    "repeated examples": (lambda x: jnp.tile(x, (2, 1)), (4,)),
    "the first half, looked up": (lambda x: looked_up(x.reshape(-1, 4), (len(x), 4)), (2, 4)),
    "the first half, at a computed place": (
        lambda x: lax.dynamic_slice(x.reshape(-1, 4), (jnp.argmax(W[0]), 0), (len(x), 4)),
        (2, 4),
    ),
    "more places for more examples": (lambda x: x[:, : len(x) + 1 : 2].sum(1), (12,)),
    "the first half, written": (lambda x: written(x.reshape(-1, 4), x[:, 0]), (2, 4)),
    "an example that is always the same, written": (lambda x: written(x, W[:1]), (4,)),
    "examples along another axis, written": (lambda x: written(x, x[:, :1].reshape(1, -1)), (100,)),
    "the first example, written": (lambda x: x.at[0, : len(x)].set(x[:, 0]), (100,)),
    "sorted": (lambda x: jnp.sort(x, 0), (4,)),
    "until all": (lambda x: lax.while_loop(lambda h: h.sum() > 100, lambda h: h * 0.5, x), (4,)),
}


def traces(function, shape, *counts):
    return [jax.make_jaxpr(function)(jnp.ones((count, *shape))) for count in counts]


@pytest.mark.parametrize("name", [*APART, *TOGETHER])
def test_examples_that_meet_are_told_from_those_that_do_not(name):
    function, shape = (APART | TOGETHER)[name]
    for counts in ((2, 3), (8, 64), (9, 4)):
        assert differ_in_examples(*traces(function, shape, *counts)) == (name in APART)


def test_one_example_of_one_and_one_of_many_are_not_the_same_part():
    def function(x):
        numbers = lax.GatherDimensionNumbers((0, 1), (), (0,))
        return x * lax.gather(x, jnp.zeros(1, int), numbers, (1, 4), mode="fill", fill_value=0)

    assert not differ_in_examples(*traces(function, (4,), 1, 3))


def test_a_branch_for_many_examples_is_another_program():
    def function(x):
        return x if len(x) < 5 else x * 0

    assert differ_in_examples(*traces(function, (4,), 2, 3))
    assert not differ_in_examples(*traces(function, (4,), 2, 8))


def first_rows(params, x):
    """The first hidden neuron is read for the sixth example and those after it alone."""
    hidden = jax.nn.relu(x @ params["in"])
    many = (jnp.arange(len(x)) > 4)[:, None] * jnp.eye(3)[:1]
    return (hidden * (many + jnp.eye(3)[1:2])) @ params["out"]


def test_units_that_later_examples_need_are_seen_at_their_batch_size():
    params = {"in": jnp.ones((2, 3)), "out": jnp.ones((3, 2))}
    small = jaxarch.shrink(first_rows, params, jnp.ones((2, 2)))
    assert sum(small.kept["in[1]"]) == 1
    with pytest.raises(ArgumentError, match="other units do nothing"):
        small.function(small.tree, jnp.ones((8, 2)))


def test_a_new_batch_size_costs_no_analysis(monkeypatch):
    params = {"in": jnp.ones((2, 3)), "out": jnp.ones((3, 2)).at[0].set(0.0)}
    small = jaxarch.shrink(lambda p, x: jnp.tanh(x @ p["in"]) @ p["out"], params, jnp.ones((1, 2)))
    monkeypatch.setattr(Groups, "fold", lambda *_: pytest.fail("it is analysed again"))
    assert small.function(small.tree, jnp.ones((64, 2))).shape == (64, 2)

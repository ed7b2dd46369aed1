"""Branches of residual blocks: their end, their products, and blocks that are not their shortcut."""

import jax
import jax.numpy as jnp
import pytest

from jaxarch.structure import axis_groups
from jaxarch.structure._branches import find_branch
from jaxarch.structure._products import find_products

X = jnp.ones((2, 4))
SQUARE, ROW = jnp.ones((4, 4)), jnp.ones((1, 4))


def groups_of(function):
    tree = {"in": SQUARE, "out": SQUARE, "bias": ROW, "scale": ROW, "other": SQUARE}
    return axis_groups(function, tree, X)


def branch(function, block=("in", "out", "bias", "scale")):
    """Return what a block with these leaves adds in a function of them."""
    groups = groups_of(function)
    return find_branch(groups._program, [*groups._leaves], block)


def rms(x):
    return x / jnp.sqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)


SCALED = {
    "a kernel and its bias": (
        lambda p, x: x + (jax.nn.gelu(x @ p["in"]) @ p["out"] + p["bias"]),
        {"out", "bias"},
    ),
    "a norm in front": (lambda p, x: x + (rms(x) * p["scale"]) @ p["in"], {"in"}),
    "a norm at the end": (lambda p, x: x + rms(x @ p["in"]) * p["scale"], {"scale"}),
    "a rectifier at the end": (lambda p, x: x + jax.nn.relu(x @ p["in"]), {"in"}),
    "a rectifier behind the sum": (lambda p, x: jax.nn.relu(x @ p["in"] + x), {"in"}),
    "a difference": (lambda p, x: x - x @ p["in"], {"in"}),
    "a call": (lambda p, x: jax.jit(lambda x: x + x @ p["in"])(x), {"in"}),
    "a checkpoint": (lambda p, x: jax.checkpoint(lambda p, x: x + x @ p["in"])(p, x), {"in"}),
    "two branches": (
        lambda p, x: (lambda x: x + jnp.tanh(x) @ p["out"])(x + x @ p["in"]),
        {"in", "out"},
    ),
    "a choice between the branch and 0": (
        lambda p, x: x + jnp.where(x > 0, x @ p["in"], 0.0),
        {"in"},
    ),
    "a quotient of what the inputs alone make": (lambda p, x: x + (x @ p["in"]) / (x * 1e-3), {"in"}),
    "a quotient by a power of 0": (
        lambda p, x: x + (x @ p["in"]) / jax.lax.integer_pow(p["scale"], 0),
        {"in"},
    ),
    "attention whose scores a mask joins": (
        lambda p, x: x + jax.nn.softmax((x @ p["in"]) @ x.T + x @ x.T) @ (x @ p["out"]),
        {"out"},
    ),
}


@pytest.mark.parametrize(("function", "scales"), SCALED.values(), ids=SCALED)
def test_a_block_ends_in_leaves_that_multiply_it(function, scales):
    found = branch(function)
    assert found is not None
    assert found.scales == scales


@pytest.mark.parametrize("name", sorted(SCALED.keys() - {"two branches", "a rectifier behind the sum"}))
def test_the_branch_is_multiplied_with_these_leaves(name):
    function, scales = SCALED[name]
    keys = jax.random.split(jax.random.key(0), 4)
    tree = {
        "in": jax.random.normal(keys[0], (4, 4)),
        "out": jax.random.normal(keys[1], (4, 4)),
        "bias": jax.random.normal(keys[2], (1, 4)),
        "scale": jnp.ones((1, 4)),
    }
    x = jax.random.normal(keys[3], (3, 4))

    def times(s):
        return function({path: leaf * s if path in scales else leaf for path, leaf in tree.items()}, x)

    assert jnp.allclose(times(0.0), x, atol=1e-6)
    assert jnp.allclose(times(0.25) - x, 0.25 * (times(1.0) - x), atol=1e-4)


NOT_SHORTCUTS = {
    "no skip": lambda p, x: jax.nn.relu(x @ p["in"]),
    "a skip with leaves": lambda p, x: x * p["scale"] + jax.nn.relu(x @ p["in"]),
    "a norm behind the sum": lambda p, x: (x + x @ p["in"]) * p["scale"],
    "a branch that saturates": lambda p, x: x + jnp.tanh(x @ p["in"]),
    "a softmax": lambda p, x: x + jax.nn.softmax(x @ p["in"]),
    "a constant beside the branch": lambda p, x: x + (x @ p["in"] + p["other"][:1]),
    "a kernel used twice": lambda p, x: x + (x @ p["in"]) @ p["in"],
    "a leaf of the head": lambda p, x: (x + x @ p["in"]) @ p["in"],
    "a quotient": lambda p, x: x + x / (1 + x @ p["in"]),
    "rounded": lambda p, x: x + jnp.asarray(jnp.asarray(x @ p["in"], jnp.int32), jnp.float32),
    "a quotient by a leaf": lambda p, x: x + (x @ p["in"]) / p["scale"],
    "a temperature": lambda p, x: x + jax.nn.softmax(x @ x.T / p["scale"][0, 0]) @ (x @ p["in"]),
    "an inverse": lambda p, x: x + (p["scale"] ** -1 * x) @ p["in"],
    "an inverse root": lambda p, x: x + (jax.lax.rsqrt(jnp.square(p["scale"])) * x) @ p["in"],
    "a root of any power": lambda p, x: x + (jnp.abs(p["scale"]) ** -0.5 * x) @ p["in"],
    "a remainder": lambda p, x: x + jax.lax.rem(x, p["scale"] + jnp.zeros_like(x)) @ p["in"],
    "a sum with a kernel used twice": lambda p, x: x + (x @ p["in"] + jnp.tanh(x @ p["in"]) @ p["out"]),
    "a logarithm": lambda p, x: x + (jnp.log(jnp.abs(p["scale"])) * x) @ p["in"],
    "a kernel over its norm": lambda p, x: x + p["scale"] * (x @ (p["in"] / jnp.linalg.norm(p["in"]))),
    "a deviation": lambda p, x: x + (x @ p["in"]) / (1 + (x @ p["in"]).std(-1, keepdims=True)) * p["scale"],
    "a bias used twice": lambda p, x: x + p["bias"] * (x @ p["other"] + p["bias"]),
    "a kernel of scores and values": lambda p, x: (
        x + jax.nn.softmax(x @ p["in"] @ x.T + x @ x.T) @ (x @ p["in"])
    ),
    "a kernel in a branch of a branch": lambda p, x: x + (x + x @ p["in"]) @ p["in"],
    "a branch, and it within another one": lambda p, x: (
        (x + x @ p["in"]) + jnp.tanh(x @ p["other"] + x @ p["in"]) @ p["out"]
    ),
    "a stream of zeros": lambda p, x: 0 * x + x @ p["in"],
    "a difference the other way": lambda p, x: x @ p["in"] - x,
    "a branch in another one": lambda p, x: (x + x @ p["in"]) + (x @ p["in"]) @ p["out"],
    "a loop": lambda p, x: jax.lax.scan(lambda x, _: (x + x @ p["in"], None), x, None, 2)[0],
    "nothing": lambda p, x: x @ p["other"],
}


@pytest.mark.parametrize("function", NOT_SHORTCUTS.values(), ids=NOT_SHORTCUTS)
def test_a_block_that_is_not_known_to_be_its_shortcut_is_none(function):
    assert branch(function) is None


@pytest.mark.parametrize(("block", "count"), [(("in", "out"), 4), (("out",), 2)])
def test_steps_of_a_branch_are_those_that_read_what_the_block_computes(block, count):
    def attention(p, x):
        x = x @ p["other"]
        weights = jax.nn.softmax((x @ p["in"]) @ x.T)
        return (x + weights @ (x @ p["out"])) @ p["other"]  # The products with `other` are outside.

    groups = groups_of(attention)
    products = find_products(groups._program, dict.fromkeys(groups._leaves))
    found = find_branch(groups._program, [*groups._leaves], block)
    assert sum(id(product.step) in found.steps for product in products.found) == count

"""Small problems on real data, shared by the tests."""

import contextlib
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jaxarch
from jaxarch import float64, natural_order, select
from jaxarch.models import signed_output_loss, tanh_network
from jaxarch.run import begin
from jaxarch.run._training import step

RUNS = 4


@cache
def digits():
    return jaxarch.lab.data.unit_norm(jaxarch.lab.data.load("digits"))


@cache
def task(runs=RUNS):
    return jaxarch.lab.data.two_groups(
        jax.random.key(0),
        digits(),
        (1, 2, 3),
        (4, 5, 6),
        train_per_class=20,
        test_per_class=10,
        seeds=runs,
        orientations=(False,),
    )


@cache
def problem(steps=12, batch_size=20, rate=0.3, runs=RUNS, validation=False, width=64):
    """Network (11) and loss (12) on handwritten digits, each run with a split of its own."""
    data, split = digits(), task(runs)
    return jaxarch.supervised(
        tanh_network((64, width, width)),
        (data.x, data.y),
        loss=signed_output_loss,
        optimizer=optax.sgd(rate),
        steps=steps,
        batch_size=batch_size,
        train=split.train,
        validation=split.test if validation else None,
        per_run={"targets": split.targets},
        gather=jaxarch.lab.data.take_task_rows,
    )


@cache
def problem_in_containers():
    """A small problem whose parameters are in dicts, a list and a tuple, with a bias that no mask covers."""

    def init(key):
        first, second = jax.random.split(key)
        kernels = {
            "first": [{"w": 0.1 * jax.random.normal(first, (6, 8))}],
            "second": (0.1 * jax.random.normal(second, (1, 6)),),
        }
        return {"kernels": kernels, "bias": jnp.zeros((1,))}

    def apply(params, x):
        first, second = jax.tree.leaves(params["kernels"])
        return (jnp.tanh(x @ first.T) @ second.T + params["bias"][None])[:, 0]

    return jaxarch.supervised(
        (init, apply),
        (np.linspace(0, 1, 160, dtype=np.float32).reshape(20, 8), np.arange(20) % 2),
        loss=optax.sigmoid_binary_cross_entropy,
        optimizer=optax.adam(1e-2),
        steps=2,
        validation=np.arange(5),
    )


def linear_problem(net, loss=optax.squared_error):
    """y = 2 x_1 - x_2, for removals to be judged on."""
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    y = (2 * x[:, :1] - x[:, 1:2]).astype(np.float32)
    options = {"loss": loss, "optimizer": optax.sgd(0.1), "steps": 1}
    return jaxarch.supervised(net, (x, y), train=np.arange(20), validation=np.arange(20, 40), **options)


def abstract(network, *sizes, **options):
    """A Flax NNX network of which nothing is drawn."""
    return nnx.eval_shape(lambda: network(*sizes, **options, rngs=nnx.Rngs(0)))


def parameters(network, *sizes, **options):
    """How many a Flax NNX network has."""
    model = abstract(network, *sizes, **options)
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))


def masked_by_default(network, *sizes, **options):
    """The paths of what is masked of a Flax NNX network, in natural order."""
    params = nnx.state(abstract(network, *sizes, **options), nnx.Param)
    return sorted(jaxarch.named_leaves(select(params)), key=natural_order)


def temporaries(transform, problem, networks):
    """The bytes that the program of a transform needs beside arguments and results, for all runs at once."""

    def every(networks):
        return jax.vmap(lambda network: transform(jax.random.key(0), problem, network))(networks)

    return jax.jit(every).lower(networks).compile().memory_analysis().temp_size_in_bytes


def straight(weights, slopes, rate=1.0, steps=1):
    """A problem whose gradients are what one writes: lists by name, and `sum slopes o params` as its loss."""

    def init(key):
        return {name: jax.numpy.float32(leaf) for name, leaf in weights.items()}, {}

    def loss(params, state, batch, key):
        return sum((params[name] * jax.numpy.float32(slope)).sum() for name, slope in slopes.items()), state

    return jaxarch.Problem(init, loss, np.zeros(1), jaxarch.Descent(optax.sgd(rate), steps=steps))


def descent_of(training, problem):
    """The state before every step and after the last one, each leaf with a leading axis, and the losses."""

    key = jax.random.key(0)

    def one(carry, index):
        after, loss = step(training, key, problem, carry, index)
        return after, (carry.state, loss)

    steps = jnp.arange(training.on(problem).descent.steps + 1)
    found, losses = jax.jit(lambda: jax.lax.scan(one, begin(training, key, problem, None), steps)[1])()
    return found, losses[:-1]


def in_float64(enabled=True):
    """A context in which JAX computes in float64, if it is enabled."""
    return float64() if enabled else contextlib.nullcontext()


def keys(runs=RUNS):
    return jax.random.split(jax.random.key(1), runs)


class Interrupted(Exception):
    """What ends a fit in its middle."""


def interrupt_when(found):
    """A `progress` that ends a fit at the first border of which something holds."""

    def progress(border):
        if found(border):
            raise Interrupted

    return progress


def interrupt_at(step):
    return interrupt_when(lambda border: border.step == step)


OTHER_STRUCTURES = [
    (
        {"w": np.ones((3, 2), np.float32)},
        r"leaf 'w' of .* has shape \(2, 3\), dtype float32; expected \(3, 2\)",
    ),
    ({"w": jax.ShapeDtypeStruct((2, 3), jax.numpy.bfloat16)}, "leaf 'w' .* expected .* bfloat16"),
    ({"v": np.ones((2, 3))}, "has no leaf 'v'"),
    ({"w": np.ones((2, 3)), "x": np.ones(1)}, "has no leaf 'x'"),
    ({}, "has an unknown leaf 'w'"),
]
"""What a file that has `w`, 2 x 3 numbers of float32, is not for, and what is said of it."""


def same(tree, other):
    """Whether two pytrees hold the same bits."""
    leaves, others = jax.tree.leaves(tree), jax.tree.leaves(other)
    return len(leaves) == len(others) and all(
        np.array_equal(np.asarray(a), np.asarray(b), equal_nan=np.asarray(a).dtype.kind == "f")
        for a, b in zip(leaves, others, strict=True)
    )


def close(tree, other, tolerance=1e-5):
    """Whether two pytrees hold the same numbers to a tolerance."""
    leaves, others = jax.tree.leaves(tree), jax.tree.leaves(other)
    return len(leaves) == len(others) and all(
        np.allclose(
            np.asarray(a, float), np.asarray(b, float), rtol=tolerance, atol=tolerance, equal_nan=True
        )
        for a, b in zip(leaves, others, strict=True)
    )

"""Every search on a model in bfloat16, where JAX refuses to promote dtypes by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from methods import IN_JAX, METHODS, strategy_of
from small import digits, keys

import jaxarch

SIZES = {"w0": (8, 6), "w1": (6, 6), "w2": (6, 1)}
SEARCHES = [name for name in IN_JAX if METHODS[name].parent in ("any", "binary")]


def init(key):
    of_leaves = zip(jax.random.split(key, len(SIZES)), SIZES.items(), strict=True)
    return {path: jax.random.normal(of, shape, jnp.bfloat16) for of, (path, shape) in of_leaves}


def apply(params, x):
    # Saliencies pass parameters in float32.
    for leaf in params.values():
        x = jnp.tanh(x.astype(leaf.dtype) @ leaf)
    return x[:, 0]


@pytest.fixture(scope="module")
def problem():
    return jaxarch.supervised(
        (init, apply),
        (digits().x[:60, 18:26], np.where(digits().y[:60] >= 5, 1, -1)),
        loss=lambda outputs, y: jnp.square(outputs - y.astype(outputs.dtype)),
        optimizer=optax.sgd(0.1),
        steps=3,
        batch_size=10,
        train=np.arange(40),
        validation=np.arange(40, 60),
    )


@pytest.mark.long
@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_under_strict_promotion_keeps_the_dtypes_of_the_weights(problem, name):
    with jax.numpy_dtype_promotion("strict"):
        network = jax.eval_shape(strategy_of(name), keys()[0], problem)
    assert {leaf.dtype for leaf in jax.tree.leaves(network.params)} == {jnp.dtype(jnp.bfloat16)}


def test_a_loss_in_half_precision_is_summed_over_batches_under_strict_promotion(problem):
    params, state = problem.init(jax.random.key(0))
    with jax.numpy_dtype_promotion("strict"):
        in_batches = problem.objective(params, state, batch_size=15)
    assert in_batches.dtype == jnp.bfloat16
    np.testing.assert_allclose(in_batches, problem.objective(params, state), rtol=0.02)

"""ProsPr as a search: by hand through its steps, what they move and what they do not, and exact sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import keys, problem

import jaxarch
from jaxarch import masks, saliency
from jaxarch.search import prospr

WEIGHTS = np.float32([[1.0, -2.0, 4.0]])
FACTORS = np.float32([[1.0, 3.0, 0.0], [2.0, -1.0, 1.0], [4.0, 2.0, 1.0]])
"""The factors of three batches, one a row."""
KEY = jax.random.key(0)


def squares(params, batch):
    """The loss of a batch a is `sum_i a_i w_i^2 / 2`: a step takes w to `(1 - rate a) w`."""
    return jnp.vdot(batch, params["w"][0] ** 2) / 2


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_it_is_the_derivative_of_the_last_loss_by_a_mask_through_all_steps(momentum):
    # w_1 = c_1 w and w_2 = c_2 w, so that L = a_2 c_2^2 w^2 / 2, and its derivative by m is a_2 c_2^2 w^2.
    first, second, last = FACTORS
    c1 = 1 - 0.5 * first
    c2 = c1 - 0.5 * (second * c1 + momentum * first)
    assert c2.tolist() == ([0.0, -0.75, 0.5] if momentum == 0 else [-0.25, -1.5, 0.5])
    params = {"w": jnp.asarray(WEIGHTS)}
    scores = saliency.prospr(squares, params, FACTORS, optax.sgd(0.5, momentum))
    np.testing.assert_allclose(scores["w"], [last * c2**2 * WEIGHTS[0] ** 2], rtol=1e-6)


def learning(optimizer, dtype=jnp.float32):
    """Products `u w` of two leaves: the loss of a batch is `(u w)^2 / 2`, and u is not masked."""

    def loss(params, state, batch, key):
        return (params["w"][0, 0] * params["u"] * batch.mean()) ** 2 / 2, state

    start = {"w": jnp.full((1, 1), 2.0, dtype), "u": jnp.asarray(1.0, dtype)}
    descent = jaxarch.Descent(optimizer, steps=1)
    return jaxarch.Problem(lambda key: (start, {}), loss, np.ones(2, np.float32), descent)


def scored(problem):
    return jax.jit(prospr(1.0, steps=1, learning_rate=0.25, where="w"))(KEY, problem).info["saliency"]["w"]


@pytest.mark.long
def test_steps_move_the_other_leaves_and_leave_what_the_optimizer_freezes():
    # A step takes (w, u) to (w - u^2 w / 4, u - w^2 u / 4): at (2, 1) to (3/2, 0), where L is flat.
    assert scored(learning(optax.adam(0.1))).item() == 0
    # With u at 1 it takes w to 3 w / 4, and L is (3 w / 4)^2 / 2.
    still = optax.partition(
        {"held": optax.set_to_zero(), "moved": optax.adam(0.1)}, {"w": "moved", "u": "held"}
    )
    np.testing.assert_allclose(scored(learning(still)), (3 / 4 * 2) ** 2)


def test_scores_of_half_precision_are_float32():
    assert scored(learning(optax.sgd(0.1), jnp.bfloat16)).dtype == jnp.float32


@pytest.mark.long
def test_its_batches_are_those_that_training_begins_with():
    made = problem().of_run(0)
    network = jax.jit(prospr(0.5, steps=2, learning_rate=0.3))(keys()[0], made)
    params_key, batch_key, _ = jax.random.split(keys()[0], 3)
    params, state = jax.jit(made.init)(params_key)
    stacked = jax.jit(jax.vmap(lambda step: made.batch(batch_key, step)))(np.arange(3))

    def loss(params, batch):
        return made.loss(params, state, batch, None)[0]

    scores = jax.jit(lambda *given: saliency.prospr(loss, *given, optax.sgd(0.3)))(params, stacked)
    for found, expected in zip(
        jax.tree.leaves(network.info["saliency"]), jax.tree.leaves(scores), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-8)
    size = sum(leaf.size for leaf in jax.tree.leaves(network.mask))
    assert int(masks.connections(network.mask)) == round(0.5 * size)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"densities": 0.0}, r"densities: expected a number in \(0, 1\]"),
        ({"steps": 0}, "steps: expected an integer of at least 1"),
        ({"learning_rate": 0.0}, "learning_rate: expected a positive finite number"),
        ({"momentum": -0.5}, "momentum: expected a finite number of at least 0"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(options, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        prospr(**{"densities": 0.5} | options)


def test_a_last_batch_without_a_step_before_it_is_refused():
    with pytest.raises(jaxarch.ArgumentError, match="batches: expected one for each step, and one more"):
        saliency.prospr(squares, {"w": jnp.asarray(WEIGHTS)}, FACTORS[:1], optax.sgd(0.5))

"""The theorems on the perceptron start, in the library's own model."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxarch
from jaxarch.spectral import feedforward

ROUNDING = 1e-6
"""Reverse mode sums the terms that cancel in another order: what is left is rounding errors of float32."""


def hidden_gradients(activation, widths=(3, 5, 4, 6, 2)):
    model = jaxarch.spectral_network(widths, activation=activation)
    params, state = model.init(jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (7, widths[0]))

    def loss(params):
        return jnp.sum(model.apply(params, state, x, jax.random.key(2))[0] ** 3)

    values = jax.jit(jax.grad(loss))(params)["eigenvalues"]
    return np.array(
        [np.abs(values[f"L{i}"]).max() / np.abs(values[f"L{len(widths)}"]).max() for i in (2, 3, 4)]
    )


@pytest.mark.filterwarnings("ignore::jaxarch.DeadStartWarning")
@pytest.mark.parametrize("activation", [jax.nn.silu, jax.nn.relu, jnp.tanh])
def test_at_the_perceptron_start_no_hidden_layer_but_the_last_has_a_gradient(activation):
    *middle, last = hidden_gradients(activation) > ROUNDING
    assert not any(middle)
    assert last == (activation in (jax.nn.silu, jax.nn.relu))


def test_the_gradient_moves_on_to_the_layer_before_once_the_last_is_recruited():
    phi = [jnp.ones((2, 2)) * (i + 1) + jnp.eye(2) for i in range(4)]
    x = jnp.asarray([0.1, -0.2])

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def output_and_gradients(*hidden):
        return feedforward(phi, [jnp.zeros(2), *hidden, jnp.ones(2)], x, jnp.tanh).sum()

    def gradients(last_hidden):
        output, found = output_and_gradients(jnp.zeros(2), jnp.zeros(2), last_hidden)
        return np.array([np.abs(gradient).max() for gradient in found]) / np.abs(output)

    np.testing.assert_array_equal(gradients(jnp.zeros(2)) > ROUNDING, [False, False])
    np.testing.assert_array_equal(gradients(jnp.full(2, 0.01)) > ROUNDING, [False, True])

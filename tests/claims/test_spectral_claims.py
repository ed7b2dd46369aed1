"""The theorems on spectral networks as properties of networks that hypothesis draws, and the free algebra."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxarch
from jaxarch.claims import spectral, spectral_networks
from jaxarch.claims.free_algebra import Polynomial, linear_in, symbol
from jaxarch.spectral import algebra, feedforward

WIDTHS = st.sampled_from([(1, 1), (1, 2), (1, 1, 1), (2, 1, 3), (1, 2, 1, 2), (2, 3, 1, 2, 1), (1,) * 13])
ENTRIES = st.integers(-9, 9)


@st.composite
def networks(draw):
    """Eigenvectors and eigenvalues of a network, integers of any sizes that shrink to 0."""
    widths = draw(WIDTHS)

    def block(*shape):
        size = int(np.prod(shape))
        return np.array(draw(st.lists(ENTRIES, min_size=size, max_size=size)), object).reshape(shape)

    return {
        "eigenvectors": [block(n, m) for m, n in itertools.pairwise(widths)],
        "eigenvalues": [block(n) for n in widths],
    }


@given(networks())
def test_phi_b_inverse_formula(network):
    assert spectral.inverse_by_powers(**network)
    assert spectral.computed_inverse_by_powers(**network)


@given(networks())
def test_the_blocks_of_the_inverse_and_of_the_powers(network):
    assert spectral.inverse_blocks(**network)
    assert spectral.power_blocks(**network)


@given(networks())
def test_the_blocks_of_the_adjacency(network):
    assert spectral.adjacency_blocks(**network)
    assert spectral.computed_adjacency(**network)
    assert spectral.columns_are_eigenvectors(**network)


@given(networks(), ENTRIES)
def test_a_neuron_is_silent_if_and_only_if_it_shares_its_eigenvalue_with_what_it_is_attached_to(
    network, shift
):
    assert spectral_networks.silent_neurons(**network)
    shifted = [layer + shift for layer in network["eigenvalues"]]
    assert spectral_networks.silent_neurons(network["eigenvectors"], shifted)


# At the perceptron start, in the library's own model ------------------------------------------------


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

    def gradients(last_hidden):
        def output(*hidden):
            return feedforward(phi, [jnp.zeros(2), *hidden, jnp.ones(2)], x, jnp.tanh).sum()

        found = jax.jit(jax.grad(output, (0, 1)))(jnp.zeros(2), jnp.zeros(2), last_hidden)
        return np.array([np.abs(g).max() for g in found]) / np.abs(
            output(jnp.zeros(2), jnp.zeros(2), last_hidden)
        )

    np.testing.assert_array_equal(gradients(jnp.zeros(2)) > ROUNDING, [False, False])
    np.testing.assert_array_equal(gradients(jnp.full(2, 0.01)) > ROUNDING, [False, True])


# The free algebra ------------------------------------------------------------------------------------


@st.composite
def polynomials(draw):
    words = st.lists(st.sampled_from("xyz"), max_size=2).map(tuple)
    return Polynomial(draw(st.dictionaries(words, st.integers(-3, 3), max_size=3)))


def evaluated(value, matrices):
    """A polynomial of matrices."""
    total = np.zeros((2, 2), int)
    for word, coefficient in value.terms.items():
        product = np.eye(2, dtype=int)
        for letter in word:
            product = product @ matrices[letter]
        total = total + coefficient * product
    return total


@given(polynomials(), polynomials(), st.integers(-3, 3), st.integers(0, 1000))
def test_words_calculate_as_the_matrices_that_are_put_in_their_place(first, second, number, seed):
    random = np.random.default_rng(seed)
    matrices = {letter: random.integers(-3, 4, (2, 2)) for letter in "xyz"}
    a, b, one = evaluated(first, matrices), evaluated(second, matrices), np.eye(2, dtype=int)
    for words, expected in (
        (first + second, a + b),
        (first - second, a - b),
        (first * second, a @ b),
        (number * first, number * a),
        (number + first, number * one + a),
        (number - first, number * one - a),
    ):
        np.testing.assert_array_equal(evaluated(words, matrices), expected)


def test_symbols_do_not_commute():
    x, y = symbol("x", 1, 1), symbol("y", 1, 1)
    assert not spectral.same(x @ y, y @ x)
    assert spectral.same((x + y) @ (x + y), x @ x + x @ y + y @ x + y @ y)


def test_the_linear_part_is_the_derivative_at_0():
    x, q = symbol("x", 1, 1), symbol("q", 1, 1)
    assert spectral.same(linear_in("q")((1 + q) @ x @ (1 + q)), q @ x + x @ q)


def test_a_formal_proof_is_of_the_library_s_own_code(monkeypatch):
    network = spectral.symbols(3)
    assert spectral.inverse_blocks(**network)
    monkeypatch.setattr(algebra, "_binomial", lambda n, r: 1)
    assert not spectral.inverse_blocks(**network)

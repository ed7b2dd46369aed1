"""The theorems on spectral networks as properties of networks that hypothesis draws."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxarch.lab.claims.checks.exact_networks import symbols
from jaxarch.lab.claims.new_results import gated_form, gated_neurons
from jaxarch.lab.claims.spectral import adjacency, inverse, neurons
from jaxarch.spectral import algebra

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
    assert inverse.inverse_by_powers(**network)
    assert inverse.computed_inverse_by_powers(**network)


@given(networks())
def test_the_blocks_of_the_inverse_and_of_the_powers(network):
    assert inverse.inverse_blocks(**network)
    assert inverse.power_blocks(**network)


@given(networks())
def test_the_blocks_of_the_adjacency(network):
    assert adjacency.adjacency_blocks(**network)
    assert adjacency.computed_adjacency(**network)
    assert adjacency.columns_are_eigenvectors(**network)


@given(networks(), ENTRIES)
def test_a_neuron_is_silent_if_and_only_if_it_shares_its_eigenvalue_with_what_it_is_attached_to(
    network, shift
):
    assert neurons.silent_neurons(**network)
    shifted = [layer + shift for layer in network["eigenvalues"]]
    assert neurons.silent_neurons(network["eigenvectors"], shifted)


def test_a_formal_proof_is_of_the_library_s_own_code(monkeypatch):
    network = symbols(3)
    assert inverse.inverse_blocks(**network)
    monkeypatch.setattr(algebra, "_binomial", lambda n, r: 1)
    assert not inverse.inverse_blocks(**network)


@given(networks())
def test_the_gated_form_has_its_blocks_and_its_spectrum(network):
    assert gated_form.gated_blocks(**network)
    assert gated_form.computed_gated_blocks(**network)
    assert gated_form.spectrum_is_lambda(**network)


@given(networks())
def test_a_gated_neuron_is_silent_if_and_only_if_its_eigenvalue_or_its_row_is_0(network):
    assert gated_neurons.gated_silence(**network)

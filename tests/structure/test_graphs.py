"""Layered networks as graphs, and their Laplacian spectra, against SciPy and by hand."""

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csgraph

from jaxarch.structure import graphs

SEEDS = st.integers(0, 10**6)
WIDTHS = st.sampled_from([(4, 4, 4), (5, 3, 2), (6, 4, 3, 1)])
LOOPS = st.booleans()

spectrum = jax.jit(graphs.spectrum, static_argnames="self_loops")
adjacency = jax.jit(graphs.adjacency, static_argnames="self_loops")


def random_weights(seed, widths, signed=False, density=0.5):
    """Matrices with many zeros, and now and then a unit without connections."""
    random = np.random.default_rng(seed)
    weights = []
    for inputs, outputs in pairwise(widths):
        matrix = random.normal(0, 2, (outputs, inputs)) * (random.random((outputs, inputs)) < density)
        weights.append(np.float32(matrix if signed else np.abs(matrix)))
    return weights


def test_the_adjacency_is_that_of_footnote_14_with_its_last_row_corrected():
    first, second = random_weights(0, (3, 2, 4), density=1.0)
    expected = [
        [np.eye(4), second, np.zeros((4, 3))],
        [second.T, np.eye(2), first],
        [np.zeros((3, 4)), first.T, np.eye(3)],
    ]
    np.testing.assert_array_equal(graphs.adjacency([first, second]), np.block(expected))


def test_the_adjacency_that_footnote_14_prints_is_not_symmetric_and_is_refused():
    first, second = random_weights(0, (3, 3, 3), density=1.0)
    nothing, one = np.zeros((3, 3)), np.eye(3)
    printed = np.block([[one, second, nothing], [second.T, one, first], [first.T, nothing, one]])
    assert (printed != printed.T).any()
    with pytest.raises(ValueError, match="adjacency: expected a symmetric matrix"):
        graphs.normalized_laplacian(printed)


def test_three_units_in_a_row_have_the_spectrum_computed_by_hand():
    chain = [np.ones((1, 1)), np.ones((1, 1))]
    np.testing.assert_allclose(graphs.spectrum(chain), [0, 1 / 2, 7 / 6], atol=1e-6)
    np.testing.assert_allclose(graphs.spectrum(chain, self_loops=False), [0, 1, 2], atol=1e-6)
    negative = [np.ones((1, 1)), -np.ones((1, 1))]
    np.testing.assert_allclose(graphs.spectrum(negative, self_loops=False), [0, 1, 2], atol=1e-6)


def test_a_triangle_of_negative_edges_has_no_eigenvalue_zero():
    triangle = np.eye(3) - np.ones((3, 3))
    eigenvalues = np.linalg.eigvalsh(graphs.normalized_laplacian(triangle))
    np.testing.assert_allclose(eigenvalues, [1 / 2, 1 / 2, 2], atol=1e-6)


@pytest.mark.long
@given(seed=SEEDS, widths=WIDTHS)
def test_without_self_loops_the_laplacian_is_scipy_s_isolated_nodes_included(seed, widths):
    graph = np.asarray(adjacency(random_weights(seed, widths), self_loops=False))
    np.testing.assert_allclose(
        graphs.normalized_laplacian(graph), csgraph.laplacian(graph, normed=True), atol=1e-6
    )


@given(seed=SEEDS, widths=WIDTHS)
def test_with_self_loops_the_eigenvalues_are_those_of_scipy_s_laplacian_relative_to_the_degrees(seed, widths):
    weights = random_weights(seed, widths)
    graph = np.asarray(adjacency(weights), np.float64)
    relative = scipy.linalg.eigvalsh(csgraph.laplacian(graph), np.diag(graph.sum(axis=1)))
    np.testing.assert_allclose(spectrum(weights), relative, atol=1e-5)


@given(seed=SEEDS, widths=WIDTHS, loops=LOOPS, signed=st.booleans())
def test_all_eigenvalues_lie_between_zero_and_two_whatever_the_signs(seed, widths, loops, signed):
    eigenvalues = np.asarray(spectrum(random_weights(seed, widths, signed), self_loops=loops))
    assert (np.diff(eigenvalues) >= 0).all()
    assert eigenvalues[0] >= -1e-5
    assert eigenvalues[-1] <= 2 + 1e-5


@given(seed=SEEDS, widths=WIDTHS, loops=LOOPS)
def test_zero_is_an_eigenvalue_where_no_weight_is_negative(seed, widths, loops):
    eigenvalues = spectrum(random_weights(seed, widths), self_loops=loops)
    assert float(eigenvalues[0]) == pytest.approx(0, abs=1e-5)


@given(seed=SEEDS, widths=WIDTHS, loops=LOOPS)
def test_relabelling_hidden_units_leaves_the_spectrum_as_it_is(seed, widths, loops):
    weights = random_weights(seed, widths, signed=True)
    order = np.random.default_rng(seed).permutation(widths[1])
    relabelled = [weights[0][order], weights[1][:, order], *weights[2:]]
    np.testing.assert_allclose(
        spectrum(weights, self_loops=loops), spectrum(relabelled, self_loops=loops), atol=1e-5
    )


@given(seed=SEEDS, widths=WIDTHS, loops=LOOPS)
def test_flipping_the_signs_around_hidden_units_leaves_the_spectrum_as_it_is(seed, widths, loops):
    weights = random_weights(seed, widths, signed=True)
    signs = np.float32(np.random.default_rng(seed).choice([-1, 1], widths[1]))
    flipped = [signs[:, None] * weights[0], weights[1] * signs[None, :], *weights[2:]]
    np.testing.assert_allclose(
        spectrum(weights, self_loops=loops), spectrum(flipped, self_loops=loops), atol=1e-5
    )


@given(seed=SEEDS, widths=WIDTHS)
def test_without_self_loops_the_spectrum_has_no_scale_and_is_symmetric_but_for_isolated_nodes(seed, widths):
    weights = random_weights(seed, widths)
    eigenvalues = np.asarray(spectrum(weights, self_loops=False))
    scaled = spectrum([5 * matrix for matrix in weights], self_loops=False)
    np.testing.assert_allclose(eigenvalues, scaled, atol=1e-5)
    isolated = int((np.asarray(adjacency(weights, self_loops=False)).sum(axis=1) == 0).sum())
    np.testing.assert_allclose(eigenvalues[isolated:], 2 - eigenvalues[isolated:][::-1], atol=1e-5)


def test_with_self_loops_the_spectrum_changes_with_the_scale_of_the_weights():
    weights = [np.ones((2, 2))] * 2
    assert np.abs(graphs.spectrum(weights) - graphs.spectrum([5 * w for w in weights])).max() > 0.1


@pytest.mark.parametrize("loops", [True, False])
def test_a_network_without_connections_has_only_the_eigenvalue_zero(loops):
    assert graphs.spectrum([np.zeros((3, 2)), np.zeros((2, 3))], self_loops=loops).tolist() == [0] * 7


@pytest.mark.long
@pytest.mark.parametrize("loops", [True, False])
def test_vmap_over_runs_equals_a_loop_and_a_failed_run_spoils_no_other(loops):
    runs = [random_weights(seed, (5, 3, 2)) for seed in range(4)]
    runs[1][0][0, 0] = np.nan
    runs[2][1][0, 0] = np.inf
    stacked = [jnp.stack(matrices) for matrices in zip(*runs, strict=True)]
    mapped = np.asarray(jax.vmap(partial(graphs.spectrum, self_loops=loops))(stacked))
    assert mapped.shape == (4, 10)
    assert np.isnan(mapped[1:3]).all()
    for run in (0, 3):
        np.testing.assert_allclose(mapped[run], graphs.spectrum(runs[run], self_loops=loops), atol=1e-6)


@pytest.mark.parametrize("dtype", [bool, np.int32, np.float16, jnp.bfloat16, np.float64])
def test_masks_and_other_real_numbers_are_computed_in_float32(dtype):
    masks = [matrix > 0 for matrix in random_weights(0, (4, 4, 4))]
    eigenvalues = graphs.spectrum([np.asarray(mask, dtype) for mask in masks])
    assert eigenvalues.dtype == jnp.float32
    np.testing.assert_array_equal(eigenvalues, graphs.spectrum([np.float32(mask) for mask in masks]))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([], "weights: expected at least one matrix, got none"),
        ({"w1": np.ones((2, 2))}, "weights: expected a list of matrices .*, got dict"),
        (np.ones((2, 2, 2)), "weights: expected a list of matrices"),
        ([np.ones((3, 2)), np.ones((2, 4))], r"weights\[1\]: expected 3 columns, .* got shape \(2, 4\)"),
        ([np.ones((2, 2)), np.ones(2)], r"weights\[1\]: expected a matrix, got shape \(2,\)$"),
        ([np.ones((9, 2, 2))], r"weights\[0\]: expected a matrix, got shape \(9, 2, 2\); .* use vmap"),
        ([np.ones((0, 2))], r"weights\[0\]: expected a matrix, got shape \(0, 2\)"),
        ([np.ones((2, 2), complex)], r"weights\[0\]: expected real numbers or a boolean mask, got complex"),
        ([[[1.0, 2.0], [3.0]]], r"weights\[0\]: expected a matrix"),
        (["w1"], r"weights\[0\]: expected a matrix"),
        ([None], r"weights\[0\]: expected a matrix"),
    ],
)
def test_weights_that_are_no_network_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        graphs.spectrum(weights)


def test_an_adjacency_that_is_not_square_is_refused():
    with pytest.raises(ValueError, match="adjacency: expected a square matrix"):
        graphs.normalized_laplacian(np.ones((2, 3)))

"""The algebra of spectral networks: exactly in fractions, and within its bounds in floating point."""

import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxarch.spectral import algebra, error_bounds, unpack

DEPTHS = range(1, 13)


def fractions(random, *shape):
    numerators, denominators = random.integers(-5, 6, shape), random.integers(1, 6, shape)
    return np.vectorize(lambda a, b: Fraction(int(a), int(b)), otypes=[object])(numerators, denominators)


def exact_network(depth, entries=fractions):
    """Random blocks of size 1 to 3."""
    random = np.random.default_rng(depth)
    widths = random.integers(1, 4, depth + 1)
    phi = [entries(random, n, m) for m, n in itertools.pairwise(widths)]
    return phi, [entries(random, n) for n in widths]


def integers(random, *shape):
    return random.integers(-5, 6, shape).astype(object)


def identity(matrix):
    return np.eye(len(matrix), dtype=object)


def same(first, second):
    return first.shape == second.shape and bool((first == second).all())


@pytest.mark.parametrize("entries", [fractions, integers])
@pytest.mark.parametrize("depth", DEPTHS)
def test_all_inverses_are_the_inverse_exactly(depth, entries):
    vectors, _ = exact_network(depth, entries)
    phi = algebra.dense(algebra.eigenvector_blocks(vectors))
    for inverse in (
        algebra.inverse_by_powers,
        algebra.inverse_by_blocks,
        algebra.inverse_by_substitution,
    ):
        found = algebra.dense(inverse(vectors))
        assert same(phi @ found, identity(phi))
        assert same(found @ phi, identity(phi))


@pytest.mark.parametrize("depth", DEPTHS)
def test_phi_minus_the_identity_is_nilpotent_of_no_lower_order(depth):
    vectors = [np.full_like(phi, 1) for phi in exact_network(depth, integers)[0]]
    nilpotent = algebra.dense(algebra.eigenvector_blocks(vectors))
    nilpotent = nilpotent - identity(nilpotent)
    power = nilpotent
    for _ in range(depth - 1):
        power = power @ nilpotent
    assert power.any()
    assert not (power @ nilpotent).any()


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_blocks_of_powers_are_those_of_repeated_products(depth):
    vectors, _ = exact_network(depth, integers)
    phi = algebra.dense(algebra.eigenvector_blocks(vectors))
    inverse = algebra.dense(algebra.inverse_by_blocks(vectors))
    upwards = downwards = identity(phi)
    for n in range(depth + 3):
        assert same(algebra.dense(algebra.power(vectors, n)), upwards)
        assert same(algebra.dense(algebra.power(vectors, -n)), downwards)
        upwards, downwards = upwards @ phi, downwards @ inverse


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_adjacency_blocks_are_those_of_phi_lambda_phi_inverse_exactly(depth):
    vectors, values = exact_network(depth)
    phi = algebra.dense(algebra.eigenvector_blocks(vectors))
    spectrum = algebra.dense(algebra.eigenvalue_blocks(values))
    adjacency = algebra.dense(algebra.adjacency(vectors, values))
    assert same(adjacency, phi @ spectrum @ algebra.dense(algebra.inverse_by_blocks(vectors)))
    # The columns of Phi are eigenvectors, the entries of Lambda eigenvalues.
    assert same(adjacency @ phi, phi @ spectrum)


@pytest.mark.parametrize("depth", DEPTHS)
def test_substitution_applies_the_inverse_and_the_adjacency_exactly(depth):
    vectors, values = exact_network(depth)
    a = [fractions(np.random.default_rng(1), len(layer), 2) for layer in values]
    inverse = algebra.dense(algebra.inverse_by_blocks(vectors))
    adjacency = algebra.dense(algebra.adjacency(vectors, values))
    assert same(np.concatenate(algebra.substitute(vectors, a)), inverse @ np.concatenate(a))
    assert same(np.concatenate(algebra.apply_adjacency(vectors, values, a)), adjacency @ np.concatenate(a))


def test_one_block_is_inverted_by_2_minus_phi():
    phi = algebra.dense(algebra.eigenvector_blocks(exact_network(1)[0]))
    assert same(phi @ (2 * identity(phi) - phi), identity(phi))


def test_two_blocks_are_inverted_with_plus_3_and_not_with_the_printed_minus_3():
    phi = algebra.dense(algebra.eigenvector_blocks(exact_network(2)[0]))
    assert same(phi @ (phi @ phi - 3 * phi + 3 * identity(phi)), identity(phi))
    assert not same(phi @ (phi @ phi - 3 * phi - 3 * identity(phi)), identity(phi))


@pytest.mark.parametrize("depth", DEPTHS)
def test_one_constant_added_to_all_eigenvalues_changes_no_connection(depth):
    vectors, values = exact_network(depth)
    before = algebra.connections(vectors, values)
    after = algebra.connections(vectors, [layer + Fraction(7, 3) for layer in values])
    assert all(same(before[key], after[key]) for key in before)
    one_alone = algebra.connections(vectors, [*values[:-1], values[-1] + 1])
    assert not all(same(before[key], one_alone[key]) for key in before)


# Floating point --------------------------------------------------------------------------------------


def float_network(depth, width, scale, dtype, seed):
    random = np.random.default_rng(seed)
    widths = random.integers(1, width + 1, depth + 1)
    return [(scale * random.normal(size=(n, m))).astype(dtype) for m, n in itertools.pairwise(widths)]


def excess(found, vectors, bounds):
    """The largest error in units of its bound, against blocks in extended precision."""
    exact = algebra.inverse_by_blocks([phi.astype(np.longdouble) for phi in vectors])
    errors = {key: np.abs(found[key] - exact[key]) for key in exact}
    if any(errors[key][bounds[key] == 0].any() for key in exact):
        return np.inf
    return max(float((errors[key] / np.where(errors[key] > 0, bounds[key], 1)).max()) for key in exact)


@pytest.mark.long
@given(
    depth=st.sampled_from([1, 2, 3, 8, 16]),
    width=st.sampled_from([1, 4, 9]),
    scale=st.sampled_from([0.1, 1.0, 30.0]),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 1000),
)
def test_both_formulas_keep_to_their_error_bounds(depth, width, scale, dtype, seed):
    if dtype is np.float32 and scale > 1:
        depth = min(depth, 8)  # beyond, float32 overflows
    vectors = float_network(depth, width, scale, dtype, seed)
    by_powers, by_blocks = (
        error_bounds.inverse_by_powers_error(vectors),
        error_bounds.inverse_by_blocks_error(vectors),
    )
    assert excess(algebra.inverse_by_powers(vectors), vectors, by_powers) <= 1
    assert excess(algebra.inverse_by_blocks(vectors), vectors, by_blocks) <= 1
    assert excess(algebra.inverse_by_substitution(vectors), vectors, by_blocks) <= 1


def test_the_formula_of_powers_is_no_algorithm():
    vectors = float_network(16, 8, 0.5, np.float32, 0)
    bounds = error_bounds.inverse_by_blocks_error(vectors)
    assert excess(algebra.inverse_by_blocks(vectors), vectors, bounds) <= 1
    assert excess(algebra.inverse_by_powers(vectors), vectors, bounds) > 1000


def test_a_bound_is_infinite_where_the_dtype_is_too_coarse_for_one():
    vectors = [jnp.ones((300, 300), jnp.bfloat16)] * 2
    assert np.isinf(error_bounds.inverse_by_blocks_error(vectors)[3, 1]).all()


def test_jax_arrays_go_in_and_come_out_in_their_dtype():
    dtype = jnp.bfloat16
    vectors = [jnp.ones((1, 2), dtype), jnp.ones((3, 1), dtype)]
    values = [jnp.ones(n, dtype) for n in (2, 1, 3)]

    @jax.jit
    def matrices(vectors, values):
        inverses = (algebra.inverse_by_powers, algebra.inverse_by_blocks, algebra.inverse_by_substitution)
        return [algebra.dense(f(vectors)) for f in inverses] + [
            algebra.dense(algebra.adjacency(vectors, values))
        ]

    for matrix in matrices(vectors, values):
        assert isinstance(matrix, jax.Array)
        assert matrix.dtype == dtype


def test_coefficients_beyond_32_bits_are_no_harm():
    power = algebra.power([jnp.ones((1, 1))] * 2, 10**10)
    assert float(power[3, 1][0, 0]) == pytest.approx(10**10 * (10**10 - 1) / 2, rel=1e-6)


def test_the_adjacency_of_a_network_with_frozen_input_eigenvalues_is_traced():
    params = {"eigenvectors": {"phi1": jnp.ones((2, 3))}, "eigenvalues": {"L2": jnp.ones(2)}}
    adjacency = jax.jit(lambda params: algebra.dense(algebra.adjacency(*unpack(params))))(params)
    assert adjacency.shape == (5, 5)
    assert (adjacency[3:, :3] == -1).all()


# Bad input -------------------------------------------------------------------------------------------

PHI = [np.ones((3, 2)), np.ones((1, 3))]


@pytest.mark.parametrize(
    ("vectors", "values", "message"),
    [
        ([], [np.ones(2)], "eigenvectors: expected phi_1, ..., phi_B for at least two layers"),
        ([np.ones((5, 3, 2))], None, "eigenvectors: phi_1 must have shape .* use vmap"),
        ([PHI[0], np.ones((1, 4))], None, "eigenvectors: phi_2 must have 3 columns.*got shape .1, 4."),
        (PHI, [np.ones(2), np.ones(3)], "eigenvalues: expected 3 vectors, one per layer, got 2"),
        (PHI, [np.ones(2), np.ones(4), np.ones(1)], r"eigenvalues: L_2 must have shape \(3,\), got \(4,\)"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(vectors, values, message):
    with pytest.raises(ValueError, match=message):
        if values is None:
            algebra.inverse_by_blocks(vectors)
        else:
            algebra.connections(vectors, values)

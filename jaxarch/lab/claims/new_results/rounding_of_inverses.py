r"""Rounding errors of the formulas for the inverse of Phi_B and of bundles (docs/theory.md).

The formulas are [S] (4.1) and (4.2); the bounds are in `jaxarch.spectral.error_bounds`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.core import Claim, Sides
from jaxarch.lab.claims.checks.cube import Cube, cube, normal
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.spectral import algebra, error_bounds
from jaxarch.spectral.algebra import Blocks, Form


def _relative_errors(
    phi: Sequence[Array], formula: Callable[..., Blocks], bounds: Callable[..., Blocks], factor: float
) -> Sides:
    """Compare the largest error of a formula in float32, in units of its bound, with `factor`."""
    vectors = [block.astype(jnp.float32) for block in phi]
    # Accelerators may by default round the factors of float32 products; the bounds assume that they do not.
    with jax.default_matmul_precision("highest"):
        found, bound = formula(vectors), bounds(vectors)
    reference = [block.astype(jnp.float64) for block in vectors]
    exact, off = algebra.inverse_by_blocks(reference), error_bounds.inverse_by_blocks_error(reference)
    return _in_units(found, bound, exact, off, factor)


def _in_units(found: Blocks, bound: Blocks, exact: Blocks, off: Blocks, factor: float) -> Sides:
    """Compare the largest error of `found`, in units of `bound`, with `factor`; `off` is `exact`'s error."""

    def largest(errors: Blocks) -> Array:
        ratios = [jnp.where(errors[key] > 0, errors[key] / bound[key], 0).max() for key in exact]
        return jnp.stack(ratios).max()

    errors = {key: jnp.abs(found[key].astype(jnp.float64) - exact[key]) for key in exact}
    return Sides(largest(errors), jnp.asarray(factor), largest(off))


def error_of_powers(
    bounds: Callable[..., Blocks] = error_bounds.inverse_by_powers_error, factor: float = 1.0, **phi: Array
) -> Sides:
    """Formula (4.1) in float32 keeps to `factor` times `error_bounds.inverse_by_powers_error`."""
    return _relative_errors(list(phi.values()), algebra.inverse_by_powers, bounds, factor)


def error_of_blocks(factor: float = 1.0, **phi: Array) -> Sides:
    """(4.2) and substitution in float32 keep to `factor` times `error_bounds.inverse_by_blocks_error`."""
    chains, substituted = (
        _relative_errors(list(phi.values()), formula, error_bounds.inverse_by_blocks_error, factor)
        for formula in (algebra.inverse_by_blocks, algebra.inverse_by_substitution)
    )
    return Sides(jnp.maximum(chains.left, substituted.left), chains.right, chains.rounding)


def error_of_bundles(
    factor: float = 1.0, forms: Sequence[Form] = ("eigendecomposition", "gated"), **blocks: Array
) -> Sides:
    """Bundles in float32 keep to `factor` times `error_bounds.connections_error`."""
    phi = [block.astype(jnp.float32) for name, block in blocks.items() if name.startswith("phi")]
    values = [block.astype(jnp.float32) for name, block in blocks.items() if name.startswith("L")]
    wide_phi, wide_values = ([block.astype(jnp.float64) for block in one] for one in (phi, values))
    sides = []
    for form in forms:
        with jax.default_matmul_precision("highest"):
            found = algebra.connections(phi, values, form)
        bound = error_bounds.connections_error(phi, values, form)
        exact = algebra.connections(wide_phi, wide_values, form)
        off = error_bounds.connections_error(wide_phi, wide_values, form)
        sides.append(_in_units(found, bound, exact, off, factor))
    worst = jnp.stack([side.left for side in sides]).max()
    return Sides(worst, sides[0].right, jnp.stack([jnp.asarray(side.rounding) for side in sides]).max())


def float_networks(*widths: int, eigenvalues: bool = False) -> Cube:
    """Return the cases of networks of these widths with normal entries."""
    blocks = {f"phi{i}": normal(1.0, (n, m)) for i, (m, n) in enumerate(itertools.pairwise(widths), 1)}
    values = {f"L{i}": normal(1.0, (n,)) for i, n in enumerate(widths, 1)} if eigenvalues else {}
    return cube(**blocks, **values)


ERROR_OF_POWERS = Claim(
    id="spectral.error-of-powers",
    source="this library; of [S] eq. (4.1)",
    statement="in floating point, sum_i (-1)^i C(B+1, i+1) Phi^i is off by at most gamma_{n+2B+2} sum_i "
    "C(B+1, i+1) |Phi|^i, elementwise, n the number of neurons",
    latex=r"\gamma_{n+2B+2} \sum_{i=0}^{B} \binom{B+1}{i+1} |\Phi_B|^i",
    verdict="holds",
    assumptions="no overflow or underflow; gamma_k = k u / (1 - k u), u the unit roundoff",
    remark="In float32, against float64, whose own error is added. It is not sharp: a term need not meet "
    "all neurons, nor all additions.",
    checks=(
        Inequality(
            error_of_powers,
            float_networks(1, 2, 1, 1),
            {
                "a tenth of it": functools.partial(error_of_powers, factor=0.1),
                "the bound of (4.2)": functools.partial(
                    error_of_powers, bounds=error_bounds.inverse_by_blocks_error
                ),
            },
        ),
    ),
    see=("spectral.error-of-blocks",),
)

ERROR_OF_BLOCKS = Claim(
    id="spectral.error-of-blocks",
    source="this library; of [S] eq. (4.2)",
    statement="in floating point, a chain of products phi_{i-1} ... phi_j is off by at most gamma_K "
    "|phi_{i-1}| ... |phi_j|, elementwise, K the sum of its inner dimensions; so is forward substitution",
    latex=r"\gamma_K \, |\phi_{i-1}| \cdots |\phi_j|",
    verdict="holds",
    assumptions="no overflow or underflow; gamma_k = k u / (1 - k u), u the unit roundoff",
    remark="In float32, against float64, whose own error is added.",
    checks=(
        Inequality(
            error_of_blocks,
            float_networks(2, 1, 2, 1),
            {"3% too small": functools.partial(error_of_blocks, factor=0.97)},
        ),
    ),
)

ERROR_OF_BUNDLES = Claim(
    id="spectral.error-of-bundles",
    source="this library; of [S] eq. (4.3)",
    statement="in floating point, a gated bundle L_i phi_{i-1} ... phi_j, first of all its first product, is "
    "off by at most gamma_{K+1} |L_i| |phi_{i-1}| ... |phi_j|, elementwise, K the sum of the inner "
    "dimensions; one of [S] by gamma_{K+2} |phi_{i-1} L_{i-1} - L_i phi_{i-1}| |phi_{i-2}| ... |phi_j|",
    latex=r"\gamma_{K+1} \, |L_i| |\phi_{i-1}| \cdots |\phi_j|",
    verdict="holds",
    assumptions="no overflow or underflow; gamma_k = k u / (1 - k u), u the unit roundoff",
    remark="In float32, against float64, whose own error is added.",
    checks=(
        Inequality(
            error_of_bundles,
            float_networks(2, 1, 2, 1, eigenvalues=True),
            {"3% too small": functools.partial(error_of_bundles, factor=0.97)},
        ),
    ),
    see=("spectral.error-of-blocks",),
)

CLAIMS = (
    ERROR_OF_POWERS,
    ERROR_OF_BLOCKS,
    ERROR_OF_BUNDLES,
)

r"""How far rounding takes the formulas for the inverse of Phi_B from it (docs/theory.md).

Those are [S] (4.1) and (4.2), the bounds those of `jaxarch.spectral.error_bounds`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.claims.checks.core import Claim, Sides
from jaxarch.claims.checks.cube import Cube, cube, normal
from jaxarch.claims.checks.drawn import Inequality
from jaxarch.spectral import algebra, error_bounds
from jaxarch.spectral.algebra import Blocks


def _relative_errors(
    phi: Sequence[Array], formula: Callable[..., Blocks], bounds: Callable[..., Blocks], factor: float
) -> Sides:
    """The largest error of a formula in float32, in units of its bound."""
    vectors = [block.astype(jnp.float32) for block in phi]
    # All products of float32 numbers are kept in full, on accelerators too.
    with jax.default_matmul_precision("highest"):
        found, bound = formula(vectors), bounds(vectors)
    reference = [block.astype(jnp.float64) for block in vectors]
    exact, off = algebra.inverse_by_blocks(reference), error_bounds.inverse_by_blocks_error(reference)

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


def float_networks(*widths: int) -> Cube:
    """Networks of these widths with normal entries."""
    return cube(**{f"phi{i}": normal(1.0, (n, m)) for i, (m, n) in enumerate(itertools.pairwise(widths), 1)})


ERROR_OF_POWERS = Claim(
    id="spectral.error-of-powers",
    source="this library; of [S] eq. (4.1)",
    statement="in floating point, sum_i (-1)^i C(B+1, i+1) Phi^i is off by at most gamma_{nB+B+2} sum_i "
    "C(B+1, i+1) |Phi|^i, elementwise, n the number of neurons",
    latex=r"\gamma_{nB+B+2} \sum_{i=0}^{B} \binom{B+1}{i+1} |\Phi_B|^i",
    verdict="holds",
    assumptions="no overflow or underflow; gamma_k = k u / (1 - k u), u the unit roundoff",
    remark="In float32, against float64, whose own error is added.",
    checks=(
        Inequality(
            error_of_powers,
            float_networks(1, 2, 1, 1),
            {
                "a twentieth of it": functools.partial(error_of_powers, factor=0.05),
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
            {"10% too small": functools.partial(error_of_blocks, factor=0.9)},
        ),
    ),
)

CLAIMS = (
    ERROR_OF_POWERS,
    ERROR_OF_BLOCKS,
)

r"""Floating-point error bounds for the two formulas of Phi_B^-1, and for bundles.

The bounds are known before computing.

Let `u = eps / 2` be the unit roundoff, and `gamma_k = k u / (1 - k u)`. A sum of k products, computed in any
order, is off by at most `gamma_k` times the sum of their absolute values (N. Higham, Accuracy and Stability
of Numerical Algorithms, section 3.1). The bounds are elementwise. They show why formula (4.1) is not an
algorithm: its terms are large and cancel, and those of (4.2) do not. On accelerators they hold only for
products in full precision: `jax.default_matmul_precision("highest")`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxarch._internal.errors import ArgumentError, is_traced
from jaxarch.spectral.algebra import (
    Blocks,
    Form,
    adjacent,
    check_blocks,
    check_form,
    inner_eigenvalues,
    power,
)

__all__ = ["connections_error", "inverse_by_blocks_error", "inverse_by_powers_error"]


def inverse_by_powers_error(eigenvectors: Sequence[Any]) -> Blocks:
    r"""Bound the error of `inverse_by_powers` by `gamma_{n+2B+2} sum_i C(B+1, i+1) |Phi_B|^i` ([S] 4.1).

    Args:
      eigenvectors: phi_1, ..., phi_B, in the floating-point dtype of the computation; traced only if float64
        is enabled. n is the sum of all widths.

    Returns:
      A bound for every entry, in float64; infinite where `(n + 2B + 2) u >= 1`.

    Example:
      >>> import numpy as np
      >>> from jaxarch.spectral import error_bounds
      >>> eigenvectors = [np.array([[2]], np.float32), np.array([[3]], np.float32)]
      >>> bounds = error_bounds.inverse_by_powers_error(eigenvectors)
      >>> print(f"{bounds[3, 1].item():.2e}")  # 9 roundings of 6, nine times what `inverse_by_blocks` may err
      3.22e-06
    """
    check_blocks(eigenvectors)
    depth, magnitudes = len(eigenvectors), _magnitudes(eigenvectors)
    width = magnitudes[0].shape[1] + sum(phi.shape[0] for phi in magnitudes)
    factor = _gamma(width + 2 * depth + 2, eigenvectors[0].dtype)
    bounds: Blocks = {}
    for i in range(depth + 1):
        for key, block in power(magnitudes, i).items():
            bounds[key] = bounds.get(key, 0.0) + factor * comb(depth + 1, i + 1) * block
    return bounds


def inverse_by_blocks_error(eigenvectors: Sequence[Any]) -> Blocks:
    r"""Bound the error of `inverse_by_blocks` by `gamma_K |phi_{i-1}| ... |phi_j|` ([S] 4.2).

    K is the sum of the inner dimensions. The bound also holds for `inverse_by_substitution`, which multiplies
    the same chains.

    Args:
      eigenvectors: phi_1, ..., phi_B, in the floating-point dtype of the computation; traced only if float64
        is enabled.

    Returns:
      A bound for every entry, in float64: 0 on the diagonal and next to it, where there is no rounding;
      infinite where `K u >= 1`.

    Example:
      >>> import numpy as np
      >>> from jaxarch.spectral import error_bounds
      >>> eigenvectors = [np.array([[2]], np.float32), np.array([[3]], np.float32)]
      >>> bounds = error_bounds.inverse_by_blocks_error(eigenvectors)
      >>> print(f"{bounds[3, 1].item():.2e}", bounds[2, 1])  # one rounding of 6, and none
      3.58e-07 [[0.]]
    """
    check_blocks(eigenvectors)
    dtype, magnitudes = eigenvectors[0].dtype, _magnitudes(eigenvectors)
    return {
        (i, j): _gamma(sum(phi.shape[1] for phi in magnitudes[j : i - 1]), dtype) * abs(chain)
        for (i, j), chain in power(magnitudes, -1).items()
    }


def connections_error(
    eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], form: Form = "eigendecomposition"
) -> Blocks:
    r"""Bound the error of a gated bundle, `connections`, by `gamma_{K+1} |L_i| |phi_{i-1}| ... |phi_j|`.

    K is the sum of the inner dimensions, `N_{j+1} + ... + N_{i-1}`. In the form of [S] the first factor is
    `phi_{i-1} L_{i-1} - L_i phi_{i-1}`. Its absolute value replaces `|L_i| |phi_{i-1}|`, and 2 replaces the
    1.

    Args:
      eigenvectors: phi_1, ..., phi_B, in the floating-point dtype of the computation; traced only if float64
        is enabled.
      eigenvalues: L_1, ..., L_{B+1}, in the same dtype.
      form: `eigendecomposition` or `gated`.

    Returns:
      A bound for every entry of every bundle, in float64; infinite where `(K + 2) u >= 1`, or `(K + 1) u`.

    Example:
      >>> import numpy as np
      >>> from jaxarch.spectral import error_bounds
      >>> eigenvectors = [np.array([[2]], np.float32), np.array([[3]], np.float32)]
      >>> eigenvalues = [np.array([n], np.float32) for n in (0, 5, 7)]
      >>> bounds = error_bounds.connections_error(eigenvectors, eigenvalues, "gated")
      >>> print(f"{bounds[3, 1].item():.2e}", f"{bounds[3, 2].item():.2e}")  # two roundings of 42, one of 21
      5.01e-06 1.25e-06
    """
    check_blocks(eigenvectors, eigenvalues)
    check_form(form)
    dtype, magnitudes, values = eigenvectors[0].dtype, _magnitudes(eigenvectors), _in_float64(eigenvalues)
    inner, first = inner_eigenvalues(values, form), 1 if form == "gated" else 2
    bounds: Blocks = {}
    for i in range(2, len(values) + 1):
        block = abs(adjacent(magnitudes[i - 2], inner[i - 2], values[i - 1]))
        for j in range(i - 1, 0, -1):
            bounds[i, j] = _gamma(first + sum(phi.shape[1] for phi in magnitudes[j : i - 1]), dtype) * block
            if j > 1:
                block = block @ magnitudes[j - 2]
    return bounds


def _magnitudes(eigenvectors: Sequence[Any]) -> list[Any]:
    return [abs(phi) for phi in _in_float64(eigenvectors)]


def _in_float64(arrays: Sequence[Any]) -> list[Any]:
    traced = is_traced(arrays)
    return [array.astype(np.float64) if traced else np.asarray(array, np.float64) for array in arrays]


def _gamma(k: int, dtype: Any) -> float:
    """Return the relative error of k successive roundings."""
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ArgumentError(
            f"eigenvectors: expected the floating-point dtype of the computation, got {dtype}"
        )
    ku = k * float(jnp.finfo(dtype).eps) / 2
    return ku / (1 - ku) if ku < 1 else np.inf

r"""Blocks and spectrum of the adjacency matrix ([S] sections 2 to 4, eq. (4.3), appendix C).

A_B = Phi_B Lambda_B Phi_B^-1
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxarch.lab.claims.checks.core import Claim, Control, Counterexample, Sides
from jaxarch.lab.claims.checks.exact_networks import eye, identity, matrix, same
from jaxarch.spectral import algebra
from jaxarch.spectral.algebra import Blocks


def printed_connections(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], sign: int = -1) -> Blocks:
    """Compute [S] (4.3) literally, with matrices L_i, which need not be diagonal."""
    values = algebra.eigenvalue_blocks(eigenvalues)
    blocks = {}
    for i in range(2, len(eigenvalues) + 1):
        phi = eigenvectors[i - 2]
        block = phi @ values[i - 1, i - 1] - values[i, i] @ phi
        blocks[i, i - 1] = block
        for j in range(i - 2, 0, -1):
            block = block @ eigenvectors[j - 1]
            blocks[i, j] = sign ** (i - 1 - j) * block
    return blocks


def printed_adjacency(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], sign: int = -1) -> Any:
    """Compute A_B by (4.3), with the eigenvalues on its diagonal (C.3)."""
    below = printed_connections(eigenvectors, eigenvalues, sign)
    return algebra.dense({**algebra.eigenvalue_blocks(eigenvalues), **below})


def adjacency_blocks(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], sign: int = -1) -> bool:
    """The blocks of [S] (4.3), (C.3) are the blocks of `Phi_B Lambda_B Phi_B^-1`."""
    spectrum = algebra.dense(algebra.eigenvalue_blocks(eigenvalues))
    product = matrix(eigenvectors) @ spectrum @ algebra.dense(algebra.inverse_by_substitution(eigenvectors))
    return same(product, printed_adjacency(eigenvectors, eigenvalues, sign))


def computed_adjacency(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any]) -> bool:
    """`algebra.adjacency` and `algebra.apply_adjacency` compute the printed blocks."""
    printed = printed_adjacency(eigenvectors, eigenvalues)
    columns = np.split(eye(printed), np.cumsum([len(values) for values in eigenvalues])[:-1])
    applied = np.concatenate(algebra.apply_adjacency(eigenvectors, eigenvalues, columns))
    return same(printed, algebra.dense(algebra.adjacency(eigenvectors, eigenvalues))) and same(
        printed, applied
    )


def columns_are_eigenvectors(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any]) -> bool:
    """`A_B Phi_B = Phi_B Lambda_B`."""
    phi, spectrum = matrix(eigenvectors), algebra.dense(algebra.eigenvalue_blocks(eigenvalues))
    return same(printed_adjacency(eigenvectors, eigenvalues) @ phi, phi @ spectrum)


def _rows_are_eigenvectors(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any]) -> bool:
    phi, spectrum = matrix(eigenvectors), algebra.dense(algebra.eigenvalue_blocks(eigenvalues))
    return same(phi @ printed_adjacency(eigenvectors, eigenvalues), spectrum @ phi)


def shift_changes_nothing(
    eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], unshifted: int = 0
) -> bool:
    """`Lambda + I` has the W_ij of Lambda; the first `unshifted` layers are left as they are."""
    shifted = [*eigenvalues[:unshifted], *(values + 1 for values in eigenvalues[unshifted:])]
    before, after = (printed_connections(eigenvectors, values) for values in (eigenvalues, shifted))
    return all(same(before[key], after[key]) for key in before)


ADJACENCY_BLOCKS = Claim(
    id="S.adjacency-blocks",
    source="[S] eq. (3.1) to (3.3), (4.3), (C.1) to (C.6); section 2 at B = 1",
    statement="below the diagonal, A_B = Phi_B Lambda_B Phi_B^-1 has W_ij = (-1)^(i-1-j) (phi_{i-1} L_{i-1} "
    "- L_i phi_{i-1}) phi_{i-2} ... phi_j; on it, L_i",
    latex=r"W_{ij} = (-1)^{i-1-j} (\phi_{i-1} L_{i-1} - L_i \phi_{i-1}) \phi_{i-2} \cdots \phi_j",
    verdict="holds",
    remark="The L_i need not be diagonal.",
    checks=identity(
        adjacency_blocks,
        {"without the signs": functools.partial(adjacency_blocks, sign=1)},
        computed_adjacency,
    ),
)

SPECTRUM = Claim(
    id="S.spectrum",
    source="[S] sections 2 and 4",
    statement="A_B Phi_B = Phi_B Lambda_B: the entries of Lambda_B are the eigenvalues of A_B, with "
    "multiplicities, and the columns of Phi_B its eigenvectors",
    latex=r"A_B \Phi_B = \Phi_B \Lambda_B",
    verdict="holds",
    remark="All eigenvalues are real, and A_B is diagonalisable, whatever the parameters: adjacency matrices "
    "of feed-forward networks without self-loops are nilpotent and so are none of these, but for W = 0.",
    checks=identity(columns_are_eigenvectors, {"rows for columns": _rows_are_eigenvectors}),
)

SHIFT = Claim(
    id="S.shift",
    source="follows from [S] eq. (4.3)",
    statement="one constant added to all eigenvalues changes no W_ij",
    latex=r"W_{ij}(\Lambda + c I) = W_{ij}(\Lambda)",
    verdict="holds",
    remark="So under the feed-forward rule no size of the eigenvalues alone says how non-linear a network "
    "is, as [S] appendix E takes that of L_1 and L_2 to do; those of one layer must be held, as L_1 = 0 is.",
    checks=identity(
        shift_changes_nothing, {"not to L_1": functools.partial(shift_changes_nothing, unshifted=1)}
    ),
)


def determinant_at_the_perceptron_start(weights: tuple[float, ...], eigenvalue: float = 0.0) -> Sides:
    """`0 < |det A_B|` at L_1 = ... = L_B = 0, L_{B+1} = I, one neuron a layer, phi_i = `weights[i - 1]`.

    `eigenvalue` takes the place of 0.
    """
    vectors = [jnp.full((1, 1), weight) for weight in weights]
    values = [jnp.full(1, eigenvalue)] * len(weights) + [jnp.ones(1)]
    determinant = jnp.linalg.det(algebra.dense(algebra.adjacency(vectors, values)))
    return Sides(jnp.asarray(1e-30), jnp.abs(determinant))


PARABOLIC = Claim(
    id="S.parabolic",
    source="[S] section 4, after eq. (4.3)",
    statement="A_B belongs to the complement, in GL(N), of the parabolic subgroup",
    latex=r"A_B \in \mathrm{GL}(N, \mathbb{R}) \setminus P",
    verdict="refuted",
    remark="A_B is in GL(N) only if no eigenvalue is 0, and all but the last layer's are at the authors' own "
    "start. If it is, it is block lower triangular, and these matrices are themselves a parabolic subgroup, "
    "the stabiliser of a flag: A_B is in that one, and in the complement of the upper triangular one as soon "
    "as any W_ij is not 0.",
    printed=(Counterexample(determinant_at_the_perceptron_start, {"weights": (1.0,)}),),
    controls=(Control(determinant_at_the_perceptron_start, {"weights": (1.0,), "eigenvalue": 0.5}),),
    see=("S.spectrum",),
)

CLAIMS = (
    ADJACENCY_BLOCKS,
    SPECTRUM,
    SHIFT,
    PARABOLIC,
)

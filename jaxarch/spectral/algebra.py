r"""The algebra of spectral networks ([S] sections 2 to 4, appendices A to D), for any depth and any widths.

A network of B + 1 layers of N_1, ..., N_{B+1} neurons is one square matrix, `A_B = Phi_B Lambda_B Phi_B^-1`.
Its eigenvectors and eigenvalues are the parameters:

    Phi_B = | I                  |    Lambda_B = | L_1                   |
            | phi_1  I           |               |      L_2              |
            |        ...  ...    |               |           ...         |
            |          phi_B  I  |               |               L_{B+1} |

This is the form of [S], the eigendecomposition. The gated form is this library's: `A'_B = Lambda_B Phi_B^-1`,
with the same parameters. Its spectrum is also Lambda_B, but the columns of Phi_B are not its eigenvectors. A
bundle contains only the eigenvalues of the layer that it leads to. Functions that depend on it take a `form`.

The argument `eigenvectors` is the sequence phi_1, ..., phi_B of matrices of shape (N_{i+1}, N_i).
`eigenvalues` is the sequence L_1, ..., L_{B+1} of vectors of shape (N_i,). The functions use operators only.
Inputs and outputs are JAX and NumPy arrays of any dtype; NumPy arrays of dtype `object` that hold integers or
`fractions.Fraction` are computed exactly. Block matrices are `Blocks`; layers are counted from 1, as in [S].

Choose the inverse by its use. `substitute` multiplies `Phi_B^-1` with something, which is all that a network
needs. `inverse_by_blocks` returns its blocks. `inverse_by_powers`, formula (4.1), is only for proofs: its
terms grow like binomial coefficients and cancel. In float32 at 16 blocks it may have no correct digit left
(see `error_bounds`).

[S] Peri, Chicchi, Fanelli and Giambagli, Spectral Architecture Search for Neural Network Models (SPARCS).
"""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Sequence
from math import comb
from types import NoneType
from typing import Any, Literal, get_args

import numpy as np

from jaxarch._internal.errors import ArgumentError, check_choice, check_list, check_mapping, is_numeric, shown

__all__ = [
    "Blocks",
    "Form",
    "adjacency",
    "adjacent",
    "apply_adjacency",
    "connections",
    "dense",
    "eigenvalue_blocks",
    "eigenvector_blocks",
    "inverse_by_blocks",
    "inverse_by_powers",
    "inverse_by_substitution",
    "power",
    "product",
    "substitute",
]

Form = Literal["eigendecomposition", "gated"]
"""`A_B = Phi_B Lambda_B Phi_B^-1`, as in [S], or `A'_B = Lambda_B Phi_B^-1`."""

Blocks = dict[tuple[int, int], Any]
"""A block lower triangular matrix: `blocks[i, j]` is block (i, j), i >= j >= 1; missing blocks are zero."""


# Phi_B, its powers and its inverse -------------------------------------------------------------------


def eigenvector_blocks(eigenvectors: Sequence[Any]) -> Blocks:
    """Return Phi_B: identities, and phi_j below the j-th of them ([S] B.1).

    Example:
      >>> import numpy as np
      >>> from jaxarch.spectral import algebra
      >>> eigenvectors = [np.array([[2]]), np.array([[3]])]
      >>> print(algebra.dense(algebra.eigenvector_blocks(eigenvectors)))
      [[1 0 0]
       [2 1 0]
       [0 3 1]]
    """
    return power(eigenvectors, 1)


def power(eigenvectors: Sequence[Any], n: int) -> Blocks:
    r"""Return Phi_B^n for any integer n: block (i, j) is `C(n, i - j) phi_{i-1} ... phi_j` ([S] B.2, B.3).

    [S] states it for n > 0. Since Phi_B - I is nilpotent (A.2), the binomial series of `(I + (Phi_B - I))^n`
    ends. It therefore also holds for n <= 0, with `C(-n, r) = (-1)^r C(n + r - 1, r)`: (4.2) is n = -1.

    Raises:
      ArgumentError: an n that is not an integer, or so large that a coefficient does not fit the dtype.

    Example:
      >>> import numpy as np
      >>> from jaxarch.spectral import algebra
      >>> eigenvectors = [np.array([[2]]), np.array([[3]])]
      >>> print(algebra.dense(algebra.power(eigenvectors, 5)))  # C(5, 1) times 2 and 3, C(5, 2) times 6
      [[ 1  0  0]
       [10  1  0]
       [60 15  1]]
    """
    check_blocks(eigenvectors)
    if isinstance(n, bool) or not isinstance(n, numbers.Integral):
        raise ArgumentError(f"n: expected an integer, got {shown(n)}")
    n = int(n)
    below = {
        (i, j): _times(coefficient, chain)
        for (i, j), chain in _chains(eigenvectors).items()
        if (coefficient := _binomial(n, i - j))
    }
    return {**_identity(eigenvectors), **below}


def inverse_by_blocks(eigenvectors: Sequence[Any]) -> Blocks:
    r"""Return Phi_B^-1 by its blocks: `S_ij = (-1)^(i-j) phi_{i-1} ... phi_j` ([S] 4.2, B.11).

    Example:
      >>> import numpy as np
      >>> from jaxarch.spectral import algebra
      >>> eigenvectors = [np.array([[2]]), np.array([[3]])]
      >>> print(algebra.dense(algebra.inverse_by_blocks(eigenvectors)))
      [[ 1  0  0]
       [-2  1  0]
       [ 6 -3  1]]
    """
    return power(eigenvectors, -1)


def inverse_by_substitution(eigenvectors: Sequence[Any]) -> Blocks:
    """Return Phi_B^-1 by forward substitution into the columns of the identity.

    Example:
      >>> import numpy as np
      >>> from jaxarch.spectral import algebra
      >>> eigenvectors = [np.array([[2]]), np.array([[3]])]
      >>> print(algebra.dense(algebra.inverse_by_substitution(eigenvectors)))
      [[ 1  0  0]
       [-2  1  0]
       [ 6 -3  1]]
    """
    check_blocks(eigenvectors)
    blocks = {}
    for (j, _), identity in _identity(eigenvectors).items():
        column = _substituted(eigenvectors[j - 1 :], [identity] + [0] * (len(eigenvectors) + 1 - j))
        blocks.update({(j + row, j): block for row, block in enumerate(column)})
    return blocks


def inverse_by_powers(eigenvectors: Sequence[Any]) -> Blocks:
    r"""Return Phi_B^-1 by the formula `sum_{i=0}^B (-1)^i C(B+1, i+1) Phi_B^i` ([S] 4.1, A.1).

    This is a theorem, not an algorithm. It is exact on integers and fractions, but in floating point its
    error grows like the binomial coefficients. Use `substitute`, or `inverse_by_blocks`.

    Example:
      >>> import numpy as np
      >>> from jaxarch.spectral import algebra
      >>> eigenvectors = [np.array([[2]]), np.array([[3]])]
      >>> print(algebra.dense(algebra.inverse_by_powers(eigenvectors)))  # 3 I - 3 Phi + Phi^2
      [[ 1  0  0]
       [-2  1  0]
       [ 6 -3  1]]
    """
    phi, term = power(eigenvectors, 1), power(eigenvectors, 0)
    depth = len(eigenvectors)
    total = _scaled(depth + 1, term)
    for i in range(1, depth + 1):
        term = product(term, phi)
        total = _sum(total, _scaled((-1) ** i * comb(depth + 1, i + 1), term))
    return total


def substitute(eigenvectors: Sequence[Any], a: Sequence[Any]) -> list[Any]:
    r"""Compute `s = Phi_B^-1 a` by forward substitution: `s_1 = a_1`, `s_i = a_i - phi_{i-1} s_{i-1}`.

    Args:
      eigenvectors: phi_1, ..., phi_B.
      a: B + 1 blocks of shape (N_i,), or (N_i, columns); a block of zeros may be the number 0.

    Returns:
      The blocks of s. The cost is one product with each phi, and the error is small at every depth.

    Raises:
      ArgumentError: blocks that do not fit one another.

    Example:
      >>> import numpy as np
      >>> from jaxarch.spectral import algebra
      >>> eigenvectors = [np.array([[2]]), np.array([[3]])]
      >>> s = algebra.substitute(eigenvectors, [np.array([1]), np.array([4]), np.array([9])])
      >>> [block.tolist() for block in s]  # 1, 4 - 2 * 1, 9 - 3 * 2
      [[1], [2], [3]]
    """
    check_blocks(eigenvectors)
    _check_columns(eigenvectors, a)
    return _substituted(eigenvectors, a)


def _substituted(eigenvectors: Sequence[Any], a: Sequence[Any]) -> list[Any]:
    s = [a[0]]
    for phi, block in zip(eigenvectors, a[1:], strict=True):
        s.append(block - phi @ s[-1])
    return s


# A_B -------------------------------------------------------------------------------------------------


def eigenvalue_blocks(eigenvalues: Sequence[Any]) -> Blocks:
    """Return Lambda_B: the diagonal matrices of L_1, ..., L_{B+1}.

    Example:
      >>> import numpy as np
      >>> from jaxarch.spectral import algebra
      >>> print(algebra.dense(algebra.eigenvalue_blocks([np.array([5, 6]), np.array([7])])))
      [[5 0 0]
       [0 6 0]
       [0 0 7]]
    """
    check_list("eigenvalues", eigenvalues, "vectors")
    for i, values in enumerate(eigenvalues, 1):
        _check_block(f"eigenvalues: L_{i}", values, 1)
    return {(i, i): _eye(values) * values[None, :] for i, values in enumerate(eigenvalues, 1)}


def adjacent(phi: Any, inner: Any, outer: Any) -> Any:
    r"""Return `W_{i,i-1} = phi_{i-1} L_{i-1} - L_i phi_{i-1}`: the bundle between neighbors ([S] 4.3).

    Args:
      phi: phi_{i-1}, shape (N_i, N_{i-1}).
      inner: L_{i-1}, shape (N_{i-1},) or (1,); 0 in the gated form.
      outer: L_i, shape (N_i,).

    Example:
      >>> import numpy as np
      >>> from jaxarch.spectral import algebra
      >>> print(algebra.adjacent(np.array([[2, 3]]), inner=np.array([5, 7]), outer=np.array([1])))
      [[ 8 18]]
    """
    for name, array, axes in (("phi", phi, 2), ("inner", inner, 1), ("outer", outer, 1)):
        _check_block(name, array, axes)
    if outer.shape != phi.shape[:1] or inner.shape not in (phi.shape[1:], (1,)):
        raise ArgumentError(
            f"phi: expected shape {outer.shape + inner.shape}, the sizes of outer and inner, got {phi.shape}"
        )
    return phi * (inner[None, :] - outer[:, None])


def inner_eigenvalues(eigenvalues: Sequence[Any], form: Form) -> list[Any]:
    """Return each bundle's eigenvalues of the layer that it leaves, L_1, ..., L_B; in the gated form 0."""
    if form == "gated":
        # NumPy arrays are known during tracing. One number serves all neurons, also if widths are symbolic.
        return [np.zeros(1, values.dtype) for values in eigenvalues[:-1]]
    return list(eigenvalues[:-1])


def connections(
    eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], form: Form = "eigendecomposition"
) -> Blocks:
    r"""Return all bundles of connections, from every layer j to every later layer i ([S] 4.3, C.6).

    `W_ij = (-1)^(i-1-j) (phi_{i-1} L_{i-1} - L_i phi_{i-1}) phi_{i-2} ... phi_j`, the blocks of A_B below its
    diagonal; in the gated form `W_ij = (-1)^(i-j) L_i phi_{i-1} ... phi_j`. Building them costs O(B^2 N^3). A
    forward pass of a deep network does not need them (`network`).

    Args:
      eigenvectors: phi_1, ..., phi_B.
      eigenvalues: L_1, ..., L_{B+1}.
      form: `eigendecomposition` or `gated`.

    Example:
      >>> import numpy as np
      >>> from jaxarch.spectral import algebra
      >>> eigenvectors, eigenvalues = [np.array([[2]]), np.array([[3]])], [np.array([n]) for n in (0, 5, 7)]
      >>> bundles = algebra.connections(eigenvectors, eigenvalues)  # W_31 = -W_32 phi_1
      >>> {key: bundles[key].tolist() for key in sorted(bundles)}
      {(2, 1): [[-10]], (3, 1): [[12]], (3, 2): [[-6]]}
      >>> bundles = algebra.connections(eigenvectors, eigenvalues, "gated")  # W_31 = 7 * 3 * 2
      >>> {key: bundles[key].tolist() for key in sorted(bundles)}
      {(2, 1): [[-10]], (3, 1): [[42]], (3, 2): [[-21]]}
    """
    check_blocks(eigenvectors, eigenvalues)
    check_form(form)
    inner = inner_eigenvalues(eigenvalues, form)
    blocks = {}
    for i in range(2, len(eigenvalues) + 1):
        block = adjacent(eigenvectors[i - 2], inner[i - 2], eigenvalues[i - 1])
        blocks[i, i - 1] = block
        for j in range(i - 2, 0, -1):
            # By (C.6) each bundle is its right neighbor times -phi_j, so it costs one product.
            block = -(block @ eigenvectors[j - 1])
            blocks[i, j] = block
    return blocks


def adjacency(
    eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], form: Form = "eigendecomposition"
) -> Blocks:
    """Return A_B by its blocks: the bundles W_ij, and the self-loops L_i on its diagonal ([S] C.3).

    Args:
      eigenvectors: phi_1, ..., phi_B.
      eigenvalues: L_1, ..., L_{B+1}.
      form: `eigendecomposition` or `gated`.

    Example:
      >>> import numpy as np
      >>> from jaxarch.spectral import algebra
      >>> eigenvectors, eigenvalues = [np.array([[2]]), np.array([[3]])], [np.array([n]) for n in (0, 5, 7)]
      >>> print(algebra.dense(algebra.adjacency(eigenvectors, eigenvalues)))
      [[  0   0   0]
       [-10   5   0]
       [ 12  -6   7]]
    """
    bundles = connections(eigenvectors, eigenvalues, form)
    return {**eigenvalue_blocks(eigenvalues), **bundles}


def apply_adjacency(
    eigenvectors: Sequence[Any],
    eigenvalues: Sequence[Any],
    a: Sequence[Any],
    form: Form = "eigendecomposition",
) -> list[Any]:
    r"""Compute `A_B a` without any W_ij, by substitution.

    With `s = Phi_B^-1 a`, block i is `L_i s_i + phi_{i-1} (L_{i-1} s_{i-1})`. In the gated form it is
    `L_i s_i`.

    Args:
      eigenvectors: phi_1, ..., phi_B.
      eigenvalues: L_1, ..., L_{B+1}.
      a: B + 1 blocks of shape (N_i, columns).
      form: `eigendecomposition` or `gated`.

    Example:
      >>> import numpy as np
      >>> from jaxarch.spectral import algebra
      >>> eigenvectors, eigenvalues = [np.array([[2]]), np.array([[3]])], [np.array([n]) for n in (0, 5, 7)]
      >>> ones = [np.array([[1]])] * 3
      >>> [block.tolist() for block in algebra.apply_adjacency(eigenvectors, eigenvalues, ones)]
      [[[0]], [[-5]], [[13]]]
      >>> [block.tolist() for block in algebra.apply_adjacency(eigenvectors, eigenvalues, ones, "gated")]
      [[[0]], [[-5]], [[28]]]
    """
    check_blocks(eigenvectors, eigenvalues)
    check_form(form)
    _check_columns(eigenvectors, a)
    s = _substituted(eigenvectors, a)
    scaled = [values[:, None] * block for values, block in zip(eigenvalues, s, strict=True)]
    if form == "gated":
        return scaled
    lower = [phi @ s for phi, s in zip(eigenvectors, scaled[:-1], strict=True)]
    return [scaled[0]] + [s + below for s, below in zip(scaled[1:], lower, strict=True)]


# Block matrices --------------------------------------------------------------------------------------


def product(first: Blocks, second: Blocks) -> Blocks:
    """Return the product of two block matrices.

    Example:
      >>> import numpy as np
      >>> from jaxarch.spectral import algebra
      >>> eigenvectors = [np.array([[2]]), np.array([[3]])]
      >>> phi, inverse = algebra.power(eigenvectors, 1), algebra.power(eigenvectors, -1)
      >>> print(algebra.dense(algebra.product(phi, inverse)))
      [[1 0 0]
       [0 1 0]
       [0 0 1]]
    """
    for name, blocks in (("first", first), ("second", second)):
        _check_block_matrix(name, blocks)
    rows: dict[int, list[tuple[int, Any]]] = {}
    for (k, j), right in sorted(second.items(), key=lambda item: item[0]):
        rows.setdefault(k, []).append((j, right))
    total: Blocks = {}
    for (i, k), left in first.items():
        for j, right in rows.get(k, []):
            if left.shape[1] != right.shape[0]:
                raise ArgumentError(
                    f"second: block {(k, j)} must have {left.shape[1]} rows, as many as the first's "
                    f"block {(i, k)} has columns; got shape {right.shape}"
                )
            part = left @ right
            total[i, j] = total[i, j] + part if (i, j) in total else part
    return total


def dense(blocks: Blocks) -> Any:
    """Return a block matrix as one array; every diagonal block must be present.

    Example:
      >>> import numpy as np
      >>> from jaxarch.spectral import algebra
      >>> blocks = {(1, 1): np.eye(2, dtype=int), (2, 1): np.array([[4, 5]]), (2, 2): np.array([[9]])}
      >>> print(algebra.dense(blocks))
      [[1 0 0]
       [0 1 0]
       [4 5 9]]
    """
    _check_block_matrix("blocks", blocks)
    layers = sorted(i for i, j in blocks if i == j)
    sizes = {i: blocks[i, i].shape[0] for i in layers}
    for (i, j), block in blocks.items():
        if block.shape != (sizes.get(i), sizes.get(j)):
            raise ArgumentError(
                f"blocks: block {(i, j)} must have shape {(sizes.get(i), sizes.get(j))}, set by the "
                f"diagonal blocks; got {block.shape}"
            )
    dtype = blocks[layers[-1], layers[-1]].dtype
    # NumPy's constants may be mixed with JAX arrays; then the result is JAX's.
    libraries = {block.__array_namespace__() for block in blocks.values()}
    xp = max(libraries, key=lambda library: library is not np)
    if xp is np:  # Not `numpy.block`, which is slow: it looks through its lists again and again.
        ends = dict(zip(layers, itertools.accumulate(sizes[i] for i in layers), strict=True))
        array = np.zeros((ends[layers[-1]],) * 2, np.result_type(*(block.dtype for block in blocks.values())))
        for (i, j), block in blocks.items():
            array[ends[i] - sizes[i] : ends[i], ends[j] - sizes[j] : ends[j]] = block
        return array

    def at(i: int, j: int) -> Any:
        return blocks[i, j] if (i, j) in blocks else xp.zeros((sizes[i], sizes[j]), dtype=dtype)

    return xp.block([[at(i, j) for j in layers] for i in layers])


_NOT_GIVEN: Any = object()


def check_blocks(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any] = _NOT_GIVEN) -> None:
    """Raise unless the blocks fit one another.

    Raises:
      ArgumentError: no eigenvectors, blocks that are not matrices or do not fit their neighbors, eigenvalues
        of the wrong number or length.
    """
    check_list("eigenvectors", eigenvectors, "matrices phi_1, ..., phi_B")
    if not len(eigenvectors):
        raise ArgumentError("eigenvectors: expected phi_1, ..., phi_B for at least two layers, got none")
    for i, phi in enumerate(eigenvectors, 1):
        _check_entries(f"eigenvectors: phi_{i}", phi)
        if phi.ndim != 2:
            raise ArgumentError(
                f"eigenvectors: phi_{i} must have shape (N_{i + 1}, N_{i}), got {phi.shape}; "
                "for many networks at once use vmap"
            )
    sizes = [eigenvectors[0].shape[1]] + [phi.shape[0] for phi in eigenvectors]
    for i, phi in enumerate(eigenvectors, 1):
        if phi.shape[1] != sizes[i - 1]:
            raise ArgumentError(
                f"eigenvectors: phi_{i} must have {sizes[i - 1]} columns, as many as phi_{i - 1} has rows; "
                f"got shape {phi.shape}"
            )
    if eigenvalues is _NOT_GIVEN:
        return
    check_list("eigenvalues", eigenvalues, "vectors, one per layer")
    if len(eigenvalues) != len(sizes):
        raise ArgumentError(
            f"eigenvalues: expected {len(sizes)} vectors, one per layer, got {len(eigenvalues)}"
        )
    for i, (values, size) in enumerate(zip(eigenvalues, sizes, strict=True), 1):
        _check_entries(f"eigenvalues: L_{i}", values)
        if values.shape != (size,):
            raise ArgumentError(f"eigenvalues: L_{i} must have shape ({size},), got {values.shape}")


def check_form(form: Form) -> None:
    """Raise unless a form is known."""
    check_choice("form", form, get_args(Form))


def _check_entries(name: str, array: Any) -> None:
    """Raise unless it is an array of numbers, or of objects with exact arithmetic."""
    is_exact = isinstance(array, np.ndarray) and array.dtype == object
    if is_exact and not any(issubclass(kind, str | NoneType) for kind in set(map(type, array.flat))):
        return
    if not is_numeric(array):
        got = f"one of dtype {array.dtype}" if hasattr(array, "dtype") else shown(array)
        raise ArgumentError(f"{name} must be an array of numbers, got {got}")


def _check_block(name: str, array: Any, axes: int) -> None:
    """Raise unless it is an array with `axes` axes."""
    _check_entries(name, array)
    if array.ndim != axes:
        raise ArgumentError(
            f"{name} must be a {'matrix' if axes == 2 else 'vector'}, got shape {array.shape}"
        )


def _check_columns(eigenvectors: Sequence[Any], a: Sequence[Any]) -> None:
    """Raise unless there is a block for each layer: the number 0, or one row per neuron."""
    check_list("a", a, f"{len(eigenvectors) + 1} blocks, one per layer")
    if len(a) != len(eigenvectors) + 1:
        raise ArgumentError(f"a: expected {len(eigenvectors) + 1} blocks, one per layer, got {len(a)}")
    sizes = [eigenvectors[0].shape[1]] + [phi.shape[0] for phi in eigenvectors]
    for i, (block, size) in enumerate(zip(a, sizes, strict=True), 1):
        if isinstance(block, int) and block == 0:
            continue
        _check_entries(f"a: block {i}", block)
        if block.shape[:1] != (size,):
            raise ArgumentError(f"a: block {i} must have {size} rows, got shape {block.shape}")


def _check_block_matrix(name: str, blocks: Blocks) -> None:
    """Raise unless they are matrices by pairs of layers, with at least one on the diagonal."""
    check_mapping(name, blocks, "a dict of blocks by (i, j)")
    if not any(isinstance(key, tuple) and len(key) == 2 and key[0] == key[1] for key in blocks):
        raise ArgumentError(
            f"{name}: expected blocks by (i, j), including the diagonal; got {shown(list(blocks))}"
        )
    for key, block in blocks.items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise ArgumentError(f"{name}: expected blocks by (i, j), got {shown(key)}")
        _check_block(f"{name}: block {key}", block, 2)


def _chains(eigenvectors: Sequence[Any]) -> Blocks:
    """Return `phi_{i-1} ... phi_j` for all i > j."""
    chains: Blocks = {}
    for j, phi in enumerate(eigenvectors, 1):
        chains[j + 1, j] = phi
        for i in range(j + 2, len(eigenvectors) + 2):
            chains[i, j] = eigenvectors[i - 2] @ chains[i - 1, j]
    return chains


def _binomial(n: int, r: int) -> int:
    """Return `C(n, r)` for any integer n."""
    return comb(n, r) if n >= 0 else (-1) ** r * comb(r - n - 1, r)


def _identity(eigenvectors: Sequence[Any]) -> Blocks:
    """Return the identity in blocks."""
    # A row of phi_1 has the size of layer 1, and a column of phi_i that of layer i + 1.
    rows = [_eye(eigenvectors[0][0])] + [_eye(phi[:, 0]) for phi in eigenvectors]
    return {(i, i): identity for i, identity in enumerate(rows, 1)}


def _eye(vector: Any) -> Any:
    """Return the identity on a vector's space, in its library and dtype."""
    return vector.__array_namespace__().eye(vector.shape[0], dtype=vector.dtype)


def _times(coefficient: int, block: Any) -> Any:
    """Multiply a block by an integer."""
    # JAX takes only integers of 32 bits; object and integer arrays must stay exact.
    try:
        return (coefficient if block.dtype.kind in "iuO" else float(coefficient)) * block
    except OverflowError:
        raise ArgumentError(
            f"n: the coefficient {shown(coefficient)} is too large for {block.dtype}; use a wider dtype"
        ) from None


def _scaled(coefficient: int, blocks: Blocks) -> Blocks:
    """Multiply a block matrix by an integer."""
    return {key: _times(coefficient, block) for key, block in blocks.items()}


def _sum(first: Blocks, second: Blocks) -> Blocks:
    """Add two block matrices."""
    return {**first, **{key: first[key] + block if key in first else block for key, block in second.items()}}

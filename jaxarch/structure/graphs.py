r"""A layered network as a graph, and the spectrum of its normalized Laplacian.

Units are nodes, and weights (or the mask's zeros and ones) are the weights of undirected edges. Biases and
activations are not part of the graph. [D] section 5 compares trained networks by these spectra, since they do
not depend on how the units of a layer are numbered (footnote 15). But they do not tell everything: the units
of the input may be renumbered too, and different graphs may have the same spectrum.

[D] Colombo & Gao, Disentangling Neural Architectures and Weights, 2021.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, check_flag, is_traced, one_line
from jaxarch._internal.precision import widened

__all__ = ["adjacency", "normalized_laplacian", "spectrum"]


def adjacency(weights: Sequence[ArrayLike], *, self_loops: bool = True) -> Array:
    r"""Return the block adjacency matrix of a layered network ([D] footnote 14, corrected).

    The output layer comes first.

    For two layers, `W_1` of shape (hidden, inputs) and `W_2` of shape (outputs, hidden),

        A = [[ 1,     W_2,   0   ],
             [ W_2^T, 1,     W_1 ],
             [ 0,     W_1^T, 1   ]]

    and so on for any depth and any widths. The footnote prints the last row as `[W_1^T, 0, 1]`. This is not
    symmetric, and the shapes fit only if the hidden and the output layer are equally wide.

    Args:
      weights: matrices of shape (outputs, inputs), from the input layer to the output layer; floating
        point, integers, or boolean masks. Transpose kernels of shape (inputs, outputs), such as Flax's. For
        many runs at once, use `vmap`.
      self_loops: whether to keep the identity blocks, as [D] does. They give each unit an edge of weight 1
        to itself and set a scale: the spectrum then changes with the size of the weights, not with their
        pattern alone. Without them, a unit whose connections are all pruned is an isolated node. The spectrum
        is then symmetric around 1 except for isolated nodes, and the same for `W` and `c W`, c > 0.

    Returns:
      Shape (nodes, nodes), symmetric, float32 or the weights' wider type. Nodes are the units of all layers.

    Raises:
      ArgumentError: no matrices, something other than matrices of real numbers, matrices that do not chain.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.structure import graphs
      >>> weights = [jnp.array([[2, 3]]), jnp.array([[5]])]  # two inputs, one hidden unit, one output
      >>> print(graphs.adjacency(weights).astype(int))
      [[1 5 0 0]
       [5 1 2 3]
       [0 2 1 0]
       [0 3 0 1]]
    """
    matrices = _chain(weights)
    check_flag("self_loops", self_loops)
    nodes = sum(matrix.shape[0] for matrix in matrices) + matrices[0].shape[1]
    above = jnp.zeros((nodes, nodes), jnp.result_type(*matrices))
    row = 0
    for matrix in reversed(matrices):
        outputs, inputs = matrix.shape
        column = row + outputs
        above = above.at[row:column, column : column + inputs].set(matrix)
        row = column
    # [D] footnote 14 prints A_3 = [W_1^T, 0, 1], which is not symmetric; it must be [0, W_1^T, 1].
    graph = above + above.T
    return graph + jnp.eye(nodes, dtype=graph.dtype) if self_loops else graph


def normalized_laplacian(adjacency: ArrayLike) -> Array:
    r"""Return the normalized Laplacian `L = I - D^{-1/2} A D^{-1/2}`, with degrees `D_ii = sum_j |A_ij|`.

    The row of an isolated node (of degree 0) is 0, including its diagonal entry. An edge from a node to
    itself counts once in its degree.

    With negative weights this is the signed Laplacian: its quadratic form is

        x^T L x = sum_{i<j} |A_ij| (y_i - sign(A_ij) y_j)^2 + sum_i (|A_ii| - A_ii) y_i^2,  y = D^{-1/2} x,

    so that all eigenvalues lie in [0, 2] for any signs (the degrees `sum_j A_ij` could be negative or 0). If
    no weight is negative, 0 is an eigenvalue. Flipping the signs of all weights of one node does not change
    the spectrum. With an odd activation such as tanh, it does not change the network's function either. See
    J. Kunegis et al., Spectral Analysis of Signed Graphs for Clustering, Prediction and Visualization, SDM
    2010; J. Hou, J. Li and Y. Pan, On the Laplacian Eigenvalues of Signed Graphs, Linear and Multilinear
    Algebra 51 (2003). [D] has no negative weights.

    Args:
      adjacency: real symmetric matrix, shape (nodes, nodes).

    Returns:
      Shape (nodes, nodes), symmetric, float32 or wider. NaN and infinite weights give NaN.

    Raises:
      ArgumentError: anything but a square matrix of real numbers; a concrete matrix that is not symmetric (up
        to rounding).

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.structure import graphs
      >>> print(graphs.normalized_laplacian(jnp.array([[0, 4, 0], [4, 0, 0], [0, 0, 0]])))
      [[ 1. -1.  0.]
       [-1.  1.  0.]
       [ 0.  0.  0.]]
    """
    matrix = _matrix("adjacency", adjacency)
    if matrix.shape[0] != matrix.shape[1]:
        raise ArgumentError(f"adjacency: expected a square matrix, got shape {matrix.shape}")
    if not is_traced(adjacency) and not np.allclose(adjacency, np.transpose(adjacency), equal_nan=True):
        raise ArgumentError("adjacency: expected a symmetric matrix, the weights of undirected edges")
    return _normalized_laplacian(matrix)


def spectrum(weights: Sequence[ArrayLike], *, self_loops: bool = True) -> Array:
    """Return the eigenvalues of the normalized Laplacian of a layered network, ascending ([D] section 5).

        spectra = jax.vmap(jaxarch.structure.graphs.spectrum)([network.params["w1"], network.params["w2"]])

    computes the spectra of many runs, shape (runs, nodes). See `adjacency` for the graph and
    `normalized_laplacian` for isolated nodes and negative weights.

    Args:
      weights: matrices of shape (outputs, inputs), from the input layer to the output layer.
      self_loops: whether to keep the identity blocks of [D] footnote 14.

    Returns:
      Shape (nodes,), in [0, 2] up to rounding, which in float32 is up to 2e-6 for 2000 nodes. Nothing is
      clipped. All NaN if a weight is NaN or infinite.

    Raises:
      ArgumentError: as in `adjacency`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.structure import graphs
      >>> star = [jnp.ones((1, 3))]  # three inputs, one output
      >>> [f"{abs(value):.3f}" for value in graphs.spectrum(star, self_loops=False).tolist()]
      ['0.000', '1.000', '1.000', '2.000']
    """
    return jnp.linalg.eigvalsh(_normalized_laplacian(adjacency(weights, self_loops=self_loops)))


def _normalized_laplacian(matrix: Array) -> Array:
    degrees = jnp.abs(matrix).sum(axis=1)
    connected = degrees > 0
    # The inner `where` keeps the root and its derivative finite at isolated nodes.
    scale = jnp.where(connected, 1 / jnp.sqrt(jnp.where(connected, degrees, 1)), 0)
    return jnp.diag(connected.astype(matrix.dtype)) - scale[:, None] * matrix * scale[None, :]


def _chain(weights: Sequence[ArrayLike]) -> list[Array]:
    """Return the matrices of a network, checked to chain."""
    if not isinstance(weights, (list, tuple)):
        raise ArgumentError(
            "weights: expected a list of matrices from the input layer to the output layer, such as "
            f'[params["w1"], params["w2"]], got {type(weights).__name__}'
        )
    if not weights:
        raise ArgumentError("weights: expected at least one matrix, got none")
    matrices = [_matrix(f"weights[{index}]", matrix) for index, matrix in enumerate(weights)]
    for index, (first, second) in enumerate(itertools.pairwise(matrices)):
        if second.shape[1] != first.shape[0]:
            raise ArgumentError(
                f"weights[{index + 1}]: expected {first.shape[0]} columns, one for each row of "
                f"weights[{index}] of shape {first.shape}, got shape {second.shape}; matrices are "
                "(outputs, inputs)"
            )
    return matrices


def _matrix(name: str, value: ArrayLike) -> Array:
    """Return a matrix of real numbers, in float32 or wider."""
    try:
        matrix = jnp.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"{name}: expected a matrix, got {one_line(error)}") from None
    if matrix.ndim != 2 or 0 in matrix.shape:
        many = "; for many runs at once use vmap" if matrix.ndim > 2 else ""
        raise ArgumentError(f"{name}: expected a matrix, got shape {matrix.shape}{many}")
    if not any(jnp.issubdtype(matrix.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
        raise ArgumentError(f"{name}: expected real numbers or a boolean mask, got {matrix.dtype}")
    return widened(matrix)

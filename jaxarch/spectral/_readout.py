r"""Measures of a trained spectral network: which hidden neurons count, how non-linear and how large it is.

These are pure functions of the parameters of one network (use `vmap` for many). They are meant for analysis,
not for training.

[S] Peri, Chicchi, Fanelli and Giambagli, Spectral Architecture Search for Neural Network Models (SPARCS).
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_arrays, check_flag, check_widths
from jaxarch._internal.trees import PyTree, map_selected
from jaxarch.spectral._direct_names import direct_bundles, is_direct
from jaxarch.spectral._network import FACTORS, form_of, hidden_eigenvalues, neurons_in, unpack, unpack_neurons
from jaxarch.spectral.algebra import Blocks, connections


def neuron_order(params: PyTree, state: PyTree | None = None) -> PyTree:
    """Return the place of each hidden neuron in the joint order of `|eigenvalue|` over all hidden layers.

    Within a layer, eigenvalues scale the neurons' activity. An absolute threshold on them means little, since
    eigenvectors grow to compensate for a penalty. [S] orders the eigenvalues in one layer (figure 10); the
    joint order is our reading for several.

    Args:
      params: parameters of a spectral network, or of any model that contains one.
      state: the model's state. Neurons that it has removed come first.

    Returns:
      Integers from 0 (first to go) to H - 1, in the structure of `hidden_eigenvalues(params)`. Ties are in
      the order of the leaves.

    Raises:
      ArgumentError: parameters without hidden eigenvalues.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {
      ...     "eigenvectors": {"phi1": jnp.ones((3, 2)), "phi2": jnp.ones((1, 3))},
      ...     "eigenvalues": {"L2": jnp.array([3.0, -1.0, 2.0]), "L3": jnp.ones(1)},
      ... }
      >>> print(jaxarch.spectral.neuron_order(params)["eigenvalues"]["L2"])
      [2 0 1]
    """
    hidden = hidden_eigenvalues(params)
    check_arrays("params", hidden)
    magnitudes = map_selected(jnp.abs, hidden)
    left = neurons_in({} if state is None else state, map_selected(lambda v: v >= 0, magnitudes))
    return joint_order(magnitudes, left)


def joint_order(numbers: PyTree, left: PyTree) -> PyTree:
    """Return the rank of every number among all, from 0: first those that are not left, then the smallest."""
    # The argsort of an argsort gives the ranks.
    ordered = map_selected(lambda leaf, kept: jnp.where(kept, leaf, -jnp.inf), numbers, left)
    return split_like(
        jnp.argsort(jnp.argsort(jnp.concatenate(jax.tree.leaves(ordered)), stable=True)), numbers
    )


def split_like(numbers: Array, like: PyTree) -> PyTree:
    """Split one array of all neurons into one array per layer."""
    leaves, structure = jax.tree.flatten(like)
    parts = jnp.split(numbers, np.cumsum([leaf.size for leaf in leaves])[:-1])
    return jax.tree.unflatten(structure, parts)


def path_norms(params: PyTree, state: PyTree | None = None, *, skips: bool = True) -> dict[str, Array]:
    r"""Return how much of the network's function runs through each hidden neuron, by its weights.

    This is the root of a sum over all paths from an input to an output through the neuron. The terms are the
    squared products of the weights on a path: `sqrt(in_k out_k)` with, all elementwise squares,

        in_k = sum_{j<k} W_kj^2 in_j,    out_k = sum_{i>k} (W_ik^2)^T out_i,    in_1 = out_{B+1} = 1.

    It does not change if a neuron's incoming weights are scaled by c > 0 and its outgoing ones by 1/c; under
    ReLU, this does not change the network. With one hidden layer, these are the norms of the slices of Gamma
    (E.1).

    Args:
      params: parameters of one spectral network.
      state: the network's state: which neurons are left.
      skips: whether the network has skip connections; pass the same value as to `spectral_network`.

    Returns:
      `{"L2": (N_2,), ..., "LB": (N_B,)}`; 0 for neurons that the state has removed.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {  # W_21 = (-3, -8), and W_32 = (3, 4) times (3 - 5, 4 - 5)
      ...     "eigenvectors": {"phi1": jnp.array([[1.0], [2.0]]), "phi2": jnp.array([[3.0, 4.0]])},
      ...     "eigenvalues": {"L2": jnp.array([3.0, 4.0]), "L3": jnp.array([5.0])},
      ... }
      >>> print(jaxarch.spectral.path_norms(params)["L2"])  # 3 * 6, 8 * 4
      [18. 32.]
    """
    check_flag("skips", skips)
    blocks = bundles(params, state, skips)
    depth = len(params[FACTORS[form_of(params)]])
    squares = {key: jnp.square(block) for key, block in blocks.items()}
    into = [jnp.ones_like(blocks[2, 1][0])]
    for k in range(2, depth + 1):
        into.append(_total(squares[k, j] @ into[j - 1] for j in range(1, k) if (k, j) in squares))
    out = {depth + 1: jnp.ones_like(blocks[depth + 1, depth][:, 0])}
    for k in range(depth, 1, -1):
        out[k] = _total(out[i] @ squares[i, k] for i in range(k + 1, depth + 2) if (i, k) in squares)
    # Take the roots first: a product of squares overflows and underflows earlier.
    return {f"L{k}": jnp.sqrt(into[k - 1]) * jnp.sqrt(out[k]) for k in range(2, depth + 1)}


def gamma_norm(params: PyTree, state: PyTree | None = None) -> Array:
    r"""Return the norm of Gamma, `Gamma_ijk = [W_32]_ij [W_21]_jk`: the hidden layer's part ([S] E.1).

    It is computed without the tensor, as `sqrt(sum_j |W_32[:, j]|^2 |W_21[j, :]|^2)`. At the perceptron start
    it is 0.

    Raises:
      ArgumentError: a number of hidden layers other than one; use `path_norms`.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {  # W_21 = -10, W_32 = -6
      ...     "eigenvectors": {"phi1": jnp.array([[2.0]]), "phi2": jnp.array([[3.0]])},
      ...     "eigenvalues": {"L2": jnp.array([5.0]), "L3": jnp.array([7.0])},
      ... }
      >>> print(jaxarch.spectral.gamma_norm(params))
      60.0
    """
    phi, _ = unpack(params, form_of(params))
    if len(phi) != 2:
        raise ArgumentError(
            f"params: Gamma is defined for one hidden layer, and this network has {len(phi) - 1}; use "
            "path_norms"
        )
    return jnp.linalg.norm(path_norms(params, state)["L2"])


def bundles(params: PyTree, state: PyTree | None = None, skips: bool = True) -> Blocks:
    """Return all W_ij ([S] 4.3), or only those between neighbors, with 0 for removed hidden neurons.

    The parameters tell the form: that of [S], gated, or a network in direct space, without its biases.

    Raises:
      ArgumentError: parameters of another form.

    Example:
      >>> import jax, jaxarch
      >>> params, state = jaxarch.spectral_network((4, 3, 2)).init(jax.random.key(0))
      >>> {layers: block.shape for layers, block in jaxarch.spectral.bundles(params).items()}
      {(2, 1): (3, 4), (3, 2): (2, 3), (3, 1): (2, 4)}
    """
    check_flag("skips", skips)
    if is_direct(params):
        blocks = direct_bundles(params)
        return blocks if skips else {(i, j): block for (i, j), block in blocks.items() if i == j + 1}
    phi, values = unpack(params, form_of(params))
    neurons = unpack_neurons({} if state is None else state, len(values))
    kept = dict(enumerate(neurons, 2))
    blocks = connections(phi, values, form_of(params))
    if not skips:
        blocks = {(i, j): block for (i, j), block in blocks.items() if i == j + 1}
    for (i, j), block in blocks.items():
        for layer, axis in ((i, 1), (j, 0)):
            if (mask := kept.get(layer)) is not None:
                block = jnp.where(jnp.expand_dims(mask, axis), block, 0)
        blocks[i, j] = jnp.asarray(block)
    return blocks


def parameter_counts(widths: Sequence[int]) -> dict[str, int]:
    r"""Count the parameters that a search over architectures of these widths needs ([S] figure 8).

    `spectral`: `sum_i N_i N_{i+1} + sum_i N_i`, L_1 included; if it is fixed at 0, N_1 fewer are trained.
    `gated`: always N_1 fewer, as the gated form does not read L_1. `direct`: all bundles as weights,
    `sum_{i<j} N_i N_j`. `mlp`: `sum_i N_i N_{i+1}`, without skips. No count includes biases.

    Raises:
      ArgumentError: widths that are not at least two positive integers.

    Example:
      >>> import jaxarch
      >>> jaxarch.spectral.parameter_counts((4, 3, 2))
      {'spectral': 27, 'gated': 23, 'direct': 26, 'mlp': 18}
      >>> jaxarch.spectral.parameter_counts((100, 100, 100, 100, 10))
      {'spectral': 31410, 'gated': 31310, 'direct': 64000, 'mlp': 31000}
    """
    check_widths(widths)
    neighbours = sum(a * b for a, b in itertools.pairwise(widths))
    pairs = sum(a * b for i, a in enumerate(widths) for b in widths[i + 1 :])
    return {
        "spectral": neighbours + sum(widths),
        "gated": neighbours + sum(widths[1:]),
        "direct": pairs,
        "mlp": neighbours,
    }


def _total(terms: Iterable[Array]) -> Array:
    return functools.reduce(operator.add, terms)

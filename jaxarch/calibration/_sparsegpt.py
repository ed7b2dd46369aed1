"""SparseGPT: weights removed input by input, and the others moved to make up for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.linalg import solve_triangular

from jaxarch._internal.errors import check_count
from jaxarch._internal.order_statistics import largest_along
from jaxarch._internal.trees import PyTree, Where
from jaxarch.calibration._calibrate import Valid
from jaxarch.calibration._matrices import MEMORY
from jaxarch.calibration._pruning import Pattern, pruned_by, rounded
from jaxarch.masks._largest import top_k
from jaxarch.masks._units import UnitsLike


def sparsegpt(
    function: Callable[[PyTree, PyTree], Any],
    params: PyTree,
    batches: Iterable[PyTree],
    density: float | Mapping[str, float] | None = None,
    units: UnitsLike = None,
    *,
    where: Where | None = None,
    valid: Valid | None = None,
    damping: float = 0.01,
    block: int = 128,
    memory: int = MEMORY,
) -> tuple[PyTree, PyTree]:
    r"""Prune a trained model by a few batches, and move the weights that are left.

    For each weight matrix, with inputs X and `H = X^T X + damping mean(diag(X^T X)) I`, inputs j are visited
    in order. A removed weight w_j costs `w_j^2 / U_jj^2`, `H^{-1} = U^T U` with U upper triangular, and the
    weights of the inputs after j change by `- w_j U_jk / U_jj`, the best answer to its removal. In each block
    of inputs, the weights of the least cost are removed. E. Frantar and D. Alistarh, SparseGPT: Massive
    language models can be accurately pruned in one-shot, 2023, algorithm 1.

    Departures: inputs of a layer are those of the model as it is given, not of the layers pruned before it.
    Counts are exact: each block keeps so many that the sum over blocks is `round(d D)`, where the authors
    round in every block. U is computed by one Cholesky factorization of H in reverse order, in place of an
    inverse and another. An input that is always 0 loses its weights first, as with the authors.

    `reconstruct` with the mask moves the weights further, to the optimum of each layer.

    Args:
      function: `(params, batch) -> outputs`, jittable.
      params: the parameters of a trained model.
      batches: batches of examples, read once for each group of leaves that fit into `memory` together. With
        fewer rows than inputs, `damping` decides how far weights move.
      density: d, the share of connections that is kept in each leaf, in (0, 1], or by path.
      units: `None` for single connections, or N:M along the axis of inputs, such as `"2:4"`: channels for
        convolutions. `masks.NOfM` takes another axis.
      where: the leaves that are pruned. By default all weights; a `ResultWarning` names those that stay, such
        as an embedding that is the head, too.
      valid: see `calibrate`.
      damping: the share of the mean squared input that is added to each.
      block: the number of inputs among which the mask is chosen together.
      memory: bytes of second moments that are held at a time; at least those of one leaf are.

    Returns:
      The parameters, with zeros for removed connections, and the mask: booleans for pruned leaves, `None` for
      others.

    Raises:
      ArgumentError: no batch; a density outside (0, 1], or one that does not fit N:M; a leaf whose inputs are
        not known, or that is not read as matrices; inputs that are NaN or infinite.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> params = {"kernel": jnp.array([[1.0], [0.9], [-2.0]])}
      >>> apply = lambda params, x: x @ params["kernel"]
      >>> x = jax.random.normal(jax.random.key(0), (64, 1)) + jnp.zeros((1, 3))  # three times one input
      >>> pruned, mask = jaxarch.sparsegpt(apply, params, [x], 1 / 3)
      >>> mask["kernel"].ravel().tolist(), pruned["kernel"].ravel().round(1)  # 1 + 0.9 - 2
      ([False, False, True], Array([ 0. ,  0. , -0.1], dtype=float32))
    """
    check_count("block", block)
    return pruned_by(
        functools.partial(_pruned, block=block),
        function,
        params,
        batches,
        density,
        units,
        where=where,
        valid=valid,
        damping=damping,
        memory=memory,
    )


def _pruned(
    weights: Array,
    products: Array,
    counts: np.ndarray,
    pattern: Pattern,
    damping: float,
    block: int,
) -> tuple[Array, Array]:
    """Prune matrices of shape (blocks, inputs, outputs), and return them with their masks."""
    inputs = weights.shape[1]
    if pattern:
        block = pattern[1] * max(block // pattern[1], 1)
    block = min(block, inputs)
    # What each block of inputs keeps: the sums from the first block on are rounded, so that nothing is lost.
    ends = np.minimum(np.arange(1, -(-inputs // block) + 1) * block, inputs) / inputs
    kept = np.diff(rounded(ends * counts[:, None]), prepend=0)
    return _all_blocks(weights.swapaxes(1, 2), products, jnp.asarray(kept), damping, block, pattern)


@functools.partial(jax.jit, static_argnames=("block", "pattern"))
def _all_blocks(
    weights: Array, products: Array, kept: Array, damping: float, block: int, pattern: Pattern
) -> tuple[Array, Array]:
    """Prune each of several matrices, one after the other."""
    one = functools.partial(_one, damping=damping, block=block, pattern=pattern)
    made, mask = lax.map(lambda of: one(*of), (weights, products, kept))
    return made.swapaxes(1, 2), mask.swapaxes(1, 2)


def _one(
    weights: Array,
    products: Array,
    kept: Array,
    damping: float,
    block: int,
    pattern: Pattern,
) -> tuple[Array, Array]:
    """Prune a matrix of shape (outputs, inputs), block after block of inputs."""
    outputs, inputs = weights.shape
    missing = len(kept) * block - inputs
    # The last block is filled with inputs that are always 0.
    mean = jnp.diagonal(products).mean()
    upper = _upper(jnp.pad(products, (0, missing)), jnp.where(mean > 0, mean, 1), damping)
    # What it costs to remove weights of inputs that are always 0 is 0: they go first.
    worth = jnp.pad((jnp.diagonal(products) > 0).astype(weights.dtype), (0, missing))
    worth = worth / jnp.diagonal(upper)
    weights = jnp.pad(weights, ((0, 0), (0, missing)))

    def step(weights: Array, at: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        start, count = at
        own = lax.dynamic_slice_in_dim(weights, start, block, 1)
        rows = lax.dynamic_slice_in_dim(upper, start, block, 0)
        among = lax.dynamic_slice_in_dim(rows, start, block, 1)
        worth_of_block = lax.dynamic_slice_in_dim(worth, start, block)
        there = start + jnp.arange(block) < inputs
        chosen = jnp.zeros_like(own, bool)
        if pattern is None:
            costs = jnp.where(there[None], (own * worth_of_block[None]) ** 2, -1)
            chosen = top_k(costs, count)
        made, mask, errors = _columns(own, among, worth_of_block, chosen, pattern)
        later = jnp.where((jnp.arange(weights.shape[1]) >= start + block)[None], rows, 0)
        weights = weights - jnp.matmul(errors, later, precision=lax.Precision.HIGHEST)
        return weights, (made, mask)

    starts = jnp.arange(len(kept)) * block
    _, (made, mask) = lax.scan(step, weights, (starts, kept))

    def beside(of: Array) -> Array:
        return of.swapaxes(0, 1).reshape(outputs, -1)[:, :inputs]

    return beside(made), beside(mask)


def _upper(products: Array, mean: Array, damping: float) -> Array:
    """Return the upper triangular U with `H^{-1} = U^T U`; an input that is always 0 stands alone in H."""
    damped = products / mean + jnp.diag(jnp.where(jnp.diagonal(products) > 0, damping, 1))
    # In reverse order, H = L L^T, and the inverse of L is U in reverse.
    lower = jnp.linalg.cholesky(damped[::-1, ::-1])
    inverse = solve_triangular(lower, jnp.eye(len(lower), dtype=lower.dtype), lower=True)
    return inverse[::-1, ::-1] / jnp.sqrt(mean)


def _columns(
    weights: Array, upper: Array, worth: Array, mask: Array, pattern: Pattern
) -> tuple[Array, Array, Array]:
    """Remove the weights of a block, input after input; return the others, the mask and the errors.

    N:M chooses the mask on the way, from the weights as they are when their M inputs begin.
    """
    n, m = pattern or (1, 1)
    diagonal = jnp.diagonal(upper)

    def choose(weights: Array, mask: Array, index: Array) -> Array:
        own = lax.dynamic_slice_in_dim(weights, index, m, 1)
        costs = (own * lax.dynamic_slice_in_dim(worth, index, m)[None]) ** 2
        return lax.dynamic_update_slice_in_dim(mask, largest_along(costs, n), index, 1)

    def step(carry: tuple[Array, Array], index: Array) -> tuple[tuple[Array, Array], Array]:
        weights, mask = carry
        if pattern is not None:
            mask = lax.cond(index % m == 0, choose, lambda weights, mask, index: mask, weights, mask, index)
        removed = jnp.where(mask[:, index], 0, weights[:, index])
        error = removed / diagonal[index]
        return (weights - error[:, None] * upper[index][None], mask), error

    (weights, mask), errors = lax.scan(step, (weights, mask), jnp.arange(weights.shape[1]))
    return jnp.where(mask, weights, 0), mask, errors.T

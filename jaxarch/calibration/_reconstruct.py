"""Weights solved for again under a mask, so that each product's outputs change the least."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxarch._internal.errors import ArgumentError, check_concrete, check_count, check_one_positive
from jaxarch._internal.trees import PyTree, merge, named_leaves, placed, select_floating
from jaxarch.calibration._calibrate import Valid, outline
from jaxarch.calibration._matrices import MEMORY, layers_of, listed
from jaxarch.masks import check_booleans, check_fits


def reconstruct(
    function: Callable[[PyTree, PyTree], Any],
    params: PyTree,
    batches: Iterable[PyTree],
    mask: PyTree,
    *,
    valid: Valid | None = None,
    damping: float = 0.01,
    steps: int = 30,
    memory: int = MEMORY,
) -> PyTree:
    r"""Return the weights under a mask that keep the outputs of each product nearest to the dense model's.

    For each output of a weight matrix, with dense weights w_0, inputs X and `H = X^T X + damping
    mean(diag(X^T X)) I`, the weights minimize `(w - w_0)^T H (w - w_0)` over all w that are 0 outside of the
    mask. All outputs are solved for together, by conjugate gradients from the masked dense weights,
    preconditioned by the diagonal of H. No step makes the sum worse. Inputs are those of the dense model.

        pruned, mask = jaxarch.sparsegpt(apply, params, batches, 0.5)
        better = jaxarch.reconstruct(apply, params, batches, mask)  # of the dense parameters

    Args:
      function: `(params, batch) -> outputs`, jittable.
      params: the parameters of the dense model.
      batches: batches of examples, read once for each group of leaves that fit into `memory` together.
      mask: booleans for the leaves to solve for, `None` for others.
      valid: see `calibrate`.
      damping: the share of the mean squared input that is added to each. It holds weights near the dense
        ones where the batches say little.
      steps: steps of conjugate gradients.
      memory: bytes of second moments that are held at a time; at least those of one leaf are.

    Returns:
      The parameters, with zeros outside of the mask.

    Raises:
      ArgumentError: no batch; a mask that does not fit the parameters; a leaf whose inputs are not known, or
        that is not read as matrices; inputs that are NaN or infinite.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> params = {"kernel": jnp.array([[1.0], [2.0]])}
      >>> apply = lambda params, x: x @ params["kernel"]
      >>> x = jnp.array([[1.0, 1.0], [2.0, 2.0]])  # twice the same input
      >>> mask = {"kernel": jnp.array([[True], [False]])}
      >>> jaxarch.reconstruct(apply, params, [x], mask)["kernel"].round(1).tolist()  # 1 + 2
      [[3.0], [0.0]]
    """
    check_one_positive("damping", damping)
    check_count("steps", steps)
    check_count("memory", memory)
    damping, batches = float(damping), listed(batches)
    check_concrete("mask", mask)
    check_booleans(mask)
    check_fits(mask, params)
    masked = named_leaves(mask)
    if not masked:
        raise ArgumentError("mask: no leaf is masked")
    selection = select_floating(params, lambda path, leaf: path in masked)
    _, sizes = outline(function, params, batches[0])
    found = {}
    for layer in layers_of(function, params, batches, selection, valid, sizes, memory):
        parts = zip(layer.parts(layer.leaf), layer.parts(masked[layer.path]), layer.matrices, strict=True)
        made = [_solved(dense, kept, matrix.products, damping, steps) for dense, kept, matrix in parts]
        found[layer.path] = layer.joined(made, layer.leaf.dtype)
    return merge(placed(found, selection), params)


@functools.partial(jax.jit, static_argnames="steps")
def _solved(dense: Array, kept: Array, products: Array, damping: float, steps: int) -> Array:
    """Solve for matrices of shape (blocks, inputs, outputs) under their mask."""

    def one(of: tuple[Array, Array, Array]) -> Array:
        dense, kept, products = of
        return conjugate_gradients(dense, kept, damped_moments(products, damping), dense, steps)

    return lax.map(one, (dense, kept, products))


def damped_moments(products: Array, damping: float) -> Array:
    """Return second moments over their mean, plus a share of it: `H / mean(diag(X^T X))`."""
    mean = jnp.diagonal(products).mean()
    return products / jnp.where(mean > 0, mean, 1) + damping * jnp.eye(len(products), dtype=products.dtype)


def conjugate_gradients(dense: Array, kept: Array, damped: Array, start: Array, steps: int) -> Array:
    """Solve for a matrix of shape (inputs, outputs), for all outputs at once.

    Args:
      dense: the dense weights.
      kept: the mask.
      damped: the damped moments of the inputs.
      start: weights to begin at.
      steps: the number of steps.
    """
    scale = 1 / jnp.diagonal(damped)[:, None]

    def gradient(change: Array) -> Array:
        return jnp.where(kept, jnp.matmul(damped, change, precision=lax.Precision.HIGHEST), 0)

    weights = jnp.where(kept, start, 0)
    residual = gradient(dense - weights)
    direction = scale * residual
    size = (residual * direction).sum(0, keepdims=True)

    # An output is solved when rounding is all that is left of its residual; 0 / 0 would follow.
    least = jnp.finfo(size.dtype).eps ** 2 * size

    def step(carry: tuple[Array, ...], _: None) -> Any:
        weights, residual, direction, size = carry
        along = gradient(direction)
        curvature = (direction * along).sum(0, keepdims=True)
        goes_on = (size > least) & (curvature > 0)
        length = jnp.where(goes_on, size / jnp.where(goes_on, curvature, 1), 0)
        weights, residual = weights + length * direction, residual - length * along
        after = jnp.where(goes_on, (residual * scale * residual).sum(0, keepdims=True), 0)
        turn = after / jnp.where(goes_on, size, 1)
        return (weights, residual, scale * residual + turn * direction, after), None

    first: tuple[Array, ...] = (weights, residual, direction, size)
    return lax.scan(step, first, None, length=steps)[0][0]

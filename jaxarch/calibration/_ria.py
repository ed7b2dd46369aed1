"""Scores of weights relative to those of their input and of their output, times the size of their inputs."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import check_one_strength
from jaxarch._internal.trees import PyTree, Where, map_selected, named_leaves, placed
from jaxarch.calibration._calibrate import Calibration
from jaxarch.calibration._matrices import Layer, matrices_of
from jaxarch.calibration._wanda import squared_inputs


def ria(
    params: PyTree, calibration: Calibration, where: Where | None = None, exponent: float = 0.5
) -> PyTree:
    r"""Return the relative importance of each weight, times a power of the norm of its inputs (RIA).

    In a matrix theta with inputs j, outputs i and inputs' values X_j over the calibration batches,

        s_ij = (|theta_ij| / \sum_k |theta_kj| + |theta_ij| / \sum_k |theta_ik|) ||X_j||_2^a

    The first share is that of all weights of input j, the second that of all weights of output i: no input
    and no output loses all its weights at once. Y. Zhang et al., Plug-and-play: an efficient post-training
    pruning method for large language models, 2024. The authors' code compares all weights of a layer, or, as
    an option, those of each output among themselves: see `masks.PerOutput`. Experts and heads with inputs of
    their own, and groups of channels, are matrices of their own. A share of an input or output without
    weights is 0.

    Args:
      params: the weights of the calibrated model.
      calibration: the inputs of its weights, from `calibrate`.
      where: the leaves that are scored; by default all weights that were calibrated.
      exponent: a, at least 0.

    Returns:
      Scores in the structure of the parameters, in float32 or wider.

    Raises:
      ArgumentError: anything but a calibration; parameters of other shapes than the calibrated ones; a
        selected leaf whose inputs are not known, or that products do not read as matrices.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {"kernel": jnp.array([[1.0, 3.0], [3.0, 1.0]])}
      >>> apply = lambda params, x: x @ params["kernel"]
      >>> calibration = jaxarch.calibrate(apply, params, [jnp.array([[4.0, 1.0]])])
      >>> jaxarch.saliency.ria(params, calibration)["kernel"].tolist()  # norms 4 and 1, to the power of 1/2
      [[1.0, 3.0], [1.5, 0.5]]
    """
    check_one_strength("exponent", exponent)
    selection, squares = squared_inputs(params, calibration, where)

    def shares(path: str, theta: Array) -> Array:
        layer = Layer(path, theta, matrices_of(calibration, path))
        parts = [_shares(jnp.abs(part)) for part in layer.parts(theta)]
        return layer.joined(parts, parts[0].dtype)

    relative = {path: shares(path, theta) for path, theta in named_leaves(selection).items()}
    return map_selected(lambda share, of: share * of ** (exponent / 2), placed(relative, selection), squares)


def _shares(sizes: Array) -> Array:
    """Return each weight's share in its input, plus that in its output; shape (blocks, inputs, outputs)."""
    sums = [sizes.sum(axis, keepdims=True) for axis in (1, 2)]
    return sum((sizes / jnp.where(of > 0, of, 1) for of in sums), jnp.zeros_like(sizes))

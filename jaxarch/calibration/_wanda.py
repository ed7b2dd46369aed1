"""Scores of weights by their size and the size of their inputs."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_instance
from jaxarch._internal.trees import PyTree, Where, map_selected, named_leaves, placed, select_floating
from jaxarch.calibration._calibrate import Calibration


def wanda(params: PyTree, calibration: Calibration, where: Where | None = None) -> PyTree:
    r"""Return the size of each weight times the norm of its inputs: `|theta_ij| ||X_j||_2`.

    X_j are the values of input j over all rows of the calibration batches. M. Sun, Z. Liu, A. Bair and J. Z.
    Kolter, A simple and effective pruning approach for large language models, 2023, equation (1). The authors
    compare the weights of each output among themselves:

        calibration = jaxarch.calibrate(apply, params, batches)
        scores = jaxarch.saliency.wanda(params, calibration)
        mask = jaxarch.masks.keep(scores, 0.5, jaxarch.masks.PerOutput(calibration.inputs))

    A weight that several products use has the norm of all its inputs together. Its square times theta^2 is
    thus the change of the products' outputs, summed over rows, when the weight is removed. The authors
    divide the square by the number of rows, which changes no mask of a layer.

    Args:
      params: the weights of the calibrated model.
      calibration: the inputs of its weights, from `calibrate`.
      where: the leaves that are scored; by default all weights that were calibrated.

    Returns:
      Scores in the structure of the parameters, in float32 or wider.

    Raises:
      ArgumentError: anything but a calibration; parameters of other shapes than the calibrated ones; a
        selected leaf whose inputs are not known.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {"kernel": jnp.array([[1.0, -2.0], [3.0, 0.5]])}
      >>> apply = lambda params, x: x @ params["kernel"]
      >>> calibration = jaxarch.calibrate(apply, params, [jnp.array([[3.0, 0.0], [4.0, 1.0]])])
      >>> jaxarch.saliency.wanda(params, calibration)["kernel"].tolist()  # norms 5 and 1
      [[5.0, 10.0], [3.0, 0.5]]
    """
    selection, squares = squared_inputs(params, calibration, where)

    def scores(theta: Array, of: Array) -> Array:
        return jnp.abs(theta.astype(of.dtype)) * jnp.sqrt(of)

    return map_selected(scores, selection, squares)


def squared_inputs(params: PyTree, calibration: Calibration, where: Where | None) -> tuple[PyTree, PyTree]:
    """Return the selected parameters, and the squared inputs of their connections.

    Raises:
      ArgumentError: anything but a calibration of these parameters; a leaf whose inputs are not known.
    """
    check_instance("calibration", calibration, Calibration, "the result of jaxarch.calibrate")
    calibration.check_fits(params)
    selection = select_floating(params, calibration if where is None else where)
    squares = named_leaves(calibration.squares(params, selection))
    for path in named_leaves(selection):
        if path not in squares:
            why = calibration.left.get(path, "it was not calibrated")
            raise ArgumentError(f"where: the inputs of {path!r} are not known: {why}")
    return selection, placed(squares, selection)

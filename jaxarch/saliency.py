r"""Scores of how much a network needs each connection, as pure functions of parameters and gradients.

A *saliency* has the structure of the parameters, with `None` in place of leaves that are not masked, and is
float32, or float64 where they are. A larger score means a connection is needed more. `masks.keep` turns it
into a mask:

    loss, gradients = jax.value_and_grad(loss_of)(params, batch)
    mask = jaxarch.masks.keep(jaxarch.saliency.snip(params, gradients), 0.1)

Arrays may be split over devices, and stay split: each weight meets only its own gradient.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_array, check_function, first_line
from jaxarch._internal.trees import (
    PyTree,
    Where,
    check_structure,
    inexact,
    map_selected,
    matrices,
    merge,
    named_leaves,
    restructured,
    select_floating,
)

__all__ = ["grasp", "magnitude", "snip", "synflow"]


def magnitude(params: PyTree, where: Where = matrices) -> PyTree:
    """Return the magnitude of each weight, `|theta|`: pruning removes weights that are already near 0.

    Args:
      params: the weights of a trained network.
      where: the leaves that are masked, by path.

    Returns:
      Scores in the structure of the parameters.

    Raises:
      ArgumentError: selected parameters that are not floating point; leaves that do not exist.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> jaxarch.saliency.magnitude({"kernel": jnp.array([[1.0, -2.0]]), "bias": jnp.ones(2)})
      {'bias': None, 'kernel': Array([[1., 2.]], dtype=float32)}
    """
    return map_selected(lambda theta: jnp.abs(_float32(theta)), select_floating(params, where))


def snip(params: PyTree, gradients: PyTree, where: Where = matrices) -> PyTree:
    r"""Return how much the loss would change without each connection, to first order: `|theta dL/dtheta|`.

    This is `|dL/dm|` at a mask m of ones. N. Lee, T. Ajanthan and P. Torr, SNIP: Single-shot network pruning
    based on connection sensitivity, 2019. The paper divides by the sum, which changes no mask.

    Args:
      params: theta, usually the initial parameters.
      gradients: gradients of the loss at theta, a mean over one batch or, better, several. A module of
        gradients fits the state of its parameters; `nnx.grad` makes one if Flax's `graph_updates` is off.
      where: the leaves that are masked, by path.

    Returns:
      Scores in the structure of the parameters.

    Raises:
      ArgumentError: gradients whose structure or shapes differ from the parameters; selected parameters that
        are not floating point; leaves that do not exist.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> jaxarch.saliency.snip({"kernel": jnp.array([[1.0, -2.0]])}, {"kernel": jnp.array([[3.0, 0.5]])})
      {'kernel': Array([[3., 1.]], dtype=float32)}
    """
    selection = select_floating(params, where)
    if missing := named_leaves(selection).keys() - named_leaves(gradients).keys():
        raise ArgumentError(
            f"gradients: {min(missing)!r} has none; differentiate with respect to the same parameters"
        )
    of_gradients = named_leaves(gradients)
    for path, theta in named_leaves(selection).items():
        check_array(f"gradients: {path}", of_gradients[path])
        if jnp.shape(of_gradients[path]) != jnp.shape(theta):
            shape = jnp.shape(of_gradients[path])
            raise ArgumentError(f"gradients: expected shape {jnp.shape(theta)} for {path!r}, got {shape}")
    gradients = restructured(gradients, selection)
    check_structure("gradients", selection, gradients, "the parameters")
    return map_selected(lambda theta, g: jnp.abs(_float32(theta) * _float32(g)), selection, gradients)


def grasp(loss: Callable[[PyTree], Array], params: PyTree, where: Where = matrices) -> PyTree:
    r"""Return each connection's part in the norm of the gradient: `theta (H g)`, H the Hessian of the loss.

    `-theta (H g)` is half of the change of `|g|^2`, to first order, when theta is removed. The smaller the
    score, the more the removal increases the gradient flow. C. Wang, G. Zhang and R. Grosse, Picking winning
    tickets before training by preserving gradient flow, 2020, equation (8), with the opposite sign, so that
    the largest scores are kept. It is computed exactly, as a derivative along g, at about the price of three
    gradients.

    Args:
      loss: `params -> scalar`, over a batch. The authors' code divides the outputs by 200 here: see
        `Problem.softened`.
      params: theta, usually the initial parameters.
      where: the leaves that are masked, by path. g is 0 for all other leaves.

    Returns:
      Scores in the structure of the parameters; they may be negative.

    Raises:
      ArgumentError: selected parameters that are not floating point; leaves that do not exist; a loss that
        fails on these parameters, or is not one number.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {"kernel": jnp.array([[1.0, 2.0]])}
      >>> jaxarch.saliency.grasp(lambda p: (p["kernel"] ** 3).sum(), params)
      {'kernel': Array([[ 18., 288.]], dtype=float32)}
    """
    check_function("loss", loss, params)
    selection = select_floating(params, where)
    moves = inexact(params)

    def loss_of(moves: PyTree) -> Array:
        made = _called("loss", loss, merge(moves, params))
        if jnp.shape(made) != ():
            raise ArgumentError(f"loss: expected one number, got shape {jnp.shape(made)}; take a mean")
        return made

    gradient = jax.grad(loss_of)

    # If a module has no array, for instance a layer without a bias, both theta and g are missing.
    def along(theta: Array | None, g: Array | None) -> Array | None:
        return jnp.zeros_like(g) if theta is None and g is not None else g

    g = jax.tree.map(along, selection, gradient(moves), is_leaf=lambda leaf: leaf is None)
    _, product = jax.jvp(gradient, (moves,), (g,))
    return map_selected(lambda theta, hg: _float32(theta) * _float32(hg), selection, product)


def synflow(output: Callable[[PyTree], Array], params: PyTree, where: Where = matrices) -> PyTree:
    r"""Return each connection's part in the flow through the network: `|theta| dR/d|theta|`.

    R is the sum of the outputs on an input of ones, of the network with all parameters replaced by `|theta|`.
    It needs no data. H. Tanaka, D. Kunin, D. Yamins and S. Ganguli, Pruning neural networks without any data
    by iteratively conserving synaptic flow, 2020, equation (2). The paper prunes in 100 rounds, to density
    `d^(k / 100)` after round k, since a single round may cut a whole layer. For rounds, call this function
    again with the masked parameters.

    Without biases, the scores of a layer that carries all flow add up to R. Parallel layers, such as a
    convolution and the projection around it, add up to the flow through each: to R together. Layers around an
    identity add up to less, since the identity has no scores.

    Args:
      output: `params -> outputs` on an input of ones, without activations for which signs make a difference
        (for ReLUs they make none). It is called with the absolute values, in float32.
      params: theta. In float32 a deep network's flow may overflow or vanish; `jax_enable_x64` gives float64.
      where: the leaves that are masked, by path.

    Returns:
      Scores in the structure of the parameters.

    Raises:
      ArgumentError: selected parameters that are not floating point; leaves that do not exist; a function
        that fails on these parameters, or does not return an array.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {"a": jnp.array([[-1.0, 2.0]]), "b": jnp.array([[3.0]])}
      >>> scores = jaxarch.saliency.synflow(lambda p: jnp.ones((1, 1)) @ p["b"] @ p["a"], params)
      >>> [leaf.tolist() for leaf in scores.values()]
      [[[3.0, 6.0]], [[9.0]]]
    """
    check_function("output", output, params)
    selection = select_floating(params, where)
    positive = jax.tree.map(lambda theta: jnp.abs(_float32(theta)), inexact(params))
    flow = jax.grad(lambda p: jnp.sum(_called("output", output, merge(p, params))))(positive)
    return map_selected(lambda theta, p, g: jnp.abs(p * g), selection, positive, flow)


def _called(name: str, function: Callable[[PyTree], Array], params: PyTree) -> Array:
    """Return the array that a function computes from the parameters.

    Raises:
      ArgumentError: the function fails, or does not return an array of real numbers.
    """
    try:
        made = function(params)
    except ArgumentError:
        raise
    except Exception as error:
        raise ArgumentError(f"{name}: it fails on these parameters: {first_line(error)}") from error
    check_array(f"{name}: its result", made, real=True)
    return made


def _float32(array: Array) -> Array:
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))

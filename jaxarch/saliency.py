r"""How much a network needs each of its connections: scores as pure functions of parameters and gradients.

A *saliency* has the structure of the parameters, `None` in place of leaves that are not masked, and is
float32 whatever they are. The larger, the more a connection is needed; `masks.keep` makes a mask of it:

    loss, gradients = jax.value_and_grad(loss_of)(params, batch)
    mask = jaxarch.masks.keep(jaxarch.saliency.snip(params, gradients), 0.1)

Arrays may be split over devices, and stay so: nothing is compared here but a weight with its own gradient.
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
    """The size of a weight, `|theta|`: what is removed is near 0 already.

    Args:
      params: the weights, of a trained network.
      where: the leaves that are masked, by path.

    Returns:
      Scores in the structure of the parameters.

    Raises:
      ArgumentError: selected parameters that are not floating point; leaves that there are none of.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> jaxarch.saliency.magnitude({"kernel": jnp.array([[1.0, -2.0]]), "bias": jnp.ones(2)})
      {'bias': None, 'kernel': Array([[1., 2.]], dtype=float32)}
    """
    return map_selected(lambda theta: jnp.abs(_float32(theta)), select_floating(params, where))


def snip(params: PyTree, gradients: PyTree, where: Where = matrices) -> PyTree:
    r"""How much the loss would change without a connection, to first order: `|theta dL/dtheta|`.

    That is `|dL/dm|` at a mask m of ones. N. Lee, T. Ajanthan and P. Torr, SNIP: Single-shot network pruning
    based on connection sensitivity, 2019; they divide by the sum, which changes no mask.

    Args:
      params: theta, as a rule those of the start.
      gradients: of the loss at theta, a mean over one batch or, better, several. A module of gradients goes
        with the state of its parameters, as `nnx.grad` makes it where Flax's `graph_updates` is off.
      where: the leaves that are masked, by path.

    Returns:
      Scores in the structure of the parameters.

    Raises:
      ArgumentError: gradients of another structure or of other shapes; selected parameters that are not
        floating point; leaves that there are none of.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> jaxarch.saliency.snip({"kernel": jnp.array([[1.0, -2.0]])}, {"kernel": jnp.array([[3.0, 0.5]])})
      {'kernel': Array([[3., 1.]], dtype=float32)}
    """
    selection = select_floating(params, where)
    if missing := named_leaves(selection).keys() - named_leaves(gradients).keys():
        raise ArgumentError(f"gradients: there is none of {min(missing)!r}; take them of the same parameters")
    of_gradients = named_leaves(gradients)
    for path, theta in named_leaves(selection).items():
        check_array(f"gradients: {path}", of_gradients[path])
        if jnp.shape(of_gradients[path]) != jnp.shape(theta):
            shape = jnp.shape(of_gradients[path])
            raise ArgumentError(f"gradients: expected shape {jnp.shape(theta)} of {path!r}, got {shape}")
    gradients = restructured(gradients, selection)
    check_structure("gradients", selection, gradients, "the parameters")
    return map_selected(lambda theta, g: jnp.abs(_float32(theta) * _float32(g)), selection, gradients)


def grasp(loss: Callable[[PyTree], Array], params: PyTree, where: Where = matrices) -> PyTree:
    r"""How much of the gradient's norm goes through a connection: `theta (H g)`, H the Hessian of the loss.

    `-theta (H g)` is half of the change of `|g|^2`, to first order, when theta is removed: the smaller this
    score, the more the flow of gradients gains by the removal. C. Wang, G. Zhang and R. Grosse, Picking
    winning tickets before training by preserving gradient flow, 2020, equation (8), with its sign turned so
    that the largest are kept. It is computed exactly, as a derivative along g, at about the price of three
    gradients.

    Args:
      loss: `params -> scalar`, over a batch. The authors' code divides the outputs by 200 here: see
        `Problem.softened`.
      params: theta, as a rule those of the start.
      where: the leaves that are masked, by path. g has zeros for all others.

    Returns:
      Scores in the structure of the parameters; they may be negative.

    Raises:
      ArgumentError: selected parameters that are not floating point; leaves that there are none of; a loss
        that fails on these parameters, or is not one number.

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

    # Where a module has no array, as for a layer without a bias, there is neither theta nor g.
    def along(theta: Array | None, g: Array | None) -> Array | None:
        return jnp.zeros_like(g) if theta is None and g is not None else g

    g = jax.tree.map(along, selection, gradient(moves), is_leaf=lambda leaf: leaf is None)
    _, product = jax.jvp(gradient, (moves,), (g,))
    return map_selected(lambda theta, hg: _float32(theta) * _float32(hg), selection, product)


def synflow(output: Callable[[PyTree], Array], params: PyTree, where: Where = matrices) -> PyTree:
    r"""How much of the flow through the network goes through a connection: `|theta| dR/d|theta|`.

    R is the sum of the outputs of the network whose parameters are all `|theta|`, on an input of ones: no
    data are needed. H. Tanaka, D. Kunin, D. Yamins and S. Ganguli, Pruning neural networks without any data
    by iteratively conserving synaptic flow, 2020, equation (2). They prune in 100 rounds, to density `d^(k /
    100)` after round k, since a single one may cut a whole layer: call it again with the masked parameters.

    Without biases the scores of a layer that all flow goes through add up to R, and those of layers beside
    each other, such as a convolution and the projection around it, to what goes through each: to R together.
    Around an identity, which has no scores, they add up to less.

    Args:
      output: `params -> outputs` on an input of ones, without activations that make a difference of signs
        (ReLUs make none). It is called with the absolute values, in float32.
      params: theta. In float32 a deep network's flow may overflow or vanish; `jax_enable_x64` gives float64.
      where: the leaves that are masked, by path.

    Returns:
      Scores in the structure of the parameters.

    Raises:
      ArgumentError: selected parameters that are not floating point; leaves that there are none of; a
        function that fails on these parameters, or makes no array.

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
    """The array that a function makes of the parameters.

    Raises:
      ArgumentError: it fails, or makes no array of real numbers.
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

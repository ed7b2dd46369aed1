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
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_array, check_function, check_leaves, first_line
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
from jaxarch.structure._paths import Sums, added, held_sums, open_sums
from jaxarch.structure._tracing import traced

__all__ = ["grasp", "magnitude", "ntk_sap", "path_exclusion", "snip", "synflow"]


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
    gradients = _fitting(
        "gradients", gradients, selection, "differentiate with respect to the same parameters"
    )
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


def path_exclusion(
    outputs: Callable[[PyTree, PyTree], Any], params: PyTree, inputs: PyTree, where: Where = matrices
) -> PyTree:
    r"""Return the share of a bound on the neural tangent kernel's trace that goes through each connection.

    A network of ReLUs is a sum over paths, `f_k(x) = sum_p v_p a_p(x) x_p`. v_p is the product of the
    parameters along path p to output k, x_p the input at its start (1 at a bias), and a_p is 1 if all
    activations on the path are open. The trace of the kernel is at most `R = sum_k A_k T_k`. Here
    `A_k = sum_x sum_p (a_p x_p)^2` depends on the data, and `T_k = sum_p |grad v_p|^2` on the parameters. The
    score is `theta^2 dS / d(theta^2) / S`, with `S = sum_k A_k sum_p v_p^2`, so that R is the sum of
    `dS / d(theta^2)`. A_k is held, in this derivative too. L. Iurada, M. Ciccone and T. Tommasi, Finding
    lottery tickets in vision models via data-driven spectral foresight pruning, 2024. The division by S keeps
    the scores finite, and changes no mask.

    The data change the scores only by the weights A_k of the outputs. Before any pruning, a dense last layer
    gives all outputs the same A_k. The data matter from the second round on.

    A weight of 0 counts as removed: no path goes through it. For rounds, call this function again with the
    masked parameters. Numbers that are neither parameters nor inputs, such as running statistics, are factors
    of a_p. Slopes other than 0 and 1, as of a leaky ReLU, are factors of a_p too.

    Args:
      outputs: `(params, inputs) -> outputs`, in evaluation mode. It consists of products, sums, choices such
        as ReLU, leaky ReLU and max pooling, and of what moves entries. Products with two activations are
        allowed while no path meets a parameter twice. Loops over layers are not followed.
      params: theta, computed with in float32 at least.
      inputs: floating-point examples, with a leading axis each; `outputs` is traced with one of them.
      where: the leaves that are masked, by path. The others are on paths, too.

    Returns:
      Scores in the structure of the parameters. The scores of a layer that all paths go through add up to 1.

    Raises:
      ArgumentError: other operations on the way, such as tanh, a softmax or a loop, by name; parameters that
        meet themselves; inputs that index parameters, or of different lengths; selected parameters that are
        not floating point; leaves that do not exist.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {"a": jnp.array([[-1.0, 2.0]]), "b": jnp.array([[3.0], [1.0]])}
      >>> def outputs(params, x):
      ...     return jnp.maximum(x @ params["a"], 0) @ params["b"]
      >>> scores = jaxarch.saliency.path_exclusion(outputs, params, jnp.ones((2, 1)))
      >>> print(scores["a"])  # 9 and 4 of 13
      [[0.6923077  0.30769232]]
    """
    check_function("outputs", outputs, params, inputs)
    check_leaves("inputs", inputs)
    selection = select_floating(params, where)
    lengths = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(inputs)}
    if len(lengths) != 1 or lengths & {(), (0,)}:
        raise ArgumentError(
            f"inputs: expected arrays with one leading axis of examples, got lengths {sorted(lengths)}"
        )
    numbers = jax.tree.map(_float32, inexact(params))
    left = jax.tree.map(jnp.ones_like, numbers)
    left = merge(map_selected(lambda theta: (theta != 0).astype(_float32(theta).dtype), selection), left)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype), inputs)
    closed, _ = traced(lambda p, x: outputs(merge(p, params), x), numbers, one, name="outputs")
    parts, kept = jax.tree.leaves(numbers), jax.tree.leaves(left)

    def of_example(example: PyTree) -> Sums:
        return held_sums(closed, parts, kept, [leaf[None] for leaf in jax.tree.leaves(example)])

    weights = added(jax.vmap(of_example)(inputs)).outputs

    def through(squares: PyTree) -> Array:
        sums = open_sums(closed, jax.tree.leaves(squares)).outputs
        return jnp.stack([jnp.sum(a * t) for a, t in zip(weights, sums, strict=True)]).sum()

    squares = jax.tree.map(jnp.square, numbers)
    whole, slopes = jax.value_and_grad(through)(squares)
    whole = jnp.where(whole > 0, whole, jnp.ones_like(whole))
    return map_selected(lambda theta, square, slope: square * slope / whole, selection, squares, slopes)


def ntk_sap(
    output: Callable[[PyTree], Array], params: PyTree, noise: PyTree, where: Where = matrices
) -> PyTree:
    r"""Return the derivative by each connection's mask of how far noise in the weights moves the outputs.

    The derivative is of `|f(theta m) - f((theta + noise) m)|^2` at a mask m of ones, summed over all outputs.
    With small normal noise, its expectation is the nuclear norm of the neural tangent kernel, up to a factor.
    Y. Wang, D. Li and R. Sun, NTK-SAP: Improving neural network pruning by aligning training dynamics, 2023.
    The paper takes the mean over random weights, random noise and normal inputs, and keeps the connections
    with the largest `|mean|`. Average these scores over some draws, then take their absolute values.

    Args:
      output: `params -> outputs` on a batch, in evaluation mode. In the paper, inputs are normal.
      params: theta, new initial weights for each draw. If some connections are removed, they are 0.
      noise: changes of the masked leaves, with 0 for removed connections; others are not read. The authors
        draw normal ones of standard deviation .01.
      where: the leaves that are masked, by path. The other leaves do not change.

    Returns:
      Scores in the structure of the parameters; they may be negative.

    Raises:
      ArgumentError: noise whose structure or shapes differ from the parameters; selected parameters that are
        not floating point; leaves that do not exist; a function that fails on these parameters, or does not
        return an array.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {"a": jnp.array([[2.0]]), "b": jnp.array([[3.0]])}
      >>> noise = {"a": jnp.array([[1.0]]), "b": jnp.array([[0.0]])}
      >>> jaxarch.saliency.ntk_sap(lambda p: p["a"] * p["b"], params, noise)  # of (2 * 3 - 3 * 3)^2
      {'a': Array([[18.]], dtype=float32), 'b': Array([[18.]], dtype=float32)}
    """
    check_function("output", output, params)
    selection = select_floating(params, where)
    noise = _fitting("noise", noise, selection, "give one change for each weight of a masked leaf")
    numbers = jax.tree.map(_float32, inexact(params))
    moved = map_selected(lambda theta, change: _float32(theta) + _float32(change), selection, noise)

    def distance(numbers: PyTree, moved: PyTree) -> Array:
        before, after = (
            _called("output", output, merge(leaves, params)) for leaves in (numbers, merge(moved, numbers))
        )
        return jnp.square(before - after).sum()

    def score(theta: Array, change: Array, here: Array, there: Array) -> Array:
        return _float32(theta) * here + (_float32(theta) + _float32(change)) * there

    return map_selected(score, selection, noise, *jax.grad(distance, (0, 1))(numbers, moved))


def _fitting(name: str, tree: PyTree, selection: PyTree, remedy: str) -> PyTree:
    """Return a tree in the structure of the selected parameters, once its leaves fit them.

    Raises:
      ArgumentError: leaves that are missing, are no arrays or have other shapes; another structure.
    """
    named = named_leaves(tree)
    for path, theta in named_leaves(selection).items():
        if path not in named:
            raise ArgumentError(f"{name}: {path!r} has none; {remedy}")
        check_array(f"{name}: {path}", named[path])
        if jnp.shape(named[path]) != jnp.shape(theta):
            raise ArgumentError(
                f"{name}: expected shape {jnp.shape(theta)} for {path!r}, got {jnp.shape(named[path])}"
            )
    tree = restructured(tree, selection)
    check_structure(name, selection, tree, "the parameters")
    return tree


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

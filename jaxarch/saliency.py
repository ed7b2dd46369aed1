r"""Scores of how much a network needs each connection, as pure functions of parameters and gradients.

A *saliency* has the structure of the parameters, with `None` in place of leaves that are not masked, and is
float32, or float64 where they are. A larger score means a connection is needed more. `masks.keep` turns it
into a mask:

    loss, gradients = jax.value_and_grad(loss_of)(params, batch)
    mask = jaxarch.masks.keep(jaxarch.saliency.snip(params, gradients), 0.1)

Arrays may be split over devices, and stay split: each weight meets only its own gradient.

`activation` and `geometric_median` score whole units instead, for `structure.plan`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import (
    ArgumentError,
    check_array,
    check_count,
    check_function,
    check_instance,
    check_one_key,
    first_line,
    shown,
)
from jaxarch._internal.precision import widened
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
from jaxarch.calibration._ria import ria
from jaxarch.calibration._wanda import wanda
from jaxarch.structure._edges import checked_edges, summed_at_nodes
from jaxarch.structure._paths import Sums, added, held_sums, open_sums
from jaxarch.structure._tracing import traced
from jaxarch.structure._unit_scores import activation, geometric_median

__all__ = [
    "activation",
    "fisher_diagonal",
    "geometric_median",
    "grasp",
    "hessian_diagonal",
    "lamp",
    "magnitude",
    "ntk_sap",
    "path_exclusion",
    "prospr",
    "ria",
    "snip",
    "synflow",
    "taylor",
    "teddy",
    "wanda",
]

_SAME = "differentiate with respect to the same parameters"


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
    return map_selected(lambda theta: jnp.abs(widened(theta)), select_floating(params, where))


def lamp(params: PyTree, where: Where = matrices) -> PyTree:
    r"""Return each weight's share in the squares of its leaf's weights that are at least as large.

    With the weights of a leaf sorted by magnitude,

        s_u = theta_u^2 / \sum_{v >= u} theta_v^2

    Lee et al., Layer-adaptive sparsity for the magnitude-based pruning (LAMP), 2021. The largest
    weight of every leaf has score 1, so that no leaf is emptied when the scores of all leaves are compared.
    Of equal weights, those that come later count as larger. A leaf of zeros has scores 0.

    Args:
      params: the weights of a trained network.
      where: the leaves that are masked, by path.

    Returns:
      Scores in the structure of the parameters, in [0, 1].

    Raises:
      ArgumentError: selected parameters that are not floating point; leaves that do not exist.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> jaxarch.saliency.lamp({"kernel": jnp.array([[1.0, -2.0, 2.0]])})["kernel"].round(2)
      Array([[0.11, 0.5 , 1.  ]], dtype=float32)
    """

    def scores(theta: Array) -> Array:
        size = jnp.abs(widened(theta)).ravel()
        # Relative to the largest, since squares of large weights overflow.
        squares = (size / jnp.where(size.max(initial=0) > 0, size.max(initial=0), 1)) ** 2
        order = jnp.argsort(squares, stable=True)
        # Sums from the largest down keep the small squares that a difference of sums would lose.
        left = jnp.cumsum(squares[order][::-1])[::-1]
        shares = squares[order] / jnp.where(left > 0, left, 1)
        return jnp.zeros_like(squares).at[order].set(shares).reshape(theta.shape)

    return map_selected(scores, select_floating(params, where))


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
    gradients = _fitting("gradients", gradients, selection, _SAME)
    return map_selected(lambda theta, g: jnp.abs(widened(theta) * widened(g)), selection, gradients)


def taylor(params: PyTree, gradients: PyTree, curvature: PyTree, where: Where = matrices) -> PyTree:
    r"""Return how much the loss would change without each connection, to second order.

    The score is `|theta g - theta^2 h / 2|`. g is the gradient, and h a curvature: the diagonal of the
    Hessian, or the one of the empirical Fisher matrix in its place. `fisher_diagonal` and `hessian_diagonal`
    return both. I. Gollini Navarrete et al., What scalable second-order information knows for pruning at
    initialization, 2025. The authors' code adds the two terms. Here they have the signs of a removal, a step
    of `-theta`. With a g of zeros, as in a minimum of the loss, the score is `theta^2 |h| / 2`: Y. LeCun, J.
    Denker and S. Solla, Optimal brain damage, 1989.

    Args:
      params: theta, usually the initial parameters.
      gradients: g, a mean over one batch or, better, several.
      curvature: h, such as the mean of squared gradients of single examples.
      where: the leaves that are masked, by path.

    Returns:
      Scores in the structure of the parameters.

    Raises:
      ArgumentError: gradients or a curvature whose structure or shapes differ from the parameters; selected
        parameters that are not floating point; leaves that do not exist.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> kernel = lambda *row: {"kernel": jnp.array([row])}
      >>> jaxarch.saliency.taylor(kernel(1.0, -2.0), kernel(3.0, 0.5), kernel(2.0, 4.0))
      {'kernel': Array([[2., 9.]], dtype=float32)}
    """
    selection = select_floating(params, where)
    gradients = _fitting("gradients", gradients, selection, _SAME)
    curvature = _fitting("curvature", curvature, selection, _SAME)

    def change(theta: Array, g: Array, h: Array) -> Array:
        theta = widened(theta)
        return jnp.abs(theta * widened(g) - theta**2 * widened(h) / 2)

    return map_selected(change, selection, gradients, curvature)


def fisher_diagonal(
    loss: Callable[[PyTree, PyTree], Array], params: PyTree, batch: PyTree, where: Where = matrices
) -> tuple[PyTree, PyTree]:
    r"""Return the means over examples of the gradient, and of its square: the empirical Fisher diagonal.

    Gradients are of one example at a time, since the square of a batch's mean gradient is much smaller. Sums
    are kept, and no gradient of another example: memory does not grow with the batch. For several batches of
    one size, take the mean of their results.

    Args:
      loss: `(params, batch) -> scalar`. It is called with batches of one example, so batch norm needs its
        running statistics.
      params: theta, usually the initial parameters.
      batch: arrays with one leading axis of examples.
      where: the leaves that are scored, by path.

    Returns:
      Gradients, and squares of gradients, in the structure of the parameters, for `taylor`.

    Raises:
      ArgumentError: selected parameters that are not floating point; leaves that do not exist; arrays without
        a common axis of examples; a loss that fails on these parameters, or is not one number.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params, x = {"kernel": jnp.array([[1.0, 2.0]])}, jnp.array([[1.0, 0.0], [3.0, 1.0]])
      >>> jaxarch.saliency.fisher_diagonal(lambda p, x: (x @ p["kernel"].T).mean(), params, x)[1]
      {'kernel': Array([[5. , 0.5]], dtype=float32)}
    """
    check_function("loss", loss, params, batch)
    selection = select_floating(params, where)
    count = _leading("batch", batch, "examples")
    zeros = map_selected(lambda leaf: jnp.zeros_like(widened(leaf)), selection)

    def add(sums: tuple[PyTree, PyTree], index: Array) -> tuple[tuple[PyTree, PyTree], None]:
        example = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, index, 1), batch)
        g = jax.grad(_scalar(lambda of: loss(of, example), params))(selection)
        first = map_selected(lambda leaf, sum_: sum_ + widened(leaf), g, sums[0])
        return (first, map_selected(lambda leaf, sum_: sum_ + widened(leaf) ** 2, g, sums[1])), None

    sums, _ = jax.lax.scan(add, (zeros, zeros), jnp.arange(count))
    return jax.tree.map(lambda sum_: sum_ / count, sums)


def hessian_diagonal(
    loss: Callable[[PyTree], Array], params: PyTree, key: Array, samples: int = 10, where: Where = matrices
) -> tuple[PyTree, PyTree]:
    r"""Return the gradient, and an estimate of the diagonal of the Hessian H.

    The estimate is the mean of `z * (H z)` over random signs z. It is unbiased. Its variance is `sum_j H_ij^2
    / samples`, over all j but i. M. Hutchinson, A stochastic estimator of the trace of the influence matrix
    for Laplacian smoothing splines, 1990; C. Bekas, E. Kokiopoulou and Y. Saad, An estimator for the diagonal
    of a matrix, 2007. Only selected leaves have signs, which keeps entries between them and others out of the
    variance.

    Args:
      loss: `params -> scalar`, over a batch.
      params: theta, usually the initial parameters.
      key: a random key for the signs.
      samples: number of random z. Each one costs about as much as two gradients.
      where: the leaves that are scored, by path.

    Returns:
      Gradients and the diagonal, in the structure of the parameters, for `taylor`.

    Raises:
      ArgumentError: samples that are not a positive integer; selected parameters that are not floating point;
        leaves that do not exist; a loss that fails on these parameters, or is not one number.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> params = {"kernel": jnp.array([[1.0, 2.0]])}
      >>> cubes = lambda p: (p["kernel"] ** 3).sum()
      >>> jaxarch.saliency.hessian_diagonal(cubes, params, jax.random.key(0))[1]
      {'kernel': Array([[ 6., 12.]], dtype=float32)}
    """
    check_function("loss", loss, params)
    check_one_key(key)
    check_count("samples", samples)
    selection = select_floating(params, where)
    leaves, treedef = jax.tree.flatten(selection)
    # The gradient is linearized once: a sample costs one product with the Hessian, and no other gradient.
    g, product = jax.linearize(jax.grad(_scalar(loss, params)), selection)

    def add(sum_: PyTree, key: Array) -> tuple[PyTree, None]:
        keys = jax.random.split(key, len(leaves))
        signs = [
            jax.random.rademacher(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)
        ]
        z = jax.tree.unflatten(treedef, signs)
        return map_selected(lambda z, hz, sum_: sum_ + widened(z) * widened(hz), z, product(z), sum_), None

    zeros = map_selected(lambda leaf: jnp.zeros_like(widened(leaf)), selection)
    total, _ = jax.lax.scan(add, zeros, jax.random.split(key, samples))
    return map_selected(widened, g), map_selected(lambda leaf: leaf / samples, total)


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
    gradient = jax.grad(_scalar(loss, params))

    # If a module has no array, for instance a layer without a bias, both theta and g are missing.
    def along(theta: Array | None, g: Array | None) -> Array | None:
        return jnp.zeros_like(g) if theta is None and g is not None else g

    g = jax.tree.map(along, selection, gradient(moves), is_leaf=lambda leaf: leaf is None)
    _, product = jax.jvp(gradient, (moves,), (g,))
    return map_selected(lambda theta, hg: widened(theta) * widened(hg), selection, product)


def prospr(
    loss: Callable[[PyTree, PyTree], Array],
    params: PyTree,
    batches: PyTree,
    optimizer: optax.GradientTransformation,
    where: Where = matrices,
) -> PyTree:
    r"""Return how much the loss after some steps of training would change without each connection.

    The score is `|dL_M / dm|` at a mask m of ones. Training begins with `m * theta` and takes M steps. L_M is
    the loss of the next batch. The derivative goes through all steps. M. Alizadeh et al., Prospect pruning:
    finding trainable weights at initialization using meta-gradients, 2022. Without a step it would be `snip`.
    Each step's gradient is computed again on the way back, so memory holds the weights of all steps, and the
    activations of one.

    Args:
      loss: `(params, batch) -> scalar`.
      params: theta, usually the initial parameters.
      batches: arrays with a leading axis of M + 1 batches: one for each step, and the last for L_M.
      optimizer: an optax transformation for the steps. The authors have `optax.sgd`.
      where: the leaves that are masked, by path. Steps change all others too.

    Returns:
      Scores in the structure of the parameters.

    Raises:
      ArgumentError: fewer than two batches; selected parameters that are not floating point; leaves that do
        not exist; a loss that fails on these parameters, or is not one number; another kind of optimizer.

    Example:
      >>> import jax.numpy as jnp, jaxarch, optax
      >>> params, a = {"kernel": jnp.array([[1.0, 2.0]])}, jnp.array([1.0, 3.0])
      >>> jaxarch.saliency.prospr(lambda p, a: a * (p["kernel"] ** 2).sum() / 2, params, a, optax.sgd(0.5))
      {'kernel': Array([[0.75, 3.  ]], dtype=float32)}
    """
    check_function("loss", loss, params, batches)
    of = "an optax transformation, such as optax.sgd(0.1)"
    check_instance("optimizer", optimizer, optax.GradientTransformation, of)
    selection = select_floating(params, where)
    if (count := _leading("batches", batches, "batches")) < 2:
        raise ArgumentError(f"batches: expected one for each step, and one more; got {count}")
    steps, last = jax.tree.map(lambda leaf: leaf[:-1], batches), jax.tree.map(lambda leaf: leaf[-1], batches)

    def of_batch(moves: PyTree, batch: PyTree) -> Array:
        return _scalar(lambda of: loss(of, batch), params)(moves)

    def descend(carry: tuple[PyTree, Any], batch: PyTree) -> tuple[tuple[PyTree, Any], None]:
        moves, state = carry
        updates, state = optimizer.update(jax.grad(of_batch)(moves, batch), state, moves)
        return (optax.apply_updates(moves, updates), state), None

    def prospect(selected: PyTree) -> Array:
        moves = inexact(merge(selected, params))
        (moves, _), _ = jax.lax.scan(jax.checkpoint(descend), (moves, optimizer.init(moves)), steps)
        return of_batch(moves, last)

    return snip(params, jax.grad(prospect)(selection), where)


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
    positive = jax.tree.map(lambda theta: jnp.abs(widened(theta)), inexact(params))
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
    selection = select_floating(params, where)
    _leading("inputs", inputs, "examples")
    numbers = jax.tree.map(widened, inexact(params))
    left = jax.tree.map(jnp.ones_like, numbers)
    left = merge(map_selected(lambda theta: (theta != 0).astype(widened(theta).dtype), selection), left)
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
    numbers = jax.tree.map(widened, inexact(params))
    moved = map_selected(lambda theta, change: widened(theta) + widened(change), selection, noise)

    def distance(numbers: PyTree, moved: PyTree) -> Array:
        before, after = (
            _called("output", output, merge(leaves, params)) for leaves in (numbers, merge(moved, numbers))
        )
        return jnp.square(before - after).sum()

    def score(theta: Array, change: Array, here: Array, there: Array) -> Array:
        return widened(theta) * here + (widened(theta) + widened(change)) * there

    return map_selected(score, selection, noise, *jax.grad(distance, (0, 1))(numbers, moved))


def teddy(params: PyTree, edges: ArrayLike, where: Where = "edges") -> PyTree:
    r"""Return TEDDY's score of each edge of a graph, from the degrees of its nodes alone.

        mask = jaxarch.masks.keep(jaxarch.saliency.teddy(params, edges), 0.7)

    With d_i the degree of node i, N(i) its neighbors,

        s_ij = g_i g_j / (d_i d_j),  g_i = (1 / d_i) \sum_{k in N(i)} d_k^{-1/2}

    The lowest scores are pruned first: edges between nodes of high degree whose neighbors' degrees are high.
    H. Seo, J. Yun and E. Yang, TEDDY: Trimming edges with degree-based discrimination strategy, 2024,
    arXiv:2402.01261; the formula is read off the authors' code. It lists each edge in both directions, with
    equal scores, and never prunes loops: a `models.graph_network` has none among its edges. The authors also
    prune weights by projected gradient descent, and train on the outputs of the whole graph's network. This
    is not done here.

    Edges of weight 0 count as removed: they are not in the degrees, and have the score 0. Other weights do
    not matter. The authors compute scores once, for all densities.

    Args:
      params: parameters, with the weights of edges in one leaf.
      edges: the two nodes of every undirected edge, as for `models.graph_network`, shape (2, edges).
      where: the leaf of edges, shape (edges,), by path.

    Returns:
      Scores in the structure of the parameters, in [0, 1].

    Raises:
      ArgumentError: edges of another form, loops, repeated edges; more than one leaf, or one of another shape
        or dtype; a leaf that does not exist.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> edges = jnp.array([[0, 1, 2], [1, 2, 3]])  # the path 0 - 1 - 2 - 3
      >>> scores = jaxarch.saliency.teddy({"edges": jnp.ones(3), "w1": jnp.ones((5, 2))}, edges)
      >>> print(scores["w1"], [f"{score:.2f}" for score in scores["edges"]])
      None ['0.30', '0.18', '0.30']
    """
    # Nodes without edges have no score, so that a large number of a node costs no memory.
    pairs = np.unique(checked_edges(edges), return_inverse=True)[1].reshape(2, -1)
    selection = select_floating(params, where)
    for path, leaf in named_leaves(selection).items():
        if jnp.shape(leaf) != pairs.shape[1:]:
            raise ArgumentError(
                f"params: expected one leaf of shape {pairs.shape[1:]}, a weight for each of the edges, got "
                f"{jnp.shape(leaf)} for {path!r}; select the leaf by `where`"
            )
    if len(names := named_leaves(selection)) > 1:
        raise ArgumentError(f"where: expected the one leaf of edges, got {shown(', '.join(names))}")

    def scores(weights: Array) -> Array:
        left = (weights != 0).astype(widened(weights).dtype)
        nodes = int(pairs.max()) + 1
        degrees = summed_at_nodes((left, left), pairs, nodes)
        inverse = jnp.where(degrees > 0, 1 / jnp.maximum(degrees, 1), 0)
        first, second = pairs
        root = jnp.sqrt(inverse)
        g = inverse * summed_at_nodes((left * root[second], left * root[first]), pairs, nodes)
        share = g * inverse
        return left * share[first] * share[second]

    return map_selected(scores, selection)


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


def _leading(name: str, tree: PyTree, of: str) -> int:
    """Return the size of the leading axis of arrays.

    Raises:
      ArgumentError: arrays without a common leading axis, or an empty one.
    """
    for path, leaf in named_leaves(tree).items():
        check_array(f"{name}: {path}", leaf)
    sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(tree)}
    if len(sizes) != 1 or not sizes & {size for size in sizes if size and size[0]}:
        shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)]
        raise ArgumentError(f"{name}: expected arrays with one leading axis of {of}, got shapes {shapes}")
    return int(sizes.pop()[0])


def _scalar(loss: Callable[[PyTree], Array], params: PyTree) -> Callable[[PyTree], Array]:
    """Return the loss as a function of some of the parameters, refusing one that is not a number."""

    def loss_of(moves: PyTree) -> Array:
        made = _called("loss", loss, merge(moves, params))
        if jnp.shape(made) != ():
            raise ArgumentError(f"loss: expected one number, got shape {jnp.shape(made)}; take a mean")
        return made

    return loss_of


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

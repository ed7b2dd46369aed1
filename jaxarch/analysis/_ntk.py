"""Tangent kernels: inner products of the gradients of a network's outputs."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import (
    ArgumentError,
    as_array,
    check_array,
    check_count,
    check_flag,
    check_function,
    check_leaves,
    is_traced,
    shown,
)
from jaxarch._internal.precision import at_least_float32
from jaxarch._internal.trees import PyTree, check_distinct, check_trainable, inexact, is_key, merge
from jaxarch.analysis._cka import LEAST, centred_gram
from jaxarch.analysis._pair import examples_of, function_and_trees
from jaxarch.masks import apply_mask, check_fits
from jaxarch.masks._sharding import automatic
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.structure._tracing import hashable, traced

_COMPARED = 8
"""Number of examples whose gradients are computed in one batch and alone."""
_ROUNDING = 0.05
"""The share of the largest gradient that rounding may change, in a model that computes in bfloat16."""


def _scale(values: Array) -> Array:
    """Return the largest size in each matrix, or 1 if all are 0, by which squares do not overflow."""
    largest = jnp.abs(values).max((-2, -1), keepdims=True)
    return jnp.where(largest > 0, largest, 1)


class TangentKernel(NamedTuple):
    """The tangent kernel of a network on some examples, as returned by `ntk`.

    Attributes:
      kernel: symmetric, shape (n, n), or (n k, n k) with `full=True`.
      eigenvalues: its eigenvalues, the largest first. The smallest may be negative by rounding.
    """

    kernel: Array
    eigenvalues: Array

    @property
    def condition_number(self) -> Array:
        """The largest eigenvalue divided by the smallest; infinite if that is 0 up to rounding."""
        largest, smallest = self.eigenvalues[..., 0], self.eigenvalues[..., -1]
        rounding = self.eigenvalues.shape[-1] * jnp.finfo(largest.dtype).eps * largest
        is_singular = smallest <= rounding
        return jnp.where(is_singular, jnp.inf, largest / jnp.where(is_singular, 1, smallest))

    @property
    def effective_rank(self) -> Array:
        r"""The number of directions that count, `exp(-\sum_i p_i \log p_i)` with p the eigenvalues' shares.

        It lies between 1 and n, and is 0 for a kernel of zeros (Roy and Vetterli, *The effective rank: a
        measure of effective dimensionality*, 2007).
        """
        values = jnp.maximum(self.eigenvalues, 0)
        total = values.sum(-1, keepdims=True)
        shares = values / jnp.where(total > 0, total, 1)
        entropy = -(shares * jnp.log(jnp.where(shares > 0, shares, 1))).sum(-1)
        return jnp.where(total[..., 0] == 0, 0, jnp.exp(entropy))

    def alignment(self, labels: Any) -> Array:
        r"""Return the centred alignment of the kernel K with a kernel L of labels.

            A = HSIC_1(K, L) / sqrt(HSIC_1(K, K) HSIC_1(L, L))

        L_ij is 1 if examples i and j have the same class, and 0 otherwise. For targets y of real numbers, L =
        y y^T. Kernel-target alignment is due to Cristianini et al. (2001), and its centred form to Cortes,
        Mohri and Rostamizadeh (2012, https://arxiv.org/abs/1203.0550). Baratin et al. (*Implicit
        regularization via neural feature alignment*, 2021, https://arxiv.org/abs/2008.00938) follow it in
        tangent kernels during training. They all include the diagonal, by which a kernel aligns with any
        balanced labels: K = I has sqrt((C-1) / (n-1)) for C classes. HSIC_1 is the unbiased estimator of
        `cka`, and leaves the diagonal out.

        Args:
          labels: integers or booleans of shape (n,), the classes; or real targets of shape (n, ...).

        Returns:
          A scalar, at most 1 up to rounding and near 0 if kernel and labels are unrelated; for the kernels of
          many runs, one a run. NaN if the kernel or that of the labels is constant off its diagonal up to
          rounding, as for one class only, or for a class for each example.

        Raises:
          ArgumentError: labels of another number of examples, or fewer than 4; classes of shape (n, 1).
        """
        labels, count = as_array("labels", labels), self.kernel.shape[-1]
        check_array("labels", labels, real=True)
        if count < LEAST or labels.shape[:1] != (count,) or not labels.size:
            raise ArgumentError(
                f"labels: expected those of n >= {LEAST} examples, a kernel of shape (n, n), got shapes "
                f"{labels.shape} and {self.kernel.shape}"
            )
        if labels.ndim > 1 and labels.size == count and not jnp.issubdtype(labels.dtype, jnp.inexact):
            raise ArgumentError(
                f"labels: expected classes of shape ({count},), or targets of floating-point numbers, got "
                f"{labels.dtype} of shape {labels.shape}; flatten them, or convert them"
            )
        return automatic(_alignment, self.kernel, labels)


def _alignment(kernel: Array, labels: Array) -> Array:
    """Return `TangentKernel.alignment`."""
    if labels.ndim == 1 and not jnp.issubdtype(labels.dtype, jnp.inexact):
        target = (labels[:, None] == labels[None]).astype(kernel.dtype)
    else:
        rows = labels.reshape(len(labels), -1).astype(kernel.dtype)
        rows = rows / _scale(rows)
        target = jnp.matmul(rows, rows.T, precision="highest")
    (one, own), (other, others) = map(_centred, (kernel, target))
    return (one * jnp.broadcast_to(other, one.shape)).sum((-2, -1)) / (own * others)


def _centred(gram: Array) -> tuple[Array, Array]:
    """Return a centred Gram matrix and its norm, NaN if nothing but rounding is left of it."""
    gram = gram / _scale(gram)
    centred = centred_gram(gram)
    off_diagonal = jnp.where(jnp.broadcast_to(jnp.eye(gram.shape[-1], dtype=bool), gram.shape), 0, gram)
    before, after = (jnp.sqrt((of**2).sum((-2, -1))) for of in (off_diagonal, centred))
    return centred, jnp.where(after > 16 * jnp.finfo(gram.dtype).eps * before, after, jnp.nan)


def ntk(
    model: Callable[..., Any] | Problem,
    params: PyTree,
    x: PyTree,
    *,
    mask: PyTree = None,
    batch_size: int | None = None,
    full: bool = False,
) -> TangentKernel:
    r"""Compute the empirical neural tangent kernel of a network: how training on an example moves others.

        tangents = jaxarch.analysis.ntk(apply, params, x, mask=mask, batch_size=100)
        tangents.eigenvalues, tangents.effective_rank, tangents.alignment(y)

    With J_ia the gradient of output a of example i with respect to the parameters,

        Theta_(ia)(jb) = <J_ia, J_jb>,        K_ij = 1/k \sum_a Theta_(ia)(ja)

    for k outputs. Gradient descent on a loss L with a small learning rate changes the outputs by -Theta dL/df
    times the rate (Jacot, Gabriel and Hongler, *Neural tangent kernel: Convergence and generalization in
    neural networks*, 2018, https://arxiv.org/abs/1806.07572). With growing width, Theta tends to K times the
    identity over outputs.

    With a mask m the network is f(m * w), and J is its gradient with respect to w. This is m * J, so pruned
    connections drop out and the others count as if trained alone. Numbers in a mask enter squared.

    The product of Jacobians is taken batch by batch, output by output and leaf by leaf (Novak, Sohl-Dickstein
    and Schoenholz, *Fast finite width neural tangent kernel*, 2022, https://arxiv.org/abs/2206.08720, call
    this Jacobian contraction). About three batches of gradients exist at once. So memory is that of the
    kernel and of `3 * batch_size` times the parameters, for any number of outputs. The gradients of a batch
    are computed again for each batch before it, so use the largest batches that fit. The kernel between two
    sets of examples is a block of the kernel of both together.

    Args:
      model: `(params, x) -> outputs`, jittable; or a `Problem` with `predict`, in evaluation mode. Outputs
        are one array of real numbers of shape (n, ...). Each must depend on its own example alone. The
        function is compiled once, so it must be pure: pass what changes between calls as `params` or `x`.
      params: the parameters, any pytree; for a problem, a `Network` of one run, which has its own mask and
        state. Leaves that are not floating point are constants.
      x: n examples along the first axis of each leaf; for a problem, a pair (x, y) as its `gather` returns.
      mask: a mask of the parameters, or `None`; see `masks.apply_mask`.
      batch_size: the number of gradients in a batch; by default all.
      full: whether to return Theta, with row `i * k + a` for output a of example i, instead of K.

    Returns:
      `TangentKernel`, in float32 or wider. `jax.vmap` over parameters and masks gives the kernels of many
      runs, and `jax.jit` works; it compiles the model again for each pair of batches.

    Raises:
      ArgumentError: no example; parameters or outputs that are complex or without floating-point numbers; a
        mask that does not fit, or beside a network; outputs that depend on other examples, as with batch
        statistics. If these are traced, the kernel is NaN. One gradient of the first 8 examples tells, and
        differences below 5% of its largest entry pass as rounding.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> def apply(params, x):
      ...     return x @ params["w"]
      >>> params, x = {"w": jnp.array([5.0, 7.0])}, jnp.array([[1.0, 0.0], [1.0, 2.0]])
      >>> jaxarch.analysis.ntk(apply, params, x).kernel.tolist()  # x x^T
      [[1.0, 1.0], [1.0, 5.0]]
      >>> jaxarch.analysis.ntk(apply, params, x, mask={"w": jnp.array([True, False])}).kernel.tolist()
      [[1.0, 1.0], [1.0, 1.0]]
    """
    function, parts = _checked_model(model, params, mask)
    parts = parts._replace(x=_arrays("x", x))
    count = examples_of(parts.x, 1, "x")
    check_flag("full", full)
    if batch_size is not None:
        check_count("batch_size", batch_size)
    outputs = _outputs_of(function, parts, count)
    is_alone = _check_alone(function, parts)
    length = count * outputs if full else count
    kernel = _gram(function, parts, outputs, min(batch_size or length, length), full)
    kernel = jnp.where(is_alone, kernel, jnp.nan)
    return TangentKernel(kernel, jnp.linalg.eigvalsh(kernel)[..., ::-1])


class _Parts(NamedTuple):
    """Arguments of a function: `state` is a problem's, in a tuple, and `()` for a plain function."""

    params: PyTree
    mask: PyTree
    state: tuple[PyTree, ...]
    x: PyTree

    def outputs(self, function: Callable[..., Any], params: PyTree, x: PyTree) -> Any:
        return function(params if self.mask is None else apply_mask(self.mask, params), *self.state, x)

    def pullback(self, function: Callable[..., Any], x: PyTree) -> tuple[Array, Callable[..., Any]]:
        """Return the outputs, and the function from their cotangent to that of the floating-point leaves."""
        return jax.vjp(
            lambda trained: self.outputs(function, merge(trained, self.params), x), inexact(self.params)
        )


def _arrays(name: str, tree: PyTree) -> PyTree:
    check_leaves(name, tree, keys=True)
    return jax.tree.map(lambda leaf: leaf if is_key(leaf) else as_array(name, leaf), tree)


def _checked_model(model: Any, params: Any, mask: Any) -> tuple[Callable[..., Any], _Parts]:
    """Return the function to differentiate, and its arguments but for the examples."""
    state: tuple[PyTree, ...] = ()
    if isinstance(model, Problem):
        function_and_trees(model, params)
        if mask is not None:
            raise ArgumentError("mask: a network has its own mask; leave it out")
        model, state, mask, params = model.predict, (params.state,), params.mask, params.params
    elif isinstance(params, Network):
        raise ArgumentError("params: expected parameters, got a Network; give its problem, or its `params`")
    check_function("model", model, params)
    check_leaves("params", params, real=True, keys=True)
    check_trainable(params)
    if mask is not None:
        check_distinct("params", params)
        check_leaves("mask", mask, real=True)
        check_fits(mask, params)
        mask = _arrays("mask", mask)
    return hashable(model), _Parts(_arrays("params", params), mask, state, None)


def _outputs_of(function: Callable[..., Any], parts: _Parts, count: int) -> int:
    """Return the number of outputs of an example.

    Raises:
      ArgumentError: outputs that are not one real number or more for each example, in a batch and alone.
    """
    shapes = []
    for size in (count, 1):
        few = jax.tree.map(
            lambda leaf, size=size: jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype), parts.x
        )
        _, made = traced(functools.partial(parts.outputs, function), parts.params, few, name="model")
        shape = getattr(made, "shape", None)
        if not shape or shape[0] != size or not jnp.issubdtype(made.dtype, jnp.floating):
            raise ArgumentError(
                f"model: expected one array of real outputs of shape ({size}, ...) for {size} examples, got "
                f"{shown(made)}"
            )
        shapes.append(shape[1:])
    outputs = math.prod(shapes[0])
    if shapes[0] != shapes[1] or not outputs:
        raise ArgumentError(
            f"model: expected outputs of one shape for an example alone and in a batch, got {shapes[1]} and "
            f"{shapes[0]}"
        )
    return outputs


def _check_alone(function: Callable[..., Any], parts: _Parts) -> Any:
    """Raise if outputs of examples depend on each other; return whether they do not, if that is traced."""
    apart = _apart(parts, function=function)
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(inexact(parts.params))]
    limit = max(_ROUNDING, *(16 * float(jnp.finfo(dtype).eps) for dtype in dtypes))
    if not is_traced(apart) and apart > limit:
        raise ArgumentError(
            f"model: gradients of a batch's outputs differ from those of single ones, by {float(apart):.2g} "
            "of the largest, as with batch statistics; use running averages, so that examples do not mix"
        )
    return apart <= limit


@functools.partial(jax.jit, static_argnames="function")
def _apart(parts: _Parts, *, function: Callable[..., Any]) -> Array:
    """Return how far a gradient of a batch is from the sum of its examples', as a share of the largest.

    It is the gradient of a random sum of outputs. Their values would not do: those of a head of zeros are 0.
    """

    def compared(parts: _Parts) -> Array:
        few = jax.tree.map(lambda leaf: leaf[:_COMPARED], parts.x)
        made, pull = parts.pullback(function, few)
        weights = jax.random.normal(jax.random.key(0), made.shape, made.dtype)

        def add(total: PyTree, each: tuple[PyTree, Array]) -> tuple[PyTree, None]:
            x, weight = jax.tree.map(lambda leaf: leaf[None], each)
            (found,) = parts.pullback(function, x)[1](weight)
            return jax.tree.map(jnp.add, total, found), None

        (together,) = pull(weights)
        alone, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, together), (few, weights))
        pairs = [*zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True)]
        apart, largest = zip(*(_difference(*pair) for pair in pairs), strict=True)
        scale = jnp.stack(largest).max()
        return jnp.stack(apart).max() / jnp.where(scale > 0, scale, 1)

    return automatic(compared, parts)


def _difference(one: Array, other: Array) -> tuple[Array, Array]:
    """Return the largest difference of two leaves, and the largest finite number of the first."""
    # A NaN in both is no difference: the kernel shows it.
    same = (one == other) | (jnp.isnan(one) & jnp.isnan(other))
    apart = jnp.nan_to_num(jnp.where(same, 0, jnp.abs(one - other)), nan=jnp.inf)
    largest = jnp.where(jnp.isfinite(one), jnp.abs(one), 0)
    return apart.max(initial=0).astype(jnp.float32), largest.max(initial=0).astype(jnp.float32)


def _gram(function: Callable[..., Any], parts: _Parts, outputs: int, size: int, full: bool) -> Array:
    """Return the kernel of all outputs of all examples, or its mean over outputs."""
    length = examples_of(parts.x, 1) * (outputs if full else 1)
    count = -(-length // size)
    size = -(-length // count)
    # The last batch repeats the last row, so that all batches have one shape.
    places = jnp.minimum(jnp.arange(count * size), length - 1).reshape(count, size)

    def blocks(output: Any) -> list[Array]:
        rows = (places // outputs, places % outputs) if full else (places, jnp.full_like(places, output))
        batches = [*zip(*rows, strict=True)]
        upper = (_blocks_from(function, parts, batches[place:], outputs) for place in range(count))
        return [*itertools.chain.from_iterable(upper)]

    def add(total: list[Array], output: Any) -> tuple[list[Array], None]:
        return [one + other for one, other in zip(total, blocks(output), strict=True)], None

    total, passes = blocks(0), 1 if full else outputs
    if is_traced(total):
        # One program for all outputs: `jit` would compile the model once for each.
        total = jax.lax.scan(add, total, jnp.arange(1, passes))[0]
    else:
        # No loop of the compiler: XLA runs convolutions in one many times slower on a CPU.
        for output in range(1, passes):
            total = add(total, output)[0]
    upper = dict(zip(itertools.combinations_with_replacement(range(count), 2), total, strict=True))
    grid = [[upper[i, j] if i <= j else upper[j, i].T for j in range(count)] for i in range(count)]
    kernel = jnp.block(grid)[:length, :length]
    return (kernel + kernel.T) / (2 * passes)


def _blocks_from(
    function: Callable[..., Any], parts: _Parts, rows: list[tuple[Array, Array]], outputs: int
) -> list[Array]:
    """Return the products of the first batch of rows of the Jacobian with itself and each other batch."""
    own = _gradients(parts, *rows[0], function=function, outputs=outputs)
    others = [_products_with(own, parts, *of, function=function, outputs=outputs) for of in rows[1:]]
    return [_products(own, own), *others]


@functools.partial(jax.jit, static_argnames=("function", "outputs"))
def _gradients(
    parts: _Parts, examples: Array, places: Array, *, function: Callable[..., Any], outputs: int
) -> PyTree:
    """Return the gradients of one output of each example, the examples along the first axis of each leaf."""

    def gradient(parts: _Parts, example: Array, place: Array) -> PyTree:
        x = jax.tree.map(lambda leaf: leaf[example][None], parts.x)
        made, pull = parts.pullback(function, x)
        (found,) = pull(jax.nn.one_hot(place, outputs, dtype=made.dtype).reshape(made.shape))
        return found

    return automatic(jax.vmap(gradient, (None, 0, 0)), parts, examples, places)


@jax.jit
def _products(one: PyTree, other: PyTree) -> Array:
    """Return the inner products of gradients, summed leaf by leaf."""

    def product(one: Array, other: Array) -> Array:
        wide = at_least_float32(one.dtype)
        one, other = (rows.reshape(len(rows), -1).astype(wide) for rows in (one, other))
        return jnp.matmul(one, other.T, precision="highest")

    def summed(one: PyTree, other: PyTree) -> Array:
        found = [*map(product, jax.tree.leaves(one), jax.tree.leaves(other))]
        wide = functools.reduce(jnp.promote_types, (of.dtype for of in found))
        return functools.reduce(jnp.add, (of.astype(wide) for of in found))

    return automatic(summed, one, other)


@functools.partial(jax.jit, static_argnames=("function", "outputs"))
def _products_with(
    own: PyTree, parts: _Parts, examples: Array, places: Array, *, function: Callable[..., Any], outputs: int
) -> Array:
    """Return the products with the gradients of another batch, which exist within this program only."""
    return _products(own, _gradients(parts, examples, places, function=function, outputs=outputs))

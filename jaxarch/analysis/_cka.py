"""Similarity of the layers of two models, by centred kernel alignment (CKA)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import ArgumentError, as_array, check_function, check_leaves, shown
from jaxarch._internal.precision import widened
from jaxarch._internal.trees import PyTree
from jaxarch.analysis._pair import examples_of, function_and_trees
from jaxarch.masks._sharding import automatic
from jaxarch.masks._units import Span
from jaxarch.structure._axes import Axis
from jaxarch.structure._captures import run_recorded
from jaxarch.structure._columns import columns
from jaxarch.structure._flow import Step, shape_of
from jaxarch.structure._groups import Groups
from jaxarch.structure._network_function import check_arrays_given, checked_batches
from jaxarch.structure._products import NO_PARAMETERS, find_products
from jaxarch.structure._tracing import hashable

_EXAMPLES = "examples"
LEAST = 4
"""Smallest number of examples for which the unbiased estimator is defined: it divides by n - 3."""

Model = tuple[Callable[[PyTree, PyTree], Any], PyTree]
"""A function `(params, batch) -> outputs` and its parameters."""


@dataclasses.dataclass(frozen=True, eq=False)
class Similarity:
    """Similarities of the layers of two models, as returned by `similarity`. `print` shows a table.

    Attributes:
      cka: the similarities, shape (layers of the first, layers of the second).
      first: the names of the first model's layers, in the order of the program.
      second: the same of the second model.
      left: by name, such as `head of the first`, why a layer is not compared.
      examples: the number of examples.
    """

    cka: np.ndarray
    first: tuple[str, ...]
    second: tuple[str, ...]
    left: dict[str, str]
    examples: int

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        rows = [("", *self.second)]
        rows += [
            (name, *(f"{value:.2f}" for value in row)) for name, row in zip(self.first, self.cka, strict=True)
        ]
        lines = columns(rows, right=range(1, len(self.second) + 1))
        return "\n".join([*lines, *(f"not compared, {name}: {why}" for name, why in self.left.items())])


def cka(x: Any, y: Any) -> Array:
    r"""Return the linear centred kernel alignment of two representations of the same examples.

    With K = x x^T and L = y y^T,

        CKA = HSIC_1(K, L) / sqrt(HSIC_1(K, K) HSIC_1(L, L)),
        HSIC_1(K, L) = [tr(K' L') + (1^T K' 1)(1^T L' 1) / ((n-1)(n-2)) - 2 / (n-2) 1^T K' L' 1] / (n (n-3)),

    where ' sets the diagonal to 0. It does not change when the features of x or y are rotated, permuted or
    scaled together, and compares representations of different widths (Kornblith et al., *Similarity of neural
    network representations revisited*, 2019, https://arxiv.org/abs/1905.00414). The estimator is the unbiased
    one of Song et al. (2012), which Nguyen, Raghu and Kornblith (2021, https://arxiv.org/abs/2010.15327)
    use: the biased one of the first paper tends to 1 when features outnumber examples. An unbiased estimate
    may be negative, or above 1.

    Args:
      x: features, shape (n, ...) with n >= 4; further axes are flattened.
      y: features of the same examples, shape (n, ...).

    Returns:
      A scalar in float32 or wider; NaN if a representation is constant. It can be jitted, mapped and
      differentiated.

    Raises:
      ArgumentError: fewer than 4 examples, or another number of them in y.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> x = jax.random.normal(jax.random.key(0), (50, 3))
      >>> turned = -2 * x[:, ::-1]  # permuted and scaled
      >>> other = jax.random.normal(jax.random.key(1), (50, 8))
      >>> [round(float(jaxarch.analysis.cka(x, y)), 2) for y in (turned, other)]
      [1.0, -0.01]
    """
    x, y = as_array("x", x), as_array("y", y)
    if x.ndim < 2 or y.ndim < 2 or len(x) != len(y) or len(x) < LEAST:
        raise ArgumentError(
            f"x, y: expected features of the same n >= {LEAST} examples, of shape (n, features), got shapes "
            f"{x.shape} and {y.shape}"
        )
    joint, own, other, _ = automatic(_sums, [x], [y])
    return joint[0, 0] * own[0] ** -0.5 * other[0] ** -0.5


def similarity(first: Model, second: Model, batches: Iterable[PyTree]) -> Similarity:
    r"""Compare each layer of a model with each layer of another, by centred kernel alignment.

        found = jaxarch.analysis.similarity((apply, a), (apply, b), batches)
        figure = jaxarch.plots.similarity(found)

    A layer is a product with leaves in the traced program, and its values are what the product makes, before
    a bias and a nonlinearity. The models may differ in everything but the batches. `cka` has the formula. The
    three HSIC_1 are each averaged over the batches, weighted by examples, so that the result does not depend
    on the size of a batch but for noise (Nguyen et al., 2021).

    Args:
      first: a function `(params, batch) -> outputs`, jittable, and its parameters; or a `Problem` and a
        `Network` of one run.
      second: the same of the other model.
      batches: batches of at least 4 examples each, along the first axis of each leaf; for a problem, pairs
        (x, y) as its `gather` returns. Each shape of a batch is compiled once.

    Returns:
      `Similarity`. A layer that is used several times, or runs in a loop, has an entry for each time. A layer
      whose values do not vary has NaN. Left out and named are layers in branches and `while` loops, and
      layers whose values do not have the examples along one axis, such as products of two leaves.

    Raises:
      ArgumentError: anything but pairs of functions and parameters; no batch, or fewer than 4 examples; a
        model without layers to compare; values that are NaN or infinite.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> def apply(params, x):
      ...     return jnp.tanh(x @ params["in"]) @ params["out"]
      >>> a = {"in": jnp.eye(2), "out": jnp.array([[1.0], [0.0]])}
      >>> b = {"in": jnp.eye(2), "out": jnp.array([[0.0], [1.0]])}  # reads the other unit
      >>> batches = [jax.random.normal(jax.random.key(0), (200, 2))]
      >>> print(jaxarch.analysis.similarity((apply, a), (apply, b), batches))
             in   out
      in   1.00  0.72
      out  0.61  0.01
    """
    models = [_checked(name, model) for name, model in (("first", first), ("second", second))]
    functions, trees = tuple(hashable(model[0]) for model in models), tuple(model[1] for model in models)
    sums: Any = None
    names: Any = None
    examples = 0
    for batch in checked_batches(batches):
        count = examples_of(batch, LEAST)
        found, of_this = _compared(trees, batch, functions=functions)
        if names not in (None, of_this):
            raise ArgumentError(
                "batches: a batch of another shape has other layers; give batches of one shape"
            )
        names, of_batch = of_this, [count * part for part in _scaled(*found)]
        sums = of_batch if sums is None else [one + other for one, other in zip(sums, of_batch, strict=True)]
        examples += count
    joint, own, others = sums
    if not joint.size:
        why = "; ".join(f"{name}: {why}" for name, why in names.left) or "no product reads a leaf"
        raise ArgumentError(f"first, second: no layers to compare ({why})")
    if not np.isfinite(joint).all():
        raise ArgumentError("batches: a layer has values that are NaN or infinite")
    with np.errstate(invalid="ignore", divide="ignore"):
        values = joint / np.sqrt(np.outer(own, others))
    return Similarity(values, names.first, names.second, dict(names.left), examples)


def _checked(name: str, model: Any) -> Model:
    if not isinstance(model, tuple) or len(model) != 2:
        raise ArgumentError(f"{name}: expected a pair of a function and its parameters, got {shown(model)}")
    function, (tree,) = function_and_trees(*model)
    model = function, tree
    check_function(name, *model)
    check_leaves(name, model[1], keys=True)
    check_arrays_given(**{name: model[1]})
    return model


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Names:
    """The layers that were compared, and those that were not: no arrays, so `jit` can return it."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    left: tuple[tuple[str, str], ...]


@functools.partial(jax.jit, static_argnames="functions")
def _compared(trees: Any, batch: PyTree, *, functions: Any) -> tuple[Any, _Names]:
    """Return the sums of `_sums` over the layers of two models on a batch."""
    pair = [_layers(*model, batch) for model in zip(functions, trees, strict=True)]
    (one, left), (other, further) = pair
    lefts = [
        (f"{name} of the {which}", why)
        for which, of in (("first", left), ("second", further))
        for name, why in of.items()
    ]
    sums = automatic(_sums, [*one.values()], [*other.values()])
    return sums, _Names(tuple(one), tuple(other), tuple(lefts))


def _layers(
    function: Callable[[PyTree, PyTree], Any], tree: PyTree, batch: PyTree
) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the values of a model's layers, the examples first, and why other layers have none."""
    groups = Groups(function, tree, (batch,))
    axes = groups._program.inputs[len(groups._leaves) :]
    examples = {of[0].root() for of in axes if of}
    products = find_products(groups._program, dict.fromkeys(groups._leaves)).found
    layers = {id(of.step): of.layer for of in products if of.layer != NO_PARAMETERS}

    def record(step: Step, taken: list[Any], made: list[Any]) -> Any:
        return made[0] if id(step) in layers else None

    records = run_recorded(groups._program, jax.tree.leaves((tree, batch)), record)[1]
    found: dict[str, Array] = {}
    left: dict[str, str] = {}
    for product in products:
        key, name = id(product.step), layers.get(id(product.step), "")
        if key not in layers:
            continue
        if key not in records:
            left[name] = "it is in a branch or a `while` loop"
            continue
        spans = [_span(axis, examples) for axis in product.step.outputs[0]]
        places = [place for place, span in enumerate(spans) for _ in span.groups()]
        if len(places) != 1:
            left[name] = "its values do not have the examples along one axis"
            continue
        shape = shape_of(product.step.eqn.outvars[0])
        rounds = records[key].reshape(-1, *shape)
        for number, values in enumerate(rounds):
            (_, rows), *_ = spans[places[0]].rows(jnp.moveaxis(values, places[0], 0))
            found[_free(f"{name}[{number}]" if len(rounds) > 1 else name, found)] = rows
    return found, left


def _span(axis: Axis, examples: Collection[Axis]) -> Span:
    """Return how the examples lie along an axis: they may be all of it, or flattened with other axes."""
    axis = axis.root()
    if axis in examples:
        return Span(axis.size, _EXAMPLES)
    return Span(axis.size, form=axis.form, parts=tuple(_span(part, examples) for part in axis.parts))


def _free(name: str, taken: Any) -> str:
    """Return the name, with a number if another use of the layer already has it."""
    names = (name if number == 1 else f"{name}#{number}" for number in range(1, len(taken) + 2))
    return next(free for free in names if free not in taken)


@jax.jit
def _sums(first: Sequence[Array], second: Sequence[Array]) -> tuple[Array, Array, Array, tuple[Array, Array]]:
    """Return HSIC_1 of each pair of representations, of each of the first with itself, and of the second.

    The values of each representation are divided by a scale; the last output has the scales of both.
    """
    if not first or not second:  # Nothing to compare, which is said outside of `jit`.
        return jnp.zeros((0, 0)), jnp.zeros(0), jnp.zeros(0), (jnp.zeros(0), jnp.zeros(0))
    pairs = [[_centred(values) for values in each] for each in (first, second)]
    one, other = (jnp.stack([of.reshape(-1) for of, _ in each]) for each in pairs)
    scales = [jnp.stack([scale for _, scale in each]) for each in pairs]
    count = len(first[0])
    sums = jnp.matmul(one, other.T, precision="highest"), (one**2).sum(1), (other**2).sum(1)
    joint, own, others = (of / (count * (count - 3)) for of in sums)
    return joint, own, others, (scales[0], scales[1])


def _scaled(joint: Any, own: Any, others: Any, scales: Any) -> list[np.ndarray]:
    """Return HSIC_1 of the values as they are, in double precision, where fourth powers do not overflow."""
    joint, own, others = (np.asarray(of, np.float64) for of in (joint, own, others))
    first, second = (np.asarray(of, np.float64) ** 2 for of in scales)
    return [joint * np.outer(first, second), own * first**2, others * second**2]


def _centred(values: Array) -> tuple[Array, Array]:
    """Return the centred Gram matrix of some examples' features, and a scale by which these are divided.

    The scale is the largest of their sizes.
    """
    count = len(values)
    rows = widened(values.reshape(count, -1))
    largest = jnp.abs(rows).max()
    scale = jnp.where(largest > 0, largest, jnp.ones_like(largest))
    # HSIC_1 does not depend on the mean, whose rounding would hide small differences.
    rows = rows / scale
    rows = rows - rows.mean(0, keepdims=True)
    return centred_gram(jnp.matmul(rows, rows.conj().T, precision="highest").real), scale


def centred_gram(gram: Array) -> Array:
    """Return Gram matrices, of shape (..., n, n), centred so that HSIC_1 is an inner product.

    With the diagonal of K set to 0, off the diagonal of U, whose own is 0,

        U(K)_ij = K_ij - sum_l K_il / (n-2) - sum_k K_kj / (n-2) + sum_kl K_kl / ((n-1)(n-2)),
        HSIC_1(K, L) = sum_ij U(K)_ij U(L)_ij / (n (n-3))

    (Szekely and Rizzo, *Partial distance correlation methods for dissimilarity*, 2014).
    """
    count = gram.shape[-1]
    off = jnp.broadcast_to(1 - jnp.eye(count, dtype=gram.dtype), gram.shape)
    gram = gram * off
    sums = gram.sum(-1, keepdims=True) / (count - 2)
    return off * (gram - sums - sums.mT + sums.sum((-2, -1), keepdims=True) / (count - 1))

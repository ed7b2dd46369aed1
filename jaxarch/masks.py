r"""Masks over the connections of a network, and the two-temperature gradient that learns them.

A mask is the architecture: one bit a connection. It is learned through real *scores* w, one a connection,
whose sharp sigmoid `sigma(hard * w)` multiplies the weights forwards while the slope of a softer one,
`sigma(soft * w)`, carries the gradient backwards. The mask is read off at the end as `1[w > 0]`.

Scores, masks and parameters are pytrees of one structure; a leaf that is not masked is `None` in the first
two. Scores are float32 whatever the parameters are. `hard` and `soft` are inverse temperatures, called M_hard
and M_soft in [D], t_l and t_s in [A].

Arrays may be split over devices, by the axes of any mesh, explicit ones included: all but `reshuffle` leave
them where they are.

[D] Colombo & Gao, Disentangling Neural Architectures and Weights, 2021.
[A] Colombo & Gao, Differentiable Architecture Pruning for Transfer Learning, 2021.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from jaxarch.errors import ArgumentError, check_positive, check_strength, is_traced, shown
from jaxarch.order_statistics import count_dtype, largest, percentile
from jaxarch.trees import PyTree, check_floating, check_structure, map_selected, merge, named_leaves

# The two-temperature gradient ------------------------------------------------------------------------


def two_temperature(scores: ArrayLike, hard: ArrayLike, soft: ArrayLike, *, factor: bool = True) -> Array:
    r"""A mask in (0, 1) with the value of a sharp sigmoid and the gradient of a soft one.

    Value `v = sigma(hard * w)`; derivative `soft * sigma(soft * w) * (1 - sigma(soft * w))`, so that
    gradient descent on the scores is [D] eq. (5), Algorithm 1, and [A] eq. (7). At `hard == soft` it is the
    ordinary sigmoid with its ordinary gradient.

    Both temperatures may be traced: a grid of temperatures is one `vmap`. They receive no gradient. It is
    differentiated in either mode, any number of times: `jax.grad`, `jax.jvp`, `jax.jacfwd`, `jax.hessian`.

    Args:
      scores: floating-point array of any shape.
      hard: inverse temperature of the value, positive; broadcast against the scores.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      factor: whether the derivative carries its factor `soft` ([A] eq. 7 and the appendix of [D]) or not
        ([A] eq. 15; [D] section 3 prints it without, which is not the derivative of the sigmoid).

    Returns:
      An array of the scores' shape and dtype. Infinite products are taken to their limits: no score and no
      temperature makes value or gradient NaN. bfloat16 and float16 are computed in float32 inside.

    Raises:
      ArgumentError: scores that are not floating point; temperatures that are not positive, or soft > hard
        (where they are concrete; traced ones are clipped to the positive finite range).
    """
    scores, hard, soft = _checked(scores, hard, soft)
    return _two_temperature(scores, hard, soft, factor)


@partial(jax.custom_jvp, nondiff_argnums=(3,))
def _two_temperature(scores: Array, hard: Array, soft: Array, factor: bool) -> Array:
    return jax.nn.sigmoid(hard * _work(scores)).astype(scores.dtype)


@_two_temperature.defjvp
def _tangent(
    factor: bool, primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    scores, hard, soft = primals
    slope = _slope(scores, jax.lax.stop_gradient(soft), factor)
    tangent = (slope * tangents[0].astype(slope.dtype)).astype(scores.dtype)
    return _two_temperature(scores, hard, soft, factor), tangent


def _slope(scores: Array, soft: Array, factor: bool) -> Array:
    # At -|x| the sigmoid is at most 1/2; at large x, 1 - sigma(x) would round to 0.
    below = jax.nn.sigmoid(-jnp.abs(soft * _work(scores)))
    slope = below * (1 - below)
    return soft * slope if factor else slope


def _work(scores: Array) -> Array:
    return scores.astype(jnp.promote_types(scores.dtype, jnp.float32))


def _checked(scores: ArrayLike, hard: ArrayLike, soft: ArrayLike) -> tuple[Array, Array, Array]:
    check_temperatures(hard, soft)
    scores = jnp.asarray(scores)
    check_floating("scores", scores)
    dtype = jnp.promote_types(scores.dtype, jnp.float32)
    limits = jnp.finfo(dtype)

    if jnp.broadcast_shapes(scores.shape, jnp.shape(hard), jnp.shape(soft)) != scores.shape:
        raise ArgumentError(
            f"hard: temperatures of shapes {jnp.shape(hard)} and {jnp.shape(soft)} do not fit scores of "
            f"shape {scores.shape}; for a grid of temperatures use vmap"
        )

    def clip(temperature: ArrayLike) -> Array:
        return jnp.clip(jnp.asarray(temperature, dtype), limits.tiny, limits.max)

    return scores, clip(hard), clip(soft)


def check_temperatures(hard: ArrayLike, soft: ArrayLike) -> None:
    """Raise unless 0 < soft <= hard (up to rounding), where the temperatures are concrete."""
    check_positive("hard", hard)
    check_positive("soft", soft)
    if not is_traced((hard, soft)) and (np.asarray(soft) > np.asarray(hard) * (1 + 1e-6)).any():
        raise ArgumentError(
            f"soft: expected at most hard = {shown(hard)} (the gradient's sigmoid is the softer one), got "
            f"{shown(soft)}"
        )


# Scores and masks ------------------------------------------------------------------------------------


def init_scores(
    key: Array,
    selection: PyTree,
    mean: ArrayLike = -10.0,
    std: ArrayLike = 5.0,
    hard: ArrayLike | None = None,
) -> PyTree:
    """Random scores `N(mean, std)` for every selected leaf (`std` is the standard deviation).

    Args:
      key: a `jax.random.key`.
      selection: the leaves to mask (see `select`), or anything with their shapes.
      mean: mean of the scores.
      std: standard deviation of the scores, at least 0.
      hard: if given, `mean` and `std` are in units of `1/hard`, which keeps the distribution of the initial
        mask `sigma(hard * w)` the same at every temperature; if not, they are absolute.

    Returns:
      Scores with the selection's structure and shapes, in float32 whatever the leaves are, and split over
      explicit axes as they are: in bfloat16 most steps of a descent are less than half a digit, and are lost.
      The defaults, with `hard=50`, are N(-.2, .1): on non-negative inputs, scores around 0 saturate the
      network of [D] and leave no gradient at all.
    """
    check_strength("std", std)
    unit = 1.0 if hard is None else 1.0 / jnp.asarray(hard, jnp.float32)
    leaves, treedef = jax.tree.flatten(selection)
    keys = jax.random.split(key, len(leaves))

    def normal(key: Array, leaf: Any) -> Array:
        return jax.random.normal(key, jnp.shape(leaf), jnp.float32)

    drawn = [
        _split_like(leaf, jnp.asarray((mean + std * normal(k, leaf)) * unit, jnp.float32))
        for k, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(treedef, drawn)


def soft_mask(scores: PyTree, hard: ArrayLike, soft: ArrayLike, *, factor: bool = True) -> PyTree:
    """The mask in (0, 1) that training multiplies with the weights: `two_temperature`, leaf by leaf."""
    return map_selected(lambda w: two_temperature(w, hard, soft, factor=factor), scores)


def hard_mask(scores: PyTree) -> PyTree:
    """The architecture: `1[w > 0]`, as booleans ([A] section 2.3; the limit of `sigma(M w)`).

    [D] footnote 3 keeps a connection whose score is exactly 0; this library, like [A], prunes it.
    """
    return map_selected(lambda w: w > 0, scores)


def full_mask(selection: PyTree) -> PyTree:
    """The mask that keeps every selected connection."""
    return map_selected(lambda leaf: jnp.ones_like(leaf, bool), selection)


def apply_mask(mask: PyTree, params: PyTree) -> PyTree:
    """Masked parameters, `m o theta` ([A] eq. 3), in their own dtypes; leaves without a mask as they are.

    Under a mask of booleans or integers, what is pruned is 0 whatever the weight was, NaN included.

    Raises:
      ArgumentError: a mask of another structure or of other shapes.
    """
    check_fits(mask, params)

    def masked(m: Array, leaf: Array) -> Array:
        if jnp.issubdtype(m.dtype, jnp.floating):
            return m.astype(leaf.dtype) * leaf
        # A product would turn a pruned weight that overflowed into NaN.
        return jnp.where(m == 0, 0, leaf if m.dtype == bool else m.astype(leaf.dtype) * leaf)

    return merge(map_selected(masked, mask, params), params)


def check_density(name: str, density: object) -> None:
    """Raise unless it is a number in (0, 1]."""
    if isinstance(density, bool) or not isinstance(density, (int, float, np.number)) or not 0 < density <= 1:
        raise ArgumentError(f"{name}: expected a number in (0, 1], 1 - sparsity; got {shown(density)}")


def check_fits(mask: PyTree, params: PyTree) -> None:
    """Raise unless a mask has the parameters' structure, and every masked leaf the mask's shape.

    Raises:
      ArgumentError: naming the leaf.
    """
    leaves = named_leaves(params)
    for path, leaf in named_leaves(mask).items():
        if path not in leaves:
            raise ArgumentError(f"mask: the model has no parameter {path!r}; it has {', '.join(leaves)}")
        if jnp.shape(leaf) != jnp.shape(leaves[path]):
            raise ArgumentError(
                f"mask: leaf {path!r} has shape {jnp.shape(leaf)}, the model's parameter "
                f"{jnp.shape(leaves[path])}; where a task has another number of classes, finish with "
                "new_head() first"
            )
    check_structure("mask", mask, params, "the parameters")


def weight_free(mask: PyTree, params: PyTree) -> PyTree:
    """The weight-free network: all weights 1, so that the masked leaves are the mask itself.

    Leaves without a mask (biases, for instance) are those of `params`.

    Raises:
      ArgumentError: a mask of another structure or of other shapes.
    """
    check_fits(mask, params)
    return merge(map_selected(lambda m, leaf: m.astype(leaf.dtype), mask, params), params)


def density(mask: PyTree) -> Array:
    """The share of connections that are kept, over all masked leaves together: a scalar in [0, 1].

    For masks with a leading axis of runs, `jax.vmap(density)`.
    """
    leaves = _arrays(mask)
    if not leaves:
        raise ArgumentError("mask: no leaf is masked, so there is no density; select leaves by path")
    return _total(leaves) / float(sum(leaf.size for leaf in leaves))


def connections(mask: PyTree) -> Array | np.int64:
    """How many connections are kept, over all masked leaves together: exact, for boolean masks.

    An int32. Of masks with 2^31 entries or more it is a NumPy int64, or, where they are traced, an int64 if
    float64 is enabled and otherwise a uint32. A mask that is not boolean is summed in float32.

    Raises:
      ArgumentError: 2^32 connections or more in one traced mask, or in one leaf, without float64.
    """
    leaves = _arrays(mask)
    counts, size = [_count(leaf) for leaf in leaves], sum(leaf.size for leaf in leaves)
    if any(leaf.dtype != bool for leaf in leaves):
        return jnp.asarray(sum(counts))
    if size >= 2**31 and not is_traced(counts):
        return np.int64(sum(int(count) for count in counts))
    return jnp.asarray(sum(count.astype(count_dtype(size)) for count in counts))


def layer_density(mask: PyTree) -> dict[str, Array]:
    """The share of connections that are kept in each masked leaf, by path."""
    return {path: density(leaf) for path, leaf in named_leaves(mask).items()}


def overlap(mask: PyTree, other: PyTree) -> Array:
    """Jaccard index of two masks: connections in both over connections in either; 1 if both are empty.

    Raises:
      ArgumentError: masks of different structures or shapes.
    """
    _arrays((mask, other))
    leaves, others = named_leaves(mask), named_leaves(other)
    if apart := leaves.keys() ^ others.keys():
        raise ArgumentError(f"other: leaf {sorted(apart)[0]!r} is masked in one of the two masks alone")
    for path, leaf in leaves.items():
        if leaf.shape != others[path].shape:
            raise ArgumentError(
                f"other: leaf {path!r} has shape {others[path].shape}, in the first mask {leaf.shape}"
            )
    pairs = [(leaf, others[path]) for path, leaf in leaves.items()]
    both = _total([jnp.logical_and(a, b) for a, b in pairs])
    either = _total([jnp.logical_or(a, b) for a, b in pairs])
    return jnp.where(either > 0, both / jnp.maximum(either, 1), 1.0)


def reshuffle(key: Array, mask: PyTree) -> PyTree:
    """A mask with the same density in every leaf and its connections permuted at random ([A] section 3.3).

    A leaf that is split over devices is gathered, permuted and split again.
    """
    leaves, treedef = jax.tree.flatten(mask)
    keys = jax.random.split(key, max(len(leaves), 1))
    permuted = [
        _split_like(leaf, jax.random.permutation(k, _whole(leaf).reshape(-1)).reshape(leaf.shape))
        for k, leaf in zip(keys, leaves, strict=False)
    ]
    return jax.tree.unflatten(treedef, permuted)


def top_k(scores: PyTree, k: ArrayLike) -> PyTree:
    """The mask of exactly `k` connections with the largest scores, pooled over all leaves.

    Ties go to the connection that comes first in flattening order; NaN comes last, after -inf. `k` may be
    traced. By bisection (see `order_statistics`): nothing is sorted, and arrays that are split over devices
    stay so.

    Raises:
      ArgumentError: a `k` that is no integer, or, where it is concrete, not between 0 and the number of
        connections; leaves whose dtypes have none in common in which all scores are exact.
    """
    leaves, treedef = _masked_leaves(scores)
    size = sum(leaf.size for leaf in leaves)
    count = k if isinstance(k, Array) else np.asarray(k)
    integer = jnp.issubdtype(count.dtype, jnp.integer) and count.ndim == 0
    if not integer or (not is_traced(k) and not 0 <= np.asarray(k) <= size):
        raise ArgumentError(f"k: expected an integer from 0 to {size}, got {k}")
    return jax.tree.unflatten(treedef, largest(leaves, count.astype(count_dtype(size))))


def percentile_thresholds(values: PyTree, percentiles: ArrayLike) -> Array:
    """Percentiles of the entries of all leaves together: the set T_w of [D] eq. (13).

    Args:
      values: weights or scores, floating point.
      percentiles: numbers in [0, 100], shape (n,).

    Returns:
      Thresholds of shape (n,), linearly interpolated; NaN if a value is, or if a traced percentile is not in
      [0, 100]. By bisection, like `top_k`, in a time that goes with n.

    Raises:
      ArgumentError: concrete percentiles that are not in [0, 100]; values that are not floating point.
    """
    leaves, _ = _masked_leaves(values)
    check_floating("values", values)
    if not is_traced(percentiles):
        numbers = np.asarray(percentiles)
        if numbers.dtype.kind not in "iuf" or not ((numbers >= 0) & (numbers <= 100)).all():
            raise ArgumentError(f"percentiles: expected numbers in [0, 100], got {shown(percentiles)}")
    return percentile(leaves, jnp.asarray(percentiles, jnp.float32))


def threshold_mask(values: PyTree, threshold: ArrayLike) -> PyTree:
    """`B_inf(w - xi)`: the connections above a threshold, `1[w > xi]` ([D] eq. 13)."""
    return map_selected(lambda w: w > threshold, values)


def _count(leaf: Array) -> Array:
    """How many connections a leaf keeps: exactly (a float32 sum is exact up to 2^24 only)."""
    return jnp.sum(leaf, dtype=count_dtype(leaf.size) if leaf.dtype == bool else jnp.float32)


def _total(leaves: list[Array]) -> Array:
    """The connections that are kept, as a float32: at any size, of leaves of less than 2^32."""
    counts, size = [_count(leaf) for leaf in leaves], sum(leaf.size for leaf in leaves)
    exact = all(leaf.dtype == bool for leaf in leaves) and size < 2**32
    dtype = count_dtype(size) if exact else jnp.float32
    return jnp.asarray(sum(count.astype(dtype) for count in counts), jnp.float32)


def _arrays(mask: PyTree) -> list[Array]:
    for path, leaf in named_leaves(mask).items():
        if not hasattr(leaf, "dtype"):
            raise ArgumentError(f"mask: expected arrays, got {shown(leaf)} as leaf {path!r}")
    return jax.tree.leaves(mask)


def _masked_leaves(scores: PyTree) -> tuple[list[Array], Any]:
    leaves, treedef = jax.tree.flatten(scores)
    if any(not hasattr(leaf, "dtype") for leaf in leaves):
        raise ArgumentError(f"scores: expected arrays, got {shown(scores)}")
    if not leaves:
        raise ArgumentError("scores: no leaf is masked; select leaves by path")
    return leaves, treedef


def _explicit(leaf: Any) -> NamedSharding | None:
    """How an array is split over the explicit axes of a mesh; `None` for all others."""
    if not isinstance(leaf, Array):
        return None
    sharding = jax.typeof(leaf).sharding if is_traced(leaf) else leaf.sharding
    if isinstance(sharding, NamedSharding) and AxisType.Explicit in sharding.mesh.axis_types:
        return sharding
    return None


def _whole(leaf: Array) -> Array:
    """An array that is split over explicit axes gathered, so that it can be reshaped; others as they are."""
    sharding = _explicit(leaf)
    if sharding is None:
        return leaf
    return jax.sharding.reshard(leaf, NamedSharding(sharding.mesh, PartitionSpec()))


def _split_like(leaf: Any, array: Array) -> Array:
    """An array split over explicit axes as another is."""
    sharding = _explicit(leaf)
    return array if sharding is None else jax.sharding.reshard(array, sharding)

"""Masks of the largest scores: exact sizes, thresholds, and densities per leaf."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import (
    ArgumentError,
    as_number,
    check_beside,
    check_choice,
    check_leaves,
    check_mapping,
    check_one_number,
    did_you_mean,
    is_numeric,
    is_traced,
    real_numbers,
    shown,
)
from jaxarch._internal.order_statistics import count_dtype, largest, percentile
from jaxarch._internal.trees import PyTree, check_floating, map_selected, named_leaves, placed

Scope = Literal["global", "layer", "erk"]
"""Spread of the kept connections over leaves: see `masks.keep`."""


def counts_kept(scores: PyTree, density: ArrayLike | Mapping[str, float], scope: Scope = "global") -> Any:
    """Count the connections that `masks.keep` keeps: an integer for all leaves, or an array of one per leaf.

    Raises:
      ArgumentError: a concrete density that rounds to no connection at all.
    """
    counts = rounded_counts(scores, density, scope)
    if not is_traced(counts) and not np.sum(counts):
        size = sum(leaf.size for leaf in jax.tree.leaves(scores))
        least = f"; give {1 / size:.3g} or more" if size else ""
        raise ArgumentError(f"density: {shown(density)} of {size} connections rounds to none{least}")
    return counts


def rounded_counts(scores: PyTree, density: ArrayLike | Mapping[str, float], scope: Scope = "global") -> Any:
    """Count like `counts_kept`, but allow a count of 0."""
    check_scores(scores)
    check_scope(scope)
    if isinstance(density, Mapping):
        return _counts_by_path(scores, density, scope)
    # Counts are shares of sizes: integers and floating-point numbers are mixed on purpose.
    with jax.numpy_dtype_promotion("standard"):
        return _counts(scores, density, scope)


def largest_of(scores: PyTree, counts: Any, within: PyTree = None) -> PyTree:
    """Return the mask of the largest scores, given one count for all leaves together or one per leaf."""
    if np.ndim(counts) == 0:
        return top_k(scores, counts, within)
    each = iter(counts)
    if within is None:
        return map_selected(lambda leaf: top_k(leaf, next(each)), scores)
    return map_selected(lambda leaf, there: top_k(leaf, next(each), there), scores, within)


def top_k(scores: PyTree, k: ArrayLike, within: PyTree = None) -> PyTree:
    """Return the mask of exactly the `k` connections with the largest scores, pooled over all leaves.

    Ties go to the connection that comes first in flattening order; NaN ranks last, after -inf. `k` may be
    traced. The scores are counted and not sorted (see `order_statistics`), and arrays that are split over
    devices stay split.

    Args:
      scores: one per connection, `None` for leaves that are not masked.
      k: the number of connections kept.
      within: booleans in the scores' structure: no other connection is kept. If there are fewer than k, all
        of them are kept.

    Raises:
      ArgumentError: a `k` that is not an integer or, if concrete, not between 0 and the number of
        connections; leaves without a common dtype that holds all scores exactly; a `within` that is not a
        mask of the scores' leaves.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> scores = {"a": jnp.array([0.1, 0.9]), "b": jnp.array([0.5, 0.5])}
      >>> [leaf.astype(int).tolist() for leaf in jaxarch.masks.top_k(scores, 2).values()]
      [[0, 1], [1, 0]]
    """
    leaves, treedef = _masked_leaves(scores)
    size = sum(leaf.size for leaf in leaves)
    count: Any = k if isinstance(k, Array) else real_numbers("k", k) if isinstance(k, list) else np.asarray(k)
    integer = jnp.issubdtype(count.dtype, jnp.integer) and count.ndim == 0
    if not integer or (not is_traced(k) and not 0 <= np.asarray(k) <= size):
        raise ArgumentError(f"k: expected an integer from 0 to {size}, got {shown(k)}")
    among = None if within is None else jax.tree.leaves(mask_of(scores, within))
    return jax.tree.unflatten(treedef, largest(leaves, count.astype(count_dtype(size)), among))


def mask_of(scores: PyTree, within: PyTree) -> PyTree:
    """Return the scored leaves of an earlier mask, in the scores' structure.

    Raises:
      ArgumentError: a scored leaf that has no mask, or whose mask has another shape or is not boolean.
    """
    before = named_leaves(within)
    for path, leaf in named_leaves(scores).items():
        name = repr(path) if path else "the scores"
        there = before.get(path)
        if there is None:
            raise ArgumentError(
                f"within: it has no mask for {name}, which has scores; give one for each scored leaf"
            )
        if getattr(there, "dtype", None) != jnp.bool_ or there.shape != leaf.shape:
            got = f"{there.dtype} of shape {there.shape}" if hasattr(there, "dtype") else shown(there)
            raise ArgumentError(f"within: expected booleans of shape {leaf.shape} for {name}, got {got}")
    return placed({path: before.get(path) for path in named_leaves(scores)}, scores)


def percentile_thresholds(values: PyTree, percentiles: ArrayLike) -> Array:
    """Return percentiles of the entries of all leaves together: the set T_w of [D] eq. (13).

    Args:
      values: weights or scores, floating point.
      percentiles: numbers in [0, 100], shape (n,).

    Returns:
      Thresholds of shape (n,), linearly interpolated. They are NaN if a value is NaN, or if a traced
      percentile is not in [0, 100]. Values are counted, as in `top_k`, in time proportional to n.

    Raises:
      ArgumentError: concrete percentiles that are not in [0, 100]; values that are not floating point.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> values = {"a": jnp.array([5.0, 1.0, 3.0]), "b": jnp.array([2.0, 4.0])}
      >>> print(jaxarch.masks.percentile_thresholds(values, jnp.array([0.0, 50.0, 87.5])))
      [1.  3.  4.5]
    """
    leaves, _ = _masked_leaves(values)
    check_floating("values", values)
    if not is_traced(percentiles):
        try:
            numbers = np.asarray(percentiles)
        except (TypeError, ValueError):  # keys, rows of unlike lengths
            numbers = np.asarray(None)
        if numbers.dtype.kind not in "iuf" or not ((numbers >= 0) & (numbers <= 100)).all():
            raise ArgumentError(f"percentiles: expected numbers in [0, 100], got {shown(percentiles)}")
    return percentile(leaves, jnp.asarray(percentiles, jnp.float32))


def threshold_mask(values: PyTree, threshold: ArrayLike) -> PyTree:
    """Return the connections above a threshold, `B_inf(w - xi)`: `1[w > xi]` ([D] eq. 13).

    Raises:
      ArgumentError: values that are not arrays of numbers; a threshold that does not broadcast to them.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> jaxarch.masks.threshold_mask({"a": jnp.array([5.0, 1.0, 3.0])}, 3.0)
      {'a': Array([ True, False, False], dtype=bool)}
    """
    check_leaves("values", values)
    check_beside("threshold", threshold, values)
    return map_selected(lambda w: w > threshold, values)


def erk_densities(shapes: Mapping[str, tuple[int, ...]], density: ArrayLike) -> dict[str, Any]:
    r"""Return Erdos-Renyi-Kernel densities: `epsilon sum_i n_i / prod_i n_i` at kernel shape (n_1, ..., n_k).

    epsilon is chosen so that all leaves together have the density asked for. A leaf that would exceed its
    number of connections keeps all of them, and epsilon is then computed from the other leaves. U. Evci et
    al., Rigging the Lottery, 2020.

    Args:
      shapes: shapes of the leaves, by path.
      density: in (0, 1]; it may be traced.

    Returns:
      The density of each leaf: a float, or a traced one if `density` is traced.

    Raises:
      ArgumentError: a density outside (0, 1]; no shapes, or a shape that is not a list of sizes.

    Example:
      >>> import jaxarch
      >>> jaxarch.masks.erk_densities({"a": (4, 4), "b": (8, 8)}, 0.3)  # epsilon = 1: 8/16 and 16/64
      {'a': 0.5, 'b': 0.25}
    """
    check_density("density", density)
    check_mapping("shapes", shapes, "shapes by path")
    if not shapes:
        raise ArgumentError("shapes: expected at least one; select leaves by path")
    for path, shape in shapes.items():
        if not isinstance(shape, Sequence) or not all(isinstance(size, (int, np.integer)) for size in shape):
            raise ArgumentError(f"shapes: expected integers as the shape of {path!r}, got {shown(shape)}")
    sizes = np.asarray([max(math.prod(shape), 1) for shape in shapes.values()])
    spread = _erk_shares(list(shapes.values()), as_number(density)) / sizes
    return dict(zip(shapes, spread if is_traced(density) else spread.tolist(), strict=True))


def _erk_shares(shapes: Sequence[tuple[int, ...]], density: Any) -> Any:
    """Return each leaf's unrounded number of connections: `min(D_l, epsilon n_l)`, n_l = `sum_i n_i`.

    The sum of these numbers is concave and piecewise linear in epsilon, with its corners at `D_l / n_l`. If
    the leaves of the first j corners are full, epsilon is
    `(d D - sum of their D_l) / sum of the others' n_l`. The largest of these values over all j is the right
    epsilon.
    """
    sizes = np.asarray([math.prod(shape) for shape in shapes], float)
    sums = np.asarray([sum(shape) for shape in shapes], float)
    # The shape of a scalar has the sum 0, which must not divide.
    order = np.argsort(sizes / np.maximum(sums, 1), kind="stable")
    full = np.cumsum(sizes[order]) - sizes[order]
    others = np.cumsum(sums[order][::-1])[::-1]
    xp: Any = jnp if is_traced(density) else np
    epsilon = ((density * sizes.sum() - full) / np.maximum(others, 1)).max()
    return xp.minimum(epsilon * sums, sizes)


def check_scope(scope: object) -> None:
    """Raise unless `scope` is a word of `Scope`.

    Example:
      >>> import jaxarch
      >>> jaxarch.masks.check_scope("leaf")
      Traceback (most recent call last):
          ...
      jaxarch.ArgumentError: scope: expected 'global', 'layer' or 'erk', got 'leaf'
    """
    check_choice("scope", scope, ("global", "layer", "erk"))


def check_density(name: str, density: object) -> None:
    """Raise unless `density` is a number in (0, 1]; traced values need only be one number.

    Example:
      >>> import jaxarch
      >>> jaxarch.masks.check_density("density", 90)
      Traceback (most recent call last):
          ...
      jaxarch.ArgumentError: density: expected a number in (0, 1], 1 - sparsity; got 90
    """
    if not isinstance(name, str):
        raise ArgumentError(f"name: expected text, got {shown(name)}")
    if is_traced(density):
        check_one_number(name, density)
        return
    number = as_number(density)
    if isinstance(number, bool) or not isinstance(number, (int, float, np.number)) or not 0 < number <= 1:
        raise ArgumentError(f"{name}: expected a number in (0, 1], 1 - sparsity; got {shown(density)}")


def _counts(scores: PyTree, density: Any, scope: Scope) -> Any:
    """Count the connections kept: one count for all leaves together, or one per leaf."""
    check_one_number("density", density)
    if is_traced(density):
        xp: Any = jnp
    else:
        density, xp = as_number(density), np
        check_density("density", density)
    shapes = [leaf.shape for leaf in named_leaves(scores).values()]
    sizes = np.asarray([math.prod(shape) for shape in shapes])
    dtype = count_dtype(int(sizes.sum()))
    total = xp.rint(density * sizes.sum()).astype(dtype)
    if scope == "global":
        return total
    shares = _erk_shares(shapes, density) if scope == "erk" else density * sizes
    counts = xp.floor(shares).astype(dtype)
    # Round the largest remainders up, so that the counts add up to the total.
    rank = xp.argsort(xp.argsort(counts - shares, stable=True))
    return counts + (rank < total - counts.sum())


def _counts_by_path(scores: PyTree, densities: Mapping[str, float], scope: Scope) -> np.ndarray:
    if scope != "global":
        raise ArgumentError(f"scope: each leaf already has its own density; leave {shown(scope)} out")
    leaves = named_leaves(scores)
    for path, density in densities.items():
        if path not in leaves:
            raise ArgumentError(f"density: no leaf {shown(path)}; {did_you_mean(str(path), leaves)}")
        check_density(f"density of {path!r}", density)
    if absent := leaves.keys() - densities.keys():
        raise ArgumentError(f"density: expected a value for each leaf, got none for {min(absent)!r}")
    return np.asarray([round(densities[path] * leaf.size) for path, leaf in leaves.items()])


def check_scores(scores: PyTree) -> None:
    """Raise unless `scores` is a pytree of at least one array of real numbers."""
    _masked_leaves(scores)


def _masked_leaves(scores: PyTree) -> tuple[list[Array], Any]:
    leaves, treedef = jax.tree.flatten(scores)
    for leaf in leaves:
        if not is_numeric(leaf) or jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            raise ArgumentError(f"scores: expected arrays of real numbers, got {shown(scores)}")
    if not leaves:
        raise ArgumentError("scores: no leaf is masked; select leaves by path")
    return leaves, treedef

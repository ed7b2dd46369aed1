"""Warnings about scores that hardly tell connections apart, and about masks that leave layers empty.

Scores are counted and not sorted. For arrays on accelerators, or split over devices, a compiled program
counts, and one small array comes to the host. Under a transformation of JAX values are unknown, and there are
no warnings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import ArgumentError
from jaxarch._internal.order_statistics import count_dtype
from jaxarch._internal.precision import widened
from jaxarch._internal.trees import PyTree, named_leaves

TIED = 0.1
"""Share of the mask above which decisions by ties are reported: half-precision scores always have a few."""

BACK = 0.01
"""Share of the mask above which zeros among signed scores are reported."""

FEWEST = 16
"""Fewest equal scores, or connections of a leaf that is kept whole, that are reported."""


class Seen(NamedTuple):
    """Counts of a mask and its scores: integers of shape (runs, leaves).

    Attributes:
      names: names of the leaves, by path.
      there: connections that could be kept: all of them, or those in an earlier mask.
      nan: connections among `there` whose score is NaN.
      inf: connections among `there` whose score is infinite.
      zero: connections among `there` whose score is 0.
      kept: connections in the mask.
      tied: connections in the mask with the lowest score in it.
      missed: connections outside of the mask with this lowest score.
      zero_kept: connections in the mask with a score of 0.
      negative: connections outside of the mask with a score below 0.
      pooled: whether all leaves were compared with each other.
    """

    names: tuple[str, ...]
    there: np.ndarray
    nan: np.ndarray
    inf: np.ndarray
    zero: np.ndarray
    kept: np.ndarray
    tied: np.ndarray
    missed: np.ndarray
    zero_kept: np.ndarray
    negative: np.ndarray
    pooled: bool


def look(
    scores: PyTree, mask: PyTree, left: PyTree = None, *, pooled: bool = True, runs: bool = False
) -> Seen:
    """Count problems of scores, and of the mask made from them.

    Args:
      scores: scores of connections or units, as they were compared.
      mask: booleans: the connections or units that were kept.
      left: booleans: the connections or units that could be kept; `None` for all.
      pooled: whether all leaves were compared with each other, or each by itself.
      runs: whether all arrays have a leading axis of runs.
    """
    named, of_mask = named_leaves(scores), named_leaves(mask)
    of_left = {} if left is None else named_leaves(left)
    arrays = [(named[path], of_mask[path], of_left.get(path)) for path in named]
    on_host = all(_is_on_host(array) for array in jax.tree.leaves(arrays))
    if on_host:
        arrays = jax.tree.map(np.asarray, arrays)
    if not runs:
        arrays = jax.tree.map(lambda array: array[None], arrays)
    counted = _counts(np, arrays, np.int64, pooled) if on_host else _compiled_counts(arrays, pooled)
    there, nan, inf, zero, kept, tied, missed, zero_kept, negative = np.asarray(counted, np.int64)
    if not pooled:  # A leaf breaks no tie if it keeps all of its equal scores.
        tied = np.where(missed > 0, tied, 0)
    return Seen(tuple(named), there, nan, inf, zero, kept, tied, missed, zero_kept, negative, pooled)


def _is_on_host(array: Any) -> bool:
    """Return whether an array is in the memory of one CPU, where NumPy counts and nothing is compiled."""
    if not isinstance(array, Array):
        return True
    return array.is_fully_addressable and [device.platform for device in array.devices()] == ["cpu"]


Arrays = Sequence[tuple[Any, Any, Any]]
"""Scores, mask, and optional mask of candidates of each leaf, with a leading axis of runs."""


@partial(jax.jit, static_argnums=1)
def _compiled_counts(arrays: Arrays, pooled: bool) -> Array:
    sizes = [math.prod(scores.shape[1:]) for scores, _, _ in arrays]
    return _counts(jnp, arrays, count_dtype(sum(sizes)), pooled)


def _counts(xp: Any, arrays: Arrays, dtype: Any, pooled: bool) -> Any:
    """Return the fields of `Seen`, in their order, as shape (9, runs, leaves), by NumPy or by JAX."""

    def others(array: Any) -> tuple[int, ...]:
        return tuple(range(1, array.ndim))

    numbers = [widened(scores) for scores, _, _ in arrays]
    limits = [
        xp.min(xp.where(mask & ~xp.isnan(of), of, xp.inf), others(of), initial=xp.inf)
        for of, (_, mask, _) in zip(numbers, arrays, strict=True)
    ]
    if pooled:
        limits = [xp.min(xp.stack(limits), 0)] * len(limits)
    columns = []
    for of, limit, (_, mask, left) in zip(numbers, limits, arrays, strict=True):
        there = xp.ones_like(mask) if left is None else left
        tied = there & (of == xp.expand_dims(limit, others(of)))
        marks = (
            there, there & xp.isnan(of), there & xp.isinf(of), there & (of == 0), mask, tied & mask,
            tied & ~mask, mask & (of == 0), there & ~mask & (of < 0),
        )  # fmt: skip
        columns.append(xp.stack([xp.sum(mark, others(mark), dtype=dtype) for mark in marks]))
    return xp.stack(columns, -1)


def lines(seen: Seen, weights: PyTree = None) -> list[str]:
    """Describe the problems found, the worst first: scores that tell little apart, and empty or whole leaves.

    Args:
      seen: counts from `look`.
      weights: weights of the model, if known. Weights that are all 0 are the likely cause of scores that are
        0.

    Raises:
      ArgumentError: all scores are NaN in all runs.
    """
    check_some_number(seen)
    there, kept = seen.there, seen.kept
    found = []
    if seen.nan.any():
        found.append(
            f"{_share(seen.nan, there)} scores are NaN, in {_leaves(seen, seen.nan)}{_runs(seen.nan)}, and "
            "rank last; look for NaN in weights and gradients"
        )
    if seen.inf.any():
        found.append(
            f"{_share(seen.inf, there)} scores are infinite, in {_leaves(seen, seen.inf)}{_runs(seen.inf)}: "
            "they overflow, as SynFlow's do in deep networks; enable jax_enable_x64, or scale weights down"
        )
    # If all scores of a run are 0 or NaN, they have no order.
    nothing = (seen.zero + seen.nan).sum(1) == there.sum(1)
    if nothing.any():
        zeros = [path for path, leaf in named_leaves(weights).items() if leaf.ndim > 2 and not np.any(leaf)]
        cause = f"{_listed(zeros)} starts" if zeros else "the last layer may start"
        found.append(
            f"all scores are 0, in {_leaves(seen, there)}{_runs(nothing[:, None])}, so the first "
            f"connections are kept; {cause} at 0: score after some training steps, or start from other "
            "weights"
        )
    tied = _ties(seen) & ~nothing
    if tied.any():
        found.append(
            f"{_share(seen.tied[tied], kept[tied])} kept connections have the same score as "
            f"{int(seen.missed[tied].sum())} pruned ones, and are kept only because they come "
            f"first{_runs(tied[:, None])}"
        )
    told = ~nothing[:, None]
    if (empty := told & (kept == 0) & (there > 0)).any():
        zeros = empty & (seen.zero == there)
        cause = (
            f"all scores of {_leaves(seen, zeros)} are 0, as in a layer that starts at 0"
            if zeros.any()
            else "give a larger density" + (", or scope='layer' or 'erk'" if seen.pooled else "")
        )
        found.append(f"no connection is kept in {_leaves(seen, empty)}{_runs(empty)}; {cause}")
    few = 2 * kept.sum(1, keepdims=True) <= there.sum(1, keepdims=True)
    if seen.pooled and (whole := told & few & (kept == there) & (there >= FEWEST)).any():
        found.append(f"every connection is kept in {_leaves(seen, whole)}{_runs(whole)}")
    return found


def emptied(masks: PyTree, pooled: bool = True) -> list[str]:
    """Report empty leaves of masks with a leading axis of runs, and whole ones if leaves were compared."""
    seen = look(masks, masks, pooled=pooled, runs=True)
    nothing = np.zeros_like(seen.there)
    return lines(seen._replace(zero=nothing, missed=nothing))


def brought_back(seen: Seen) -> list[str]:
    """Warn that zeros are kept before negative scores: in later rounds, pruned connections score 0."""
    kept, zeros, less = seen.kept.sum(), seen.zero_kept.sum(), seen.negative.sum()
    if not less or zeros <= BACK * kept:
        return []
    return [
        f"{zeros} of {kept} kept connections have a score of 0, while {less} with negative scores are "
        "pruned; if an earlier mask pruned the zeros, pass it as `within`"
    ]


def check_some_number(seen: Seen) -> None:
    """Raise if all scores are NaN.

    Raises:
      ArgumentError: all scores are NaN; the message names the leaves.
    """
    if seen.there.sum() and (seen.nan == seen.there).all():
        raise ArgumentError(
            f"scores: all {int(seen.there[0].sum())} are NaN, in {_leaves(seen, seen.nan)}; look for NaN in "
            "weights and gradients"
        )


def _ties(seen: Seen) -> np.ndarray:
    """Return the runs in which positions among equal scores decide a large part of the mask."""
    decided = np.where(seen.missed.sum(1) > 0, seen.tied.sum(1), 0)
    return (decided > TIED * seen.kept.sum(1)) & (decided + seen.missed.sum(1) >= FEWEST)


def _share(part: np.ndarray, of: np.ndarray) -> str:
    return f"{int(part.sum())} of {int(of.sum())}"


def _leaves(seen: Seen, marked: np.ndarray) -> str:
    """List the leaves that are marked in any run."""
    return _listed([seen.names[index] for index in np.flatnonzero(marked.any(0))])


def _listed(names: Sequence[str]) -> str:
    shown = [repr(name) if name else "the only leaf" for name in names[:3]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _runs(marked: np.ndarray) -> str:
    """Say in how many runs something is marked, if there are several."""
    runs = len(marked)
    return "" if runs == 1 else f" (in {int(marked.astype(bool).any(1).sum())} of {runs} runs)"

"""Soft masks of a given size: one threshold for all scores, under which the numbers of the mask sum to k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import check_leaves, check_one_number
from jaxarch._internal.precision import widened
from jaxarch._internal.trees import PyTree, check_floating
from jaxarch.masks._gradient import check_temperatures, slope
from jaxarch.masks._largest import Scope, counts_kept

ROUNDS = 60
"""Most rounds of the search for a threshold. A quarter of them halve the bracket, whatever the scores are."""

TOLERANCE = 1e-5
"""Largest difference between the sum of a mask and its size, as a share of it: float32 sums no better."""

TAIL = 30.0
"""Distance, in units of 1/hard, at which a sigmoid is 0 or 1 for any number of connections."""


def sized_mask(
    scores: PyTree,
    density: ArrayLike | Mapping[str, float],
    hard: ArrayLike,
    soft: ArrayLike,
    *,
    scope: Scope = "global",
) -> PyTree:
    r"""Return a mask in (0, 1) whose numbers sum to `k = round(d D)`, with a two-temperature gradient.

    The value is `v = sigma(hard (w - tau))`, with the one threshold tau at which `sum v = k`. The larger
    `hard`, the closer v is to the mask of the k largest scores. With
    `s = sigma_soft'(w - tau)` and `p = s sigma_hard'(w - tau)`, a loss whose gradient by v is g has the
    gradient by w

        s (g - lambda),         lambda = sum p g / sum p.

    It is the gradient of `masks.two_temperature` for the loss less lambda times the size: lambda is the
    multiplier of the constraint. In small steps the mask follows mirror flow among the masks of its size
    (docs/theory.md, `two-temperature.held-size`).

    Args:
      scores: w, floating point; `None` for leaves that are not masked. Scores of -inf are connections outside
        of an earlier mask: they have the value 0 and no gradient.
      density: d in (0, 1], the share of connections that is kept, or that of each leaf, by path. It may be
        traced.
      hard: inverse temperature of the value, positive. May be traced.
      soft: inverse temperature of the gradient, positive, at most `hard`. May be traced.
      scope: `global` for one threshold; `layer` and `erk` for one a leaf, with the leaf's own size, as in
        `masks.keep`.

    Returns:
      Numbers in the structure, shapes and dtypes of the scores. Their sum is k up to a share of 1e-5, if
      float32 tells scores apart that differ by 1e-6/hard, and before it is rounded to a lower precision.
      Second derivatives take tau for a constant.

    Raises:
      ArgumentError: a density outside (0, 1], or one that rounds to no connection; scores that are not
        floating point; concrete temperatures that are not positive, or soft > hard.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> scores = {"w": jnp.array([0.3, 0.1, 0.2, -0.5])}
      >>> mask = jaxarch.masks.sized_mask(scores, 0.5, hard=50.0, soft=5.0)["w"]
      >>> print([f"{v:.2f}" for v in mask], f"{mask.sum():.3f}")
      ['1.00', '0.08', '0.92', '0.00'] 2.000
    """
    check_leaves("scores", scores, real=True)
    check_floating("scores", scores)
    check_one_number("hard", hard)
    check_one_number("soft", soft)
    check_temperatures(hard, soft)
    counts = counts_kept(scores, density, scope)
    return sized(scores, counts, hard, soft)


def sized(
    scores: PyTree, counts: Any, hard: ArrayLike, soft: ArrayLike, near: Any = None, *, factor: bool = True
) -> PyTree:
    """Return the mask of `sized_mask`, given one count for all leaves together or one per leaf.

    Args:
      scores: see `sized_mask`.
      counts: sizes, as `Units.counts` returns them.
      hard: see `sized_mask`.
      soft: see `sized_mask`.
      near: thresholds of scores close to these, from which the search for the thresholds begins.
      factor: whether the gradient carries the factor `soft` (see `masks.two_temperature`).
    """
    leaves, treedef = jax.tree.flatten(scores)
    thresholds = size_thresholds(scores, counts, hard, near)
    if np.ndim(counts) == 0:
        return jax.tree.unflatten(treedef, _sized(leaves, thresholds, hard, soft, factor))
    each = [_sized([w], thresholds[i], hard, soft, factor)[0] for i, w in enumerate(leaves)]
    return jax.tree.unflatten(treedef, each)


def size_thresholds(scores: PyTree, counts: Any, hard: ArrayLike, near: Any = None) -> Array:
    """Return the threshold of all leaves together, or an array of one per leaf.

    The arguments are those of `sized`; gradients do not flow through the thresholds.
    """
    leaves = [jax.lax.stop_gradient(widened(w)) for w in jax.tree.leaves(scores)]
    hard = jnp.asarray(hard, leaves[0].dtype)
    if np.ndim(counts) == 0:
        return _threshold(leaves, counts, hard, near)
    each = enumerate(leaves)
    return jnp.stack([_threshold([w], counts[i], hard, None if near is None else near[i]) for i, w in each])


class _Root(NamedTuple):
    """A bracket around a threshold, the latest guess, and the mask's sum and derivative there."""

    low: Array
    high: Array
    at: Array
    total: Array
    slope: Array
    rounds: Array


def _threshold(leaves: Sequence[Array], count: ArrayLike, hard: Array, near: Array | None) -> Array:
    """Return tau at which `sum sigma(hard (w - tau))` is a count.

    The log-odds of the mean are nearly linear in tau, for scores close together and far apart. So Newton's
    method on them takes few rounds. A bracket keeps it from leaving, and every fourth round halves it.
    """
    size = sum(w.size for w in leaves)
    k = jnp.asarray(count, leaves[0].dtype)

    def sums(at: Array) -> tuple[Array, Array]:
        masks = [jax.nn.sigmoid(hard * (w - at)) for w in leaves]
        return _total(masks), hard * _total([v * (1 - v) for v in masks])

    def odds(part: Array) -> Array:
        return jnp.log(part) - jnp.log(size - part)

    def improve(root: _Root) -> _Root:
        enough = root.total >= k
        low, high = jnp.where(enough, root.at, root.low), jnp.where(enough, root.high, root.at)
        gain = (odds(root.total) - odds(k)) * root.total * (size - root.total) / (size * root.slope)
        newton = root.at + gain
        # The comparisons are false for NaN, which a mask of zeros or of ones alone gives.
        inside = (newton > low) & (newton < high) & (root.rounds % 4 != 3)
        at = jnp.where(inside, newton, low + (high - low) / 2)
        return _Root(low, high, at, *sums(at), root.rounds + 1)

    def unsolved(root: _Root) -> Array:
        # A size of 0 is never met exactly.
        return (jnp.abs(root.total - k) > TOLERANCE * jnp.maximum(k, 1)) & (root.rounds < ROUNDS)

    # Infinite scores are in or out whatever the threshold is, so the finite ones bracket it.
    finite = [jnp.isfinite(w) for w in leaves]
    least = [jnp.min(w, where=f, initial=jnp.inf) for w, f in zip(leaves, finite, strict=True)]
    most = [jnp.max(w, where=f, initial=-jnp.inf) for w, f in zip(leaves, finite, strict=True)]
    lowest, highest = jnp.min(jnp.stack(least)), jnp.max(jnp.stack(most))
    # No score is finite if an earlier mask has removed them all. Any threshold will do then.
    some = lowest <= highest
    low, high = jnp.where(some, lowest, 0) - TAIL / hard, jnp.where(some, highest, 0) + TAIL / hard
    at = low + (high - low) / 2 if near is None else jnp.clip(near, low, high)
    rounds = jnp.zeros((), jnp.int32)
    return jax.lax.while_loop(unsolved, improve, _Root(low, high, at, *sums(at), rounds)).at


# custom_jvp, so that the tangent keeps the size: autodiff of the search for tau would fail in reverse mode.
@partial(jax.custom_jvp, nondiff_argnums=(4,))
def _sized(scores: list[Array], tau: Array, hard: ArrayLike, soft: ArrayLike, factor: bool) -> list[Array]:
    return [jax.nn.sigmoid(hard * (widened(w) - tau)).astype(w.dtype) for w in scores]


@_sized.defjvp
def _tangent(factor: bool, primals: Any, tangents: Any) -> tuple[list[Array], list[Array]]:
    """Return the mask and its tangent `s dw - p <s, dw> / <p, 1>`, which sums to 0."""
    scores, tau, hard, soft = primals
    hard, soft = jnp.asarray(hard, tau.dtype), jnp.asarray(soft, tau.dtype)
    centred = [widened(w) - tau for w in scores]
    slopes = [slope(w, soft, factor) for w in centred]
    paces = [s * slope(w, hard, True) for s, w in zip(slopes, centred, strict=True)]
    moved = [s * dw.astype(s.dtype) for s, dw in zip(slopes, tangents[0], strict=True)]
    pace = _total(paces)
    share = jnp.where(pace > 0, _total(moved) / jnp.where(pace > 0, pace, 1), 0)
    held = [m - p * share for m, p in zip(moved, paces, strict=True)]
    mask = _sized(scores, tau, hard, soft, factor)
    return mask, [dv.astype(w.dtype) for dv, w in zip(held, scores, strict=True)]


def _total(arrays: Sequence[Array]) -> Array:
    return jnp.sum(jnp.stack([jnp.sum(array) for array in arrays]))

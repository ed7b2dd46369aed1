"""Masks that keep exactly a given number of the largest scores, of connections or of whole units."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, ResultWarning, is_traced
from jaxarch._internal.trees import PyTree, map_selected, named_leaves, placed
from jaxarch.masks import _findings as findings
from jaxarch.masks._arithmetic import within as inside
from jaxarch.masks._largest import Scope, check_scope, check_scores, counts_kept, rounded_counts
from jaxarch.masks._per_output import PerOutput
from jaxarch.masks._units import Connections, Units, UnitsLike, as_units


def keep(
    scores: PyTree,
    density: ArrayLike | Mapping[str, float] | None = None,
    scope: Scope | PerOutput = "global",
    units: UnitsLike = None,
    within: PyTree = None,
) -> PyTree:
    r"""Keep the largest scores: exactly `round(d D)` of the D connections, or of the units.

    Of equal scores, the first in flattening order is kept; NaN ranks last, after -inf. As in `top_k`, the
    scores are counted and not sorted, and arrays that are split over devices stay split. The exception is
    `units` that are blocks or N:M: their arrays that are split over explicit axes are gathered, and split
    again.

    In rounds of pruning, pass the mask of the previous round as `within`. Weights of 0 do not keep a pruned
    connection out: GraSP gives some of the remaining connections scores below 0.

        mask = None
        for density in (0.8, 0.6, 0.4):
            mask = jaxarch.masks.keep(score(held), density, within=mask)
            held = jaxarch.masks.apply_mask(mask, params)

    A `ResultWarning` names the leaves if

    - scores are NaN, infinite or all 0;
    - the order of at least 16 equal scores decides more than a tenth of the mask;
    - the ranking leaves a leaf empty;
    - the ranking of all leaves together keeps a leaf of at least 16 connections whole, at half of all
      connections or fewer;
    - more than a hundredth of the kept scores are 0 while negative scores are left out, without `within`: the
      zeros may be connections that were pruned.

    Under `jit` or `vmap` values are unknown, and there is no warning.

    Args:
      scores: one per connection, `None` for leaves that are not masked; for instance from `jaxarch.saliency`.
      density: d, the share of connections that are kept, in (0, 1]. It may be traced, and is then a float32.
        Or the density of each leaf, by path: `round(d_l D_l)` connections in leaf l. With `units`, the share
        of units, or the shares of the groups, by name. Leave it out for N:M, where it is N/M.
      scope: how the kept connections spread over leaves. `global` keeps the largest scores wherever they are;
        `layer` keeps the same density in every leaf, or group of units; `erk` uses `erk_densities`. Counts
        are rounded by largest remainders, so that their sum is `round(d D)` in each case. `PerOutput(inputs)`
        keeps the same density for each output of each leaf; it works for single connections.
      units: connections that are kept together, ranked by the mean of their scores. `None` for single
        connections; `(4, 4)` for blocks of 4 inputs by 4 outputs (`Blocks`). `"2:4"` for 2 of every 4 inputs
        in a row of each output (`NOfM`), in leaves whose name and shape tell the axis of inputs. For neurons,
        channels or heads of a model, give `axis_groups(function, params, x).units("neurons")`; each group
        keeps at least one.
      within: an earlier mask, booleans for each scored leaf: no connection outside of it is kept. The density
        stays the share of all D connections, or units. A unit's score is the mean over its connections in
        this mask. If it is traced and has too few connections, all of them are kept. N:M keeps up to N of M
        of them.

    Returns:
      Booleans in the scores' structure and shapes. With units of a model, leaves that go with the units, such
      as biases, have a mask too, and leaves without units are `None`.

    Raises:
      ArgumentError: a density outside (0, 1]; densities for a leaf that does not exist, or not for every
        leaf; a density so low that nothing is left, or nothing of a group; an unknown word; scores that are
        not arrays, all NaN, or of another model than the units; blocks or N:M that do not fit a leaf; a
        `within` that does not fit the scores, or has fewer connections than are to be kept.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> scores = {"a": jnp.array([0.1, 0.9, 0.2, 0.3]), "b": jnp.array([0.8, 0.7, 0.6, 0.5])}
      >>> [leaf.astype(int).tolist() for leaf in jaxarch.masks.keep(scores, 0.5).values()]
      [[0, 1, 0, 0], [1, 1, 1, 0]]
      >>> [leaf.astype(int).tolist() for leaf in jaxarch.masks.keep(scores, 0.5, scope="layer").values()]
      [[0, 1, 0, 1], [1, 1, 0, 0]]
      >>> kernel = {"kernel": jnp.array([[0.1, 0.9], [0.2, 0.3], [0.4, 0.1], [0.3, 0.2]])}
      >>> jaxarch.masks.keep(kernel, units="2:4")["kernel"].astype(int).tolist()
      [[0, 1], [0, 1], [1, 0], [1, 0]]
    """
    check_scores(scores)
    together = as_units(units).over(scores)
    values, left = together.score_within(scores, within)
    if isinstance(scope, PerOutput):
        if not isinstance(together, Connections):
            raise ArgumentError("scope: PerOutput works only for single connections; leave `units` out")
        if density is None:
            raise ArgumentError("density: PerOutput needs one; give a fraction in (0, 1]")
        counts = counts_kept(values, density, "global" if isinstance(density, Mapping) else "layer")
        kept = scope.largest(values, counts, left)
        if left is not None:
            _check_outputs(kept, counts)
    else:
        check_scope(scope)
        counts = together.counts(values, density, scope)
        kept = together.largest(values, counts, left)
    # By path: `find_mask` returns a dict by path, and a mask of a larger model has more leaves.
    before = None if within is None else placed(named_leaves(within), scores)
    mask = inside(together.spread(kept, scores), before)
    if not is_traced((values, counts, kept, left)):
        pooled = counts is not None and np.ndim(counts) == 0
        seen = findings.look(values, kept, left, pooled=pooled)
        _check_enough(seen, counts)
        if found := [*findings.lines(seen), *(findings.brought_back(seen) if within is None else ())]:
            warnings.warn(f"scores: {'. '.join(found)}", ResultWarning, stacklevel=2)
    return mask


def largest_within(units: Units, scores: PyTree, counts: Any, within: PyTree, like: PyTree) -> PyTree:
    """Keep the largest units among those left by an earlier mask, as `keep` does: one round of a search.

    Args:
      units: units of the scored leaves.
      scores: one per connection.
      counts: how many units are kept, as returned by `Units.counts`.
      within: the earlier mask.
      like: parameters, whose structure the mask takes.
    """
    values, left = units.score_within(scores, within)
    return inside(units.spread(units.largest(values, counts, left), like), within)


def largest_scores(scores: PyTree, density: Any, scope: Scope = "global", before: PyTree = None) -> PyTree:
    """Keep the largest scores as `keep` does, without warnings: the mask of a training step.

    Args:
      scores: one per connection.
      density: see `keep`.
      scope: see `keep`.
      before: the mask of an earlier stage, within which connections are kept; `None` keeps from all. A leaf
        that it does not mask keeps from all its connections, too.
    """
    left = None if before is None else masked_before(scores, before)
    kept = largest_within(Connections(), scores, rounded_counts(scores, density, scope), left, scores)
    return inside(kept, before)


def masked_before(selection: PyTree, before: PyTree) -> PyTree:
    """Return an earlier mask of the selected leaves, with ones for a leaf that it does not mask."""

    def there(leaf: Any, mask: Any) -> Any:
        return jnp.ones(jnp.shape(leaf), bool) if mask is None else mask

    return map_selected(there, selection, before)


def _check_outputs(kept: PyTree, counts: Any) -> None:
    """Raise if an earlier mask leaves an output fewer connections than it is to keep."""
    if is_traced((kept, counts)):
        return
    for (path, mask), count in zip(named_leaves(kept).items(), counts, strict=True):
        if int(mask.sum()) < count:
            raise ArgumentError(
                f"density: it asks for {int(count)} of {path!r}, but `within` leaves some outputs too few; "
                "give a lower density"
            )


def _check_enough(seen: findings.Seen, counts: Any) -> None:
    """Raise if an earlier mask has fewer connections than `counts` asks for."""
    if counts is None:
        return
    there = seen.there.sum() if np.ndim(counts) == 0 else seen.there[0]
    lacking = np.flatnonzero(np.atleast_1d(np.asarray(counts) > there))
    if lacking.size:
        index = int(lacking[0])
        where = "" if np.ndim(counts) == 0 else f" of {seen.names[index]!r}"
        raise ArgumentError(
            f"density: it asks for {int(np.atleast_1d(counts)[index])}{where}, but `within` has "
            f"only {int(np.atleast_1d(there)[index])}; give a lower density"
        )

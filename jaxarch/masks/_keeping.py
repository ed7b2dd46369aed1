"""The mask of the largest scores: of an exact size, of connections or of whole units."""

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
from jaxarch.masks._largest import Scope, check_scope, check_scores, rounded_counts
from jaxarch.masks._units import Connections, Units, UnitsLike, as_units


def keep(
    scores: PyTree,
    density: ArrayLike | Mapping[str, float] | None = None,
    scope: Scope = "global",
    units: UnitsLike = None,
    within: PyTree = None,
) -> PyTree:
    r"""Keep the largest scores: exactly `round(d D)` of the D connections, or of the units.

    Of equal scores, the first in flattening order; NaN comes last, after -inf. By counting, as `top_k`:
    nothing is sorted, and arrays that are split over devices stay so; under `units` that are blocks or N:M,
    those that are split over explicit axes are gathered, and split again.

    Rounds of pruning pass the mask of the round before as `within`. Zeros do not hold a pruned connection
    back: scores of GraSP are below 0 for some connections that are left.

        mask = None
        for density in (0.8, 0.6, 0.4):
            mask = jaxarch.masks.keep(score(held), density, within=mask)
            held = jaxarch.masks.apply_mask(mask, params)

    A `ResultWarning` names the leaves if scores are NaN, infinite or all 0, if more than a tenth of the mask
    is decided by the order of equal scores, or if the ranking leaves a leaf empty, or whole at half of the
    connections or fewer. Under `jit` or `vmap` values are unknown, and there is no warning.

    Args:
      scores: one a connection, `None` for leaves that are not masked; as of `jaxarch.saliency`.
      density: d, the share of connections that are kept, in (0, 1]; it may be traced, and is then a
        float32. Or the density of each leaf, by path: `round(d_l D_l)` in leaf l. With `units`, their share,
        or the shares of the groups, by name; of N:M nothing, since it is N/M.
      scope: where they are kept: `global`, wherever scores are largest; `layer`, the same density in every
        leaf, or group of units; `erk`, the densities of `erk_densities`. Whole numbers are made by the
        largest remainders, so that their sum is `round(d D)` in each case.
      units: what is kept together, by the mean of its scores. `None` for single connections; `(4, 4)` for
        blocks of 4 inputs by 4 outputs (`Blocks`); `"2:4"` for 2 of every 4 inputs in a row of each output,
        in leaves whose name and shape say which axis has the inputs (`NOfM`); neurons, channels or heads of
        a model are `axis_groups(function, params, x).units("neurons")`, of which each group keeps one at
        least.
      within: an earlier mask, booleans for each leaf that is scored: no connection outside of it is kept. The
        density stays the share of all D connections, or units. Units are scored by the mean over their
        connections in it. If it is traced and has too few connections, all of them are kept; N:M keeps what
        there is, up to N of M.

    Returns:
      Booleans in the scores' structure and shapes. With units of a model also for leaves that go with them,
      such as biases, and `None` for leaves that have none.

    Raises:
      ArgumentError: a density outside (0, 1], of a leaf that there is none of or not of all, or so low that
        nothing is left, or nothing of a group; an unknown word; scores that are no arrays, all NaN, or of
        another model than the units; blocks or N:M that do not fit a leaf; a `within` that does not fit the
        scores, or has fewer connections than are to be kept.

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
    check_scope(scope)
    together = as_units(units).over(scores)
    values, left = together.score_within(scores, within)
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
    """Keep the largest units of those that an earlier mask has left, as `keep` does: the round of a search.

    Args:
      units: of the leaves that are scored.
      scores: one a connection.
      counts: how many units are kept, as `Units.counts` returns it.
      within: the earlier mask.
      like: parameters, whose structure the mask has.
    """
    values, left = units.score_within(scores, within)
    return inside(units.spread(units.largest(values, counts, left), like), within)


def largest_scores(scores: PyTree, density: Any, scope: Scope = "global", before: PyTree = None) -> PyTree:
    """Keep the largest scores as `keep` does, without a word: the mask of a step of training.

    Args:
      scores: one a connection.
      density: as of `keep`.
      scope: likewise.
      before: the mask of an earlier stage, within which connections are kept; `None` for all, as for a leaf
        that it does not mask.
    """

    def there(leaf: Any, mask: Any) -> Any:
        return jnp.ones(jnp.shape(leaf), bool) if mask is None else mask

    left = None if before is None else map_selected(there, scores, before)
    kept = largest_within(Connections(), scores, rounded_counts(scores, density, scope), left, scores)
    return inside(kept, before)


def _check_enough(seen: findings.Seen, counts: Any) -> None:
    """Raise if an earlier mask has fewer connections than are to be kept."""
    if counts is None:
        return
    there = seen.there.sum() if np.ndim(counts) == 0 else seen.there[0]
    lacking = np.flatnonzero(np.atleast_1d(np.asarray(counts) > there))
    if lacking.size:
        index = int(lacking[0])
        where = "" if np.ndim(counts) == 0 else f" of {seen.names[index]!r}"
        raise ArgumentError(
            f"density: it keeps {int(np.atleast_1d(counts)[index])}{where}, but `within` has "
            f"{int(np.atleast_1d(there)[index])}; give a lower density"
        )

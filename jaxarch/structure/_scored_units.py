"""Units that may go: their groups, their scores, and the shares of each group that may stay."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxarch._internal.errors import ArgumentError, did_you_mean, shown
from jaxarch._internal.trees import PyTree, inexact, map_selected, select
from jaxarch.masks._units import WORDS
from jaxarch.structure._allocation import ranks
from jaxarch.structure._groups import Group, Groups


def chosen_groups(groups: Groups, units: Any) -> list[str]:
    """Return the names of the groups that may lose units."""
    if units is None:
        kinds = {group.kind for group in groups.groups.values()}
        units = [word for word in WORDS if word in kinds]
        if not units:
            names = f"it has {', '.join(sorted(kinds))}" if kinds else str(groups)
            raise ArgumentError(f"units: the model has no neurons, channels, heads or experts; {names}")
    words = (units,) if isinstance(units, str) else units
    if not isinstance(words, (tuple, list, set, frozenset)) or not all(
        isinstance(word, str) for word in words
    ):
        raise ArgumentError(f"units: expected kinds of units or names of groups, got {shown(units)}")
    return groups.of_kinds(tuple(words))


def shares_of(groups: Groups, shares: Any) -> dict[str, tuple[float, float]]:
    """Return the least and the largest share of each group that stays."""
    if shares is not None and not isinstance(shares, Mapping):
        raise ArgumentError(f"shares: expected a dict from patterns to shares, got {shown(shares)}")
    pairs = {pattern: _pair(pattern, share) for pattern, share in (shares or {}).items()}
    of_all = groups.groups.values()
    for pattern in pairs:
        if not any(_fits(pattern, group) for group in of_all):
            paths = dict.fromkeys(path for group in of_all for path, _ in group.axes)
            raise ArgumentError(
                f"shares: no group has a leaf {shown(pattern)}; {did_you_mean(pattern, paths)}"
            )
    return {
        group.name: next((pair for pattern, pair in pairs.items() if _fits(pattern, group)), (0.0, 1.0))
        for group in of_all
    }


def _fits(pattern: str, group: Group) -> bool:
    """Return whether a pattern is the name of a group, or fits the path of one of its leaves."""
    return pattern == group.name or any(fnmatch.fnmatchcase(path, pattern) for path, _ in group.axes)


def _pair(pattern: Any, share: Any) -> tuple[float, float]:
    pair = share if isinstance(share, tuple) else (share, share)
    numbers = [
        float(number)
        for number in pair
        if isinstance(number, (int, float)) and not isinstance(number, bool) and 0 <= number <= 1
    ]
    if not isinstance(pattern, str) or len(pair) != 2 or len(numbers) != 2 or numbers[0] > numbers[1]:
        raise ArgumentError(
            f"shares: expected a share in [0, 1], or a pair (least, largest), for {shown(pattern)}, got "
            f"{shown(share)}"
        )
    return numbers[0], numbers[1]


def unit_scores(groups: Groups, units: Any, scores: Any, tree: PyTree, summed: bool) -> dict[str, np.ndarray]:
    """Return the scores of the units of some groups, from scores of connections or of units.

    Args:
      groups: the groups of the model.
      units: see `plan`.
      scores: see `plan`.
      tree: the leaves.
      summed: whether a unit has the sum over its connections, and not their mean.
    """
    names = chosen_groups(groups, units)
    if isinstance(scores, Mapping) and not set(groups.groups).isdisjoint(scores):
        if unknown := [name for name in scores if name not in groups.groups]:
            raise ArgumentError(
                f"scores: unknown group {shown(unknown[0])}; {did_you_mean(unknown[0], groups.groups)}"
            )
        found = {name: scores[name] for name in names if name in scores}
    else:
        weights = scores is None
        scores = select(inexact(tree)) if weights else scores
        over = groups.units_of(names).over(scores)

        # One program: as single operations, all of these sums compile for seconds.
        @jax.jit
        def scored(scores: PyTree) -> dict[str, Any]:
            scores = map_selected(jnp.abs, scores) if weights else scores
            return over.sums(scores)[0] if summed else over.score(scores)

        found = scored(scores)
    made = {}
    for name in names:
        if name not in found:
            continue
        score, size = np.asarray(found[name]), groups.groups[name].size
        is_real = any(jnp.issubdtype(score.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_))
        if score.shape != (size,) or not is_real or not np.isfinite(score.astype(np.float64)).all():
            raise ArgumentError(
                f"scores: expected {size} finite numbers for the units of {name!r}, got {shown(found[name])}"
            )
        made[name] = score.astype(np.float64)
    return made


def compared_scores(groups: Groups, scores: Mapping[str, np.ndarray], scope: str) -> Mapping[str, np.ndarray]:
    """Return the numbers by which units of different groups are compared; see `plan`."""
    if scope == "layer":
        return ranks(scores, {name: name for name in scores})
    if scope in ("relative", "isomorphic"):
        means = {name: np.abs(score).mean() or 1.0 for name, score in scores.items()}
        scores = {name: score / means[name] for name, score in scores.items()}
    if scope == "isomorphic":
        return ranks(scores, {name: _form(groups, name) for name in scores})
    return scores


def _form(groups: Groups, name: str) -> tuple[Any, ...]:
    """Return what alike groups have in common: their kind, and the last names and axes of their leaves."""
    group = groups.groups[name]
    # Paths of PyTorch's parameters have dots.
    return group.kind, tuple(sorted({(re.split(r"[/.]", path)[-1], axis) for path, axis in group.axes}))

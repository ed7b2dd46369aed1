"""Architectures of several densities out of one search: what it keeps of them, and how to take one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax import Array

from jaxarch.errors import ArgumentError, check_count
from jaxarch.masks import apply_mask, check_density
from jaxarch.network import ByDensity, Network
from jaxarch.problem import Problem
from jaxarch.running.methods import method
from jaxarch.running.stage import FunctionStage, Needs
from jaxarch.trees import PyTree

Densities = float | Sequence[float]
"""One share of connections to keep, in (0, 1], or several."""


def check_densities(densities: Densities) -> tuple[float, ...]:
    """Densities without repetition, the largest first.

    Raises:
      ArgumentError: one outside (0, 1], or none.
    """
    given = densities if isinstance(densities, Sequence) else [densities]
    check_count("densities", len(given))
    for density in given:
        check_density("densities", density)
    return tuple(sorted({float(density) for density in given}, reverse=True))


def density_name(density: float) -> str:
    """What the mask of a density is called in `Network.by_density`."""
    return f"{float(density):.6g}"


def connections_kept(density: float, selection: PyTree) -> int:
    """`round(density D)` of the D connections of the selected leaves."""
    return round(density * sum(leaf.size for leaf in jax.tree.leaves(selection)))


def with_densities(
    masks: Mapping[float, PyTree], weights: PyTree, state: PyTree, info: Mapping[str, Any] | None = None
) -> Network:
    """The architecture of the smallest density, with those of all for `at_density` to take.

    Args:
      masks: by density, the largest first.
      weights: without any mask.
      state: the model's.
      info: what is to be looked at.
    """
    named = {density_name(density): mask for density, mask in masks.items()}
    smallest = list(named.values())[-1]
    return Network(
        params=apply_mask(smallest, weights),
        mask=smallest,
        state=state,
        by_density=ByDensity(named, weights),
        info=dict(info or {}),
    )


@method("[A] appendix A.1", density=0.5)
def at_density(density: float) -> FunctionStage:
    """The architecture of one of the densities that a search was given.

    For `search.architecture_pruning`, `magnitude_pruning`, `random_mask` and `snip`.

    Args:
      density: as it was given there.

    Returns:
      A finish: the mask of that density, and the weights that the search ended with, masked by it.

    Raises:
      ArgumentError: a search before that kept no masks, or none of this density.
    """
    check_density("density", density)
    needs = Needs("required", ("by_density",), before="search.snip((0.5, 0.1))")
    return FunctionStage(f"at density {density_name(density)}", _at_density, float(density), needs)


def _at_density(density: float, key: Array, problem: Problem, network: Network) -> Network:
    assert network.by_density is not None
    masks, weights = network.by_density
    if density_name(density) not in masks:
        raise ArgumentError(f"density: no mask of density {density} was kept; there are {', '.join(masks)}")
    mask = masks[density_name(density)]
    return network.replace(params=apply_mask(mask, weights), mask=mask)

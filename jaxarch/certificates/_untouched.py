"""Checks that a network's weights existed before the data, so that the data chose only its mask."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxarch._internal.trees import PyTree, named_leaves, raw_numbers
from jaxarch.masks import apply_mask, weight_free
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import Start


def as_before(network: Network, weights: PyTree) -> PyTree:
    """Apply the network's mask to the weights that existed before the data.

    Args:
      network: a network of one run.
      weights: the weights that existed before, as the user says; `None` for weights of 1.
    """
    if weights is None:
        return weight_free(network.mask, network.params)
    return apply_mask(network.mask, weights)


def is_weight_free(network: Network) -> bool:
    """Return whether all existing connections have the weight 1."""
    free, found = (named_leaves(of) for of in (as_before(network, None), network.params))
    masked = (path for path, leaf in named_leaves(network.mask).items() if leaf is not None)
    return all(np.array_equal(found[path], free[path]) for path in masked)


def why_touched(network: Network, problem: Problem, weights: PyTree) -> str:
    """Say why it cannot be shown that the data chose nothing but the mask; empty if it is shown.

    Values that all starts of the problem have in common, such as a model's own constants, count as existing
    before the data.

    Args:
      network: a network of one run; if it has a `Start`, the weights must be equal to it.
      problem: the problem that the network was found for.
      weights: as in `as_before`.
    """
    (first, first_state), (second, second_state) = (problem.init(jax.random.key(seed)) for seed in (0, 1))
    expected, found = named_leaves(as_before(network, weights)), named_leaves(network.params)
    masked = {path for path, leaf in named_leaves(network.mask).items() if leaf is not None}
    if weights is None:
        if not is_weight_free(network):
            start = network.get(Start)
            kept = (
                "the network has no `Start` to take them from"
                if start is None
                else "its `Start`, if untrained"
            )
            return (
                "none: its weights are not all 1, so they may come from the training rows; if they do not, "
                f"pass all parameters as they were before, weights=... ({kept})"
            )
        starts = named_leaves(first), named_leaves(second)
        for path in (path for path in found if path not in masked):
            if not all(_equal(found[path], start[path]) for start in starts):
                return (
                    f"none: '{path}' has no mask and differs from the value that all starts share, so it "
                    "may come from the training rows"
                )
    else:
        why_not = _why_not_before(network, weights)
        if why_not:
            return why_not
    for path, leaf in found.items():
        if not _equal(leaf, expected[path]):
            return f"none: '{path}' differs from the given weights under the mask: it was trained, or scaled"
    states = named_leaves(first_state), named_leaves(second_state)
    for path, leaf in named_leaves(network.state).items():
        if not all(_equal(leaf, state.get(path)) for state in states):
            return (
                f"none: the model's state '{path}' differs from the value that all starts share, so it may "
                "come from the training rows"
            )
    return ""


def _why_not_before(network: Network, weights: PyTree) -> str:
    """Say why the mask was not chosen over these weights; empty if it may have been."""
    given = named_leaves(weights)
    if (start := network.get(Start)) is not None:
        begun = named_leaves(start.params)
        for path, leaf in given.items():
            if not _equal(leaf, begun.get(path)):
                return f"none: weights: '{path}' differs from network[Start], where the search began"
        if start.step is not None:
            steps = f"{int(start.step):,}"
            return (
                f"none: weights: network[Start] was trained for {steps} steps before it was stored for "
                "rewinding"
            )
    masks = {path: ~np.asarray(leaf) for path, leaf in named_leaves(network.mask).items() if leaf is not None}
    dropped = np.concatenate([np.asarray(given[path])[gone] for path, gone in masks.items()])
    if dropped.size and not dropped.any():
        return (
            "none: weights: they are 0 wherever the mask is 0, so they were taken after it was chosen; give "
            "all parameters as they were before"
        )
    return ""


def _equal(one: Any, other: Any) -> bool:
    """Return whether two arrays are equal up to rounding.

    The same numbers drawn by two programs may differ in rounding, since the programs are compiled
    differently.
    """
    if other is None or jnp.shape(one) != jnp.shape(other):
        return False
    one, other = raw_numbers(one), raw_numbers(other)
    if not jnp.issubdtype(one.dtype, jnp.floating):
        return bool(np.array_equal(one, other))
    rounding = 4 * float(jnp.finfo(one.dtype).eps)
    return bool(jnp.all(jnp.abs(one - other) <= rounding * jnp.abs(other)))

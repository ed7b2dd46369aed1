"""Whether a network's weights were there before the data: only then its mask alone was chosen by them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxarch.masks import apply_mask, weight_free
from jaxarch.network import Network
from jaxarch.problem import Problem
from jaxarch.trees import PyTree, named_leaves


def why_touched(network: Network, problem: Problem, weights: PyTree) -> str:
    """Why it cannot be shown that the data chose nothing but the mask; empty where it is shown.

    Args:
      network: of one run.
      problem: that it was found for.
      weights: those that its user says were there before the data; `None` for weights of 1.
    """
    drawn = [problem.init(jax.random.key(seed)) for seed in (0, 1)]
    if weights is None:
        if not _is_weight_free(network):
            return (
                "none: its weights are not all 1, so that they may come from the training rows; if they "
                "were there before, give them as weights="
            )
        expected = weight_free(network.mask, network.params)
        beside = {path: leaf for path, leaf in named_leaves(network.mask).items() if leaf is not None}
        first, second = (named_leaves(params) for params, _ in drawn)
        for path, leaf in named_leaves(network.params).items():
            known = path in beside or (_equal(first[path], second[path]) and _equal(leaf, first[path]))
            if not known:
                return (
                    f"none: '{path}' has no mask, and is not what every start has; if it was there before "
                    "the data, give all weights as weights="
                )
    else:
        expected = apply_mask(network.mask, weights)
    for path, leaf in named_leaves(network.params).items():
        if not _equal(leaf, named_leaves(expected)[path]):
            return f"none: '{path}' is not the masked weights that were given: it was trained, or scaled"
    state = {} if network.state is None else network.state
    for path, leaf in named_leaves(state).items():
        if not all(_equal(leaf, named_leaves(start).get(path)) for _, start in drawn):
            return f"none: the model's state '{path}' is not that of a start: it has seen the training rows"
    return ""


def _is_weight_free(network: Network) -> bool:
    free = named_leaves(weight_free(network.mask, network.params))
    return all(
        _equal(named_leaves(network.params)[path], free[path])
        for path, leaf in named_leaves(network.mask).items()
        if leaf is not None
    )


def _equal(one: Any, other: Any) -> bool:
    """Whether they are the same numbers, drawn by two programs: compiled otherwise, they round otherwise."""
    if other is None or np.shape(one) != np.shape(other):
        return False
    one, other = (jnp.asarray(leaf) for leaf in (one, other))
    rounding = 4 * float(jnp.finfo(one.dtype).eps) if jnp.issubdtype(one.dtype, jnp.floating) else 0.0
    return bool(jnp.all(jnp.abs(one - other) <= rounding * jnp.abs(other)))

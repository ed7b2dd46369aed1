"""Initial weights from normal distributions, for models that draw from other distributions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch import Problem, PyTree, merge, select

Initial = Literal["model", "normal"]
"""Source of the initial weights: the model's own, or normal distributions of the same width."""
_NORMAL = 0x6E6F726D
"""Constant that separates the keys of normal weights from the model's own keys."""


def beginning(problem: Problem, initial: Initial) -> Problem:
    """Return the problem with initial weights of the given kind.

    By default, Flax draws a layer's weights from a normal distribution truncated at 2.27 of its own standard
    deviations. Then only layers with few inputs have large weights. A comparison of weights across layers
    finds no large weights in the other layers.
    """
    return dataclasses.replace(problem, init=_Normal(problem.init)) if initial == "normal" else problem


@dataclasses.dataclass(frozen=True)
class _Normal:
    """`key -> (params, state)`, with normal matrices of the same root mean square as the model's."""

    init: Callable[[Array], tuple[PyTree, PyTree]]

    def __call__(self, key: Array) -> tuple[PyTree, PyTree]:
        params, state = self.init(key)
        leaves, treedef = jax.tree.flatten(select(params))
        keys = jax.random.split(jax.random.fold_in(key, _NORMAL), len(leaves))
        drawn = [
            jnp.sqrt(jnp.mean(jnp.square(leaf))) * jax.random.normal(one, leaf.shape, leaf.dtype)
            for one, leaf in zip(keys, leaves, strict=True)
        ]
        return merge(jax.tree.unflatten(treedef, drawn), params), state

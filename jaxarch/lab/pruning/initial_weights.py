"""Initial weights from normal distributions, where a model draws its own from others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch import Problem, PyTree, merge, select

Initial = Literal["model", "normal"]
"""From where initial weights are: the model's own, or normal distributions as wide."""
_NORMAL = 0x6E6F726D
"""What tells the keys of normal weights from those that the model draws from."""


def beginning(problem: Problem, initial: Initial) -> Problem:
    """The problem with initial weights of that kind.

    Flax draws the weights of a layer from a normal distribution that is cut off at 2.27 of its own standard
    deviations, unless it is told otherwise: of all layers only those with few inputs have large weights, and
    what compares weights of different layers finds none in the others.
    """
    return dataclasses.replace(problem, init=_Normal(problem.init)) if initial == "normal" else problem


@dataclasses.dataclass(frozen=True)
class _Normal:
    """`key -> (params, state)`, with normal matrices of the root mean squares that the model's have."""

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

"""Weights that a search holds fixed while it learns which of them to keep."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, is_choice, shown
from jaxarch._internal.trees import PyTree, map_selected, merge, named_leaves, placed
from jaxarch.masks import Scope, erk_densities

Function = Callable[[Array, PyTree], PyTree]
"""A function `(key, selected) -> values`, in the structure of the masked leaves."""


def check_weights(weights: Any, *words: str) -> None:
    """Raise unless `weights` is one of some words or a function."""
    if not callable(weights) and not is_choice(weights, words):
        choices = ", ".join(repr(word) for word in words)
        raise ArgumentError(f"weights: expected {choices} or a function, got {shown(weights)}")


def fixed_weights(weights: str | Function, key: Array, params: PyTree, selected: PyTree) -> PyTree:
    """Return the parameters, with a search's fixed weights in the selected leaves.

    Args:
      weights: `signed constant` for the signs of the leaves times `sqrt(2/n)`, n a neuron's inputs; a
        function; any other word for the leaves as they are.
      key: the function's key.
      params: all parameters.
      selected: the masked leaves.
    """
    if callable(weights):
        return merge(weights(key, selected), params)
    return merge(map_selected(_signed_constant, selected), params) if weights == "signed constant" else params


def rescaled(params: PyTree, selected: PyTree, density: ArrayLike, scope: Scope = "global") -> PyTree:
    """Return the parameters, with the selected leaves divided by the square root of their density.

    A sum over the kept share of a neuron's inputs then varies as much as a sum over all of them.

    Args:
      params: all parameters.
      selected: the masked leaves.
      density: the share of connections that is kept.
      scope: `erk` if each leaf has a density of its own (`masks.erk_densities`).
    """
    leaves = named_leaves(selected)
    if scope == "erk":
        shares: dict[str, Any] = erk_densities({path: leaf.shape for path, leaf in leaves.items()}, density)
    else:
        shares = dict.fromkeys(leaves, density)

    def larger(path: str, share: ArrayLike) -> Array:
        theta: Array = named_leaves(params)[path]
        return theta * jax.lax.rsqrt(jnp.asarray(share, jnp.float32)).astype(theta.dtype)

    return merge(placed({path: larger(path, share) for path, share in shares.items()}, selected), params)


def inputs(leaf: Any) -> int:
    """Count a neuron's inputs: the entries of a leaf over those of its last axis."""
    return max(math.prod(jnp.shape(leaf)[:-1]), 1)


def _signed_constant(leaf: Array) -> Array:
    return jnp.sign(leaf) * math.sqrt(2 / inputs(leaf))

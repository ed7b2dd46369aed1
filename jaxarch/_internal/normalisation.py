"""Scales and shifts of batch norm in a model's parameters: one of each per channel."""

from __future__ import annotations

import jax.numpy as jnp

from jaxarch._internal.errors import ArgumentError
from jaxarch._internal.trees import PyTree, Where, named_leaves, placed, select


def scales_and_shifts(params: PyTree, where: Where = "*scale") -> PyTree:
    """Return the scales of channels, and the shift beside each, in the structure of the parameters.

    Args:
      params: parameters of a model.
      where: the leaves that are scales, by path.

    Raises:
      ArgumentError: no scales, or scales that are not one number per channel.
    """
    scales = named_leaves(select(params, where, "where"))
    for path, leaf in scales.items():
        if jnp.ndim(leaf) != 1:
            raise ArgumentError(
                f"where: expected scales, one number per channel, but {path!r} has shape {jnp.shape(leaf)}"
            )
    beside = {shift_of(path) for path in scales}
    shifts = {path: leaf for path, leaf in named_leaves(params).items() if path in beside}
    return placed(scales | shifts, params)


def shift_of(scale: str) -> str:
    """Return the path of the shift beside a scale."""
    module, _, _ = scale.rpartition("/")
    return f"{module}/bias" if module else "bias"

"""Masks that are learned within the one that a network has already."""

from __future__ import annotations

from typing import Any

import jax

from jaxarch.network import Network
from jaxarch.running.stage import Needs
from jaxarch.trees import PyTree

WITHIN_A_MASK = Needs("optional", ("params",), forgets=("connections", "neurons"))
"""What a search needs that takes weights and mask of what was found before, if anything was."""


def mask_before(network: Network | None) -> PyTree:
    """The mask of what was found before; `None` where there is none."""
    return None if network is None else network.mask


def within(mask: PyTree, before: PyTree) -> PyTree:
    """A mask, soft or hard, without the connections that were not there before.

    Args:
      mask: numbers or booleans, `None` for leaves that are not masked.
      before: the mask of an earlier stage, likewise; `None` if there was none.

    Returns:
      Their product, leaf by leaf; leaves that only one of them masks as it has them.
    """
    if before is None:
        return mask

    def product(now: Any, earlier: Any) -> Any:
        if now is None or earlier is None:
            return earlier if now is None else now
        return now & earlier if now.dtype == bool else now * earlier.astype(now.dtype)

    return jax.tree.map(product, mask, before, is_leaf=lambda leaf: leaf is None)

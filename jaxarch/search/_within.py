"""Masks that are learned within the one that a network has already."""

from __future__ import annotations

from jaxarch._internal.trees import PyTree
from jaxarch.masks._arithmetic import within as within
from jaxarch.run._network import Network
from jaxarch.run._stage import Needs

WITHIN_A_MASK = Needs("optional", ("params",), forgets=("connections", "neurons"))
"""What a search needs that takes weights and mask of what was found before, if anything was."""


def mask_before(network: Network | None) -> PyTree:
    """The mask of what was found before; `None` where there is none."""
    return None if network is None else network.mask

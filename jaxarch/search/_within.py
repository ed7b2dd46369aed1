"""Masks that are learned within a network's existing mask."""

from __future__ import annotations

from jaxarch._internal.trees import PyTree
from jaxarch.masks._arithmetic import within as within
from jaxarch.run._network import Network
from jaxarch.run._stage import Needs

WITHIN_A_MASK = Needs("optional", ("params",), forgets=("connections", "neurons"))
"""Needs of a search that starts from the weights and the mask of an earlier stage, if there is one."""


def mask_before(network: Network | None) -> PyTree:
    """Return the mask of an earlier stage; `None` if there is none."""
    return None if network is None else network.mask

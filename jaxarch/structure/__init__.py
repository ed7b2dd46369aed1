"""The structure of networks: units of any model, smaller models, graphs and spectra."""

from jaxarch.structure import distances, graphs
from jaxarch.structure.groups import Folded, Group, Groups, axis_groups
from jaxarch.structure.shrink import Shrunk, ShrunkNetwork, shrink

__all__ = [
    "Folded",
    "Group",
    "Groups",
    "Shrunk",
    "ShrunkNetwork",
    "axis_groups",
    "distances",
    "graphs",
    "shrink",
]

"""The structure of networks: axes that are one, layers and nodes, smaller models, costs, graphs, spectra."""

from jaxarch.structure import distances, graphs, nodes
from jaxarch.structure.cost import cost
from jaxarch.structure.cost_table import Cost, Counts, LayerCost
from jaxarch.structure.groups import Group, Groups, axis_groups
from jaxarch.structure.shrink import Shrunk, shrink

__all__ = [
    "Cost",
    "Counts",
    "Group",
    "Groups",
    "LayerCost",
    "Shrunk",
    "axis_groups",
    "cost",
    "distances",
    "graphs",
    "nodes",
    "shrink",
]

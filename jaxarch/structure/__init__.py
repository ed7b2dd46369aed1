"""The structure of networks: axes that are one, layers and nodes, smaller models, graphs and spectra."""

from jaxarch.structure import distances, graphs, nodes
from jaxarch.structure.groups import Group, Groups, axis_groups
from jaxarch.structure.shrink import Shrunk, shrink

__all__ = ["Group", "Groups", "Shrunk", "axis_groups", "distances", "graphs", "nodes", "shrink"]

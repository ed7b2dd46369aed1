"""The structure of networks: layers and their nodes, smaller models, graphs and their spectra."""

from jaxarch.structure import distances, graphs, nodes
from jaxarch.structure.shrink import Shrunk, shrink

__all__ = ["Shrunk", "distances", "graphs", "nodes", "shrink"]

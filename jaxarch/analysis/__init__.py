"""Comparison of networks: units aligned, barriers, similarity of layers; masks measured as graphs."""

from jaxarch.analysis._align import Alignment, align
from jaxarch.analysis._barrier import Barrier, barrier
from jaxarch.analysis._cka import Similarity, cka, similarity
from jaxarch.analysis._connectivity import Connectivity, Paths, connectivity, paths
from jaxarch.analysis._correlations import unit_correlations

__all__ = [
    "Alignment",
    "Barrier",
    "Connectivity",
    "Paths",
    "Similarity",
    "align",
    "barrier",
    "cka",
    "connectivity",
    "paths",
    "similarity",
    "unit_correlations",
]

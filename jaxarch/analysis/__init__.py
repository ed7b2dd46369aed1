"""Comparison of networks: units aligned, barriers, similarity of layers, tangent kernels; masks as graphs."""

from jaxarch.analysis._align import Alignment, align
from jaxarch.analysis._barrier import Barrier, barrier
from jaxarch.analysis._cka import Similarity, cka, similarity
from jaxarch.analysis._connectivity import Connectivity, Paths, connectivity, paths
from jaxarch.analysis._correlations import unit_correlations
from jaxarch.analysis._ntk import TangentKernel, ntk

__all__ = [
    "Alignment",
    "Barrier",
    "Connectivity",
    "Paths",
    "Similarity",
    "TangentKernel",
    "align",
    "barrier",
    "cka",
    "connectivity",
    "ntk",
    "paths",
    "similarity",
    "unit_correlations",
]

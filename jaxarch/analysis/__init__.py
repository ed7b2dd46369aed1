"""Comparison of networks: units, barriers, layers, tangent kernels, masks as graphs, intrinsic dimension."""

from jaxarch.analysis._align import Alignment, align
from jaxarch.analysis._barrier import Barrier, barrier
from jaxarch.analysis._cka import Similarity, cka, similarity
from jaxarch.analysis._connectivity import Connectivity, Paths, connectivity, paths
from jaxarch.analysis._correlations import unit_correlations
from jaxarch.analysis._intrinsic_dimension import IntrinsicDimension, intrinsic_dimension
from jaxarch.analysis._ntk import TangentKernel, ntk
from jaxarch.analysis._subspace import in_subspace

__all__ = [
    "Alignment",
    "Barrier",
    "Connectivity",
    "IntrinsicDimension",
    "Paths",
    "Similarity",
    "TangentKernel",
    "align",
    "barrier",
    "cka",
    "connectivity",
    "in_subspace",
    "intrinsic_dimension",
    "ntk",
    "paths",
    "similarity",
    "unit_correlations",
]

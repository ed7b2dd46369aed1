"""Comparison of networks: alignment of their units, barriers between them, similarity of their layers."""

from jaxarch.analysis._align import Alignment, align
from jaxarch.analysis._barrier import Barrier, barrier
from jaxarch.analysis._cka import Similarity, cka, similarity
from jaxarch.analysis._correlations import unit_correlations

__all__ = ["Alignment", "Barrier", "Similarity", "align", "barrier", "cka", "similarity", "unit_correlations"]

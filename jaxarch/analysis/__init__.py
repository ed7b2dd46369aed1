"""Comparison of networks: the same up to permutation, connected by a path of low loss, of similar layers?"""

from jaxarch.analysis._align import Alignment, align
from jaxarch.analysis._barrier import Barrier, barrier
from jaxarch.analysis._cka import Similarity, cka, similarity
from jaxarch.analysis._correlations import unit_correlations

__all__ = ["Alignment", "Barrier", "Similarity", "align", "barrier", "cka", "similarity", "unit_correlations"]

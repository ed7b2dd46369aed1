"""Spectral networks: their algebra, what they compute, and what keeps them small."""

from jaxarch.spectral import algebra, error_bounds, penalty
from jaxarch.spectral.network import feedforward, hidden_eigenvalues, init, recursive, unpack

__all__ = [
    "algebra",
    "error_bounds",
    "feedforward",
    "hidden_eigenvalues",
    "init",
    "penalty",
    "recursive",
    "unpack",
]

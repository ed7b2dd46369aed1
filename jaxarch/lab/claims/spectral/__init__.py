"""Claims of [S], Peri, Chicchi, Fanelli and Giambagli, Spectral Architecture Search (SPARCS)."""

from jaxarch.lab.claims.spectral import (
    adjacency,
    binomials,
    counts,
    direct_space,
    gamma,
    inverse,
    neurons,
    perceptron_start,
    target,
)

__all__ = [
    "adjacency",
    "binomials",
    "counts",
    "direct_space",
    "gamma",
    "inverse",
    "neurons",
    "perceptron_start",
    "target",
]

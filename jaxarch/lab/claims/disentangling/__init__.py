"""Claims of [D], Colombo and Gao, Disentangling Neural Architectures and Weights, 2021."""

from jaxarch.lab.claims.disentangling import (
    binarization,
    convergence,
    convergence_proof,
    convex_network,
    graphs,
    mean_loss,
    step_error,
    tightness,
)

__all__ = [
    "binarization",
    "convergence",
    "convergence_proof",
    "convex_network",
    "graphs",
    "mean_loss",
    "step_error",
    "tightness",
]

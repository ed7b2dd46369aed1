"""Theorems in use: mirror geometry, rates, and bounds on gradients, outputs, slopes, removals and errors."""

from jaxarch.theory import (
    bounds,
    generalization,
    intervals,
    lipschitz,
    mirror,
    optimality,
    relaxation,
    removal,
)

__all__ = [
    "bounds",
    "generalization",
    "intervals",
    "lipschitz",
    "mirror",
    "optimality",
    "relaxation",
    "removal",
]

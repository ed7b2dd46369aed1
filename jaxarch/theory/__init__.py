"""Theorems in use: mirror geometry, learning rates, and bounds on gradients, optimality and new errors."""

from jaxarch.theory import bounds, generalization, intervals, mirror, optimality

__all__ = ["bounds", "generalization", "intervals", "mirror", "optimality"]

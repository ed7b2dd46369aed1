"""Theorems in use: mirror geometry and rates, bounds on gradients, on what is optimal and on new errors."""

from jaxarch.theory import bounds, generalization, intervals, mirror, optimality

__all__ = ["bounds", "generalization", "intervals", "mirror", "optimality"]

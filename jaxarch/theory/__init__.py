"""Theorems in use: mirror geometry, rates, and bounds on gradients, outputs, slopes and new errors."""

from jaxarch.theory import bounds, generalization, intervals, lipschitz, mirror, optimality, relaxation

__all__ = ["bounds", "generalization", "intervals", "lipschitz", "mirror", "optimality", "relaxation"]

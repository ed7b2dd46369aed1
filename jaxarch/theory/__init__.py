"""Theorems in use: mirror geometry and rates, interval bounds on gradients."""

from jaxarch.theory import bounds, intervals, mirror

__all__ = ["bounds", "intervals", "mirror"]

"""Flax NNX modules: masks that are learned inside them, their functions, and modules that are smaller."""

from jaxarch.nnx.masked import Masked, Score, Temperature
from jaxarch.nnx.modules import ShrunkModule, as_function, shrink

__all__ = ["Masked", "Score", "ShrunkModule", "Temperature", "as_function", "shrink"]

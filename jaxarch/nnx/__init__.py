"""Flax NNX modules: masks that are learned inside them, their functions, and modules that are smaller."""

from jaxarch.nnx._masked import Masked, Score, Temperature
from jaxarch.nnx._modules import ShrunkModule, as_function, shrink

__all__ = ["Masked", "Score", "ShrunkModule", "Temperature", "as_function", "shrink"]

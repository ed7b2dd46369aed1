"""Flax NNX modules: masks learned inside them, modules as functions, and smaller modules."""

from jaxarch.nnx._masked import Masked, Score, Temperature
from jaxarch.nnx._modules import ShrunkModule, as_function, plan, shrink

__all__ = ["Masked", "Score", "ShrunkModule", "Temperature", "as_function", "plan", "shrink"]

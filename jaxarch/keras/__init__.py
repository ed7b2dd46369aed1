"""Keras 3 models on the JAX backend: models as functions, and smaller models.

Set `KERAS_BACKEND=jax` before you import Keras.
"""

from jaxarch.keras._models import ShrunkModel, as_function, plan, shrink

__all__ = ["ShrunkModel", "as_function", "plan", "shrink"]

"""Keras 3 models on the JAX backend: models as functions, and smaller models.

Keras is imported on first use. Set `KERAS_BACKEND=jax` before you import it.
"""

from jaxarch.keras._models import ShrunkModel, as_function, plan, shrink

__all__ = ["ShrunkModel", "as_function", "plan", "shrink"]

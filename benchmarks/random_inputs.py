"""A model that is trained on random inputs with random labels, where only the time of a step matters."""

from __future__ import annotations

from collections.abc import Callable

import jax
import optax
from flax import nnx

import jaxarch
from jaxarch import models

CLASSES, EXAMPLES = 10, 2048


def problem(
    make: Callable[[nnx.Rngs], nnx.Module],
    shape: tuple[int, ...],
    *,
    optimizer: optax.GradientTransformation,
    steps: int,
    batch_size: int,
) -> jaxarch.Problem:
    """To tell classes of inputs of a shape."""
    x = jax.random.normal(jax.random.key(0), (EXAMPLES, *shape))
    return jaxarch.supervised(
        make,
        (x, jax.random.randint(jax.random.key(1), (EXAMPLES,), 0, CLASSES)),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optimizer,
        steps=steps,
        batch_size=batch_size,
    )


def mlp(rngs: nnx.Rngs) -> nnx.Module:
    """LeNet-300-100."""
    return models.MLP((784, 300, 100, CLASSES), rngs=rngs)

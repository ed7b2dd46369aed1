"""G, the largest norm of a gradient in the mask: measured in a first run, and certified for all masks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from jaxarch import Network, Problem, PyTree, TrainingInfo, everything, map_selected, over_seeds
from jaxarch.lab.theory.cases import Case
from jaxarch.run import advance, begin
from jaxarch.search import two_temperature
from jaxarch.theory import bounds


def first_run(case: Case, keys: Array, hard: float, soft: float, rate: float) -> tuple[PyTree, np.ndarray]:
    """Return every seed's initial scores, and the largest gradient in the mask that Algorithm 1 meets.

    The gradients are gradients of batches.
    """
    optimizer = optax.chain(_largest_gradient(soft), optax.sgd(rate))
    training = two_temperature(
        hard, soft, where=everything, mean=case.mean, std=case.std, optimizer=optimizer
    )

    def largest(key: Array, problem: Problem) -> Network:
        first = begin(training, key, problem, None)
        last, _ = advance(training, key, problem, first, 0, problem.descent.steps, problem.descent.steps)
        return Network(first.state.trainable, info=TrainingInfo({"largest": last.opt_state[0]}))

    network, _ = over_seeds(largest, keys, case.problem)
    return network.params, np.asarray(network.info["largest"])


def _largest_gradient(soft: float) -> optax.GradientTransformation:
    """Pass gradients c through unchanged, and keep the largest norm of `g = c / ds_soft(w)`."""

    def update(gradient: PyTree, largest: Array, scores: PyTree) -> tuple[PyTree, Array]:
        of_mask = map_selected(lambda c, w: c * (2 / soft) * (1 + jnp.cosh(soft * w)), gradient, scores)
        return gradient, jnp.maximum(largest, jnp.linalg.norm(ravel_pytree(of_mask)[0]))

    return optax.GradientTransformation(lambda scores: jnp.zeros(()), update)


def certified_bounds(problem: Problem) -> np.ndarray:
    """Compute G for every seed: no example's gradient, at no mask in [0, 1]^d, has a larger norm."""
    params, state = problem.init(jax.random.key(0))

    def largest(one: Problem) -> Array:
        return bounds.gradient_bounds(one, params, state, where=everything).max()

    return np.asarray(jax.jit(jax.vmap(largest, in_axes=(problem.in_axes(),)))(problem))

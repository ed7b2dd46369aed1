"""Common parts of the searches that train scores and weights together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, as_number, one_line
from jaxarch._internal.trees import PyTree
from jaxarch.masks import apply_mask, density
from jaxarch.masks._keeping import largest_scores
from jaxarch.run._descent import DescentChanges, OwnDescent, own_descent, value_at
from jaxarch.run._network import Network
from jaxarch.run._records import ByDensity
from jaxarch.run._training_info import TrainingInfo
from jaxarch.search._within import within
from jaxarch.transforms._densities import Densities, check_densities, layers_emptied, with_densities

LEAST = 1e-6
"""Noise is uniform in (LEAST, 1 - LEAST), so that its logit is finite."""


def descent_of(changes: DescentChanges, scores: optax.GradientTransformation | None) -> OwnDescent:
    """Return the descent of a stage that trains `scores` and `weights`, with an optimizer for each.

    Each optimizer sees only its own tree. So labels and masks of the user's parameters fit both: the weights
    are these parameters, and scores have `None` where a leaf is not masked.
    """
    return own_descent(changes, {"scores": scores, "weights": None})


def targets_of(densities: Densities | None) -> tuple[float, ...] | None:
    """Return densities, the largest first; `None` if the mask is the method's own.

    Raises:
      ArgumentError: a density outside (0, 1], or none.
    """
    return None if densities is None else check_densities(densities)


def network_of(
    targets: tuple[float, ...] | None,
    scores: PyTree,
    own: PyTree,
    weights: PyTree,
    before: PyTree,
    state: PyTree,
    info: Mapping[str, Any],
) -> Network:
    """Return the network: under the method's own mask, or under those of the largest scores.

    Args:
      targets: densities, the largest first, or `None`.
      scores: one per connection.
      own: the method's own mask.
      weights: weights without a mask.
      before: the mask of an earlier stage, `None` without.
      state: the model's state.
      info: arrays for inspection; the density of the method's own mask is added.
    """
    own = within(own, before)
    info = {**info, "own_density": density(own)}
    if targets is None:
        return Network(apply_mask(own, weights), own, state, info=TrainingInfo(info))
    masks = {target: largest_scores(scores, target, before=before) for target in targets}
    return with_densities(masks, weights, state, info)


def remarks(network: Network) -> Iterable[str]:
    """Yield lines about layers without a connection, and runs whose own masks keep nothing or everything."""
    found = np.asarray(network.info["own_density"])
    by_density = network.get(ByDensity) is not None
    if by_density or found.any():
        yield from layers_emptied(network)
    if by_density:
        return
    for share, what, change in ((0, "nothing is left", "smaller"), (1, "nothing was pruned", "larger")):
        if runs := int((found == share).sum()):
            yield f"{what} in {runs} of {len(found)} runs: take a {change} `strength`, or give `densities`"


def check_at_steps(name: str, value: Any, check: Callable[[str, Any], None], *steps: int) -> None:
    """Raise unless a number passes a check, or the values of a function of the step at some steps do.

    Raises:
      ArgumentError: a function that does not take a step; errors of the check.
    """
    if not callable(value):
        check(name, as_number(value))
        return
    for step in steps:
        with jax.ensure_compile_time_eval():
            try:
                said = value_at(value, jnp.asarray(step, jnp.int32))
            except TypeError as error:
                raise ArgumentError(
                    f"{name}: expected a number or a function of the step; {one_line(error)}"
                ) from None
        check(f"{name} at step {step}", as_number(said))


def at_step(value: ArrayLike | optax.Schedule, step: int | Array) -> Array:
    """Return a number, or the value of a function of the step, as float32."""
    return jnp.asarray(value_at(value, step), jnp.float32)


def logistic_noise(key: Array, scores: PyTree) -> PyTree:
    """Draw `log u - log(1 - u)` for each score, u uniform: the difference of two Gumbel variables."""
    leaves, treedef = jax.tree.flatten(scores)

    def drawn(key: Array, leaf: Array) -> Array:
        u = jax.random.uniform(key, leaf.shape, leaf.dtype, LEAST, 1 - LEAST)
        return jnp.log(u) - jnp.log1p(-u)

    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(treedef, [drawn(one, leaf) for one, leaf in zip(keys, leaves, strict=True)])


def total(values: PyTree) -> Array:
    """Return the sum of all entries of all leaves."""
    return jnp.sum(jnp.stack([jnp.sum(leaf) for leaf in jax.tree.leaves(values)]))

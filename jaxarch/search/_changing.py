"""Masks that change while weights descend: the common parts of the searches that use `optim.sparse`."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import jax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, check_count, check_one_finite, is_traced, shown
from jaxarch._internal.trees import PyTree, Where, select_floating
from jaxarch.masks import Scope, apply_mask, check_density, check_scope, init_scores
from jaxarch.masks._keeping import largest_scores
from jaxarch.optim import find_mask
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.transforms._densities import layers_lost

CHANGES = 50
"""Number of spans into which the changes divide a training by default.

A grown connection begins at 0, and is judged by its size at the next change: it needs steps of its own until
then. In a training of 1000 steps it has 20 steps, and there are enough changes to turn the mask over several
times.
"""

REMEDY = "too few connections are left for the gradient: take a larger density, or other initial weights"


class Drawn(Protocol):
    """Settings of a search that begins with a random mask."""

    @property
    def density(self) -> ArrayLike:
        """Share of connections in the mask."""

    @property
    def scope(self) -> Scope:
        """Distribution of the connections over the leaves."""

    @property
    def where(self) -> Where:
        """Leaves that are masked."""


def check_changes(density: ArrayLike, every: int | None, scope: Scope) -> None:
    """Raise unless the arguments that all such searches have are usable."""
    check_density("density", density)
    check_scope(scope)
    if every is not None:
        check_count("every", every)


def check_replaced(replaced: Any) -> None:
    """Raise unless the share to replace is a number in [0, 1); a traced one passes."""
    check_one_finite("replaced", replaced)
    if not is_traced(replaced) and not 0 <= replaced < 1:
        raise ArgumentError(f"replaced: expected a number in [0, 1), got {shown(replaced)}")


def check_span(begin: Any, end: Any) -> None:
    """Raise unless the shares of the steps between which a density falls are usable."""
    for name, share in (("begin", begin), ("end", end)):
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
            raise ArgumentError(f"{name}: expected a fraction of the steps, in [0, 1), got {shown(share)}")
    if begin >= end:
        raise ArgumentError(f"end: expected more than begin = {begin:g}, got {end:g}")


def spacing(every: int | None, steps: int, spans: int = CHANGES) -> int:
    """Return the number of steps from one change to the next."""
    return max(round(steps / spans), 1) if every is None else every


def spacing_before(last: int, name: str, every: int | None, steps: int, spans: int = CHANGES) -> int:
    """Return the number of steps from one change to the next, in a training whose changes end at a step.

    Raises:
      ArgumentError: no change before that step, so that the mask would never change.
    """
    chosen = spacing(every, steps, spans)
    if chosen >= last:
        raise too_few(name, steps, chosen)
    return chosen


def span(name: str, begin: float, end: float, steps: int, every: int) -> tuple[int, int]:
    """Return the steps of two shares of a training, rounded down to a multiple of `every`.

    Raises:
      ArgumentError: the same step for both, so that the mask would never change.
    """
    first, last = (min(round(share * steps), steps - 1) // every * every for share in (begin, end))
    if first == last:
        raise too_few(name, steps, every)
    return first, last


def too_few(name: str, steps: int, every: int) -> ArgumentError:
    """Return the error for a training in which the mask would never change."""
    return ArgumentError(
        f"steps: {name} would never change its mask in {steps} steps, with every={every}; give more "
        "`steps`, or a smaller `every`"
    )


def random_start(settings: Drawn, key: Array, problem: Problem, network: None) -> TrainState:
    """Make the problem's initial weights under a random mask, which becomes the memory."""
    params_key, mask_key = jax.random.split(key)
    params, model = problem.start(params_key)
    drawn = init_scores(mask_key, select_floating(params, settings.where), 0.0, 1.0)
    mask = largest_scores(drawn, settings.density, settings.scope)
    return TrainState(apply_mask(mask, params), None, model, memory=mask)


def weights(settings: Any, state: TrainState) -> PyTree:
    """Return the weights unmasked: the optimizer holds removed ones at 0, and their gradient is needed."""
    return state.trainable


def mask_held(settings: Any, state: TrainState) -> PyTree:
    """Return the mask that the optimizer has made from the last one."""
    return find_mask(state.optimizer, state.trainable)


def trained(settings: Any, state: TrainState) -> Network:
    """Return the weights and the mask of the same step."""
    return Network(apply_mask(state.memory, state.trainable), state.memory, state.model)


sparse_training = partial(
    Training,
    init=random_start,
    params=weights,
    network=trained,
    after_step=mask_held,
    remedy=REMEDY,
    remarks=layers_lost,
)
"""A training under a mask that its optimizer changes.

The caller adds a name, settings, a descent, and `wrap_optimizer`, which builds that optimizer.
"""

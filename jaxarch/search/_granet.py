"""GraNet: gradual magnitude pruning that also replaces small weights by connections with large gradients."""

from __future__ import annotations

import dataclasses
from typing import Any, Unpack

import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, is_traced, shown
from jaxarch._internal.trees import Where, matrices
from jaxarch.masks import Scope, check_density
from jaxarch.optim import sparse
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.search._changing import (
    check_changes,
    check_replaced,
    check_span,
    random_start,
    spacing,
    span,
    sparse_training,
)

NAME = "GraNet"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The densities, when the density falls, the share to replace, and where connections are counted."""

    density: ArrayLike
    initial: ArrayLike
    replaced: ArrayLike
    begin: float
    end: float
    every: int | None
    where: Where
    scope: Scope


@method("S. Liu et al., 2021")
def granet(
    density: ArrayLike = 0.1,
    *,
    initial: ArrayLike = 1.0,
    replaced: ArrayLike = 0.5,
    begin: float = 0.0,
    end: float = 0.7,
    every: int | None = None,
    where: Where = matrices,
    scope: Scope = "global",
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Train while the density falls to d, and at each change replace the smallest weights that are left.

    The density falls from d_0 at step t_0 to d at t_1, where the largest `|w|` stay,

        d_t = d + (d_0 - d) (1 - (t - t_0) / (t_1 - t_0))^3.

    Then each leaf also loses the `round(rho_t n)` of its n connections with the smallest `|w|`, and as many
    grow where `|dL/dw|` is largest among its free places,

        rho_t = rho / 2 (1 + cos(pi t / T)),

    with T the number of steps. Grown connections begin at 0. The exchange goes on after t_1, at a constant
    density, to the end. S. Liu et al., Sparse training via boosting pruning plasticity with
    neuroregeneration, 2021: gradual pruning with zero-cost neuroregeneration.

    Departures from the published method: the densities are met exactly. In the authors' code, numbers are
    rounded up or down and the first mask is drawn connection by connection. rho falls to 0, theirs to .005. A
    change replaces a step of the optimizer, whose moments stay as they are. Theirs follows a step, and sets
    the momentum to 0 where no connection is.

    Args:
      density: d, the share of connections that are left at the end, in (0, 1]. May be traced: a sweep is one
        program. `d_t D` is computed in float32.
      initial: d_0, at least d. Below 1 the first mask is random, spread over the leaves by `erk`. In the
        paper, 1 and .5. May be traced.
      replaced: rho, the share of a leaf's connections that is replaced at first, in [0, 1). May be traced.
      begin: t_0, as a share of the training's steps, in [0, 1). Nothing changes before.
      end: t_1, as a share of the steps, more than `begin`. Both are rounded down to a multiple of `every`.
      every: steps from one change to the next. By default a 50th of the training's steps.
      where: the leaves that are masked, by path.
      scope: where the smallest weights are pruned, as in `masks.keep`: wherever they are, or by leaf.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search. Its network is trained: it has the weights of the last step, 0 where the mask is 0.

    Raises:
      ArgumentError: a density outside (0, 1], an initial one below it, shares out of range, an unknown word;
        so few steps, or so large an `every`, that no change comes between `begin` and `end`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=10)
      >>> network = jaxarch.search.granet(0.25)(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), network.info["loss"].shape)
      0.25 (10,)
    """
    check_changes(density, every, scope)
    check_density("initial", initial)
    if not is_traced((initial, density)) and np.less(initial, density):
        raise ArgumentError(
            f"initial: expected at least density = {shown(density)}, got {shown(initial)}; the density falls"
        )
    check_replaced(replaced)
    check_span(begin, end)
    return sparse_training(
        name=NAME,
        init=_init,
        settings=Settings(density, initial, replaced, begin, end, every, where, scope),
        descent=own_descent(descent),
        wrap_optimizer=_wrap_optimizer,
    )


def _init(settings: Settings, key: Array, problem: Problem, network: None) -> TrainState:
    drawn: Any = dataclasses.replace(settings, density=settings.initial, scope="erk")
    return random_start(drawn, key, problem, network)


def _wrap_optimizer(
    settings: Settings, key: Array, problem: Problem, state: TrainState
) -> optax.GradientTransformation:
    steps = problem.descent.steps
    every = spacing(settings.every, steps)
    first, last = span(NAME, settings.begin, settings.end, steps, every)
    falling = optax.cosine_decay_schedule(settings.replaced, steps)

    def replaced(step: Array) -> Array:
        return jnp.where(step < first, 0.0, falling(step))

    return sparse(
        problem.descent.optimizer,
        optax.polynomial_schedule(settings.initial, settings.density, 3, last - first, first),
        replaced=replaced,
        regrow="gradients",
        every=every,
        mask=state.memory,
        scope=settings.scope,
        regrow_scope="layer",
    )

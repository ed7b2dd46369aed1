"""RigL: a sparse network from the first step on, which grows where the loss asks for it."""

from __future__ import annotations

import dataclasses
from typing import Unpack

import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch._internal.trees import Where, matrices
from jaxarch.masks import Scope
from jaxarch.optim import sparse
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.search._changing import check_changes, check_replaced, spacing, sparse_training, too_few

NAME = "RigL"


@dataclasses.dataclass(frozen=True)
class Settings:
    """How many connections there are, how they are spread, and how many of them are replaced, and when."""

    density: ArrayLike
    replaced: ArrayLike
    until: float
    every: int | None
    scope: Scope
    where: Where


@method("U. Evci et al., 2020")
def rigl(
    density: ArrayLike = 0.1,
    *,
    replaced: ArrayLike = 0.3,
    until: float = 0.75,
    every: int | None = None,
    scope: Scope = "erk",
    where: Where = matrices,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Train `round(d D)` connections, random ones at first; they move to where the gradient is largest.

    At the steps `t = every, 2 every, ... < T`, in each leaf the `round(rho_t n)` of its n connections with
    the smallest `|w|` go,

        rho_t = rho / 2 (1 + cos(pi t / T)),

    and as many grow where `|dL/dw|` is largest, of all places that are free then; what grows begins at 0.
    Such a change takes the place of a step of the optimiser. So every leaf keeps its n from the first step to
    the last. U. Evci et al., Rigging the lottery: making all tickets winners, 2020, Algorithm 1.

    Moments of the optimiser stay what they are at a change: those of a connection that was never there are 0,
    those of one that was there have decayed since. The paper's interval is 100 of 32,000 steps and more.

    Args:
      density: d, the share of connections that are there, in (0, 1]. May be traced: a sweep is one program.
      replaced: rho (alpha there), the share of a leaf's connections that is replaced at first, in [0, 1). May
        be traced.
      until: T, as a share of the training's steps, in (0, 1].
      every: steps from one change to the next. By default a 50th of the training's.
      scope: how the first mask is spread over the leaves, as in `masks.keep`.
      where: the leaves that are masked, by path.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling` in place of the problem's.

    Returns:
      A search. Its network is trained: the weights are those that the last step left, 0 where the mask is.

    Raises:
      ArgumentError: a density outside (0, 1], shares out of range, an unknown word; so few steps, or so large
        an `every`, that the mask would never change.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=10)
      >>> network = jaxarch.search.rigl(0.25)(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), network.info["loss"].shape)
      0.25 (10,)
    """
    check_changes(density, every, scope)
    check_replaced(replaced)
    if isinstance(until, bool) or not isinstance(until, (int, float)) or not 0 < until <= 1:
        raise ArgumentError(f"until: expected a share of the steps, in (0, 1], got {shown(until)}")
    return sparse_training(
        name=NAME,
        settings=Settings(density, replaced, until, every, scope, where),
        descent=own_descent(descent),
        wrap_optimizer=_wrap_optimizer,
    )


def _wrap_optimizer(
    settings: Settings, key: Array, problem: Problem, state: TrainState
) -> optax.GradientTransformation:
    every, last = (
        spacing(settings.every, problem.descent.steps),
        round(settings.until * problem.descent.steps),
    )
    if every >= last:
        raise too_few(NAME, problem.descent.steps, every)
    return sparse(
        problem.descent.optimizer,
        replaced=optax.cosine_decay_schedule(settings.replaced, last),
        regrow="gradients",
        every=every,
        until=last,
        mask=state.memory,
    )

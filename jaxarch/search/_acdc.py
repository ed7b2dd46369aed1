"""AC/DC: phases of training with all connections alternate with phases under a mask of large weights."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Unpack

import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch import saliency
from jaxarch._internal.trees import Where, matrices
from jaxarch.masks import Scope, apply_mask
from jaxarch.masks._keeping import largest_scores
from jaxarch.optim import sparse
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.search._changing import check_changes, check_span, spacing, span, sparse_training

NAME = "AC/DC"
PHASES = 20
"""Number of phases in a training by default: 5 of 100 epochs each, as the authors have on ImageNet."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The final density, where the phases begin and how long they are, and how weights are compared."""

    density: ArrayLike
    begin: float
    end: float
    every: int | None
    where: Where
    scope: Scope


@method("A. Peste et al., 2021")
def acdc(
    density: ArrayLike = 0.1,
    *,
    begin: float = 0.1,
    end: float = 0.85,
    every: int | None = None,
    where: Where = matrices,
    scope: Scope = "global",
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Train in phases that alternate: only the largest weights at density d, then all connections again.

    All connections train until step t_0. From there on, phases of `every` steps alternate. A compressed phase
    keeps the `round(d D)` connections with the largest `|w|` at its first step, and sets the others to 0. A
    decompressed phase lets these grow again, from 0. The last compressed phase begins at t_1 and lasts to the
    end. A. Peste, E. Iofinova, A. Vladu and D. Alistarh, AC/DC: Alternating compressed/decompressed training
    of deep neural networks, 2021.

    If the number of phases from t_0 to t_1 is odd, the decompressed phase before t_1 has twice the length, as
    in the authors' settings for ImageNet: their epochs 75 to 85 of 100. With a single phase there is no mask
    before t_1.

    Departures from the published method: a change of the mask replaces a step of the optimizer, as in RigL.
    The optimizer's moments stay as they are, and decay where no connection is. The authors set the momentum
    to 0 before each decompressed phase; other optimizers have more than one moment, and count steps.

    Args:
      density: d, the share of connections in compressed phases, in (0, 1]. May be traced: a sweep is one
        program.
      begin: t_0, as a share of the training's steps, in [0, 1). At 0 the first mask is that of the initial
        weights.
      end: t_1, as a share of the steps, more than `begin`. Both are rounded down to a multiple of `every`.
      every: steps of a phase. By default a 20th of the training's steps.
      where: the leaves that are masked, by path.
      scope: where the largest weights are looked for, as in `masks.keep`. The authors have `global` and, in
        some of their settings, `layer`.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search. Its network is trained: it has the weights of the last step, 0 where the mask is 0. A network
      that early stopping keeps from a decompressed phase has all connections.

    Raises:
      ArgumentError: a density outside (0, 1], shares that are not `0 <= begin < end < 1`, an unknown word; so
        few steps, or so large an `every`, that no change comes between `begin` and `end`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=10)
      >>> network = jaxarch.search.acdc(0.25)(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), network.info["loss"].shape)
      0.25 (10,)
    """
    check_changes(density, every, scope)
    check_span(begin, end)
    return sparse_training(
        name=NAME,
        init=_init,
        settings=Settings(density, begin, end, every, where, scope),
        descent=own_descent(descent),
        wrap_optimizer=_wrap_optimizer,
    )


class Phases(NamedTuple):
    """Length of a phase, and the first steps of the first and of the last compressed phase."""

    every: int
    first: int
    last: int


def _phases(settings: Settings, steps: int) -> Phases:
    every = spacing(settings.every, steps, PHASES)
    first, last = span(NAME, settings.begin, settings.end, steps, every)
    return Phases(every, first, last)


def _density(settings: Settings, phases: Phases, step: Array) -> Array:
    every, first, last = phases
    is_even = (step - first) // every % 2 == 0
    # The phase before the last one is decompressed, whatever its number is.
    alternating = (step >= first) & (step < last - every) & is_even
    return jnp.where(alternating | (step >= last), settings.density, 1.0)


def _init(settings: Settings, key: Array, problem: Problem, network: None) -> TrainState:
    params, model = problem.start(key)
    # No change of `sparse` comes before the first step, so the first mask is made here.
    phases = _phases(settings, problem.descent.steps)
    share = _density(settings, phases, jnp.zeros((), jnp.int32))
    mask = largest_scores(saliency.magnitude(params, settings.where), share, settings.scope)
    return TrainState(apply_mask(mask, params), None, model, memory=mask)


def _wrap_optimizer(
    settings: Settings, key: Array, problem: Problem, state: TrainState
) -> optax.GradientTransformation:
    phases = _phases(settings, problem.descent.steps)
    return sparse(
        problem.descent.optimizer,
        lambda step: _density(settings, phases, step),
        # All that is missing grows, so it does not matter in which order.
        regrow="gradients",
        mask=state.memory,
        every=phases.every,
        until=phases.last + 1,
        scope=settings.scope,
    )

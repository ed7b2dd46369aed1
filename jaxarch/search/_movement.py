"""Movement pruning: keep the connections whose weights move away from 0, fewer and fewer during training."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple, Unpack

import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import (
    ArgumentError,
    check_choice,
    check_one_number,
    check_one_strength,
    is_traced,
    shown,
)
from jaxarch._internal.trees import PyTree, Where, map_selected, matrices, select_floating
from jaxarch.masks import apply_mask, check_density
from jaxarch.masks._keeping import largest_scores
from jaxarch.run._descent import DescentChanges
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.search._scored import at_step, check_at_steps, descent_of
from jaxarch.search._straight_through import straight_through
from jaxarch.search._within import WITHIN_A_MASK, mask_before, within
from jaxarch.transforms._densities import layers_emptied

WARMUP, COOLDOWN = 0.1, 0.2
"""Shares of the steps before and after the density falls; in the paper, 5400 and 10800 of 55 thousand."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The density and how it falls, the scope of comparison, and the masked leaves."""

    density: ArrayLike | optax.Schedule
    warmup: ArrayLike
    cooldown: ArrayLike
    scope: Literal["global", "layer"]
    where: Where


class Fixed(NamedTuple):
    """Fixed parts of the state: the mask that the weights had before, and the total number of steps."""

    mask: PyTree
    steps: Array


@method("V. Sanh, T. Wolf and A. Rush, 2020")
def movement(
    density: ArrayLike | optax.Schedule = 0.5,
    *,
    warmup: ArrayLike | None = None,
    cooldown: ArrayLike | None = None,
    scope: Literal["global", "layer"] = "layer",
    where: Where = matrices,
    scores_optimizer: optax.GradientTransformation | None = None,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Keep the connections whose weights move away from 0, with a density that falls as they are trained.

    The network computes with `w' = m o w`, where the mask m keeps the largest scores s, at the density v_t of
    step t. Weights descend under their mask, and the gradient goes to the scores as if m were s,

        dL/ds = dL/dw' o w,

    whether a connection is kept or not. From s = 0, under gradient descent at learning rate a, s is
    `-a sum_t (dL/dw')_t w_t`: it grows while a weight moves away from 0. The density is 1 in the first steps,
    d in the last ones, and between them, from t_0 to t_1,

        v_t = d + (1 - d) (1 - (t - t_0) / (t_1 - t_0))^3.

    V. Sanh, T. Wolf and A. Rush, Movement pruning: adaptive sparsity by fine-tuning, 2020; the hard variant,
    which keeps the largest scores. The paper prunes networks that were trained on another task: for that, put
    it after a search.

    Departure from the published method: numbers of connections are rounded to the nearest (in the paper,
    down).

    Args:
      density: d, in (0, 1]; or a function of the step, an optax schedule, for v_t. It must be 1 at step 0,
        where all scores are alike; its value after the last step is d. May be traced, like all numbers here.
      warmup: t_0, as a share of the steps; .1 by default.
      cooldown: the share of the steps after t_1; .2 by default.
      scope: where the largest scores are kept: `layer`, the same density in every leaf, the paper's default;
        `global`, wherever they are.
      where: the leaves that are masked, by path. The others are trained as well.
      scores_optimizer: any optax transformation for the scores; by default one optimizer trains everything.
        In the paper, both are AdamW, with a learning rate of 1e-2 for scores and 3e-5 for weights.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search; after another stage, one from its weights and within its mask. Its mask keeps exactly
      `round(d D)` of the D connections (in float32 if the density is traced), or all earlier ones, if these
      are fewer.

    Raises:
      ArgumentError: a density outside (0, 1], or a schedule that is not 1 at step 0; shares that are negative
        or more than 1 together, or that are given beside a schedule; an unknown `scope`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=9)
      >>> network = jaxarch.search.movement(0.25)(jax.random.key(0), problem)
      >>> print({name: mask.sum().item() for name, mask in network.mask.items()})  # of 32 each
      {'W2_1': 8, 'W3_2': 8}
    """
    check_choice("scope", scope, ("global", "layer"))
    if callable(density):
        for name, share in {"warmup": warmup, "cooldown": cooldown}.items():
            if share is not None:
                raise ArgumentError(
                    f"{name}: the density is already a function of the step; leave {name} out"
                )
    check_at_steps("density", density, _check_whole if callable(density) else check_density, 0)
    name, other = ("warmup", "cooldown") if cooldown is None else ("cooldown", "warmup")
    warmup = WARMUP if warmup is None else warmup
    cooldown = COOLDOWN if cooldown is None else cooldown
    check_one_strength("warmup", warmup)
    check_one_strength("cooldown", cooldown)
    if not is_traced((warmup, cooldown)) and np.add(warmup, cooldown) > 1:
        given = {"warmup": warmup, "cooldown": cooldown}
        raise ArgumentError(
            f"{name}: expected at most 1 - {other}, with {other}={shown(given[other])}, got "
            f"{shown(given[name])}"
        )
    return Training(
        "movement",
        _init,
        _params,
        _network,
        Settings(density, warmup, cooldown, scope, where),
        descent_of(descent, scores_optimizer),
        remedy="start from other weights",
        remarks=layers_emptied,
        needs=WITHIN_A_MASK,
    )


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    if callable(settings.density):
        check_at_steps("density", settings.density, check_density, problem.descent.steps)
    params, model = problem.start(key) if network is None else (network.params, network.state)
    scores = map_selected(
        lambda leaf: jnp.zeros(leaf.shape, jnp.float32), select_floating(params, settings.where)
    )
    fixed = Fixed(mask_before(network), jnp.asarray(problem.descent.steps, jnp.float32))
    return TrainState({"scores": scores, "weights": params}, fixed, model)


def _density(settings: Settings, state: TrainState) -> Array:
    """Return the share of connections at a step."""
    if callable(settings.density):
        return jnp.clip(at_step(settings.density, state.step), 0, 1)
    done = jnp.asarray(state.step, jnp.float32) / state.fixed.steps
    falling = jnp.maximum(1 - jnp.add(settings.warmup, settings.cooldown), jnp.finfo(jnp.float32).tiny)
    left = 1 - jnp.clip((done - settings.warmup) / falling, 0, 1)
    density = jnp.asarray(settings.density, jnp.float32)
    return density + (1 - density) * left**3


def _largest(settings: Settings, state: TrainState, density: Any) -> PyTree:
    before = state.fixed.mask
    return largest_scores(state.trainable["scores"], density, settings.scope, before)


def _params(settings: Settings, state: TrainState) -> PyTree:
    scores = state.trainable["scores"]
    mask = _largest(settings, state, _density(settings, state))

    def learned(kept: Array, score: Array) -> Array:
        return straight_through(kept.astype(score.dtype), score)

    through = within(map_selected(learned, mask, scores), state.fixed.mask)
    return apply_mask(through, state.trainable["weights"])


def _network(settings: Settings, state: TrainState) -> Network:
    density = _density(settings, state) if callable(settings.density) else settings.density
    mask = _largest(settings, state, density)
    return Network(apply_mask(mask, state.trainable["weights"]), mask, state.model)


def _check_whole(name: str, density: Any) -> None:
    """Raise unless the density is 1, up to rounding."""
    check_one_number(name, density)
    if not is_traced(density) and not abs(density - 1) < 1e-6:
        raise ArgumentError(f"{name}: expected 1, since all scores are equal there; got {shown(density)}")

"""Top-KAST: the largest weights make the network, and a larger set of weights trains."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, check_one_finite, check_one_strength, is_traced, shown
from jaxarch._internal.precision import widened
from jaxarch._internal.trees import (
    PyTree,
    Where,
    map_selected,
    matrices,
    merge,
    named_leaves,
    select_floating,
)
from jaxarch.masks import Scope, apply_mask
from jaxarch.masks._keeping import largest_scores
from jaxarch.optim._masked_leaves import map_masked, step_under
from jaxarch.run._descent import DescentChanges, accepted, own_descent
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.search._changing import REMEDY, check_changes, spacing_before
from jaxarch.search._scored import total
from jaxarch.search._straight_through import straight_through
from jaxarch.transforms._densities import layers_lost

NAME = "Top-KAST"
SPANS = 320
"""Number of spans into which the choices divide a training by default: 100 of 32,000 steps.

Choices every 100 steps do no harm in the paper. RigL's authors train for 32,000 steps on ImageNet.
"""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The densities of both sets, the penalty, and when and where the sets are chosen."""

    density: ArrayLike
    exploration: ArrayLike
    strength: ArrayLike
    until: float
    every: int | None
    scope: Scope
    where: Where


class Masks(NamedTuple):
    """Masks of the weights that the network computes with, and of those that train."""

    forward: PyTree
    backward: PyTree


class State(NamedTuple):
    """State of the optimizer: the masks of the next step, and the state of the problem's optimizer."""

    masks: Masks
    inner: Any


@method("S. Jayakumar et al., 2020")
def top_kast(
    density: ArrayLike = 0.1,
    *,
    exploration: ArrayLike = 0.1,
    strength: ArrayLike = 1e-3,
    until: float = 1.0,
    every: int | None = None,
    scope: Scope = "layer",
    where: Where = matrices,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Compute with the weights of largest size, and train a larger set of weights along their gradients.

    Of each leaf, A is the set of the `round(d n)` largest `|w|`, and B the set of the `round((d + m) n)`
    largest ones. The network computes with `a = w` in A and `a = 0` elsewhere. A step moves the weights in B
    along `dL/da`, at 0 for those outside of A. It leaves all other weights as they are, whatever the
    optimizer's moments. So a weight outside of A keeps its value, and joins A once it is among the largest.
    The loss has the penalty

        lambda / 2 (sum_A w^2 + 1 / d sum_{B \ A} w^2).

    It lets other weights overtake those in B. The factor 1/d is the bar for weights that are not in use. S.
    Jayakumar, R. Pascanu, J. Rae, S. Osindero and E. Elsen, Top-KAST: Top-K always sparse training, 2020.

    Departures from the published method: the paper writes `|w|` in the penalty and speaks of L2. Here it is
    the square, as in weight decay. The sets are chosen every few steps; in the paper every step, or every
    100 without loss. The mask of the last step is kept, with no choice after it. The optimizer may be any:
    moments decay while a weight is outside of B, and act again when it is back. Gradients are computed for
    all weights, so a step costs as much as one of the dense network.

    Args:
      density: d, the share of connections in the network, in (0, 1]. May be traced: a sweep is one program.
      exploration: m, the share of connections that train beside them, in [0, 1]. B has at most all
        connections. May be traced; `d + m` is a float32.
      strength: lambda, at least 0. The default is for a thousand steps of Adam: on held-out rows of digits, a
        perceptron with 2% of its connections has .941 with it, and .906 with 1e-4. May be traced.
      until: the share of the steps after which exploration stops, in [0, 1]: from the next choice on, B is A.
      every: steps from one choice of the sets to the next. By default a 320th of the training's steps.
      scope: where the largest weights are looked for, as in `masks.keep`: by default in each leaf.
      where: the leaves that are masked, by path. The others are trained as well, without a penalty.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search. Its network is trained: it has the weights of the last step, 0 where the mask is 0. The mask
      is A at the last step.

    Raises:
      ArgumentError: a density outside (0, 1], shares out of range, a strength that is negative or not finite,
        an unknown word; an `every` so large that the mask would never change.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=10)
      >>> network = jaxarch.search.top_kast(0.25)(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), network.info["loss"].shape)
      0.25 (10,)
    """
    check_changes(density, every, scope)
    _check_exploration(exploration, until)
    check_one_strength("strength", strength)
    return Training(
        NAME,
        _init,
        _params,
        _network,
        Settings(density, exploration, strength, until, every, scope, where),
        own_descent(descent),
        penalty=_penalty,
        after_step=_masks_held,
        wrap_optimizer=_wrap_optimizer,
        remedy=REMEDY,
        remarks=layers_lost,
    )


def _check_exploration(exploration: Any, until: Any) -> None:
    """Raise unless the share to explore and its duration are in [0, 1]; a traced share passes."""
    check_one_finite("exploration", exploration)
    if not is_traced(exploration) and not 0 <= exploration <= 1:
        raise ArgumentError(f"exploration: expected a number in [0, 1], got {shown(exploration)}")
    if isinstance(until, bool) or not isinstance(until, (int, float)) or not 0 <= until <= 1:
        raise ArgumentError(f"until: expected a fraction of the steps, in [0, 1], got {shown(until)}")


def _chosen(settings: Settings, weights: PyTree, explores: ArrayLike) -> Masks:
    """Return the sets of the largest of the selected weights; B is A unless the search explores."""
    # Of one dtype, leaves of several ones can be compared under strict promotion.
    sizes = map_selected(lambda leaf: jnp.abs(leaf).astype(jnp.float32), weights)
    forward = largest_scores(sizes, settings.density, settings.scope)
    share = jnp.asarray(settings.exploration, jnp.float32)
    wider = jnp.minimum(jnp.asarray(settings.density, jnp.float32) + share, 1)
    larger = largest_scores(sizes, wider, settings.scope)
    # Without exploration, float32 could round `d n` to another count. With it, the largest remainders of a
    # larger number may leave out a leaf's last connection: B has it all the same.
    explores = explores & (share > 0)
    return Masks(forward, jax.tree.map(lambda a, b: a | (b & explores), forward, larger))


def _last(settings: Settings, steps: int) -> int:
    """Return the step from which nothing is explored."""
    return round(settings.until * steps)


def _init(settings: Settings, key: Array, problem: Problem, network: None) -> TrainState:
    params, model = problem.start(key)
    explores = _last(settings, problem.descent.steps) > 0
    masks = _chosen(settings, select_floating(params, settings.where), explores)
    return TrainState(params, None, model, memory=masks)


def _params(settings: Settings, state: TrainState) -> PyTree:
    masks, weights = state.memory, state.trainable

    def used(forward: Array, backward: Array, leaf: Array) -> Array:
        return straight_through(jnp.where(forward, leaf, 0), jnp.where(backward, leaf, 0))

    return merge(map_selected(used, masks.forward, masks.backward, weights), weights)


def _penalty(settings: Settings, state: TrainState) -> Array:
    def squares(forward: Array, backward: Array, leaf: Array) -> Array:
        leaf = widened(leaf)
        bar = (1 / jnp.asarray(settings.density, jnp.float32)).astype(leaf.dtype)
        return jnp.sum(jnp.square(leaf) * jnp.where(forward, 1, jnp.where(backward, bar, 0)))

    of_leaves = total(map_selected(squares, state.memory.forward, state.memory.backward, state.trainable))
    return jnp.asarray(settings.strength).astype(of_leaves.dtype) / 2 * of_leaves


def _masks_held(settings: Settings, state: TrainState) -> Masks:
    masks: Masks = state.optimizer.masks
    return masks


def _network(settings: Settings, state: TrainState) -> Network:
    mask = state.memory.forward
    return Network(apply_mask(mask, state.trainable), mask, state.model)


def _wrap_optimizer(
    settings: Settings, key: Array, problem: Problem, state: TrainState
) -> optax.GradientTransformation:
    steps = problem.descent.steps
    every, last = spacing_before(steps, NAME, settings.every, steps, SPANS), _last(settings, steps)
    inner = optax.with_extra_args_support(problem.descent.optimizer)

    def init(params: PyTree) -> State:
        return State(state.memory, inner.init(params))

    def update(
        gradients: PyTree, held: State, params: PyTree = None, *, step: Any = None, **extra: Any
    ) -> tuple[PyTree, State]:
        masks = held.masks
        trains = named_leaves(masks.backward)
        told = accepted(inner, extra, step)
        updates, after = step_under(trains, inner, gradients, held.inner, params, told)
        # Moments and weight decay would move weights that have no gradient.
        updates = map_masked(lambda leaf, moves: jnp.where(moves, leaf, 0), updates, trains)
        # A step that all runs share leaves the choice a branch under `vmap`.
        following = jnp.asarray(state.step if step is None else step, jnp.int32) + 1
        moved = optax.apply_updates(params, updates)

        def chosen() -> Masks:
            weights = map_selected(lambda mask, leaf: leaf, masks.forward, moved)
            return _chosen(settings, weights, following < last)

        now = (following % every == 0) & (following < steps)
        return updates, State(jax.lax.cond(now, chosen, lambda: masks), after)

    return optax.GradientTransformationExtraArgs(init, update)

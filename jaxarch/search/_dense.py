"""Real-valued networks: all connections, weights learned by gradient descent."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import check_count, check_flag, check_one_strength
from jaxarch._internal.trees import PyTree, Where, matrices, select_floating
from jaxarch.masks import full_mask
from jaxarch.run._descent import DescentChanges, check_rewind, own_descent
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import Start
from jaxarch.run._training import Training, TrainState
from jaxarch.transforms._weights import Held, fresh, squares, trained, weights_of


@dataclasses.dataclass(frozen=True)
class Settings:
    """The constraint to squares, the initial size of weights, the masked leaves, the step to rewind to."""

    nonnegative: bool
    std: ArrayLike
    where: Where
    rewind_to: int


class Early(NamedTuple):
    """Weights of an early step, and the model's state then, for rewinding."""

    weights: PyTree
    model: PyTree


@method("[D] section 5")
def dense(
    *,
    nonnegative: bool = True,
    std: ArrayLike = 0.2,
    where: Where = matrices,
    rewind_to: int = 0,
    **descent: Unpack[DescentChanges],
) -> Training:
    """Train the weights of the whole network, `argmin F(w)` (the strategy *real* of [D] section 5).

    Args:
      nonnegative: whether the selected leaves are `w = u^2` ([D] footnote 11: to compare with {0, 1} fairly).
        [D] finds that this does not 'compromise significantly' the performance; here it costs most of what
        can be lost: on digits {1,2,3} v {4,5,6} the median test AUC is .947 with it, .997 without (10 runs).
      std: with `nonnegative`, the start is `u ~ N(0, std)`, std the standard deviation. At 1, as [D] has it
        for random networks, the gradient is exactly 0 in float32. Without `nonnegative`, the start is the
        problem's own.
      where: the leaves that are constrained and counted as connections, by path.
      rewind_to: the step whose weights `retrain("rewind")` goes back to: 0 for the initial weights.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search; its mask keeps every selected connection. Its `Start` has the initial weights, or those after
      `rewind_to` steps, and the model's state then: rewinding goes back to them. If the training stops before
      that step, they are its final weights.

    Raises:
      ArgumentError: a `rewind_to` that is not a step of the training, or its last.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.dense()(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), network.params["W2_1"].min() >= 0, network.info["loss"].shape)
      1.0 True (2,)
    """
    check_flag("nonnegative", nonnegative)
    check_one_strength("std", std)
    check_count("rewind_to", rewind_to, least=0)
    if nonnegative:
        name, remedy = "dense", "lower `std`: large weights saturate the network"
    else:
        name = "dense unconstrained"
        remedy = "start from smaller or less symmetric weights in the problem's init"
    return Training(
        name,
        _init,
        weights_of,
        _network,
        Settings(nonnegative, std, where, int(rewind_to)),
        own_descent(descent),
        after_step=_after_step if rewind_to else None,
        remedy=remedy,
        removes=(),
    )


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    check_rewind(settings.rewind_to, problem.descent.steps)
    shapes, _ = jax.eval_shape(problem.init, key)
    mask = full_mask(select_floating(shapes, settings.where))
    params, model = fresh(key, problem.start, mask, settings.nonnegative, settings.std)
    start = squares(mask, params) if settings.nonnegative else params
    if settings.rewind_to:
        return TrainState(params, Held(mask), model, memory=Early(start, model))
    return TrainState(params, Held(mask, start, model), model)


def _after_step(settings: Settings, state: TrainState) -> Early:
    now = Early(weights_of(settings, state), state.model)
    is_early = state.step <= settings.rewind_to
    return jax.tree.map(lambda new, old: jnp.where(is_early, new, old), now, state.memory)


def _network(settings: Settings, state: TrainState) -> Network:
    network = trained(settings, state)
    if not settings.rewind_to:
        return network
    step = jnp.asarray(settings.rewind_to, jnp.int32)
    return network.with_records(Start(state.memory.weights, state.memory.model, step))

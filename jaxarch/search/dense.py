"""Real-valued networks: all connections, weights learned by gradient descent."""

from __future__ import annotations

import dataclasses
from typing import Unpack

import jax
from jax import Array
from jax.typing import ArrayLike

from jaxarch.descent import DescentChanges, own_descent
from jaxarch.errors import check_flag, check_one_strength
from jaxarch.finish.weights import Held, fresh, squares, trained, weights_of
from jaxarch.masks import full_mask
from jaxarch.network import Network
from jaxarch.problem import Problem
from jaxarch.running.methods import method
from jaxarch.running.training import Training, TrainState
from jaxarch.trees import Where, matrices, select


@dataclasses.dataclass(frozen=True)
class Settings:
    """Which weights are squares, and of what size they start."""

    nonnegative: bool
    std: ArrayLike
    where: Where


@method("[D] section 5")
def dense(
    *,
    nonnegative: bool = True,
    std: ArrayLike = 0.2,
    where: Where = matrices,
    **descent: Unpack[DescentChanges],
) -> Training:
    """Train the weights of the whole network, `argmin F(w)` (the strategy *real* of [D] section 5).

    Args:
      nonnegative: whether the selected leaves are `w = u^2` ([D] footnote 11: to compare with {0, 1} fairly).
        [D] finds that this does not 'compromise significantly' the performance; here it costs most of what
        can be lost: on digits {1,2,3} v {4,5,6} the median test AUC is .947 with it, .997 without (10 runs).
      std: with `nonnegative`, the start is `u ~ N(0, std)`, std the standard deviation. At 1, as [D] has it
        for random networks, the gradient is exactly 0 in float32. Without, it is the problem's own.
      where: the leaves that are constrained and counted as connections, by path.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling` in place of the problem's.

    Returns:
      A search; its mask keeps every selected connection. Its `start` is the weights that training
      began from: rewinding (`retrain("rewind")`) goes back to them.

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
    if nonnegative:
        name, remedy = "dense", "lower `std`: large weights saturate the network"
    else:
        name = "dense unconstrained"
        remedy = "start from smaller or less symmetric weights in the problem's init"
    settings = Settings(nonnegative, std, where)
    return Training(
        name, _init, weights_of, trained, settings, own_descent(descent), remedy=remedy, removes=()
    )


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    shapes, _ = jax.eval_shape(problem.init, key)
    mask = full_mask(select(shapes, settings.where))
    params, model = fresh(key, problem, mask, settings.nonnegative, settings.std)
    start = squares(mask, params) if settings.nonnegative else params
    return TrainState(params, Held(mask, start), model)

"""Real-valued networks: all connections, weights learned by gradient descent."""

from __future__ import annotations

import jax
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch.finish.weights import Held, fresh, squares, weight_training
from jaxarch.masks import full_mask
from jaxarch.problem import Network, Problem
from jaxarch.running.training import Training, TrainState
from jaxarch.trees import Where, matrices, select


def dense(
    *,
    nonnegative: bool = True,
    std: ArrayLike = 0.2,
    where: Where = matrices,
    optimizer: optax.GradientTransformation | None = None,
) -> Training:
    """Train the weights of the whole network, `argmin F(w)` (the strategy *real* of [D] section 5).

    Args:
      nonnegative: whether the selected leaves are `w = u^2` ([D] footnote 11: to compare with {0, 1} fairly).
        [D] finds that this does not 'compromise significantly' the performance; here it costs most of what
        can be lost: on digits {1,2,3} v {4,5,6} the median test AUC is .947 with it, .997 without (10 runs).
      std: with `nonnegative`, the start is `u ~ N(0, std)`, std the standard deviation. At 1, as [D] has it
        for random networks, the gradient is exactly 0 in float32. Without, it is the problem's own.
      where: the leaves that are constrained and counted as connections, by path.
      optimizer: any optax transformation; by default the problem's.

    Returns:
      A search; its mask keeps every selected connection. Its `info` has `start`, the weights that training
      began from: rewinding (`retrain("rewind")`) goes back to them.
    """

    def init(key: Array, problem: Problem, network: Network | None) -> TrainState:
        shapes, _ = jax.eval_shape(problem.init, key)
        mask = full_mask(select(shapes, where))
        params, state = fresh(key, problem, mask, nonnegative, std)
        start = squares(mask, params) if nonnegative else params
        return TrainState(params, Held(mask, start), state)

    if nonnegative:
        return weight_training(
            "real", init, True, optimizer, "lower `std`: large weights saturate the network"
        )
    remedy = "start from smaller or less symmetric weights in the problem's init"
    return weight_training("real unconstrained", init, False, optimizer, remedy)

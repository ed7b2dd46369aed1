"""Mirror descent as an optax optimizer of scores."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, check_positive, check_strength
from jaxarch._internal.trees import PyTree, check_floating
from jaxarch.theory.mirror._dual_variables import mirror_update


def mirror_descent(
    learning_rate: float | Array | optax.Schedule, soft: ArrayLike
) -> optax.GradientTransformation:
    r"""Take the exact mirror step as an optimizer of scores: `theta(w+) = theta(w) - eta grad_v f`.

        search = jaxarch.search.two_temperature(
            50.0, 5.0, optimizer=jaxarch.optim.mirror_descent(0.3, soft=5.0)
        )

    Args:
      learning_rate: eta, a number (traced or not) or an optax schedule.
      soft: the search's inverse temperature of the gradient. The search must keep its `factor`; without it
        this is the mirror step with learning rate `eta / soft`.

    Returns:
      An optax transformation, which can be used in `optax.chain`; its `update` needs the scores as `params`.
      Leaves that are `None` stay `None`.

    Raises:
      ArgumentError: a `soft` that is not positive; an update without the scores.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> scores = jnp.array([-0.4, 0.0, 0.4])
      >>> gradient = jax.grad(lambda w: jaxarch.masks.two_temperature(w, 50.0, 5.0).sum())(scores)
      >>> tx = jaxarch.optim.mirror_descent(0.1, soft=5.0)
      >>> updates, _ = tx.update(gradient, tx.init(scores), scores)
      >>> theta = [jaxarch.theory.mirror.mirror_map(w, 5.0) for w in (scores, scores + updates)]
      >>> [f"{change:.3f}" for change in theta[1] - theta[0]]  # f is the sum of the mask: grad_v f = 1
      ['-0.100', '-0.100', '-0.100']
    """
    check_positive("soft", soft)
    if not callable(learning_rate):
        check_strength("learning_rate", learning_rate)

    def init(scores: PyTree) -> optax.ScaleByScheduleState:
        check_floating("scores", scores)
        return optax.ScaleByScheduleState(count=jnp.zeros((), jnp.int32))

    def update(
        gradient: PyTree, state: optax.ScaleByScheduleState, scores: PyTree | None = None
    ) -> tuple[PyTree, optax.ScaleByScheduleState]:
        if scores is None:
            raise ArgumentError("params: mirror descent needs the scores: update(gradient, state, scores)")
        rate = learning_rate(state.count) if callable(learning_rate) else learning_rate

        def moved(g: Array, w: Array) -> Array:
            return mirror_update(w, g, soft, rate).astype(g.dtype)

        count = optax.safe_increment(state.count)
        return jax.tree.map(moved, gradient, scores), optax.ScaleByScheduleState(count=count)

    return optax.GradientTransformation(init, update)

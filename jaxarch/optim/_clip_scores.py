"""Score clipping, so that connections can come back."""

from __future__ import annotations

from typing import Any

import jax
import optax
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, check_positive
from jaxarch._internal.trees import PyTree
from jaxarch.masks import check_clip
from jaxarch.masks import clip_scores as clipped


def clip_scores(clip: ArrayLike, hard: ArrayLike) -> optax.GradientTransformationExtraArgs:
    r"""Keep the mask `sigma(hard w)` of scores w in [eps, 1 - eps], whatever update comes before.

    Put it last in a chain of transformations: after the step `|hard w| <= log((1 - eps)/eps)`, up to
    rounding.

        tx = optax.chain(optax.sgd(0.1), jaxarch.optim.clip_scores(0.01, hard=50.0))

    Its use is explained in docs/theory.md, `two-temperature.clipped-descent`. Begin with scores inside the
    limit, from `masks.clip_scores`. For a `Problem`, use `search.two_temperature(clip=)`. Momentum keeps
    building up while a score stays at its limit.

    Args:
      clip: eps, in (0, 1/2). May be traced.
      hard: inverse temperature of the value, positive. May be traced.

    Returns:
      An optax transformation; its `update` needs the scores as `params`. Leaves that are `None` stay `None`.

    Raises:
      ArgumentError: a clip outside (0, 1/2), a temperature that is not positive; an update without the
        scores.

    Example:
      >>> import jax.numpy as jnp, jaxarch, optax
      >>> tx = optax.chain(optax.sgd(1.0), jaxarch.optim.clip_scores(0.25, hard=1.0))  # |w| <= log 3
      >>> scores = jnp.array([0.5, -0.5])
      >>> updates, _ = tx.update(jnp.array([3.0, -0.25]), tx.init(scores), scores)
      >>> print(optax.apply_updates(scores, updates).round(2))
      [-1.1  -0.25]
    """
    check_clip(clip)
    check_positive("hard", hard)

    def update(
        updates: PyTree, state: optax.EmptyState, scores: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, optax.EmptyState]:
        if scores is None:
            raise ArgumentError("params: clip_scores needs the scores: tx.update(gradients, state, scores)")
        after = clipped(optax.apply_updates(scores, updates), clip, hard)
        return jax.tree.map(lambda u, new, old: (new - old).astype(u.dtype), updates, after, scores), state

    return optax.GradientTransformationExtraArgs(lambda scores: optax.EmptyState(), update)

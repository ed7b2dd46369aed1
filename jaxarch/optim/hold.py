"""Masks that no optimiser can undo."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jax import Array

from jaxarch.errors import ArgumentError, is_traced
from jaxarch.masks.sharding import beside
from jaxarch.optim.masked_leaves import booleans, check_masked, map_masked, of_parameters
from jaxarch.trees import PyTree, named_leaves


class HoldState(NamedTuple):
    """The mask of the leaves that are held, by path: it is saved, and split over devices, with the optimiser.

    Attributes:
      mask: booleans in the shapes of the parameters.
    """

    mask: dict[str, Array]


def hold(mask: PyTree) -> optax.GradientTransformationExtraArgs:
    r"""Keep pruned weights at 0, whatever comes before it: momentum, weight decay, clipping, schedules.

    The last in a chain of transformations: where the mask is False, the update is `-theta` in place of what
    came before, so that `theta + update` is 0.

        tx = optax.chain(optax.adamw(1e-3), jaxarch.optim.hold(mask))

    **It begins from masked parameters**, `masks.apply_mask(mask, params)`: in `optax.MultiSteps(tx, k)` there
    is no update before step k, and `lookahead` and `schedule_free` copy the parameters that they are given.
    They go around the chain that ends with `hold`, as does `apply_if_finite`; `sam`, which takes its inner
    optimiser's state apart, comes before it:

        tx = optax.contrib.schedule_free(optax.chain(optax.adamw(1e-3), hold(mask)), 1e-3)
        tx = optax.chain(optax.contrib.sam(optax.adamw(1e-3), adversary), hold(mask))

    A leaf is recognised by its path, so that one mask serves in `nnx.Optimizer`, whose states have no
    `Param`, in `optax.multi_transform`, which shows each part of it a part of the tree, and for both copies
    of `optax.lookahead`. What `init` cannot see, `check_held` does.

    Args:
      mask: booleans, a leaf in the shape of each parameter that is masked and `None` for the others, as of
        `masks.keep` or `load_mask`; or a dict of them by path.

    Returns:
      An optax transformation; its `update` needs the parameters.

    Raises:
      ArgumentError: a mask that is not boolean. In `init`: a mask of other paths or shapes than the
        parameters; parameters that are not masked. In `update`: no parameters; a pruned weight that is not 0,
        which something behind `hold` has moved. Values are looked at where they are concrete.

    Example:
      >>> import jax.numpy as jnp, jaxarch, optax
      >>> mask = {"kernel": jnp.array([True, False]), "bias": None}
      >>> params = jaxarch.masks.apply_mask(mask, {"kernel": jnp.array([1.0, 2.0]), "bias": jnp.ones(1)})
      >>> tx = optax.chain(optax.sgd(0.1, momentum=0.9), jaxarch.optim.hold(mask))
      >>> state = tx.init(params)
      >>> gradient = {"kernel": jnp.ones(2), "bias": jnp.ones(1)}
      >>> updates, state = tx.update(gradient, state, params)
      >>> params = optax.apply_updates(params, updates)
      >>> print(params["kernel"])
      [0.9 0. ]
    """
    masked = booleans(mask)

    def init(params: PyTree) -> HoldState:
        held, weights = of_parameters(masked, params), named_leaves(params)
        check_masked(held, weights, "begin from masks.apply_mask(mask, params)")
        return HoldState({path: beside(weights[path], leaf) for path, leaf in held.items()})

    def update(
        updates: PyTree, state: HoldState, params: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, HoldState]:
        if params is None:
            raise ArgumentError("params: hold needs the parameters: tx.update(gradients, state, params)")
        weights = named_leaves(params)
        check_masked(state.mask, weights, "what comes after `hold` moves them: place it last")

        def held(update: Array, kept: Array, weight: Array) -> Array:
            return jnp.where(kept, update, -weight.astype(update.dtype))

        return map_masked(held, updates, state.mask, weights), state

    return optax.GradientTransformationExtraArgs(init, update)


def check_held(mask: PyTree, params: PyTree) -> None:
    """Raise unless every pruned weight is exactly 0: what `hold` promises, and cannot see from where it is.

    For instance after a transformation that comes behind `hold` in the chain; of a part of the parameters
    that another optimiser moves; of the parameters that `optax.contrib.schedule_free_eval_params` gives, or
    the slow ones of `optax.lookahead`. It waits for the parameters, so call it now and then, outside of jit.

    Args:
      mask: as of `hold`. It must fit all parameters.
      params: the model's parameters, arrays or an NNX state, on any devices.

    Raises:
      ArgumentError: a pruned weight that is not 0 (or NaN), naming leaf and number; a mask that does not fit;
        parameters that are traced.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> mask = {"kernel": jnp.array([True, False])}
      >>> jaxarch.optim.check_held(mask, {"kernel": jnp.array([1.5, 0.0])})
      >>> jaxarch.optim.check_held(mask, {"kernel": jnp.array([1.5, 0.1])})  # doctest: +ELLIPSIS
      Traceback (most recent call last):
          ...
      jaxarch.errors.ArgumentError: params: 1 pruned weights of 'kernel' are not 0; ...
    """
    masked = booleans(mask)
    if is_traced(params):
        raise ArgumentError("params: they are traced; call check_held outside of jit, on the parameters")
    held = of_parameters(masked, params, everywhere=True)
    check_masked(
        held,
        named_leaves(params),
        "something moves them after `hold`, or beside it; or they were not masked at the start",
    )

"""Fixed masks that no optimizer can undo."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from jaxarch._internal.errors import ArgumentError, is_traced
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.optim._masked_leaves import (
    begun,
    booleans,
    check_mask_as_begun,
    check_masked,
    check_optimizer,
    cleared,
    map_masked,
    of_parameters,
    own_mask,
    step_under,
)
from jaxarch.optim._same_update import same_update


class HoldState(NamedTuple):
    """The mask that is held, and the state of the optimizer inside.

    Attributes:
      mask: booleans in the shapes of the masked parameters, by path. They are saved, and split over devices,
        with the optimizer.
      inner: the state of the optimizer inside.
    """

    mask: dict[str, Array]
    inner: Any


def hold(
    mask: PyTree, optimizer: optax.GradientTransformation | None = None
) -> optax.GradientTransformationExtraArgs:
    r"""Train under a mask: any optimizer keeps pruned weights at 0, and sees none of their gradients.

    Take the mask m, gradients g, weights theta, and the updates u of the optimizer given `m o g`. The result
    is u where m is True and `-theta` elsewhere, so that `theta + update` is 0 there.

        tx = jaxarch.optim.hold(mask, optax.adamw(1e-3))

    Wrap the whole optimizer. Steps that combine entries, such as global-norm clipping, Muon or LAMB, then see
    the gradients of a masked forward pass, as inside `sparse`:

        chain = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
        tx = jaxarch.optim.hold(mask, chain)

    **Begin from masked parameters**, `masks.apply_mask(mask, params)`: `optax.MultiSteps` makes no update
    before its last small step, and `lookahead` and `schedule_free` copy the parameters that they get. These
    three go around `hold`, like `apply_if_finite`. `sam` computes with its optimizer's state, and goes
    inside:

        tx = optax.contrib.schedule_free(jaxarch.optim.hold(mask, optax.adamw(1e-3)), 1e-3)
        tx = jaxarch.optim.hold(mask, optax.contrib.sam(optax.adamw(1e-3), adversary))

    Leaves are recognized by path, so one mask serves in several places. In `nnx.Optimizer`, states have no
    `Param`; `optax.multi_transform` shows each optimizer a part of the tree; `optax.lookahead` keeps two
    copies. `check_held` looks at all parameters.

    `update` reads the mask from the state alone. Two `hold` transformations around optax optimizers with the
    same numbers therefore compare equal, even with different masks: for `jax.jit` and `nnx.jit`, all rounds
    of a lottery ticket are one program.

    Args:
      mask: booleans, a leaf in the shape of each masked parameter and `None` for the others, as returned by
        `masks.keep` or `load_mask`; or a dict of them by path. They are copied into the state, so that it can
        be donated.
      optimizer: any optax transformation of the weights. Extra arguments of `update` reach it: `value`
        unchanged, `grad` masked, and `value_fn`, `obj_fn` and `grad_fn` as functions of masked weights.

    Returns:
      An optax transformation; its `update` needs the parameters.

    Raises:
      ArgumentError: a mask that is not boolean; no optimizer. In `init`: a mask of other paths or shapes than
        the parameters; parameters that are not masked. In `update`: no parameters; gradients that lack a
        masked leaf; a pruned weight that is not 0, because something around `hold` moved it; a state that
        something around `hold` computed with. Values are checked only where they are concrete.

    Example:
      >>> import jax.numpy as jnp, jaxarch, optax
      >>> mask = {"kernel": jnp.array([True, False]), "bias": None}
      >>> params = jaxarch.masks.apply_mask(mask, {"kernel": jnp.array([1.0, 2.0]), "bias": jnp.ones(1)})
      >>> tx = jaxarch.optim.hold(mask, optax.sgd(0.1, momentum=0.9))
      >>> state = tx.init(params)
      >>> gradient = {"kernel": jnp.ones(2), "bias": jnp.ones(1)}
      >>> updates, state = tx.update(gradient, state, params)
      >>> params = optax.apply_updates(params, updates)
      >>> print(params["kernel"])
      [0.9 0. ]
    """
    if optimizer is None:
        raise ArgumentError(
            "optimizer: hold wraps an optimizer; write hold(mask, optax.adamw(1e-3)) instead of "
            "optax.chain(optax.adamw(1e-3), hold(mask))"
        )
    inner = check_optimizer("optimizer", optimizer, "hold(mask, optax.adamw(1e-3))")
    masked = booleans(mask)

    def init(params: PyTree) -> HoldState:
        held, weights = of_parameters(masked, params), named_leaves(params)
        check_masked(held, weights, "start from masks.apply_mask(mask, params)")
        return HoldState(own_mask(held, weights), begun(inner, params))

    def update(
        gradients: PyTree, state: HoldState, params: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, HoldState]:
        if params is None:
            raise ArgumentError("params: hold needs the parameters: tx.update(gradients, state, params)")
        check_mask_as_begun(state.mask)
        weights = named_leaves(params)
        check_masked(state.mask, weights, "a transformation around `hold` moves them; put it inside `hold`")
        updates, after = step_under(state.mask, inner, gradients, state.inner, params, extra)
        after = _with_held_copies(after, state.mask)
        return cleared(updates, state.mask, weights, begun_at_0=True), HoldState(state.mask, after)

    return same_update(init, update, optimizer)


def _with_held_copies(state: PyTree, mask: dict[str, Array]) -> PyTree:
    """Mask the weights that schedule-free optimizers keep in their state and evaluate."""

    def is_one(node: Any) -> bool:
        return isinstance(node, optax.contrib.ScheduleFreeState)

    def held(node: Any) -> Any:
        if not is_one(node) or not mask.keys() <= named_leaves(node.z).keys():
            return node
        return node._replace(z=map_masked(lambda z, keep: jnp.where(keep, z, 0), node.z, mask))

    return jax.tree.map(held, state, is_leaf=is_one)


def check_held(mask: PyTree, params: PyTree) -> None:
    """Raise unless every pruned weight is exactly 0: `hold` promises this, but sees only its own part.

    Use it after a transformation that follows `hold` in a chain, or if another optimizer moves a part of the
    parameters. It also checks the parameters from `optax.contrib.schedule_free_eval_params`, and the slow
    ones of `optax.lookahead`. It waits for the parameters, so call it now and then, outside of jit.

    Args:
      mask: see `hold`. It must fit all parameters.
      params: the model's parameters, arrays or an NNX state, on any devices.

    Raises:
      ArgumentError: a pruned weight that is not 0 (or is NaN); the message names the leaf and the number of
        weights. A mask that does not fit; parameters that are traced.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> mask = {"kernel": jnp.array([True, False])}
      >>> jaxarch.optim.check_held(mask, {"kernel": jnp.array([1.5, 0.0])})
      >>> jaxarch.optim.check_held(mask, {"kernel": jnp.array([1.5, 0.1])})  # doctest: +ELLIPSIS
      Traceback (most recent call last):
          ...
      jaxarch.ArgumentError: params: 1 pruned weights of 'kernel' are not 0; ...
    """
    masked = booleans(mask)
    if is_traced(params):
        raise ArgumentError("params: they are traced; call check_held outside of jit")
    held = of_parameters(masked, params, everywhere=True)
    check_masked(
        held,
        named_leaves(params),
        "a transformation after or beside `hold` moves them, or they were not masked at the start",
    )

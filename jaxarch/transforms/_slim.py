"""Removal of batch norm channels that a network's validation loss can spare (Liu et al. 2017)."""

from __future__ import annotations

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import check_choice, check_count, check_one_strength
from jaxarch._internal.normalisation import scales_and_shifts, shift_of
from jaxarch._internal.trees import PyTree, Where, map_selected, named_leaves, placed, select
from jaxarch.masks import apply_mask, full_mask
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import FunctionStage, Needs
from jaxarch.spectral._readout import joint_order
from jaxarch.transforms._densities import layers_lost
from jaxarch.transforms._removals import REMOVALS

NEEDS = Needs("required", ("params",), validation=True, before="search.network_slimming()")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Tolerance on the loss, which leaves are scales, removals to try, and rows at a time."""

    tolerance: ArrayLike
    where: Where
    removals: Literal["all", "bisection"]
    batch_size: int | None


@method("Z. Liu et al., 2017", parent="batch norm")
def slim(
    tolerance: ArrayLike = 0.05,
    *,
    where: Where = "*scale",
    removals: Literal["all", "bisection"] = "all",
    batch_size: int | None = None,
) -> FunctionStage:
    r"""Keep the channels that a network with batch norm needs, by its validation loss.

    Channels are removed in the joint order of `|gamma|` over all layers, smallest first, as Liu et al. 2017
    do by one threshold. Of all removals, 0 to H channels, the largest is taken whose validation loss is at
    most `loss_0 + tolerance |loss_0|`, as in `jaxarch.recruit`. A channel is removed by setting its scale and
    its shift to 0: if f(0) = 0 its output is then 0.

    Args:
      tolerance: relative increase of the loss, at least 0. May be traced.
      where: the leaves that are scales, by path. The shift is the leaf `bias` beside it.
      removals: `all`, H + 1 passes over the validation rows, or `bisection`, `1 + ceil(log2(H + 1))`.
      batch_size: validation rows at a time, to save memory; by default all. Losses are the same up to
        rounding.

    Returns:
      A transform. The mask covers scales and shifts, False where a channel is removed. `info` has `losses`,
      shape (H + 1,), and `removed`.

    Raises:
      ArgumentError: a concrete tolerance that is negative or not finite; an unknown word; leaves that are not
        scales; a batch size that is not a positive integer; a problem without `validation` rows.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> from flax import nnx
      >>> def model(rngs):
      ...     return nnx.Sequential(nnx.Linear(4, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs), nnx.relu)
      >>> x, rows = jnp.eye(4), jnp.arange(4)
      >>> problem = jaxarch.supervised(
      ...     model, (x, 0 * jnp.ones((4, 8))), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=3,
      ...     validation=rows,
      ... )
      >>> strategy = jaxarch.chain(jaxarch.search.network_slimming(1.0), jaxarch.slim())
      >>> network = strategy(jax.random.key(0), problem)
      >>> print(network.info["removed"])  # the target is 0
      8
    """
    check_one_strength("tolerance", tolerance)
    check_choice("removals", removals, tuple(REMOVALS))
    if batch_size is not None:
        check_count("batch_size", batch_size)
    settings = Settings(tolerance, where, removals, batch_size)
    return FunctionStage("slim", _slim, settings, NEEDS, removes=("connections",), remarks=layers_lost)


def _slim(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    leaves = scales_and_shifts(network.params, settings.where)
    scales = select(network.params, settings.where, "where")
    before = full_mask(leaves) if network.mask is None else network.mask
    left = map_selected(lambda scale: scale != 0, scales)
    places = joint_order(map_selected(jnp.abs, scales), left)

    def without(removed: Array) -> tuple[PyTree, PyTree]:
        kept = {path: place >= removed for path, place in named_leaves(places).items()}
        kept |= {shift_of(path): of for path, of in kept.items() if shift_of(path) in named_leaves(leaves)}
        mask = placed(
            {path: of & kept.get(path, True) for path, of in named_leaves(before).items()}, network.params
        )
        return mask, apply_mask(mask, network.params)

    def loss(removed: Array) -> Array:
        params = without(removed)[1]
        return problem.objective(params, network.state, problem.validation, settings.batch_size)

    channels = sum(leaf.size for leaf in jax.tree.leaves(places))
    losses, removed = REMOVALS[settings.removals](loss, channels, settings.tolerance)
    mask, params = without(removed)
    return network.replace(
        params=params, mask=mask, info=network.info | {"losses": losses, "removed": removed}
    )

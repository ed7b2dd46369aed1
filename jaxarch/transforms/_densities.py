"""Target densities of a search, and networks that hold several architectures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jax import Array

from jaxarch._internal.errors import ArgumentError, check_count, check_instance, is_traced
from jaxarch._internal.trees import PyTree
from jaxarch.masks import apply_mask, check_density
from jaxarch.masks._findings import emptied
from jaxarch.run._network import Network
from jaxarch.run._records import ByDensity
from jaxarch.run._training_info import TrainingInfo

Densities = float | Sequence[float]
"""One share of connections to keep, in (0, 1], or several."""


def check_densities(densities: Densities) -> tuple[float, ...]:
    """Return densities without repetition, the largest first.

    Raises:
      ArgumentError: a density outside (0, 1], or none.
    """
    if is_traced(densities):
        raise ArgumentError("densities: expected concrete numbers, since they name masks; got traced ones")
    given = densities if isinstance(densities, Sequence) else [densities]
    check_count("densities", len(given))
    for density in given:
        check_density("densities", density)
    return tuple(sorted({float(density) for density in given}, reverse=True))


def density_name(density: float) -> str:
    """Return the name of a density's mask in a `ByDensity`.

    Raises:
      ArgumentError: a density outside (0, 1].

    Example:
      >>> import jaxarch
      >>> jaxarch.transforms.density_name(0.05)
      '0.05'
    """
    if is_traced(density):
        raise ArgumentError("density: expected a concrete number, since it names a mask; got a traced one")
    check_density("density", density)
    return f"{float(density):.6g}"


def with_densities(
    masks: Mapping[float, PyTree],
    weights: PyTree,
    state: PyTree,
    info: Mapping[str, Any] | None = None,
    failed_at: Mapping[float, Array] | None = None,
) -> Network:
    """Return the architecture of the smallest density, with all of them recorded for `at_density`.

    Args:
      masks: masks by density, the largest first.
      weights: weights without any mask.
      state: the model's state.
      info: arrays for inspection.
      failed_at: by density, where the search failed for it, if that may differ.
    """
    named = {density_name(density): mask for density, mask in masks.items()}
    *_, (last, smallest) = named.items()
    failed = {density_name(density): step for density, step in failed_at.items()} if failed_at else None
    return Network(
        params=apply_mask(smallest, weights),
        mask=smallest,
        state=state,
        records=(ByDensity(named, weights, failed),),
        info=TrainingInfo(dict(info or {}), failed_at=failed[last] if failed else None),
    )


def layers_lost(network: Network, pooled: bool = True) -> list[str]:
    """Describe the layers without a connection, at the largest density at which there are any.

    Args:
      network: all runs, with a leading axis of runs.
      pooled: whether all leaves were compared with each other, so that a leaf kept whole is reported too.
    """
    several = network.get(ByDensity)
    masks = {"": network.mask} if several is None else several.masks
    for density in sorted(masks, key=lambda name: -float(name or 0)):
        if found := emptied(masks[density], pooled):
            at = f"at density {density}, " if density else ""
            return [at + line for line in found]
    return []


def layers_emptied(network: Network) -> list[str]:
    """Describe layers without a connection in a learned mask, where a whole layer is no surprise."""
    return layers_lost(network, pooled=False)


def of_density(network: Network, density: float) -> Network:
    """Return the architecture of one of the densities of a search, and where the search failed for it.

    Raises:
      ArgumentError: a network of one density; no mask of this density.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.snip((0.5, 0.25))(jax.random.key(0), problem)
      >>> print(jaxarch.density(jaxarch.transforms.of_density(network, 0.5).mask))
      0.5
    """
    check_instance("network", network, Network, "a jaxarch.Network")
    several = network.get(ByDensity)
    if several is None:
        raise ArgumentError(
            "network: expected one from a search with several densities, got one without `ByDensity`"
        )
    masks, failed = several.masks, several.failed_at
    name = density_name(density)
    if name not in masks:
        raise ArgumentError(f"density: no mask has density {density}; choose one of {', '.join(masks)}")
    return network.replace(
        params=apply_mask(masks[name], several.weights),
        mask=masks[name],
        info=network.info.replace(failed_at=failed[name]) if failed else network.info,
    )

"""Common parts of searches that prune the initial network in rounds, by saliencies of what is left."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import tree_flatten_with_path

from jaxarch._internal.errors import ArgumentError, check_count
from jaxarch._internal.trees import PyTree, Where, map_selected, path_name, select_floating
from jaxarch.masks._keeping import largest_within
from jaxarch.masks._units import NOfM, Units, UnitsLike
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import ByDensity
from jaxarch.search._units import check_counts, check_units, example_shapes, units_of
from jaxarch.structure._flow import follow, fresh
from jaxarch.structure._liveness import reached
from jaxarch.transforms._densities import Densities, check_densities, layers_lost, with_densities


@dataclasses.dataclass(frozen=True)
class Settings:
    """Densities, number of rounds, the masked leaves, and the units."""

    densities: tuple[float, ...]
    rounds: int
    where: Where
    units: tuple[str, ...] | Units


def checked(densities: Densities, rounds: int, where: Where, units: UnitsLike) -> Settings:
    """Return checked settings.

    Raises:
      ArgumentError: a density outside (0, 1], rounds that are not a positive integer, or any but 1 with N:M;
        units that are not understood.
    """
    check_count("rounds", rounds)
    together, targets = check_units(units), check_densities(densities)
    check_counts(together, targets)
    if isinstance(together, NOfM) and rounds != 1:
        raise ArgumentError(f"rounds: {together.n}:{together.m} is pruned in one round; give rounds=1")
    return Settings(targets, rounds, where, together)


def prune_in_rounds(
    settings: Settings,
    problem: Problem,
    params: PyTree,
    state: PyTree,
    saliencies: Callable[[PyTree, Array], PyTree],
) -> Network:
    """Return the architectures after all rounds, one for each density.

    Round k of n keeps the share `d^(k/n)` of all connections, those with the largest saliencies among the
    connections that are left.

    Args:
      settings: the settings of the search.
      problem: the problem of one run.
      params: the initial weights.
      state: the model's initial state.
      saliencies: `(mask, round) -> scores` of the network that a mask leaves; rounds count from 0.
    """
    selected = select_floating(params, settings.where)
    units = units_of(settings.units, problem, params, state, selected)
    whole = map_selected(lambda leaf: jnp.ones_like(leaf, bool), units.score(selected))

    def prune(mask: PyTree, round_: tuple[Array, Array]) -> tuple[PyTree, Array]:
        number, count = round_
        scores = saliencies(mask, number)
        return largest_within(units, scores, count, mask, params), _tell(scores)

    def all_rounds(counts: Array) -> tuple[PyTree, Array]:
        return jax.lax.scan(prune, units.spread(whole, params), (jnp.arange(len(counts)), counts))

    steps = range(1, settings.rounds + 1)
    counts = [[units.counts(whole, d ** (k / settings.rounds)) for k in steps] for d in settings.densities]
    if isinstance(units, NOfM):  # it counts for itself
        counts = [[0]]
    kept, told = jax.lax.map(all_rounds, jnp.asarray(counts))
    masks = {d: map_selected(lambda leaf, i=i: leaf[i], kept) for i, d in enumerate(settings.densities)}
    rounds = jnp.where(told.all(axis=1), -1, told.argmin(axis=1)).astype(jnp.int32)
    failed_at = dict(zip(settings.densities, rounds, strict=True))
    return with_densities(masks, params, state, failed_at=failed_at)


def remarks(network: Network) -> Iterable[str]:
    """Yield lines about rounds with uninformative saliencies, and about empty layers."""
    for density, rounds in (network[ByDensity].failed_at or {}).items():
        failed = np.asarray(rounds)
        if (failed >= 0).any():
            yield (
                f"at density {density}, saliencies are infinite, NaN or all 0 in {(failed >= 0).sum()} of "
                f"{len(failed)} runs, first in round {failed[failed >= 0].min()}; a deep network overflows "
                "float32 (enable jax_enable_x64), and a layer of zeros blocks the flow"
            )
            return
    yield from layers_lost(network)


def _tell(scores: PyTree) -> Array:
    """Return whether saliencies are informative: they are finite, and not all of them 0."""
    leaves = jax.tree.leaves(scores)
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()
    return finite & jnp.stack([(leaf > 0).any() for leaf in leaves]).any()


def check_inputs(name: str, how: str, problem: Problem, params: PyTree, state: PyTree) -> None:
    """Raise unless the outputs of a model depend on floating-point inputs alone.

    Args:
      name: the search's name.
      how: what the search does to inputs, for the message.
      problem: a problem with `predict`.
      params: the model's parameters.
      state: the model's state.

    Raises:
      ArgumentError: a model whose outputs read other inputs.
    """
    shapes = example_shapes(problem)
    read = _read(problem, params, state, shapes)
    for (path, leaf), is_read in zip(tree_flatten_with_path(shapes)[0], read, strict=True):
        if is_read and not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ArgumentError(
                f"problem: expected floating-point inputs, which {name} {how}, got {leaf.dtype} for "
                f"{path_name(path)!r} in a batch; convert them to floats, or score the part of the model "
                f"after its embedding with saliency.{name}"
            )


def _read(problem: Problem, params: PyTree, state: PyTree, shapes: PyTree) -> list[bool]:
    """Return on which arrays of a batch the model's outputs depend."""
    assert problem.predict is not None
    closed = jax.make_jaxpr(problem.predict)(params, state, shapes)
    inputs = closed.jaxpr.invars
    program = follow(closed, [fresh(var) for var in inputs])
    of_inputs = reached(program, [True] * len(closed.jaxpr.outvars), set())
    return of_inputs[len(inputs) - len(jax.tree.leaves(shapes)) :]

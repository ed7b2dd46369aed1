"""The best of several networks that a chain finds one after the other."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.trees import PyTree
from jaxarch.masks import density
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import A_NETWORK, FunctionStage, Needs

NONE = -1
"""Value of `failed_at` if no training has failed."""


class Kept(NamedTuple):
    """The record of `keep`, which `pick` removes.

    Attributes:
      network: `(params, mask, state)` of the best one so far.
      objective: its F, +inf instead of NaN.
      failed_at: the step at which its own training failed, or -1.
      chosen: index of the best one.
      seen: how many networks there were so far.
      objectives: F of each, shape (networks,); 0 for those to come.
      densities: densities of their masks.
    """

    network: tuple[PyTree, PyTree, PyTree]
    objective: Array
    failed_at: Array
    chosen: Array
    seen: Array
    objectives: Array
    densities: Array


@dataclasses.dataclass(frozen=True)
class Settings:
    """Number of networks, and the rule that selects one of them."""

    networks: int
    choose: Literal["best", "last"]
    validate: bool
    apart: bool
    rows_at_once: int | None


def keep(
    networks: int,
    *,
    choose: Literal["best", "last"] = "best",
    validate: bool = False,
    apart: bool = False,
    rows_at_once: int | None = None,
) -> FunctionStage:
    """Remember a network if it is the best (or the last) so far; of equally good ones the first stays.

    Args:
      networks: how many there will be.
      choose: `best` for the least F, NaN counting as +inf; `last` for the last one whatever its F.
      validate: whether F is computed on the validation rows, if the problem has some, or on the training
        rows.
      apart: whether the networks are independent, so that a failed training says nothing about the others.
      rows_at_once: rows that F is computed on at a time; by default all.
    """
    settings = Settings(networks, choose, validate, apart, rows_at_once)
    return FunctionStage("keep", _keep, settings, A_NETWORK)


def _keep(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    rows = problem.validation if settings.validate else None
    value = problem.objective(network.params, network.state, rows, settings.rows_at_once)
    mine = network.params, network.mask, network.state
    objective = jnp.where(jnp.isnan(value), jnp.inf, value)
    none = jnp.asarray(NONE, jnp.int32)
    failed_at = none if network.info.failed_at is None else network.info.failed_at
    before = network.get(Kept)
    if before is None:
        nothing = jnp.zeros(settings.networks)
        before = Kept(mine, objective, failed_at, jnp.asarray(0), jnp.asarray(0), nothing, nothing)
    is_better = objective < before.objective if settings.choose == "best" else jnp.asarray(True)

    def better(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(is_better, a, b), new, old)

    kept = Kept(
        network=better(mine, before.network),
        objective=better(objective, before.objective),
        failed_at=better(failed_at, before.failed_at),
        chosen=better(before.seen, before.chosen),
        seen=before.seen + 1,
        objectives=before.objectives.at[before.seen].set(value.astype(before.objectives.dtype)),
        densities=before.densities.at[before.seen].set(density(network.mask)),
    )
    info = network.info.replace(failed_at=none if settings.apart else failed_at)
    return network.with_records(kept).replace(info=info)


@dataclasses.dataclass(frozen=True)
class Names:
    """Names in `info` for the choice and for the F of all networks."""

    index: str
    objectives: str
    apart: bool


def pick(index: str, objectives: str, *, apart: bool = False) -> FunctionStage:
    """Return the remembered network, with `densities` and the facts of `keep` under the given names.

    Args:
      index: name for the index of the chosen network.
      objectives: name for the F of all.
      apart: as for `keep`: `failed_at` is then the one of the chosen network.
    """
    return FunctionStage("pick", _pick, Names(index, objectives, apart), Needs("required", records=(Kept,)))


def _pick(names: Names, key: Array, problem: Problem, network: Network) -> Network:
    kept = network[Kept]
    params, mask, state = kept.network
    seen = {names.index: kept.chosen, names.objectives: kept.objectives, "densities": kept.densities}
    info = network.info | seen
    if names.apart:
        info = info.replace(failed_at=kept.failed_at)
    return network.without(Kept).replace(params=params, mask=mask, state=state, info=info)

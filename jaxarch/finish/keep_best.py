"""The best of several networks that a chain finds one after the other."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.masks import density
from jaxarch.problem import Finish, Network, Problem
from jaxarch.trees import PyTree


class Kept(NamedTuple):
    """What `keep` remembers, in `info["kept"]`.

    Attributes:
      network: `(params, mask, state)` of the best one so far.
      objective: its F, +inf in place of NaN.
      failed_at: the step at which its own training failed, or -1.
      chosen: which one it is.
      seen: how many there were.
      objectives: F of each, shape (networks,), NaN for those to come.
      densities: of their masks.
    """

    network: tuple[PyTree, PyTree, PyTree]
    objective: Array
    failed_at: Array
    chosen: Array
    seen: Array
    objectives: Array
    densities: Array


def keep(
    networks: int, *, choose: Literal["best", "last"] = "best", validate: bool = False, apart: bool = False
) -> Finish:
    """Remember a network if it is the one to be found so far; among equals that is the first.

    Args:
      networks: how many there will be.
      choose: `best` for the least F, NaN counting as +inf; `last` for the last one whatever its F.
      validate: whether F is that on the validation rows, if the problem has some, or on the training rows.
      apart: whether the networks have nothing to do with one another, so that one whose training failed says
        nothing of the others.
    """

    def finish(key: Array, problem: Problem, network: Network) -> Network:
        rows = problem.validation if validate else None
        value = problem.objective(network.params, network.state, rows)
        mine = network.params, network.mask, network.state
        objective = jnp.where(jnp.isnan(value), jnp.inf, value)
        before = network.info.get("kept")
        failed_at = network.info.get("failed_at", jnp.asarray(-1, jnp.int32))
        if before is None:
            nothing = jnp.full(networks, jnp.nan)
            before = Kept(mine, objective, failed_at, jnp.asarray(0), jnp.asarray(0), nothing, nothing)
        is_better = objective < before.objective if choose == "best" else jnp.asarray(True)

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
        return network._replace(info={"kept": kept, "failed_at": None if apart else failed_at})

    finish.__name__ = "keep"
    return finish


def pick(index: str, objectives: str) -> Finish:
    """The network that was remembered, with `densities` and what `keep` knows under these names."""

    def finish(key: Array, problem: Problem, network: Network) -> Network:
        kept: Kept = network.info["kept"]
        info = {"kept": None, index: kept.chosen, objectives: kept.objectives, "densities": kept.densities}
        if "failed_at" not in network.info:
            info["failed_at"] = kept.failed_at
        return Network(*kept.network, info)

    finish.__name__ = "pick"
    return finish

"""Random search: train sub-networks of randomly drawn nodes, and return the best one."""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import check_count, is_traced
from jaxarch._internal.trees import PyTree, Where, map_selected, matrices, select_floating
from jaxarch.masks import apply_mask, check_density, init_scores, top_k
from jaxarch.masks._largest import counts_kept
from jaxarch.run._descent import DescentChanges
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import Start
from jaxarch.run._stage import FunctionStage, Needs
from jaxarch.run._strategy import Strategy, chain
from jaxarch.search._keep_best import keep, pick
from jaxarch.search._units import hidden_units
from jaxarch.transforms._retrain import retrain


@dataclasses.dataclass(frozen=True)
class Settings:
    """The density of a sub-network, and the leaves whose nodes are drawn."""

    density: ArrayLike
    where: Where


@method("R. Farahani, 2024", density=0.5, samples=2)
def random_search(
    density: ArrayLike,
    samples: int = 8,
    *,
    where: Where = matrices,
    rows_at_once: int | None = None,
    **descent: Unpack[DescentChanges],
) -> Strategy:
    r"""Train random sub-networks of a network, and keep the best (R. Farahani, 2024, arXiv 2403.08265).

    A sample is a random subset of the hidden nodes of a network: its neurons, channels and heads as they are
    read from its computation (see `structure.Group`). From each group of n nodes that belong together, a
    layer's or a residual stream's, it has `ceil(s n)`. All groups have the same share s: the least at which
    `round(density D)` or more connections lie between the remaining nodes, D the number of all connections.
    Surplus connections are dropped at random. Features that are normalized together stay. Each sample is
    trained from the initial weights of the whole network, which all samples of a run share, and judged by F
    after training: on the validation rows if the problem has some, or else on the training rows. Sampling of
    nodes and judging after training follow the paper; share, surplus and rows are ours.

    Args:
      density: the share of connections that are kept, in (0, 1]. May be traced.
      samples: how many sub-networks are drawn and trained, at least 1.
      where: the leaves that are masked, by path.
      rows_at_once: rows that F is computed on at a time, to save memory; by default all. F is the same up to
        rounding.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A strategy, to be run as it is or followed by transforms: the best sample's mask of exactly
      `round(density D)` connections, with its trained weights. Its `info` has `objectives` and `densities`, F
      and density of every sample, shape (samples,), and `sample`, the index of the best. A sample whose F is
      NaN is returned only if all are NaN; `failed_at` belongs to the returned one.

    Raises:
      ArgumentError: a density outside (0, 1], samples or rows that are not positive integers; a model without
        hidden nodes in these leaves.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> search = jaxarch.search.random_search(0.25, samples=2)
      >>> network = search(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), network.mask["W2_1"].any(1).sum())  # 2 of 8 hidden neurons
      0.25 2
    """
    check_density("density", density)
    check_count("samples", samples)
    if rows_at_once is not None:
        check_count("rows_at_once", rows_at_once)
    settings = Settings(density, where)
    first = FunctionStage("sample nodes", _first_sample, settings, Needs(predict=True))
    again = FunctionStage("sample nodes", _next_sample, settings, Needs("required", records=(Start,)))
    train = retrain("rewind", nonnegative=False, **descent)
    kept = keep(samples, validate=True, apart=True, rows_at_once=rows_at_once)
    more = (again, train, kept) * (samples - 1)
    return chain(first, train, kept, *more, pick("sample", "objectives", apart=True))


def _first_sample(settings: Settings, key: Array, problem: Problem, network: None) -> Network:
    """Draw a random sub-network at the problem's initial weights."""
    params_key, mask_key = jax.random.split(key)
    params, state = problem.start(params_key)
    mask = _sample(mask_key, settings, problem, params, state)
    return Network(apply_mask(mask, params), mask, state, records=(Start(params, state),))


def _next_sample(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    """Draw a random sub-network at the same initial weights as the one before it."""
    params_key, mask_key = jax.random.split(key)
    _, state = problem.start(params_key)
    start = network[Start].params
    mask = _sample(mask_key, settings, problem, start, state)
    return network.replace(params=apply_mask(mask, start), mask=mask, state=state)


def _sample(key: Array, settings: Settings, problem: Problem, params: PyTree, state: PyTree) -> PyTree:
    """Draw a mask of exactly `round(density D)` connections between random nodes."""
    selection = select_floating(params, settings.where)
    units = hidden_units(problem, params, state, selection)
    total = counts_kept(selection, settings.density)
    nodes_key, surplus_key = jax.random.split(key)
    widths = sampled_widths(units.groups(), partial(units.connections, selection), total)
    keys = jax.random.split(nodes_key, len(widths))
    nodes = {
        name: jax.random.permutation(node_key, units.groups()[name]) < width
        for node_key, (name, width) in zip(keys, widths.items(), strict=True)
    }
    there = units.spread(nodes, params)
    drawn = init_scores(surplus_key, selection, 0.0, 1.0)

    def between(score: Array, nodes_there: Array | None) -> Array:
        return score if nodes_there is None else jnp.where(nodes_there, score, -jnp.inf)

    return top_k(map_selected(between, drawn, there), total)


def sampled_widths(
    sizes: Mapping[str, int], connections: Callable[[Mapping[str, int]], int], total: Any
) -> dict[str, Any]:
    """Return the nodes of each group: `ceil(s n)` of n, at the least s with `total` connections or more.

    Args:
      sizes: how many nodes each group has, by name.
      connections: function from the numbers of nodes left to the number of connections between them.
      total: connections, at most those of the whole network; if it is traced, so are the returned numbers.
    """

    def widths(share: Fraction) -> dict[str, int]:
        return {name: math.ceil(share * size) for name, size in sizes.items()}

    shares = sorted({Fraction(j + 1, size) for size in sizes.values() for j in range(size)})
    if not is_traced(total):
        return widths(shares[bisect.bisect_left(shares, total, key=lambda share: connections(widths(share)))])
    at_each = [widths(share) for share in shares]
    index = jnp.searchsorted(np.asarray([connections(there) for there in at_each]), total)
    return {name: jnp.asarray([there[name] for there in at_each])[index] for name in sizes}

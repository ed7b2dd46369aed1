"""Evaluation of a strategy's networks on some rows: outputs of every run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from jaxarch._internal.errors import ArgumentError, check_count, check_leaves, is_traced, shown
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.run._devices import over_runs, place, take_runs
from jaxarch.run._keyed import keyed, keyed_problem, shapes_of
from jaxarch.run._network import Network
from jaxarch.run._partition import Rules
from jaxarch.run._problem import Problem, as_rows, check_is_problem
from jaxarch.run._programs import is_slow_in_loops
from jaxarch.run._runs_mesh import split_mesh
from jaxarch.run._stage import HostSearch
from jaxarch.run._strategy import chain


def evaluate(
    strategy: Any,
    network: Network,
    problem: Problem,
    rows: Array | np.ndarray,
    *,
    batch_size: int | None = None,
    mesh: Mesh | None = None,
    partition: Rules | None = None,
) -> Any:
    """Return the outputs of a strategy's networks on some rows, for every run.

    Args:
      strategy: the strategy that found the network.
      network: the network, with a leading axis of runs.
      problem: the problem that the strategy was run on.
      rows: rows of the problem's data, shape (n,), or (runs, n) if each run has its own.
      batch_size: how many rows to take at a time, to save memory; by default all.
      mesh: the mesh over which runs are split, as in `FitOptions`; by default one device has all of them.
      partition: how each run is split over the mesh, as in `FitOptions`.

    Returns:
      The problem's `predict` on those rows, with leading axes of runs and rows, on the host.

    Raises:
      ArgumentError: rows that are not in the data, a problem without `predict`; a network of one run, a bare
        architecture, or an object that is not a network.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> search = jaxarch.search.dense()
      >>> network, _ = jaxarch.over_seeds(search, jax.random.split(jax.random.key(0), 3), problem)
      >>> jaxarch.evaluate(search, network, problem, jnp.array([0, 2])).shape  # runs, rows, outputs
      (3, 2, 4)
    """
    strategy = chain(strategy)
    _check_network(network, problem, isinstance(strategy.stages[-1], HostSearch))
    predict, problem = keyed(strategy.predict(problem)), keyed_problem(problem)
    if is_traced((network, problem, rows)):
        raise ArgumentError("network: evaluate returns outputs on the host; call it outside of jit and vmap")
    rows = as_rows("rows", rows, problem)
    runs = jax.tree.leaves(network.params)[0].shape[0]
    if rows.ndim == 2 and len(rows) != runs:
        raise ArgumentError(
            f"rows: expected shape (n,), or ({runs}, n) with the rows of each run, got {rows.shape}"
        )
    if batch_size is not None:
        check_count("batch_size", batch_size)
    size = batch_size or rows.shape[-1]
    if partition is not None and mesh is None:
        raise ArgumentError("partition: it needs a mesh to split over; give `mesh`, or leave out `partition`")
    axes = (0, 0, problem.in_axes(), 0 if rows.ndim == 2 else None)
    split = split_mesh(mesh, partition, problem)
    args = (network.params, network.state, problem, rows)
    args = jax.device_put(args, jax.local_devices()[0]) if split is None else place(split, axes, args)
    alone = split is None and is_slow_in_loops(_outputs.trace(predict, False, *args).jaxpr.jaxpr)
    shares = (take_runs(axes, args, np.asarray([run])) for run in range(runs)) if alone else [args]
    results = []
    for *share, per_run in shares:
        parts = [
            jax.device_get(_outputs(predict, alone, *share, per_run[..., start : start + size]))
            for start in range(0, rows.shape[-1], size)
        ]
        results.append(jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *results)


def _check_network(network: Network, problem: Problem, on_host: bool) -> None:
    """Raise unless the network has weights of many runs; a host search's may have any structure."""
    check_is_problem(problem)
    if not isinstance(network, Network):
        raise ArgumentError(f"network: expected a network returned by over_seeds, got {shown(network)}")
    if network.params is None:
        raise ArgumentError(
            "network: it is a bare architecture, without weights; train it first, by retrain('cold')"
        )
    check_leaves("network: params", network.params, keys=True)
    leaves = named_leaves(network.params)
    of_one = named_leaves(shapes_of(problem.init, jax.random.key(0))[0])
    if leaves.keys() == of_one.keys() and all(jnp.ndim(leaves[path]) == of_one[path].ndim for path in leaves):
        raise ArgumentError(
            "network: it holds one run, without a leading axis of runs; add one by "
            "jax.tree.map(lambda leaf: leaf[None], network)"
        )
    if leaves.keys() != of_one.keys() and not on_host:
        raise ArgumentError(
            f"network: its parameters do not match the problem's model: expected {shown(list(of_one))}, "
            f"got {shown(list(leaves))}; give the problem that it was trained on"
        )
    runs = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves((network.params, network.state))}
    if len(runs) != 1 or () in runs or problem.runs not in (None, *(size for (size,) in runs)):
        expected = "of runs" if problem.runs is None else f"of {problem.runs} runs, as the problem has"
        raise ArgumentError(f"network: expected a leading axis {expected}, got {sorted(runs)}")


@partial(jax.jit, static_argnames=("predict", "alone"))
def _outputs(
    predict: Callable, alone: bool, params: PyTree, state: PyTree, problem: Problem, rows: Array
) -> Any:
    """Compute outputs on some rows for all runs at once, or for the one that is `alone`."""

    def one(params: PyTree, state: PyTree, problem: Problem, rows: Array) -> Any:
        return predict(params, state, problem.gather(problem.data, problem.per_run, rows))

    axes = (0, 0, problem.in_axes(), 0 if rows.ndim == 2 else None)
    mapped = over_runs(one, None, axes) if alone else jax.vmap(one, in_axes=axes)
    return mapped(params, state, problem, rows)

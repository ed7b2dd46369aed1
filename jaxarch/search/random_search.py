"""Random search: sub-networks of randomly drawn nodes are trained, and the best one is found."""

from __future__ import annotations

import bisect
import dataclasses
import math
from fractions import Fraction
from typing import Unpack

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.descent import DescentChanges
from jaxarch.errors import ArgumentError, check_count
from jaxarch.finish.retrain import retrain
from jaxarch.masks import apply_mask, check_density, full_mask, init_scores, top_k
from jaxarch.network import Network
from jaxarch.problem import Problem
from jaxarch.running.methods import method
from jaxarch.running.stage import FunctionStage, Needs
from jaxarch.running.strategy import Strategy, chain
from jaxarch.search.keep_best import keep, pick
from jaxarch.structure.nodes import Layer, Layers, connection_mask, layer_chain
from jaxarch.trees import PyTree, Where, map_selected, matrices, named_leaves, select


@dataclasses.dataclass(frozen=True)
class Settings:
    """The size of a sub-network, and the layers that its nodes are drawn from."""

    density: float
    layers: Layers | None
    where: Where


@method("R. Farahani, 2024", parent="layers", density=0.5, samples=2)
def random_search(
    density: float,
    samples: int = 8,
    *,
    layers: Layers | None = None,
    where: Where = matrices,
    **descent: Unpack[DescentChanges],
) -> Strategy:
    r"""Train random sub-networks of a network, and keep the best (R. Farahani, 2024, arXiv 2403.08265).

    A sample is a random subset of the hidden nodes (neurons, channels) of every layer: of n nodes,
    `ceil(s n)`, with one share s for all layers, the least at which the connections between the nodes that
    are left are `round(density D)` or more, D the number of all connections. What is too many is dropped at
    random. Each sample is trained from the initial weights of the whole network, the same for all samples of
    a run, and judged by F after training: on the validation rows if the problem has some, or else on the
    training rows. Nodes are sampled and sub-networks judged after training as in the paper; share, surplus
    and rows are ours.

    Args:
      density: the share of connections that are kept, in (0, 1].
      samples: how many sub-networks are drawn and trained, at least 1.
      layers: the chain of layers (see `nodes.layer_chain`), by name in the order of the data flow; by
        default all masked kernels, in the order in which they fit. Where matrices have shape (outputs,
        inputs), name them from the last to the first.
      where: the leaves that are masked, by path: kernels of the chain, all of them.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling` in place of the problem's.

    Returns:
      A strategy, to be run as it is or finished: the best sample's mask of exactly `round(density D)`
      connections, with its trained weights. Its `info` has `objectives` and `densities`, F and density of
      every sample, shape (samples,), and `sample`, the one found. One whose F is NaN is found only if all
      are; `failed_at` is that of the one found.

    Raises:
      ArgumentError: a density outside (0, 1], samples that are no positive integer; a model without hidden
        nodes, or whose masked leaves are no chain.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> search = jaxarch.search.random_search(0.25, samples=2, layers=("W3_2", "W2_1"))
      >>> network = search(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), network.mask["W2_1"].any(1).sum())  # 2 of 8 hidden neurons
      0.25 2
    """
    check_density("density", density)
    check_count("samples", samples)
    settings = Settings(density, layers, where)
    first = FunctionStage("sample nodes", _first_sample, settings)
    again = FunctionStage("sample nodes", _next_sample, settings, Needs("required", ("start",)))
    train = retrain("rewind", nonnegative=False, **descent)
    kept = keep(samples, validate=True, apart=True)
    more = (again, train, kept) * (samples - 1)
    return chain(first, train, kept, *more, pick("sample", "objectives", apart=True))


def _first_sample(settings: Settings, key: Array, problem: Problem, network: None) -> Network:
    """A random sub-network at the problem's initial weights."""
    params_key, mask_key = jax.random.split(key)
    params, state = problem.init(params_key)
    mask = _sample(mask_key, select(params, settings.where), settings.density, settings.layers)
    return Network(apply_mask(mask, params), mask, state, start=params)


def _next_sample(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    """A random sub-network at the weights that the one before it started from."""
    params_key, mask_key = jax.random.split(key)
    _, state = problem.init(params_key)
    mask = _sample(mask_key, select(network.start, settings.where), settings.density, settings.layers)
    return network.replace(params=apply_mask(mask, network.start), mask=mask, state=state)


def _sample(key: Array, selection: PyTree, density: float, layers: Layers | None) -> PyTree:
    """A mask of exactly `round(density D)` connections between random nodes."""
    leaves = named_leaves(selection)
    network = layer_chain(selection, layers)
    left_out = set(leaves) - {layer.path for layer in network}
    if left_out:
        raise ArgumentError(f"where: {min(left_out)!r} is masked, but no kernel of the chain of layers")
    if len(network) < 2:
        raise ArgumentError("layers: a network of one layer has no hidden nodes to sample")
    total = round(density * sum(leaf.size for leaf in leaves.values()))
    areas = [math.prod(leaves[layer.path].shape[:-2]) for layer in network]
    widths = sampled_widths(network, areas, total)
    nodes_key, surplus_key = jax.random.split(key)
    keys = jax.random.split(nodes_key, len(widths))
    nodes = {
        layer.name: jax.random.permutation(node_key, layer.outputs) < width
        for node_key, layer, width in zip(keys, network[:-1], widths, strict=True)
    }
    between = connection_mask(full_mask(selection), nodes, layers)
    chosen = init_scores(surplus_key, selection, 0.0, 1.0)
    return top_k(map_selected(lambda m, s: jnp.where(m, s, -jnp.inf), between, chosen), total)


def sampled_widths(network: tuple[Layer, ...], areas: list[int], total: int) -> list[int]:
    """The hidden nodes a layer: `ceil(s n)` of n, at the least share s with `total` connections or more.

    Args:
      network: a chain of layers.
      areas: the positions of each kernel, 1 for a dense layer and h w for a convolution.
      total: connections, at most those of the whole network.
    """

    def widths(share: Fraction) -> list[int]:
        return [math.ceil(share * layer.outputs) for layer in network[:-1]]

    def connections(share: Fraction) -> int:
        ends = [network[0].inputs, *widths(share), network[-1].outputs]
        return sum(
            area * layer.positions * before * after
            for area, layer, before, after in zip(areas, network, ends[:-1], ends[1:], strict=True)
        )

    shares = sorted({Fraction(j + 1, layer.outputs) for layer in network[:-1] for j in range(layer.outputs)})
    return widths(shares[bisect.bisect_left(shares, total, key=connections)])

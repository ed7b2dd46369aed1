"""Cannistraci-Hebb training: connections grow where the network's topology has many paths of length 3."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import check_choice
from jaxarch._internal.trees import Where, matrices, named_leaves
from jaxarch.masks import Scope
from jaxarch.masks._largest import largest_of
from jaxarch.masks._sharding import split_like
from jaxarch.optim import sparse
from jaxarch.optim._sparse import Leaves, _among, _counts
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.search._changing import check_changes, check_replaced, spacing_before, sparse_training

NAME = "Cannistraci-Hebb training"
RISE = 2.0
"""By how much the exponent of a weight's size rises in a training, from 1 on."""
LEAST = 1e-5
"""Added to all scores of a leaf, as the authors do, if too few of its free places have a path."""

Removal = Literal["magnitude", "relative"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Density and its spread over the leaves, how connections are replaced, and the steps of the changes."""

    density: ArrayLike
    replaced: ArrayLike
    removal: Removal
    every: int | None
    scope: Scope
    where: Where


@method("Y. Zhang et al., 2024")
def cht(
    density: ArrayLike = 0.1,
    *,
    replaced: ArrayLike = 0.3,
    removal: Removal = "magnitude",
    every: int | None = None,
    scope: Scope = "layer",
    where: Where = matrices,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Train `round(d D)` connections, random ones at first; new ones grow by the topology alone.

    At the steps `t = every, 2 every, ...`, each leaf loses `round(rho n)` of its n connections, and as many
    grow. Those that stay are drawn without replacement, with weights

        s^(1 + 2 t / T),    s = |w|, or |w_ij| / sum_k |w_kj| + |w_ij| / sum_k |w_ik|,

    with T the number of steps. The mask B that is left is a bipartite graph of inputs and outputs. With
    `N(u)` the neighbors of a node, and v and z of the same kind as i and j, connections grow at free places
    (i, j) with weights

        sum_{v in N(j)} c(i, v) + sum_{z in N(i)} c(j, z),
        c(u, v) = 1 / max(|N(v) - N(u)|, 1) if u and v share a neighbor, else 0.

    These are the CH3-L3 scores by nodes of the authors' code for Transformers: each node on a path of length
    3 from i to j counts 1 / (1 + e). Its e is the number of its links that leave those paths. Grown
    connections begin at 0. A change replaces a step of the optimizer, and takes no gradient. Y. Zhang et al.,
    Epitopological learning and Cannistraci-Hebb network shape intelligence, 2024, and with draws in place of
    ranks: Brain-inspired sparse training with the Cannistraci-Hebb soft rule, 2024, as the authors' code
    CHTs has it.

    Departures from the published method: the first mask is uniformly random. The authors also have bipartite
    small worlds and masks by correlations of inputs. Their removal of connections that lead to or from
    neurons without any is left out, and so is stopping once most grown connections are removed ones. Their
    moments are set to 0 where no connection is; here they decay. A connection that is removed and grows
    again at once keeps its weight there; here it begins at 0. A leaf of more than two axes is a matrix of
    its last axis and all others.

    Args:
      density: d, the share of connections in the network, in (0, 1]. May be traced: a sweep is one program.
      replaced: rho, the share of a leaf's connections that is replaced at a change, in [0, 1). May be traced.
      removal: s, the size of a weight: `magnitude`, or `relative`, its share in its row and its column.
      every: steps from one change to the next, an epoch in the authors' code for perceptrons. By default a
        50th of the training's steps.
      scope: how the first mask is spread over the leaves, as in `masks.keep`. The authors have one density
        for all layers; `erk` leaves more to small ones.
      where: the leaves that are masked, by path. A leaf of p by q takes matrices of p by p and q by q.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search. Its network is trained: it has the weights of the last step, 0 where the mask is 0.

    Raises:
      ArgumentError: a density outside (0, 1], a share outside [0, 1), an unknown word; so few steps, or so
        large an `every`, that the mask would never change.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=10)
      >>> network = jaxarch.search.cht(0.25)(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), network.info["loss"].shape)
      0.25 (10,)
    """
    check_changes(density, every, scope)
    check_replaced(replaced)
    check_choice("removal", removal, ("magnitude", "relative"))
    return sparse_training(
        name=NAME,
        settings=Settings(density, replaced, removal, every, scope, where),
        descent=own_descent(descent),
        wrap_optimizer=_wrap_optimizer,
    )


class Draws(NamedTuple):
    """Keys of the two draws of a change: connections that stay, and connections that grow."""

    stay: Array
    grow: Array


def _wrap_optimizer(
    settings: Settings, key: Array, problem: Problem, state: TrainState
) -> optax.GradientTransformation:
    steps = problem.descent.steps
    every = spacing_before(steps, NAME, settings.every, steps)
    replaced = optax.constant_schedule(settings.replaced)
    draws = Draws(*jax.random.split(jax.random.fold_in(key, state.step)))
    exponent = 1 + RISE * jnp.asarray(state.step, jnp.float32) / steps

    def stay(weights: Leaves, slopes: Leaves) -> Leaves:
        sizes = {path: _size(leaf, settings.removal) for path, leaf in weights.items()}
        return _drawn(draws.stay, {path: exponent * jnp.log(leaf) for path, leaf in sizes.items()})

    def grow(step: Array, weights: Leaves, slopes: Leaves) -> Leaves:
        # `sparse` retains the same connections, but does not tell which.
        mask = named_leaves(state.memory)
        counts = _counts(mask, step, None, replaced, "global", grows=True)
        left = largest_of(_among(mask, stay(weights, slopes)), counts.retained)
        grown = counts.kept - counts.retained
        scores = {
            path: _enough(topology(leaf), leaf, grown[index])
            for index, (path, leaf) in enumerate(left.items())
        }
        return _drawn(draws.grow, {path: jnp.log(leaf) for path, leaf in scores.items()})

    return sparse(
        problem.descent.optimizer,
        score=stay,
        replaced=replaced,
        regrow=grow,
        every=every,
        mask=state.memory,
    )


def _matrix(leaf: Array) -> Array:
    """Return a leaf as a matrix of its last axis and all others."""
    return leaf.reshape(-1, leaf.shape[-1]) if leaf.ndim else leaf.reshape(1, 1)


def _size(leaf: Array, removal: Removal) -> Array:
    sizes = jnp.abs(leaf).astype(jnp.float32)
    if removal == "magnitude":
        return sizes
    matrix = _matrix(sizes)
    sums = [matrix.sum(axis, keepdims=True) for axis in (0, 1)]
    rows, columns = (matrix / jnp.where(of > 0, of, 1) for of in sums)
    return (rows + columns).reshape(leaf.shape)


def _drawn(key: Array, logits: Leaves) -> Leaves:
    """Add Gumbel noise: the k largest are a draw of k without replacement."""
    keys = jax.random.split(key, len(logits))
    return {
        path: leaf + split_like(leaf, jax.random.gumbel(each, leaf.shape, jnp.float32))
        for each, (path, leaf) in zip(keys, logits.items(), strict=True)
    }


def topology(mask: Array) -> Array:
    """Return the CH3-L3 score of every place of a leaf, given its mask.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.search._cht import topology
      >>> print(topology(jnp.array([[True, True, False], [False, True, True]]))[0, 2])
      2.0
    """
    graph = _matrix(mask).astype(jnp.float32)
    return (_towards(graph) + _towards(graph.T).T).reshape(mask.shape)


def _towards(graph: Array) -> Array:
    """Sum c(i, v) over the neighbors v of j, for each row i and column j."""
    # Counts must be exact, and the default precision of a GPU or a TPU is lower.
    common = jnp.matmul(graph, graph.T, precision="highest")
    leaving = graph.sum(1)[None, :] - common
    of_pairs = jnp.where(common > 0, 1 / jnp.maximum(leaving, 1), 0)
    return jnp.matmul(of_pairs, graph, precision="highest")


def _enough(scores: Array, left: Array, grown: Array) -> Array:
    """Return scores that suffice to draw as many free places as grow."""
    positive = jnp.sum((scores > 0) & ~left, dtype=grown.dtype)
    return scores + jnp.where(positive < grown, LEAST, 0)

"""SynFlow: connections chosen before training without data, in rounds, so that no layer is cut through."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import tree_flatten_with_path

from jaxarch import saliency
from jaxarch._internal.errors import ArgumentError, check_count
from jaxarch._internal.trees import PyTree, Where, map_selected, matrices, path_name, select_floating
from jaxarch.masks import apply_mask
from jaxarch.masks._keeping import largest_within
from jaxarch.masks._units import NOfM, Units, UnitsLike
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import ByDensity
from jaxarch.run._stage import FunctionStage, Needs
from jaxarch.search._units import check_counts, check_units, example_shapes, needs_of, units_of
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


class Model(NamedTuple):
    """Inputs of the flow: initial weights, the model's state, and a batch of ones."""

    params: PyTree
    state: PyTree
    ones: PyTree


@method("H. Tanaka et al., 2020", densities=0.5, rounds=10)
def synflow(
    densities: Densities, *, rounds: int = 100, where: Where = matrices, units: UnitsLike = None
) -> FunctionStage:
    r"""Keep the connections through which most of the flow goes, at the problem's initial weights, in rounds.

    The saliency of a connection is `|theta| dR/d|theta|`. R is the sum of the outputs, on an input of ones,
    of the network whose parameters are all `|theta|`, biases too: no data are used. Round k of n keeps, of
    the connections that round k - 1 left, the `round(d^(k/n) D)` with the largest saliency in that round's
    network. D is the number of all connections. A single round may cut a whole layer. In many rounds, the few
    connections left in a layer carry all its flow, and have large saliencies. H. Tanaka, D. Kunin, D. Yamins
    and S. Ganguli, Pruning neural networks without any data by iteratively conserving synaptic flow, 2020,
    algorithm 1.

    That keeps a path from inputs to outputs, and a connection in each layer that all paths go through. A
    layer parallel to others may lose all of its connections. The three projections of ResNet-18 have less
    than 1 percent of the flow each: two of them are empty at a tenth of the connections, all three at a
    hundredth, by the authors' code too (`benchmarks/beside_the_authors.py --resnet18`). The signal then takes
    the other branch.

    The network is evaluated as it is before training: batch norm has its initial running statistics, and
    there is no dropout. The authors' code drops `(1 - d^(k/n)) D` connections, rounded down, and all that
    have the saliency of the last of them. Here the first of equal saliencies stay, and every density is met
    exactly. With several densities each has n rounds of its own: its mask is the one that it has alone.

    Args:
      densities: d, the share of connections to keep, in (0, 1]. For several, the search returns the smallest,
        and `at_density` selects the others. With `units`, the share of units.
      rounds: n, at least 1; the authors have 100. A round is one gradient of one example.
      where: the leaves that are masked, by path. The others count in R, as their absolute values.
      units: connections to keep or remove together (see `masks.keep`): `neurons`, `channels` or `heads` of
        the problem's model, or several of them, `("heads", "neurons")`; `Groups.units`; `(4, 4)`; `"2:4"`. A
        unit's saliency is the mean over its connections that are left. N:M is made in one round.

    Returns:
      A search. Its weights are the initial ones, masked: `retrain("warm", nonnegative=False)` trains them.
      Its `info.failed_at` is the first round of its density, from 0 on, whose saliencies carried no
      information; -1 for none. One of them may be infinite or NaN, as in a network so deep that R overflows
      float32 (`jax_enable_x64` helps). Or all of them may be 0, as behind a last layer of zeros.

    Raises:
      ArgumentError: a density outside (0, 1], rounds that are not a positive integer, or any but 1 with N:M;
        units that are not understood, or that the model does not have; a model whose outputs read integers,
        such as tokens.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.synflow((0.5, 0.25), rounds=10)(jax.random.key(0), problem)
      >>> print(sorted(network[jaxarch.ByDensity].masks), network.info.failed_at)
      ['0.25', '0.5'] -1
    """
    check_count("rounds", rounds)
    together, targets = check_units(units), check_densities(densities)
    check_counts(together, targets)
    if isinstance(together, NOfM) and rounds != 1:
        raise ArgumentError(f"rounds: {together.n}:{together.m} is pruned in one round; give rounds=1")
    settings = Settings(targets, rounds, where, together)
    needs = needs_of(together, Needs(predict=True))
    return FunctionStage("synflow", _synflow, settings, needs, remarks=_remarks)


def _synflow(settings: Settings, key: Array, problem: Problem, network: None) -> Network:
    params, state = problem.start(key)
    model = Model(params, state, _ones(problem, params, state))
    selected = select_floating(params, settings.where)
    units = units_of(settings.units, problem, params, state, selected)
    whole = map_selected(lambda leaf: jnp.ones_like(leaf, bool), units.score(selected))

    def prune(mask: PyTree, count: Array) -> tuple[PyTree, Array]:
        scores = _scores(settings, problem, model, mask)
        return largest_within(units, scores, count, mask, params), _tell(scores)

    def all_rounds(counts: Array) -> tuple[PyTree, Array]:
        return jax.lax.scan(prune, units.spread(whole, params), counts)

    steps = range(1, settings.rounds + 1)
    counts = [[units.counts(whole, d ** (k / settings.rounds)) for k in steps] for d in settings.densities]
    if isinstance(units, NOfM):  # it counts for itself
        counts = [[0]]
    kept, told = jax.lax.map(all_rounds, jnp.asarray(counts))
    masks = {d: map_selected(lambda leaf, i=i: leaf[i], kept) for i, d in enumerate(settings.densities)}
    rounds = jnp.where(told.all(axis=1), -1, told.argmin(axis=1)).astype(jnp.int32)
    failed_at = dict(zip(settings.densities, rounds, strict=True))
    return with_densities(masks, params, state, failed_at=failed_at)


def _remarks(network: Network) -> Iterable[str]:
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


def _scores(settings: Settings, problem: Problem, model: Model, mask: PyTree) -> PyTree:
    """Return the saliencies of the network that a mask leaves."""

    def flow(params: PyTree) -> Array:
        assert problem.predict is not None
        outputs = problem.predict(params, model.state, model.ones)
        return jnp.stack([jnp.sum(leaf) for leaf in jax.tree.leaves(outputs)])

    return saliency.synflow(flow, apply_mask(mask, model.params), settings.where)


def _tell(scores: PyTree) -> Array:
    """Return whether saliencies are informative: they are finite, and not all of them 0."""
    leaves = jax.tree.leaves(scores)
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()
    return finite & jnp.stack([(leaf > 0).any() for leaf in leaves]).any()


def _ones(problem: Problem, params: PyTree, state: PyTree) -> PyTree:
    """Make a batch of one example: floating-point entries are 1, all others, such as labels, are 0.

    Raises:
      ArgumentError: a model whose outputs read some of the others.
    """
    shapes = example_shapes(problem)
    read = _read(problem, params, state, shapes)
    for (path, leaf), is_read in zip(tree_flatten_with_path(shapes)[0], read, strict=True):
        if is_read and not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ArgumentError(
                f"problem: expected floating-point inputs, which synflow sets to 1, got {leaf.dtype} for "
                f"{path_name(path)!r} in a batch; convert them to floats, or score the part of the model "
                "after its embedding with saliency.synflow"
            )

    def filled(leaf: jax.ShapeDtypeStruct) -> Array:
        return jnp.full(leaf.shape, jnp.issubdtype(leaf.dtype, jnp.floating), leaf.dtype)

    return jax.tree.map(filled, shapes)


def _read(problem: Problem, params: PyTree, state: PyTree, shapes: PyTree) -> list[bool]:
    """Return on which arrays of a batch the model's outputs depend."""
    assert problem.predict is not None
    closed = jax.make_jaxpr(problem.predict)(params, state, shapes)
    inputs = closed.jaxpr.invars
    program = follow(closed, [fresh(var) for var in inputs])
    of_inputs = reached(program, [True] * len(closed.jaxpr.outvars), set())
    return of_inputs[len(inputs) - len(jax.tree.leaves(shapes)) :]

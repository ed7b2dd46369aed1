"""SynFlow: connections chosen before training without data, in rounds, so that no layer is cut through."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch import saliency
from jaxarch._internal.trees import PyTree, Where, matrices
from jaxarch.masks import apply_mask
from jaxarch.masks._units import UnitsLike
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import FunctionStage, Needs
from jaxarch.search._iterative_saliency import Settings, check_inputs, checked, prune_in_rounds, remarks
from jaxarch.search._units import example_shapes, needs_of
from jaxarch.transforms._densities import Densities


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
    settings = checked(densities, rounds, where, units)
    needs = needs_of(settings.units, Needs(predict=True))
    return FunctionStage("synflow", _synflow, settings, needs, remarks=remarks)


def _synflow(settings: Settings, key: Array, problem: Problem, network: None) -> Network:
    params, state = problem.start(key)
    check_inputs("synflow", "sets to 1", problem, params, state)
    ones = _ones(problem)

    def saliencies(mask: PyTree, round_: Array) -> PyTree:
        def flow(params: PyTree) -> Array:
            assert problem.predict is not None
            outputs = problem.predict(params, state, ones)
            return jnp.stack([jnp.sum(leaf) for leaf in jax.tree.leaves(outputs)])

        return saliency.synflow(flow, apply_mask(mask, params), settings.where)

    return prune_in_rounds(settings, problem, params, state, saliencies)


def _ones(problem: Problem) -> PyTree:
    """Make a batch of one example: floating-point entries are 1, all others, such as labels, are 0."""

    def filled(leaf: jax.ShapeDtypeStruct) -> Array:
        return jnp.full(leaf.shape, jnp.issubdtype(leaf.dtype, jnp.floating), leaf.dtype)

    return jax.tree.map(filled, example_shapes(problem))

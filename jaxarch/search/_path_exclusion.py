"""Path exclusion: connections on the paths that bound the trace of the neural tangent kernel, in rounds."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch import saliency
from jaxarch._internal.errors import check_count
from jaxarch._internal.trees import PyTree, Where, matrices
from jaxarch.masks import apply_mask
from jaxarch.masks._units import UnitsLike
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import FunctionStage, Needs
from jaxarch.search import _iterative_saliency as iterative
from jaxarch.search._units import needs_of
from jaxarch.transforms._densities import Densities


@dataclasses.dataclass(frozen=True)
class Settings(iterative.Settings):
    """Settings with the number of batches that open the activations."""

    batches: int


@method("L. Iurada et al., 2024", parent="piecewise linear", densities=0.5, rounds=10)
def path_exclusion(
    densities: Densities,
    *,
    rounds: int = 100,
    batches: int = 1,
    where: Where = matrices,
    units: UnitsLike = None,
) -> FunctionStage:
    r"""Keep the connections on the paths that bound the neural tangent kernel's trace, in rounds.

    A network of ReLUs is a sum over paths, `f_k(x) = sum_p v_p a_p(x) x_p`: v_p is the product of the weights
    along path p to output k, x_p its input, and a_p tells whether its activations are open. The saliency of a
    connection is `theta^2 dS / d(theta^2)` for `S = sum_k A_k sum_p v_p^2`. The weight of an output,
    `A_k = sum_x sum_p (a_p x_p)^2`, is held; the data enter there alone. Round k of n keeps, of the
    connections that round k - 1 left, the `round(d^(k/n) D)` with the largest saliency in that round's
    network. L. Iurada, M. Ciccone and T. Tommasi, Finding lottery tickets in vision models via data-driven
    spectral foresight pruning, 2024. See `saliency.path_exclusion` for the bound.

    An output with more open paths has a larger weight, and keeps more paths in the next round. At small
    densities some outputs may therefore lose all of their connections. On digits, with 150 connections of an
    MLP 64-100-10, 4 to 6 of the 10 outputs were left; with equal weights of the outputs all 10 were.

    The authors' code differs in four points. It leaves layers named `fc` unsquared, with their signs, so that
    S no longer gives a bound there; here the last layer is like all others. Batch norm normalizes the sums by
    their own statistics; here it has its initial running statistics, as SynFlow's. Max pooling takes the
    largest sum; here the entry that is the largest in the data. It draws equally many examples of each class;
    here batches are drawn as in training, the same in all rounds.

    The authors' code keeps rounded-up numbers and drops equal saliencies together. Here the first of equal
    saliencies stay, and every density is met exactly, as in `synflow`.

    Args:
      densities: d, the share of connections to keep, in (0, 1]. For several, the search returns the smallest,
        and `at_density` selects the others. With `units`, the share of units.
      rounds: n, at least 1; the authors have 100. A round takes two forward passes over the batches, and one
        gradient of one example.
      batches: number of batches for A, of the problem's size, drawn as in training, all in memory together.
      where: the leaves that are masked, by path. The others are on paths, too.
      units: connections to keep or remove together (see `masks.keep`): `neurons`, `channels` or `heads` of
        the problem's model, or several of them, `("heads", "neurons")`; `Groups.units`; `(4, 4)`; `"2:4"`. A
        unit's saliency is the mean over its connections that are left. N:M is made in one round.

    Returns:
      A search. Its weights are the initial ones, masked: `retrain("warm", nonnegative=False)` trains them.
      Its `info.failed_at` is the first round of its density, from 0 on, in which no path was left; -1 for
      none.

    Raises:
      ArgumentError: a density outside (0, 1], rounds or batches that are not a positive integer, any rounds
        but 1 with N:M; units that are not understood, or that the model does not have. When it runs: a model
        other than of products, sums and piecewise linear activations, for instance with tanh or a softmax, or
        with inputs that index parameters.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> search = jaxarch.search.path_exclusion((0.5, 0.25), rounds=10)
      >>> network = search(jax.random.key(0), problem)
      >>> print(sorted(network[jaxarch.ByDensity].masks), network.info.failed_at)
      ['0.25', '0.5'] -1
    """
    check_count("batches", batches)
    settings = Settings(**vars(iterative.checked(densities, rounds, where, units)), batches=batches)
    needs = needs_of(settings.units, Needs(predict=True, batches=batches))
    return FunctionStage("path_exclusion", _path_exclusion, settings, needs, remarks=iterative.remarks)


def _path_exclusion(settings: Settings, key: Array, problem: Problem, network: None) -> Network:
    params_key, batch_key = jax.random.split(key)
    params, state = problem.start(params_key)
    drawn = [problem.batch(batch_key, index) for index in range(settings.batches)]
    examples = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *drawn)

    def saliencies(mask: PyTree, round_: Array) -> PyTree:
        def outputs(params: PyTree, batch: PyTree) -> PyTree:
            assert problem.predict is not None
            return problem.predict(params, state, batch)

        return saliency.path_exclusion(outputs, apply_mask(mask, params), examples, settings.where)

    return iterative.prune_in_rounds(settings, problem, params, state, saliencies)

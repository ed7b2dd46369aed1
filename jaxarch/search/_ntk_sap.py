"""NTK-SAP: connections chosen before training by how they spread noise in the weights, in rounds."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch import saliency
from jaxarch._internal.errors import check_count, check_positive
from jaxarch._internal.trees import PyTree, Where, map_selected, matrices, select_floating
from jaxarch.masks import apply_mask, init_scores
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
    """Settings with the number of draws in a round, and the size of the noise."""

    draws: int
    noise: float


@method("Y. Wang, D. Li and R. Sun, 2023", densities=0.5, rounds=3)
def ntk_sap(
    densities: Densities,
    *,
    rounds: int = 20,
    draws: int = 5,
    noise: float = 0.01,
    where: Where = matrices,
    units: UnitsLike = None,
) -> FunctionStage:
    r"""Keep the connections that spread noise in the weights the most, in rounds, before training.

    The saliency of a connection is `|dE/dm|` at the mask m that is left, for
    `E = mean |f(x; theta m) - f(x; (theta + delta) m)|^2`. The mean is over new initial weights theta, normal
    noise delta of the weights, and batches of normal inputs x: neither the data nor the network's own weights
    matter. For small noise, E is the nuclear norm of the neural tangent kernel, up to a factor. Round k of n
    keeps, of the connections that round k - 1 left, the `round(d^(k/n) D)` with the largest saliency. Y.
    Wang, D. Li and R. Sun, NTK-SAP: Improving neural network pruning by aligning training dynamics, 2023,
    algorithm 1.

    Batch norm has its initial running statistics, as in `synflow`; in the authors' code it has those of each
    batch of normal inputs. The authors' code drops `(1 - d^(k/n)) D` connections, rounded down, and all that
    have the saliency of the last of them. Here the first of equal saliencies stay, and every density is met
    exactly.

    Args:
      densities: d, the share of connections to keep, in (0, 1]. For several, the search returns the smallest,
        and `at_density` selects the others. With `units`, the share of units.
      rounds: n, at least 1; the authors have 20 for ResNet-20.
      draws: number of draws in a round, each of weights, noise and one batch of the problem's size; the
        authors have 5 for ResNet-20. A draw is a gradient through two copies of the network.
      noise: standard deviation of delta, positive; only the masked leaves have noise.
      where: the leaves that are masked, by path.
      units: connections to keep or remove together (see `masks.keep`): `neurons`, `channels` or `heads` of
        the problem's model, or several of them, `("heads", "neurons")`; `Groups.units`; `(4, 4)`; `"2:4"`. A
        unit's saliency is the mean over its connections that are left. N:M is made in one round.

    Returns:
      A search. Its weights are the initial ones, masked: `retrain("warm", nonnegative=False)` trains them.
      Its `info.failed_at` is the first round of its density, from 0 on, whose saliencies were infinite, NaN
      or all 0; -1 for none.

    Raises:
      ArgumentError: a density outside (0, 1], rounds or draws that are not a positive integer, any rounds but
        1 with N:M, noise that is not positive; units that are not understood, or that the model does not
        have; a model whose outputs read integers, such as tokens.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> search = jaxarch.search.ntk_sap((0.5, 0.25), rounds=4, draws=2)
      >>> network = search(jax.random.key(0), problem)
      >>> print(sorted(network[jaxarch.ByDensity].masks), network.info.failed_at)
      ['0.25', '0.5'] -1
    """
    check_count("draws", draws)
    check_positive("noise", noise)
    settings = Settings(**vars(iterative.checked(densities, rounds, where, units)), draws=draws, noise=noise)
    needs = needs_of(settings.units, Needs(predict=True, batches=1))
    return FunctionStage("ntk_sap", _ntk_sap, settings, needs, remarks=iterative.remarks)


def _ntk_sap(settings: Settings, key: Array, problem: Problem, network: None) -> Network:
    params_key, draws_key = jax.random.split(key)
    params, state = problem.start(params_key)
    iterative.check_inputs("ntk_sap", "draws at random", problem, params, state)
    shapes = jax.eval_shape(lambda: problem.batch(draws_key, 0))

    def drawn(mask: PyTree, key: Array) -> PyTree:
        init_key, noise_key, inputs_key = jax.random.split(key, 3)
        # Weights of `start` could be shared by all draws: `paired` fixes them for a comparison.
        weights, state = problem.init(init_key)
        noise = init_scores(noise_key, select_floating(weights, settings.where), 0.0, settings.noise)
        noise = map_selected(lambda change, kept: jnp.where(kept, change, 0), noise, mask)
        batch = _normal(inputs_key, shapes)

        def outputs(params: PyTree) -> Array:
            assert problem.predict is not None
            made = problem.predict(params, state, batch)
            return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(made)])

        return saliency.ntk_sap(outputs, apply_mask(mask, weights), noise, settings.where)

    def saliencies(mask: PyTree, round_: Array) -> PyTree:
        keys = jax.random.split(jax.random.fold_in(draws_key, round_), settings.draws)
        scores = jax.lax.map(lambda key: drawn(mask, key), keys)
        # The sign of the mean derivative tells in which direction E changes, not how much.
        return jax.tree.map(lambda leaf: jnp.abs(leaf.mean(0)), scores)

    return iterative.prune_in_rounds(settings, problem, params, state, saliencies)


def _normal(key: Array, shapes: PyTree) -> PyTree:
    """Draw a batch: floating-point entries are normal, all others, such as labels, are 0."""
    leaves, structure = jax.tree.flatten(shapes)

    def filled(key: Array, leaf: jax.ShapeDtypeStruct) -> Array:
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return jax.random.normal(key, leaf.shape, leaf.dtype)
        return jnp.zeros(leaf.shape, leaf.dtype)

    keys = jax.random.split(key, max(len(leaves), 1))
    return jax.tree.unflatten(structure, [filled(*pair) for pair in zip(keys, leaves, strict=False)])

"""Weight-agnostic architectures: random ones, judged with one weight on all connections."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import check_count
from jaxarch._internal.trees import PyTree, Where, map_selected, matrices, select_floating
from jaxarch.masks import full_mask, percentile_thresholds, threshold_mask, weight_free
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import FunctionStage
from jaxarch.run._training_info import TrainingInfo
from jaxarch.transforms._share_weight import SharedWeight, with_weight
from jaxarch.transforms._threshold import PERCENTILES, check_percentiles
from jaxarch.transforms._weights import fresh, squares


@dataclasses.dataclass(frozen=True)
class Settings:
    """Number and densities of the architectures drawn, and number of weights tried with each."""

    draws: int
    weights: int
    percentiles: tuple[float, ...]
    where: Where


@method("[D] section 5, after A. Gaier and D. Ha, 2019", draws=2, weights=2)
def agnostic(
    draws: int = 20,
    weights: int = 10,
    percentiles: tuple[float, ...] = PERCENTILES,
    *,
    where: Where = matrices,
) -> FunctionStage:
    r"""Find the best of many random architectures, without training ([D] section 5, after Gaier & Ha, 2019).

    `w' = argmin_m min_(u_0) F(u_0 m)`, m over `B_inf(w - xi)`, `w = u^2`, `u ~ N(0, 1)` for each draw, xi
    over percentiles of w, and u_0 ~ N(0, 1) over shared weights, F on the training rows.

    Args:
      draws: number of random weight draws, at least 1. [D] does not give its numbers of draws and weights.
      weights: how many shared weights u_0 are tried. All architectures of a run share them, and so are
        compared on equal terms.
      percentiles: candidates, in [0, 100], of the masked leaves together; at 100 no connection is left.
      where: the leaves that are masked, by path; the others are the problem's own.

    Returns:
      A search for the weight-free network: all weights 1. Its `SharedWeight` is the best u_0 for the
      architecture found. Its `info` has `candidates`, the least F over u_0 of each, shape (draws,
      percentiles); `percentile`; `ties`, how many other architectures reach the same F (the first is then
      taken). NaN is never chosen. `share_weight` puts a shared weight on the architecture.

    Raises:
      ArgumentError: counts that are not positive integers, percentiles outside [0, 100] or none.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.agnostic(draws=3, weights=2)(jax.random.key(0), problem)
      >>> print(network.info["candidates"].shape, network[jaxarch.SharedWeight].weight.shape)
      (3, 10) ()
    """
    check_count("draws", draws)
    check_count("weights", weights)
    check_percentiles(percentiles)
    return FunctionStage("agnostic", _agnostic, Settings(draws, weights, tuple(percentiles), where))


def _agnostic(settings: Settings, key: Array, problem: Problem, network: None) -> Network:
    init_key, draws_key, weights_key = jax.random.split(key, 3)
    params, state = problem.start(init_key)
    everything = full_mask(select_floating(params, settings.where))
    shared = jax.random.normal(weights_key, (settings.weights,))
    draw_keys = jax.random.split(draws_key, settings.draws)

    def values(draw_key: Array) -> PyTree:
        # Clone the key: the best draw is drawn again from it.
        roots, _ = fresh(jax.random.clone(draw_key), problem.start, everything, True, 1.0)
        return map_selected(lambda m, w: w, everything, squares(everything, roots))

    def thresholds(drawn: PyTree) -> Array:
        return percentile_thresholds(drawn, jnp.asarray(settings.percentiles))

    def best_weight(mask: PyTree) -> tuple[Array, Array]:
        losses = jax.lax.map(
            lambda weight: problem.objective(with_weight(weight, mask, params), state), shared
        )
        losses = jnp.where(jnp.isnan(losses), jnp.inf, losses)
        return losses.min(), shared[losses.argmin()]

    def judge(draw_key: Array) -> tuple[Array, Array]:
        drawn = values(draw_key)
        return jax.lax.map(lambda xi: best_weight(threshold_mask(drawn, xi)), thresholds(drawn))

    losses, best_weights = jax.lax.map(judge, draw_keys)
    best = losses.argmin()
    draw, percentile = jnp.divmod(best, len(settings.percentiles))
    drawn = values(draw_keys[draw])
    mask = threshold_mask(drawn, thresholds(drawn)[percentile])
    info = {
        "candidates": losses,
        "percentile": jnp.asarray(settings.percentiles, jnp.float32)[percentile],
        "ties": jnp.sum(losses == losses.min()) - 1,
    }
    records = (SharedWeight(best_weights.reshape(-1)[best]),)
    return Network(weight_free(mask, params), mask, state, records=records, info=TrainingInfo(info))

"""A sigmoid mask that becomes a step function while weights are trained under it."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import check_one_finite, check_one_positive, check_one_strength
from jaxarch._internal.trees import PyTree, Where, map_selected, matrices, select_floating
from jaxarch.masks import apply_mask, hard_mask
from jaxarch.run._descent import DescentChanges
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.search._scored import at_step, check_at_steps, descent_of, network_of, remarks, targets_of, total
from jaxarch.search._within import WITHIN_A_MASK, mask_before, within
from jaxarch.transforms._densities import Densities


@dataclasses.dataclass(frozen=True)
class Settings:
    """Targets, the inverse temperature, where scores start, and the penalty."""

    targets: tuple[float, ...] | None
    beta: ArrayLike | optax.Schedule
    start: ArrayLike
    strength: ArrayLike
    where: Where


class Fixed(NamedTuple):
    """Fixed parts of the state: the mask that the weights had before, and the total number of steps."""

    mask: PyTree
    steps: Array


@method("P. Savarese, H. Silva and M. Maire, 2020", densities=0.5)
def continuous_sparsification(
    densities: Densities | None = None,
    *,
    beta: ArrayLike | optax.Schedule = 200.0,
    start: ArrayLike = 0.0,
    strength: ArrayLike = 1e-3,
    where: Where = matrices,
    scores_optimizer: optax.GradientTransformation | None = None,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Learn a mask that hardens as training goes on, together with the weights (continuous sparsification).

    Step t of T descends on

        L(sigma(beta_t s) o w) + strength sum sigma(beta_t s),    beta_t = beta^(t / T),

    in scores s, one per connection, and weights w; the mask is `1[s > 0]` after the last step. P. Savarese,
    H. Silva and M. Maire, Winning the lottery with continuous sparsification, 2020.

    Departures from the published method: beta grows with every step (in the authors' code, with every epoch).
    There is one round, without rewinding (`chain(..., retrain("cold", nonnegative=False))` trains a ticket).
    The mask is not divided by its first value `sigma(s_0)`; the authors' code divides it, the paper does not.

    Args:
      densities: targets in (0, 1], `round(d D)` of the D connections each, those of the largest s at the end
        of one training. For several, the search returns the smallest, and `at_density` selects the others. By
        default the mask is the method's own, `1[s > 0]`, whatever its density.
      beta: the inverse temperature that is reached at the end, positive, or a function of the step, an optax
        schedule, for beta_t. May be traced, like all numbers but densities.
      start: s_0, the initial value of all scores. In the paper it is between -.3 and .3. The smaller it is,
        the fewer connections are left.
      strength: lambda, at least 0, of the penalty, a sum over connections. In the paper it is 1e-8, with SGD
        over tens of thousands of steps on millions of weights. The default is for a thousand steps of Adam:
        at a learning rate of .01 it leaves 2 or 3% of a network of 64, 100 and 10 neurons on digits; 1e-8
        leaves half of it.
      where: the leaves that are masked, by path. The others are trained as well.
      scores_optimizer: any optax transformation for the scores; by default one optimizer trains everything.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search; after another stage, one from its weights and within its mask. The weights found are w. Its
      `info` has `own_density`, the density of the mask `1[s > 0]`.

    Raises:
      ArgumentError: a density outside (0, 1], or none; a beta that is not positive, at the first step or the
        last; a start that is not finite; a strength that is negative or not finite.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.continuous_sparsification((0.5, 0.25))(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), sorted(network[jaxarch.ByDensity].masks))
      0.25 ['0.25', '0.5']
    """
    check_at_steps("beta", beta, check_one_positive, 0)
    check_one_finite("start", start)
    check_one_strength("strength", strength)
    return Training(
        "continuous sparsification",
        _init,
        _params,
        _network,
        Settings(targets_of(densities), beta, start, strength, where),
        descent_of(descent, scores_optimizer),
        penalty=_penalty,
        remedy="the initial mask keeps too little: take a larger `start`, or start from other weights",
        remarks=remarks,
        needs=WITHIN_A_MASK,
    )


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    check_at_steps("beta", settings.beta, check_one_positive, problem.descent.steps)
    params, model = problem.start(key) if network is None else (network.params, network.state)
    selected = select_floating(params, settings.where)
    scores = map_selected(lambda leaf: jnp.full(leaf.shape, settings.start, jnp.float32), selected)
    fixed = Fixed(mask_before(network), jnp.asarray(problem.descent.steps, jnp.float32))
    return TrainState({"scores": scores, "weights": params}, fixed, model)


def _soft(settings: Settings, state: TrainState) -> PyTree:
    """Return the mask of a step."""
    if callable(settings.beta):
        beta = at_step(settings.beta, state.step)
    else:
        beta = jnp.asarray(settings.beta, jnp.float32) ** (
            jnp.asarray(state.step, jnp.float32) / state.fixed.steps
        )
    return map_selected(lambda leaf: jax.nn.sigmoid(beta * leaf), state.trainable["scores"])


def _params(settings: Settings, state: TrainState) -> PyTree:
    return apply_mask(within(_soft(settings, state), state.fixed.mask), state.trainable["weights"])


def _penalty(settings: Settings, state: TrainState) -> Array:
    return jnp.asarray(settings.strength) * total(_soft(settings, state))


def _network(settings: Settings, state: TrainState) -> Network:
    scores, weights = state.trainable["scores"], state.trainable["weights"]
    own = hard_mask(scores)
    return network_of(settings.targets, scores, own, weights, state.fixed.mask, state.model, {})

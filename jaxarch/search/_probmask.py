"""ProbMask: probabilities of connections, learned with the weights under a bound on their sum."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import check_count, check_one_positive
from jaxarch._internal.trees import PyTree, Where, map_selected, matrices, select_floating
from jaxarch.masks import apply_mask, check_density, full_mask
from jaxarch.masks._keeping import largest_scores
from jaxarch.run._descent import DescentChanges, value_at
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.run._training_info import TrainingInfo
from jaxarch.search._changing import check_span
from jaxarch.search._scored import descent_of, logistic_noise, total
from jaxarch.search._within import WITHIN_A_MASK, mask_before, within
from jaxarch.transforms._densities import layers_emptied

HALVINGS = 30
"""Steps of the bisection, which resolve a float32 in [0, 1]."""
LEAST = 1e-6
"""Added to probabilities, so that their logit is finite, and a probability of 0 or 1 has a gradient.

XLA turns `1 - s + c` into `(1 + c) - s`, so c must be above the spacing of float32 at 1, which is 1.2e-7.
"""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The density and when it falls, the final temperature, and the masked leaves."""

    density: ArrayLike
    begin: float
    end: float
    temperature: ArrayLike
    where: Where


class Fixed(NamedTuple):
    """Fixed parts of the state: the mask that the weights had before, the key of all noise, and the steps."""

    mask: PyTree
    key: Array
    steps: Array


@method("X. Zhou et al., 2021")
def probmask(
    density: ArrayLike = 0.1,
    *,
    begin: float = 0.16,
    end: float = 0.6,
    temperature: ArrayLike = 0.03,
    samples: int = 2,
    where: Where = matrices,
    scores_optimizer: optax.GradientTransformation | None = None,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Learn a probability for each connection, with the weights, under a bound on the sum of all of them.

    With `s`, one per connection, and u uniform in (0, 1), drawn anew for each sample, the network computes
    with `m o w`,

        m = sigma((log s - log(1 - s) + log u - log(1 - u)) / tau_t),

    which tends to a mask that keeps each connection with probability s. A step descends on the mean loss of
    some samples. Then s goes to the nearest point of `{s in [0, 1]^D, sum s <= d_t D}`. This is
    `clip(s - v, 0, 1)`, with the smallest v of at least 0 that fits, found by bisection. The bound falls from
    D to `d D` between the steps t_0 and t_1,

        d_t = d + (1 - d) (1 - (t - t_0) / (t_1 - t_0))^3,

    and `tau_t` falls linearly from 1. At first all s are 1. X. Zhou, W. Zhang, H. Xu and T. Zhang, Effective
    sparsification of neural networks with global sparsity constraint, 2021.

    Departures from the published method: the mask keeps the largest s. The authors draw ten masks, and train
    the best of them on; here `retrain("warm", nonnegative=False)` does. d_t and tau_t change with every step,
    theirs with every epoch. The logit of s adds 1e-6 to s and 1 - s, theirs 1e-20. So s has a gradient at 1;
    in float32 theirs has none before d_t falls. The norm of gradients is not bounded by 3, as in their code;
    `optax.clip_by_global_norm` does that.

    Args:
      density: d, the share of connections to keep, in (0, 1]. May be traced: a sweep is one program.
      begin: t_0, as a share of the training's steps, in [0, 1).
      end: t_1, as a share of the steps, more than `begin`.
      temperature: the value of tau that is reached at the end, positive. May be traced.
      samples: how many samples of the mask a step takes. Each costs a gradient of the batch.
      where: the leaves that are masked, by path. The others are trained as well.
      scores_optimizer: any optax transformation for s; by default one optimizer trains everything. The
        authors have Adam at 6e-3 for s, and SGD at .1 with a momentum of .9 for weights, over 300 epochs.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search; after another stage, one from its weights and within its mask. Its mask keeps exactly
      `round(d D)` of the D connections (in float32 if the density is traced), or all earlier ones, if these
      are fewer. Its `info` has the `probabilities`, s.

    Raises:
      ArgumentError: a density outside (0, 1], shares that are not `0 <= begin < end < 1`, a temperature that
        is not positive, samples that are not a positive integer.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=9)
      >>> network = jaxarch.search.probmask(0.25)(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), network.info["loss"].shape)
      0.25 (9,)
    """
    check_density("density", density)
    check_span(begin, end)
    check_one_positive("temperature", temperature)
    check_count("samples", samples)
    return Training(
        "ProbMask",
        _init,
        _params,
        _network,
        Settings(density, begin, end, temperature, where),
        descent_of(descent, scores_optimizer),
        wrap_optimizer=_wrap_optimizer,
        remedy="start from other weights",
        remarks=layers_emptied,
        needs=WITHIN_A_MASK,
        samples=samples,
    )


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    params_key, noise_key = jax.random.split(key)
    params, model = problem.start(params_key) if network is None else (network.params, network.state)
    before = mask_before(network)
    there = within(full_mask(select_floating(params, settings.where)), before)
    probabilities = map_selected(lambda leaf: leaf.astype(jnp.float32), there)
    fixed = Fixed(before, noise_key, jnp.asarray(problem.descent.steps, jnp.float32))
    return TrainState({"scores": probabilities, "weights": params}, fixed, model)


def _params(settings: Settings, state: TrainState) -> PyTree:
    scores = state.trainable["scores"]
    key = jax.random.fold_in(state.fixed.key, state.step)
    noise = logistic_noise(key if state.sample is None else jax.random.fold_in(key, state.sample), scores)
    done = jnp.asarray(state.step, jnp.float32) / state.fixed.steps
    tau = 1 - (1 - jnp.asarray(settings.temperature, jnp.float32)) * done

    def gate(leaf: Array, drawn: Array) -> Array:
        return jax.nn.sigmoid((jnp.log(leaf + LEAST) - jnp.log(1 - leaf + LEAST) + drawn) / tau)

    return apply_mask(within(map_selected(gate, scores, noise), state.fixed.mask), state.trainable["weights"])


def _wrap_optimizer(
    settings: Settings, key: Array, problem: Problem, state: TrainState
) -> optax.GradientTransformation:
    steps = problem.descent.steps
    first, last = round(settings.begin * steps), round(settings.end * steps)
    density = optax.polynomial_schedule(1.0, settings.density, 3, max(last - first, 1), first)
    share = jnp.asarray(value_at(density, jnp.asarray(state.step, jnp.int32) + 1), jnp.float32)
    # `on` gives each of the two trees its optimizer, in a transformation that takes the step.
    inner = optax.with_extra_args_support(problem.descent.optimizer)

    def update(
        gradients: PyTree, inside: PyTree, params: PyTree = None, *, step: Any = None, **extra: Any
    ) -> tuple[PyTree, PyTree]:
        updates, inside = inner.update(gradients, inside, params, step=step, **extra)
        before = params["scores"]
        after = _projected(optax.apply_updates(before, updates["scores"]), share)
        # Both lie in [0, 1]. There, adding their difference cannot lead out of it by rounding.
        moved = jax.tree.map(lambda new, old: new - old, after, before)
        return {**updates, "scores": moved}, inside

    return optax.GradientTransformationExtraArgs(inner.init, update)


def _projected(scores: PyTree, share: Array) -> PyTree:
    """Return the nearest point of `[0, 1]^D` whose mean is at most `share`."""
    size = share * sum(leaf.size for leaf in jax.tree.leaves(scores))

    def clipped(shift: ArrayLike) -> PyTree:
        return map_selected(lambda leaf: jnp.clip(leaf - shift, 0, 1), scores)

    def halve(_: Any, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        fits = total(clipped(middle)) <= size
        return jnp.where(fits, low, middle), jnp.where(fits, middle, high)

    largest = jnp.stack([jnp.max(leaf, initial=0) for leaf in jax.tree.leaves(scores)]).max()
    _, shift = jax.lax.fori_loop(0, HALVINGS, halve, (jnp.zeros_like(largest), largest))
    # If no shift is needed, this one is as small as the bisection resolves.
    return clipped(shift)


def _network(settings: Settings, state: TrainState) -> Network:
    scores, weights = state.trainable["scores"], state.trainable["weights"]
    mask = largest_scores(scores, settings.density, before=state.fixed.mask)
    info = TrainingInfo({"probabilities": scores})
    return Network(apply_mask(mask, weights), mask, state.model, info=info)

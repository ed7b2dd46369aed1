"""Algorithm 1 of [D]: a mask learned by gradient descent on its scores, the weights held fixed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import (
    ArgumentError,
    check_choice,
    check_flag,
    check_one_finite,
    check_one_number,
    check_one_positive,
    check_one_strength,
    is_choice,
    is_traced,
    shown,
)
from jaxarch._internal.trees import PyTree, Where, matrices, merge, select, select_floating, unselected
from jaxarch.masks import (
    apply_mask,
    check_clip,
    check_density,
    check_temperatures,
    clip_scores,
    init_scores,
    soft_mask,
    weight_free,
)
from jaxarch.masks._units import Connections, GroupUnits, NOfM, Units, UnitsLike
from jaxarch.optim import clip_scores as clipping
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import Start
from jaxarch.run._training import Training, TrainState
from jaxarch.run._training_info import TrainingInfo
from jaxarch.search._scored import at_step, check_at_steps
from jaxarch.search._units import check_units, needs_of, units_of
from jaxarch.search._within import WITHIN_A_MASK, mask_before, within
from jaxarch.theory.optimality import duality_gap
from jaxarch.transforms._densities import layers_emptied

Weights = Literal["ones", "initial"] | Callable[[Array, PyTree], PyTree]
Penalty = Callable[[PyTree], Array]
"""A function of the mask, numbers in [0, 1] in the structure of the masked leaves."""


REMEDY = (
    "the initial mask saturates the network or keeps too little, or the weights under it are 0: move `mean` "
    "(in units of 1/hard) away from 0, lower `std`, or choose other leaves with `where`"
)
REMEDY_OF_UNITS = (
    "the initial mask keeps too little, or all units of a layer are equal, as with weights of 1: start with "
    "weights='initial', mean=2.0, std=1.0, for instance"
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Temperatures, the fixed weights, and the distribution of the initial scores."""

    hard: ArrayLike | optax.Schedule
    soft: ArrayLike
    weights: Weights
    where: Where
    mean: ArrayLike
    std: ArrayLike
    scale: Literal["1/hard", "absolute"]
    factor: bool
    units: tuple[str, ...] | Units
    density: ArrayLike | None
    clip: ArrayLike | None
    penalty: Penalty | None


class Fixed(NamedTuple):
    """Fixed parts of the state: weights, their mask before, units of scores, `()` if no stage came before."""

    weights: PyTree
    mask: PyTree
    units: Units
    first: tuple[()] | None


@method("[D] Algorithm 1")
def two_temperature(
    hard: ArrayLike | optax.Schedule = 50.0,
    soft: ArrayLike = 5.0,
    *,
    weights: Weights = "ones",
    where: Where = matrices,
    mean: ArrayLike = -10.0,
    std: ArrayLike = 5.0,
    scale: Literal["1/hard", "absolute"] = "1/hard",
    factor: bool = True,
    units: UnitsLike = None,
    density: ArrayLike | None = None,
    clip: ArrayLike | None = None,
    penalty: Penalty | None = None,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Learn which connections to keep, and nothing else ([D] Algorithm 1).

    The network computes with `sigma(hard w) o theta`, theta fixed; the scores w descend along
    `grad_v f(v) o dsigma_soft(w)` ([D] eq. 5). The search returns the network `1[w > 0] o theta`: with
    `weights="ones"` it has no weights at all.

    Args:
      hard: inverse temperature of the forward pass, positive; or a function of the step, an optax schedule. A
        growing schedule, such as `optax.exponential_decay(1.0, 2400, 50.0, end_value=50.0)`, begins with
        masks far from 0 and 1 and ends with nearly binary ones: less is lost when the scores are thresholded.
        May be traced, like all numbers here.
      soft: inverse temperature of the gradient, positive, at most `hard` at every step. [D] uses 50 and 5.
      weights: theta. `ones` for weight-free networks, `initial` for the problem's initial parameters, or a
        function `(key, selected) -> values` in the structure of the masked leaves.
      where: which leaves are masked, by path: a predicate on (path, leaf) or glob patterns. By default
        kernels but neither biases nor norm scales. Leaves that are not masked keep their initial values.
      mean: mean of the initial scores.
      std: standard deviation of the initial scores. The default is N(-.2, .1) at `hard=50`. Centered on 0,
        the initial mask of the network of [D] saturates it on non-negative inputs, and no gradient is left.
      scale: whether `mean` and `std` are absolute, or multiples of `1/hard` at the first step. In the latter
        case the distribution of the initial *mask* is the same at every temperature.
      factor: whether the gradient carries the factor `soft` (see `masks.two_temperature`).
      units: connections to keep or remove together (see `masks.keep`): `neurons`, `channels` or `heads` of
        the problem's model, or several of them, `("heads", "neurons")`; `Groups.units`; `(4, 4)`; `"2:4"`.
        Each unit has one score w, and a connection has the product of the masks of its units. Begin with
        `weights="initial", mean=2.0, std=1.0`, for instance: at the default `mean` hardly a unit is there,
        and under weights of 1 all units of a layer are alike. A group whose scores are all negative is
        removed as a whole. For the gradient of N:M see `masks.NOfM`.
      density: d in (0, 1], for a network of a given size: the `round(d D)` largest scores are kept, whatever
        their signs, instead of the positive ones. The loss does not depend on it: begin with about as many,
        `mean=scipy.stats.norm.ppf(d), std=1.0`. May be traced.
      clip: eps in (0, 1/2), to keep the mask within [eps, 1 - eps]: the scores begin and stay where
        `|hard w| <= log((1 - eps)/eps)` (see `optim.clip_scores`). May be traced. It excludes a `density` and
        N:M, which would have to choose among scores that are clipped alike.
      penalty: a function of the mask, numbers in [0, 1] in the structure of the masked leaves, that is added
        to the loss. For a mask with a short description, use `lambda mask: 3 * relaxed_length(mask) / n`
        (`theory.generalization.relaxed_length`). Define it at the top of a module: trainings of equal
        settings compile once.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search; after another stage, one over the weights that it found. Its `Start` has theta, if these are
      not all 1 and no stage came before; its `info` has `scores`, the final scores.

    Raises:
      ArgumentError: temperatures that are not positive, soft > hard, an unknown `weights` or `scale`; units
        that are not understood, or that the model does not have; a density outside (0, 1]; a clip outside
        (0, 1/2), or combined with an option that compares scores.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.two_temperature()(jax.random.key(0), problem)
      >>> mask, scores = network.mask["W2_1"], network.info["scores"]["W2_1"]
      >>> print((mask == (scores > 0)).all(), (network.params["W2_1"] == mask).all())  # its weights are all 1
      True True
    """
    check_one_number("soft", soft)
    _check_hard(hard, soft, 0)
    if penalty is not None and not callable(penalty):
        raise ArgumentError(f"penalty: expected a function of the mask, got {shown(penalty)}")
    check_one_finite("mean", mean)
    check_one_strength("std", std)
    check_flag("factor", factor)
    if not callable(weights) and not is_choice(weights, ("ones", "initial")):
        raise ArgumentError(f"weights: expected 'ones', 'initial' or a function, got {shown(weights)}")
    check_choice("scale", scale, ("1/hard", "absolute"))
    together = check_units(units)
    if density is not None:
        check_density("density", density)
    if clip is not None:
        check_clip(clip)
        if density is not None or isinstance(together, NOfM):
            ranked = "a density" if density is not None else "N:M"
            raise ArgumentError(
                f"clip: clipped scores are equal, so {ranked} cannot rank them; leave out clip or {ranked}"
            )
    return Training(
        "two_temperature",
        _init,
        _params,
        _network,
        Settings(hard, soft, weights, where, mean, std, scale, factor, together, density, clip, penalty),
        own_descent(descent),
        penalty=None if penalty is None else _penalty,
        wrap_optimizer=None if clip is None else _wrap_optimizer,
        gap=None if isinstance(together, NOfM) else _gap,
        remedy=REMEDY if isinstance(together, Connections) else REMEDY_OF_UNITS,
        needs=needs_of(together, WITHIN_A_MASK),
        remarks=layers_emptied,
    )


def _check_hard(hard: ArrayLike | optax.Schedule, soft: ArrayLike, step: int | Array) -> None:
    """Raise unless `hard` is positive and at least `soft`, as a number or at all steps up to `step`."""

    def check(name: str, value: ArrayLike) -> None:
        check_one_positive(name, value)
        check_temperatures(value, soft)

    if is_traced(step):
        return
    check_at_steps("hard", hard, check, int(step))
    if callable(hard) and not is_traced(soft):
        with jax.ensure_compile_time_eval():
            values = jax.vmap(lambda t: at_step(hard, t))(jnp.arange(int(step) + 1))
        if not is_traced(values):
            lowest = int(np.asarray(values).argmin())
            check(f"hard at step {lowest}", np.asarray(values)[lowest].item())


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    _check_hard(settings.hard, settings.soft, problem.descent.steps)
    params_key, scores_key, weights_key = jax.random.split(key, 3)
    params, model = problem.start(params_key) if network is None else (network.params, network.state)
    selected = select_floating(params, settings.where)
    units = units_of(settings.units, problem, params, model, selected)
    first = _hard(settings, 0)
    unit = first if settings.scale == "1/hard" else None
    scores = init_scores(scores_key, units.score(selected), settings.mean, settings.std, unit)
    if settings.clip is not None:
        scores = clip_scores(scores, settings.clip, first)
    if callable(settings.weights):
        params = merge(settings.weights(weights_key, selected), params)
    fixed = Fixed(params, mask_before(network), units, () if network is None else None)
    return TrainState(scores, fixed, model)


def _wrap_optimizer(
    settings: Settings, key: Array, problem: Problem, state: TrainState
) -> optax.GradientTransformation:
    assert settings.clip is not None
    return optax.chain(problem.descent.optimizer, clipping(settings.clip, _hard(settings, state.step + 1)))


def _params(settings: Settings, state: TrainState) -> PyTree:
    return of_mask(settings, state, _soft(settings, state))


def _hard(settings: Settings, step: int | Array) -> ArrayLike:
    """Return the hard temperature of a step."""
    return at_step(settings.hard, step) if callable(settings.hard) else settings.hard


def _soft(settings: Settings, state: TrainState) -> PyTree:
    """Return the mask of a step, one number per score."""
    centred = state.fixed.units.centred(state.trainable)
    hard = _hard(settings, state.step)
    return soft_mask(centred, hard, settings.soft, factor=settings.factor)


def _penalty(settings: Settings, state: TrainState) -> Array:
    return _priced(settings, state, _soft(settings, state))


def _priced(settings: Settings, state: TrainState, mask: PyTree) -> Array:
    """Return the penalty of numbers in [0, 1], one per score; 0 without a penalty."""
    if settings.penalty is None:
        return jnp.zeros(())
    weights, before, units, _ = state.fixed
    value = settings.penalty(within(units.spread(mask, weights), before))
    if not isinstance(value, Array | float | int) or jnp.shape(value):
        raise ArgumentError(f"penalty: expected a function that returns one number, got {shown(value)}")
    return jnp.asarray(value)


def _gap(settings: Settings, state: TrainState, problem: Problem) -> Array:
    mask = soft_mask(state.trainable, _hard(settings, state.step), settings.soft)

    def objective(mask: PyTree) -> Array:
        return problem.objective(of_mask(settings, state, mask), state.model) + _priced(settings, state, mask)

    return duality_gap(mask, jax.grad(objective)(mask))


def of_mask(settings: Settings, state: TrainState, mask: PyTree) -> PyTree:
    """Return the parameters under numbers in [0, 1], one per score."""
    weights, before, units, _ = state.fixed
    return _masked(settings, within(units.spread(mask, weights), before), state)


def _network(settings: Settings, state: TrainState) -> Network:
    weights, before, units, first = state.fixed
    scores = state.trainable
    if settings.density is None:
        found = units.hard(scores)
    else:
        found = units.largest(scores, units.counts(scores, settings.density))
    mask = within(units.spread(found, weights), before)
    records = () if first is None or settings.weights == "ones" else (Start(weights),)
    info = TrainingInfo({"scores": state.trainable})
    return Network(_masked(settings, mask, state), mask, state.model, records=records, info=info)


def _masked(settings: Settings, mask: PyTree, state: TrainState) -> PyTree:
    """Return the fixed weights under a mask, or the mask alone."""
    weights, _, units, _ = state.fixed
    if settings.weights != "ones":
        return apply_mask(mask, weights)
    if not isinstance(units, GroupUnits):
        return weight_free(mask, weights)
    # Biases and scales are removed with their units, but are not connections, whose weights would be 1.
    beside = unselected(select(weights, settings.where), mask)
    return weight_free(unselected(beside, mask), apply_mask(beside, weights))

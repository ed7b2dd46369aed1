"""Algorithm 1 of [D]: a mask learned by gradient descent on its scores, the weights held fixed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Unpack

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
from jaxarch._internal.trees import PyTree, Where, map_selected, matrices, select, select_floating, unselected
from jaxarch.masks import (
    Scope,
    apply_mask,
    check_clip,
    check_density,
    check_scope,
    check_temperatures,
    clip_scores,
    init_scores,
    soft_mask,
    weight_free,
)
from jaxarch.masks._keeping import masked_before
from jaxarch.masks._sized import size_thresholds, sized
from jaxarch.masks._units import Connections, GroupUnits, NOfM, Units, UnitsLike
from jaxarch.optim import clip_scores as clipping
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import Start
from jaxarch.run._training import Training, TrainState
from jaxarch.run._training_info import TrainingInfo
from jaxarch.search._fixed_weights import Function, check_weights, fixed_weights, rescaled
from jaxarch.search._scored import at_step, check_at_steps
from jaxarch.search._units import check_units, needs_of, units_of
from jaxarch.search._within import WITHIN_A_MASK, mask_before, within
from jaxarch.theory.optimality import duality_gap
from jaxarch.transforms._densities import layers_emptied

Weights = Literal["ones", "initial", "signed constant"] | Function
Penalty = Callable[[PyTree], Array]
"""A function of the mask, numbers in [0, 1] in the structure of the masked leaves."""


REMEDY = (
    "the initial mask saturates the network or keeps too little, or the weights under it are 0: move `mean` "
    "(in units of 1/hard) away from 0, lower `std`, or choose other leaves with `where`"
)
REMEDY_OF_A_SIZE = (
    "a mask of this size saturates the network or leaves no path through it, or the weights under it are 0: "
    "give weights='signed constant' and rescale=True, another `density`, or scope='erk'"
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
    rescale: bool
    where: Where
    mean: ArrayLike
    std: ArrayLike
    scale: Literal["1/hard", "absolute"]
    factor: bool
    units: tuple[str, ...] | Units
    density: ArrayLike | None
    scope: Scope
    clip: ArrayLike | None
    penalty: Penalty | None


class Fixed(NamedTuple):
    """Fixed parts of the state.

    Attributes:
      weights: theta, and the leaves that are not masked.
      mask: the mask of an earlier stage; `None` without.
      left: booleans: the units that this mask left; `None` without.
      units: units of the scores.
      first: `()` if no stage came before.
    """

    weights: PyTree
    mask: PyTree
    left: PyTree
    units: Units
    first: tuple[()] | None


@method("[D] Algorithm 1")
def two_temperature(
    hard: ArrayLike | optax.Schedule = 50.0,
    soft: ArrayLike = 5.0,
    *,
    weights: Weights = "ones",
    rescale: bool = False,
    where: Where = matrices,
    mean: ArrayLike = -10.0,
    std: ArrayLike = 5.0,
    scale: Literal["1/hard", "absolute"] = "1/hard",
    factor: bool = True,
    units: UnitsLike = None,
    density: ArrayLike | None = None,
    scope: Scope = "global",
    clip: ArrayLike | None = None,
    penalty: Penalty | None = None,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Learn which connections to keep, and nothing else ([D] Algorithm 1).

    The network computes with `sigma(hard w) o theta`, theta fixed; the scores w descend along
    `grad_v f(v) o dsigma_soft(w)` ([D] eq. 5). The search returns the network `1[w > 0] o theta`: with
    `weights="ones"` it has no weights at all.

    A `density` holds the size during the search: the mask is `masks.sized_mask`, whose numbers sum to
    `round(d D)` at every step. [D] has no size in the loss: its masks drift to about half of all connections,
    and lose most of what they learned when they are ranked down to a few. Take weights that suit the size,
    and a learning rate that falls to 0:

        jaxarch.search.two_temperature(
            density=0.02,
            weights="signed constant",
            rescale=True,
            optimizer=optax.adam(optax.cosine_decay_schedule(0.04, steps)),
            steps=steps,
        )

    Adam moves a score by about its learning rate a step, and a mask changes over scores of the width 1/hard.
    So .04 crosses the width twice a step at `hard=50`; `hard` and the rate may change together.

    Args:
      hard: inverse temperature of the forward pass, positive; or a function of the step, an optax schedule. A
        growing schedule, such as `optax.exponential_decay(1.0, 2400, 50.0, end_value=50.0)`, begins with
        masks far from 0 and 1 and ends with nearly binary ones: less is lost when the scores are thresholded.
        May be traced, like all numbers here.
      soft: inverse temperature of the gradient, positive, at most `hard` at every step. [D] uses 50 and 5.
      weights: theta. `ones` for weight-free networks, `initial` for the problem's initial parameters, `signed
        constant` for their signs times `sqrt(2/n)` (see `edge_popup`), or a function `(key, selected) ->
        values` in the structure of the masked leaves.
      rescale: whether theta is divided by the square root of the density, so that sums over the kept share of
        a neuron's inputs vary as sums over all of them would. It needs a `density`, or N:M, and weights that
        are not all 1.
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
      density: d in (0, 1], for a network of a given size. The mask of every step sums to `round(d D)`, and
        the `round(d D)` largest scores are kept at the end, whatever their signs. The `mean` of the scores
        then does not matter. May be traced.
      scope: how the kept connections, or units, spread over leaves: `global`, wherever the largest scores
        are; `layer`, the same density in every leaf; `erk` (see `masks.keep`). With few connections a
        layer may starve under `global`, and `erk` holds it. But where that density is 1, nothing is chosen.
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
      ArgumentError: temperatures that are not positive, soft > hard, an unknown `weights`, `scale` or
        `scope`; units that are not understood, or that the model does not have; a density outside (0, 1]; a
        `scope` or `rescale` without a size; a clip outside (0, 1/2), or combined with an option that compares
        scores.

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
    check_weights(weights, "ones", "initial", "signed constant")
    check_choice("scale", scale, ("1/hard", "absolute"))
    together = check_units(units)
    _check_size(together, density, scope, clip, rescale=rescale, ones=is_choice(weights, ("ones",)))
    is_sized = density is not None and not isinstance(together, NOfM)
    return Training(
        "two_temperature",
        _init,
        _params,
        _network,
        Settings(
            hard,
            soft,
            weights,
            rescale,
            where,
            mean,
            std,
            scale,
            factor,
            together,
            density,
            scope,
            clip,
            penalty,
        ),
        own_descent(descent),
        penalty=None if penalty is None else _penalty,
        after_step=_thresholds if is_sized else None,
        wrap_optimizer=None if clip is None else _wrap_optimizer,
        gap=None if isinstance(together, NOfM) else _gap,
        remedy=_remedy(together, density),
        needs=needs_of(together, WITHIN_A_MASK),
        remarks=layers_emptied,
    )


def _remedy(units: tuple[str, ...] | Units, density: ArrayLike | None) -> str:
    """Return a remedy for a start without a gradient: with a size, the scores' mean changes nothing."""
    if not isinstance(units, Connections):
        return REMEDY_OF_UNITS
    return REMEDY if density is None else REMEDY_OF_A_SIZE


def _check_size(
    units: tuple[str, ...] | Units,
    density: ArrayLike | None,
    scope: Scope,
    clip: ArrayLike | None,
    *,
    rescale: bool,
    ones: bool,
) -> None:
    """Raise unless the options of a network's size fit each other."""
    check_scope(scope)
    check_flag("rescale", rescale)
    ranked = "a density" if density is not None else "N:M" if isinstance(units, NOfM) else ""
    if density is not None:
        check_density("density", density)
    elif scope != "global":
        raise ArgumentError(f"scope: {shown(scope)} spreads a density over leaves; give a density")
    if rescale and ones:
        raise ArgumentError("rescale: weights of 1 have no size to change; give weights='signed constant'")
    if rescale and not ranked:
        raise ArgumentError("rescale: it divides weights by the root of a density; give a density")
    if clip is not None:
        check_clip(clip)
        if ranked:
            raise ArgumentError(
                f"clip: clipped scores are equal, so {ranked} cannot rank them; leave out clip or {ranked}"
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
    params = fixed_weights(settings.weights, weights_key, params, selected)
    if settings.rescale:
        params = rescaled(params, selected, _density(settings, units), settings.scope)
    before = mask_before(network)
    left = None if before is None else units.score_within(selected, masked_before(selected, before))[1]
    fixed = Fixed(params, before, left, units, () if network is None else None)
    state = TrainState(scores, fixed, model)
    counts = _counts(settings, state)
    return state if counts is None else state._replace(memory=_thresholds(settings, state))


def _density(settings: Settings, units: Units) -> ArrayLike:
    """Return the share of connections, or units, that is kept."""
    if isinstance(units, NOfM):
        return units.n / units.m
    assert settings.density is not None
    return settings.density


def _counts(settings: Settings, state: TrainState) -> Any:
    """Count the units kept, together or in each leaf, out of those that are left; `None` without a size."""
    left, units = state.fixed.left, state.fixed.units
    if settings.density is None:
        return None
    counts = units.counts(state.trainable, settings.density, settings.scope)
    if left is None or counts is None:
        return counts
    there = [jnp.sum(leaf) for leaf in jax.tree.leaves(left)]
    return jnp.minimum(counts, jnp.stack(there) if np.ndim(counts) else jnp.sum(jnp.stack(there)))


def _among(state: TrainState) -> PyTree:
    """Return the scores, -inf for units that an earlier mask has removed."""
    left = state.fixed.left
    if left is None:
        return state.trainable
    return map_selected(lambda w, there: jnp.where(there, w, -jnp.inf), state.trainable, left)


def _thresholds(settings: Settings, state: TrainState) -> Array:
    """Return the thresholds of a mask of its size; the search for the next step's begins at them."""
    hard = _hard(settings, state.step)
    return size_thresholds(_among(state), _counts(settings, state), hard, state.memory)


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
    hard, counts = _hard(settings, state.step), _counts(settings, state)
    if counts is not None:
        return sized(_among(state), counts, hard, settings.soft, state.memory, factor=settings.factor)
    centred = state.fixed.units.centred(state.trainable)
    return soft_mask(centred, hard, settings.soft, factor=settings.factor)


def _penalty(settings: Settings, state: TrainState) -> Array:
    return _priced(settings, state, _soft(settings, state))


def _priced(settings: Settings, state: TrainState, mask: PyTree) -> Array:
    """Return the penalty of numbers in [0, 1], one per score; 0 without a penalty."""
    if settings.penalty is None:
        return jnp.zeros(())
    fixed = state.fixed
    value = settings.penalty(within(fixed.units.spread(mask, fixed.weights), fixed.mask))
    if not isinstance(value, Array | float | int) or jnp.shape(value):
        raise ArgumentError(f"penalty: expected a function that returns one number, got {shown(value)}")
    return jnp.asarray(value)


def _gap(settings: Settings, state: TrainState, problem: Problem) -> Array:
    mask = _soft(settings, state)

    def objective(mask: PyTree) -> Array:
        return problem.objective(of_mask(settings, state, mask), state.model) + _priced(settings, state, mask)

    return duality_gap(mask, jax.grad(objective)(mask), _counts(settings, state), state.fixed.left)


def of_mask(settings: Settings, state: TrainState, mask: PyTree) -> PyTree:
    """Return the parameters under numbers in [0, 1], one per score."""
    fixed = state.fixed
    return _masked(settings, within(fixed.units.spread(mask, fixed.weights), fixed.mask), state)


def _network(settings: Settings, state: TrainState) -> Network:
    weights, before, left, units, first = state.fixed
    scores = state.trainable
    if settings.density is None:
        found = units.hard(scores)
    else:
        found = units.largest(scores, _counts(settings, state), left)
    mask = within(units.spread(found, weights), before)
    records = () if first is None or settings.weights == "ones" else (Start(weights),)
    info = TrainingInfo({"scores": scores})
    return Network(_masked(settings, mask, state), mask, state.model, records=records, info=info)


def _masked(settings: Settings, mask: PyTree, state: TrainState) -> PyTree:
    """Return the fixed weights under a mask, or the mask alone."""
    weights = state.fixed.weights
    if settings.weights != "ones":
        return apply_mask(mask, weights)
    if not isinstance(state.fixed.units, GroupUnits):
        return weight_free(mask, weights)
    # Biases and scales are removed with their units, but are not connections, whose weights would be 1.
    beside = unselected(select(weights, settings.where), mask)
    return weight_free(unselected(beside, mask), apply_mask(beside, weights))

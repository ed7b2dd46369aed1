"""Search settings that theorems prescribe, in one call."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jaxarch._internal.errors import (
    ArgumentError,
    check_count,
    check_flag,
    check_one_finite,
    check_one_key,
    check_one_positive,
    is_traced,
    shown,
)
from jaxarch.certificates._convexity import ROUNDINGS
from jaxarch.certificates._curvature import JUMPS, drawn_mask, look
from jaxarch.certificates._prescription import Line, Prescription
from jaxarch.masks import clip_scores
from jaxarch.masks._units import Connections, NOfM
from jaxarch.run._problem import Problem, check_is_problem
from jaxarch.run._training import Training, TrainState, begin
from jaxarch.search._two_temperature import Settings, of_mask, two_temperature
from jaxarch.theory import mirror
from jaxarch.theory.bounds import gradient_bounds
from jaxarch.theory.optimality import duality_gap

READ_OFF = 16.0
"""The `|hard w|` at which a mask differs from its vertex by one unit in the last place of float32."""
SEGMENTS = 16
"""Number of segments between random masks on which a claim of convexity is checked."""
EVALUATED = "that training computes the loss as evaluation does: no dropout, no batch statistics"


def prescribe(
    search: Training,
    key: Array,
    problem: Problem,
    *,
    convex: bool = False,
    clip: bool = False,
    smoothness: float | None = None,
    gradient_bound: float | None = None,
    lowest: float = 0.0,
    masks: int = 8,
    iterations: int = 20,
    batch_size: int | None = None,
) -> Prescription:
    r"""Prescribe the settings of a search by theorems: temperature ratio, learning rate and clip.

        prescription = jaxarch.prescribe(search, key, problem)
        print(prescription)  # each setting with its theorem, each constant with where it is from
        network, report = jaxarch.over_seeds(prescription.search, keys, problem)

    - *soft*, at most `hard/16`: an entry is then read off within 9% of the time it takes as soft goes to 0
      (`two-temperature.time-to-read-off`). This is an upper limit, not an optimum.
    - *The learning rate* `16/(L hard soft)` of plain gradient descent on all training rows; up to this rate
      no step raises F (`two-temperature.descent`). With `convex=True`, for any batch, it is the rate with the
      smallest bound on the expected loss of the average mask (`two-temperature.average-iterate`); a bound for
      the last mask follows.
    - *A clip*, if F is not convex: the one with the smallest bound on the gap, which measures how far from
      stationary some mask of the descent is (`two-temperature.clipped-descent`). It is prescribed if this
      bound is below the initial gap, and set only with `clip=True`: clipped scores leak, and the mask that is
      read off is another one.

    L, the Lipschitz constant of the gradient of F in the mask, is known for few networks. If it is not given,
    it is estimated by the power method at some masks, and may be larger elsewhere. What follows from it is a
    heuristic, and the result says so. If the gradient jumps, as with ReLU, there is no L, and only the ratio
    is set.

    Args:
      search: a search made by `search.two_temperature`.
      key: a `jax.random.key`: constants are estimated at the search's start with this key, and elsewhere.
      problem: the problem of one run: `problem.of_run(0)` if runs have their own rows.
      convex: whether the loss is convex in the mask, for instance convex in outputs that are linear in it.
      clip: whether to clip the search, if a clip is prescribed.
      smoothness: L, if it is known.
      gradient_bound: G, with `norm(grad_v f) <= G` for every example and mask; used with `convex`. By default
        it is certified by intervals (`theory.bounds.gradient_bounds`).
      lowest: a lower bound of F; used without `convex`.
      masks: the number of masks at which L is estimated.
      iterations: the number of iterations of the power method at each mask.
      batch_size: the number of rows to process at a time, to save memory; by default all.

    Returns:
      A `Prescription`: the settings, the search with them, and a table of the reasons.

    Raises:
      ArgumentError: another search, or one over N:M; a search with its own clip or penalty, or with a
        temperature that is a function of the step; traced temperatures; a problem of many runs, or with
        streamed batches; a loss below `lowest`; a loss that is found not to be convex, or more curved than
        `smoothness`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> model = (lambda key: {"kernel": jnp.ones((2, 1))}, lambda params, x: x @ params["kernel"])
      >>> x, y = jnp.array([[2.0, 0.0], [0.0, 1.0]]), jnp.array([[1.0], [0.0]])
      >>> problem = jaxarch.supervised(
      ...     model, (x, y), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=100
      ... )  # F is v_1^2 - v_1 + v_2^2/4 + 1/4, of curvatures 2 and 1/2
      >>> search = jaxarch.search.two_temperature(mean=0.0, std=1.0)
      >>> prescription = jaxarch.prescribe(search, jax.random.key(0), problem)
      >>> prescription.soft, round(prescription.rate, 4)  # 16/(2 50 3.125)
      (3.125, 0.0512)
    """
    settings = _settings_of(search)
    _check_rows(problem)
    check_one_key(key)
    check_flag("convex", convex)
    check_flag("clip", clip)
    check_one_finite("lowest", lowest)
    for name, value in (("smoothness", smoothness), ("gradient_bound", gradient_bound)):
        if value is not None:
            check_one_positive(name, value)
    check_count("masks", masks)
    check_count("iterations", iterations)
    soft = jnp.minimum(jnp.asarray(settings.soft), jnp.asarray(settings.hard) / READ_OFF)
    settings = dataclasses.replace(settings, soft=float(soft))
    on = _Objective(settings, begin(search, key, problem, None).state, problem, batch_size)
    first, steps = float(on.value(on.mask())), search.on(problem).descent.steps
    if not math.isfinite(first):
        raise ArgumentError(f"problem: its loss at the start is {first}; prescribe needs a finite loss")
    if not convex and first < lowest:
        raise ArgumentError(
            f"lowest: expected a lower bound of the loss, which starts at {first:.4g}, got {lowest:g}"
        )
    if convex:
        _check_convex(on, key)
        found = _if_convex(on, gradient_bound, steps)
    else:
        found = _if_smooth(on, key, smoothness, lowest, clip, steps, masks, iterations)
    ratio = "at most hard/16: |hard w| reaches 16 in at most 9% more time than for soft -> 0"
    of_soft = Line("soft", f"{on.soft:.4g}", f"{ratio} (two-temperature.time-to-read-off)")
    if clip and found.clip is not None:
        settings = dataclasses.replace(settings, clip=found.clip)
    arguments = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return Prescription(
        hard=on.hard,
        soft=on.soft,
        rate=found.rate,
        clip=found.clip,
        bound=found.bound,
        search=two_temperature(**arguments, **dict(search.descent.changes) | dict(found.descent)),
        estimated=found.estimated,
        lines=(of_soft, *found.lines),
        assumptions=found.assumptions,
    )


class _Found(NamedTuple):
    """The prescribed settings for one kind of loss; the names are as in `Prescription`."""

    lines: tuple[Line, ...]
    rate: float | None = None
    clip: float | None = None
    bound: float | None = None
    estimated: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    descent: Mapping[str, Any] = MappingProxyType({})


class _Objective:
    """F as a function of a vector in [0, 1]^d, with one number for each score."""

    def __init__(self, settings: Settings, state: TrainState, problem: Problem, batch_size: int | None):
        self.settings, self.state, self.problem, self.batch_size = settings, state, problem, batch_size
        self.scores, self.unravel = ravel_pytree(state.trainable)
        self.hard, self.soft = (float(jnp.asarray(each)) for each in (settings.hard, settings.soft))
        self.value, self.gradient = jax.jit(self), jax.jit(jax.grad(self))

    def __call__(self, vector: Array) -> Array:
        params = of_mask(self.settings, self.state, self.unravel(vector))
        return self.problem.objective(params, self.state.model, batch_size=self.batch_size)

    def mask(self, clip: float | None = None) -> Array:
        """Return the mask that the search begins with."""
        scores = self.scores if clip is None else clip_scores(self.scores, clip, self.hard)
        return jax.nn.sigmoid(self.hard * scores)

    def gap(self, vector: Array) -> float:
        """Return the gap: how far a mask is from stationary."""
        return float(duality_gap(vector, self.gradient(vector)))

    def optimizer_rate(self, rate: float) -> float:
        """Return the optimizer's learning rate; gradients without their factor are `soft` times smaller."""
        return rate if self.settings.factor else rate * self.soft


def _if_smooth(
    on: _Objective,
    key: Array,
    smoothness: float | None,
    lowest: float,
    clipped: bool,
    steps: int,
    masks: int,
    iterations: int,
) -> _Found:
    found = look(on, on.mask(), key, masks, iterations)
    if not found.jumps <= JUMPS:
        why = (
            f"{found.jumps:.0%} of the change of the gradient comes in jumps, as with ReLU, so there is no L"
        )
        if smoothness is not None:
            raise ArgumentError(f"smoothness: {why}; leave it out")
        return _Found((Line("rate", "none", why), Line("clip", "none", "without L there is no bound")))
    L = found.smoothness if smoothness is None else float(smoothness)
    if found.smoothness > 1.001 * L:
        raise ArgumentError(
            f"smoothness: expected at least the curvature that was found, {found.smoothness:.4g}, got {L:.4g}"
        )
    if L == 0:
        return _Found((Line("rate", "none", "no curvature was found: F seems to be linear in the mask"),))
    rate = float(mirror.largest_descent_rate(on.hard, on.soft, smoothness=L))
    clip, bound, why = _clip(on, rate, L, found.largest_sum, lowest, steps)
    why += "" if clipped or clip is None else "; pass clip=True to set it"
    of_rate = "16/(L hard soft), on all rows: no step raises F (two-temperature.descent)"
    looked = f"estimated by the power method: the largest value at {masks} masks"
    lines = (
        Line("rate", f"{on.optimizer_rate(rate):.4g}", of_rate),
        Line("clip", "none" if clip is None else f"{clip:.4g}", f"{why} (two-temperature.clipped-descent)"),
        Line("momentum", "none", "without convexity no theorem here covers momentum"),
        Line("L", f"{L:.4g}", "given" if smoothness is not None else looked),
        Line(
            "G_1",
            f"{found.largest_sum:.4g}",
            f"estimated: the largest sum of absolute slopes at {masks} masks",
        ),
    )
    is_set = clipped and clip is not None
    estimated = ("L",) * (smoothness is None) + ("G_1",) * is_set
    assumptions = (
        "that the gradient of F in the mask is Lipschitz, with this L",
        f"that F is never below {lowest:g}",
        EVALUATED,
    )
    descent = {"optimizer": optax.sgd(on.optimizer_rate(rate)), "batch_size": None}
    return _Found(
        lines, on.optimizer_rate(rate), clip, bound if is_set else None, estimated, assumptions, descent
    )


def _clip(
    on: _Objective, rate: float, L: float, largest_sum: float, lowest: float, steps: int
) -> tuple[float | None, float | None, str]:
    """Return the clip, its bound and the reason; the first two are `None` if there is no clip."""
    if on.settings.density is not None:
        return None, None, "the theorem does not cover searches with a density"
    given = {"connections": on.scores.size, "largest_sum": largest_sum}

    def drop(mask: Array) -> Array:
        return jnp.maximum(on.value(mask) - lowest, jnp.finfo(mask.dtype).tiny)

    def best(mask: Array, steps: ArrayLike) -> Array:
        eps = mirror.prescribed_clip(drop(mask), rate, on.hard, on.soft, steps=steps, **given)
        return jnp.minimum(eps, 0.499)

    def bound(mask: Array, eps: Array, steps: ArrayLike) -> Array:
        return mirror.clipped_descent_bound(
            drop(mask), eps, rate, on.hard, on.soft, smoothness=L, steps=steps, **given
        )

    free = on.mask()

    def at(steps: ArrayLike) -> tuple[Array, float, float]:
        """Return the best clip for a number of steps, its bound, and the gap of the clipped start."""
        eps = best(free, steps)
        start = on.mask(float(eps))
        return eps, float(bound(start, eps, steps)), on.gap(start)

    eps, least, gap = at(steps)
    if least < gap:
        why = f"the smallest gap in {steps:,} steps is at most {least:.3g}; the initial gap is {gap:.3g}"
        return float(eps), least, why
    when = "no number of steps does"
    for later in 2.0 ** np.arange(math.floor(math.log2(steps)) + 1, 100):
        _, least, start_gap = at(later)
        if least < start_gap:
            when = f"about {later:,.0f} would"
            break
    why = f"{steps:,} steps do not bound the gap below its initial value, {on.gap(free):.3g}"
    return None, None, f"{why}; {when}"


def _if_convex(on: _Objective, gradient_bound: float | None, steps: int) -> _Found:
    whence = "given" if gradient_bound is not None else "certified by intervals"
    G = _certified(on) if gradient_bound is None else float(gradient_bound)
    if not math.isfinite(G):
        return _Found(
            (
                Line(
                    "rate",
                    "none",
                    "interval arithmetic finds no finite bound on the gradient: give gradient_bound",
                ),
            )
        )
    distance = float(jnp.sum(mirror.vertex_distance(-jnp.abs(on.scores), on.hard, on.soft)))
    at = (on.hard, on.soft)
    rate = float(mirror.prescribed_rate(distance, *at, gradient_bound=G, steps=steps))
    bound = float(mirror.last_iterate_bound(distance, rate, *at, gradient_bound=G, steps=steps))
    of_rate = f"smallest bound for the average of {steps:,} masks (two-temperature.average-iterate)"
    first = float(on.value(on.mask()))
    of_bound = f"on the expected F of the last mask minus the best mask's F; F starts at {first:.3g}"
    lines = (
        Line("rate", f"{on.optimizer_rate(rate):.4g}", of_rate),
        Line("clip", "none", "the bound holds without clipping"),
        Line("bound", f"{bound:.4g}", f"{of_bound} (two-temperature.last-iterate)"),
        Line("G", f"{G:.4g}", f"{whence}: no example's gradient is larger, at any mask"),
        Line(
            "D",
            f"{distance:.4g}",
            "exact: the distance from the start to the farthest mask (two-temperature.vertex-distance)",
        ),
    )
    assumptions = ("that the loss of each example is convex in the mask, and differentiable", EVALUATED)
    descent = {"optimizer": optax.sgd(on.optimizer_rate(rate)), "sampling": "independent"}
    return _Found(lines, on.optimizer_rate(rate), None, bound, (), assumptions, descent)


def _certified(on: _Objective) -> float:
    if not isinstance(on.settings.units, Connections):
        raise ArgumentError(
            "gradient_bound: it is computed only for masks of single connections; give a number"
        )
    bounds = gradient_bounds(
        on.problem,
        on.state.fixed.weights,
        on.state.model,
        weights="ones" if on.settings.weights == "ones" else "initial",
        where=on.settings.where,
    )
    return float(bounds.max())


def _settings_of(search: Training) -> Settings:
    """Return the settings of the search; raise unless the theorems cover it."""
    settings = getattr(search, "settings", None)
    if not isinstance(search, Training) or not isinstance(settings, Settings):
        raise ArgumentError(f"search: expected jaxarch.search.two_temperature(...), got {shown(search)}")
    if isinstance(settings.units, NOfM):
        raise ArgumentError(
            "search: the theorems do not cover N:M units, whose scores are compared with each other; use "
            "other units"
        )
    if callable(settings.hard):
        raise ArgumentError(
            "search: its hard is a function of the step; the theorems need a constant, such as hard=50.0"
        )
    for name, other in (("penalty", "leave it out"), ("clip", "leave it out, and pass clip=True here")):
        if getattr(settings, name) is not None:
            raise ArgumentError(f"search: the theorems do not cover its own {name}; {other}")
    for name in ("hard", "soft"):
        if is_traced(getattr(settings, name)):
            raise ArgumentError(f"search: its {name} is traced; expected a concrete number")
    return settings


def _check_rows(problem: Problem) -> None:
    """Raise unless the problem is of one run, and every step may take any of its training rows."""
    check_is_problem(problem)
    if getattr(problem.train, "ndim", 1) > 1:
        raise ArgumentError(
            "problem: each run has its own rows; pass the problem of one run, problem.of_run(0)"
        )
    if problem.stream is not None:
        raise ArgumentError("problem: its batches are streamed; the theorems need training rows in memory")
    if problem.train_size is not None:
        raise ArgumentError(
            "problem: with a train_size some rows are padding; set train=rows[:size] and leave train_size out"
        )


def _check_convex(on: _Objective, key: Array) -> None:
    """Raise if F lies above a chord of the cube at one of the points that are checked."""

    def excess(number: Array) -> tuple[Array, Array]:
        keys = jax.random.split(jax.random.fold_in(key, number))
        one, other = (drawn_mask(of, on.scores, number) for of in keys)
        values = on(one), on(other)
        middle = on((one + other) / 2)
        return middle - sum(values) / 2, sum(map(jnp.abs, values)) + jnp.abs(middle)

    above, size = jax.jit(lambda numbers: jax.lax.map(excess, numbers))(jnp.arange(SEGMENTS))
    if not (above <= ROUNDINGS * jnp.finfo(above.dtype).eps * size).all():
        raise ArgumentError(
            "convex: the loss is not convex in the mask: halfway between two masks it is "
            f"{float(above.max()):.3g} above the mean of their losses; leave convex=True out"
        )

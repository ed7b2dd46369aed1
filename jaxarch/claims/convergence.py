r"""Claims on convergence: the convexity assumed, the two theorems, their proofs step by step, what is true.

[D] lemma 4.1, theorem 4.3 and appendix B; [A] theorem 2.1 and appendix B. Notation as in `two_temperature`;
`F*` is the minimum of F, `G` bounds the gradients, and eta_t = c/t in [D], c/sqrt t in [A].
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch.claims.core import EPS, Claim, Counterexample, Exact, Inequality, Sides
from jaxarch.claims.cube import Field, choice, cube, integer, log_uniform, normal, often, uniform
from jaxarch.claims.two_temperature import slope
from jaxarch.models.tanh_network import signed_output_loss, tanh_network

# Convexity -------------------------------------------------------------------------------------------


def lies_above_its_tangents(
    loss: Callable[[Array], Array], point: Array, other: Array, scale: Array, tangent_at: Array | None = None
) -> Sides:
    """`grad F(v')^T (v - v') <= F(v) - F(v')`, where F sums terms of a size of at most `scale`."""
    gradient = jax.grad(loss)(other if tangent_at is None else tangent_at)
    return Sides(gradient @ (point - other), loss(point) - loss(other), 64 * EPS * scale)


def _convex_losses(v: Array, slopes: Array, directions: Array) -> Array:
    return jax.nn.softplus(slopes @ v) + (directions @ v) ** 2 / 2


def mean_of_convex_losses(
    slopes: Array,
    directions: Array,
    point: Array,
    other: Array,
    last: float = 1.0,
    tangent_elsewhere: bool = False,
) -> Sides:
    """(16) for the mean of `softplus(a_i^T v) + (b_i^T v)^2/2`; the last of them weighted by `last`."""

    def mean(v: Array) -> Array:
        return _convex_losses(v, slopes, directions).at[-1].multiply(last).mean()

    scale = 1 + jnp.abs(slopes).sum() + jnp.abs(directions).sum() ** 2
    return lies_above_its_tangents(
        mean, point, other, abs(last) * scale, point if tangent_elsewhere else None
    )


_LOSSES = cube(
    slopes=normal(2.0, (4, 3)),
    directions=normal(1.0, (4, 3)),
    point=uniform(0.0, 1.0, (3,)),
    other=uniform(0.0, 1.0, (3,)),
)

LEMMA_4_1 = Claim(
    id="D.lemma-4.1",
    source="[D] lemma 4.1; appendix B, lemma B.1, eq. (16)-(19)",
    statement="the mean of convex losses is convex: F(v) - F(v') >= grad F(v')^T (v - v')",
    latex=r"F(v) - F(v') \ge \nabla F(v')^T (v - v'), \quad F = |\mathcal{D}|^{-1} \sum_{z} f(\cdot, z)",
    verdict="holds",
    assumptions="every f(., z) convex and differentiable on [0, 1]^d",
    checks=(
        Inequality(
            mean_of_convex_losses,
            _LOSSES,
            {
                "one loss concave": functools.partial(mean_of_convex_losses, last=-10.0),
                "gradient at v": functools.partial(mean_of_convex_losses, tangent_elsewhere=True),
            },
        ),
    ),
)


def mean_of_differences(slopes: ArrayLike, point: ArrayLike, other: ArrayLike, mean: bool = True) -> Sides:
    """`F(v) - F(v') = |D|^-1 sum_z (f(v, z) - f(v', z))` for linear f; F a mean or, as printed, a sum."""
    slopes, point, other = map(jnp.asarray, (slopes, point, other))
    share = 1 / len(slopes)
    loss, loss_of_other = (jnp.sum(slopes @ v) * (share if mean else 1) for v in (point, other))
    right = jnp.sum(slopes @ point - slopes @ other) * share
    return Sides(jnp.abs(loss - loss_of_other - right), 16 * EPS * (1 + jnp.sum(jnp.abs(slopes))))


LEMMA_B_1 = Claim(
    id="A.lemma-B.1",
    source="[A] lemma B.1, eq. (21)-(24)",
    statement="as [D] lemma 4.1, for F(v) = |D|^-1 sum_z f(v, z)",
    latex=r"F(v) - F(v') = |\mathcal{D}|^{-1} \sum_z f(v, z) - f(v', z) \ge \nabla F(v')^T (v - v')",
    verdict="holds as corrected",
    assumptions="every f(., z) convex and differentiable on [0, 1]^d",
    remark="F is printed without 1/|D|, and (22) has it. Without it F is convex too, but E(grad f) is not "
    "its gradient and G does not bound it, as (50) needs.",
    checks=(
        Inequality(
            mean_of_differences,
            cube(slopes=normal(2.0, (4, 3)), point=uniform(0.0, 1.0, (3,)), other=uniform(0.0, 1.0, (3,))),
            {"F a sum, as printed": functools.partial(mean_of_differences, mean=False)},
        ),
        LEMMA_4_1.checks[0],
    ),
    printed=(
        Counterexample(
            mean_of_differences,
            {"slopes": ((1.0,), (1.0,)), "point": (1.0,), "other": (0.0,), "mean": False},
        ),
    ),
    see=("D.lemma-4.1",),
)


def network_loss_at_a_midpoint(
    first: tuple[float, float], second: tuple[float, float], x: float, y: int
) -> Sides:
    """`f((u + v)/2) <= (f(u) + f(v))/2` for the loss (12) of the network (11) with one unit a layer."""
    network = tanh_network((1, 1, 1))

    def loss(v: Array) -> Array:
        outputs, _ = network.apply({"w1": v[:1, None], "w2": v[1:, None]}, {}, jnp.full((1, 1), x), None)
        return signed_output_loss(outputs, jnp.full(1, y))[0]

    u, v = jnp.asarray(first), jnp.asarray(second)
    return Sides(loss((u + v) / 2), (loss(u) + loss(v)) / 2)


ASSUMPTION_1 = Claim(
    id="D.assumption-1",
    source="[D] eq. (6), assumption 1, (14), (15), with (11), (12); [A] assumption 1, (10), (20)",
    statement="the loss (12) of the network (11) is convex in the mask v",
    latex=r"f(v, z) - f(v', z) \ge \nabla f(v', z)^T (v - v'), \quad v, v' \in [0, 1]^d",
    verdict="refuted",
    remark="Not of the network that is trained, for neither label: so no theorem of the paper applies to "
    "it. What [A] trains in section 3.1, logistic regression with its weights fixed, is convex.",
    printed=(
        Counterexample(
            network_loss_at_a_midpoint, {"first": (1.0, 0.0), "second": (0.0, 1.0), "x": 1.0, "y": 0}
        ),
        Counterexample(
            network_loss_at_a_midpoint, {"first": (0.0, 0.0), "second": (1.0, 1.0), "x": 1.0, "y": 1}
        ),
    ),
    see=("A.logistic-convex",),
)


def logistic_regression(
    weights: Array,
    inputs: Array,
    labels: Array,
    point: Array,
    other: Array,
    sign: float = 1.0,
    tangent_elsewhere: bool = False,
) -> Sides:
    """(10) for the mean of `softplus(s) - y s`, `s = (v o theta)^T x`: minus the log-likelihood."""

    def loss(v: Array) -> Array:
        logits = inputs @ (v * weights)
        return sign * jnp.mean(jax.nn.softplus(logits) - labels * logits)

    scale = 1 + jnp.sum(jnp.abs(inputs) @ jnp.abs(weights))
    return lies_above_its_tangents(loss, point, other, scale, point if tangent_elsewhere else None)


LOGISTIC = Claim(
    id="A.logistic-convex",
    source="[A] section 3.1, eq. (10), (12)",
    statement="the loss of logistic regression with masked weights is convex in the mask, for fixed weights",
    latex=r"\ell(v) = -|\mathcal{D}|^{-1} \sum_{(x, y)} \log\big(F^y (1 - F)^{1-y}\big), \quad F = "
    r"\sigma((v \circ \theta)^T x)",
    verdict="holds",
    remark="With (12) as printed, of the other sign, it is concave.",
    checks=(
        Inequality(
            logistic_regression,
            cube(
                weights=normal(3.0, (3,)),
                inputs=normal(1.0, (4, 3)),
                labels=choice(0.0, 1.0, shape=(4,)),
                point=uniform(0.0, 1.0, (3,)),
                other=uniform(0.0, 1.0, (3,)),
            ),
            {
                "of the sign of (12)": functools.partial(logistic_regression, sign=-1.0),
                "gradient at v": functools.partial(logistic_regression, tangent_elsewhere=True),
            },
        ),
    ),
    see=("A.eq-12",),
)


def gradient_is_bounded_for_all_weights(weight: float, bound: float) -> Sides:
    """`|grad_v l| <= G` for logistic regression at x = 1, y = 0, v = 0, whatever the weight."""

    def loss(v: Array) -> Array:
        return jax.nn.softplus(v * weight)

    return Sides(jnp.abs(jax.grad(loss)(jnp.zeros(()))), jnp.asarray(bound))


BOUNDED_GRADIENT = Claim(
    id="A.assumption-1",
    source="[A] assumption 1, eq. (9), (19)",
    statement="max over z, v and all weights theta in R^D of |grad_v l| is finite",
    latex=r"\max_{z, v, \theta} \|\nabla_v \ell(z; v, \theta)\|^2 \le G^2",
    verdict="refuted",
    remark="The mask multiplies the weights, so the gradient in v grows with them: no finite G serves "
    "logistic regression for every theta. For fixed weights (footnote 9), or weights in a ball, there is "
    "one.",
    printed=(Counterexample(gradient_is_bounded_for_all_weights, {"weight": 100.0, "bound": 10.0}),),
)


# The theorems ----------------------------------------------------------------------------------------


class _Problem(NamedTuple):
    """`f(v) = linear v + curvature (v - 1/2)^2` in each of `dimension` equal coordinates."""

    linear: float
    curvature: float
    dimension: int

    def loss(self, v: ArrayLike) -> Array:
        v = jnp.asarray(v)
        return self.dimension * (self.linear * v + self.curvature * (v - 0.5) ** 2)

    def gradient(self, v: ArrayLike) -> Array:
        """In each coordinate."""
        return self.linear + 2 * self.curvature * (jnp.asarray(v) - 0.5)

    def gap(self, v: ArrayLike) -> Array:
        ends = jnp.stack([jnp.zeros(()), jnp.ones(())])
        inside = 0.5 - self.linear / (2 * self.curvature) if self.curvature else 0.0
        return self.loss(v) - jnp.min(self.loss(jnp.append(ends, jnp.clip(inside, 0, 1))))

    @property
    def bound(self) -> Array:
        """G: the largest norm of the gradient on the cube."""
        return jnp.sqrt(self.dimension) * jnp.max(jnp.abs(self.gradient(jnp.arange(2.0))))


class _Run(NamedTuple):
    """`last` is v^T, `following` v^(T+1), `average` that of v^1..v^T, `average_loss` that of their losses."""

    last: Array
    following: Array
    average: Array
    average_loss: Array
    largest: Array
    """The largest |w^t|, t <= T + 1."""


def _algorithm_1(
    problem: _Problem, hard: float, soft: float, rate: Callable[[Array], Array], score: float, steps: int
) -> _Run:
    """T steps of the two-temperature gradient, from w^1 = score."""

    def step(w: Array, t: Array) -> tuple[Array, tuple[Array, Array]]:
        v = jax.nn.sigmoid(hard * w)
        return w - rate(t) * problem.gradient(v) * slope(w, soft), (v, jnp.abs(w))

    w, (v, sizes) = jax.lax.scan(step, jnp.asarray(score), jnp.arange(1.0, steps + 1))
    largest = jnp.maximum(jnp.max(sizes), jnp.abs(w))
    return _Run(v[-1], jax.nn.sigmoid(hard * w), v.mean(), problem.loss(v).mean(), largest)


def _smallest_gap(problem: _Problem, run: _Run) -> Array:
    """Whichever iterate the theorems mean: the last, the one after it, or the average."""
    return jnp.min(jnp.stack([problem.gap(v) for v in (run.last, run.following, run.average)]))


def theorem_4_3(
    linear: float,
    curvature: float,
    hard: float,
    soft: float,
    c: float,
    score: float,
    steps: int,
) -> Sides:
    """[D] (10) for `f(v) = linear v + curvature (v - 1/2)^2`, d = 1, after T = `steps` steps c/t.

    On the left is the smallest of the gaps of v^T, v^(T+1) and the average iterate.
    """
    problem = _Problem(linear, curvature, 1)
    run = _algorithm_1(problem, hard, soft, lambda t: c / t, score, steps)
    constant = 1 + hard * soft / 16
    bound = problem.bound**2 * c * (1 + constant**2) / 2 * (1 + jnp.log(steps)) / steps
    return Sides(_smallest_gap(problem, run), bound)


THREE_QUARTERS = 0.27465307216702745
"""The score at which `sigma(4 w) = 3/4`."""

THEOREM_4_3 = Claim(
    id="D.theorem-4.3",
    source="[D] theorem 4.3, eq. (10); appendix B, theorem B.3, eq. (35)",
    statement="E[F(v^T) - F*] <= G^2 c (1 + C^2)/2 (1 + log T)/T with eta_t = c/t, C = 1 + H S/16",
    latex=r"E[F(v^T) - F^*] \le G^2 \frac{c (1 + C^2)}{2} \frac{1 + \log T}{T}",
    assumptions="f(., z) convex and differentiable on [0, 1]^d, |grad f| <= G",
    verdict="refuted",
    remark="The bound is proportional to c: let c -> 0 with T fixed (first case; the second has a "
    "minimiser inside; the third is at the paper's own temperatures). It also fails for every c as T "
    "grows (last case): for a linear loss the gap falls like (log T)^(-H/S). The proof takes E(r) = 0, "
    "the last iterate for the average (45), telescopes with varying steps (48) and drops |v^1 - v*|^2. "
    "Exact projected SGD satisfies it, on average over its iterates, where F is m-strongly convex and c "
    ">= 1/m.",
    printed=(
        Counterexample(
            theorem_4_3,
            {"linear": 0.1, "curvature": 0.0, "hard": 4.0, "soft": 4.0, "c": 1.0, "score": 0.0, "steps": 1},
        ),
        Counterexample(
            theorem_4_3,
            {
                "linear": 0.0,
                "curvature": 1.0,
                "hard": 4.0,
                "soft": 4.0,
                "c": 0.01,
                "score": THREE_QUARTERS,
                "steps": 1,
            },
        ),
        Counterexample(
            theorem_4_3,
            {
                "linear": 0.0,
                "curvature": 1.0,
                "hard": 50.0,
                "soft": 5.0,
                "c": 1e-4,
                "score": 0.02197224577336219,
                "steps": 1000,
            },
        ),
        Counterexample(
            theorem_4_3,
            {
                "linear": 1e-3,
                "curvature": 0.0,
                "hard": 50.0,
                "soft": 5.0,
                "c": 1.0,
                "score": 0.0,
                "steps": 1000,
            },
        ),
        Counterexample(
            theorem_4_3,
            {
                "linear": 1.0,
                "curvature": 0.0,
                "hard": 4.0,
                "soft": 4.0,
                "c": 1.0,
                "score": 0.0,
                "steps": 10_000,
            },
        ),
    ),
    see=(
        "projected-sgd.strongly-convex",
        "D.zero-mean-error",
        "D.eq-40",
        "D.eq-42",
        "D.eq-45",
        "D.eq-48",
        "D.one-to-one",
    ),
)


def theorem_2_1(
    linear: float,
    curvature: float,
    dimension: int,
    hard: float,
    soft: float,
    c: float,
    score: float,
    steps: int,
) -> Sides:
    """[A] theorem 2.1 for `f(v) = sum_i linear v_i + curvature (v_i - 1/2)^2` after `steps` steps c/sqrt t.

    On the left is the smallest of the gaps of v^T, v^(T+1) and the average iterate; theta_max covers w^(T+1)
    too, which makes C, and the bound, larger than printed.
    """
    problem = _Problem(linear, curvature, dimension)
    run = _algorithm_1(problem, hard, soft, lambda t: c / jnp.sqrt(t), score, steps)
    constant = 1 - 2 * slope(run.largest, hard) * slope(run.largest, soft) + (hard * soft / 16) ** 2
    decay = c * problem.bound**2 * (1 + constant) * (1 + jnp.log(steps)) / steps
    return Sides(_smallest_gap(problem, run), 1 / (c * jnp.sqrt(steps)) + decay)


THEOREM_2_1 = Claim(
    id="A.theorem-2.1",
    source="[A] theorem 2.1; appendix B, theorem B.3, eq. (45), corollary B.4",
    statement="E[F(v^T) - F*] <= 1/(c sqrt T) + c G^2 (1 + C) (1 + log T)/T with alpha_t = c/sqrt t",
    latex=r"E[F(v^T) - F^*] \le \frac{1}{c \sqrt T} + \frac{c G^2 (1 + C) (1 + \log T)}{T}",
    assumptions="f(., z) convex and differentiable on [0, 1]^d, |grad f| <= G",
    verdict="refuted",
    remark="It has no d: the first case is by hand, in d = 100, the third at the paper's own temperatures "
    "in d = 10^6, the last shows that it does not help to wait. Nor is it true in d = 1 (second case). "
    "The proof takes E(r) = 0, |v - v*|^2 <= 2 for d (57), sums 1/t for 1/sqrt t (55), and the last "
    "iterate for the average (52).",
    printed=(
        Counterexample(
            theorem_2_1,
            {
                "linear": 0.1,
                "curvature": 0.0,
                "dimension": 100,
                "hard": 4.0,
                "soft": 4.0,
                "c": 1.0,
                "score": 0.0,
                "steps": 1,
            },
        ),
        Counterexample(
            theorem_2_1,
            {
                "linear": 0.0,
                "curvature": 1.0,
                "dimension": 1,
                "hard": 4.0,
                "soft": 4.0,
                "c": 20.0,
                "score": THREE_QUARTERS,
                "steps": 2500,
            },
        ),
        Counterexample(
            theorem_2_1,
            {
                "linear": 0.0,
                "curvature": 1e-3,
                "dimension": 10_000_000,
                "hard": 100.0,
                "soft": 10.0,
                "c": 0.005,
                "score": 0.010986122886681098,
                "steps": 1,
            },
        ),
        Counterexample(
            theorem_2_1,
            {
                "linear": 1e-3,
                "curvature": 0.0,
                "dimension": 1_000_000,
                "hard": 100.0,
                "soft": 10.0,
                "c": 0.016,
                "score": 0.0,
                "steps": 1,
            },
        ),
        Counterexample(
            theorem_2_1,
            {
                "linear": 0.1,
                "curvature": 0.0,
                "dimension": 100,
                "hard": 4.0,
                "soft": 4.0,
                "c": 1.0,
                "score": 0.0,
                "steps": 100_000,
            },
        ),
    ),
    see=("projected-sgd.convex", "A.lemma-B.2", "A.eq-55", "A.eq-57", "D.zero-mean-error", "D.eq-45"),
)


# What is true of projected SGD -----------------------------------------------------------------------

LONGEST = 32
"""Steps of a drawn run, at most."""

OUTCOMES = np.asarray(list(itertools.product(range(4), repeat=4)))
"""Of four steps: in each, one of two losses and one of two signs of the error. All 256 are followed."""


def _rates(c: Array, steps: int, root: bool) -> Array:
    """`c/t`, or `c/sqrt t`."""
    t = jnp.arange(1.0, steps + 1)
    return c / (jnp.sqrt(t) if root else t)


def _average(values: Array, steps: Array) -> Array:
    """Of the first so many, along the first axis."""
    met = jnp.arange(len(values)) < steps
    return jnp.tensordot(met / steps, values, 1)


def _quadratic(curvature: Array, slopes: Array, v: Array) -> Array:
    """`sum_i curvature_i/2 v_i^2 + slope_i v_i`."""
    return v**2 @ curvature / 2 + jnp.sum(slopes * v, axis=-1)


def _minimiser(curvature: Array, slope: Array) -> Array:
    """Of it, on [0, 1]^d."""
    inside = -slope / jnp.where(curvature > 0, curvature, 1)
    return jnp.clip(jnp.where(curvature > 0, inside, -jnp.sign(slope)), 0, 1)


def _largest_gradient(curvature: Array, slopes: Array) -> Array:
    """G, over the cube and all losses, of slopes (losses, d)."""
    largest = jnp.maximum(jnp.abs(slopes), jnp.abs(curvature[None] + slopes))
    return jnp.max(jnp.linalg.norm(largest, axis=1))


def _met(slopes: Array, steps: Array) -> Array:
    """The first so many, then the first again and again: losses that are not met must not count in G."""
    return jnp.where((jnp.arange(len(slopes)) < steps)[:, None], slopes, slopes[:1])


def _regret(curvature: Array, slopes: Array, start: Array, rates: Array, steps: Array) -> Array:
    """`1/T sum_t f_t(v_t) - f_t(u)` of projected SGD on quadratic losses, at the best u."""

    def step(v: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        slope, rate = now
        return jnp.clip(v - rate * (curvature * v + slope), 0, 1), v

    _, v = jax.lax.scan(step, start, (slopes, rates))
    best = jnp.broadcast_to(_minimiser(curvature, _average(slopes, steps)), v.shape)
    return _average(_quadratic(curvature, slopes, v) - _quadratic(curvature, slopes, best), steps)


def _expected_gap(
    curvature: Array, slopes: Array, start: Array, error: Array, rates: Array, steps: Array, bias: float
) -> Array:
    """`E 1/T sum_t F(v_t) - F*` over all outcomes, with errors `r = (bias +- error) g` of either sign."""

    def follow(outcomes: Array) -> Array:
        def step(v: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            outcome, rate = now
            gradient = curvature * v + slopes[outcome // 2]
            sign = 2 * (outcome % 2) - 1
            return jnp.clip(v - rate * (1 - bias - sign * error) * gradient, 0, 1), v

        end, v = jax.lax.scan(step, start, (outcomes, rates))
        return jax.vmap(loss)(jnp.concatenate([v, end[None]]))

    def loss(v: Array) -> Array:
        return _quadratic(curvature, mean, v)

    mean = jnp.mean(slopes, axis=0)
    losses = jnp.mean(jax.vmap(follow)(jnp.asarray(OUTCOMES)), axis=0)
    return _average(losses, steps) - loss(_minimiser(curvature, mean))


def _strongly_convex(
    left: Array, c: Array, bound: Array, steps: Array, factor: ArrayLike, constant: float
) -> Sides:
    right = constant * c * bound**2 * factor / 2 * (1 + jnp.log(steps)) / steps
    return Sides(left, right, 256 * EPS * (bound + right))


def _convex(
    left: Array, c: Array, bound: Array, steps: Array, dimension: int, factor: ArrayLike, constant: float
) -> Sides:
    right = dimension / (2 * c) + c * bound**2 * factor * (1 - 1 / (2 * jnp.sqrt(steps)))
    right = constant * right / jnp.sqrt(steps)
    return Sides(left, right, 256 * EPS * (bound + right))


def strongly_convex_regret(
    curvature: Array,
    slopes: Array,
    start: Array,
    scale: Array,
    steps: Array,
    least: float = 1.0,
    constant: float = 1.0,
) -> Sides:
    """`1/T sum_t f_t(v_t) - f_t(u) <= c G^2/2 (1 + log T)/T`, rates c/t, c = scale/m."""
    slopes = curvature[None] * _met(slopes, steps)
    c = least * scale / jnp.min(curvature)
    left = _regret(curvature, slopes, start, _rates(c, len(slopes), root=False), steps)
    return _strongly_convex(left, c, _largest_gradient(curvature, slopes), steps, 1, constant)


def strongly_convex_gap(
    curvature: Array,
    slopes: Array,
    start: Array,
    scale: Array,
    error: Array,
    steps: Array,
    least: float = 1.0,
    spread: float = 1.0,
) -> Sides:
    """`E 1/T sum_t F(v_t) - F* <= c G^2 (1 + C^2)/2 (1 + log T)/T`, errors of mean 0 and size `C |g|`."""
    slopes = curvature[None] * slopes
    c = least * scale / jnp.min(curvature)
    rates = _rates(c, OUTCOMES.shape[1], root=False)
    left = _expected_gap(curvature, slopes, start, error, rates, steps, 0.0)
    return _strongly_convex(left, c, _largest_gradient(curvature, slopes), steps, 1 + spread * error**2, 1.0)


def _strongly_convex_cases(dimension: int) -> dict[str, Field]:
    return {
        "curvature": log_uniform(1.0, 100.0, (dimension,)),
        "start": often(1.0, uniform(0.0, 1.0, (dimension,))),
        "scale": often(1.0, log_uniform(1.0, 10.0)),
    }


STRONGLY_CONVEX = Claim(
    id="projected-sgd.strongly-convex",
    source="what remains of [D] theorem 4.3",
    statement="projected SGD v <- P(v - eta_t (g - r)), eta_t = c/t, has E[F(average of v^1..v^T) - F*] <= "
    "c G^2 (1 + C^2)/2 (1 + log T)/T",
    latex=r"E\Big[F\Big(\frac1T \sum_{t=1}^T v^t\Big) - F^*\Big] \le G^2 \frac{c (1 + C^2)}{2} \frac{1 + "
    r"\log T}{T}",
    assumptions="F m-strongly convex, c >= 1/m; E(r | v, z) = 0 and |r| <= C |g|; or r = 0 (C = 0), where "
    "it holds for the regret of any sequence of m-strongly convex losses",
    verdict="holds",
    remark="On the left of the checks is the mean of the losses, which is not smaller. With a_t = |v^t - "
    "v*|^2 the sum over t of (t/(2c) - m/2) a_t - t/(2c) a_(t+1) is not positive exactly because c >= "
    "1/m. At T = 1 both sides may agree.",
    checks=(
        Inequality(
            strongly_convex_regret,
            cube(
                **_strongly_convex_cases(1),
                slopes=often(0.0, uniform(-1.5, 0.5, (LONGEST, 1))),
                steps=often(1.0, integer(1, LONGEST)),
            ),
            {
                "constant 10% too small": functools.partial(strongly_convex_regret, constant=0.9),
                "c below 1/m": functools.partial(strongly_convex_regret, least=0.1),
            },
        ),
        Inequality(
            strongly_convex_gap,
            cube(
                **_strongly_convex_cases(2),
                slopes=often(0.0, uniform(-1.5, 0.5, (2, 2))),
                error=often(0.0, log_uniform(0.1, 3.0)),
                steps=often(1.0, integer(1, OUTCOMES.shape[1] + 1)),
            ),
            {"c below 1/m": functools.partial(strongly_convex_gap, least=0.1)},
        ),
        Inequality(
            strongly_convex_gap,
            cube(
                **_strongly_convex_cases(1),
                slopes=often(-0.5, uniform(-1.5, 0.5, (2, 1))),
                error=often(3.0, log_uniform(0.1, 3.0)),
                steps=often(5, integer(1, OUTCOMES.shape[1] + 1)),
            ),
            {"without C": functools.partial(strongly_convex_gap, spread=0.0)},
        ),
    ),
    see=("D.theorem-4.3", "projected-sgd.convex"),
)


def convex_regret(
    curvature: Array, slopes: Array, start: Array, scale: Array, steps: Array, constant: float = 1.0
) -> Sides:
    """`1/T sum_t f_t(v_t) - f_t(u) <= (d/(2c) + c G^2 (1 - 1/(2 sqrt T)))/sqrt T`, rates c/sqrt t."""
    slopes = _met(slopes, steps)
    bound = _largest_gradient(curvature, slopes)
    c = scale * jnp.sqrt(len(start)) / bound
    left = _regret(curvature, slopes, start, _rates(c, len(slopes), root=True), steps)
    return _convex(left, c, bound, steps, len(start), 1, constant)


def convex_gap(
    curvature: Array,
    slopes: Array,
    start: Array,
    scale: Array,
    error: Array,
    steps: Array,
    bias: float = 0.0,
    spread: float = 1.0,
) -> Sides:
    """`E 1/T sum_t F(v_t) - F* <= (d/(2c) + c G^2 (1 + C^2) (1 - 1/(2 sqrt T)))/sqrt T`."""
    bound = _largest_gradient(curvature, slopes)
    c = scale * jnp.sqrt(len(start)) / bound
    rates = _rates(c, OUTCOMES.shape[1], root=True)
    left = _expected_gap(curvature, slopes, start, error, rates, steps, bias)
    return _convex(left, c, bound, steps, len(start), 1 + spread * error**2, 1.0)


def _convex_cases(dimension: int) -> dict[str, Field]:
    return {
        "curvature": often(0.0, log_uniform(0.1, 10.0, (dimension,))),
        "start": often(1.0, uniform(0.0, 1.0, (dimension,))),
        "scale": often(1.0, log_uniform(1.0, 0.1)),
    }


CONVEX = Claim(
    id="projected-sgd.convex",
    source="what remains of [A] theorem 2.1",
    statement="projected SGD v <- P(v - alpha_t (g - r)), alpha_t = c/sqrt t, has E[F(average of "
    "v^1..v^T) - F*] <= (d/(2c) + c G^2 (1 + C) (1 - 1/(2 sqrt T)))/sqrt T",
    latex=r"E\Big[F\Big(\frac1T \sum_{t=1}^T v^t\Big) - F^*\Big] \le \frac{1}{\sqrt T} "
    r"\left(\frac{d}{2c} + c\, G^2 (1 + C) \Big(1 - \frac{1}{2 \sqrt T}\Big)\right)",
    assumptions="F convex; E(r | v, z) = 0 and |r|^2 <= C |g|^2; or r = 0 (C = 0), where it holds for the "
    "regret of any sequence of convex losses",
    verdict="holds",
    remark="d is the squared diameter of the cube, and sum_{t <= T} 1/sqrt t <= 2 sqrt T - 1. On the left of "
    "the checks is the mean of the losses, which is not smaller. At T = 1 both sides may agree.",
    checks=(
        Inequality(
            convex_regret,
            cube(
                **_convex_cases(1),
                slopes=often(1.0, normal(1.0, (LONGEST, 1))),
                steps=often(1.0, integer(1, LONGEST)),
            ),
            {"constant 10% too small": functools.partial(convex_regret, constant=0.9)},
        ),
        Inequality(
            convex_gap,
            cube(
                **_convex_cases(2),
                slopes=often(1.0, normal(1.0, (2, 2))),
                error=often(0.0, log_uniform(0.1, 3.0)),
                steps=integer(1, OUTCOMES.shape[1] + 1),
            ),
            {"errors of mean g": functools.partial(convex_gap, bias=1.0)},
        ),
        Inequality(
            convex_gap,
            cube(
                curvature=often(0.0, log_uniform(0.1, 10.0, (1,))),
                start=uniform(1.0, 0.8, (1,)),
                scale=uniform(1.0, 0.5),
                slopes=uniform(1.0, 0.5, (2, 1)),
                error=often(3.0, uniform(2.0, 3.0)),
                steps=integer(OUTCOMES.shape[1], OUTCOMES.shape[1] + 1),
            ),
            {"without C": functools.partial(convex_gap, spread=0.0)},
        ),
    ),
    see=("A.theorem-2.1", "projected-sgd.strongly-convex"),
)


# The proofs, step by step ----------------------------------------------------------------------------


def distance_is_its_expectation(score: float, rate: float, hard: float, soft: float) -> Sides:
    """`|v+ - v*|^2 = E |v+ - v*|^2` for `f(v, z) = (v - z)^2`, z = 0 or 1 with equal chance; z = 0 came."""
    v = jax.nn.sigmoid(jnp.multiply(hard, score))
    gradients = 2 * (v - jnp.arange(2.0))
    following = jax.nn.sigmoid(hard * (score - rate * gradients * slope(score, soft)))
    distances = (following - 0.5) ** 2
    return Sides(jnp.abs(distances[0] - jnp.mean(distances)), jnp.zeros(()))


EQ_40 = Claim(
    id="D.eq-40",
    source="[D] eq. (40); [A] eq. (47)",
    statement="|v^(t+1) - v*|^2 = E |v^(t+1) - v*|^2",
    latex=r"\|v^{t+1} - v^*\|^2 = E\big(\|v^{t+1} - v^*\|^2\big)",
    verdict="refuted",
    remark="The left side is random: it too needs the expectation, given v^t.",
    printed=(
        Counterexample(
            distance_is_its_expectation, {"score": THREE_QUARTERS, "rate": 0.1, "hard": 4.0, "soft": 4.0}
        ),
    ),
)


def second_moment(rate: float, hard: float, soft: float) -> Sides:
    """(42): `E |g - r|^2 <= G^2 + E |r|^2` at v = 1/2, for `f(v, z) = z v`, z = 1 or -1 with equal chance.

    There r is odd in z, so that E(r) = 0, as the proof assumes.
    """
    gradients = jnp.array([1.0, -1.0])
    following = jax.nn.sigmoid(-hard * rate * gradients * slope(0.0, soft))
    followed = (0.5 - following) / rate
    errors = gradients - followed
    return Sides(jnp.mean(followed**2), 1 + jnp.mean(errors**2))


EQ_42 = Claim(
    id="D.eq-42",
    source="[D] eq. (41)-(44); [A] eq. (48)-(51)",
    statement="E |grad f - r|^2 <= G^2 + E |r|^2",
    latex=r"E \|\nabla f(v^t, \tilde z) - r^t\|^2 \le G^2 + E \|r^t\|^2",
    assumptions="E(r) = 0",
    verdict="refuted",
    remark="It takes E(g^T r) to be 0 where E(r) is. (41) is an identity, and under E(r) = 0 (43) holds all "
    "the same, since |g - r| <= (H S/16) |g|; but E(r) is not 0 as a rule (D.zero-mean-error), and without "
    "it (43) fails too. (44) should read <=, and [A] (51) does.",
    printed=(Counterexample(second_moment, {"rate": 0.001, "hard": 50.0, "soft": 5.0}),),
    see=("D.zero-mean-error", "D.error-sign"),
)


def last_is_at_most_the_average(
    curvature: float, hard: float, soft: float, c: float, score: float, steps: int
) -> Sides:
    """(45), as <=: `F(v^T) - F* <= 1/T sum_t F(v^t) - F*` for `f(v) = curvature (v - 1/2)^2`, rates c/t."""
    problem = _Problem(0.0, curvature, 1)
    run = _algorithm_1(problem, hard, soft, lambda t: c / t, score, steps)
    return Sides(problem.loss(run.last), run.average_loss)


EQ_45 = Claim(
    id="D.eq-45",
    source="[D] eq. (45), (46); [A] eq. (52), (53)",
    statement="F(v^T) - F* = (1/T) sum_t (F(v^t) - F*)",
    latex=r"F(v^T) - F(v^*) = \frac1T \sum_{t=1}^T (F(v^t) - F(v^*))",
    verdict="refuted",
    remark="The last iterate is not the average, nor better than it: a step may leave the minimum. What "
    "follows in the proofs is on the average. (46) and (53) are the linearity of E; Jensen's inequality "
    "is what F(average) would need.",
    printed=(
        Counterexample(
            last_is_at_most_the_average,
            {"curvature": 1.0, "hard": 4.0, "soft": 4.0, "c": 20.0, "score": 0.05, "steps": 2},
        ),
    ),
    see=("projected-sgd.strongly-convex",),
)


def distance_sequences() -> Iterator[dict[str, Any]]:
    """`a_1..a_(T+1)`, all 0 but one, T from 1 to 60: what is linear in a and true of these is true of all."""
    for steps in range(1, 61):
        for position in range(steps + 1):
            yield {"distances": [int(t == position) for t in range(steps + 1)]}


def _weighted_differences(distances: list[int]) -> Fraction:
    """The first term of (47), times 2c: `1/T sum_t t (a_t - a_(t+1))`."""
    steps = len(distances) - 1
    pairs = enumerate(itertools.pairwise(distances), start=1)
    return Fraction(sum(t * (a - b) for t, (a, b) in pairs), steps)


def telescoping(distances: list[int]) -> bool:
    """`1/T sum_t t (a_t - a_(t+1)) = 1/T sum_(t <= T) a_t - a_(T+1)`."""
    *first, last = distances
    return _weighted_differences(distances) == Fraction(sum(first), len(first)) - last


def _without_the_sum(distances: list[int]) -> bool:
    return _weighted_differences(distances) == -(len(distances) - 1) * distances[-1]


def telescoping_as_printed(distances: tuple[float, ...], c: float) -> Sides:
    """`1/T sum_t (a_t - a_(t+1))/(2 eta_t)` of (47) is at most `-a_(T+1)/(2 eta_T)` of (48)."""
    a = jnp.asarray(distances)
    steps = len(distances) - 1
    t = jnp.arange(1.0, steps + 1)
    return Sides(jnp.sum(t * (a[:-1] - a[1:])) / (2 * c * steps), -steps * a[-1] / (2 * c))


EQ_48 = Claim(
    id="D.eq-48",
    source="[D] eq. (47), (48)",
    statement="with a_t = |v^t - v*|^2 and eta_t = c/t: (1/T) sum_t (a_t - a_(t+1))/(2 eta_t) = "
    "(sum_(t <= T) a_t - T a_(T+1))/(2 c T)",
    latex=r"\frac1T \sum_{t=1}^T \frac{a_t - a_{t+1}}{2 \eta_t} = \frac{1}{2 c T} \Big(\sum_{t=1}^T a_t - "
    r"T a_{T+1}\Big)",
    verdict="holds as corrected",
    remark="Printed: -a_(T+1)/(2 eta_T). The sum is what does not telescope away with varying steps; it "
    "is of the order of the diameter over c and does not decay with T unless strong convexity pays for it.",
    checks=(Exact(telescoping, distance_sequences, {"as printed": _without_the_sum}),),
    printed=(Counterexample(telescoping_as_printed, {"distances": (1.0, 1.0), "c": 1.0}),),
    see=("projected-sgd.strongly-convex",),
)


def _first_terms(steps: Array, power: float) -> Array:
    """`sum_(t <= T) t^-power`, T at most 1000."""
    t = jnp.arange(1.0, 1001)
    return jnp.sum(jnp.where(t <= steps, t**-power, 0))


def harmonic_sum(steps: Array, constant: float = 1.0) -> Sides:
    """`sum_(t <= T) 1/t <= 1 + log T`."""
    right = constant * (1 + jnp.log(steps))
    return Sides(_first_terms(steps, 1.0), right, 1000 * EPS * right)


EQ_49 = Claim(
    id="D.eq-49",
    source="[D] eq. (49); [A] eq. (56)",
    statement="sum_(t <= T) 1/t <= 1 + log T",
    latex=r"\sum_{t=1}^T \frac1t \le 1 + \log T",
    verdict="holds",
    remark="With equality at T = 1.",
    checks=(
        Inequality(
            harmonic_sum,
            cube(steps=integer(1, 1000)),
            {"constant 10% too small": functools.partial(harmonic_sum, constant=0.9)},
        ),
    ),
)


def telescoping_roots(distances: Array, weights: float = 0.0, last: float = 0.5) -> Sides:
    """`sum_t sqrt t (a_t - a_(t+1)) = sum_t (sqrt t - sqrt(t-1)) a_t - sqrt T a_(T+1)`.

    [A] (55) has the weights one step later (`weights=1`), and T for sqrt T (`last=1`).
    """
    steps = len(distances) - 1
    t = jnp.arange(1.0, steps + 1)
    left = jnp.sum(jnp.sqrt(t) * (distances[:-1] - distances[1:]))
    differences = jnp.sqrt(t + weights) - jnp.sqrt(t + weights - 1)
    right = jnp.sum(differences * distances[:-1]) - steps**last * distances[-1]
    return Sides(jnp.abs(left - right), 64 * EPS * jnp.sum(jnp.sqrt(t) * distances[:-1] + distances[1:]))


def root_sum(steps: Array, constant: float = 2.0) -> Sides:
    """`sum_(t <= T) 1/sqrt t <= 2 sqrt T - 1`."""
    right = constant * jnp.sqrt(steps) - (constant - 1)
    return Sides(_first_terms(steps, 0.5), right, 1000 * EPS * right)


def telescoping_roots_as_printed(distances: tuple[float, ...], variance: float) -> Sides:
    """(54) is at most (55), both times 2cT; `variance` is `c^2 G^2 (1 + C)`."""
    a = jnp.asarray(distances)
    steps = len(distances) - 1
    t = jnp.arange(1.0, steps + 1)
    left = jnp.sum(jnp.sqrt(t) * (a[:-1] - a[1:]) + variance / jnp.sqrt(t))
    right = jnp.sum((jnp.sqrt(t + 1) - jnp.sqrt(t)) * a[:-1] + variance / t) - steps * a[-1]
    return Sides(left, right)


EQ_55 = Claim(
    id="A.eq-55",
    source="[A] eq. (54)-(56)",
    statement="sum_t sqrt t (a_t - a_(t+1)) = sum_t (sqrt t - sqrt(t-1)) a_t - sqrt T a_(T+1), and "
    "sum_(t <= T) 1/sqrt t <= 2 sqrt T - 1",
    latex=r"\sum_{t=1}^T \sqrt t\, (a_t - a_{t+1}) = \sum_{t=1}^T (\sqrt t - \sqrt{t-1})\, a_t - \sqrt T "
    r"a_{T+1}, \quad \sum_{t=1}^T \frac{1}{\sqrt t} \le 2 \sqrt T - 1",
    verdict="holds as corrected",
    remark="(55) prints the weights one step late, T for sqrt T, and 1/t for 1/sqrt t: the last makes a "
    "term that decays like 1/sqrt T look like log T/T. (56) is right about sum_t (sqrt(t+1) - sqrt t) <= "
    "sqrt T.",
    checks=(
        Inequality(
            telescoping_roots,
            cube(distances=uniform(0.0, 3.0, (9,))),
            {
                "weights one step late": functools.partial(telescoping_roots, weights=1.0),
                "T for sqrt T": functools.partial(telescoping_roots, last=1.0),
            },
        ),
        Inequality(
            root_sum,
            cube(steps=integer(1, 1000)),
            {"constant 10% too small": functools.partial(root_sum, constant=1.8)},
        ),
    ),
    printed=(
        Counterexample(telescoping_roots_as_printed, {"distances": (1.0, 0.0), "variance": 0.0}),
        Counterexample(
            telescoping_roots_as_printed, {"distances": (1.0, 1.0, 1.0, 1.0, 1.0), "variance": 0.0}
        ),
        Counterexample(
            telescoping_roots_as_printed, {"distances": (0.0, 0.0, 0.0, 0.0, 0.0), "variance": 1.0}
        ),
    ),
    see=("projected-sgd.convex",),
)


def squared_distance(point: ArrayLike, other: ArrayLike, bound: float | None = None) -> Sides:
    """`|v - v*|^2 <= d`, or another bound."""
    point, other = jnp.asarray(point), jnp.asarray(other)
    right = jnp.asarray(float(point.size) if bound is None else bound)
    return Sides(jnp.sum((point - other) ** 2), right, 8 * EPS * right)


EQ_57 = Claim(
    id="A.eq-57",
    source="[A] eq. (57)",
    statement="|v - v*|^2 <= d on [0, 1]^d",
    latex=r"\|v - v^*\|^2 \le d, \quad v, v^* \in [0, 1]^d",
    verdict="holds as corrected",
    remark="From (56) to (57) it is taken to be at most 2, whatever d.",
    checks=(
        Inequality(
            squared_distance,
            cube(point=often(0.0, uniform(0.0, 1.0, (3,))), other=often(1.0, uniform(0.0, 1.0, (3,)))),
            {"2, as printed": functools.partial(squared_distance, bound=2.0)},
        ),
    ),
    printed=(
        Counterexample(squared_distance, {"point": (0.0, 0.0, 0.0), "other": (1.0, 1.0, 1.0), "bound": 2.0}),
    ),
    see=("A.theorem-2.1",),
)

CLAIMS = (
    LEMMA_4_1,
    LEMMA_B_1,
    ASSUMPTION_1,
    LOGISTIC,
    BOUNDED_GRADIENT,
    THEOREM_4_3,
    STRONGLY_CONVEX,
    THEOREM_2_1,
    CONVEX,
    EQ_40,
    EQ_42,
    EQ_45,
    EQ_48,
    EQ_49,
    EQ_55,
    EQ_57,
)

"""A paired difference over several tasks: what it is on average, and on a task that nobody tried yet."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from jaxarch._internal.errors import (
    ArgumentError,
    check_mapping,
    positive_number,
    real_number,
    real_numbers,
    shown,
)

POINTS = 4000
"""Points of the integral over the spread between tasks."""
FINE, FAR = 1e-3, 1e4
"""Ends of these points: shares of the smallest scale of the data and of the prior."""
ROUNDING = 1e-12
"""Relative size below which a spread counts as 0."""
NORMAL = 1.959963984540054
"""The 97.5% point of the normal distribution."""


@dataclasses.dataclass(frozen=True)
class AcrossTasks:
    """A difference over several tasks: see `across_tasks`. Intervals hold 95% of the posterior.

    Attributes:
      mean: posterior median of the mean difference over all tasks of this kind, `mu`.
      low: lower bound of its interval.
      high: upper bound of its interval.
      spread: posterior median of the standard deviation of the difference between tasks, `tau`.
      next_low: lower bound of the difference on a new task.
      next_high: upper bound of the difference on a new task.
      better: probability that the difference on a new task is above `equivalent`.
      alike: probability that it is within `equivalent` of 0.
      worse: probability that it is below `-equivalent`.
      tasks: number of tasks.

    Example:
      >>> import jaxarch, numpy as np
      >>> draw = lambda mean, seed: np.random.default_rng(seed).normal(mean, 0.002, 10)
      >>> found = jaxarch.metrics.across_tasks({"digits": draw(0.03, 0), "text": draw(0.05, 1)})
      >>> found.better > found.worse, found.next_high - found.next_low > found.high - found.low
      (True, True)
    """

    mean: float
    low: float
    high: float
    spread: float
    next_low: float
    next_high: float
    better: float
    alike: float
    worse: float
    tasks: int


def across_tasks(
    differences: Mapping[str, np.ndarray], equivalent: float = 0.01, scale: float = 0.05
) -> AcrossTasks:
    r"""Estimate a paired difference of two strategies over tasks, and on a task that is not among them.

    Runs of one task share its data. So many runs tell much about a task, and little about the next one. In
    a hierarchical model both are apart: task t has a difference `theta_t ~ N(mu, tau^2)`, and the mean of
    its runs is `m_t ~ N(theta_t, s_t^2)`. With a flat prior on mu, and a half-Cauchy prior on tau (A. Gelman,
    Prior distributions for variance parameters in hierarchical models, 2006),

        p(tau | m) ~ p(tau) V(tau)^(1/2) prod_t N(m_t; mu_hat(tau), s_t^2 + tau^2),
        mu | tau, m ~ N(mu_hat(tau), V(tau)),        theta_new | tau, m ~ N(mu_hat(tau), V(tau) + tau^2).

    Here mu_hat is the mean of m weighted by `1 / (s_t^2 + tau^2)`, and V is 1 over the sum of the weights.
    The integral over tau is a sum over 4,000 points, equally spaced in log(tau), so nothing is sampled. The
    three probabilities of a new task follow G. Corani et al., Statistical comparison of classifiers through
    Bayesian hierarchical modelling, 2017. That paper has Student's t for theta, and samples; here theta is
    normal.

    `s_t` is the standard error of the runs, times the t quantile of its degrees of freedom over the normal
    one, so that few runs count for less.

    Args:
      differences: by task, `first - second` run by run, shape (runs,). NaN, a run that failed in either, is
        left out: compare the numbers of failures apart.
      equivalent: differences up to this size make no difference in practice, at least 0; in the units of
        the values.
      scale: median of the prior on tau, in the same units. With few tasks it matters: for accuracies,
        differences that vary by .05 between tasks are ordinary.

    Returns:
      An `AcrossTasks`.

    Raises:
      ArgumentError: fewer than two tasks, or a task of fewer than two runs that did not fail; values that
        are not numbers; a negative `equivalent`, or a `scale` that is not positive.

    Example:
      >>> import jaxarch, numpy as np
      >>> digits, text = np.array([0.04, 0.05, 0.06]), np.array([0.02, 0.03, 0.04])
      >>> tasks = {"digits": digits, "text": text, "speech": (digits + text) / 2}
      >>> found = jaxarch.metrics.across_tasks(tasks)
      >>> f"{found.mean:.3f} in [{found.low:.3f}, {found.high:.3f}]; ahead with p = {found.better:.2f}"
      '0.040 in [0.008, 0.072]; ahead with p = 0.92'
    """
    from scipy import optimize, special

    means, errors = _tasks(differences)
    equivalent = real_number("equivalent", equivalent)
    if equivalent < 0:
        raise ArgumentError(f"equivalent: expected at least 0, got {equivalent}")
    scale = positive_number("scale", scale)
    # Equal numbers have a spread of rounding alone.
    rounding = ROUNDING * np.abs(means).max()
    sizes = [scale, *(size for size in (errors.min(), np.ptp(means)) if size > rounding)]
    tau = np.geomspace(FINE * min(sizes), FAR * max(sizes), POINTS)
    # The half-Cauchy density, times tau for points that are equally spaced in log(tau).
    log_prior = np.log(tau) - np.log1p(np.square(tau / scale))
    precision = 1 / (np.square(errors) + np.square(tau)[:, None])
    total = precision.sum(axis=1)
    centre = (precision * means).sum(axis=1) / total
    misfit = (precision * np.square(means - centre[:, None])).sum(axis=1)
    log_weight = log_prior + (np.log(precision).sum(axis=1) - np.log(total) - misfit) / 2
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()

    def below(value: float, deviation: np.ndarray) -> float:
        """Return the probability below a value of a mixture of normal distributions around `centre`."""
        return float(weight @ special.ndtr((value - centre) / deviation))

    def quantile(q: float, deviation: np.ndarray) -> float:
        """Return a quantile of the mixture: it lies between the quantiles of its parts."""
        parts = centre + special.ndtri(q) * deviation
        # Parts that are nearly alike leave no room for rounding between their quantiles.
        room = float(weight @ deviation)
        low, high = parts.min() - room, parts.max() + room
        root = optimize.brentq(lambda value: below(value, deviation) - q, low, high, xtol=1e-9 * room)
        return float(root)

    of_mean, of_new = np.sqrt(1 / total), np.sqrt(1 / total + np.square(tau))
    mean, low, high = (quantile(q, of_mean) for q in (0.5, 0.025, 0.975))
    next_low, next_high = (quantile(q, of_new) for q in (0.025, 0.975))
    worse, not_better = below(-equivalent, of_new), below(equivalent, of_new)
    return AcrossTasks(
        mean=mean,
        low=low,
        high=high,
        spread=float(tau[np.searchsorted(np.cumsum(weight), 0.5)]),
        next_low=next_low,
        next_high=next_high,
        better=1 - not_better,
        alike=not_better - worse,
        worse=worse,
        tasks=len(means),
    )


def _tasks(differences: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of each task, and its standard error, widened for few runs."""
    from scipy import stats

    check_mapping("differences", differences, "a dict of differences by task, shape (runs,)")
    if len(differences) < 2:
        raise ArgumentError(f"differences: expected two tasks or more, got {shown(list(differences))}")
    means, errors = [], []
    for task, of in differences.items():
        name = f"differences: {shown(task)}"
        runs = real_numbers(name, of)
        finite = runs[np.isfinite(runs)]
        if runs.ndim != 1 or finite.size < 2:
            raise ArgumentError(
                f"{name}: expected shape (runs,), two runs or more finite; got {shown(runs.shape)}, "
                f"{finite.size} finite"
            )
        wider = stats.t.ppf(0.975, finite.size - 1) / NORMAL
        means.append(finite.mean())
        errors.append(wider * stats.sem(finite))
    return np.asarray(means), np.asarray(errors)

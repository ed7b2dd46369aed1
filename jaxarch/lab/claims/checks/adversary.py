"""A timed search for the worst case of a claim, in which its sides come closest or the claim fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch import ArgumentError
from jaxarch.lab.checks import check_instance
from jaxarch.lab.claims.checks.core import Claim, Evidence, Statement, float64
from jaxarch.lab.claims.checks.cube import Cube
from jaxarch.lab.claims.checks.drawn import Inequality, compiled, evaluate

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

POPULATION = 100
"""Number of points in a population of differential evolution, and of points drawn at a time."""

SHARE_DRAWN, SHARE_EVOLVED = 0.2, 0.8
"""Shares of the time at which drawing ends and evolution ends; the rest goes to the gradient."""


def drawn_checks(claim: Claim) -> list[Inequality]:
    """Return the checks of a claim whose cases are drawn.

    Raises:
      ArgumentError: the claim has no such checks.

    Example:
      >>> from jaxarch.lab.claims import CLAIMS, drawn_checks
      >>> len(drawn_checks(CLAIMS["D.lemma-4.2"]))
      3
      >>> drawn_checks(CLAIMS["D.zero-mean-error"])  # doctest: +ELLIPSIS
      Traceback (most recent call last):
      jaxarch.ArgumentError: claim: D.zero-mean-error is refuted by its counterexamples, ...
    """
    check_instance("claim", claim, Claim, "a jaxarch.lab.claims.Claim")
    checks = [check for check in claim.checks if isinstance(check, Inequality)]
    if not checks:
        why = "is refuted by its counterexamples" if not claim.checks else "is checked exactly"
        raise ArgumentError(f"claim: {claim.id} {why}, so it draws no cases to search")
    return checks


class _Clock:
    """A clock that tells when a share of the time has passed."""

    def __init__(self, seconds: float) -> None:
        self.start, self.seconds = time.perf_counter(), seconds

    def past(self, share: float) -> bool:
        return time.perf_counter() - self.start >= share * self.seconds

    def stop_at(self, share: float) -> Callable[..., None]:
        """Return a callback that ends one of SciPy's searches after a share of the time."""

        def callback(intermediate_result: OptimizeResult) -> None:
            if self.past(share):
                raise StopIteration

        return callback


def search(inequality: Inequality, seconds: float, key: Array) -> Evidence:
    """Search for an inequality's worst case by drawing, differential evolution, then gradient steps."""
    from scipy import optimize

    statement, cube = inequality.statement, inequality.cube
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    margins = compiled(statement, cube, POPULATION)
    slopes = _slopes(statement, cube)
    count = 0

    def margins_of(points: np.ndarray) -> np.ndarray:
        nonlocal count
        count += len(points)
        with float64():
            # No margin is below -2, so a case with a NaN side counts as the worst.
            return np.nan_to_num(np.asarray(margins(points).margins), neginf=-2.0)

    def margin_and_slope(point: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal count
        count += 1
        with float64():
            margin, slope = slopes(point)
        return float(margin), np.nan_to_num(np.asarray(slope))

    clock = _Clock(seconds)
    worst = _drawn(margins_of, random, cube.dimension, clock)
    bounds = [(0.0, 1.0)] * cube.dimension
    evolved = optimize.differential_evolution(
        # SciPy passes the whole population at once, with one point a column.
        lambda columns: margins_of(columns.T),
        bounds,
        init=worst,
        vectorized=True,
        updating="deferred",
        polish=False,
        maxiter=10**9,
        tol=0,
        rng=random,
        callback=clock.stop_at(SHARE_EVOLVED),
    )
    refined = _refined(margin_and_slope, [evolved.x, *worst[2:]], bounds, clock)
    # Points are repeated up to the number that the program is compiled for.
    candidates = np.resize(np.asarray([evolved.x, *refined]), worst.shape)
    found = evaluate(statement, cube, candidates)
    return found._replace(kind="searched", cases=count, seconds=time.perf_counter() - clock.start)


def _drawn(
    margins_of: Callable[[np.ndarray], np.ndarray], random: np.random.Generator, dimension: int, clock: _Clock
) -> np.ndarray:
    """Draw points until the time for drawing is up, and keep the worst, as many as a population."""
    worst = np.empty((0, dimension))
    smallest = np.empty(0)
    while True:
        points = random.random((POPULATION, dimension))
        worst, smallest = np.concatenate([worst, points]), np.concatenate([smallest, margins_of(points)])
        order = np.argsort(smallest)[:POPULATION]
        worst, smallest = worst[order], smallest[order]
        if clock.past(SHARE_DRAWN):
            return worst


def _slopes(statement: Statement, cube: Cube) -> Callable[[np.ndarray], tuple[Array, Array]]:
    """Compile a function from a point to its margin and the margin's gradient."""

    def margin(point: Array) -> Array:
        return statement(**cube(point)).margin

    with float64():
        point = jax.ShapeDtypeStruct((cube.dimension,), jnp.float64)
        return jax.jit(jax.value_and_grad(margin)).lower(point).compile()


def _refined(
    margin_and_slope: Callable[[np.ndarray], tuple[float, np.ndarray]],
    starts: list[np.ndarray],
    bounds: list[tuple[float, float]],
    clock: _Clock,
) -> Iterator[np.ndarray]:
    """Yield points of smaller margin along the gradient, from each start until the time is up."""
    from scipy import optimize

    for start in starts:
        if clock.past(1.0):
            return
        yield optimize.minimize(
            margin_and_slope,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            callback=clock.stop_at(1.0),
            options={"maxiter": 1000, "ftol": 0, "gtol": 0},
        ).x

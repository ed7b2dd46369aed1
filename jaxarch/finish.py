"""What turns one found network into another: thresholding its weights, retraining its architecture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch.errors import ArgumentError, is_traced
from jaxarch.masks import (
    apply_mask,
    check_fits,
    connections,
    percentile_thresholds,
    reshuffle,
    threshold_mask,
    top_k,
    weight_free,
)
from jaxarch.problem import Found, Problem
from jaxarch.spectral.network import tells_neurons
from jaxarch.training import Point, Training
from jaxarch.trees import PyTree, map_selected, merge, named_leaves
from jaxarch.weights import Held, fresh, he, square_roots, weight_training

Finish = Callable[[Array, Problem, Found], Found]

PERCENTILES = tuple(range(10, 101, 10))
"""The percentiles of [D] eq. (13)."""


def check_percentiles(percentiles: tuple[float, ...]) -> None:
    """Raise unless there are percentiles, all in [0, 100]."""
    numbers = np.asarray(percentiles)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf" or not numbers.size:
        raise ArgumentError(f"percentiles: expected numbers in [0, 100], got {percentiles!r}")
    if not ((numbers >= 0) & (numbers <= 100)).all():
        raise ArgumentError(f"percentiles: expected numbers in [0, 100], got {percentiles!r}")


def threshold(
    percentiles: tuple[float, ...] = PERCENTILES, *, weights: Literal["ones", "found"] = "ones"
) -> Finish:
    r"""The weight-free network of the weights above a threshold ([D] eq. 13).

    `w' = B_inf(w - xi*)`, `xi* = argmin F(B_inf(w - xi))` over the percentiles of all masked leaves together,
    F on the training rows.

    Args:
      percentiles: candidates, in [0, 100]; at 100 no connection is left.
      weights: `ones` for the weight-free network that F is computed with; `found` to keep the weights that
        are above the threshold, as in the recursion that [D] prints for lottery tickets.

    Returns:
      A finish. Its `info` has `threshold` and `percentile`; `candidates`, F at each percentile; `ties`, how
      many other candidates reach the same F (the lowest percentile is then taken); and `constant`, whether
      the network chosen gives the same output on all training examples, which F alone does not show. A
      candidate whose F is NaN is never chosen.

    Raises:
      ArgumentError: percentiles outside [0, 100], or none; an unknown `weights`.
    """
    if weights not in ("ones", "found"):
        raise ArgumentError(f"weights: expected 'ones' or 'found', got {weights!r}")
    check_percentiles(percentiles)

    def finish(key: Array, problem: Problem, found: Found) -> Found:
        values = map_selected(lambda m, leaf: leaf, found.mask, found.params)
        thresholds = percentile_thresholds(values, jnp.asarray(percentiles))

        def binary(xi: ArrayLike) -> tuple[PyTree, PyTree]:
            mask = threshold_mask(values, xi)
            return mask, weight_free(mask, found.params)

        def objective(xi: Array) -> Array:
            return problem.objective(binary(xi)[1], found.state)

        candidates = jax.lax.map(objective, thresholds)
        ranked = jnp.where(jnp.isnan(candidates), jnp.inf, candidates)
        best = jnp.argmin(ranked)
        mask, params = binary(thresholds[best])
        info = {
            "threshold": thresholds[best],
            "percentile": jnp.asarray(percentiles, jnp.float32)[best],
            "candidates": candidates,
            "ties": jnp.sum(ranked == ranked[best]) - 1,
        }
        if problem.predict is not None:
            outputs = jax.tree.leaves(problem.outputs(params, found.state))
            info["constant"] = jnp.stack([jnp.all(leaf == leaf[:1]) for leaf in outputs]).all()
        if weights == "found":
            params = apply_mask(mask, found.params)
        return Found(params, mask, found.state, info)

    finish.__name__ = "threshold"
    return finish


def prune(fraction: ArrayLike = 0.2) -> Finish:
    """The connections of the largest weights: a fraction of those that are left is removed, the weights kept.

    One round of iterative magnitude pruning: of n connections, `n - round(fraction n)` with the largest
    `|w|` stay, pooled over all masked leaves. To given densities: `search.magnitude_pruning`.

    Args:
      fraction: of the connections that are left, in [0, 1). May be traced.

    Returns:
      A finish.

    Raises:
      ArgumentError: a concrete fraction outside [0, 1).
    """
    check_fraction("fraction", fraction)

    def finish(key: Array, problem: Problem, found: Found) -> Found:
        left = connections(found.mask)
        mask = largest_weights(found, left - jnp.round(fraction * left).astype(jnp.int32))
        return Found(apply_mask(mask, found.params), mask, found.state, {})

    finish.__name__ = "prune"
    return finish


def check_fraction(name: str, fraction: ArrayLike) -> None:
    """Raise unless it is a number in [0, 1), where it is concrete."""
    if not is_traced(fraction):
        number = np.asarray(fraction)
        if number.ndim or number.dtype.kind not in "iuf" or not 0 <= number < 1:
            raise ArgumentError(f"{name}: expected a number in [0, 1), got {fraction!r}")


def largest_weights(found: Found, count: ArrayLike) -> PyTree:
    """The mask of the `count` largest `|w|` among the connections that are left, pooled over all leaves."""
    magnitudes = map_selected(lambda m, w: jnp.where(m, jnp.abs(w), -1), found.mask, found.params)
    return top_k(magnitudes, count)


def reshuffled() -> Finish:
    """The network with its connections permuted at random within each leaf ([A] section 3.3).

    What is left of an architecture is the density of its layers. Weights that are kept are those found at
    their new places, 0 where there was no connection: retrain them.

    Returns:
      A finish.
    """

    def finish(key: Array, problem: Problem, found: Found) -> Found:
        mask = reshuffle(key, found.mask)
        return Found(apply_mask(mask, found.params), mask, found.state, {})

    finish.__name__ = "reshuffled"
    return finish


def new_head() -> Finish:
    """The architecture on a task with another number of classes or inputs: what does not fit is made anew.

    Leaves of another shape than the problem's parameters get the problem's initial values, and where they
    were masked a random mask of the density that they had, to a connection. All else stays as it was found; a
    bare architecture gets the problem's initial values throughout.

    Returns:
      A finish, the first one: `over_seeds(chain(new_head(), retrain("cold", nonnegative=False)), keys,
      new_problem, found=found)`.

    Raises:
      ArgumentError: a model of other layers than the one found.
    """

    def finish(key: Array, problem: Problem, found: Found) -> Found:
        params_key, mask_key = jax.random.split(key)
        params, state = problem.init(params_key)
        if found.params is not None:
            ours, theirs = (", ".join(named_leaves(tree)) for tree in (params, found.params))
            if ours != theirs:
                raise ArgumentError(f"found: it has the parameters {theirs}; the problem's model has {ours}")
            params = jax.tree.map(
                lambda new, old: old if old.shape == new.shape else new, params, found.params
            )
        keys = iter(jax.random.split(mask_key, len(jax.tree.leaves(found.mask))))

        def fitting(old: Array, leaf: Array) -> Array:
            key = next(keys)
            if old.shape == leaf.shape:
                return old
            kept = jnp.round(jnp.sum(old) / old.size * leaf.size)
            return jax.random.permutation(key, (jnp.arange(leaf.size) < kept)).reshape(leaf.shape)

        mask = map_selected(fitting, found.mask, params)
        same = jax.tree.map(jnp.shape, state) == jax.tree.map(jnp.shape, found.state)
        return Found(apply_mask(mask, params), mask, found.state if same else state, {})

    finish.__name__ = "new head"
    return finish


def retrain(
    start: Literal["warm", "cold", "rewind"] = "cold",
    *,
    nonnegative: bool = True,
    std: ArrayLike = 0.2,
    weights: Literal["initial", "he", "density-aware"] = "initial",
    optimizer: optax.GradientTransformation | None = None,
) -> Training:
    r"""Train weights on a found architecture: `argmin F(w o m)`, the mask m held fixed ([D] section 5).

    Args:
      start: `warm` from the found weights (after a weight-free search: from 1), `cold` from fresh ones,
        `rewind` from those that the search `real` at the beginning of the chain started from.
      nonnegative: whether the masked leaves are `w = u^2`, u unconstrained ([D] footnote 11). A start other
        than cold then needs weights that are not negative; a run that has some is reported as failed at
        step 0.
      std: with `nonnegative`, a cold start draws `u ~ N(0, std)`, std the standard deviation. [D] draws from
        N(0, 1), where the network saturates and its gradient is exactly 0.
      weights: where a cold start of masked leaves that are not squares comes from: `initial`, the model's
        own; `he`, `N(0, sqrt(2 / n))`, n the inputs of a neuron (all axes of a kernel but the last);
        `density-aware`, `N(0, sqrt(2 / (n d)))`, d the leaf's density, so that signals keep their size
        however few connections are left. [A] has N(0, epsilon) without saying which epsilon.
      optimizer: any optax transformation; by default the problem's.

    Returns:
      A finish. Leaves that are not masked are trained too, unconstrained, from the found values (warm), the
      problem's initial ones (cold) or those of the search (rewind). A connection that is pruned stays
      exactly 0. The model's state starts as the problem's own, but for a warm start.

    Raises:
      ArgumentError: an unknown `start`; `rewind` after a search that does not tell where it started; a
        spectral network that `recruit` has removed neurons from: its mask is one of neurons, and eigenvalues
        of 0 do not remove them. There, `search.spectral(0.0)` is the finish that refits.
    """
    if start not in ("warm", "cold", "rewind"):
        raise ArgumentError(f"start: expected 'warm', 'cold' or 'rewind', got {start!r}")
    if weights not in ("initial", "he", "density-aware"):
        raise ArgumentError(f"weights: expected 'initial', 'he' or 'density-aware', got {weights!r}")
    if weights != "initial" and (start != "cold" or nonnegative):
        raise ArgumentError("weights: they are of a cold start with nonnegative=False; leave them out")

    def init(key: Array, problem: Problem, found: Found | None) -> Point:
        if found is None:
            raise ArgumentError("retrain: it finishes what a search found; use chain(search, retrain())")
        if "removed" in found.info and tells_neurons(found.state):
            raise ArgumentError(
                "retrain: the mask is of hidden neurons, not of connections; to train on with those that are "
                "left, use search.spectral(0.0) as a finish: chain(search, recruit(), search.spectral(0.0))"
            )
        check_fits(found.mask, jax.eval_shape(problem.init, key)[0])
        if start == "cold":
            params, state = fresh(key, problem, found.mask, nonnegative, std)
            if weights != "initial":
                # Not the key itself: what is drawn from it is the model's own initial weights.
                drawn = he(jax.random.fold_in(key, 1), found.mask, params, weights == "density-aware")
                params = merge(drawn, params)
            return Point(params, Held(found.mask), state)
        if start == "rewind" and "start" not in found.info:
            raise ArgumentError("retrain: to rewind, the chain must begin with search.real()")
        params, state = (
            (found.params, found.state) if start == "warm" else (found.info["start"], problem.init(key)[1])
        )
        if nonnegative:
            params = square_roots(found.mask, params)
        return Point(params, Held(found.mask), state)

    if start != "cold" and nonnegative:
        remedy = f"a {start} start needs weights that are neither 0 nor negative; or nonnegative=False"
    else:
        remedy = "the architecture keeps too little, or `std` saturates the network: change either"
    return weight_training(f"retrain {start}", init, nonnegative, optimizer, remedy)

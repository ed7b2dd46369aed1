"""Spectral networks trained under a penalty on their hidden eigenvalues ([S] eq. 4.4)."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch.errors import ArgumentError, did_you_mean, is_traced
from jaxarch.finish import Finish
from jaxarch.masks import full_mask
from jaxarch.problem import Found, Problem
from jaxarch.spectral.network import hidden_eigenvalues, neurons_in, with_neurons
from jaxarch.spectral.penalty import PENALTIES, Penalty
from jaxarch.spectral.readout import neuron_order
from jaxarch.training import Point, Training
from jaxarch.trees import PyTree, Where, everything, map_selected, merge, select, unselected


def spectral(
    strength: ArrayLike = 1e-4,
    *,
    penalty: Literal["l1", "l2", "squared l2"] | Penalty = "l1",
    where: Where | None = None,
    trainable: Where = everything,
    optimizer: optax.GradientTransformation | None = None,
) -> Training:
    r"""Train a spectral network under `loss + strength * Omega(hidden eigenvalues)` ([S] eq. 4.4).

    The default is L1, since it is the one that selects neurons: it pulls on every eigenvalue alike, however
    small. The norm that is not squared, in the code of [S], is a group lasso with one group a layer: it
    selects layers, and within one that is used it pulls on small eigenvalues less than on large ones. The
    squared norm hardly pulls on small ones at all, and selects nothing. [S] appendix G uses L1 on pictures
    and L2 elsewhere, with strengths around 1e-4.

    Args:
      strength: rho of (4.4), at least 0. May be traced: a sweep is one program.
      penalty: Omega: `l1`, `l2` (a norm a layer, not squared), `squared l2`, or a function of a pytree with
        one vector of eigenvalues a layer.
      where: the leaves that are penalised and counted as architecture, by path. By default all hidden
        eigenvalues, L_2 to L_B, of every spectral network in the model; those of inputs and outputs are left
        alone. Where [S] trains L_1 (experiment 1) it penalises it too: `where="eigenvalues/L[12]"`.
      trainable: the leaves that are trained, by path; the others keep their start. `"eigenvalues/*"` trains
        eigenvalues on fixed random eigenvectors.
      optimizer: any optax transformation; by default the problem's.

    Returns:
      A search. Its mask keeps every hidden eigenvalue, that is, every hidden neuron. As a finish it trains
      on from what was found, without the neurons that `recruit` has removed: `chain(spectral(3e-4),
      recruit(), spectral(0))` prunes, then refits.

    Raises:
      ArgumentError: a strength that is negative or not finite, an unknown penalty.
    """
    if not is_traced(strength):
        numbers = np.asarray(strength)
        if numbers.dtype.kind not in "iuf" or not (np.isfinite(numbers) & (numbers >= 0)).all():
            raise ArgumentError(f"strength: expected a finite number of at least 0, got {strength!r}")
    if not callable(penalty) and penalty not in PENALTIES:
        raise ArgumentError(f"penalty: unknown {penalty!r}; {did_you_mean(str(penalty), PENALTIES)}")
    omega = penalty if callable(penalty) else PENALTIES[penalty]

    def architecture(params: PyTree) -> PyTree:
        return hidden_eigenvalues(params) if where is None else select(params, where)

    def init(key: Array, problem: Problem, found: Found | None) -> Point:
        params, state = problem.init(key) if found is None else (found.params, found.state)
        trained = select(params, trainable)
        return Point(trained, unselected(trained, params), state)

    def params(point: Point) -> PyTree:
        return merge(point.trainable, point.fixed)

    def found(point: Point) -> Found:
        mask = neurons_in(point.state, full_mask(architecture(params(point))))
        return Found(params(point), mask, point.state, {})

    def penalty_of(point: Point) -> Array:
        return jnp.asarray(strength) * omega(architecture(params(point)))

    return Training(
        "spectral",
        init,
        params,
        found,
        optimizer,
        penalty=penalty_of,
        remedy="start from other eigenvalues (see `jaxarch.spectral_network`)",
    )


def recruit(tolerance: ArrayLike = 0.05) -> Finish:
    r"""Keep the hidden neurons that a spectral network needs, by its validation loss ([S] figure 10).

    Neurons are removed in the joint order of `|eigenvalue|`, smallest first. Of all removals, 0 to H neurons,
    the largest is taken whose loss on the problem's validation rows is at most `loss_0 + tolerance |loss_0|`,
    loss_0 that of the network as found. So a negative loss may rise by the same share of its size, and where
    it is 0 it may not rise at all. The curve need not be monotone: the largest removal counts, even if some
    smaller one is worse. A removal whose loss is NaN or infinite is never taken; if loss_0 is, none is.

    A removed neuron has activation 0, whatever the layer, and all other weights W_ij stay as they are. [S]
    puts its eigenvalue to 0. That removes it too, but only if the eigenvalues of the layer before are 0 and
    f(0) = 0, and it changes the skip connections past it, by a term of the eigenvalue's size.

    Choose on rows that are used for nothing else: the loss there is no longer an estimate of a new one.

    Args:
      tolerance: relative increase of the loss, at least 0. May be traced.

    Returns:
      A finish, for models whose state has room for removed neurons: `spectral_network` and `SpectralMLP`. Its
      mask has the hidden neurons that are left, its state says so to the model, and the parameters are
      unchanged. Its `info` has `losses`, shape (H + 1,), on the validation rows against the number of neurons
      removed, and `removed`, that number. A network in which some are removed already is pruned further;
      `losses` begins as many times with what it had.

    Raises:
      ArgumentError: a concrete tolerance that is negative or not finite; a problem without `validation` rows;
        parameters without hidden eigenvalues.
    """
    if not is_traced(tolerance):
        number = np.asarray(tolerance)
        if number.dtype.kind not in "iuf" or not (np.isfinite(number) & (number >= 0)).all():
            raise ArgumentError(f"tolerance: expected a finite number of at least 0, got {tolerance!r}")

    def finish(key: Array, problem: Problem, found: Found) -> Found:
        if problem.validation is None:
            raise ArgumentError("validation: recruit needs a problem with validation rows")
        places = neuron_order(found.params, found.state)
        neurons = sum(leaf.size for leaf in jax.tree.leaves(places))

        def without(removed: Array) -> tuple[PyTree, PyTree]:
            mask = map_selected(lambda place: place >= removed, places)
            mask = neurons_in(found.state, mask)
            return mask, with_neurons(found.state, mask)

        def loss(removed: Array) -> Array:
            return problem.objective(found.params, without(removed)[1], problem.validation)

        losses = jax.lax.map(loss, jnp.arange(neurons + 1))
        within = losses <= losses[0] + jnp.asarray(tolerance, losses.dtype) * jnp.abs(losses[0])
        within &= jnp.isfinite(losses[0])
        removed = jnp.max(jnp.where(within, jnp.arange(neurons + 1), 0))
        mask, state = without(removed)
        return Found(found.params, mask, state, {"losses": losses, "removed": removed})

    finish.__name__ = "recruit"
    return finish

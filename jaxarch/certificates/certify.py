"""What theorems say of a network, in one call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch.certificates.certificate import Certificate, Errors, Flips
from jaxarch.certificates.untouched import why_touched
from jaxarch.errors import ArgumentError, check_count, check_flag, shown
from jaxarch.finish.flip import MaskedObjective, Returning, flipped
from jaxarch.masks import check_booleans, check_fits, connections
from jaxarch.network import Network
from jaxarch.problem import Problem
from jaxarch.theory.generalization import binomial_upper, check_delta, description_length, masked_bound
from jaxarch.theory.optimality import duality_gap
from jaxarch.trees import PyTree, named_leaves

Wrong = Callable[[Any, Any], Array]
SEGMENTS = 16
"""On which a loss that is said to be convex is looked at."""


def certify(
    network: Network,
    problem: Problem,
    *,
    weights: PyTree = None,
    wrong: Wrong | None = None,
    convex: bool = False,
    flips: int = 20,
    delta: float = 0.05,
    choices: int = 1,
    batch_size: int | None = None,
) -> Certificate:
    r"""What can be proved of a mask that was learned: how good it is, and how often it errs on new examples.

    - *The gap* `sum_i max(g_i u_i, -g_i (1 - u_i))`, g the gradient of F, the loss over all training rows, at
      the mask u: 0 where no direction into the cube descends. If F is convex in the mask, no mask's loss is
      lower than `F(u) - gap` (`theory.optimality.duality_gap`).
    - *Single flips* of the connections that promise most by the gradient, each one's F computed. The mask is
      locally optimal if all were tried and none is better.
    - *Errors on new examples*, where the weights were there before the data and the data chose nothing but
      the mask: a bound from the errors on the training rows and the length of the mask's description
      (`theory.generalization.masked_bound`), and, where there are validation rows, the bound that these give
      by themselves, which is nearly always the smaller one. Each is wrong with probability `delta` at most.

    Args:
      network: what one run found, masked: `network.of_run(0)` of what `over_seeds` returned.
      problem: that it was found for, of one run: `problem.of_run(0)` where runs have rows of their own.
      weights: all parameters as they were before any training row was looked at, such as
        `problem.init(key)[0]`, of a search over fixed weights; by default weights of 1. With them connections
        that are not there can be tried too.
      wrong: `(outputs, y) -> (n,)`, which of n examples the network gets wrong, y being the second of the
        problem's batches; by default whether the largest output is not that of an integer label.
      convex: whether the loss is convex in the mask, as one that is convex in outputs which are linear in it.
        Hidden layers are not.
      flips: how many connections are tried, the most promising ones first.
      delta: in (0, 1).
      choices: among how many networks (seeds, settings) this one was chosen by looking at the training rows.
        Those that differ in density alone are one.
      batch_size: rows at a time, where memory is short; by default all.

    Returns:
      A `Certificate`; `print` shows it. The loss, its gap and flips are as exact as the network's arithmetic,
      the error bounds are rounded upwards from counted errors.

    Raises:
      ArgumentError: a network without a mask or weights, or of many runs; a problem whose runs have values of
        their own; a stream without rows; a loss said to be convex that is not, with the place; numbers out of
        range.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x = jax.random.normal(jax.random.key(0), (200, 8))
      >>> y = (x[:, :3].sum(axis=1) > 0).astype(int)
      >>> def logits(params, x):
      ...     return jnp.stack([jnp.zeros(len(x)), x @ params["w"][:, 0]], axis=1)
      >>> problem = jaxarch.supervised(
      ...     (lambda key: {"w": jax.random.normal(key, (8, 1))}, logits), (x, y),
      ...     loss=optax.softmax_cross_entropy_with_integer_labels, optimizer=optax.adam(0.1), steps=100)
      >>> network = jaxarch.search.two_temperature(20.0, 2.0)(jax.random.key(1), problem)
      >>> certificate = jaxarch.certify(network, problem, convex=True)
      >>> print(network.mask["w"][:, 0].astype(int), certificate.flips.locally_optimal)
      [1 1 1 0 0 0 0 0] True
      >>> print(certificate)
      connections       3 of 8
      loss              0.3 on 200 training examples
      gap               0.02689: no mask has a loss below 0.2731
      single flips      8 of 8 tried, none is better: locally optimal
      description       6 nats
      new errors        at most 0.0450 (0 errors in 200 examples: 0.0000)
      with probability  0.95
      assumed           that the training examples are independent, and that no input was scaled by them
      assumed           that the loss is convex in the mask
    """
    _check(network, problem)
    check_flag("convex", convex)
    check_delta(delta)
    check_count("choices", choices)
    check_count("flips", flips, least=0)
    if batch_size is not None:
        check_count("batch_size", batch_size)
    if wrong is not None and not callable(wrong):
        raise ArgumentError(f"wrong: expected a function (outputs, y) -> (n,), got {shown(wrong)}")
    why_not = why_touched(network, problem, weights)
    if weights is not None:
        check_fits(network.mask, weights)
    known: Returning = "start" if weights is not None else None if why_not else "ones"
    network = network.replace(start=weights, state={} if network.state is None else network.state)
    on = MaskedObjective.of(network, known, problem, batch_size)
    if convex:
        _check_convex(on)
    loss, gradient = jax.jit(jax.value_and_grad(on.objective))(on.flat)
    rows = np.asarray(problem.training_rows())
    training, assumptions = None, []
    if not why_not:
        why_not = _why_no_errors(problem, wrong, rows)
    if not why_not:
        errors = _count_errors(network, problem, wrong, rows, batch_size)
        bound = masked_bound(errors, len(rows), network.mask, delta, choices=choices)
        training = Errors(errors, len(rows), bound)
        assumptions.append("that the training examples are independent, and that no input was scaled by them")
        if weights is not None:
            assumptions.append("that the weights were there before the training rows were looked at")
    held_out = None
    if problem.validation is not None and not _why_no_errors(problem, wrong, problem.validation):
        held = np.asarray(problem.validation)
        errors = _count_errors(network, problem, wrong, held, batch_size)
        held_out = Errors(errors, len(held), binomial_upper(errors, len(held), delta))
        assumptions.append("that nothing was chosen by looking at the validation rows")
    if convex:
        assumptions.append("that the loss is convex in the mask")
    return Certificate(
        connections=on.flat.size,
        kept=int(connections(network.mask)),
        examples=len(rows),
        loss=float(loss),
        gap=float(duality_gap(on.flat, gradient)),
        convex=convex,
        flips=_flips(on, flips, float(loss), network.mask),
        delta=delta,
        length=description_length(network.mask),
        training=training,
        held_out=held_out,
        why_not=why_not,
        assumptions=tuple(assumptions),
    )


def _check(network: Network, problem: Problem) -> None:
    """Raise unless they are a network of one run with a mask, and the problem of that run."""
    if not isinstance(network, Network):
        raise ArgumentError(f"network: expected what a search found, got {shown(network)}")
    if not isinstance(problem, Problem):
        raise ArgumentError(f"problem: expected one, as of jaxarch.supervised(...), got {shown(problem)}")
    if network.params is None or network.mask is None:
        raise ArgumentError("network: it has no mask, or no weights; a certificate is of both")
    if problem.runs is not None:
        raise ArgumentError("problem: its runs have values of their own; take one, problem.of_run(0)")
    if problem.train_size is not None:
        raise ArgumentError("problem: with a train_size some of its rows are padding; take train=rows[:size]")
    check_booleans(network.mask)
    params, _ = jax.eval_shape(problem.init, jax.random.key(0))
    for path, leaf in named_leaves(network.params).items():
        expected = named_leaves(params).get(path)
        if expected is None or jnp.shape(leaf) != expected.shape:
            raise ArgumentError(
                f"network: '{path}' has the shape {jnp.shape(leaf)}, the problem's "
                f"{getattr(expected, 'shape', 'none')}; of many runs take one, network.of_run(0)"
            )
    check_fits(network.mask, network.params)


def _check_convex(on: MaskedObjective) -> None:
    """Raise if F is above the mean of its values at the ends in the middle of some segment of the cube."""

    def excess(key: Array) -> tuple[Array, Array]:
        corners = jax.random.uniform(key, (2, on.flat.size)) < jax.random.uniform(
            jax.random.fold_in(key, 1), (2, 1)
        )
        ends = corners.astype(on.flat.dtype)
        values = jnp.stack([on.objective(ends[0]), on.objective(ends[1])])
        middle = on.objective(ends.mean(axis=0))
        return middle - values.mean(), jnp.abs(values).max() + jnp.abs(middle)

    keys = jax.random.split(jax.random.key(0), SEGMENTS)
    above, size = jax.jit(lambda keys: jax.lax.map(excess, keys))(keys)
    tolerance = 1e3 * jnp.finfo(above.dtype).eps * (1 + size)
    if (above > tolerance).any():
        raise ArgumentError(
            f"convex: the loss is not convex in the mask: half way between two masks it is above the mean of "
            f"its values there by {float(above.max()):.3g}"
        )


def _flips(on: MaskedObjective, tried: int, loss: float, mask: PyTree) -> Flips:
    allowed = int(on.allowed.sum())
    tried = min(tried, allowed)
    if tried == 0:
        return Flips(0, allowed, 0, None, None)
    evaluate = jax.jit(lambda vector: on.flips(vector, tried, min(8, tried)))
    values, positions = (np.asarray(of) for of in evaluate(on.flat))
    best = int(np.argmin(values))
    changed = on.unravel(flipped(on.flat, positions[best]))
    for path, leaf in named_leaves(changed).items():
        places = np.argwhere(np.asarray(leaf > 0) != np.asarray(named_leaves(mask)[path]))
        if len(places):
            connection = (path, tuple(int(place) for place in places[0]))
    return Flips(tried, allowed, int((values < loss).sum()), float(values[best]) - loss, connection)


def _why_no_errors(problem: Problem, wrong: Wrong | None, rows: Any) -> str:
    """Why errors on these rows cannot be counted; empty where they can."""
    if len(np.unique(rows)) < len(rows):
        return "none: some training rows are there twice, so that they are not independent"
    if problem.predict is None:
        return "none: the problem has no `predict`"
    if wrong is not None:
        return ""
    labels = problem.data[1] if isinstance(problem.data, tuple) and len(problem.data) == 2 else None
    classes = isinstance(labels, jax.Array) and labels.ndim == 1 and jnp.issubdtype(labels.dtype, jnp.integer)
    if not classes:
        return "none: the labels are no classes; say which outputs are wrong, wrong=(outputs, y) -> (n,)"
    return ""


def _largest_is_another(outputs: Any, labels: Array) -> Array:
    return jnp.argmax(outputs, axis=-1) != labels


@partial(jax.jit, static_argnums=0)
def _errors_of(wrong: Wrong, problem: Problem, params: PyTree, state: PyTree, rows: Array) -> Array:
    batch = problem.gather(problem.data, problem.per_run, rows)
    assert problem.predict is not None
    return jnp.sum(wrong(problem.predict(params, state, batch), batch[1]).astype(bool), dtype=jnp.int32)


def _count_errors(
    network: Network, problem: Problem, wrong: Wrong | None, rows: np.ndarray, batch_size: int | None
) -> int:
    size = batch_size or len(rows)
    parts = (rows[start : start + size] for start in range(0, len(rows), size))
    of = wrong or _largest_is_another
    return sum(
        int(_errors_of(of, problem, network.params, network.state, jnp.asarray(part))) for part in parts
    )

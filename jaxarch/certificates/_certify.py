"""Certificates of a network: the guarantees that theorems give, in one call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from jaxarch._internal.errors import (
    ArgumentError,
    check_array,
    check_callable,
    check_count,
    check_flag,
    check_leaves,
    first_line,
    is_traced,
    shown,
)
from jaxarch._internal.trees import PyTree, check_structure, named_leaves
from jaxarch.certificates._certificate import Certificate, Errors, Flips
from jaxarch.certificates._convexity import ROUNDINGS, check_convex, check_flips
from jaxarch.certificates._counting import Wrong, count_errors, why_no_errors
from jaxarch.certificates._repeated import input_digests, why_repeated, why_seen
from jaxarch.certificates._untouched import as_before, is_weight_free, why_touched
from jaxarch.masks import apply_mask, check_booleans, check_fits, connections
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem, check_is_problem, check_rows
from jaxarch.run._records import Start
from jaxarch.theory.generalization import binomial_upper, description_length, masked_bound
from jaxarch.theory.generalization._binomial import check_delta
from jaxarch.theory.optimality import duality_gap
from jaxarch.transforms._flip import MaskedObjective, Returning, Tries, flipped


def certify(
    network: Network,
    problem: Problem,
    *,
    weights: PyTree = None,
    wrong: Wrong | None = None,
    convex: bool = False,
    relaxed: PyTree = None,
    flips: int = 20,
    delta: float = 0.05,
    choices: int = 1,
    prior: PyTree = None,
    repeats: bool = False,
    batch_size: int | None = None,
) -> Certificate:
    r"""Certify a learned mask: how close to optimal it is, and how often it errs on new examples.

    - *The gap* `sum_i max(g_i u_i, -g_i (1 - u_i))`, g the gradient of F, the loss over all training rows, at
      the mask u. It is 0 if no direction into the cube descends. If F is convex in the mask, no mask's loss
      is lower than `F(u) - gap` (`theory.optimality.duality_gap`), or than `F(v) - gap(v)` at a `relaxed` v.
    - *Single flips* of the connections that are most promising by the gradient; F is computed for each. The
      mask is locally optimal if all flips were tried and none is better.
    - *Errors on new examples*. If the weights existed before the data and the data chose only the mask, the
      errors on the training rows and the length of the mask's description give a bound
      (`theory.generalization.masked_bound`). Validation rows that chose nothing give a bound by themselves,
      nearly always the smaller one. Each bound is wrong with probability at most `delta`.

    Args:
      network: the masked network of one run: `network.of_run(0)` of the result of `over_seeds`.
      problem: the problem that was solved, of one run: `problem.of_run(0)` if runs have their own rows.
      weights: all parameters as they were before any training row was looked at; by default weights of 1.
        Take `network[Start].params` after a search over fixed weights without training before it, or
        `problem.start(key)[0]` if the problem is `paired`. The training rows give no bound if the weights
        differ from the network's `Start`, if that was trained for some steps, or if they are 0 wherever the
        mask is 0. With `weights`, flips also try missing connections. Without them, unless all weights are 1,
        the gap and the flips cover only the connections that exist.
      wrong: `(outputs, y) -> (n,)`, booleans: which of n examples the network gets wrong. y is the second
        part of the problem's batches. By default an example is wrong if its largest output, of several, is
        not at its integer label. An example with NaN among its outputs is always wrong.
      convex: whether the loss is convex in the mask and differentiable. It is if it is convex in outputs that
        are linear in the mask; with hidden layers they are not. The claim is checked at some places and
        refused where it fails.
      relaxed: v, numbers in [0, 1] in the mask's structure, for a convex loss: the mask that the search
        descended in, `masks.soft_mask(network.info["scores"], hard, soft)` after `search.two_temperature`.
        The reported gap is the smaller one of `gap(u)` and `F(u) - F(v) + gap(v)`.
      flips: the number of connections to try, the most promising ones first.
      delta: the accepted probability that a bound is wrong, for each bound by itself; in (0, 1).
      choices: the number of networks (seeds, settings) from which this one is chosen by looking at the
        training rows; it must be fixed beforehand. If you stop adaptively, pass `k * (k + 1)` for the k-th
        network. Several densities over the same weights need no such correction.
      prior: the probability that each connection exists, in the mask's structure, for a shorter description.
        It must be fixed before these training rows are looked at. It may come from another half of the rows,
        whose errors are then not counted (`dataclasses.replace(problem, train=other_half)`).
      repeats: whether rows with equal inputs were drawn independently, for instance because inputs have few
        values. By default they count as copies. There is then no bound if training or validation rows repeat
        one another, or if validation rows share inputs with training rows. Rows that differ only in the label
        are copies too. Copies with changed inputs are not detected.
      batch_size: the number of rows to process at a time, to save memory; by default all.

    Returns:
      A `Certificate`; `print` shows it. The loss, its gap and flips are as exact as the network's arithmetic.
      The error bounds are rounded upwards from counted errors.

    Raises:
      ArgumentError: a network without a mask or weights, or of many runs; a problem whose runs have their own
        rows; a stream without rows; a loss that is not finite, or that is not convex despite `convex=True`; a
        `relaxed` mask without `convex=True`, or outside [0, 1]; weights of another structure; a `wrong` that
        does not return n booleans; numbers out of range.

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
      connections        3 of 8
      loss               0.3 on 200 training examples
      gap                0.02689: no mask has a loss below 0.273
      single flips       8 of 8 tried, none lowers the loss: locally optimal
      description        6 nats
      error on new data  at most 0.04505 (0 errors in 200 examples: 0.0000)
      confidence         each bound is wrong with probability at most 0.05
      assumed            that training examples were drawn independently, like new ones, and scaled no inputs
      assumed            that the model and the values all starts share did not come from the training rows
      assumed            that no other network could have been chosen by these rows
      assumed            that the loss is convex in the mask, and differentiable at it
    """
    _check(network, problem, weights)
    _check_settings(convex, delta, choices, flips, repeats, batch_size, wrong)
    network = network.replace(
        params=apply_mask(network.mask, network.params),
        state={} if network.state is None else network.state,
    )
    length = description_length(network.mask, prior)
    rows = np.asarray(problem.training_rows())
    why_not = why_touched(network, problem, weights)
    network = _begun_with(weights, network)
    returning: Returning = "start" if weights is not None else "ones" if is_weight_free(network) else None
    on = MaskedObjective.of(network, returning, problem, batch_size)
    bare = _begun_with(weights, Network(network.params, network.mask, network.state))
    loss, gap, tries = _optimality(on, (bare, problem, returning, batch_size), flips, convex, relaxed)
    examples = partial(_Examples, problem=problem, wrong=wrong, batch_size=batch_size, repeats=repeats)
    seen, training = examples(rows), None
    why_not = why_not or seen.why_none(network) or why_repeated(seen.digests, "training")
    if not why_not:
        before = network.replace(params=as_before(network, weights))
        bound = partial(masked_bound, mask=network.mask, delta=delta, choices=choices, prior=prior)
        training, why_not = seen.errors(before, bound)
    held_out, why_not_held_out = None, ""
    if problem.validation is not None:
        held = examples(np.asarray(problem.validation))
        held_out, why_not_held_out = _on_held_out(held, seen, network, delta)
    assumptions = _assumptions(problem, weights, choices, prior, training, held_out, repeats, convex)
    return Certificate(
        connections=on.flat.size,
        kept=int(connections(network.mask)),
        examples=len(rows),
        loss=loss,
        gap=gap,
        convex=convex,
        growing=returning is not None,
        flips=_flips(on, tries, loss, network.mask),
        delta=float(delta),
        choices=choices,
        length=length,
        training=training,
        held_out=held_out,
        why_not=why_not,
        why_not_held_out=why_not_held_out,
        assumptions=assumptions,
    )


def _check_settings(
    convex: bool,
    delta: float,
    choices: int,
    flips: int,
    repeats: bool,
    batch_size: int | None,
    wrong: Wrong | None,
) -> None:
    check_flag("convex", convex)
    check_delta(delta)
    check_count("choices", choices)
    check_count("flips", flips, least=0)
    check_flag("repeats", repeats)
    check_options(wrong, batch_size)


def check_options(wrong: Wrong | None, batch_size: int | None) -> None:
    """Raise unless `wrong` is a function, and `batch_size` a number of rows, if given."""
    if batch_size is not None:
        check_count("batch_size", batch_size)
    if wrong is not None:
        if not callable(wrong):
            raise ArgumentError(f"wrong: expected a function (outputs, y) -> (n,), got {shown(wrong)}")
        check_callable("wrong", wrong, "outputs", "y")


def _begun_with(weights: PyTree, network: Network) -> Network:
    """Return the network with `weights` as its `Start`, or without a `Start` if they are `None`."""
    return network.without(Start) if weights is None else network.with_records(Start(weights))


def _check(network: Network, problem: Problem, weights: PyTree) -> None:
    """Raise unless the arguments are a masked network of one run and the problem of that run."""
    if not isinstance(network, Network):
        raise ArgumentError(f"network: expected a jaxarch.Network from a search, got {shown(network)}")
    check_is_problem(problem)
    if is_traced((network, problem, weights)):
        raise ArgumentError("network: its values are traced; call certify outside of jit and vmap")
    for name in ("params", "mask"):
        if getattr(network, name) is None:
            raise ArgumentError(f"network: it has no {name}; certify needs a mask and its weights")
    check_rows_of_one_run(problem)
    check_booleans(network.mask)
    _check_leaves(network, problem)
    if weights is not None:
        # Each leaf is checked as it is taken.
        dict(_leaves_like("weights", weights, network.params, "the parameters", "the network's"))


def check_rows_of_one_run(problem: Problem) -> None:
    """Raise unless a problem has the rows of one run, without padding."""
    for name in ("train", "validation"):
        if getattr(getattr(problem, name), "ndim", 1) > 1:
            raise ArgumentError(
                f"problem: each run has its own `{name}` rows; pass the problem of one run, problem.of_run(0)"
            )
    check_leaves("problem: data", problem.data, keys=True)
    examples = len(jax.tree.leaves(problem.data)[0])
    check_rows("train", problem.train, examples)
    if problem.validation is not None and np.size(problem.validation):
        check_rows("validation", problem.validation, examples)
    if problem.train_size is not None:
        raise ArgumentError(
            "problem: with a train_size some rows are padding; set train=rows[:size] and leave train_size out"
        )


def _check_leaves(network: Network, problem: Problem) -> None:
    """Raise unless the network's parameters, mask and state fit the problem's model."""
    params, state = jax.eval_shape(problem.init, jax.random.key(0))
    found, made = named_leaves(network.params), named_leaves(params)
    for path, leaf in found.items():
        expected = made.get(path)
        if expected is None or jnp.shape(leaf) != expected.shape:
            raise ArgumentError(
                f"network: '{path}' has shape {jnp.shape(leaf)}, but the problem's model has "
                f"{getattr(expected, 'shape', 'no such parameter')}; if the network holds many runs, pass "
                "one, network.of_run(0)"
            )
    if len(found) < len(jax.tree.leaves(network.params)):
        raise ArgumentError("network: two of its parameters have the same path; rename one")
    check_fits(network.mask, network.params)
    if jax.tree.leaves(state) and network.state is None:
        raise ArgumentError(
            "network: it has no state, but the problem's model has one; pass the network with its state"
        )


def _leaves_like(
    name: str, tree: PyTree, like: PyTree, of: str, whose: str, real: bool = False
) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree by path.

    Raises:
      ArgumentError: a structure that differs from `like`; a leaf that is no array of numbers or has another
        shape.
    """
    check_structure(name, tree, like, of)
    expected = named_leaves(like)
    for path, leaf in named_leaves(tree).items():
        if path not in expected:
            raise ArgumentError(f"{name}: expected the structure of {of}, got {shown(tree)}")
        check_array(f"{name}: {path}", leaf, real=real)
        if jnp.shape(leaf) != jnp.shape(expected[path]):
            raise ArgumentError(f"{name}: '{path}' has shape {jnp.shape(leaf)}, not {whose}")
        yield path, leaf


@dataclasses.dataclass(frozen=True)
class _Examples:
    """Rows of a problem on which errors are counted."""

    rows: np.ndarray
    problem: Problem
    wrong: Wrong | None
    batch_size: int | None
    repeats: bool

    @cached_property
    def digests(self) -> list[bytes]:
        """Digests of the inputs, to find copies; empty if rows may repeat one another."""
        return [] if self.repeats else input_digests(self.problem, self.rows)

    def why_none(self, network: Network) -> str:
        """Say why errors cannot be counted; empty if they can."""
        return why_no_errors(self.problem, network, self.wrong, self.rows)

    def errors(self, network: Network, bound: Callable[[int, int], float]) -> tuple[Errors | None, str]:
        """Count errors and bound them, or say why no bound follows."""
        count, why_not = count_errors(network, self.problem, self.wrong, self.rows, self.batch_size)
        size = len(self.rows)
        return (None if why_not else Errors(count, size, bound(count, size))), why_not


def _on_held_out(
    held: _Examples, seen: _Examples, network: Network, delta: float
) -> tuple[Errors | None, str]:
    """Count and bound errors on validation rows, or say why no bound follows."""
    why_not = held.why_none(network)
    if np.intersect1d(seen.rows, held.rows).size:
        why_not = "none: some validation rows are also training rows; hold out other rows"
    why_not = why_not or why_seen(held.digests, seen.digests) or why_repeated(held.digests, "validation")
    return (None, why_not) if why_not else held.errors(network, partial(binomial_upper, delta=delta))


def _assumptions(
    problem: Problem,
    weights: PyTree,
    choices: int,
    prior: PyTree,
    training: Errors | None,
    held_out: Errors | None,
    repeats: bool,
    convex: bool,
) -> tuple[str, ...]:
    """List the assumptions of a certificate."""
    assumptions = []
    if training is not None:
        known = "the model and the values all starts share" if weights is None else "the weights"
        number = (
            "that no other network"
            if choices == 1
            else f"that at most {choices:,} networks, a number fixed beforehand,"
        )
        assumptions += [
            "that training examples were drawn independently, like new ones, and scaled no inputs",
            f"that {known} did not come from the training rows",
            f"{number} could have been chosen by these rows",
        ]
        if prior is not None:
            assumptions.append("that the prior did not come from the training rows either")
    if held_out is not None:
        assumptions.append(
            "that the validation rows were drawn the same way, and chose nothing: no setting, no random "
            "search, no early stopping"
        )
        if problem.stream is not None:
            assumptions.append("that no validation example was in the stream")
    if repeats and (training or held_out):
        assumptions.append("that rows with equal inputs were drawn independently, and none is a copy")
    if convex:
        assumptions.append("that the loss is convex in the mask, and differentiable at it")
    return tuple(assumptions)


def _optimality(
    on: MaskedObjective,
    of: tuple[Network, Problem, Returning, int | None],
    flips: int,
    convex: bool,
    relaxed: PyTree,
) -> tuple[float, float, Tries | None]:
    """Compute the loss and the gap of a mask, and try its flips.

    Args:
      on: the objective.
      of: the arguments that the objective is made from.
      flips: the number of flips to try.
      convex: whether the loss is claimed to be convex in the mask.
      relaxed: a mask of numbers in [0, 1], or `None`.

    Raises:
      ArgumentError: a loss that fails, is not finite, or is not convex as claimed; a `relaxed` that does not
        fit.
    """
    try:
        loss, gradient, gap = _first_order(*of)
    except (TypeError, ValueError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(
            f"problem: its loss fails on its training rows with this network: {first_line(error)}"
        ) from error
    if not jnp.isfinite(loss):
        raise ArgumentError(
            f"network: its loss on the training rows is {float(loss)}; certify needs a finite loss"
        )
    tried = min(flips, int(on.allowed.sum()))
    tries = _tries(*of, tried) if tried else None
    if convex:
        check_convex(on, float(loss), gradient, float(gap), tries)
    if relaxed is not None:
        vector = _relaxed(relaxed, of[0].mask, convex, on)
        gap = jnp.minimum(gap, _gap_by(vector, loss, *of))
        check_flips(float(loss), float(gap), tries, float(jnp.finfo(on.flat.dtype).eps))
    return float(loss), float(gap), tries


@partial(jax.jit, static_argnames=("returning", "batch_size"))
def _first_order(
    network: Network,
    problem: Problem,
    returning: Returning,
    batch_size: int | None,
    relaxed: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Return F, its gradient and the gap at the mask, or at `relaxed` numbers in its place."""
    on = MaskedObjective.of(network, returning, problem, batch_size)
    vector = on.flat if relaxed is None else relaxed
    loss, gradient = jax.value_and_grad(on.objective)(vector)
    return loss, gradient, duality_gap(vector, jnp.where(on.allowed, gradient, 0))


def _gap_by(
    vector: Array,
    loss: Array,
    network: Network,
    problem: Problem,
    returning: Returning,
    batch_size: int | None,
) -> Array:
    """Return `F(u) - F(v) + gap(v)`, v a vector of numbers in [0, 1], plus an allowance for rounding.

    Raises:
      ArgumentError: a loss at v that is not finite, or F(u) below the tangent plane at v.
    """
    there, _, slack = _first_order(network, problem, returning, batch_size, vector)
    gap, size = loss - there + slack, jnp.abs(loss) + jnp.abs(there) + slack
    rounding = ROUNDINGS * jnp.finfo(vector.dtype).eps * size
    if not jnp.isfinite(gap):
        raise ArgumentError(
            f"relaxed: the loss at these numbers is {float(there)}; give others, where it is finite"
        )
    if gap < -rounding:
        raise ArgumentError(
            "convex: the loss is not convex in the mask: at the mask it lies below its tangent at "
            "`relaxed`; leave convex=True and relaxed out"
        )
    return jnp.maximum(gap, 0) + rounding


def _relaxed(relaxed: PyTree, mask: PyTree, convex: bool, on: MaskedObjective) -> Array:
    """Return the numbers in place of the mask as a vector.

    Raises:
      ArgumentError: a loss that is not claimed to be convex; numbers of another structure or shape, outside
        [0, 1], or above 0 at connections that cannot be restored.
    """
    if not convex:
        raise ArgumentError(
            "relaxed: it gives a bound only if the loss is convex in the mask; add convex=True if it is"
        )
    for path, leaf in _leaves_like("relaxed", relaxed, mask, "the mask", "the mask's", real=True):
        if not ((jnp.asarray(leaf) >= 0) & (jnp.asarray(leaf) <= 1)).all():
            raise ArgumentError(f"relaxed: expected numbers in [0, 1] at '{path}', got {shown(leaf)}")
    vector = ravel_pytree(relaxed)[0].astype(on.flat.dtype)
    if ((vector > 0) & ~on.allowed.astype(bool)).any():
        raise ArgumentError(
            "relaxed: it has connections outside of the mask, whose weights are not known; give `weights`"
        )
    return vector


@partial(jax.jit, static_argnames=("returning", "batch_size", "tried"))
def _tries(
    network: Network, problem: Problem, returning: Returning, batch_size: int | None, tried: int
) -> Tries:
    on = MaskedObjective.of(network, returning, problem, batch_size)
    return on.flips(on.flat, on.allowed, on.slopes(on.flat), tried, 8)


def _flips(on: MaskedObjective, tries: Tries | None, loss: float, mask: PyTree) -> Flips:
    allowed = int(on.allowed.sum())
    if tries is None:
        return Flips(0, allowed, 0, None, None)
    best = int(jnp.argmin(tries.values))
    changed, before = named_leaves(on.unravel(flipped(on.flat, tries.positions[best]))), named_leaves(mask)
    for path, leaf in changed.items():
        places = np.argwhere(np.asarray(leaf > 0) != np.asarray(before[path]))
        if len(places):
            connection = (path, tuple(int(place) for place in places[0]))
    change = float(tries.values[best]) - loss
    return Flips(len(tries.positions), allowed, int(tries.better.sum()), change, connection)

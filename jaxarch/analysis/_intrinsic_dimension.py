"""Intrinsic dimension: the smallest random subspace in which a network learns almost as well as in all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import (
    ArgumentError,
    check_callable,
    check_choice,
    check_count,
    check_instance,
    check_keys,
    check_leaves,
    check_list,
    is_traced,
    real_number,
    real_numbers,
    shown,
)
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.analysis._subspace import (
    STARTS,
    From,
    direct_training,
    floating_leaves,
    slots_for,
    subspace_training,
)
from jaxarch.masks import check_booleans, check_fits
from jaxarch.run._descent import own_descent
from jaxarch.run._devices import take_runs
from jaxarch.run._evaluation import evaluate
from jaxarch.run._keyed import shapes_of
from jaxarch.run._network import Network, architecture
from jaxarch.run._problem import Problem, as_rows, check_is_problem
from jaxarch.run._runs import over_seeds
from jaxarch.run._training import Training

Score = Callable[[PyTree, PyTree, PyTree], Any] | str
"""`(params, state, batch) -> scalar`, larger is better; or the name of one of the problem's metrics."""


class IntrinsicDimension(NamedTuple):
    """Scores in random subspaces, as returned by `intrinsic_dimension`.

    Attributes:
      dimensions: the dimensions d, ascending; shape (dimensions,).
      scores: the score after training in each subspace, NaN for a training that failed; shape
        (dimensions, seeds).
      baseline: the score to reach a share of; shape (seeds,).
      threshold: the share of the baseline; shape (seeds,).
      smallest: the smallest of the dimensions whose score reaches the threshold, not interpolated; NaN if
        none does. Shape (seeds,).
      kept: the number D of floating-point parameters that the mask keeps; shape (seeds,).
    """

    dimensions: np.ndarray
    scores: np.ndarray
    baseline: np.ndarray
    threshold: np.ndarray
    smallest: np.ndarray
    kept: np.ndarray


def intrinsic_dimension(
    problem: Problem,
    keys: Array,
    dimensions: Sequence[int],
    mask: Any = None,
    *,
    score: Score = "accuracy",
    share: float = 0.9,
    baseline: ArrayLike | None = None,
    rows: Any = None,
    start: From = "cold",
    optimizer: optax.GradientTransformation | None = None,
    name: str = "",
    **options: Any,
) -> IntrinsicDimension:
    """Find the smallest random subspace in which a network learns almost as well as in all its parameters.

        found = jaxarch.analysis.intrinsic_dimension(problem, keys, [10, 30, 100, 300], mask)
        figure = jaxarch.plots.intrinsic_dimension({"masked": found})

    The network is trained in a random subspace of each dimension d, for every seed. The smallest d whose
    score reaches 90% of the baseline's is d_int90 (Li, Farkhoor, Liu and Yosinski, *Measuring the intrinsic
    dimension of objective landscapes*, 2018, https://arxiv.org/abs/1804.08838). `in_subspace` has the formula
    and the projection. With a mask, subspaces lie among the D parameters that it keeps.

    Departure: the subspaces of a seed are nested and start from the same weights, so that dimensions are
    compared on equal terms. The paper draws each anew.

    Args:
      problem: what to learn.
      keys: one key a seed, shape (seeds,).
      dimensions: dimensions to try, each at most D.
      mask: a mask of booleans for all seeds, `None` for leaves that are not masked; or the network that
        `over_seeds` found for these keys, which has a mask for each seed. By default all parameters are kept.
      score: `(params, state, batch) -> scalar`, larger is better and above 0; or the name of one of the
        problem's metrics. It is computed on all `rows` at once.
      share: the share of the baseline to reach, in (0, 1].
      baseline: the score to reach a share of, a number or one for each seed, such as those of dense networks.
        By default the same network is trained in all parameters that it keeps, from the same weights.
      rows: rows of the data to score on, shape (n,) or (seeds, n); by default the problem's validation rows,
        and without these its training rows.
      start: initial weights, as in `in_subspace`; `warm` and `rewind` need a network.
      optimizer: the optimizer in subspaces; by default the problem's, which trains the baseline.
      name: name of the trainings in progress, warnings and checkpoints.
      **options: options of `over_seeds`, such as `progress`, `checkpoint` and `max_parallel_runs`.

    Returns:
      `IntrinsicDimension`. All dimensions and seeds are trained in one program.

    Raises:
      ArgumentError: dimensions that are no positive integers, are given twice or exceed D; masks that are not
        booleans or do not fit; a score that is not one number; a baseline that is not above 0.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> def init(key):
      ...     return {"w": jnp.zeros(8)}, {}
      >>> def loss(params, state, batch, key):  # one equation for each half of the weights
      ...     return jnp.square(params["w"].reshape(2, 4).sum(1) - 1.0).sum(), state
      >>> problem = jaxarch.Problem(init, loss, jnp.zeros(1), jaxarch.Descent(optax.adam(0.1), steps=2000))
      >>> keys = jax.random.split(jax.random.key(0), 3)
      >>> found = jaxarch.analysis.intrinsic_dimension(
      ...     problem, keys, [1, 2, 3], score=lambda *of: jnp.exp(-loss(*of, None)[0])
      ... )
      >>> found.smallest
      array([2., 2., 2.])
    """
    check_is_problem(problem)
    check_keys(keys)
    if is_traced((keys, mask, baseline, problem)):
        raise ArgumentError("keys: expected concrete arguments, got traced ones; call this outside of jit")
    problem.check()
    sizes = _checked_dimensions(dimensions)
    share = _checked_share(share)
    check_choice("start", start, STARTS)
    check_instance("name", name, str, "text")
    descent = own_descent({"optimizer": optimizer})
    scored = _scored(problem, score)
    rows = _rows(problem, rows)
    reference = None if baseline is None else _checked_baseline(baseline, len(keys))
    network, kept = _networks(problem, len(keys), mask, start)
    if sizes[-1] > kept.min():
        raise ArgumentError(
            f"dimensions: expected at most {kept.min()}, the number of parameters that are kept, got "
            f"{sizes[-1]}; leave out larger ones"
        )
    _check_score(scored, problem)

    def run(told: str, stage: Any, seeds: np.ndarray, settings: Any = None) -> np.ndarray:
        of_seeds, of_problem, of_network = take_runs(
            (0, problem.in_axes(), 0), (keys, problem, network), seeds
        )
        named = f"{name}, {told}" if name else told
        found, _ = over_seeds(
            stage, of_seeds, of_problem, settings, network=of_network, name=named, **options
        )
        graded = dataclasses.replace(of_problem, predict=scored)
        on = rows if rows.ndim == 1 else rows[seeds]
        values = evaluate(direct_training(start), found, graded, on)[:, 0]
        return np.where(np.asarray(found.info.failed_at) < 0, values, np.nan)

    each = np.arange(len(keys))
    if reference is None:
        reference = _above_zero(run("direct", direct_training(start), each))
    make = partial(_at, sizes[-1], slots_for(int(kept.max())), start, descent)
    of_all = run(
        "subspaces",
        make,
        np.tile(each, len(sizes)),
        jnp.repeat(jnp.asarray(sizes, jnp.int32), len(keys)),
    )
    scores = of_all.reshape(len(sizes), len(keys))
    threshold = share * reference
    reached = scores >= threshold
    smallest = np.where(reached.any(0), np.asarray(sizes)[reached.argmax(0)], np.nan)
    return IntrinsicDimension(np.asarray(sizes), scores, reference, threshold, smallest, kept)


def _at(length: int, slots: int, start: From, descent: Any, dimension: Any) -> Training:
    return subspace_training(dimension, length, slots, start, descent)


def _checked_dimensions(dimensions: Any) -> list[int]:
    check_list("dimensions", dimensions, "integers, such as [10, 100]")
    if not len(dimensions):
        raise ArgumentError("dimensions: expected at least one, got none")
    sizes = [of.item() if hasattr(of, "item") and np.shape(of) == () else of for of in dimensions]
    for size in sizes:
        check_count("dimensions", size)
    if len(set(sizes)) < len(sizes):
        raise ArgumentError(f"dimensions: expected each once, got {shown(sizes)}")
    return sorted(int(size) for size in sizes)


def _checked_share(share: Any) -> float:
    number = real_number("share", share)
    if not 0 < number <= 1:
        raise ArgumentError(f"share: expected a number in (0, 1], got {shown(share)}")
    return number


def _checked_baseline(baseline: Any, seeds: int) -> np.ndarray:
    numbers = np.asarray(real_numbers("baseline", baseline), np.float64)
    if numbers.shape not in ((), (seeds,)) or not np.isfinite(numbers).all():
        raise ArgumentError(
            f"baseline: expected a finite number, or one for each of {seeds} seeds, got {shown(baseline)}"
        )
    return _above_zero(np.broadcast_to(numbers, (seeds,)).copy())


def _above_zero(baseline: np.ndarray) -> np.ndarray:
    """Raise unless a share of each baseline is below it; NaN, of a training that failed, passes."""
    if (baseline <= 0).any():
        raise ArgumentError(
            f"score: expected baselines above 0, of which a share is less, got {np.nanmin(baseline):.3g}; "
            "score by an accuracy, or by exp(-loss)"
        )
    return baseline


def _scored(problem: Problem, score: Any) -> Callable[[PyTree, PyTree, PyTree], Any]:
    """Return a function that scores a network, as `evaluate` takes it: with an axis of rows."""
    if isinstance(score, str):
        if problem.metrics is None:
            raise ArgumentError(
                f"score: the problem has no metrics, so none is called {shown(score)}; give the problem "
                "`metrics`, or a function (params, state, batch) -> scalar"
            )
        return _OfMetric(problem.metrics, score)
    check_callable("score", score, "params", "state", "batch")
    return _OfFunction(score)


@dataclasses.dataclass(frozen=True)
class _OfMetric:
    """Score by one of the problem's metrics."""

    metrics: Callable[..., Any]
    name: str

    def __call__(self, params: PyTree, state: PyTree, batch: PyTree) -> Array:
        values = self.metrics(params, state, batch)
        if self.name not in values:
            raise ArgumentError(
                f"score: no metric {shown(self.name)}; the problem has {', '.join(map(str, values))}"
            )
        return jnp.asarray(values[self.name])[None]


@dataclasses.dataclass(frozen=True)
class _OfFunction:
    """Score by a function."""

    function: Callable[..., Any]

    def __call__(self, params: PyTree, state: PyTree, batch: PyTree) -> Array:
        return jnp.asarray(self.function(params, state, batch))[None]


def _check_score(scored: Callable[..., Any], problem: Problem) -> None:
    one = problem if problem.runs is None else problem.of_run(0)
    params, state = shapes_of(problem.init, jax.random.key(0))
    row = jax.ShapeDtypeStruct((1,), jnp.int32)
    batch = jax.eval_shape(lambda row: one.gather(one.data, one.per_run, row), row)
    made = jax.eval_shape(scored, params, state, batch)
    if made.shape != (1,) or not jnp.issubdtype(made.dtype, jnp.floating):
        raise ArgumentError(
            f"score: expected one real number, got {made.dtype} of shape {made.shape[1:]}; take a mean"
        )


def _rows(problem: Problem, rows: Any) -> Array:
    if rows is not None:
        return as_rows("rows", rows, problem)
    for own in (problem.validation, problem.train):
        if own is not None:
            return own
    return problem.training_rows()


def _networks(problem: Problem, seeds: int, mask: Any, start: From) -> tuple[Network | None, np.ndarray]:
    """Return the networks of all seeds, and how many parameters each keeps."""
    if start != "cold" and not isinstance(mask, Network):
        raise ArgumentError(f"start: {start!r} needs a network; give `mask` one that a search found")
    params, _ = shapes_of(problem.init, jax.random.key(0))
    leaves = floating_leaves(params)
    if mask is None:
        return None, np.full(seeds, sum(leaf.size for leaf in leaves.values()))
    if isinstance(mask, Network):
        network, masks = mask, mask.mask
        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf)[1:], leaf.dtype), masks)
    else:
        check_leaves("mask", mask)
        masks = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (seeds, *jnp.shape(leaf))), mask)
        network, one = architecture(masks), mask
    check_booleans(masks)
    check_fits(one, params)
    kept = np.zeros(seeds, np.int64)
    by_path = named_leaves(masks)
    for path, leaf in leaves.items():
        # Summed on the host, where no count overflows.
        own = by_path.get(path)
        kept += leaf.size if own is None else np.asarray(own).reshape(len(own), -1).sum(1)
    if not kept.min():
        raise ArgumentError("mask: it removes all parameters; keep some")
    return network, kept

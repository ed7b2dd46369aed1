"""A learning problem as pure functions and arrays: what to learn, and the default descent."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.epochs import epoch_rows
from jaxarch._internal.errors import (
    ArgumentError,
    check_count,
    check_instance,
    check_keys,
    check_leaves,
    check_one_key,
    check_positive,
    is_traced,
    shown,
)
from jaxarch._internal.precision import at_least_float32
from jaxarch._internal.trees import PyTree, check_trainable
from jaxarch.io import Stream, Window
from jaxarch.io._gather import take_rows
from jaxarch.run._descent import Descent, DescentChanges

Key = Array | None
"""A `jax.random.key`, or `None` for evaluation (no dropout, no augmentation, running statistics)."""

_BLOCK = 100
"""Rows per block of `objective` when some rows are padding."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["data", "train", "train_size", "validation", "per_run", "paired", "_window"],
    meta_fields=["init", "loss", "descent", "predict", "metrics", "gather", "stream"],
)
@dataclasses.dataclass(frozen=True)
class Problem:
    """A learning problem as pure functions and arrays.

    Each device holds the arrays once, whatever the number of runs; the parts that differ between runs
    (`train`, `validation` and `per_run`) are small. A `Problem` is a pytree: pass it through `jit`, or map it
    with `vmap` over `in_axes()`.

    Attributes:
      init: `key -> (params, state)`. The state is batch norm's and the like; `{}` if there is none.
      loss: `(params, state, batch, key) -> (value, state)`, a mean over the batch. A key of `None` asks for
        evaluation: no dropout, running statistics. A loss that also takes a keyword `temperature`, as the one
        of `supervised` does, divides the outputs by it (see `softened`).
      data: pytree of arrays with one leading axis of examples, shared by all runs.
      descent: the default descent; every stage that trains may have its own.
      train: rows of `data` to train on: shape (n,), or (runs, n) if each run has its own. Default: all.
      train_size: how many of the rows of `train` count, the first ones; the others are padding, any rows. So
        training sets of many sizes share one compiled program. A scalar, or one per run, shape (runs,), in
        which case `objective` takes the time of all rows, padding included. Default: all count. Needs `train`
        and a `batch_size`.
      validation: rows to validate on, in the same form as `train`; `None` for none.
      per_run: other values that each run has of its own: pytree whose leaves have a leading axis of runs.
      paired: a key, or one per run, shape (runs,), for strategies that are to be compared on equal terms. It
        replaces each stage's key for the initial weights of a search (from `start`) and the batches of step t
        of all trainings. Default: every stage draws for itself. Roots of weights, scores, masks and fresh
        weights of `retrain("cold")` are drawn from the stage's own key in any case.
      gather: `(data, per_run, rows) -> batch`.
      predict: `(params, state, batch) -> outputs`, for evaluation; `None` if there is nothing to predict.
      metrics: `(params, state, batch) -> {name: scalar}`, shown for the validation rows beside the loss.
      stream: training batches from the host instead of rows of `data`: an iterable, or a function
        `step -> iterable` (see `io.Stream`). All runs see the same batches, which go to the loss as they
        come, in every training from the first batch on. Validation and `evaluate` then take their rows from
        `data`. `train`, if given, lists rows that stand for the training examples where a stage looks at all
        of them.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> def init(key):
      ...     return {"w": jnp.zeros(())}, {}
      >>> def loss(params, state, batch, key):
      ...     return jnp.square(batch - params["w"]).mean(), state
      >>> descent = jaxarch.Descent(optax.sgd(0.5), steps=1)
      >>> problem = jaxarch.Problem(init, loss, jnp.array([1.0, 3.0]), descent)
      >>> network = jaxarch.search.dense(nonnegative=False, where="w")(jax.random.key(0), problem)
      >>> print(network.params["w"], problem.objective(network.params, {}))  # the mean, and the variance
      2.0 1.0
    """

    init: Callable[[Array], tuple[PyTree, PyTree]]
    loss: Callable[[PyTree, PyTree, PyTree, Key], tuple[Array, PyTree]]
    data: PyTree
    descent: Descent
    train: Any = None
    train_size: Any = None
    validation: Any = None
    per_run: PyTree = None
    paired: Any = None
    gather: Callable[[PyTree, PyTree, Array], PyTree] = take_rows
    predict: Callable[[PyTree, PyTree, PyTree], Any] | None = None
    metrics: Callable[[PyTree, PyTree, PyTree], dict[str, Array]] | None = None
    stream: Any = None
    # The batches of the stream that the device holds; only `over_seeds` sets it.
    _window: Window | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.stream is not None and not isinstance(self.stream, Stream):
            object.__setattr__(self, "stream", Stream(self.stream))
        # NumPy arrays cannot be indexed by traced rows.
        for field in ("data", "train", "train_size", "validation", "per_run"):
            tree = jax.tree.map(_as_jax, getattr(self, field))
            object.__setattr__(self, field, tree)

    def descending(self, **changes: Unpack[DescentChanges]) -> Problem:
        """Return the same problem with another default optimizer, number of steps or batch size."""
        return dataclasses.replace(self, descent=self.descent.replace(**changes))

    def softened(self, temperature: float) -> Problem:
        """Return the same problem, with outputs divided by a temperature before they go to the loss.

        Raises:
          ArgumentError: a temperature that is not positive; one other than 1, with a loss that takes none.

        Example:
          >>> import jax.numpy as jnp, jaxarch, optax
          >>> model = (lambda key: {"w": jnp.ones((1, 1))}, lambda params, x: x @ params["w"])
          >>> x = jnp.full((3, 1), 4.0)
          >>> problem = jaxarch.supervised(
          ...     model, (x, 0 * x), loss=optax.squared_error, optimizer=optax.sgd(1.0), steps=1
          ... )
          >>> params, state = problem.init(None)
          >>> print(problem.objective(params, state), problem.softened(2.0).objective(params, state))
          16.0 4.0
        """
        check_positive("temperature", temperature)
        if temperature == 1:
            return self
        if "temperature" not in inspect.signature(self.loss).parameters:
            raise ArgumentError(
                "temperature: this problem's loss does not take one; make it a function (params, state, "
                "batch, key, temperature=1.0) that divides the outputs by it, or use jaxarch.supervised"
            )
        loss: Any = self.loss
        return dataclasses.replace(self, loss=partial(loss, temperature=temperature))

    @property
    def runs(self) -> int | None:
        """Number of runs that have rows or values of their own; `None` if all are shared."""
        sizes = [rows.shape[0] for rows in (self.train, self.validation) if _is_per_run(rows)]
        own = (self.per_run, self._own_train_size(), self._own_pairs())
        sizes += [leaf.shape[0] for leaf in jax.tree.leaves(own)]
        return sizes[0] if sizes else None

    def in_axes(self) -> Problem:
        """Return the axes for `vmap` over runs: `jax.vmap(search, in_axes=(0, problem.in_axes()))`."""

        def axis(rows: Any) -> int | None:
            return 0 if _is_per_run(rows) else None

        per_run = jax.tree.map(lambda leaf: 0, self.per_run)
        return dataclasses.replace(
            self,
            data=None,
            train=axis(self.train),
            train_size=None if self._own_train_size() is None else 0,
            validation=axis(self.validation),
            per_run=per_run,
            paired=None if self._own_pairs() is None else 0,
            _window=None,
        )

    def of_run(self, run: int) -> Problem:
        """Return the problem of one run.

        Raises:
          ArgumentError: a run that does not exist.
        """
        if self.runs is not None and not -self.runs <= run < self.runs:
            raise ArgumentError(f"run: expected {-self.runs} to {self.runs - 1}, got {shown(run)}")

        def rows_of(rows: Any) -> Any:
            return rows[run] if _is_per_run(rows) else rows

        return dataclasses.replace(
            self,
            train=rows_of(self.train),
            train_size=self.train_size if self._own_train_size() is None else self.train_size[run],
            validation=rows_of(self.validation),
            per_run=jax.tree.map(lambda leaf: leaf[run], self.per_run),
            paired=self.paired if self._own_pairs() is None else self.paired[run],
        )

    def start(self, key: Array) -> tuple[PyTree, PyTree]:
        """Return a search's initial weights and state: `init` of the key, or of `paired` if set."""
        return self.init(key if self.paired is None else jax.random.fold_in(self.paired, 0))

    def batch(self, key: Array, step: int | Array) -> PyTree:
        """Return the training examples of one run's step: a function of the key and of the step alone.

        Raises:
          ArgumentError: batches of a stream, outside of `over_seeds`.
        """
        if self.stream is not None:
            if self._window is None:
                raise ArgumentError(
                    "stream: its batches are available only within over_seeds, and to a stage other than a "
                    "training only with Needs(batches=...); use over_seeds, or set Needs(batches=...)"
                )
            return self._window.at(step)
        rows = self.training_rows()
        key = key if self.paired is None else jax.random.fold_in(self.paired, 1)
        if self.descent.batch_size is not None:
            size = rows.shape[0] if self.train_size is None else self.train_size
            if self.descent.sampling == "epochs":
                chosen = epoch_rows(key, step, self.descent.batch_size, size)
            else:
                chosen = jax.random.randint(
                    jax.random.fold_in(key, step), (self.descent.batch_size,), 0, size
                )
            rows = rows[chosen]
        return self.gather(self.data, self.per_run, rows)

    def objective(
        self, params: PyTree, state: PyTree, rows: Array | None = None, batch_size: int | None = None
    ) -> Array:
        """Compute F of [D] eq. (1): the mean loss over all of one run's training rows (or over `rows`).

        With a `batch_size`, take that many rows at a time, also for the gradient, to save memory.
        """
        if rows is None and self.train_size is not None:
            return self._padded_objective(params, state)
        rows = self._rows(self.train if rows is None else rows)

        def loss(rows: Array) -> Array:
            return self.loss(params, state, self.gather(self.data, self.per_run, rows), None)[0]

        count = rows.shape[0]
        size = count if batch_size is None else batch_size
        check_count("batch_size", size)
        if size >= count:
            return loss(rows)
        whole = count // size * size
        # Recompute each block for its gradient, so that the blocks' intermediates are not all kept.
        of_block = jax.checkpoint(lambda sum_, block: (sum_ + loss(block).astype(sum_.dtype), None))
        dtype = jax.eval_shape(loss, rows[:size]).dtype
        start = jnp.zeros((), _summed_in(dtype))
        total = jax.lax.scan(of_block, start, rows[:whole].reshape(-1, size))[0] * size
        if whole < count:
            total = total + loss(rows[whole:]).astype(total.dtype) * (count - whole)
        return (total / count).astype(dtype)

    def outputs(self, params: PyTree, state: PyTree, rows: Array | None = None) -> Any:
        """Return the network's outputs on all of one run's training rows, padding included (or on `rows`)."""
        if self.predict is None:
            raise ArgumentError("problem: it has no `predict`, which outputs need; give it one")
        rows = self._rows(self.train if rows is None else rows)
        return self.predict(params, state, self.gather(self.data, self.per_run, rows))

    def training_rows(self) -> Array:
        """Return one run's training rows, shape (n,); with a `train_size`, padding included."""
        return self._rows(self.train)

    def _padded_objective(self, params: PyTree, state: PyTree) -> Array:
        """Compute the mean loss over the rows that count, in blocks: blocks of padding cost nothing."""
        rows = self.training_rows()
        blocks = math.ceil(rows.shape[0] / _BLOCK)
        size = min(_BLOCK, rows.shape[0])
        rows = jnp.resize(rows, (blocks, size))
        starts = jnp.arange(blocks) * size

        def loss(row: Array) -> Array:
            return self.loss(params, state, self.gather(self.data, self.per_run, row[None]), None)[0]

        def total(rows: Array, start: Array) -> Array:
            counts = start + jnp.arange(size) < self.train_size
            return jnp.where(counts, jax.vmap(loss)(rows), 0).sum(dtype=summed)

        def add(sum_: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
            rows, start = block
            used = start < self.train_size
            return sum_ + jax.lax.cond(used, total, lambda *_: jnp.zeros_like(sum_), rows, start), None

        dtype = jax.eval_shape(loss, rows[0, 0]).dtype
        summed = _summed_in(dtype)
        sum_of_all = jax.lax.scan(add, jnp.zeros((), summed), (rows, starts))[0]
        return (sum_of_all / self.train_size).astype(dtype)

    def _own_train_size(self) -> Any:
        """Return the training sizes if each run has its own, else `None`."""
        return self.train_size if getattr(self.train_size, "ndim", 0) == 1 else None

    def _own_pairs(self) -> Any:
        """Return the `paired` keys if each run has its own, else `None`."""
        return self.paired if getattr(self.paired, "ndim", 0) == 1 else None

    def _rows(self, rows: Array | None) -> Array:
        if rows is None and self.stream is not None:
            raise ArgumentError(
                "stream: its examples have no rows, but this needs all training rows; give `train=rows`, "
                "rows of `data` that stand for the training examples"
            )
        if rows is None:
            return jnp.arange(jax.tree.leaves(self.data)[0].shape[0])
        if jnp.ndim(rows) != 1:
            raise ArgumentError(
                f"problem: its rows have shape {rows.shape}, one set per run; pass it to over_seeds, map it "
                "over problem.in_axes(), or take one run with problem.of_run(i)"
            )
        return rows

    def check(self) -> None:
        """Raise unless the problem is usable, as far as its concrete values tell.

        Raises:
          ArgumentError: empty or ragged data, NaN, rows out of range, parameters none of which is floating
            point, a loss that is not a scalar.
        """
        check_streamed(self)
        examples = _check_data(self.data)
        for name, rows in (("train", self.train), ("validation", self.validation)):
            check_rows(name, rows, examples)
        _check_train_size(self)
        _check_sampling(self, examples)
        if self.paired is not None:
            check_pairs(self.paired)
        own = (self.per_run, self._own_train_size(), self._own_pairs())
        sizes = {leaf.shape[0] for leaf in jax.tree.leaves(own)}
        sizes |= {r.shape[0] for r in (self.train, self.validation) if _is_per_run(r)}
        if len(sizes) > 1:
            raise ArgumentError(f"problem: per-run arrays disagree on the number of runs: {sorted(sizes)}")
        one = self if self.runs is None else self.of_run(0)
        if self.stream is not None:
            one = dataclasses.replace(one, _window=self.stream.outline(1))
        params, state = _start.eval_shape(self.init, jax.random.key(0))
        check_trainable(params)
        value = _first_loss.eval_shape(one, params, state, jax.random.key(0))
        if value.shape != ():
            raise ArgumentError(f"loss: expected a scalar, the mean over a batch; got shape {value.shape}")


def _summed_in(dtype: Any) -> Any:
    """Return the dtype for summing many losses: in half precision their sum would stop growing."""
    return at_least_float32(dtype)


def check_is_problem(problem: object) -> None:
    """Raise unless an object is a problem."""
    check_instance("problem", problem, Problem, "a Problem, such as jaxarch.supervised(...)")


def check_streamed(problem: Problem) -> None:
    """Raise if a problem with a stream has other settings that choose the examples of a step."""
    if problem.stream is None:
        return
    if problem.per_run is not None or problem.train_size is not None:
        raise ArgumentError("stream: all runs see the same batches; leave out `per_run` and `train_size`")
    if problem.descent.batch_size is not None or problem.descent.sampling != "independent":
        raise ArgumentError("stream: it sets the batches itself; leave out `batch_size` and `sampling`")


def _check_train_size(problem: Problem) -> None:
    size = problem.train_size
    if size is None:
        return
    if problem.train is None or problem.descent.batch_size is None:
        raise ArgumentError("train_size: it also needs `train` and `batch_size`; give both")
    if getattr(size, "ndim", 2) > 1 or not jnp.issubdtype(size.dtype, jnp.integer):
        raise ArgumentError("train_size: expected an integer array, a scalar or of shape (runs,)")
    rows = problem.train.shape[-1]
    if not is_traced(size) and not ((np.asarray(size) >= 1) & (np.asarray(size) <= rows)).all():
        raise ArgumentError(f"train_size: expected 1 to {rows}, the number of rows in `train`, got {size}")


def _check_sampling(problem: Problem, examples: int) -> None:
    rows = examples if problem.train is None else problem.train.shape[-1]
    batch_size = problem.descent.batch_size
    if problem.descent.sampling == "epochs" and batch_size is not None and rows * batch_size >= 2**32:
        raise ArgumentError(
            f"sampling: 'epochs' needs a product of examples and batch size below 2^32, got {rows} * "
            f"{batch_size}; use smaller batches, or 'independent'"
        )


def check_pairs(paired: Any) -> None:
    """Raise unless `paired` is a key or a vector of keys."""
    if getattr(paired, "ndim", 0):
        check_keys(paired)
    else:
        check_one_key(paired)


def _is_per_run(rows: Any) -> bool:
    return getattr(rows, "ndim", 0) == 2


def _as_jax(leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf


@partial(jax.jit, static_argnums=0)
def _start(init: Callable[[Array], tuple[PyTree, PyTree]], key: Array) -> tuple[PyTree, PyTree]:
    return init(key)


@jax.jit
def _first_loss(problem: Problem, params: PyTree, state: PyTree, key: Array) -> Array:
    return problem.loss(params, state, problem.batch(key, 0), key)[0]


def _check_data(data: PyTree) -> int:
    leaves = jax.tree.leaves(data)
    if not leaves or any(jnp.ndim(leaf) == 0 for leaf in leaves):
        raise ArgumentError("data: expected arrays with a leading axis of examples")
    sizes = {leaf.shape[0] for leaf in leaves}
    if sizes == {0}:
        raise ArgumentError("data: expected at least one example, got none")
    if len(sizes) > 1:
        raise ArgumentError(f"data: arrays must share one leading axis of examples, got {sorted(sizes)}")
    for leaf in leaves:
        if not is_traced(leaf) and jnp.issubdtype(leaf.dtype, jnp.floating):
            bad = int(leaf.size - np.isfinite(np.asarray(leaf, np.float32)).sum())
            if bad:
                raise ArgumentError(f"data: {bad} values are NaN or infinite; remove or impute them first")
    return sizes.pop()


def as_rows(name: str, rows: Any, problem: Problem) -> Array:
    """Return rows of a problem's data as an array, checked by `check_rows`."""
    check_leaves("problem: data", problem.data, keys=True)
    try:
        array = jnp.asarray(rows)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{name}: expected integers, got {shown(rows)}") from None
    check_rows(name, array, jax.tree.leaves(problem.data)[0].shape[0])
    return array


def check_rows(name: str, rows: Any, examples: int) -> None:
    """Raise unless rows are integers of shape (n,) or (runs, n) within the data; `None` passes."""
    if rows is None:
        return
    is_array = isinstance(rows, (jax.Array, np.ndarray))
    if not is_array or rows.ndim not in (1, 2) or not jnp.issubdtype(rows.dtype, jnp.integer):
        raise ArgumentError(f"{name}: expected integer rows of shape (n,) or (runs, n)")
    if rows.size == 0:
        raise ArgumentError(f"{name}: expected at least one row")
    if is_traced(rows):
        return
    least, most = np.asarray(rows).min(), np.asarray(rows).max()
    if least < 0 or most >= examples:
        raise ArgumentError(f"{name}: rows must lie in [0, {examples}), got {least} to {most}")

"""Supervised learning problems: a model, examples with labels, a loss."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from jaxarch._internal.errors import (
    ArgumentError,
    ResultWarning,
    check_leaves,
    first_line,
    is_numeric,
    is_traced,
    shown,
)
from jaxarch._internal.kernels import not_matrices
from jaxarch._internal.trees import PyTree, named_leaves, path_name
from jaxarch.io._gather import take_rows
from jaxarch.models._flax_models import as_model
from jaxarch.models._model import Model
from jaxarch.run._descent import Descent, Sampling
from jaxarch.run._keyed import keyed_problem, shapes_of
from jaxarch.run._problem import Key, Problem
from jaxarch.structure._uses import weights_of


def supervised(
    model: Any,
    data: tuple[PyTree, PyTree],
    *,
    loss: Callable[[Any, Any], Array],
    optimizer: optax.GradientTransformation,
    steps: int,
    batch_size: int | None = None,
    sampling: Sampling = "independent",
    train: Any = None,
    train_size: Any = None,
    validation: Any = None,
    per_run: PyTree = None,
    gather: Callable[[PyTree, PyTree, Array], PyTree] = take_rows,
    augment: Callable[[Array, Any], Any] | None = None,
    metrics: Callable[[Any, Any], dict[str, Array]] | None = None,
    stream: Any = None,
) -> Problem:
    """Make a supervised problem, for every search and every strategy to run on.

    Args:
      model: a Flax NNX module or a function `rngs -> module`, a Flax Linen module, a pair of pure functions
        `(init, apply)`, or a jaxarch `Model`.
      data: `(x, y)`, with one leading axis of examples: arrays, or tuples and dicts of arrays. The model gets
        x as its one argument. y (labels, weights of examples, lengths) goes to the loss unchanged; `None` if
        there is nothing to compare with.
      loss: `(outputs, y) -> values`, which are averaged: any of optax's losses.
      optimizer: any optax transformation.
      steps: gradient steps of a training run.
      batch_size: examples per step; `None` for all of them.
      sampling: `independent`, uniformly with replacement; or `epochs`, each example once per epoch (see
        `Descent`).
      train: training rows, shape (n,), or (runs, n) if each run has its own; by default all.
      train_size: how many of these rows count, the rest being padding (see `Problem`); by default all.
      validation: validation rows, in the same form; by default none.
      per_run: other data of each run, with a leading axis of runs; passed to `gather`.
      gather: `(data, per_run, rows) -> (x, y)`.
      augment: `(key, x) -> x`, of the same shape and dtype, such as `jaxarch.io.crop_and_flip()`. It is
        applied to the inputs of a training batch, after `gather`; evaluation goes without it.
      metrics: `(outputs, y) -> {name: scalar}`, shown for the validation rows beside the loss.
      stream: training batches from the host, in place of rows of `data`: an iterable of `(x, y)` that can be
        started again (a PyTorch `DataLoader`, Grain's and TensorFlow's data sets, a list); or a function
        `step -> iterable` that starts with the batch of that step. All runs see the same batches, starting
        with the first one in every training run. Validation and `evaluate` still take rows from `data`.

    Raises:
      ArgumentError: data of another form, ragged lists, NaN; inputs that the model does not take; labels
        beyond the outputs, or of a dtype that the loss does not take; parameters without a floating-point
        leaf; a loss that does not fit the outputs; an `augment` that is not a function or changes shape or
        dtype; a stream whose batches do not have the form of `data`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x = jnp.array([[0.0], [1.0]])
      >>> model = (lambda key: {"w": jnp.zeros((1, 1))}, lambda params, x: x @ params["w"])
      >>> problem = jaxarch.supervised(
      ...     model, (x, 2 * x), loss=optax.squared_error, optimizer=optax.sgd(1.0), steps=1
      ... )
      >>> network = jaxarch.search.dense(nonnegative=False)(jax.random.key(0), problem)
      >>> print(network.info["loss"], network.params["w"])  # from w = 0, where the gradient is -2
      [2.] [[2.]]
    """
    x, y = _pair(data)
    _check_callables(augment, metrics)
    example, label = _example(gather, (x, y), per_run)
    network = as_model(model, example)
    outputs = _check_call(network, loss, example, label)
    if augment is not None:
        _check_augment(augment, example)
    if metrics is not None:
        _check_metrics(metrics, outputs, label)

    def problem_loss(
        params: PyTree, state: PyTree, batch: PyTree, key: Key, temperature: float = 1.0
    ) -> tuple[Array, PyTree]:
        inputs, labels = batch
        if augment is not None and key is not None:
            key, augment_key = jax.random.split(key)
            inputs = _augmented(augment, augment_key, inputs)
        outputs, state = network.apply(params, state, inputs, key)
        if temperature != 1:
            outputs = jax.tree.map(partial(_divided, temperature), outputs)
        return jnp.mean(loss(outputs, labels)), state

    def predict(params: PyTree, state: PyTree, batch: PyTree) -> Any:
        return network.apply(params, state, batch[0], None)[0]

    def problem_metrics(params: PyTree, state: PyTree, batch: PyTree) -> dict[str, Array]:
        assert metrics is not None
        return metrics(predict(params, state, batch), batch[1])

    made = Problem(
        init=network.init,
        loss=problem_loss,
        data=(x, y),
        descent=Descent(optimizer, steps, batch_size, sampling),
        train=_rows("train", train),
        train_size=_rows("train_size", train_size),
        validation=_rows("validation", validation),
        per_run=per_run,
        gather=gather,
        predict=predict,
        metrics=None if metrics is None else problem_metrics,
        stream=stream,
    )
    return _checked(made, network, loss, (example, label))


def _checked(problem: Problem, network: Model, loss: Callable[[Any, Any], Array], example: PyTree) -> Problem:
    """Raise unless the parts of a problem fit; return it, its stream checking the labels of its batches."""
    if problem.stream is not None:
        _check_stream(problem, example)
    keyed_problem(problem).check()
    outputs = _check_loss(problem, network, loss)
    _check_labels(problem, outputs)
    if problem.stream is None:
        return problem
    look = partial(_check_batch, _classes(problem.data[1], outputs))
    return dataclasses.replace(problem, stream=problem.stream.checked(look))


def _pair(data: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
    """Return inputs and labels as arrays with one leading axis."""
    if not isinstance(data, tuple) or len(data) != 2:
        raise ArgumentError("data: expected a pair (x, y) of arrays with one leading axis of examples")
    x, y = (_arrays(name, tree) for name, tree in zip("xy", data, strict=True))
    _check_axis(x, y)
    return x, y


def _arrays(name: str, tree: Any) -> PyTree:
    """Convert the leaves of dicts and tuples to arrays; a list counts as one array."""
    if tree is None:
        return None
    leaves, treedef = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: isinstance(node, list))
    named = [(f"{name}/{path_name(path)}" if path else name, leaf) for path, leaf in leaves]
    return jax.tree.unflatten(treedef, [_numbers(path, leaf) for path, leaf in named])


def _check_axis(x: PyTree, y: PyTree) -> None:
    shapes = [leaf.shape for leaf in jax.tree.leaves((x, y))]
    bare = getattr(x, "ndim", 2) < 2 or not jax.tree.leaves(x)
    if bare or len({shape[:1] for shape in shapes}) > 1 or () in shapes:
        given = " and ".join(str(jax.tree.map(lambda leaf: leaf.shape, tree)) for tree in (x, y))
        raise ArgumentError(f"data: expected x of shape (n, ...) and y of shape (n,), got {given}")


def _numbers(name: str, array: Any) -> Array:
    try:
        array = array if isinstance(array, Array) else np.asarray(array)
    except ValueError:
        raise ArgumentError(f"data: {name} has rows of different lengths; pad them to one length") from None
    if not (jnp.issubdtype(array.dtype, jnp.number) or jnp.issubdtype(array.dtype, jnp.bool_)):
        raise ArgumentError(
            f"data: {name} must be numbers, got dtype {array.dtype}; replace class names by integers"
        )
    return jnp.asarray(array)


def _rows(name: str, rows: Any) -> Any:
    if rows is None:
        return None
    try:
        array = np.asarray(rows)
        if not is_numeric(array):
            raise TypeError
        return array
    except TypeError:
        raise ArgumentError(f"{name}: expected row indices, got {shown(rows)}") from None
    except ValueError:
        raise ArgumentError(
            f"{name}: runs have different numbers of rows; pad `train` to one length and give `train_size`"
        ) from None


def _example(gather: Callable[[PyTree, PyTree, Array], PyTree], data: PyTree, per_run: PyTree) -> Any:
    """Return inputs and label of the first example of the first run."""
    if not callable(gather):
        raise ArgumentError(
            f"gather: expected a function (data, per_run, rows) -> (x, y), got {shown(gather)}"
        )
    if any(getattr(leaf, "shape", ())[:1] in ((), (0,)) for leaf in jax.tree.leaves(per_run)):
        raise ArgumentError(f"per_run: expected arrays with a leading axis of runs, got {shown(per_run)}")
    check_leaves("per_run", per_run, keys=True)
    first_own = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], per_run)
    try:
        example, label = jax.jit(gather)(data, first_own, jnp.zeros(1, jnp.int32))
    except ArgumentError:
        raise
    except Exception as error:
        raise ArgumentError(
            "gather: expected a function (data, per_run, rows) -> (x, y); it fails on the first row: "
            f"{first_line(error)}"
        ) from error
    return example, label


def _check_callables(augment: Any, metrics: Any) -> None:
    """Raise unless `augment` and `metrics` are functions, if given."""
    for name, function, form in (
        ("augment", augment, "(key, x) -> x"),
        ("metrics", metrics, "(outputs, y) -> {name: scalar}"),
    ):
        if function is not None and not callable(function):
            raise ArgumentError(f"{name}: expected a function {form}, got {shown(function)}")


def _check_augment(augment: Callable[[Array, Any], Any], x: PyTree) -> None:
    try:
        shapes_of(partial(_augmented, augment), jax.random.key(0), x)
    except ArgumentError:
        raise
    except Exception as error:
        raise ArgumentError(
            f"augment: expected a function (key, x) -> x; it does not take inputs of shape {_form(x)}: "
            f"{first_line(error)}"
        ) from error


def _check_metrics(metrics: Callable[[Any, Any], dict[str, Array]], outputs: Any, y: PyTree) -> None:
    try:
        made = shapes_of(metrics, outputs, y)
    except ArgumentError:
        raise
    except Exception as error:
        raise ArgumentError(
            f"metrics: it does not take outputs of shape {_form(outputs)} and labels of shape {_form(y)}: "
            f"{first_line(error)}"
        ) from error
    if not isinstance(made, dict):
        raise ArgumentError(
            "metrics: expected a function (outputs, y) -> {name: scalar}; it does not return a dict"
        )


def _check_call(network: Model, loss: Callable[[Any, Any], Array], x: PyTree, y: PyTree) -> Any:
    """Raise a one-line error unless the model takes the inputs, and the loss its outputs and the labels.

    Returns:
      The shapes of the outputs.
    """
    try:
        params, state = shapes_of(network.init, jax.random.key(0))
    except ArgumentError:
        raise
    except Exception as error:
        raise ArgumentError(f"model: it cannot be initialised: {first_line(error)}") from error
    try:
        outputs, _ = shapes_of(partial(_evaluated, network.apply), params, state, x)
    except ArgumentError:
        raise
    except Exception as error:
        raise ArgumentError(
            f"model: it does not take inputs of shape {_form(x)}: {first_line(error)}"
        ) from error
    _tell_uses(network, params, state, x)
    try:
        shapes_of(loss, outputs, y)
    except ArgumentError:
        raise
    except Exception as error:
        integers = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.int32), y)
        remedy = "; give y as integers, y.astype(int)" if _takes(loss, outputs, integers) else ""
        raise ArgumentError(
            f"loss: it does not take outputs of shape {_form(outputs)} and labels of shape {_form(y)}: "
            f"{first_line(error)}{remedy}"
        ) from error
    return outputs


def _tell_uses(network: Model, params: PyTree, state: PyTree, x: PyTree) -> None:
    """Warn about leaves that are masked by default, because of name and shape, but enter no product."""
    leaves = named_leaves(params)
    left_out = not_matrices(leaves)
    masked = [path for path in leaves if path not in left_out]
    # One row may be a scale for all examples, whatever its name.
    if all(re.split(r"[/.]", path)[-1] in _KERNELS and leaves[path].shape[0] > 1 for path in masked):
        return
    try:
        weights = weights_of(lambda *of: _evaluated(network.apply, *of)[0], params, state, x)
    except ArgumentError:  # a model that reads the values of its state
        return
    if added := [path for path in masked if path in weights.entrywise and not weights(path)]:
        warnings.warn(
            f"model: {', '.join(map(repr, added))} would be masked by default, but enters no product; pass "
            "`where` to searches, such as structure.weights_of(function, params, x)",
            ResultWarning,
            stacklevel=4,
        )


_KERNELS = ("embedding", "kernel", "w", "weight")
"""Names of weights: a model with no other names is not traced for this check, since a trace takes long."""


def _takes(function: Callable, *arguments: PyTree) -> bool:
    try:
        jax.eval_shape(function, *arguments)
    except Exception:
        return False
    return True


def _form(tree: PyTree) -> Any:
    """Return shapes and dtypes for a message."""
    return jax.tree.map(lambda leaf: f"{leaf.shape} ({leaf.dtype})", tree)


def _divided(temperature: float, output: Array) -> Array:
    """Divide an output by a temperature; keep integers and booleans, such as lengths and masks, unchanged."""
    return output / temperature if jnp.issubdtype(output.dtype, jnp.inexact) else output


def _augmented(augment: Callable[[Array, Any], Any], key: Array, inputs: PyTree) -> PyTree:
    made = augment(key, inputs)
    before, after = (jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), x) for x in (inputs, made))
    if before != after:
        raise ArgumentError(
            f"augment: expected it to keep the inputs' shape and dtype, {before}, got {after}"
        )
    return made


def _check_loss(problem: Problem, network: Model, loss: Callable[[Any, Any], Array]) -> Any:
    """Raise unless there is one loss per example: (n, 1) outputs and (n,) labels broadcast to (n, n).

    Returns:
      The shapes of the outputs for some examples.
    """
    one = keyed_problem(problem if problem.runs is None else problem.of_run(0))
    params, state = shapes_of(problem.init, jax.random.key(0))
    values = partial(_outputs_and_values, network.apply, loss)
    shapes = []
    for size in (2, 3):
        rows = jax.ShapeDtypeStruct((size,), jnp.int32)
        outputs, value = shapes_of(values, one, params, state, rows)
        shapes.append(value.shape)
        if value.shape and value.shape[0] != size:
            raise ArgumentError(
                f"loss: expected one value per example, shape ({size},), got shape {value.shape}"
            )
    if shapes[0][1:] != shapes[1][1:]:
        given = jax.tree.map(lambda leaf: leaf.shape, outputs)
        raise ArgumentError(
            f"loss: for 3 examples it has shape {shapes[1]}: outputs of shape {given} are broadcast against "
            "the labels; give both the same shape"
        )
    return outputs


def _evaluated(apply: Callable, params: PyTree, state: PyTree, x: PyTree) -> Any:
    return apply(params, state, x, None)


def _outputs_and_values(
    apply: Callable, loss: Callable, problem: Problem, params: PyTree, state: PyTree, rows: Array
) -> tuple[Any, Array]:
    inputs, labels = problem.gather(problem.data, problem.per_run, rows)
    outputs = apply(params, state, inputs, None)[0]
    return outputs, loss(outputs, labels)


def _check_stream(problem: Problem, example: PyTree) -> None:
    """Raise unless the batches of a stream have the form of rows of the data."""
    theirs, ours = (
        {path: (leaf.shape[1:], leaf.dtype) for path, leaf in named_leaves(tree).items()}
        for tree in (problem.stream.first, example)
    )
    sizes = {leaf.shape[:1] for leaf in jax.tree.leaves(problem.stream.first)}
    if theirs != ours or len(sizes) > 1 or sizes <= {(), (0,)}:
        raise ArgumentError(
            f"stream: expected batches whose rows are like rows of the data, {_form(example)}, got "
            f"{_form(problem.stream.first)}"
        )


def _check_labels(problem: Problem, outputs: Any) -> None:
    """Raise if a label exceeds the outputs: XLA would silently use the last output, or NaN."""
    y = problem.data[1]
    classes = _classes(y, outputs)
    if problem.per_run is not None or is_traced(y) or classes is None:
        return
    used = [np.ravel(rows) for rows in (problem.train, problem.validation) if rows is not None]
    rows = np.unique(np.concatenate(used)) if problem.train is not None else np.arange(len(y))
    _check_range("data: y", np.asarray(_labels(problem.gather, problem.data, jnp.asarray(rows))), classes)


def _classes(y: Any, outputs: Any) -> int | None:
    """Return the number of classes, if labels are classes and outputs have one number per class."""
    if getattr(y, "ndim", None) != 1 or not jnp.issubdtype(y.dtype, jnp.integer):
        return None
    return outputs.shape[1] if getattr(outputs, "ndim", 0) == 2 and outputs.shape[1] > 1 else None


def _check_range(name: str, labels: np.ndarray, classes: int) -> None:
    if labels.dtype.kind in "iu" and not 0 <= labels.min() <= labels.max() < classes:
        raise ArgumentError(
            f"{name} has labels {labels.min()} to {labels.max()}, but the model has {classes} outputs, for "
            f"labels 0 to {classes - 1}; number the classes from 0, or give the model more outputs"
        )


def _check_batch(classes: int | None, index: int, batch: PyTree) -> None:
    """Raise if a batch of a stream has labels outside the classes."""
    if classes is not None:
        _check_range(f"stream: batch {index}", batch[1], classes)


@partial(jax.jit, static_argnums=(0,))
def _labels(gather: Callable[[PyTree, PyTree, Array], PyTree], data: PyTree, rows: Array) -> Array:
    return gather(data, None, rows)[1]

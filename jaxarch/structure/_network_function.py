"""A network as one function of all its arrays, from which its structure is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxarch._internal.errors import ArgumentError, check_batches, check_leaves, is_traced, shown
from jaxarch._internal.trees import PyTree, named_leaves, placed
from jaxarch.masks import apply_mask
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem

Leaves = dict[str, Any]
"""The parameters and the state of a model, by path."""


def function_of(
    model: Any, about: Any, inputs: tuple[PyTree, ...], examples: int
) -> tuple[Callable[..., Any], PyTree, tuple[PyTree, ...]]:
    """Return the function to trace, from a network and its problem, or from a function and its arguments.

    Args:
      model: a network of one run, or a function `(tree, *inputs) -> outputs`.
      about: the network's problem, or the function's tree.
      inputs: the function's inputs; a network takes its problem's examples instead.
      examples: the number of the problem's examples to trace a network with.

    Returns:
      The function, its tree, and its inputs.

    Raises:
      ArgumentError: other kinds of arguments; many runs at once, a bare architecture, a network that does not
        fit the problem, a problem that predicts nothing.
    """
    if isinstance(model, Network):
        if not isinstance(about, Problem) or inputs:
            raise ArgumentError(
                f"problem: expected the network's problem and no other inputs, got {shown(about)}"
            )
        leaves = masked_leaves(model)
        check_problem(model, about)
        function = problem_function(about, model.params, model.state)
        return function, leaves, (example_batch(about, examples),)
    if not callable(model):
        raise ArgumentError(f"model: expected a network of one run or a function, got {shown(model)}")
    if isinstance(about, Problem):
        raise ArgumentError(
            "model: expected a network of one run together with a problem, got a function; pass its inputs "
            "instead"
        )
    return model, about, inputs


def check_arrays_given(**values: PyTree) -> None:
    """Raise unless all leaves of some arguments are arrays: models are run on them."""
    for name, of in values.items():
        leaves = jax.tree.leaves(of)
        if is_traced(of) or any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
            raise ArgumentError(f"{name}: expected arrays, since models are run; got shapes or traced values")


def check_examples(inputs: PyTree) -> None:
    """Raise if an input has no entries."""
    if not all(np.size(leaf) for leaf in jax.tree.leaves(inputs)):
        raise ArgumentError("inputs: expected at least one example, got arrays without entries")


def check_batch(batch: PyTree) -> None:
    """Raise unless a batch has arrays with entries."""
    check_leaves("batches", batch, keys=True)
    if not all(map(np.size, jax.tree.leaves(batch))):
        raise ArgumentError("batches: expected examples in each batch, got an array without entries")
    check_arrays_given(batches=batch)


def checked_batches(batches: Iterable[PyTree]) -> Iterator[PyTree]:
    """Yield batches after a check of each; raise if there is none."""
    check_batches(batches)
    is_empty = True
    for batch in batches:
        check_batch(batch)
        yield batch
        is_empty = False
    if is_empty:
        raise ArgumentError("batches: expected at least one, got none")


def problem_function(problem: Problem, params: PyTree, state: PyTree) -> Callable[[Leaves, PyTree], Any]:
    """Return a problem's model in evaluation mode, as a function `(leaves, batch) -> outputs`.

    Args:
      problem: a problem with `predict`.
      params: the parameters of its model, arrays or their shapes.
      state: the state of its model, arrays or their shapes.

    Raises:
      ArgumentError: a problem that predicts nothing.
    """
    if problem.predict is None:
        raise ArgumentError("problem: it has no `predict`; give it one")
    predict = problem.predict

    def function(leaves: Leaves, batch: PyTree) -> Any:
        own_params, own_state = split_leaves(leaves, params, state)
        return predict(own_params, own_state, batch)

    return function


def joined_leaves(params: PyTree, state: PyTree) -> Leaves:
    """Join parameters and state by path; a state leaf whose path is taken gets the prefix `state/`."""
    leaves = named_leaves(params)
    of_state = named_leaves(state)
    return {**leaves, **{_state_path(path, leaves): leaf for path, leaf in of_state.items()}}


def split_leaves(leaves: Leaves, params: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
    """Split leaves into parameters and state of the given structures: the inverse of `joined_leaves`."""
    of_params = named_leaves(params)
    of_state = {path: leaves[_state_path(path, of_params)] for path in named_leaves(state)}
    return placed({path: leaves[path] for path in of_params}, params), placed(of_state, state)


def _state_path(path: str, of_params: Leaves) -> str:
    return f"state/{path}" if path in of_params else path


def masked_leaves(network: Network) -> Leaves:
    """Return the leaves of a network of one run, with masked parameters.

    Raises:
      ArgumentError: many runs at once, a bare architecture, traced values.
    """
    if not isinstance(network, Network):
        raise ArgumentError(
            f"network: expected a jaxarch.Network of one run, such as network.of_run(0), got {shown(network)}"
        )
    if network.params is None:
        raise ArgumentError(
            "network: it is a bare architecture without weights; train it first, with retrain('cold')"
        )
    if is_traced((network.params, network.mask, network.state)):
        raise ArgumentError("network: its values are traced; call this outside of jit and vmap")
    if network.info.failed_at is not None and np.ndim(network.info.failed_at):
        raise ArgumentError("network: it holds many runs; pass one, network.of_run(0)")
    params = network.params if network.mask is None else apply_mask(network.mask, network.params)
    return joined_leaves(params, network.state)


def check_problem(network: Network, problem: Problem) -> None:
    """Raise unless a network's leaves have the paths and shapes of the problem's model."""
    expected = jax.eval_shape(problem.init, jax.random.key(0))
    for name, given, there in zip(
        ("params", "state"), (network.params, network.state), expected, strict=True
    ):
        shapes, wanted = (
            {path: jnp.shape(leaf) for path, leaf in named_leaves(tree).items()} for tree in (given, there)
        )
        for path in [*wanted, *shapes]:
            if shapes.get(path) != wanted.get(path):
                raise ArgumentError(
                    f"network: expected {name} of the problem's model, {path!r} of shape "
                    f"{wanted.get(path)}, got {shapes.get(path)}; if the network holds many runs, pass one, "
                    "network.of_run(0)"
                )


def example_batch(problem: Problem, rows: int) -> PyTree:
    """Return the first training examples of a problem; if runs have their own, those of the first run."""
    problem = problem if problem.runs is None else problem.of_run(0)
    if problem.train is not None or problem.stream is None:
        chosen = problem.training_rows()[:rows]
    else:
        chosen = jnp.arange(min(rows, jax.tree.leaves(problem.data)[0].shape[0]))
    return problem.gather(problem.data, problem.per_run, chosen)

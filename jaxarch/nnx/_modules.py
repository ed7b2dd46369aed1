"""NNX modules as functions of their arrays, and smaller modules."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch._internal.trees import PyTree, copied, named_leaves, path_name, placed
from jaxarch.structure._flow import follow, fresh
from jaxarch.structure._framework_models import Made, ShrunkModel, fields_of, smaller_model
from jaxarch.structure._liveness import reached
from jaxarch.structure._network_function import check_arrays_given
from jaxarch.structure._plan import Options, Plan, PlanScope, Shares, plan_of, subject_of
from jaxarch.structure._shrink import Shrunk, shrink_function
from jaxarch.structure._tracing import passed_on, traced


def as_function(model: nnx.Module) -> tuple[Callable[..., Any], PyTree]:
    """Turn a module into a function and its arrays: `function(tree, *inputs)` is `model(*inputs)`.

        function, tree = jaxarch.nnx.as_function(model)
        print(jaxarch.structure.axis_groups(function, tree, x))

    The function computes with the module as it is now. Call `model.eval()` first, or batch norm updates its
    statistics and dropout draws random numbers.

    Args:
      model: any NNX module.

    Returns:
      The function, and the module's parameters and state without its random streams.

    Raises:
      ArgumentError: a `model` that is not an NNX module.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> from flax import nnx
      >>> function, tree = jaxarch.nnx.as_function(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))
      >>> print(list(jaxarch.named_leaves(tree)), function(tree, jnp.ones((1, 3))).shape)
      ['bias', 'kernel'] (1, 2)
    """
    if not isinstance(model, nnx.Module):
        raise ArgumentError(f"model: expected a Flax NNX module, got {shown(model)}")
    graph, random, tree = _split(model)
    random = copied(random)

    def function(tree: PyTree, *inputs: PyTree) -> Any:
        return nnx.merge(graph, random, tree, copy=True)(*inputs)

    return function, tree


@dataclasses.dataclass(frozen=True, repr=False)
class ShrunkModule(ShrunkModel):
    """A smaller module. `print` shows the removed units.

    Attributes:
      model: the module with smaller arrays, and with their sizes in its layers. It is `None` if the module's
        code does not take them, for instance because it fixes the number of heads. Then use `function`.
      why: the reason if there is no `model`; otherwise empty.
    """


def shrink(model: nnx.Module, *inputs: PyTree) -> ShrunkModule:
    """Remove the neurons, channels and heads of a module that have no effect: `jaxarch.shrink` for modules.

        small = jaxarch.nnx.shrink(masked.strip(), x)
        small.model(x)  # an ordinary module, to be trained on and saved

    Some variables are written by the call, such as a memory, or batch statistics in training. Their values
    differ at the next call, so none counts as a constant, and both modules write the same values. `function`
    returns only the outputs. Layers in a stack, for instance from `nnx.vmap` for `nnx.scan`, lose the units
    that none of them needs, whatever axis they are stacked on.

    Args:
      model: any NNX module, with pruned weights at 0. It is not changed, and shares no array with the result.
      *inputs: example inputs of a call, on which both modules are compared.

    Raises:
      ArgumentError: a `model` that is not an NNX module, or cannot be traced. A call that draws random
        numbers, or adds a variable that its next call reads. A call that changes the shape of a variable, or
        an attribute that is not an array.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> from flax import nnx
      >>> into, out = nnx.Linear(3, 4, rngs=nnx.Rngs(0)), nnx.Linear(4, 2, rngs=nnx.Rngs(1))
      >>> out.kernel[1:3] = 0.0  # two of four neurons are not read
      >>> small = jaxarch.nnx.shrink(nnx.Sequential(into, nnx.relu, out), jnp.ones((1, 3)))
      >>> print(small.model.layers[0].out_features, small.model.layers[2].kernel.shape)
      2 (2, 2)
    """
    read = _read(model, inputs)
    return read.finish(shrink_function(read.function, read.tree, inputs, read.updates), exact=True)


def plan(
    model: nnx.Module,
    *inputs: PyTree,
    budget: str | Sequence[str] | None = None,
    scores: Any = None,
    scope: PlanScope = "relative",
    units: str | Sequence[str] | None = None,
    shares: Shares | None = None,
    round_to: int = 1,
    kept: Mapping[str, Any] | None = None,
) -> Plan:
    """Choose the units of a module to keep, so that it meets a budget: `structure.plan` for modules.

        plan = jaxarch.nnx.plan(model, x, budget="50% multiply_adds")
        small = plan.apply().model  # an ordinary module, to be trained on and saved

    Parameters in the sense of the budget are the module's `nnx.Param` variables. Call `model.eval()` first.
    Gradients from `nnx.grad` fit as `scores` after `nnx.state(gradients)`.

    Args:
      model: any NNX module. It is not changed, and shares no array with the result.
      *inputs: example inputs of a call.
      budget: see `structure.plan`, as for all other arguments.
      scores: see `structure.plan`.
      scope: see `structure.plan`.
      units: see `structure.plan`.
      shares: see `structure.plan`.
      round_to: see `structure.plan`.
      kept: see `structure.plan`.

    Returns:
      `Plan`. Its `apply()` returns a `ShrunkModule`. Its `model` is `None` if the module's code fixes the
      sizes that were cut, such as a number of heads. Then `function` computes the smaller model.

    Raises:
      ArgumentError: the errors of `structure.plan`, and those of `shrink` for the module and its call.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> from flax import nnx
      >>> into, out = nnx.Linear(3, 8, rngs=nnx.Rngs(0)), nnx.Linear(8, 2, rngs=nnx.Rngs(1))
      >>> model = nnx.Sequential(into, nnx.relu, out)
      >>> plan = jaxarch.nnx.plan(model, jnp.ones((1, 3)), budget="30 parameters")
      >>> print(plan.before.parameters, plan.after.parameters, plan.apply().model.layers[0].out_features)
      50 26 4
    """
    read = _read(model, inputs)
    check_arrays_given(model=read.tree, inputs=inputs)
    parameters = {*named_leaves(nnx.state(model, nnx.Param))}
    finish = partial(read.finish, exact=False)
    subject = subject_of(read.function, read.tree, inputs, parameters, finish, read.updates)
    return plan_of(subject, Options(budget, scores, scope, units, shares, round_to, kept))


class _Read(NamedTuple):
    """A module as a function of its arrays.

    Attributes:
      function: `(tree, *inputs) -> outputs`, or `(outputs, leaves)` with the leaves that the call writes.
      tree: the arrays without random streams.
      updates: whether the call writes leaves.
      finish: puts a smaller function into a module.
    """

    function: Callable[..., Any]
    tree: PyTree
    updates: bool
    finish: Callable[..., ShrunkModule]


def _read(model: nnx.Module, inputs: tuple[PyTree, ...]) -> _Read:
    if not isinstance(model, nnx.Module):
        raise ArgumentError(f"model: expected a Flax NNX module, got {shown(model)}")
    graph, random, tree = _split(model)
    random = copied(random)
    written = _written(graph, random, tree, inputs)

    def function_of(graph: Any) -> Callable[..., Any]:
        def function(tree: PyTree, *inputs: PyTree) -> Any:
            module = nnx.merge(graph, random, tree, copy=True)
            outputs = module(*inputs)
            if not written:
                return outputs
            after = named_leaves(_split(module)[2])
            return outputs, {path: after[path] for path in written}

        return function

    def finish(small: Shrunk, exact: bool) -> ShrunkModule:
        def made(fewer: bool) -> Made:
            module = nnx.merge(graph, *copied((random, small.tree)), copy=True)
            nodes = dict(nnx.iter_graph(model))
            for path, node in nnx.iter_graph(module):
                _write_sizes(node, nodes[path], fewer)
            return module, function_of(_split(module)[0])

        candidates = [partial(made, fewer) for fewer in (False, True)]
        return ShrunkModule(**fields_of(small), **smaller_model(small, candidates, inputs, exact))

    return _Read(function_of(graph), tree, bool(written), finish)


def _split(model: nnx.Module) -> Any:
    """Split a module into graph, random streams and other arrays, in variables that are not the module's."""
    graph, *states = nnx.split(model, nnx.RngState, ...)
    return graph, *jax.tree.map(lambda leaf: leaf, states)


def _written(graph: Any, random: PyTree, tree: PyTree, inputs: tuple[PyTree, ...]) -> list[str]:
    """Return the paths of the arrays that a call of a module writes, and that a later call may read.

    The traced call tells: an array that it passes on unchanged was not written. Values that a call adds, such
    as sown ones, are left out if the next call does not depend on them.

    Raises:
      ArgumentError: a call that draws random numbers, changes the shape or dtype of what it writes, or adds
        arrays that the next call reads.
    """

    def called(tree: PyTree, random: PyTree, inputs: tuple[PyTree, ...]) -> Any:
        module = nnx.merge(graph, random, tree, copy=True)
        before = _static(module)
        outputs = module(*inputs)
        changed.extend(_changed(before, _static(module)))
        _, random, after = _split(module)
        return {**named_leaves(after), **named_leaves(random)}, outputs

    changed: list[str] = []
    closed, (after, _) = traced(called, tree, random, inputs)
    if changed:
        raise ArgumentError(
            f"model: its call changes {changed[0]!r}, which is not an array, so one program cannot stand for "
            "all calls; make it an nnx.Variable"
        )
    before = [*named_leaves(tree).items(), *named_leaves(random).items()]
    numbers = {path: number for number, (path, _) in enumerate(before)}
    sources = dict(zip(after, passed_on(closed), strict=False))
    written = [path for path in after if path in numbers and sources[path] != numbers[path]]
    if drawn := [path for path in written if path in named_leaves(random)]:
        raise ArgumentError(
            f"model: its call draws random numbers, counted in {drawn[0]!r}; call model.eval() first, or "
            "make the layer deterministic"
        )
    for path in written:
        old, new = dict(before)[path], after[path]
        if old.shape != new.shape or old.dtype != new.dtype:
            raise ArgumentError(
                f"model: its call changes {path!r} from {old.dtype} of shape {old.shape} to {new.dtype} of "
                f"shape {new.shape}; create it with the dtype and shape for inputs of this size"
            )
    added = {path: leaf for path, leaf in after.items() if path not in numbers}
    lost = [path for path in numbers if path not in after]
    if lost or (added and _is_read(graph, random, tree, inputs, added)):
        raise ArgumentError(
            f"model: its call {'removes' if lost else 'adds'} {[*lost, *added][0]!r}, which its next call "
            "reads; call the model once before you shrink it"
        )
    return written


def _static(module: nnx.Module) -> dict[str, Any]:
    """Return the attributes of a module and its submodules that are neither arrays nor modules, by path."""

    def is_node(value: Any) -> bool:
        return isinstance(value, (nnx.Module, nnx.Variable)) or value is None

    found = {}
    for path, node in nnx.iter_graph(module):
        if not isinstance(node, nnx.Module):
            continue
        # Skip Flax's own notes on a module.
        attributes = {name: value for name, value in vars(node).items() if not name.startswith("_pytree__")}
        for below, value in jax.tree_util.tree_leaves_with_path(attributes, is_leaf=is_node):
            if not isinstance(value, (nnx.Module, nnx.Variable, jax.Array)):
                found["/".join([*map(str, path), path_name(below)])] = value
    return found


def _changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the paths of attributes that are new, gone, or changed."""

    def is_same(path: str) -> bool:
        if path not in before or path not in after:
            return False
        one, other = before[path], after[path]
        return one is other or (type(one) is type(other) and bool(np.all(one == other)))

    return [path for path in {**before, **after} if not is_same(path)]


def _is_read(
    graph: Any, random: PyTree, tree: PyTree, inputs: tuple[PyTree, ...], added: dict[str, Any]
) -> bool:
    """Return whether a second call depends on what the first one adds to a module."""
    known = {**named_leaves(tree), **named_leaves(random)}

    def called(added: dict[str, Any]) -> Any:
        module = nnx.merge(graph, random, tree, copy=True)
        module(*inputs)
        after, state = nnx.split(module)
        found = {path: added.get(path, leaf) for path, leaf in named_leaves(state).items()}
        again = nnx.merge(after, placed(found, state), copy=True)
        outputs = again(*inputs)
        last = named_leaves(nnx.state(again))
        return outputs, {path: leaf for path, leaf in last.items() if path in known}

    closed, _ = traced(called, added)
    program = follow(closed, [fresh(var) for var in closed.jaxpr.invars])
    return any(reached(program, [True] * len(program.outputs), set()))


def _write_sizes(module: object, before: Any, fewer: bool) -> None:
    """Update the size attributes of a layer to the sizes of its arrays.

    Args:
      module: the layer.
      before: the layer in the original module.
      fewer: whether a group norm loses whole groups, and keeps the features in a group.
    """
    match module:
        case nnx.Linear():
            sizes = before.in_features, before.out_features
            module.in_features, module.out_features = _sizes(module.kernel, before.kernel, sizes)
        case nnx.Conv():
            _write_sizes_of_convolution(module, before)
        case nnx.LinearGeneral() if not module.batch_axis:
            inputs = len(before.in_features)
            module.in_features = module.kernel.shape[:inputs]
            module.out_features = module.kernel.shape[inputs:]
        case nnx.MultiHeadAttention():
            module.in_features, module.num_heads, module.head_dim = module.query.kernel.shape[-3:]
            module.qkv_features = module.num_heads * module.head_dim
            module.out_features = module.out.kernel.shape[-1]
        case nnx.Embed():
            sizes = before.num_embeddings, before.features
            module.num_embeddings, module.features = _sizes(module.embedding, before.embedding, sizes)
        case nnx.BatchNorm():
            (module.num_features,) = _sizes(module.mean, before.mean, (before.num_features,))
        case nnx.GroupNorm():
            _write_groups(module, before, fewer)


def _write_sizes_of_convolution(module: nnx.Conv, before: nnx.Conv) -> None:
    """Update the sizes of a convolution. If it is depthwise, it has as many groups as channels."""
    groups = before.feature_group_count
    sizes = before.in_features // groups, before.out_features
    inputs, module.out_features = _sizes(module.kernel, before.kernel, sizes)
    if groups == before.in_features > 1:
        module.feature_group_count = module.out_features * groups // before.out_features
    module.in_features = inputs * module.feature_group_count


def _write_groups(module: nnx.GroupNorm, before: nnx.GroupNorm, fewer: bool) -> None:
    """Update the number of groups of a group norm, or the features in a group."""
    old, new = (norm.bias if norm.scale is None else norm.scale for norm in (before, module))
    if old is None or new is None:
        return
    features = new.size * before.num_groups * before.group_size // old.size
    if fewer:
        module.num_groups = features // before.group_size
    else:
        module.group_size = features // before.num_groups


def _sizes(after: Any, before: Any, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the new sizes of some axes: of the last axes that fit, if layers are stacked."""
    for axes in reversed([*itertools.combinations(range(after.ndim), len(sizes))]):
        others = (axis for axis in range(after.ndim) if axis not in axes)
        if sizes == tuple(before.shape[axis] for axis in axes) and all(
            after.shape[axis] == before.shape[axis] for axis in others
        ):
            return tuple(after.shape[axis] for axis in axes)
    return after.shape[-len(sizes) :]

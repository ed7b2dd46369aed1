"""NNX modules as functions of their arrays, and smaller modules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from flax import nnx

from jaxarch.errors import ArgumentError, shown
from jaxarch.structure.shrink import Shrunk
from jaxarch.structure.shrink import shrink as shrink_function
from jaxarch.trees import PyTree


def as_function(model: nnx.Module) -> tuple[Callable[..., Any], PyTree]:
    """A module as a function of its arrays, and these: `function(tree, *inputs)` is `model(*inputs)`.

        function, tree = jaxarch.nnx.as_function(model)
        print(jaxarch.structure.axis_groups(function, tree, x))

    The module is as it is now: call `model.eval()` first, or batch norm counts and dropout draws.

    Args:
      model: any NNX module.

    Returns:
      The function, and the module's parameters and state but its random streams.

    Raises:
      ArgumentError: no NNX module.

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

    def function(tree: PyTree, *inputs: PyTree) -> Any:
        return nnx.merge(graph, random, tree, copy=True)(*inputs)

    return function, tree


@dataclasses.dataclass(frozen=True, repr=False)
class ShrunkModule(Shrunk):
    """A smaller module. `print` shows what was removed.

    Attributes:
      model: the module with smaller arrays, and with their sizes in its layers; `None` where its code does
        not take them, such as one that writes down how many heads there are. `function` computes it then.
    """

    model: Any


def shrink(model: nnx.Module, *inputs: PyTree) -> ShrunkModule:
    """Remove the neurons, channels and heads of a module that do nothing: `jaxarch.shrink` of it.

        small = jaxarch.nnx.shrink(masked.strip(), x)
        small.model(x)  # an ordinary module, to be trained on and saved

    Args:
      model: any NNX module, in evaluation, with 0 for what is pruned. It stays as it is.
      *inputs: an example of what it is called with, on which both are compared.

    Raises:
      ArgumentError: no NNX module, one that cannot be traced.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> from flax import nnx
      >>> into, out = nnx.Linear(3, 4, rngs=nnx.Rngs(0)), nnx.Linear(4, 2, rngs=nnx.Rngs(1))
      >>> out.kernel[1:3] = 0.0  # two of four neurons are not read
      >>> small = jaxarch.nnx.shrink(nnx.Sequential(into, nnx.relu, out), jnp.ones((1, 3)))
      >>> print(small.model.layers[0].out_features, small.model.layers[2].kernel.shape)
      2 (2, 2)
    """
    function, tree = as_function(model)
    small = shrink_function(function, tree, *inputs)
    graph, random, _ = _split(model)
    made = nnx.merge(graph, random, small.tree, copy=True) if small.same_function else None
    if made is not None:
        for _, node in nnx.iter_graph(made):
            _write_sizes(node)
    fields = {field.name: getattr(small, field.name) for field in dataclasses.fields(Shrunk)}
    return ShrunkModule(**fields, model=made)


def _split(model: nnx.Module) -> Any:
    """The graph, the random streams, and all other arrays."""
    return nnx.split(model, nnx.RngState, ...)


def _write_sizes(module: object) -> None:
    """The sizes of a layer's arrays, where it has written them down."""
    match module:
        case nnx.Linear():
            module.in_features, module.out_features = module.kernel.shape
        case nnx.Conv():
            *_, inputs, outputs = module.kernel.shape
            module.in_features, module.out_features = inputs * module.feature_group_count, outputs
        case nnx.Embed():
            module.num_embeddings, module.features = module.embedding.shape
        case nnx.BatchNorm():
            (module.num_features,) = module.mean.shape

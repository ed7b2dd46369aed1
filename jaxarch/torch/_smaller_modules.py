"""Smaller arrays in a copy of a PyTorch module."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import torch
from torch import nn

from jaxarch._internal.trees import PyTree
from jaxarch.structure._framework_models import Made, fields_of, smaller_model
from jaxarch.structure._shrink import Shrunk
from jaxarch.torch._attributes import Attributes, guesses
from jaxarch.torch._modules import ShrunkModule
from jaxarch.torch._reading import attribute, read, to_jax, to_torch
from jaxarch.torch._sizes import write_groups, write_sizes


def finished(small: Shrunk, model: nn.Module, inputs: tuple[PyTree, ...], exact: bool) -> ShrunkModule:
    """Put the smaller arrays into a copy of the module, and compare it with the smaller function."""
    _, _, examples = read(model, inputs)
    candidates = (
        partial(_candidate, model, small.tree, inputs, attributes, fewer)
        for attributes, fewer in itertools.product(guesses(model, small), (False, True))
    )

    def outputs_of(made: nn.Module) -> PyTree:
        # On GPUs, convolutions in TF32 would differ by more than float32's rounding.
        full = torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, allow_tf32=False)
        with torch.no_grad(), full:
            return jax.tree.map(to_jax, made(*inputs))

    found = smaller_model(small, candidates, examples, exact, outputs_of)
    tensors = _smaller_tensors(_tensors(model, small.tree), small.tree)
    saved = {name: tensors[name].detach() for name in model.state_dict() if name in tensors}
    first = {parameter: name for name, parameter in model.named_parameters() if name in small.tree}
    return ShrunkModule(**fields_of(small), **found, state_dict=saved, _names=first)


def _candidate(
    model: nn.Module,
    tree: Mapping[str, jax.Array],
    inputs: tuple[PyTree, ...],
    attributes: Attributes,
    fewer: bool,
) -> Made:
    """Return a module with the smaller arrays, and its function.

    Args:
      model: the original module.
      tree: the smaller arrays.
      inputs: inputs of a call.
      attributes: new values of attributes.
      fewer: whether group norms lose whole groups.
    """
    made = _with_arrays(model, tree)
    for (path, name), value in attributes.items():
        setattr(made.get_submodule(path), name, value)
    write_groups(made, inputs, fewer)
    return made, read(made, inputs)[0]


def _with_arrays(model: nn.Module, tree: Mapping[str, jax.Array]) -> nn.Module:
    """Return a copy of a module with other arrays, and with their sizes in its layers."""
    named = _tensors(model, tree)
    # Tensors of the old sizes need not be copied.
    made = copy.deepcopy(model, {id(tensor): tensor for tensor in named.values()})
    for name, tensor in _smaller_tensors(named, tree).items():
        layer, _, last = name.rpartition(".")
        setattr(made.get_submodule(layer), last, tensor)
    write_sizes(made)
    return made


def _tensors(model: nn.Module, tree: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return all tensors of a module by name; a shared one under each of its names."""
    others = model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)
    return {name: attribute(model, name) for name in tree} | dict(others[0]) | dict(others[1])


def _smaller_tensors(
    named: Mapping[str, torch.Tensor], tree: Mapping[str, jax.Array]
) -> dict[str, torch.Tensor]:
    """Return smaller arrays as tensors like those of the model. What is shared there is shared here."""
    made = {id(named[name]): to_torch(tree[name], named[name]) for name in tree}
    return {name: made[id(tensor)] for name, tensor in named.items() if id(tensor) in made}

"""Smaller arrays in a copy of a PyTorch module."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import torch
from torch import nn

from jaxarch._internal.errors import ArgumentError, ResultWarning
from jaxarch._internal.trees import PyTree
from jaxarch.structure._flow import UNREAD
from jaxarch.structure._framework_models import Made, fields_of, smaller_model
from jaxarch.structure._groups import some_axes
from jaxarch.structure._shrink import Shrunk, relative_difference
from jaxarch.torch._attributes import Attributes, guesses
from jaxarch.torch._modules import ShrunkModule
from jaxarch.torch._reading import (
    arrays_of,
    attribute,
    duplicate,
    outputs_of,
    to_torch,
    translated,
    uncompiled,
)
from jaxarch.torch._sizes import write_sizes


def finished(
    small: Shrunk,
    model: nn.Module,
    function: Callable[..., Any],
    tree: PyTree,
    inputs: tuple[PyTree, ...],
    exact: bool,
) -> ShrunkModule:
    """Put the smaller arrays into a copy of the module, and compare it with the smaller function.

    Args:
      small: the smaller function and its arrays.
      model: the original module.
      function: its translation, from `read`.
      tree: its arrays.
      inputs: inputs of a call.
      exact: see `smaller_model`.

    Raises:
      ArgumentError: a translation that computes something else than the module.
    """
    model, examples = uncompiled(model), arrays_of(inputs)
    # The module may have been trained since its arrays were read.
    then = _with_arrays(model, tree)
    apart = relative_difference(jax.jit(function)(tree, *examples), outputs_of(then, inputs))
    if apart > small.groups.rounding():
        raise ArgumentError(
            f"model: torchax computes something else than PyTorch, by {apart:.1e} of the largest output, so "
            "the smaller model cannot be trusted"
        )
    candidates = (
        partial(_candidate, model, small.tree, inputs, attributes, fewer)
        for attributes, fewer in itertools.product(guesses(model, small), (False, True))
    )
    found = smaller_model(small, candidates, examples, exact, lambda made: outputs_of(made, inputs))
    unread = {path for (path, _), why in small.groups.frozen.items() if why == UNREAD}
    if found["model"] is not None and unread:
        warnings.warn(
            f"apply: no output depends on {some_axes(sorted(unread))}, so these keep their sizes; training "
            "mode may fail if it reads them",
            ResultWarning,
            stacklevel=4,
        )
    tensors = _other_tensors(_tensors(model, small.tree), small.tree)
    saved = {name: tensors.get(name, value) for name, value in model.state_dict().items()}
    saved = {name: value.detach() if torch.is_tensor(value) else value for name, value in saved.items()}
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
    write_sizes(made, inputs, fewer)
    return made, translated(made)[0]


def _with_arrays(model: nn.Module, tree: Mapping[str, jax.Array]) -> nn.Module:
    """Return a copy of a module with these arrays wherever it has its tensors, also in lists."""
    named = _tensors(model, tree)
    others = _other_tensors(named, tree)
    return duplicate(model, {id(tensor): others[name] for name, tensor in named.items() if name in others})


def _tensors(model: nn.Module, tree: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return all tensors of a module by name; a shared one under each of its names."""
    others = model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)
    return {name: attribute(model, name) for name in tree} | dict(others[0]) | dict(others[1])


def _other_tensors(
    named: Mapping[str, torch.Tensor], tree: Mapping[str, jax.Array]
) -> dict[str, torch.Tensor]:
    """Return arrays as tensors like those of the model. What is shared there is shared here."""
    made = {id(named[name]): to_torch(tree[name], named[name]) for name in tree}
    return {name: made[id(tensor)] for name, tensor in named.items() if id(tensor) in made}

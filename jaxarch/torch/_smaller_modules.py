"""Smaller arrays in a copy of a PyTorch module."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import torch
from torch import nn

from jaxarch._internal.errors import ResultWarning, first_line
from jaxarch._internal.trees import PyTree
from jaxarch.structure._shrink import Shrunk, relative_difference, runs_alike
from jaxarch.torch._attributes import Attributes, guesses
from jaxarch.torch._modules import ShrunkModule
from jaxarch.torch._reading import attribute, read, to_jax, to_torch
from jaxarch.torch._sizes import write_groups, write_sizes


def finished(small: Shrunk, model: nn.Module, inputs: tuple[PyTree, ...], exact: bool) -> ShrunkModule:
    """Put the smaller arrays into a copy of the module, and compare it with the smaller function."""
    made, why = None, ""
    for attributes, fewer in itertools.product(guesses(model, small), (False, True)):
        candidate, reason, apart = _candidate(model, small, inputs, attributes, fewer, exact)
        if not reason:
            made, why = candidate, ""
            break
        why = why or reason
    if made is None:
        cut = {small.groups.groups[name].kind for name, units in small.kept.items() if not units.all()}
        why += "; leave heads whole, by `units`" if "heads" in cut else ""
    elif apart > small.groups.rounding():
        warnings.warn(
            f"apply: the outputs of the module differ by {apart:.1e} of the largest from those of the masked "
            "model, since it takes means over units that are fewer now; compare accuracies, or use "
            "`function`",
            ResultWarning,
            stacklevel=4,
        )
    tensors = _smaller_tensors(_tensors(model, small.tree), small.tree)
    saved = {name: tensors[name].detach() for name in model.state_dict() if name in tensors}
    fields = {field.name: getattr(small, field.name) for field in dataclasses.fields(Shrunk)}
    first = {parameter: name for name, parameter in model.named_parameters() if name in small.tree}
    return ShrunkModule(**fields, model=made, why=why, state_dict=saved, _names=first)


def _candidate(
    model: nn.Module,
    small: Shrunk,
    inputs: tuple[PyTree, ...],
    attributes: Attributes,
    fewer: bool,
    exact: bool,
) -> tuple[nn.Module, str, float]:
    """Return a module with the smaller arrays, and how it compares: see `_unlike`.

    Args:
      model: the original module.
      small: the smaller function and its arrays.
      inputs: inputs of a call.
      attributes: new values of attributes.
      fewer: whether group norms lose whole groups.
      exact: see `_unlike`.
    """
    candidate = _with_arrays(model, small.tree)
    for (path, name), value in attributes.items():
        setattr(candidate.get_submodule(path), name, value)
    try:
        write_groups(candidate, inputs, fewer)
    except Exception as error:
        return candidate, f"its code does not take the smaller arrays: {first_line(error)}", np.inf
    return candidate, *_unlike(candidate, small, inputs, exact)


def _unlike(
    candidate: nn.Module, small: Shrunk, inputs: tuple[PyTree, ...], exact: bool
) -> tuple[str, float]:
    """Compare a module with the smaller function.

    Unless it must be exact, a module may divide by the new number of units where it takes a mean over units.

    Returns:
      The reason why the module computes something else; empty if it does not. And the difference of its
      outputs from those of the smaller function, in units of the largest.
    """
    function, _, examples = read(candidate, inputs)
    arguments = function, small.groups.smaller(small.kept), small.tree, *examples
    same = runs_alike(*arguments)
    if not same and (exact or not runs_alike(*arguments, but_for_numbers=True)):
        return "its code computes something else on the smaller arrays", np.inf
    with torch.no_grad():
        outputs = jax.tree.map(to_jax, candidate(*inputs))
    expected = jax.jit(small.function)(small.tree, *examples)
    # PyTorch's own operations are compared with the translated ones, which were just compared.
    translated = expected if same else jax.jit(function)(small.tree, *examples)
    if (apart := relative_difference(translated, outputs)) > small.groups.rounding():
        return f"PyTorch and JAX differ by {apart:.1e} of its largest output", np.inf
    return "", relative_difference(expected, translated)


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

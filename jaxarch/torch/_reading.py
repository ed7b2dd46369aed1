"""PyTorch modules as JAX functions, and tensors as JAX arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import torch
import torchax
from torch import nn
from torchax.ops import mappings

from jaxarch._internal.errors import ArgumentError, first_line, shown
from jaxarch._internal.trees import PyTree, copied


def function_of(model: nn.Module) -> tuple[Callable[..., Any], dict[str, jax.Array]]:
    """Turn a module into a function and its arrays; see `as_function`."""
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"model: expected a PyTorch module, got {shown(model)}")
    if training := [name for name, layer in model.named_modules() if layer.training]:
        raise ArgumentError(
            f"model: {training[0] or 'it'} is in training mode, where dropout is random and batch norm "
            "changes its statistics; call model.eval() first"
        )
    states, call = torchax.extract_jax(model)
    named = {name: attribute(model, name) for name in states}
    first: dict[int, str] = {}
    for name, tensor in named.items():
        _check_kept_whole(name, tensor)
        first.setdefault(id(tensor), name)
    source = {name: first[id(tensor)] for name, tensor in named.items()}

    def function(tree: dict[str, jax.Array], *inputs: PyTree) -> Any:
        # torchax broadcasts over ranks, as PyTorch does, whatever the user's setting.
        with jax.numpy_rank_promotion("allow"):
            return call({name: tree[of] for name, of in source.items()}, inputs)

    return function, {name: to_jax(named[name]) for name in first.values()}


def read(model: nn.Module, inputs: tuple[PyTree, ...]) -> tuple[Callable[..., Any], PyTree, Any]:
    """Return a module as a function, its arrays, and its inputs as JAX arrays."""
    function, tree = function_of(model)
    examples = jax.tree.map(lambda leaf: to_jax(leaf) if torch.is_tensor(leaf) else leaf, inputs)
    try:
        jax.eval_shape(function, tree, *examples)
    except Exception as error:
        raise ArgumentError(f"model: torchax cannot translate it: {first_line(error)}") from error
    return function, tree, examples


def scores_of(scores: Any, tree: dict[str, jax.Array]) -> Any:
    """Return scores of connections as arrays, with `None` for leaves that have none."""
    if not isinstance(scores, Mapping) or not any(torch.is_tensor(score) for score in scores.values()):
        return scores
    if unknown := [name for name in scores if name not in tree]:
        raise ArgumentError(f"scores: {unknown[0]!r} is no parameter of the model")
    return {name: to_jax(scores[name]) if name in scores else None for name in tree}


def attribute(model: nn.Module, name: str) -> torch.Tensor:
    layer, _, last = name.rpartition(".")
    return getattr(model.get_submodule(layer), last)


def _check_kept_whole(name: str, tensor: torch.Tensor) -> None:
    """Raise if JAX would cut the numbers of a tensor to 32 bits."""
    if jax.config.read("jax_enable_x64"):
        return
    if tensor.dtype in (torch.float64, torch.complex128):
        raise ArgumentError(
            f"model: {name!r} is {tensor.dtype}, which JAX cuts to 32 bits; set jax_enable_x64, or call "
            "model.float()"
        )
    if tensor.dtype == torch.int64 and tensor.numel() and int(tensor.abs().max()) >= 2**31:
        raise ArgumentError(f"model: {name!r} has numbers of more than 32 bits; set jax_enable_x64")


def to_jax(tensor: torch.Tensor) -> jax.Array:
    """Copy a tensor. Shared memory would change whenever PyTorch's optimizer writes to the tensor."""
    return copied(mappings.t2j(tensor.detach().cpu(), use_dlpack=False))


def to_torch(array: jax.Array, like: torch.Tensor) -> torch.Tensor:
    """Copy an array to a tensor of the dtype, the device and the kind of another."""
    wide = np.array(array.astype(np.float32) if array.dtype.itemsize < 4 else array)
    tensor = torch.from_numpy(wide).to(device=like.device, dtype=like.dtype)
    if not isinstance(like, nn.Parameter):
        return tensor
    return nn.Parameter(tensor, requires_grad=like.requires_grad)

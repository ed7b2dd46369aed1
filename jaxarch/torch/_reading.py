"""PyTorch modules as JAX functions, and tensors as JAX arrays."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torchax
from torch import nn
from torchax.ops import mappings

from jaxarch._internal.errors import ArgumentError, first_line, shown
from jaxarch._internal.trees import PyTree, copied


def function_of(model: nn.Module) -> tuple[Callable[..., Any], dict[str, jax.Array]]:
    """Turn a module into a function and its arrays; see `as_function`."""
    function, tensors = translated(model)
    return function, {name: to_jax(tensor) for name, tensor in tensors.items()}


def translated(model: nn.Module) -> tuple[Callable[..., Any], dict[str, torch.Tensor]]:
    """Turn a module into a function of JAX arrays, and return its tensors."""
    model = uncompiled(model)
    if training := [name for name, layer in model.named_modules() if layer.training]:
        raise ArgumentError(
            f"model: {training[0] or 'it'} is in training mode, where dropout is random and batch norm "
            "changes its statistics; call model.eval() first"
        )
    # A call may write to attributes of the module: it is the copy's own.
    traced = duplicate(model)
    try:
        states, call = torchax.extract_jax(traced)
    except Exception as error:
        raise ArgumentError(f"model: torchax cannot read it: {first_line(error)}") from error
    named = {name: attribute(traced, name) for name in states}
    first: dict[int, str] = {}
    for name, tensor in named.items():
        check_kept_whole("model", repr(name), tensor)
        first.setdefault(id(tensor), name)
    source = {name: first[id(tensor)] for name, tensor in named.items()}

    def function(tree: dict[str, jax.Array], *inputs: PyTree) -> Any:
        env = torchax.default_env()
        key = env.prng_key
        # torchax broadcasts over ranks, as PyTorch does, whatever the user's setting. Tensors that the call
        # makes, such as positions, are torchax's too. Its random key must not be one of a traced program.
        ranks, device = jax.numpy_rank_promotion("allow"), torch.device("jax:0")
        with ranks, device, env.override_property(prng=key), _restored(traced):
            outputs = call({name: tree[of] for name, of in source.items()}, inputs)
            if env.prng_key is not key:
                raise ArgumentError(
                    "model: its call draws random numbers in evaluation mode; make it deterministic"
                )
        return outputs

    return function, {name: named[name] for name in first.values()}


@contextlib.contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """Undo what a call writes to attributes, since a cache would hold values of a traced program."""

    def kept(value: Any) -> Any:
        return copy.copy(value) if isinstance(value, (dict, list, set)) else value

    found = [vars(layer) for layer in model.modules()]
    saved = [{name: kept(value) for name, value in attributes.items()} for attributes in found]
    try:
        yield
    finally:
        for attributes, before in zip(found, saved, strict=True):
            attributes.clear()
            attributes.update(before)


def read(model: nn.Module, inputs: tuple[PyTree, ...]) -> tuple[Callable[..., Any], PyTree, Any]:
    """Return a module as a function, its arrays, and its inputs as JAX arrays."""
    function, tree = function_of(model)
    for leaf in jax.tree.leaves(inputs):
        if isinstance(leaf, (np.ndarray, jax.Array)):
            raise ArgumentError(f"inputs: expected PyTorch tensors, got {shown(leaf)}; use torch.from_numpy")
        if torch.is_tensor(leaf):
            check_kept_whole("inputs", "a tensor", leaf)
    examples = arrays_of(inputs)
    try:
        jax.eval_shape(function, tree, *examples)
    except ArgumentError:
        raise
    except Exception as error:
        raise ArgumentError(f"model: torchax cannot translate it: {first_line(error)}") from error
    return function, tree, examples


def outputs_of(model: nn.Module, inputs: tuple[PyTree, ...]) -> PyTree:
    """Return the outputs of a module in PyTorch, as JAX arrays. Neither the module nor the inputs change."""
    # On GPUs, convolutions in TF32 would differ by more than float32's rounding.
    full = torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, allow_tf32=False)
    with torch.no_grad(), full:
        return jax.tree.map(jnp.asarray, arrays_of(duplicate(model)(*cloned(inputs))))


def arrays_of(tree: PyTree) -> PyTree:
    """Copy the tensors of a tree to JAX arrays."""
    return jax.tree.map(lambda leaf: to_jax(leaf) if torch.is_tensor(leaf) else leaf, tree)


def cloned(inputs: PyTree) -> PyTree:
    """Copy the tensors of a tree, since a module may write to its inputs."""
    return jax.tree.map(lambda leaf: leaf.detach().clone() if torch.is_tensor(leaf) else leaf, inputs)


def duplicate(model: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """Copy a module; `memo` gives replacements of its tensors by `id`.

    Raises:
      ArgumentError: a module that cannot be copied.
    """
    # PyTorch does not copy computed tensors, such as the weights of a layer that is being pruned.
    computed = {
        id(value): value.detach().clone()
        for layer in model.modules()
        for value in vars(layer).values()
        if torch.is_tensor(value) and value.grad_fn is not None
    }
    try:
        return copy.deepcopy(model, computed | (memo or {}))
    except Exception as error:
        raise ArgumentError(f"model: it cannot be copied: {first_line(error)}") from error


def uncompiled(model: nn.Module) -> nn.Module:
    """Return a module, without `torch.compile` around it.

    Raises:
      ArgumentError: anything but a module.
    """
    model = getattr(model, "_orig_mod", model)
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"model: expected a PyTorch module, got {shown(model)}")
    return model


def scores_of(scores: Any, tree: dict[str, jax.Array]) -> Any:
    """Return scores of connections as arrays, with `None` for leaves that have none."""
    if not isinstance(scores, Mapping) or not any(torch.is_tensor(score) for score in scores.values()):
        return scores
    if unknown := [name for name in scores if name not in tree]:
        raise ArgumentError(f"scores: {unknown[0]!r} is no parameter of the model")
    return {name: None if scores.get(name) is None else to_jax(scores[name]) for name in tree}


def attribute(model: nn.Module, name: str) -> torch.Tensor:
    layer, _, last = name.rpartition(".")
    return getattr(model.get_submodule(layer), last)


def check_kept_whole(argument: str, name: str, tensor: torch.Tensor) -> None:
    """Raise if JAX would cut the numbers of a tensor to 32 bits."""
    if jax.config.read("jax_enable_x64"):
        return
    if tensor.dtype in (torch.float64, torch.complex128):
        raise ArgumentError(
            f"{argument}: {name} is {tensor.dtype}, which JAX cuts to 32 bits; set jax_enable_x64, or call "
            ".float()"
        )
    if tensor.dtype == torch.int64 and tensor.numel() and int(tensor.abs().max()) >= 2**31:
        raise ArgumentError(f"{argument}: {name} has numbers of more than 32 bits; set jax_enable_x64")


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

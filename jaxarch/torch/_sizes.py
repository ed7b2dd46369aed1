"""Sizes that PyTorch's layers keep beside their arrays."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.rnn import RNNCellBase

from jaxarch._internal.trees import PyTree
from jaxarch.torch._reading import cloned, duplicate

SIZES = (
    *("in_features", "out_features", "in_channels", "out_channels", "groups", "num_features", "num_groups"),
    *("num_channels", "normalized_shape", "num_embeddings", "embedding_dim", "num_parameters", "input_size"),
    "hidden_size",
)
"""Attributes of PyTorch's layers that are sizes."""
OWN = (nn.Linear, nn.Embedding, nn.LayerNorm, nn.GroupNorm, nn.RNNBase, RNNCellBase, _ConvNd, _NormBase)
"""PyTorch's layers that other libraries extend."""


def write_sizes(model: nn.Module, inputs: tuple[PyTree, ...], fewer: bool) -> None:
    """Update the size attributes of all layers to the sizes of their arrays, or of what reaches them.

    A copy of the model is run, since a run may change a model. A grouped convolution has as many groups as
    its kernel needs for the channels that reach it. A group norm keeps its number of groups, or the number
    of channels in a group.

    Args:
      model: a model whose arrays are cut.
      inputs: inputs of a call.
      fewer: whether group norms lose whole groups, and keep the channels in a group.
    """
    trial = duplicate(model)

    def before(layer: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        _write_by_arrays(layer)
        first = (*arguments, *named.values())
        if first and torch.is_tensor(first[0]):
            _write_by_input(layer, first[0].shape, fewer)

    for layer in trial.modules():
        layer.register_forward_pre_hook(before, with_kwargs=True)
    with torch.no_grad():
        trial(*cloned(inputs))
    for layer, tried in zip(model.modules(), trial.modules(), strict=True):
        if type(layer).__module__.startswith("torch.nn.") or isinstance(layer, OWN):
            for name in vars(tried).keys() & {*SIZES}:
                setattr(layer, name, getattr(tried, name))


def _write_by_arrays(layer: Any) -> None:
    """Update the sizes of a layer that its arrays have."""
    match layer:
        case nn.Linear():
            layer.out_features, layer.in_features = layer.weight.shape
        case _ConvTransposeNd():
            _write_transposed(layer)
        case _ConvNd():
            layer.out_channels = layer.weight.shape[0]
        case nn.Embedding():
            layer.num_embeddings, layer.embedding_dim = layer.weight.shape
        case nn.LayerNorm() | nn.RMSNorm() if layer.weight is not None:
            layer.normalized_shape = tuple(layer.weight.shape)
        case _NormBase() if layer.weight is not None or layer.running_mean is not None:
            (layer.num_features,) = (layer.running_mean if layer.weight is None else layer.weight).shape
        case nn.PReLU():
            (layer.num_parameters,) = layer.weight.shape
        case nn.RNNBase():
            layer.input_size, layer.hidden_size = layer.weight_ih_l0.shape[1], layer.weight_hh_l0.shape[1]
        case RNNCellBase():
            layer.input_size, layer.hidden_size = layer.weight_ih.shape[1], layer.weight_hh.shape[1]


def _write_transposed(layer: Any) -> None:
    """Update the sizes of a transposed convolution, whose kernel has the outputs of one group."""
    inputs, outputs = layer.weight.shape[:2]
    if layer.bias is not None:
        layer.groups = layer.bias.shape[0] // outputs
    elif layer.groups == layer.in_channels:
        layer.groups = inputs
    layer.in_channels, layer.out_channels = inputs, outputs * layer.groups


def _write_by_input(layer: Any, shape: tuple[int, ...], fewer: bool) -> None:
    """Update the sizes of a layer that only its input shows."""
    match layer:
        case _ConvTransposeNd():
            pass
        case _ConvNd():
            channels = shape[1 - layer.weight.ndim]
            layer.in_channels, layer.groups = channels, channels // layer.weight.shape[1]
        case nn.GroupNorm():
            if fewer:
                layer.num_groups = shape[1] // (layer.num_channels // layer.num_groups)
            layer.num_channels = shape[1]
        case nn.LayerNorm() | nn.RMSNorm() if layer.weight is None:
            layer.normalized_shape = tuple(shape[-len(layer.normalized_shape) :])
        case nn.InstanceNorm1d() | nn.InstanceNorm2d() | nn.InstanceNorm3d():
            layer.num_features = shape[-layer._get_no_batch_dim()]
        case _NormBase() if layer.weight is None and layer.running_mean is None:
            layer.num_features = shape[1]

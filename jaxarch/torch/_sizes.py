"""Sizes that PyTorch's layers keep beside their arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd


def write_sizes(model: nn.Module) -> None:
    """Update the size attributes of all layers to the sizes of their arrays."""
    for layer in model.modules():
        _write_sizes(layer)


def _write_sizes(layer: Any) -> None:
    match layer:
        case nn.Linear():
            layer.out_features, layer.in_features = layer.weight.shape
        case _ConvTransposeNd():
            layer.in_channels, outputs = layer.weight.shape[:2]
            if layer.groups > 1:
                depthwise = layer.bias is None
                layer.groups = layer.in_channels if depthwise else layer.bias.shape[0] // outputs
            layer.out_channels = outputs * layer.groups
        case _ConvNd():
            layer.out_channels, inputs = layer.weight.shape[:2]
            layer.in_channels = inputs * layer.groups
        case nn.Embedding():
            layer.num_embeddings, layer.embedding_dim = layer.weight.shape
        case _NormBase() if layer.affine or layer.track_running_stats:
            (layer.num_features,) = (layer.weight if layer.affine else layer.running_mean).shape
        case nn.LayerNorm() | nn.RMSNorm() if layer.elementwise_affine:
            layer.normalized_shape = tuple(layer.weight.shape)
        case nn.PReLU():
            (layer.num_parameters,) = layer.weight.shape
        case nn.RNNBase():
            layer.input_size, layer.hidden_size = layer.weight_ih_l0.shape[1], layer.weight_hh_l0.shape[1]


def write_groups(model: nn.Module, inputs: Iterable[torch.Tensor], fewer: bool) -> None:
    """Run a model, and set the groups of its layers by the channels that reach them.

    A grouped convolution has as many groups as its kernel needs for the channels. A group norm keeps its
    number of groups, or the number of channels in a group.

    Args:
      model: a model whose arrays are cut.
      inputs: inputs of a call.
      fewer: whether group norms lose whole groups, and keep the channels in a group.
    """

    def before(layer: Any, arguments: tuple[Any, ...]) -> None:
        match layer:
            case _ConvTransposeNd():
                pass
            case _ConvNd():
                channels = arguments[0].shape[1 - layer.weight.ndim]
                layer.in_channels, layer.groups = channels, channels // layer.weight.shape[1]
            case nn.GroupNorm():
                channels = arguments[0].shape[1]
                if fewer:
                    layer.num_groups = channels // (layer.num_channels // layer.num_groups)
                layer.num_channels = channels
            case nn.LayerNorm() | nn.RMSNorm() if not layer.elementwise_affine:
                layer.normalized_shape = tuple(arguments[0].shape[-len(layer.normalized_shape) :])

    hooks = [layer.register_forward_pre_hook(before) for layer in model.modules()]
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()

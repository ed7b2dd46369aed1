"""Sizes in the configurations of Keras layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any

import jax
import keras
from keras import layers


def with_arrays(model: keras.Model, tree: Mapping[str, jax.Array], fewer: bool = False) -> keras.Model:
    """Return a model of the same layers with other sizes and arrays.

    Args:
      model: a `Sequential` or functional model.
      tree: the smaller arrays, by path of the model's variables.
      fewer: whether group norms lose whole groups, and keep the channels in a group.

    Raises:
      ValueError: a model that Keras cannot clone, or layers that do not take these arrays.
    """

    def resized(layer: Any) -> Any:
        inside = {
            name: keras.saving.serialize_keras_object(jax.tree.map(resized, each))
            for name, each in _inside(layer).items()
        }
        return type(layer).from_config(layer.get_config() | _sizes(layer, tree) | inside)

    def smaller(layer: Any) -> Any:
        made = resized(layer)
        for each, other in zip(_all_of(made), _all_of(layer), strict=True):
            _size_by_input(each, other, tree, fewer)
        return made

    made = keras.models.clone_model(model, clone_function=smaller, recursive=True)
    if not made.built:
        made.build(model.input_shape)
    for old, new in zip(model.variables, made.variables, strict=True):
        value = tree.get(old.path, old.value)
        if tuple(new.shape) != tuple(value.shape):
            raise ValueError(f"{new.path} is built with shape {tuple(new.shape)}, not {tuple(value.shape)}")
        new.assign(value)
        new.trainable = old.trainable
    for layer in made._flatten_layers():
        if isinstance(layer, layers.Normalization):
            layer.finalize_state()  # It computes with copies of its variables.
    return made


def _sizes(layer: Any, tree: Mapping[str, jax.Array]) -> dict[str, Any]:
    """Return the sizes in a layer's configuration that its smaller arrays have."""

    def shape(variable: Any) -> tuple[int, ...]:
        return tree[variable.path].shape

    for classes, sizes in _SIZES.items():
        if isinstance(layer, classes):
            return sizes(layer, shape)
    return {}


def _inside(layer: Any) -> dict[str, Any]:
    """Return the layers in a layer's configuration, by their names there."""
    match layer:
        case layers.Bidirectional():
            return {"layer": layer.forward_layer, "backward_layer": layer.backward_layer}
        case layers.Wrapper():
            return {"layer": layer.layer}
        case layers.StackedRNNCells():
            return {"cells": [*layer.cells]}
    return {"cell": layer.cell} if type(layer) is layers.RNN else {}


def _all_of(layer: Any) -> list[Any]:
    """Return a layer and all layers in it."""
    return [layer, *(each for inside in jax.tree.leaves(_inside(layer)) for each in _all_of(inside))]


def _size_by_input(made: Any, layer: Any, tree: Mapping[str, jax.Array], fewer: bool) -> None:
    """Let a layer take a size that only its input shows when it is first called.

    Args:
      made: the smaller layer, not built.
      layer: the original one.
      tree: as in `with_arrays`.
      fewer: likewise.
    """
    if isinstance(layer, layers.Reshape):
        whole = math.prod(layer.input.shape[1:])
        _at_first(made, "compute_output_spec", lambda inputs: _reshape(made, whole, inputs.shape))
    elif isinstance(layer, layers.GroupNormalization) and fewer:
        before = layer.get_build_config()["input_shape"][layer.axis]
        _at_first(made, "build", partial(_count_groups, made, layer.axis, before // layer.groups))
    elif isinstance(layer, _CONVOLUTIONS) and layer.groups > 1:
        axis = -1 if layer.data_format == "channels_last" else 1
        _at_first(made, "build", partial(_count_groups, made, axis, tree[layer._kernel.path].shape[-2]))


def _count_groups(layer: Any, axis: int, of_group: int, shape: Sequence[int]) -> None:
    layer.groups = shape[axis] // of_group


def _at_first(layer: Any, name: str, change: Callable[[Any], None]) -> None:
    """Change a layer when a method is first called, with its argument."""
    method = getattr(layer, name)

    @wraps(method)  # Keras reads the names of arguments.
    def changed(*arguments: Any, **named: Any) -> Any:
        change((*arguments, *named.values())[0])
        setattr(layer, name, method)
        return method(*arguments, **named)

    setattr(layer, name, changed)


def _reshape(layer: Any, whole: int, shape: Sequence[int]) -> None:
    """Give the last axis that can take it the part of a reshape that is left."""
    target, now = [*layer.target_shape], math.prod(shape[1:])
    for axis in reversed(range(len(target))):
        if -1 not in target and target[axis] > 1 and target[axis] * now % whole == 0:
            target[axis] = target[axis] * now // whole
            break
    layer.target_shape = tuple(target)


def _grouped_attention(layer: Any, shape: Any) -> dict[str, Any]:
    _, heads, size = shape(layer._query_dense.kernel)
    return {
        "head_dim": size, "num_query_heads": heads, "num_key_value_heads": shape(layer._key_dense.kernel)[1]
    }  # fmt: skip


def _attention(layer: Any, shape: Any) -> dict[str, Any]:
    (_, heads, keys), (_, _, values) = shape(layer._query_dense.kernel), shape(layer._value_dense.kernel)
    return {"num_heads": heads, "key_dim": keys, "value_dim": values}


_CONVOLUTIONS = layers.Conv1D, layers.Conv2D, layers.Conv3D
# The first class that fits counts: a transposed convolution is a convolution too.
_SIZES: dict[Any, Any] = {
    layers.Dense: lambda layer, shape: {"units": shape(layer._kernel)[-1]},
    layers.EinsumDense: lambda layer, shape: {"output_shape": _output_shape(layer, shape(layer._kernel))},
    layers.Embedding: lambda layer, shape: dict(
        zip(("input_dim", "output_dim"), shape(layer._embeddings), strict=True)
    ),
    (layers.DepthwiseConv1D, layers.DepthwiseConv2D): lambda layer, shape: {},
    (layers.SeparableConv1D, layers.SeparableConv2D): lambda layer, shape: {
        "filters": shape(layer.pointwise_kernel)[-1]
    },
    (layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose): lambda layer, shape: {
        "filters": shape(layer.kernel)[-2]
    },
    # Groups are counted when the layer is built.
    _CONVOLUTIONS: lambda layer, shape: {"filters": shape(layer._kernel)[-1], "groups": 1},
    layers.GroupQueryAttention: _grouped_attention,
    layers.MultiHeadAttention: _attention,
    (layers.SimpleRNN, layers.GRU, layers.LSTM): lambda layer, shape: {
        "units": shape(layer.cell.recurrent_kernel)[0]
    },
    (layers.SimpleRNNCell, layers.GRUCell, layers.LSTMCell): lambda layer, shape: {
        "units": shape(layer.recurrent_kernel)[0]
    },
}


def _output_shape(layer: Any, kernel: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the output shape of an `EinsumDense`: axes of its kernel have the kernel's sizes."""
    inputs, outputs = layer.equation.split("->")
    sizes = dict(zip(inputs.split(",")[1], kernel, strict=True))
    labels = outputs.removeprefix("...")[-len(layer.partial_output_shape) :]
    given = zip(labels, layer.partial_output_shape, strict=True)
    return tuple(None if size is None else sizes.get(label, size) for label, size in given)

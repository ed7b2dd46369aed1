"""Sizes in the configurations of Keras layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import keras
from keras import layers


def with_arrays(model: keras.Model, tree: Mapping[str, jax.Array]) -> keras.Model:
    """Return a model of the same layers with other sizes and arrays.

    Args:
      model: a `Sequential` or functional model.
      tree: the smaller arrays, by path of the model's variables.

    Raises:
      ValueError: a model that Keras cannot clone, or layers that do not take these arrays.
    """

    def smaller(layer: Any) -> Any:
        return type(layer).from_config(layer.get_config() | _sizes(layer, tree))

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


def _attention(layer: Any, shape: Any) -> dict[str, Any]:
    (_, heads, keys), (_, _, values) = shape(layer._query_dense.kernel), shape(layer._value_dense.kernel)
    return {"num_heads": heads, "key_dim": keys, "value_dim": values}


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
    (layers.Conv1D, layers.Conv2D, layers.Conv3D): lambda layer, shape: {"filters": shape(layer._kernel)[-1]},
    layers.MultiHeadAttention: _attention,
    (layers.SimpleRNN, layers.GRU, layers.LSTM): lambda layer, shape: {
        "units": shape(layer.cell.recurrent_kernel)[0]
    },
}


def _output_shape(layer: Any, kernel: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the output shape of an `EinsumDense`: axes of its kernel have the kernel's sizes."""
    inputs, outputs = layer.equation.split("->")
    sizes = dict(zip(inputs.split(",")[1], kernel, strict=True))
    labels = outputs.removeprefix("...")[-len(layer.partial_output_shape) :]
    given = zip(labels, layer.partial_output_shape, strict=True)
    return tuple(None if size is None else sizes.get(label, size) for label, size in given)

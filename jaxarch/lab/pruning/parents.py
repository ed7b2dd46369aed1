"""Parent networks of all experiments with pictures, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxarch import ArgumentError, models
from jaxarch.lab.checks import shown
from jaxarch.lab.data import Dataset, Images, Text

SCALED = {
    "resnet18": models.ResNet18,
    "resnet20": models.ResNet20,
    "vgg11": models.VGG11,
    "vgg16": models.VGG16,
    "vgg19": models.VGG19,
}
"""Parents with fixed channel counts, which a factor scales."""
LANGUAGE_MODEL = "gpt"
"""The parent that takes texts, and nothing else."""
HEADS = 4
"""Heads of attention in each of its blocks."""
PERCEPTRONS = ("mlp", "lenet")
"""Parents that take features, and the pixels of pictures as features."""


def check_parent(model: str, widths: Sequence[int], factor: float) -> None:
    """Raise unless the parent accepts these widths and this factor of its channels.

    Raises:
      ArgumentError: widths for a parent that fixes its own; blocks of different widths; a factor for a parent
        without one.
    """
    if widths and model not in ("mlp", "cnn", LANGUAGE_MODEL):
        raise ArgumentError(f"widths: only an mlp, a cnn or a gpt takes widths; leave them out for {model}")
    if model == LANGUAGE_MODEL and (len(set(widths)) > 1 or any(width % HEADS for width in widths)):
        raise ArgumentError(
            f"widths: all blocks of a gpt have as many features, a multiple of {HEADS}, got "
            f"{shown(tuple(widths))}"
        )
    if factor != 1 and model not in SCALED:
        raise ArgumentError(
            f"width_factor: only {', '.join(SCALED)} take a factor of channels; leave it out for {model}"
        )


def in_words(settings: Any) -> str:
    """Describe the parent, from settings or a result folder's settings: `resnet20`, or `resnet20 x 0.125`.

    The description also mentions normal initial weights, if they replace the model's own.
    """
    told = settings if isinstance(settings, Mapping) else vars(settings)
    factor = told.get("width_factor", 1.0)
    parent = str(told["model"]) if factor == 1 else f"{told['model']} x {factor:g}"
    return f"{parent}, normal initial weights" if told.get("initial") == "normal" else parent


def parent_of(
    model: str, widths: Sequence[int], factor: float, data: Images | Dataset | Text
) -> Callable[[Any], Any]:
    """Return the parent of all architectures, a function of Flax's rngs.

    Raises:
      ArgumentError: data that the parent does not take.
    """
    if isinstance(data, Text) != (model == LANGUAGE_MODEL):
        raise ArgumentError(
            f"model: {LANGUAGE_MODEL} takes texts, and nothing else does; got {model} and {data.name}"
        )
    if isinstance(data, Text):
        form = {"length": data.x.shape[1], "vocabulary": len(data.characters)}
        return lambda rngs: models.GPT(len(widths), widths[0], heads=HEADS, **form, rngs=rngs)
    inputs, outputs = math.prod(data.x.shape[1:]), len(np.unique(data.y))
    if isinstance(data, Dataset) and model not in PERCEPTRONS:
        raise ArgumentError(
            f"model: {data.name} has {inputs} features an example and no pictures, which {model} takes; "
            f"expected {' or '.join(PERCEPTRONS)}"
        )
    channels = data.x.shape[-1]
    match model:
        case "mlp":
            sizes = (inputs, *widths, outputs)
            return lambda rngs: models.MLP(sizes, rngs=rngs)
        case "lenet":
            return lambda rngs: models.LeNet300100(inputs=inputs, outputs=outputs, rngs=rngs)
        case "cnn":
            return lambda rngs: models.CNN(widths, inputs=channels, outputs=outputs, rngs=rngs)
        case name if name in SCALED:
            return lambda rngs: SCALED[name](factor, inputs=channels, outputs=outputs, rngs=rngs)
        case "vit":
            size = data.x.shape[1:3]
            return lambda rngs: models.VisionTransformer(
                size=size, inputs=channels, outputs=outputs, rngs=rngs
            )
    raise ValueError(model)

"""The classes of the user's own data, where an experiment's defaults name those of handwritten digits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from jaxarch import ArgumentError
from jaxarch.lab.checks import shown
from jaxarch.lab.data.sources import SOURCES, load


def own_classes(kind: type, values: Mapping[str, str]) -> dict[str, str]:
    """Settings that say which classes are told apart, where the data set is the user's own.

    If it has exactly two, these are taken as they are, the larger label being y = 1.

    Args:
      kind: the settings of an experiment.
      values: what the user has set, as texts.

    Returns:
      The settings to be added, as texts; none if the user has named all, or the data set is a known one.

    Raises:
      ArgumentError: any other number of classes, and no groups of them named; the message names the options.
    """
    dataset = values.get("dataset")
    fields = {field.name: field.default for field in dataclasses.fields(kind)}
    # Where a default is empty, the experiment finds the classes itself.
    options = [name for name in ("positive", "negative", "classes") if fields.get(name)]
    missing = [name for name in options if name not in values]
    if dataset is None or dataset in SOURCES or not missing:
        return {}
    classes = np.unique(load(dataset).y).tolist()
    if len(classes) != 2 or missing != options:
        named = " ".join(f"--set {name}=..." for name in missing)
        raise ArgumentError(
            f"dataset: {shown(dataset)} has the classes {shown(classes)}; group them by {named}"
        )
    first, second = map(str, classes)
    texts = {"positive": second, "negative": first, "classes": f"{first},{second}"}
    return {name: texts[name] for name in options}

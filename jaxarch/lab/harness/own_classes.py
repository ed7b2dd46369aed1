"""Classes of the user's own data, for experiments whose defaults name classes of handwritten digits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from jaxarch import ArgumentError
from jaxarch.lab.checks import shown
from jaxarch.lab.data.sources import SOURCES, load


def own_classes(kind: type, values: Mapping[str, str]) -> dict[str, str]:
    """Return settings that name the classes to separate if the data set is the user's own.

    If it has exactly two classes, the larger label is y = 1.

    Args:
      kind: the settings class of an experiment.
      values: the user's settings, as texts.

    Returns:
      The settings to add, as texts; none if the user has named all, or the data set is a known one.

    Raises:
      ArgumentError: only some of the groups are named, or none and there are not exactly two classes. The
        message names the options.
    """
    dataset = values.get("dataset")
    fields = {field.name: field.default for field in dataclasses.fields(kind)}
    # If the default is empty, the experiment itself finds the classes.
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

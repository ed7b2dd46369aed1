"""Output of `jaxarch data`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jaxarch.lab.data.dataset import Dataset
from jaxarch.lab.data.images import Images
from jaxarch.lab.data.sources import SOURCES, is_text, load, load_images, load_text
from jaxarch.lab.data.tfds_files import find_prepared

YOUR_FILES = {
    "FILE.npz": "your own: arrays x (examples, features) and y (integer classes)",
    "FILE.txt": "your own text, for `jaxarch run tournament`",
}
"""Files of the user's own, by the ends of their names."""


def overview() -> Iterator[str]:
    """Yield lines on every source: whether and where it is ready, its description, how to get it."""
    width = max(map(len, SOURCES)) + 2
    for name, source in SOURCES.items():
        yield f"{name:<{width}}{_status(name)}"
        yield f"{'':<{width}}{source.description}"
        yield f"{'':<{width}}{source.how_to_get}"
    yield f"{'NAME':<{width}}any other data set of pictures that tensorflow-datasets has prepared"
    for name, description in YOUR_FILES.items():
        yield f"{name:<{width}}{description}"


def details(name: str) -> Iterator[str]:
    """Yield lines on one data set (a name or a file); if it is there, its shapes and class counts.

    Raises:
      ArgumentError: as `load`, `load_images` and `load_text` do.
    """
    source = SOURCES.get(name)
    if source is not None:
        yield f"{name}: {source.description}"
        yield _status(name)
        yield f"how to get it: {source.how_to_get}"
        yield f"cite: {source.citation}"
        if not source.status()[0]:
            return
    if is_text(name):
        text = load_text(name, length=1)
        share = text.train / len(text.x)
        yield f"{len(text.x)} characters to predict, {share:.0%} of them for training"
        yield f"{len(text.characters)} distinct ones: {text.characters.decode(errors='replace')!r}"
        return
    has_images = source.images if source else find_prepared(name)
    has_features = source.features if source else not has_images
    data: Images | Dataset
    if has_images:
        data = load_images(name)
        examples, *shape = data.x.shape
        yield f"{examples} pictures of {' x '.join(map(str, shape))}, {data.train} of them for training"
    if has_features:
        data = load(name)
        examples, features = data.x.shape
        yield f"{examples} examples x {features} features, in [{data.x.min():.4g}, {data.x.max():.4g}]"
    for label, count in zip(*np.unique(data.y, return_counts=True), strict=True):
        yield f"  class {label:<4}{count:>8} examples"


def _status(name: str) -> str:
    ready, where = SOURCES[name].status()
    return f"ready: {where}" if ready else f"not ready: {where}"

"""Sizes that layers of other libraries keep as whole numbers, such as a number of heads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import nn

from jaxarch._internal.trees import named_leaves
from jaxarch.structure._shrink import Shrunk

_AT_MOST = 16
"""Largest number of combinations to try."""


class _Size(NamedTuple):
    """An attribute that may be the size of something that was cut.

    Attributes:
      path: the layer's path.
      name: the attribute.
      after: the size now.
      doubtful: whether something of the old size was not cut.
    """

    path: str
    name: str
    after: int
    doubtful: bool


Attributes = dict[tuple[str, str], int]
"""By path of a layer and name, the new values of attributes."""


def guesses(model: nn.Module, small: Shrunk) -> Iterator[Attributes]:
    """Yield new values of attributes that may be sizes of arrays or of groups.

    An attribute such as `num_heads = 12` is the size of a group with an axis in the layer, or in one of its
    children. `attn_dim = 768` is the size of one of their axes. If something else in the layer has the same
    size and was not cut, both values are tried, alike for all layers of a class. No change at all comes
    first, since an attribute may mean something else. The caller compares what the module computes.
    """
    yield {}
    shapes = named_leaves(small.groups._shapes)
    sizes = [size for path, layer in model.named_modules() for size in _sizes(path, layer, small, shapes)]
    if not sizes:
        return
    classes = {path: type(layer) for path, layer in model.named_modules()}
    doubtful = [*dict.fromkeys((classes[size.path], size.name) for size in sizes if size.doubtful)]
    for changed in itertools.islice(itertools.product((True, False), repeat=len(doubtful)), _AT_MOST):
        stay = {key for key, change in zip(doubtful, changed, strict=True) if not change}
        yield {
            (size.path, size.name): size.after
            for size in sizes
            if (classes[size.path], size.name) not in stay
        }


def _sizes(path: str, layer: nn.Module, small: Shrunk, shapes: Mapping[str, Any]) -> Iterator[_Size]:
    if type(layer).__module__.startswith("torch.nn."):
        return  # Their sizes are known.
    numbers = {name: value for name, value in vars(layer).items() if type(value) is int}
    if not numbers:
        return
    near = {name for name in small.tree if name.startswith(path and f"{path}.")}
    near = {name for name in near if name.removeprefix(path).strip(".").count(".") <= 1}
    pairs = [
        (group.size, int(small.kept[name].sum()))
        for name, group in small.groups.groups.items()
        if any(leaf in near for leaf, _ in group.axes)
    ]
    pairs += [pair for leaf in near for pair in zip(shapes[leaf].shape, small.tree[leaf].shape, strict=True)]
    for name, before in numbers.items():
        after = {now for size, now in pairs if size == before}
        if after - {before}:
            yield _Size(path, name, min(after), before in after)

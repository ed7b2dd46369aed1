"""Sizes that layers of other libraries keep as whole numbers, such as a number of heads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from jaxarch._internal.trees import named_leaves
from jaxarch.structure._shrink import Shrunk

_AT_MOST = 40
"""Largest number of combinations to try."""
_MIXED = 8
"""Largest number of combinations of small and large sizes of one attribute."""

Attributes = dict[tuple[str, str], int]
"""By path of a layer and name, the new values of attributes."""


def guesses(model: nn.Module, small: Shrunk) -> Iterator[Attributes]:
    """Yield new values of attributes that may be sizes of arrays or of groups.

    An attribute such as `num_heads = 12` may be the size of a group with an axis in the layer, or in one of
    its children; `attn_dim = 768` may be the size of one of their axes. All layers of a class change, or
    none. The fewest changes come first: an attribute that needs no change may mean something else, such as a
    largest length. All sets of attributes are tried with their smallest sizes before larger ones are. The
    caller compares what the module computes.
    """
    shapes = named_leaves(small.groups._shapes)
    options: dict[tuple[type, str], dict[str, list[int]]] = {}
    for path, layer in model.named_modules():
        for name, values in _sizes(path, layer, small, shapes).items():
            options.setdefault((type(layer), name), {})[path] = values
    choices = {key: _choices(key[1], sizes) for key, sizes in options.items()}
    smallest = [(key, each[0]) for key, each in choices.items()]
    changes = [(key, each) for key, of_key in choices.items() for each in of_key]
    subsets = itertools.chain.from_iterable(
        itertools.combinations(of, count) for of in (smallest, changes) for count in range(len(options) + 1)
    )
    alike = (subset for subset in subsets if len({key for key, _ in subset}) == len(subset))
    tried: list[Attributes] = []
    for subset in itertools.islice(alike, 4 * _AT_MOST):
        both = {key: value for _, each in subset for key, value in each.items()}
        merged = {
            (path, name): value
            for (path, name), value in both.items()
            if getattr(model.get_submodule(path), name) != value
        }
        if merged not in tried and len(tried) < _AT_MOST:
            tried.append(merged)
            yield merged


def _choices(name: str, sizes: Mapping[str, list[int]]) -> list[Attributes]:
    """Return the values that an attribute may have in the layers of a class, by path.

    The smallest sizes come first, then the largest ones, then some of each.
    """
    ends = [[values[0] for values in sizes.values()], [values[-1] for values in sizes.values()]]
    some = itertools.islice(itertools.product(*sizes.values()), _MIXED)
    found = [dict(zip(((path, name) for path in sizes), each, strict=True)) for each in [*ends, *some]]
    return [each for index, each in enumerate(found) if each not in found[:index]]


def _sizes(path: str, layer: nn.Module, small: Shrunk, shapes: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the attributes of a layer that may be sizes, with the sizes that they may have now."""
    numbers = {name: value for name, value in vars(layer).items() if type(value) is int}
    if type(layer).__module__.startswith("torch.nn.") or not numbers:
        return {}  # The sizes of PyTorch's own layers are known.
    near = {name for name in small.tree if name.startswith(path and f"{path}.")}
    near = {name for name in near if name.removeprefix(path).strip(".").count(".") <= 1}
    pairs = [
        (group.size, int(small.kept[name].sum()))
        for name, group in small.groups.groups.items()
        if any(leaf in near for leaf, _ in group.axes)
    ]
    pairs += [pair for leaf in near for pair in zip(shapes[leaf].shape, small.tree[leaf].shape, strict=True)]
    found = {name: sorted({now for size, now in pairs if size == before}) for name, before in numbers.items()}
    # A size of this kind that stays may be the one that is meant.
    return {name: values for name, values in found.items() if values and values != [numbers[name]]}

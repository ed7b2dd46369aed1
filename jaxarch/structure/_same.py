"""Comparison of two models, layer by layer: whether one is the other without some of its units."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxarch._internal.errors import ArgumentError, check_function, shown
from jaxarch._internal.trees import PyTree
from jaxarch.structure._alike import are_alike
from jaxarch.structure._captures import run_recorded
from jaxarch.structure._columns import columns
from jaxarch.structure._flow import Step
from jaxarch.structure._groups import Groups
from jaxarch.structure._network_function import check_arrays_given, check_examples
from jaxarch.structure._products import NO_PARAMETERS, find_products
from jaxarch.structure._shrink import relative_difference

Model = tuple[Callable[..., Any], PyTree]
"""A function `(tree, *inputs) -> outputs` and its tree."""
_ENTRIES = 2048
"""Number of values of a unit by which its counterpart is found."""


@dataclasses.dataclass(frozen=True)
class LayerDifference:
    """The difference of a layer between two models.

    Attributes:
      layer: the path of the layer's leaves.
      units: the number of values that the layer computes for one place, in both models.
      read: the largest difference of the values that its products read, in units of the largest. Values of
        removed units do not count.
      made: the same of the values that its products make.
    """

    layer: str
    units: tuple[int, int]
    read: float
    made: float


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two models compared, as returned by `same`. It is true if they are the same; `print` shows a table.

    Attributes:
      same: whether the outputs differ by no more than rounding.
      alike: whether the programs are the same operations. Then the models differ only in their leaves.
      difference: the largest difference of the outputs, in units of the largest in the same array.
      first: where the models begin to differ; empty if no layer does.
      layers: the layers that both models have, in the order of the first.
      only: the layers that only the first model has, and those that only the second has.
    """

    same: bool
    alike: bool
    difference: float
    first: str
    layers: tuple[LayerDifference, ...]
    only: tuple[tuple[str, ...], tuple[str, ...]]

    def __bool__(self) -> bool:
        return self.same

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        rows = [("layer", "units", "reads", "makes")]
        for each in self.layers:
            before, after = each.units
            units = f"{before:,}" if before == after else f"{before:,} -> {after:,}"
            rows.append((each.layer, units, f"{each.read:.1e}", f"{each.made:.1e}"))
        lines = columns(rows, right=(1, 2, 3)) if self.layers else []
        for which, names in zip(("first", "second"), self.only, strict=True):
            if names:
                lines.append(f"only in the {which}: {', '.join(names)}")
        if self.first:
            lines.append(f"they begin to differ {self.first}")
        verdict = "the same" if self.same else "not the same"
        return "\n".join([*lines, f"{verdict}: outputs differ by {self.difference:.1e} of the largest"])


def same(first: Model, second: Model, *inputs: PyTree) -> Comparison:
    """Check whether two models compute the same, and find the first layer that differs.

        small = my_pruner(params)
        print(jaxarch.structure.same((apply, masked), (smaller_apply, small), x))

    Use it to check any pruner, conversion or rewrite: one model may be the other without some of its units.
    Both programs run on the same inputs. The values that products with leaves read and make are compared by
    the layer's path, or in their order if the two have no path in common. If the second model has fewer
    units in a layer, each is compared with the unit of the first whose values are nearest. What the products
    make comes before any bias, so a wrong bias shows in what the next layer reads.

    The verdict holds for these inputs. `alike` programs with equal leaves compute the same for all inputs.

    Args:
      first: a function `(tree, *inputs) -> outputs` and its tree, for instance with zeros at pruned weights.
      second: the function and the tree to compare.
      *inputs: inputs of both functions.

    Returns:
      `Comparison`, which is true if the outputs differ by no more than rounding.

    Raises:
      ArgumentError: anything but pairs of functions and trees; functions that cannot be traced; inputs
        without an example.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> def model(params, x):
      ...     return jnp.tanh(x @ params["in"] + params["bias"]) @ params["out"]
      >>> masked = {
      ...     "in": jnp.array([[1.0, 0.0, 2.0]]),
      ...     "bias": jnp.array([0.5, 0.0, 1.0]),
      ...     "out": jnp.array([[1.0], [0.0], [3.0]]),
      ... }
      >>> wrong = {
      ...     "in": jnp.array([[1.0, 2.0]]),
      ...     "bias": jnp.array([0.5, 0.0]),  # the bias of another unit
      ...     "out": jnp.array([[1.0], [3.0]]),
      ... }
      >>> found = jaxarch.structure.same((model, masked), (model, wrong), jnp.array([[1.0], [-1.0]]))
      >>> bool(found), found.first
      (False, 'between in and out')
    """
    pairs = _checked("first", first), _checked("second", second)
    check_arrays_given(first=first[1], second=second[1], inputs=inputs)
    check_examples(inputs)
    one, other = (Groups(function, tree, inputs) for function, tree in pairs)
    outputs, recorded = _run(one, first[1], inputs)
    made, found = _run(other, second[1], inputs)
    counts = [[len(values) for values in each.values()] for each in (recorded, found)]
    if recorded.keys().isdisjoint(found) and counts[0] == counts[1]:
        found = dict(zip(recorded, found.values(), strict=True))
    layers = tuple(_compared(name, recorded[name], found[name]) for name in recorded if name in found)
    rounding, apart = max(one.rounding(), other.rounding()), relative_difference(outputs, made)
    return Comparison(
        apart <= rounding,
        are_alike(one._traced, other._traced),
        apart,
        _first(layers, rounding, apart),
        layers,
        (tuple(recorded.keys() - found.keys()), tuple(found.keys() - recorded.keys())),
    )


def _checked(name: str, model: Any) -> Model:
    if not isinstance(model, tuple) or len(model) != 2:
        raise ArgumentError(f"{name}: expected a pair of a function and its tree, got {shown(model)}")
    check_function(name, model[0], model[1])
    return model


Values = tuple[Any, Any]
"""The values that a product reads and makes."""


def _run(
    groups: Groups, tree: PyTree, inputs: tuple[PyTree, ...]
) -> tuple[list[Any], dict[str, list[Values]]]:
    """Return the outputs of a model, and the values of its products by layer."""
    found = find_products(groups._program, dict.fromkeys(groups._leaves)).found
    read = {id(product.step): product.activation for product in found}

    def record(step: Step, taken: list[Any], made: list[Any]) -> Values | None:
        place = read.get(id(step))
        return None if place is None else (taken[place], made[0])

    run = jax.jit(lambda leaves: run_recorded(groups._program, leaves, record))
    outputs, records = run([*jax.tree.leaves(tree), *jax.tree.leaves(inputs)])
    of_layers: dict[str, list[Values]] = defaultdict(list)
    for product in found:
        if id(product.step) in records and product.layer != NO_PARAMETERS:
            of_layers[product.layer].append(records[id(product.step)])
    return outputs, dict(of_layers)


def _compared(layer: str, first: list[Values], second: list[Values]) -> LayerDifference:
    """Compare a layer's products, in their order."""
    units = _places(first[0][1]), _places(second[0][1])
    if len(first) != len(second):
        return LayerDifference(layer, units, np.inf, np.inf)
    pairs = [*zip(first, second, strict=True)]
    read, made = (max(_apart(one[part], other[part]) for one, other in pairs) for part in (0, 1))
    return LayerDifference(layer, units, read, made)


def _places(array: Any) -> int:
    """Return the number of values for one example."""
    return math.prod(np.shape(array)[1:])


def _apart(one: Any, other: Any) -> float:
    """Return the largest difference of two arrays, each unit of the second to the nearest of the first."""
    one, other = (np.asarray(jnp.asarray(array, jnp.float32)) for array in (one, other))
    if one.ndim != other.ndim:
        return np.inf
    cut = [axis for axis, sizes in enumerate(zip(one.shape, other.shape, strict=True)) if len({*sizes}) > 1]
    if not cut:
        return relative_difference(one, other)
    rows = [
        np.moveaxis(array, cut, range(len(cut))).reshape(
            int(np.prod([array.shape[axis] for axis in cut])), -1
        )
        for array in (one, other)
    ]
    few = np.linspace(0, rows[0].shape[1] - 1, min(_ENTRIES, rows[0].shape[1])).astype(int)
    nearest = [np.abs(rows[0][:, few] - row[few]).max(1).argmin() for row in rows[1]]
    return relative_difference(rows[0][nearest], rows[1])


def _first(layers: tuple[LayerDifference, ...], rounding: float, apart: float) -> str:
    """Return where two models begin to differ."""
    before = ""
    for each in layers:
        if each.read > rounding:
            return f"between {before} and {each.layer}" if before else f"before {each.layer}"
        if each.made > rounding:
            return f"in {each.layer}"
        before = each.layer
    return f"after {before}" if apart > rounding and before else ""

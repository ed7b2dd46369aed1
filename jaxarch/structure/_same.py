"""Comparison of two models, layer by layer: whether one is the other without some of its units."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxarch._internal.errors import ArgumentError, check_function, shown
from jaxarch._internal.trees import PyTree
from jaxarch.structure._alike import are_alike
from jaxarch.structure._captures import run_recorded
from jaxarch.structure._columns import columns
from jaxarch.structure._flow import Step, shape_of
from jaxarch.structure._groups import Groups
from jaxarch.structure._network_function import check_arrays_given, check_examples
from jaxarch.structure._products import NO_PARAMETERS, Product, find_products
from jaxarch.structure._shrink import relative_difference

Model = tuple[Callable[..., Any], PyTree]
"""A function `(tree, *inputs) -> outputs` and its tree."""
_ENTRIES = 512
"""Number of values of a unit by which its counterpart is found."""
_NEVER = 1e9
"""Value in place of one that is not finite, in distances."""


@dataclasses.dataclass(frozen=True)
class LayerDifference:
    """The difference of a layer between two models.

    Attributes:
      layer: the path of the layer's leaves.
      units: the number of outputs of the layer's leaves, in both models.
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
      same: whether the outputs have the same structure, and differ by no more than `tolerance`.
      alike: whether the programs are the same operations, apart from the structure of their outputs.
      difference: the largest difference of the outputs, in units of the largest in the same array. Integers
        and booleans differ infinitely, or not at all.
      tolerance: the square root of the coarsest machine epsilon in both programs: 3e-4 in float32, and 9e-2
        wherever something is in bfloat16.
      first: where the models begin to differ; empty if they are the same.
      layers: the layers that both models have, in the order of the first.
      only: the layers that only the first model has, and those that only the second has.
    """

    same: bool
    alike: bool
    difference: float
    tolerance: float
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
        apart = (
            f"outputs differ by {self.difference:.1e} of the largest; up to {self.tolerance:.0e} is rounding"
        )
        return "\n".join([*lines, f"{verdict}: {apart}"])


def same(first: Model, second: Model, *inputs: PyTree) -> Comparison:
    """Check whether two models compute the same, and find the first layer that differs.

        small = my_pruner(params)
        print(jaxarch.structure.same((apply, masked), (smaller_apply, small), x))

    Use it to check any pruner, conversion or rewrite: the second model may be the first without some of its
    units. Both programs run on the same inputs. Layers are products with leaves. They are matched by path, or
    in their order if no path is in both. What each reads and makes is compared. If the second model has fewer
    units there, they are assigned to those of the first with the nearest values. So a layer that keeps the
    wrong units shows in the layer that reads them. A wrong bias shows there too, since products come before
    it. Products inside branches and `while` loops are not compared, and are in no list.

    The verdict is that of the outputs, for these inputs.

    Args:
      first: a function `(tree, *inputs) -> outputs` and its tree, for instance with zeros at pruned weights.
      second: the function and the tree to compare.
      *inputs: inputs of both functions.

    Returns:
      `Comparison`, which is true if the outputs are the same.

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
    tolerance, apart = max(one.rounding(), other.rounding()), relative_difference(outputs, made)
    return Comparison(
        apart <= tolerance,
        are_alike(one._traced, other._traced),
        apart,
        tolerance,
        "" if apart <= tolerance else _first(layers, tolerance),
        layers,
        (
            tuple(name for name in recorded if name not in found),
            tuple(name for name in found if name not in recorded),
        ),
    )


def _checked(name: str, model: Any) -> Model:
    if not isinstance(model, tuple) or len(model) != 2:
        raise ArgumentError(f"{name}: expected a pair of a function and its tree, got {shown(model)}")
    check_function(name, model[0], model[1])
    return model


class Values(NamedTuple):
    """The values of a product.

    Attributes:
      read: those that it reads.
      made: those that it makes.
      units: the number of outputs of its leaves.
      loops: the number of loops around it, and so of first axes of both arrays.
    """

    read: Any
    made: Any
    units: int
    loops: int


def _run(groups: Groups, tree: PyTree, inputs: tuple[PyTree, ...]) -> tuple[PyTree, dict[str, list[Values]]]:
    """Return the outputs of a model, and the values of its products by layer."""
    found = find_products(groups._program, dict.fromkeys(groups._leaves)).found
    read = {id(product.step): product.activation for product in found}

    def record(step: Step, taken: list[Any], made: list[Any]) -> tuple[Any, Any] | None:
        place = read.get(id(step))
        return None if place is None else (taken[place], made[0])

    run = jax.jit(lambda leaves: run_recorded(groups._program, leaves, record))
    outputs, records = run([*jax.tree.leaves(tree), *jax.tree.leaves(inputs)])
    of_layers: dict[str, list[Values]] = defaultdict(list)
    for product in found:
        if id(product.step) in records and product.layer != NO_PARAMETERS:
            taken, made = records[id(product.step)]
            loops = made.ndim - len(shape_of(product.step.eqn.outvars[0]))
            of_layers[product.layer].append(Values(taken, made, _units(product), loops))
    return jax.tree.unflatten(groups._outputs, outputs), dict(of_layers)


def _units(product: Product) -> int:
    """Return the number of outputs of the leaves in a product: the size of their axes that are not summed."""
    place = 1 - (product.activation or 0)
    shape, params = shape_of(product.step.eqn.invars[place]), product.step.eqn.params["dimension_numbers"]
    if product.step.eqn.primitive.name != "dot_general":
        return shape[(params.rhs_spec if place else params.lhs_spec)[0]]
    summed, batch = params
    return math.prod(size for axis, size in enumerate(shape) if axis not in (*summed[place], *batch[place]))


def _compared(layer: str, first: list[Values], second: list[Values]) -> LayerDifference:
    """Compare a layer's products, in their order."""
    units = first[0].units, second[0].units
    if len(first) != len(second):
        return LayerDifference(layer, units, np.inf, np.inf)
    pairs = [*zip(first, second, strict=True)]
    read = max(_apart(one.read, other.read, one.loops) for one, other in pairs)
    made = max(_apart(one.made, other.made, one.loops) for one, other in pairs)
    return LayerDifference(layer, units, read, made)


def _apart(one: Any, other: Any, loops: int) -> float:
    """Return the largest difference of two arrays, whose first axes are rounds of loops.

    If the second has fewer units, each is compared with one of the first.
    """
    if one.ndim != other.ndim or one.shape[:loops] != other.shape[:loops]:
        return np.inf
    if one.shape == other.shape:
        return relative_difference(one, other)
    cut = [axis for axis in range(one.ndim) if one.shape[axis] != other.shape[axis]]
    rows = [_rows(array, cut) for array in (one, other)]
    if len(rows[0]) < len(rows[1]) or not rows[1].size:
        return np.inf
    few = np.linspace(0, rows[0].shape[1] - 1, min(_ENTRIES, rows[0].shape[1])).astype(int)
    wide = [np.nan_to_num(part[:, few], nan=_NEVER, posinf=_NEVER, neginf=-_NEVER) for part in rows]
    # Squared distances by one matrix product, less the squares of the second, which change no assignment.
    distances = (np.abs(wide[0]) ** 2).sum(1)[None] - 2 * (wide[1] @ wide[0].conj().T).real
    # SciPy comes with JAX, and takes a while to import.
    from scipy.optimize import linear_sum_assignment

    chosen, nearest = linear_sum_assignment(distances)
    return relative_difference(rows[0][nearest], rows[1][chosen])


def _rows(array: Any, cut: list[int]) -> np.ndarray:
    """Return the values of each unit in a row, in double precision; the units lie on some axes."""
    rows = np.moveaxis(np.asarray(array), cut, range(len(cut)))
    rows = rows.reshape(math.prod(array.shape[axis] for axis in cut), -1)
    return rows.astype(np.complex128 if np.iscomplexobj(rows) else np.float64)


def _first(layers: tuple[LayerDifference, ...], tolerance: float) -> str:
    """Return where two models begin to differ, if their outputs do."""
    before = ""
    for each in layers:
        if each.read > tolerance:
            return f"between {before} and {each.layer}" if before else f"before {each.layer}"
        if each.made > tolerance:
            return f"in {each.layer}"
        before = each.layer
    return f"after {before}" if before else ""

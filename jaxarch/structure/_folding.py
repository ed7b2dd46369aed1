"""Folding of constants into the biases behind them: where a program allows it, and the new biases.

A unit that is the same number c for all inputs adds c W to the product that reads it. If a bias b is added
there and nowhere else, replacing it by b + c W makes the unit superfluous. A bias is any leaf that is added
or subtracted, such as the running mean of a batch norm.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from jaxarch.structure._constants import Record, Value
from jaxarch.structure._flow import PRODUCTS, Program, Step, shape_of
from jaxarch.structure._host import computed
from jaxarch.structure._liveness import Constants, there
from jaxarch.structure._scans import scan_counts
from jaxarch.structure._smaller import Kept

_MOVES = ("broadcast_in_dim", "convert_element_type", "copy", "reshape", "squeeze", "transpose")


class Product(NamedTuple):
    """A product whose value is used only after some moves.

    Attributes:
      step: its step.
      moves: the steps after it.
    """

    step: Step
    moves: tuple[Step, ...]


class Leaf(NamedTuple):
    """A leaf of the model, with some moves.

    Attributes:
      number: its index among the program's inputs.
      shape: its shape and dtype.
      moves: the steps after it.
    """

    number: int
    shape: Any
    moves: tuple[Step, ...]


class Fold(NamedTuple):
    """A product to which a leaf is added.

    Attributes:
      product: the product.
      bias: the leaf.
      sign: 1 if the leaf is added, -1 if one of the two is subtracted.
    """

    product: Product
    bias: Leaf
    sign: int


def find_folds(program: Program, biases: Container[int]) -> dict[int, Fold]:
    """Find the products of a program with a bias that is used nowhere else, by the `id` of their step.

    Args:
      program: a program made by `_flow.follow`.
      biases: the indices of the inputs that may be changed.
    """
    folds: list[Fold] = []
    uses: Counter[int] = Counter()
    of_inputs = [
        Leaf(index, var.aval, ()) if index in biases else None
        for index, var in enumerate(program.closed.jaxpr.invars)
    ]
    uses.update(_numbers(_walk(program, of_inputs, folds, uses)))
    # A bias that is read anywhere else must not change.
    own = Counter(fold.bias.number for fold in folds)
    return {id(fold.product.step): fold for fold in folds if uses[fold.bias.number] == own[fold.bias.number]}


_Found = Leaf | Product | None
"""The known origin of a value: a moved leaf, a moved product, or nothing."""


def _numbers(values: Iterable[_Found]) -> Iterator[int]:
    """Yield the numbers of the leaves among some values."""
    return (found.number for found in values if isinstance(found, Leaf))


def _walk(program: Program, inputs: Sequence[_Found], folds: list[Fold], uses: Counter[int]) -> list[_Found]:
    """Return the origins of a program's outputs; add to the folds and to the uses of leaves on the way."""
    jaxpr = program.closed.jaxpr
    readers = Counter(
        atom
        for atoms in (*(eqn.invars for eqn in jaxpr.eqns), jaxpr.outvars)
        for atom in atoms
        if not isinstance(atom, Literal)
    )
    known: dict[Any, _Found] = dict(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> _Found:
        found = None if isinstance(atom, Literal) else known.get(atom)
        # Another reader of the product needs it as it is, without the folded constant.
        return None if isinstance(found, Product) and readers[atom] > 1 else found

    for step in program.steps:
        made = _after(step, [read(atom) for atom in step.eqn.invars], folds, uses)
        known.update(zip(step.eqn.outvars, made, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _keeps_numbers(step: Step) -> bool:
    """Return whether a move stays within floating point; integers would lose the fraction."""
    dtypes = [atom.aval.dtype for atom in (*step.eqn.invars, *step.eqn.outvars)]  # type: ignore[attr-defined]
    return all(jnp.issubdtype(dtype, jnp.floating) for dtype in dtypes)


def _after(step: Step, taken: list[_Found], folds: list[Fold], uses: Counter[int]) -> Sequence[_Found]:
    name = step.eqn.primitive.name
    nothing: list[_Found] = [None] * len(step.eqn.outvars)
    if step.called:
        return _walk(step.called, taken, folds, uses)
    if name in _MOVES and taken[0] is not None and _keeps_numbers(step):
        return [taken[0]._replace(moves=(*taken[0].moves, step))]
    if name in ("add", "sub"):
        match taken:
            case (Product() as product, Leaf() as bias) | (Leaf() as bias, Product() as product):
                uses[bias.number] += 1
                # A product that is repeated along axes of the bias is not the sum of one bias.
                if shape_of(step.eqn.invars[isinstance(taken[1], Product)]) == shape_of(step.eqn.outvars[0]):
                    folds.append(Fold(product, bias, 1 if name == "add" else -1))
                return nothing
    if name == "scan":
        # The rows of a scan are another leaf in each round.
        consts = scan_counts(step.eqn).consts
        inside = [*taken[:consts], *[None] * (len(taken) - consts)]
        of_outputs = _walk(step.programs[0], inside, folds, uses)
        taken = [*taken[consts:], *of_outputs]
    elif name == "cond":
        for branch in step.programs:
            taken = [*taken, *_walk(branch, [None] * len(branch.inputs), folds, uses)]
    uses.update(_numbers(taken))
    if name in PRODUCTS:
        return [Product(step, ())]
    return nothing


def find_foldable(folds: Mapping[int, Fold], record: Record) -> Constants:
    """Find the entries of each product's varying factor that are constants its bias can take up.

    They must be the same at every place of the product. A constant before a padded convolution differs
    between the border and the inside, so no bias takes it up. A bias that is added behind several products,
    as in a siamese network, takes up constants that are the same in all of them.

    Args:
      folds: the folds of a program.
      record: the facts about every value.

    Returns:
      By `id` of the product's step, the index of that factor, and booleans of its shape.
    """
    found = {key: _foldable(fold, record) for key, fold in folds.items()}
    for key, fold in folds.items():
        index, entries = found[key]
        for other, beside in folds.items():
            if beside.bias.number == fold.bias.number and not (
                _written(fold) == _written(beside)
                and _alike(record[key][0], record[other][0], entries, found[other][1])
            ):
                found[key] = index, np.zeros_like(entries)
    return found


def _foldable(fold: Fold, record: Record) -> tuple[int, np.ndarray]:
    step = fold.product.step
    values = record[id(step)][0]
    open_ = [bool(value.open.any()) for value in values]
    index = int(open_[1])
    factor = values[index]
    entries = np.broadcast_to(_same_everywhere(step, index, factor), factor.open.shape)
    # Absolute values are tested, so that no two constants cancel.
    sizes = [np.abs(value.number) for value in values]
    sizes[index] = np.where(entries, sizes[index], 0)
    if all(open_) or not sizes[index].any() or _taken_up(fold, sizes) is None:
        return index, np.zeros_like(entries)
    return index, entries


def _written(fold: Fold) -> list[Any]:
    """Describe the steps on the product and the bias, and their sign, to compare folds."""
    steps = [fold.product.step, *fold.product.moves, *fold.bias.moves]
    return [fold.sign, len(fold.bias.moves), *((step.eqn.primitive, step.eqn.params) for step in steps)]


def _alike(first: Sequence[Value], second: Sequence[Value], entries: np.ndarray, others: np.ndarray) -> bool:
    """Return whether two products are the same in everything that is folded."""
    return (
        all(one.open.shape == other.open.shape for one, other in zip(first, second, strict=True))
        and np.array_equal(entries, others)
        and all(np.array_equal(one.number, other.number) for one, other in zip(first, second, strict=True))
    )


def _same_everywhere(step: Step, index: int, factor: Value) -> np.ndarray:
    """Return where a factor is constant, and the same along all axes that the result keeps."""
    params, axes = step.eqn.params, range(factor.open.ndim)
    if step.eqn.primitive.name == "dot_general":
        contracted, batched = params["dimension_numbers"]
        kept = {*contracted[index], *batched[index]}
    else:
        kept = set() if index else {params["dimension_numbers"].lhs_spec[1]}
    along = tuple(axis for axis in axes if axis not in kept)
    first = factor.number[tuple(slice(0, 1) if axis in along else slice(None) for axis in axes)]
    varies = factor.open | (factor.number != first)
    return ~varies.any(along, keepdims=True) & np.isfinite(first)


def _taken_up(fold: Fold, factors: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return the change of the bias that replaces a product of some factors; `None` if there is none."""
    (added,) = computed(fold.product.step.eqn, factors)
    added, bias = _moved(fold.product.moves, added), fold.bias
    dtype, shape = bias.shape.dtype, bias.shape.shape
    if not jnp.issubdtype(dtype, jnp.floating) or not jnp.issubdtype(added.dtype, jnp.floating):
        return None

    def spread(leaf: np.ndarray) -> np.ndarray:
        return np.broadcast_to(_moved(bias.moves, leaf), added.shape)

    # Each entry of the bias grows by the mean of the numbers added at its places.
    numbers = np.arange(math.prod(shape)).reshape(shape)
    places = np.broadcast_to(_moved(_without_conversions(bias.moves), numbers), added.shape).ravel()
    counts = np.bincount(places, minlength=numbers.size)
    total = np.bincount(places, added.ravel().astype(np.float64), numbers.size)
    change = (total / np.maximum(counts, 1)).reshape(shape).astype(dtype)
    # Sums of the same numbers may be rounded differently at other places.
    rounding = 64 * float(jnp.finfo(dtype).eps) * float(np.abs(added).max(initial=0))
    found, wanted = (array.astype(np.float64) for array in (spread(change), added))
    if not np.allclose(found, wanted, rtol=0, atol=rounding):
        return None
    return change * np.asarray(fold.sign, dtype)


def _moved(moves: Sequence[Step], array: Any) -> Any:
    for step in moves:
        (array,) = computed(step.eqn, [array])
    return array


def _without_conversions(moves: Sequence[Step]) -> list[Step]:
    return [step for step in moves if step.eqn.primitive.name != "convert_element_type"]


def changed_biases(
    folds: Mapping[int, Fold], folded: Constants, record: Record, kept: Kept
) -> dict[int, np.ndarray]:
    """Return the changes of the biases when constant units are removed, by the number of the leaf.

    Args:
      folds: the folds of a program.
      folded: the entries that can be folded (see `find_foldable`).
      record: the facts about every value.
      kept: by atom, the units that are left.
    """
    changes: dict[int, np.ndarray] = {}
    for key, fold in folds.items():
        index, entries = folded[key]
        values = [value.number for value in record[key][0]]
        gone = ~there(fold.product.step.inputs[index], kept)
        values[index] = np.where(entries & gone, values[index], 0)
        change = _taken_up(fold, values) if values[index].any() else None
        if change is not None:
            # Folds that share a bias take up the same constants (`find_foldable`), so any of them gives the
            # change.
            changes[fold.bias.number] = change
    return changes

"""The cost of single products: of whole arrays, of nonzero weights, and of the parts the outputs need."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from jaxarch.structure._constants import Record, Value
from jaxarch.structure._flow import Step, shape_of
from jaxarch.structure._host import multiplied, multiplied_back
from jaxarch.structure._liveness import Sums
from jaxarch.structure._products import Factor, Product, multiply_adds, taps
from jaxarch.structure._smaller import Kept, sizes


class Work(NamedTuple):
    """The cost of a product.

    Attributes:
      multiply_adds: the number of multiply-adds.
      activations: the number of values that it computes.
    """

    multiply_adds: int
    activations: int


def whole_work(product: Product, kept: Kept) -> Work:
    """Return the work of a product of whole arrays from which units were cut."""
    made = math.prod(sizes(product.step.outputs[0], kept))
    return Work(multiply_adds(product, kept), product.times * made)


def nonzero_work(product: Product, masked: Collection[str]) -> Work:
    """Return the work of the nonzero weights; all weights of unmasked leaves count.

    Args:
      product: a product whose factors have their values.
      masked: the paths of the masked leaves.
    """
    there = [_there(factor, masked) for factor in product.factors]
    if all(array is None for array in there):
        return whole_work(product, {})
    one, other = (
        np.ones((1, *shape_of(atom)), bool) if array is None else array
        for array, atom in zip(there, product.step.eqn.invars, strict=True)
    )
    every = np.ones(shape_of(product.step.eqn.outvars[0]), bool)
    return _counted(product, [(one, other)], every, everywhere=True)


def effective_work(product: Product, masked: Collection[str], record: Record, sums: Sums) -> Work:
    """Return the work that depends on the inputs, is not with a 0, and is needed for the outputs.

    Args:
      product: a product whose factors have their values.
      masked: the paths of the masked leaves.
      record: the facts about every value (see `_constants.find_known`).
      sums: the needs for every output of a step (see `_liveness.find_needed`).
    """
    step = product.step
    if id(step) not in sums.outputs or all(factor is not None for factor in product.factors):
        return Work(0, 0)
    (x, y), (made,) = record[id(step)]
    first, second = (
        _Side.of(value, factor, masked) for value, factor in zip((x, y), product.factors, strict=True)
    )
    pairs = [(first.open, second.nonzero), (first.constant, second.open)]
    return _counted(product, pairs, sums.outputs[id(step)][0] & made.open, everywhere=False)


class _Side(NamedTuple):
    """A factor in each round of its loops.

    Attributes:
      open: where the factor depends on the inputs and may be nonzero.
      nonzero: where the factor may be nonzero.
      constant: where the factor is a nonzero constant.
    """

    open: np.ndarray
    nonzero: np.ndarray
    constant: np.ndarray

    @classmethod
    def of(cls, value: Value, factor: Factor | None, masked: Collection[str]) -> _Side:
        if factor is None:
            open_ = value.open & value.nonzero
            return cls(open_[None], value.nonzero[None], (value.nonzero & ~value.open)[None])
        nonzero = _there(factor, masked)
        if nonzero is None:
            nonzero = (np.ones_like(value.open) if factor.paths else value.nonzero)[None]
        return cls(np.zeros_like(value.open)[None], nonzero, nonzero)


def _there(factor: Factor | None, masked: Collection[str]) -> np.ndarray | None:
    """Return where a factor is not 0, in each round if rounds differ; `None` if no mask decides."""
    if factor is None or factor.value is None or not set(factor.paths) & set(masked):
        return None
    there = np.asarray(factor.value) != 0
    return there if factor.by_round else there[None]


Pair = tuple[np.ndarray, np.ndarray]
"""Booleans for both factors, with a leading axis of rounds; it has size 1 if all rounds are the same."""


def _counted(product: Product, pairs: Sequence[Pair], wanted: np.ndarray, everywhere: bool) -> Work:
    """Count the multiply-adds and the values of all rounds.

    Args:
      product: the product.
      pairs: pairs of booleans for both factors; the products of true entries count.
      wanted: the entries of the output that count.
      everywhere: whether weights of a convolution that only meet its padding count too.
    """
    pairs = [pair for pair in pairs if pair[0].any() and pair[1].any()]
    rounds = max((len(part) for pair in pairs for part in pair), default=1)
    work, values = 0, 0
    for index in range(rounds):
        now = [(one[index % len(one)], other[index % len(other)]) for one, other in pairs]
        made = (
            sum((_product(product.step, one, other) for one, other in now), np.zeros(wanted.shape)) * wanted
        )
        values += int(np.count_nonzero(made))
        if product.step.eqn.primitive.name == "dot_general":
            work += round(made.sum())
        else:
            work += _of_kernel(product.step, now, wanted, everywhere)
    again = product.times // rounds
    return Work(work * again, values * again)


def _product(step: Step, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Count the products that each entry of the output sums."""
    # Counts of single entries are exact in float32; their sum over an array may pass 2^24.
    return multiplied(step.eqn, one, other).astype(np.float64)


def _of_kernel(step: Step, pairs: Sequence[Pair], wanted: np.ndarray, everywhere: bool) -> int:
    """Count the multiply-adds of a convolution: each kernel entry that counts, at all places it moves to."""
    numbers = step.eqn.params["dimension_numbers"]
    shape = shape_of(step.eqn.invars[1])
    counts = np.zeros(shape, bool)
    for one, other in pairs:
        counts |= other if everywhere else other & _reached(step, one, wanted)
    times = np.full(shape, wanted.shape[numbers.out_spec[0]])
    for axis, of_axis in zip(numbers.rhs_spec[2:], taps(step.eqn), strict=True):
        times = times * of_axis.reshape([-1 if index == axis else 1 for index in range(len(shape))])
    return int((times * counts).sum())


def _reached(step: Step, one: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the kernel entries that meet some entries of a picture, for some entries of the output."""
    return multiplied_back(step.eqn, 1, one, wanted)

"""The cost of a model as polynomials in the number of units of each group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxarch._internal.trees import named_leaves
from jaxarch.structure._axes import Axis
from jaxarch.structure._constants import is_key
from jaxarch.structure._groups import Groups
from jaxarch.structure._products import Products, multiplied_axes

Terms = dict[tuple[int, ...], float]
"""Coefficients by monomial: the numbers of its groups in order, each as often as its power."""


class Polynomial(NamedTuple):
    """A polynomial with coefficients >= 0, so it grows with every number of units.

    Attributes:
      coefficients: one per monomial.
      groups: for each monomial, the numbers of its groups; the number of groups itself stands for a factor 1.
      terms: the same by monomial.
    """

    coefficients: np.ndarray
    groups: np.ndarray
    terms: Terms

    @classmethod
    def of(cls, terms: Terms, count: int) -> Polynomial:
        """Return a polynomial in the sizes of `count` groups."""
        degree = max(map(len, terms), default=0)
        rows = [(*monomial, *[count] * (degree - len(monomial))) for monomial in terms]
        return cls(np.array([*terms.values()], float), np.array(rows, int).reshape(len(rows), degree), terms)

    def __call__(self, counts: np.ndarray) -> float:
        """Return the value, given the number of units of each group."""
        return float(self.coefficients @ np.append(counts, 1.0)[self.groups].prod(axis=1))

    def with_fixed(self, free: Sequence[str], sizes: Mapping[str, int]) -> Polynomial:
        """Return the polynomial in the sizes of some groups, with the sizes of all other groups given.

        Args:
          free: the names of the groups whose sizes stay variables, in their new order.
          sizes: the sizes of all groups by name, in the present order.
        """
        fixed = [None if name in free else float(size) for name, size in sizes.items()]
        numbers = [free.index(name) if name in free else -1 for name in sizes]
        terms: Terms = {}
        for monomial, coefficient in self.terms.items():
            times = np.prod([fixed[number] or 1.0 for number in monomial if fixed[number] is not None])
            left = tuple(numbers[number] for number in monomial if fixed[number] is None)
            _add(terms, {left: coefficient}, float(times))
        return Polynomial.of(terms, len(free))


def cost_polynomials(
    groups: Groups, products: Products, batch: int, parameters: Collection[str] | None = None
) -> dict[str, Polynomial]:
    r"""Return each count of `Counts` as a polynomial in the numbers of units k_1, ..., k_G.

    An axis that is one group has size k_g. A product of axes multiplies sizes, a concatenation adds them, and
    all other axes are constant. The cost of an array or of a product of arrays is the product of some sizes,

        C(k) = \sum_m c_m \prod_{g in m} k_g,  c_m >= 0,

    so the cost depends on how many units each group keeps, and not on which.

    Args:
      groups: the groups of the model, in whose order the polynomials take their numbers of units.
      products: the products of its program.
      batch: the number of examples that it was traced with.
      parameters: the paths of the leaves that count as parameters; by default all.
    """
    numbers = {groups._atoms[name]: number for number, name in enumerate(groups.groups)}
    count, shapes = len(numbers), named_leaves(groups._shapes)
    found: dict[str, Terms] = {name: {} for name in ("parameters", "bytes", "multiply_adds", "activations")}
    for path, axes in groups._leaves.items():
        if is_key(shapes[path]) or (parameters is not None and path not in parameters):
            continue
        entries = _multiplied(axes, numbers)
        _add(found["parameters"], entries, 1)
        _add(found["bytes"], entries, np.dtype(shapes[path].dtype).itemsize)
    for product in products.found:
        times, factors = multiplied_axes(product)
        _add(found["multiply_adds"], _multiplied(factors, numbers), times / batch)
        made = _multiplied(product.step.outputs[0], numbers)
        _add(found["activations"], made, product.times / batch)
    return {name: Polynomial.of(terms, count) for name, terms in found.items()}


def _size(axis: Axis, numbers: Mapping[Axis, int]) -> Terms:
    axis = axis.root()
    if axis.form == "product":
        return _multiplied(axis.parts, numbers)
    if axis.form == "sum":
        whole: Terms = {}
        for part in axis.parts:
            _add(whole, _size(part, numbers), 1)
        return whole
    return {(numbers[axis],): 1.0} if axis in numbers else {(): float(axis.size)}


def _multiplied(axes: Iterable[Axis], numbers: Mapping[Axis, int]) -> Terms:
    made: Terms = {(): 1.0}
    for axis in axes:
        sizes, whole = _size(axis, numbers), made
        made = {}
        for one, times in whole.items():
            _add(made, {(*one, *other): of for other, of in sizes.items()}, times)
    return made


def _add(whole: Terms, terms: Terms, times: float) -> None:
    for monomial, coefficient in terms.items():
        ordered = tuple(sorted(monomial))
        whole[ordered] = whole.get(ordered, 0.0) + times * coefficient

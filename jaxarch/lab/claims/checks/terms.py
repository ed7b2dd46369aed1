"""Sums of coefficients times products of symbols: the base of polynomials, for any kind of product."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, Generic, Self, TypeVar

Product = TypeVar("Product")
"""A product of symbols."""


class Terms(abc.ABC, Generic[Product]):
    """A sum of terms.

    Attributes:
      terms: the coefficient of each product of symbols, none of them 0.
    """

    one: ClassVar[Any]
    """The product of no symbols."""

    coefficient: ClassVar[Any]
    """Turns a number into a coefficient, without rounding."""

    numbers: ClassVar[tuple[type, ...]]
    """Types of numbers that may equal a sum."""

    def __init__(self, terms: dict[Product, Any]) -> None:
        self.terms = {product: coefficient for product, coefficient in terms.items() if coefficient}

    @staticmethod
    @abc.abstractmethod
    def times(first: Product, second: Product) -> Product:
        """Multiply two products of symbols."""

    @classmethod
    def of(cls, value: Any) -> Self:
        """Turn a number into a sum of one term; return a sum as it is."""
        return value if isinstance(value, cls) else cls({cls.one: cls.coefficient(value)})

    def __add__(self, other: Any) -> Self:
        terms = dict(self.terms)
        for product, coefficient in self.of(other).terms.items():
            terms[product] = terms.get(product, 0) + coefficient
        return type(self)(terms)

    def __mul__(self, other: Any) -> Self:
        terms: dict[Product, Any] = {}
        others = self.of(other).terms
        for first, a in self.terms.items():
            for second, b in others.items():
                product = self.times(first, second)
                terms[product] = terms.get(product, 0) + a * b
        return type(self)(terms)

    def __neg__(self) -> Self:
        return type(self)({product: -coefficient for product, coefficient in self.terms.items()})

    def __sub__(self, other: Any) -> Self:
        return self + -self.of(other)

    def __rsub__(self, other: Any) -> Self:
        return -self + other

    def __rmul__(self, other: Any) -> Self:
        return self.of(other) * self

    __radd__ = __add__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (type(self), *self.numbers)) and self.terms == self.of(other).terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

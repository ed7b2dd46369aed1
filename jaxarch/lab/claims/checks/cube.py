"""Cases as points of a cube: `[0, 1]^n` is mapped onto all variables of a statement.

One description of the cases then serves sampling (uniform points), shrinking and adversarial search (over the
cube). Hypothesis shrinks each coordinate toward 0, so 0 is mapped to the simplest value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import ndtri


@dataclasses.dataclass(frozen=True)
class Field:
    """One variable of a case, of shape `shape`; `of` maps each entry from [0, 1] onto the range `words`."""

    of: Callable[[Array], Array]
    words: str
    shape: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Cube:
    """The cases of a statement: its variables by name, each a `Field`."""

    fields: Mapping[str, Field]

    @property
    def dimension(self) -> int:
        """The number of coordinates of a case."""
        return sum(math.prod(field.shape) for field in self.fields.values())

    @property
    def words(self) -> str:
        """The range of each variable in words; variables with the same range are listed together."""
        names: dict[str, list[str]] = {}
        for name, field in self.fields.items():
            names.setdefault(field.words, []).append(name)
        return "; ".join(f"{', '.join(same)} {words}" for words, same in names.items())

    def __call__(self, point: Array) -> dict[str, Array]:
        """Return the case at a point of the cube, of shape (dimension,)."""
        case, start = {}, 0
        for name, field in self.fields.items():
            end = start + math.prod(field.shape)
            case[name] = field.of(jnp.reshape(point[start:end], field.shape))
            start = end
        return case


def cube(**fields: Field) -> Cube:
    """Return the cube of cases with these variables."""
    return Cube(fields)


def _between(one: float, other: float) -> str:
    return f"in [{min(one, other):g}, {max(one, other):g}]"


def uniform(low: float, high: float, shape: tuple[int, ...] = ()) -> Field:
    """Uniform between `low` (the simplest value) and `high`, which may be the smaller one."""
    return Field(lambda u: low + (high - low) * u, _between(low, high), shape)


def log_uniform(low: float, high: float, shape: tuple[int, ...] = ()) -> Field:
    """Uniform in the logarithm, between `low` (the simplest value) and `high`, both positive."""
    return Field(lambda u: low * (high / low) ** u, _between(low, high), shape)


def normal(std: float, shape: tuple[int, ...] = ()) -> Field:
    """`N(0, std)`, cut off at 6 standard deviations."""
    return Field(lambda u: std * ndtri(jnp.clip(u, 1e-9, 1 - 1e-9)), f"from N(0, {std:g})", shape)


def symlog(largest: float, smallest: float, shape: tuple[int, ...] = ()) -> Field:
    """Either sign, every order of magnitude: about uniform in the logarithm from `smallest` to `largest`.

    The middle of [0, 1] is mapped to 0, and the map has a derivative there.
    """
    base = 1 + largest / smallest

    def of(u: Array) -> Array:
        signed = 2 * u - 1
        return jnp.sign(signed) * smallest * (base ** jnp.abs(signed) - 1)

    return Field(of, _between(-largest, largest), shape)


def often(value: float, field: Field) -> Field:
    """`value` (the simplest) in a quarter of [0, 1], else `field`: bounds are often attained at edges."""
    words = f"{value:.4g} or {field.words}"
    return Field(lambda u: jnp.where(u < 0.25, value, field.of((u - 0.25) / 0.75)), words, field.shape)


def integer(low: int, high: int, shape: tuple[int, ...] = ()) -> Field:
    """An integer from `low` (the simplest value) to `high`, both included, as a float."""
    words = f"of {low}, ..., {high}"
    return Field(lambda u: jnp.minimum(low + jnp.floor((high - low + 1) * u), high), words, shape)


def choice(*values: float, shape: tuple[int, ...] = ()) -> Field:
    """One of the values, the first being the simplest."""

    def of(u: Array) -> Array:
        position = jnp.minimum(jnp.floor(len(values) * u), len(values) - 1).astype(int)
        return jnp.asarray(values, u.dtype)[position]

    return Field(of, f"of {', '.join(f'{value:g}' for value in sorted(values))}", shape)

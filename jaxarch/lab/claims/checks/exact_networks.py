"""Spectral networks in exact arithmetic: of symbols, one for each block, and of integers.

An identity in symbols that do not commute holds for blocks of all sizes, at every listed depth. On integers,
with blocks of 1 to 3 neurons, it also tests that `jaxarch.spectral` computes the stated quantities.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxarch.lab.claims.checks.exact import Exact
from jaxarch.lab.claims.checks.free_algebra import symbol
from jaxarch.spectral import algebra

DEPTHS = range(1, 13)
"""Depths B for which every identity is proved."""


def symbols(depth: int) -> dict[str, list[np.ndarray]]:
    """Return a network of 1 x 1 blocks, all of them symbols, which stand for blocks of all sizes."""
    return {
        "eigenvectors": [symbol(f"phi{i}", 1, 1) for i in range(1, depth + 1)],
        "eigenvalues": [symbol(f"L{i}", 1) for i in range(1, depth + 2)],
    }


def integers(
    depth: int,
    random: np.random.Generator,
    entries: tuple[int, int] = (-5, 5),
    eigenvalues: tuple[int, int] = (-5, 5),
) -> dict[str, list[np.ndarray]]:
    """Draw a network with blocks of 1 to 3 neurons, of integers between two ends, both included."""
    widths = random.integers(1, 4, depth + 1)

    def block(ends: tuple[int, int], *shape: int) -> np.ndarray:
        return random.integers(*ends, shape, endpoint=True).astype(object)

    return {
        "eigenvectors": [block(entries, n, m) for m, n in itertools.pairwise(widths)],
        "eigenvalues": [block(eigenvalues, n) for n in widths],
    }


def symbol_networks() -> Iterator[dict[str, Any]]:
    """Networks of 1 to 12 blocks, all of them symbols, which are matrices of any sizes."""
    return map(symbols, DEPTHS)


def depths() -> Iterator[dict[str, int]]:
    """Networks of 1 to 12 blocks."""
    return ({"depth": depth} for depth in DEPTHS)


@functools.cache
def integer_networks() -> list[dict[str, Any]]:
    """A thousand networks of integers, most of them of a few blocks, some of every depth."""
    random = np.random.default_rng(0)
    return [integers(depth, random) for depth in DEPTHS for _ in range(3 + 640 // depth**2)]


def identity(
    holds: Callable[..., bool],
    mutations: Mapping[str, Callable[..., bool]],
    library: Callable[..., bool] | None = None,
) -> tuple[Exact, Exact]:
    """Return the checks of an identity of networks, in symbols and on integers.

    Args:
      holds: the identity, a function of `eigenvectors` and `eigenvalues`.
      mutations: broken identities.
      library: the identity for this library's matrix code, where symbols do not go; checked on integers.
    """

    @functools.wraps(holds)
    def on_integers(**case: Any) -> bool:
        return holds(**case) and (library is None or library(**case))

    return (
        Exact(holds, symbol_networks, mutations, kind="formal"),
        Exact(on_integers, integer_networks, mutations),
    )


def same(first: Any, second: Any) -> bool:
    """Tell if two arrays of objects are equal."""
    return bool(np.all(first == second))


def matrix(eigenvectors: Sequence[Any]) -> Any:
    """Return Phi_B."""
    return algebra.dense(algebra.eigenvector_blocks(eigenvectors))


def eye(square: Any) -> Any:
    """Return the identity matrix of the size of `square`."""
    return np.eye(len(square), dtype=object)


def powers(square: Any, last: int) -> list[Any]:
    """Return the powers 0, ..., last of a matrix by repeated products."""
    return list(itertools.accumulate(range(last), lambda power, _: power @ square, initial=eye(square)))


def chain(phi: Sequence[Any], x: Any, first: int, last: int) -> Any:
    """Compute `phi_last ... phi_first x`, or x if there are no factors."""
    for block in phi[first - 1 : last]:
        x = block @ x
    return x


def preactivations(
    eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], x: Any, activation: Callable[[Any], Any]
) -> tuple[list[Any], list[Any]]:
    """Compute `z_2, ..., z_{B+1}` and `s_1, ..., s_B` of a one-column input by forward substitution."""
    z, s = [], [x]
    for phi, inner, outer in zip(eigenvectors, eigenvalues[:-1], eigenvalues[1:], strict=True):
        z.append(phi @ (inner[:, None] * s[-1]) - outer[:, None] * (phi @ s[-1]))
        s.append(activation(z[-1]) - phi @ s[-1])
    return z, s[:-1]

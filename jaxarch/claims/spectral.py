"""Claims on spectral networks ([S] sections 2 to 4, appendices A to E), exactly where they are algebra."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxarch.claims.core import Claim, Exact
from jaxarch.spectral import algebra

DEPTHS = range(1, 13)


def integer_networks() -> Iterator[dict[str, Any]]:
    """Random networks of 1 to 12 blocks of 1 to 3 neurons, with integer entries of at most 5."""
    random = np.random.default_rng(0)
    for depth in DEPTHS:
        widths = random.integers(1, 4, depth + 1)
        yield {
            "eigenvectors": [
                random.integers(-5, 6, (n, m)).astype(object) for m, n in itertools.pairwise(widths)
            ]
        }


def _is_inverse(eigenvectors: list[Any], inverse: Any) -> bool:
    phi = algebra.dense(algebra.eigenvector_blocks(eigenvectors))
    return bool((phi @ inverse == np.eye(len(phi), dtype=object)).all())


def inverse_by_powers(eigenvectors: list[Any]) -> bool:
    """[S] (4.1)."""
    return _is_inverse(eigenvectors, algebra.dense(algebra.inverse_by_powers(eigenvectors)))


def _without_signs(eigenvectors: list[Any]) -> bool:
    return _is_inverse(eigenvectors, algebra.dense(algebra.power(eigenvectors, 1)))


INVERSE = Claim(
    id="S.inverse",
    source="[S] eq. (4.1), (A.1)",
    statement="Phi_B^-1 = sum_{i=0}^B (-1)^i C(B+1, i+1) Phi_B^i",
    latex=r"\Phi_B^{-1} = \sum_{i=0}^{B} (-1)^i \binom{B+1}{i+1} \Phi_B^i",
    verdict="holds",
    checks=(Exact(inverse_by_powers, integer_networks, {"one power alone": _without_signs}),),
)

CLAIMS = (INVERSE,)

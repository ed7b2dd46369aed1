r"""The inverse of Phi_B and its powers ([S] eq. (4.1), (4.2), appendices A and B).

    Phi_B^-1 = sum_{i=0}^B (-1)^i C(B+1, i+1) Phi_B^i

Phi_B has identities on its diagonal and the blocks phi_1, ..., phi_B below it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from math import comb
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxarch.lab.claims.checks.commuting import variable
from jaxarch.lab.claims.checks.core import Claim, Counterexample, Sides
from jaxarch.lab.claims.checks.exact import Exact
from jaxarch.lab.claims.checks.exact_networks import DEPTHS, eye, identity, integers, matrix, powers, same
from jaxarch.lab.claims.checks.free_algebra import symbol
from jaxarch.spectral import algebra


def phi_minus_identity_is_nilpotent(
    eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], order: int = 1
) -> bool:
    """`(Phi_B - I)^n` has blocks only at i - j = n: `phi_{i-1} ... phi_j`, and none for n = B + `order`."""
    depth = len(eigenvectors)
    phi = matrix(eigenvectors)
    powers_of_it = powers(phi - eye(phi), depth + order)
    by_blocks = algebra.inverse_by_blocks(eigenvectors)
    for n, power in enumerate(powers_of_it[:-1]):
        layer = {key: (-1) ** n * block for key, block in by_blocks.items() if key[0] - key[1] == n}
        diagonal = {key: 0 * block for key, block in by_blocks.items() if key[0] == key[1]}
        if not same(power, algebra.dense({**diagonal, **layer})):
            return False
    return same(powers_of_it[-1], 0)


def formula_for_the_inverse_of_any_matrix(terms: int, missing: int = 0, sign: int = 1) -> bool:
    """`X sum_{i=0}^B (-1)^i C(B+1, i+1) X^i = I - (I - X)^{B+1}` for any X; `terms` is B."""
    x = symbol("X", 1, 1)
    left = x @ sum((-1) ** i * comb(terms + 1, i + 1) * power for i, power in enumerate(powers(x, terms)))
    return same(left, eye(x) - powers(sign * (eye(x) - x), terms + 1 - missing)[-1])


def inverse_by_powers(
    eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], binomial: Callable[[int, int], int] = comb
) -> bool:
    """[S] (4.1), as a right and as a left inverse."""
    phi = matrix(eigenvectors)
    depth = len(eigenvectors)
    inverse = sum(
        (-1) ** i * binomial(depth + 1, i + 1) * power for i, power in enumerate(powers(phi, depth))
    )
    return same(phi @ inverse, eye(phi)) and same(inverse @ phi, eye(phi))


Ratio = tuple[Any, Any]
"""A numerator and a denominator."""


def next_depth(depth: Any, i: Any) -> Ratio:
    """`c(B+1, i)/c(B, i)` for `c(B, i) = (-1)^i C(B+1, i+1)`."""
    return depth + 2, depth + 1 - i


def next_power(depth: Any, i: Any) -> Ratio:
    """`c(B, i+1)/c(B, i)`."""
    return i - depth, i + 2


def _right_up_to_12_blocks(depth: Any, i: Any) -> Ratio:
    above, below = next_depth(depth, i)
    return above * (1 + math.prod(depth - n for n in range(12))), below


def _wrong_after_12(n: int, k: int) -> int:
    return comb(n, k) + (n > 13)


def induction_on_the_depth(depth: Any, i: Any, up: Callable[[Any, Any], Ratio] = next_depth) -> bool:
    """`X P_B = I - (I - X)^(B+1)` for all B, any X and `P_B = sum_{i<=B} c(B, i) X^i`.

    It follows from `P_0 = I` and `P_{B+1} = I + (I - X) P_B`. The latter means
    `c(B+1, i+1) = c(B, i+1) - c(B, i)` for i < B. At the ends it means `c(B+1, 0) = 1 + c(B, 0)`,
    `c(B, 0) = B + 1`, and `c(B+1, B+1) = -c(B, B)`. From `c(0, 0) = 1`, `up` and `next_power` lead to all c,
    in any order.
    """
    along = next_power(depth, i)
    difference = along[0] - along[1], along[1]
    return (
        _equal([up(depth, i + 1), along], [next_power(depth + 1, i), up(depth, i)])
        and _equal([up(depth, i + 1), along], [difference])
        and _equal([up(depth, 0), (depth + 1, 1)], [(depth + 2, 1)])
        and _equal([next_power(depth + 1, depth), up(depth, depth)], [(-1, 1)])
    )


def _equal(first: Sequence[Ratio], second: Sequence[Ratio]) -> bool:
    """Compare two products of ratios after multiplication by their denominators."""
    (a, b), (c, d) = ([math.prod(part) for part in zip(*ratios, strict=True)] for ratios in (first, second))
    return bool(a * d == b * c)


def ratios_of_coefficients(depth: int, i: int, binomial: Callable[[int, int], int] = comb) -> bool:
    """`next_depth` and `next_power` are the ratios of `(-1)^i C(B+1, i+1)`."""
    here, deeper, further = (
        (-1) ** k * binomial(n + 1, k + 1) for n, k in ((depth, i), (depth + 1, i), (depth, i + 1))
    )
    return _equal([next_depth(depth, i), (here, 1)], [(deeper, 1)]) and _equal(
        [next_power(depth, i), (here, 1)], [(further, 1)]
    )


def numbers_of_terms() -> Iterator[dict[str, int]]:
    """Any matrix X, B from 1 to 12."""
    return ({"terms": depth} for depth in DEPTHS)


def any_coefficient() -> list[dict[str, Any]]:
    """All B and i, which are symbols."""
    return [{"depth": variable("B"), "i": variable("i")}]


def first_coefficients() -> Iterator[dict[str, int]]:
    """All 0 <= i <= B <= 60."""
    return ({"depth": depth, "i": i} for depth in range(61) for i in range(depth + 1))


def deep_networks(depths: Sequence[int] = (13, 16, 24)) -> Iterator[dict[str, Any]]:
    """Networks of one neuron a layer, of 13, 16 and 24 blocks."""
    random = np.random.default_rng(0)
    for depth in depths:
        vectors, values = (random.integers(-5, 6, count).astype(object) for count in (depth, depth + 1))
        yield {"eigenvectors": list(vectors.reshape(-1, 1, 1)), "eigenvalues": list(values.reshape(-1, 1))}


def computed_inverse_by_powers(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any]) -> bool:
    """[S] (4.1), as `jaxarch.spectral.algebra` computes it."""
    phi = matrix(eigenvectors)
    return same(phi @ algebra.dense(algebra.inverse_by_powers(eigenvectors)), eye(phi))


def inverse_by_powers_as_computed(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any]) -> bool:
    """[S] (4.1), as printed and as `jaxarch.spectral.algebra` computes it, for more blocks."""
    return inverse_by_powers(eigenvectors, eigenvalues) and computed_inverse_by_powers(
        eigenvectors, eigenvalues
    )


def deeper_networks() -> Iterator[dict[str, Any]]:
    """Networks of one neuron a layer, of 25, 40 and 56 blocks."""
    return deep_networks((25, 40, 56))


def computed_inverses_agree(
    eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], missing: int = 0
) -> bool:
    """(4.1), less its last `missing` terms, and (4.2) agree as `jaxarch.spectral.algebra` computes them."""
    by_powers, by_blocks = algebra.inverse_by_powers(eigenvectors), algebra.inverse_by_blocks(eigenvectors)
    for i in range(len(eigenvectors) + 1 - missing, len(eigenvectors) + 1):
        coefficient = (-1) ** i * comb(len(eigenvectors) + 1, i + 1)
        power = algebra.power(eigenvectors, i)
        by_powers = {key: block - coefficient * power.get(key, 0) for key, block in by_powers.items()}
    return by_powers.keys() == by_blocks.keys() and all(
        same(block, by_blocks[key]) for key, block in by_powers.items()
    )


def next_power_as_computed(
    eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], exponent: int, shift: int = 0
) -> bool:
    """`Phi^(n+1) = Phi^n Phi`, as `jaxarch.spectral.algebra` computes powers; `shift` is added to n + 1."""
    below, above = (algebra.dense(algebra.power(eigenvectors, n)) for n in (exponent, exponent + 1 + shift))
    return same(below @ matrix(eigenvectors), above)


def many_powers() -> Iterator[dict[str, Any]]:
    """Networks of 1 to 6 blocks, n from -40 to 40 and from there to 10^12 in both directions."""
    far = [sign * 10**k + more for k in (2, 3, 6, 12) for sign in (-1, 1) for more in (-1, 0, 1)]
    for network in (integers(depth, np.random.default_rng(depth)) for depth in range(1, 7)):
        for exponent in (*range(-40, 41), *far):
            yield {**network, "exponent": exponent}


def one_block(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], sign: int = -1) -> bool:
    """`Phi^-1 = 2 I - Phi` for the first block of a network; `sign` is the sign of Phi."""
    phi = matrix(eigenvectors[:1])
    return same(phi @ (2 * eye(phi) + sign * phi), eye(phi))


def two_blocks(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], constant: int = 3) -> bool:
    """`Phi_2^-1 = Phi_2^2 - 3 Phi_2 + constant I` for the first two blocks of a network."""
    if len(eigenvectors) < 2:
        return True
    phi = matrix(eigenvectors[:2])
    return same(phi @ (phi @ phi - 3 * phi + constant * eye(phi)), eye(phi))


def inverse_of_two_blocks(first: float, second: float, constant: float = -3.0) -> Sides:
    """`Phi_2 (Phi_2^2 - 3 Phi_2 + constant I) = I` for three layers of one neuron; [S] prints -3."""
    phi = jnp.eye(3).at[1, 0].set(first).at[2, 1].set(second)
    residual = phi @ (phi @ phi - 3 * phi + constant * jnp.eye(3)) - jnp.eye(3)
    return Sides(jnp.abs(residual).max(), jnp.zeros(()))


def power_blocks(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], shift: int = 0) -> bool:
    """[S] (B.2), (B.3): block (i, j) of Phi_B^n is `C(n, i-j) phi_{i-1} ... phi_j`, n = -2, ..., B + 2."""
    inverse = algebra.dense(algebra.inverse_by_substitution(eigenvectors))
    upwards = powers(matrix(eigenvectors), len(eigenvectors) + 2)
    return all(
        same(algebra.dense(algebra.power(eigenvectors, n + shift)), power)
        for n, power in enumerate([inverse @ inverse, inverse, *upwards], -2)
    )


def inverse_blocks(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], sign: int = -1) -> bool:
    """[S] (4.2), (B.11): the blocks of Phi_B^-1 are `(-1)^(i-j) phi_{i-1} ... phi_j`."""
    phi = matrix(eigenvectors)
    printed = {
        (i, j): (-sign) ** (i - j) * block
        for (i, j), block in algebra.inverse_by_blocks(eigenvectors).items()
    }
    return same(phi @ algebra.dense(printed), eye(phi)) and same(
        algebra.dense(algebra.inverse_by_substitution(eigenvectors)), algebra.dense(printed)
    )


NILPOTENT = Claim(
    id="S.nilpotent",
    source="[S] eq. (A.2) to (A.5)",
    statement="(Phi_B - I)^n has the blocks phi_{i-1} ... phi_j at i - j = n and no others; so its power "
    "B + 1 is 0",
    latex=r"(\Phi_B - I)^{B+1} = 0",
    verdict="holds",
    remark="Of (A.2) the proof needs the other implication than the printed one. Both are true: for any "
    "matrix X, X sum_i (-1)^i C(B+1, i+1) X^i = I - (I - X)^(B+1), which is checked as well. The first is so "
    "for all B: block (i, j) of power n + 1 is phi_{i-1} times block (i-1, j) of power n.",
    checks=(
        *identity(
            phi_minus_identity_is_nilpotent,
            {"one power less": functools.partial(phi_minus_identity_is_nilpotent, order=0)},
        ),
        Exact(
            formula_for_the_inverse_of_any_matrix,
            numbers_of_terms,
            {
                "one power less": functools.partial(formula_for_the_inverse_of_any_matrix, missing=1),
                "(X - I)^(B+1)": functools.partial(formula_for_the_inverse_of_any_matrix, sign=-1),
            },
            kind="formal",
        ),
    ),
)

INVERSE = Claim(
    id="S.inverse",
    source="[S] eq. (4.1), (A.1)",
    statement="Phi_B^-1 = sum_{i=0}^B (-1)^i C(B+1, i+1) Phi_B^i",
    latex=r"\Phi_B^{-1} = \sum_{i=0}^{B} (-1)^i \binom{B+1}{i+1} \Phi_B^i",
    verdict="holds",
    remark="For all B at once: X sum_i (-1)^i C(B+1, i+1) X^i = I - (I - X)^(B+1) for any X, by induction "
    "on B, which is checked in symbols for B and i; the rest is S.nilpotent. A theorem, not an algorithm: "
    "its terms cancel, see the errors of both formulas.",
    checks=(
        Exact(
            induction_on_the_depth,
            any_coefficient,
            {"right up to 12 blocks": functools.partial(induction_on_the_depth, up=_right_up_to_12_blocks)},
            kind="formal",
        ),
        Exact(
            ratios_of_coefficients,
            first_coefficients,
            {"right up to 12 blocks": functools.partial(ratios_of_coefficients, binomial=_wrong_after_12)},
        ),
        *identity(
            inverse_by_powers,
            {
                "C(B, i) for C(B+1, i+1)": functools.partial(
                    inverse_by_powers, binomial=lambda n, k: comb(n - 1, k - 1)
                ),
                "without its last term": functools.partial(
                    inverse_by_powers, binomial=lambda n, k: comb(n, k) * (k < n)
                ),
            },
            computed_inverse_by_powers,
        ),
        Exact(
            inverse_by_powers_as_computed,
            deep_networks,
            {"right up to 12 blocks": functools.partial(inverse_by_powers, binomial=_wrong_after_12)},
        ),
        Exact(
            computed_inverses_agree,
            deeper_networks,
            {"without its last term": functools.partial(computed_inverses_agree, missing=1)},
        ),
    ),
    see=("spectral.error-of-powers",),
)

INVERSE_ONE_BLOCK = Claim(
    id="S.inverse-one-block",
    source="[S] section 2; eq. (4.1) at B = 1",
    statement="Phi^-1 = 2 I - Phi for one block",
    latex=r"\Phi^{-1} = 2 I - \Phi",
    verdict="holds",
    checks=identity(one_block, {"a flipped sign": functools.partial(one_block, sign=1)}),
)

INVERSE_TWO_BLOCK = Claim(
    id="S.inverse-two-block",
    source="[S] section 3, before eq. (3.1); eq. (4.1) at B = 2",
    statement="Phi_2^-1 = Phi_2^2 - 3 Phi_2 + 3 I for two blocks",
    latex=r"\Phi_2^{-1} = \Phi_2^2 - 3 \Phi_2 + 3 I",
    verdict="holds as corrected",
    remark="Printed is - 3 I; then the diagonal blocks of Phi_2 Phi_2^-1 are -5 I.",
    checks=identity(two_blocks, {"as printed": functools.partial(two_blocks, constant=-3)}),
    printed=(Counterexample(inverse_of_two_blocks, {"first": 0.0, "second": 0.0}),),
)

POWERS = Claim(
    id="S.powers",
    source="[S] eq. (B.1) to (B.9)",
    statement="block (i, j) of Phi_B^n is C(n, i-j) phi_{i-1} ... phi_j",
    latex=r"[\Phi_B^n]_{ij} = \binom{n}{i-j} \phi_{i-1} \cdots \phi_j",
    verdict="holds",
    remark="[S] states it for n >= 1. It holds for n <= 0 as well, with C(-n, r) = (-1)^r C(n+r-1, r). After "
    "(B.5), 'the case j > i requires' should read j < i.",
    checks=(
        *identity(
            power_blocks, {"the coefficients of power n + 1": functools.partial(power_blocks, shift=1)}
        ),
        Exact(
            next_power_as_computed,
            many_powers,
            {"the coefficients of power n + 2": functools.partial(next_power_as_computed, shift=1)},
        ),
    ),
)

INVERSE_BLOCKS = Claim(
    id="S.inverse-blocks",
    source="[S] eq. (4.2), (B.10) to (B.12), (B.14), (B.15)",
    statement="block (i, j) of Phi_B^-1 is (-1)^(i-j) phi_{i-1} ... phi_j",
    latex=r"[\Phi_B^{-1}]_{ij} = (-1)^{i-j} \phi_{i-1} \cdots \phi_j",
    verdict="holds",
    checks=identity(inverse_blocks, {"without the signs": functools.partial(inverse_blocks, sign=1)}),
    see=("spectral.error-of-blocks",),
)

CLAIMS = (
    NILPOTENT,
    INVERSE,
    INVERSE_ONE_BLOCK,
    INVERSE_TWO_BLOCK,
    POWERS,
    INVERSE_BLOCKS,
)

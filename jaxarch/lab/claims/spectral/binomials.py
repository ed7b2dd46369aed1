r"""The identities of binomial coefficients behind the formulas of [S] (appendices B and D).

sum_{k=rho}^n (-1)^k C(k, rho) C(n, k) = (-1)^rho [n = rho]
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from math import comb

import jax.numpy as jnp

from jaxarch.lab.claims.checks.core import Claim, Counterexample, Sides
from jaxarch.lab.claims.checks.exact import Exact

LARGEST = 60
"""B up to which identities of binomial coefficients are computed."""


def alternating_sum(largest: int, rho: int, start: int = 0) -> bool:
    """[S] (B.13), (D.1): `sum_{k=0}^B (-1)^k C(B+1, k+1) = 1`, B = `largest`; (D.2) for n = B + 1."""
    terms = [(-1) ** k * comb(largest + 1, k + 1) for k in range(start, largest + 1)]
    of_all = sum((-1) ** k * comb(largest + 1, k) for k in range(largest + 2))
    return sum(terms) == 1 and of_all == 0


def weighted_sum(largest: int, rho: int, last: int = 0) -> bool:
    """[S] (B.16), (B.17): `sum_{k=rho}^B (-1)^k C(k, rho) C(B+1, k+1) = (-1)^rho`, 1 <= rho <= B."""
    terms = ((-1) ** k * comb(k, rho) * comb(largest + 1, k + 1) for k in range(rho, largest + 1))
    return not 1 <= rho <= largest + last or sum(terms) == (-1) ** rho


def product_sum(largest: int, rho: int, excluded: bool = True) -> bool:
    """[S] (B.23) corrected: `sum_{k=rho}^n (-1)^k C(k, rho) C(n, k)` is 0, but (-1)^rho at n = rho."""
    found = _product_sum(largest, rho)
    return found == ((-1) ** rho if largest == rho and excluded else 0)


def _product_sum(n: int, rho: int) -> int:
    return sum((-1) ** k * comb(k, rho) * comb(n, k) for k in range(rho, n + 1))


def inductive_step(largest: int, rho: int, last: int = 0) -> bool:
    """[S] (B.19) to (B.22): from B to B + 1, for 1 <= rho <= B; `last` = 1 takes in rho = B + 1."""
    if not 1 <= rho <= largest + last:
        return True
    whole = sum((-1) ** k * comb(k, rho) * comb(largest + 2, k + 1) for k in range(rho, largest + 2))
    return whole == (-1) ** rho + _product_sum(largest + 1, rho)


def identities_of_binomials(largest: int, rho: int) -> bool:
    """(B.13), (B.16), (B.23) and the inductive step, as corrected."""
    return all(check(largest, rho) for check in (alternating_sum, weighted_sum, product_sum, inductive_step))


def pairs() -> Iterator[dict[str, int]]:
    """All (B, rho) with 0 <= rho <= B + 1, B up to `LARGEST`."""
    return ({"largest": n, "rho": rho} for n in range(1, LARGEST + 1) for rho in range(n + 2))


def product_of_binomials(n: int, rho: int) -> Sides:
    """[S] (B.23) as printed: `sum_{k=rho}^n (-1)^k C(k, rho) C(n, k) = 0`."""
    return Sides(jnp.asarray(abs(float(_product_sum(n, rho)))), jnp.zeros(()))


BINOMIAL = Claim(
    id="S.binomial",
    source="[S] eq. (B.8), (B.13), (B.16) to (B.23), (D.1) to (D.12)",
    statement="sum_{k=0}^B (-1)^k C(B+1, k+1) = 1; sum_{k=rho}^B (-1)^k C(k, rho) C(B+1, k+1) = (-1)^rho for "
    "1 <= rho <= B; sum_{k=rho}^n (-1)^k C(k, rho) C(n, k) = 0 for n > rho and (-1)^rho for n = rho",
    latex=r"\sum_{k=\rho}^{n} (-1)^k \binom{k}{\rho} \binom{n}{k} = (-1)^\rho \, [n = \rho]",
    verdict="holds as corrected",
    remark=f"Exactly for all B and n up to {LARGEST}. (B.23) is printed for all n and rho; at n = rho it is "
    "(-1)^rho: (D.12) sums one term there, to 1. So the induction (B.19) to (B.22) does not reach "
    "rho = B + 1, where it has no hypothesis either; there (B.16) is one term, (-1)^(B+1). The lower limit m "
    "in (D.11) is rho.",
    checks=(
        Exact(
            identities_of_binomials,
            pairs,
            {
                "(B.13) without its first term": functools.partial(alternating_sum, start=1),
                "(B.16) at rho = B + 1": functools.partial(weighted_sum, last=1),
                "(B.23) as printed": functools.partial(product_sum, excluded=False),
                "the inductive step at rho = B + 1": functools.partial(inductive_step, last=1),
            },
        ),
    ),
    printed=(Counterexample(product_of_binomials, {"n": 1, "rho": 1}),),
)

CLAIMS = (BINOMIAL,)

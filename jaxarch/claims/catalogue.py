"""All claims by id, and their verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.claims import (
    convergence,
    graphs,
    mirror_descent,
    pruning,
    spectral,
    spectral_networks,
    two_temperature,
)
from jaxarch.claims.core import CASES, Claim, Outcome, judge
from jaxarch.errors import ArgumentError, did_you_mean

CLAIMS: dict[str, Claim] = {
    claim.id: claim
    for module in (
        two_temperature,
        convergence,
        mirror_descent,
        pruning,
        spectral,
        spectral_networks,
        graphs,
    )
    for claim in module.CLAIMS
}


def chosen(ids: Iterable[str] | str | None = None) -> list[Claim]:
    """The claims of these ids, or all.

    Raises:
      ArgumentError: an id that is unknown.
    """
    if ids is not None and not isinstance(ids, Iterable):
        raise ArgumentError(f"claim: expected ids such as 'D.lemma-4.2', got {ids!r}")
    ids = list(CLAIMS) if ids is None else [ids] if isinstance(ids, str) else list(ids)
    for name in ids:
        if name not in CLAIMS:
            raise ArgumentError(f"claim: unknown {name!r}; {did_you_mean(name, CLAIMS)}")
    return [CLAIMS[name] for name in ids]


def outcomes(
    ids: Iterable[str] | str | None = None, *, cases: int = CASES, key: Array | None = None
) -> Iterator[Outcome]:
    """Each claim's outcome as soon as it is known, in the catalogue's order."""
    key = jax.random.key(0) if key is None else key
    if not isinstance(key, Array) or not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise ArgumentError(f"key: expected one as of jax.random.key(0), got {key!r}")
    for claim in chosen(ids):
        # The cases of a claim do not depend on which others are checked.
        yield judge(claim, jax.random.fold_in(key, list(CLAIMS).index(claim.id)), cases)

"""How many of the arrays that a scan takes are constants, and how many it carries, in both forms of JAX."""

from __future__ import annotations

from typing import NamedTuple

from jax.extend.core import JaxprEqn

SCAN_COUNTS = ("num_consts", "num_carry", "ft_in", "ft_out")
"""The parameters of a scan that say so: two numbers, or from JAX 0.11 on trees of what it takes and makes."""


class ScanCounts(NamedTuple):
    """A scan takes constants, then what it carries, then rows; it makes what it carries, then rows.

    Attributes:
      consts: how many arrays it takes that are the same in all rounds.
      carries: how many each round hands to the next one.
    """

    consts: int
    carries: int


def scan_counts(eqn: JaxprEqn) -> ScanCounts:
    """The counts of a scan's equation."""
    if "ft_in" in eqn.params:
        consts, carry, _ = eqn.params["ft_in"].unpack()
        return ScanCounts(len(consts), len(carry))
    return ScanCounts(eqn.params["num_consts"], eqn.params["num_carry"])

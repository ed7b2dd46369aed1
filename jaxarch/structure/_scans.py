"""Counts of a scan's constants and carries, in both forms that JAX has used."""

from __future__ import annotations

from typing import NamedTuple

from jax.extend.core import JaxprEqn

SCAN_COUNTS = ("num_consts", "num_carry", "ft_in", "ft_out")
"""The parameters of a scan with these counts: two numbers, or (from JAX 0.11) trees of inputs and outputs."""


class ScanCounts(NamedTuple):
    """The counts of a scan, which takes constants, carries and rows, and makes carries and rows.

    Attributes:
      consts: the number of inputs that are the same in all rounds.
      carries: the number of arrays that each round hands to the next.
    """

    consts: int
    carries: int


def scan_counts(eqn: JaxprEqn) -> ScanCounts:
    """Return the counts of a scan's equation."""
    if "ft_in" in eqn.params:
        consts, carry, _ = eqn.params["ft_in"].unpack()
        return ScanCounts(len(consts), len(carry))
    return ScanCounts(eqn.params["num_consts"], eqn.params["num_carry"])

"""Numbers of parameters and diagonal blocks of a spectral network ([S] sections 4 and 5)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxarch.lab.claims.checks.core import Claim, Counterexample, Sides
from jaxarch.lab.claims.checks.exact import Exact
from jaxarch.lab.claims.checks.exact_networks import DEPTHS, identity
from jaxarch.spectral import algebra, parameter_counts


def width_lists() -> Iterator[dict[str, Any]]:
    """A thousand networks of 2 to 13 layers of 1 to 300 neurons, those of equal widths, and a wide one."""
    random = np.random.default_rng(0)
    yield {"widths": (4, 300, 4)}
    for depth in DEPTHS:
        for _ in range(80):
            yield {"widths": tuple(int(n) for n in random.integers(1, 301, depth + 1))}
        yield from ({"widths": (n,) * (depth + 1)} for n in range(1, 7))


def counts_of_parameters(
    widths: tuple[int, ...], smallest: int = 4, shallowest: int = 2, most: int = 1
) -> bool:
    """`parameter_counts` counts the entries of the blocks, and the spectral count is smaller where claimed.

    The claim is for at most `most` different widths, each at least `smallest`, and at least `shallowest`
    blocks.
    """
    phi = [np.zeros((n, m), bool) for m, n in itertools.pairwise(widths)]
    values = [np.zeros(n, bool) for n in widths]
    below = [np.zeros((n, m), bool) for m, n in itertools.combinations(widths, 2)]
    spectral, direct = sum(block.size for block in phi + values), sum(block.size for block in below)
    counted = parameter_counts(widths)
    if (counted["spectral"], counted["direct"]) != (spectral, direct):
        return False
    equal = len(set(widths)) <= most and min(widths) >= smallest and len(phi) >= shallowest
    return spectral < direct if equal else True


PARAMETER_COUNT = Claim(
    id="S.parameter-count",
    source="[S] section 5, figure 8",
    statement="spectral networks have sum N_i N_{i+1} + sum N_i parameters, direct ones with skips "
    "sum_{i<j} N_i N_j; with three layers or more, all of the same width >= 4, the spectral are fewer",
    latex=r"\sum_i N_i N_{i+1} + \sum_i N_i \quad \text{against} \quad \sum_{i<j} N_i N_j",
    verdict="holds",
    remark="For unequal widths they may be more: the 3-300-1 network of [S] appendix E has 1,504 spectral "
    "parameters, 1,501 with L_1 held, and 1,203 direct ones, all skips included.",
    checks=(
        Exact(
            counts_of_parameters,
            width_lists,
            {
                "with two layers": functools.partial(counts_of_parameters, shallowest=1),
                "of width 3": functools.partial(counts_of_parameters, smallest=3),
                "of two widths": functools.partial(counts_of_parameters, most=2),
            },
        ),
    ),
)


def diagonal_blocks(
    eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], more_than_depth: int = 1
) -> bool:
    """Lambda_B has B + 1 blocks."""
    return len(algebra.eigenvalue_blocks(eigenvalues)) == len(eigenvectors) + more_than_depth


def number_of_diagonal_blocks(widths: tuple[int, ...], more_than_depth: int = 0) -> Sides:
    """The number of blocks of Lambda_B is B + `more_than_depth`; [S] prints B."""
    blocks = algebra.eigenvalue_blocks([np.zeros(n) for n in widths])
    depth = len(widths) - 1
    return Sides(jnp.asarray(abs(len(blocks) - depth - more_than_depth) + 0.0), jnp.zeros(()))


DIAGONAL_BLOCKS = Claim(
    id="S.fig-5-text",
    source="[S] section 4, on figure 5",
    statement="Lambda_B has B + 1 diagonal blocks",
    latex=r"\Lambda_B = \mathrm{diag}(L_1, \ldots, L_{B+1})",
    verdict="holds as corrected",
    remark="Printed is B, and j = 1, ..., B + 1 in the next sentence.",
    checks=identity(diagonal_blocks, {"as printed": functools.partial(diagonal_blocks, more_than_depth=0)}),
    printed=(Counterexample(number_of_diagonal_blocks, {"widths": (1, 1)}),),
)

CLAIMS = (
    PARAMETER_COUNT,
    DIAGONAL_BLOCKS,
)

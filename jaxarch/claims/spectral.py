r"""Claims on the algebra of spectral networks ([S] sections 2 to 4, appendices A to D).

Each identity is checked twice, by the same function: in symbols that do not commute, one block each, which
proves it for blocks of all sizes at every depth that is listed; and on integers, with blocks of 1 to 3
neurons, which also tests that `jaxarch.spectral.algebra` computes what is stated.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import comb
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch.claims.core import Claim, Counterexample, Exact, Inequality, Sides
from jaxarch.claims.cube import Cube, cube, normal
from jaxarch.claims.free_algebra import symbol
from jaxarch.spectral import algebra, error_bounds
from jaxarch.spectral.algebra import Blocks
from jaxarch.spectral.readout import parameter_counts

DEPTHS = range(1, 13)
"""B, for which every identity is proved."""

LARGEST = 60
"""B up to which identities of binomial coefficients are computed."""

# Cases -----------------------------------------------------------------------------------------------


def symbols(depth: int) -> dict[str, list[np.ndarray]]:
    """A network of 1 x 1 blocks, all of them symbols: it stands for blocks of all sizes."""
    return {
        "eigenvectors": [symbol(f"phi{i}", 1, 1) for i in range(1, depth + 1)],
        "eigenvalues": [symbol(f"L{i}", 1) for i in range(1, depth + 2)],
    }


def integers(depth: int, random: np.random.Generator) -> dict[str, list[np.ndarray]]:
    """A network of blocks of 1 to 3 neurons, with integer entries of at most 5."""
    widths = random.integers(1, 4, depth + 1)
    return {
        "eigenvectors": [
            random.integers(-5, 6, (n, m)).astype(object) for m, n in itertools.pairwise(widths)
        ],
        "eigenvalues": [random.integers(-5, 6, n).astype(object) for n in widths],
    }


def symbol_networks() -> Iterator[dict[str, Any]]:
    """A network of symbols of each depth."""
    return map(symbols, DEPTHS)


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
    """Checks of an identity of networks, in symbols and on integers.

    Args:
      holds: the identity, of `eigenvectors` and `eigenvalues`.
      mutations: broken ones.
      library: the same for what this library computes with matrices, where symbols do not go.
    """

    @functools.wraps(holds)
    def on_integers(**case: Any) -> bool:
        return holds(**case) and (library is None or library(**case))

    return (
        Exact(holds, symbol_networks, mutations, kind="formal"),
        Exact(on_integers, integer_networks, mutations),
    )


def same(first: Any, second: Any) -> bool:
    """Whether two arrays of objects are equal."""
    return bool(np.all(first == second))


def matrix(eigenvectors: Sequence[Any]) -> Any:
    """Phi_B."""
    return algebra.dense(algebra.eigenvector_blocks(eigenvectors))


def eye(square: Any) -> Any:
    """The identity of a matrix's size."""
    return np.eye(len(square), dtype=object)


def powers(square: Any, last: int) -> list[Any]:
    """Its powers 0, ..., last by repeated products."""
    return list(itertools.accumulate(range(last), lambda power, _: power @ square, initial=eye(square)))


# Powers and inverses of Phi_B ------------------------------------------------------------------------


def phi_minus_identity_is_nilpotent(
    eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], order: int = 1
) -> bool:
    """`(Phi_B - I)^n` has blocks at i - j = n alone: `phi_{i-1} ... phi_j`, and none for n = B + `order`."""
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


def formula_for_the_inverse_of_any_matrix(terms: int, missing: int = 0) -> bool:
    """`X sum_{i=0}^B (-1)^i C(B+1, i+1) X^i = I - (I - X)^{B+1}` for any X; `terms` is B."""
    x = symbol("X", 1, 1)
    left = x @ sum((-1) ** i * comb(terms + 1, i + 1) * power for i, power in enumerate(powers(x, terms)))
    return same(left, eye(x) - powers(eye(x) - x, terms + 1 - missing)[-1])


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


def computed_inverse_by_powers(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any]) -> bool:
    """The same, as `jaxarch.spectral.algebra` computes it."""
    phi = matrix(eigenvectors)
    return same(phi @ algebra.dense(algebra.inverse_by_powers(eigenvectors)), eye(phi))


def one_block(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], sign: int = -1) -> bool:
    """`Phi^-1 = 2 I - Phi` for the first block of a network; `sign` is that of Phi."""
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
    "matrix X, X sum_i (-1)^i C(B+1, i+1) X^i = I - (I - X)^(B+1), which is checked as well.",
    checks=(
        *identity(
            phi_minus_identity_is_nilpotent,
            {"one power less": functools.partial(phi_minus_identity_is_nilpotent, order=0)},
        ),
        Exact(
            formula_for_the_inverse_of_any_matrix,
            lambda: ({"terms": depth} for depth in DEPTHS),
            {"one power less": functools.partial(formula_for_the_inverse_of_any_matrix, missing=1)},
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
    remark="A theorem, not an algorithm: its terms cancel, see the errors of both formulas.",
    checks=identity(
        inverse_by_powers,
        {
            "C(B, i) for C(B+1, i+1)": functools.partial(
                inverse_by_powers, binomial=lambda n, k: comb(n - 1, k - 1)
            ),
        },
        computed_inverse_by_powers,
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
    checks=identity(
        power_blocks, {"the coefficients of power n + 1": functools.partial(power_blocks, shift=1)}
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

# A_B -------------------------------------------------------------------------------------------------


def printed_connections(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], sign: int = -1) -> Blocks:
    """[S] (4.3) word by word, with matrices L_i, that need not be diagonal for it."""
    values = algebra.eigenvalue_blocks(eigenvalues)
    blocks = {}
    for i in range(2, len(eigenvalues) + 1):
        phi = eigenvectors[i - 2]
        block = phi @ values[i - 1, i - 1] - values[i, i] @ phi
        blocks[i, i - 1] = block
        for j in range(i - 2, 0, -1):
            block = block @ eigenvectors[j - 1]
            blocks[i, j] = sign ** (i - 1 - j) * block
    return blocks


def printed_adjacency(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], sign: int = -1) -> Any:
    """A_B by (4.3), with the eigenvalues on its diagonal (C.3)."""
    below = printed_connections(eigenvectors, eigenvalues, sign)
    return algebra.dense({**algebra.eigenvalue_blocks(eigenvalues), **below})


def adjacency_blocks(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], sign: int = -1) -> bool:
    """[S] (4.3), (C.3): they are the blocks of `Phi_B Lambda_B Phi_B^-1`."""
    spectrum = algebra.dense(algebra.eigenvalue_blocks(eigenvalues))
    product = matrix(eigenvectors) @ spectrum @ algebra.dense(algebra.inverse_by_substitution(eigenvectors))
    return same(product, printed_adjacency(eigenvectors, eigenvalues, sign))


def computed_adjacency(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any]) -> bool:
    """`algebra.adjacency` and `algebra.apply_adjacency` are what is printed."""
    printed = printed_adjacency(eigenvectors, eigenvalues)
    columns = np.split(eye(printed), np.cumsum([len(values) for values in eigenvalues])[:-1])
    applied = np.concatenate(algebra.apply_adjacency(eigenvectors, eigenvalues, columns))
    return same(printed, algebra.dense(algebra.adjacency(eigenvectors, eigenvalues))) and same(
        printed, applied
    )


def columns_are_eigenvectors(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any]) -> bool:
    """`A_B Phi_B = Phi_B Lambda_B`."""
    phi, spectrum = matrix(eigenvectors), algebra.dense(algebra.eigenvalue_blocks(eigenvalues))
    return same(printed_adjacency(eigenvectors, eigenvalues) @ phi, phi @ spectrum)


def _rows_are_eigenvectors(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any]) -> bool:
    phi, spectrum = matrix(eigenvectors), algebra.dense(algebra.eigenvalue_blocks(eigenvalues))
    return same(phi @ printed_adjacency(eigenvectors, eigenvalues), spectrum @ phi)


def shift_changes_nothing(
    eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], unshifted: int = 0
) -> bool:
    """`Lambda + I` has the W_ij of Lambda; the first `unshifted` layers are left as they are."""
    shifted = [*eigenvalues[:unshifted], *(values + 1 for values in eigenvalues[unshifted:])]
    before, after = (printed_connections(eigenvectors, values) for values in (eigenvalues, shifted))
    return all(same(before[key], after[key]) for key in before)


ADJACENCY_BLOCKS = Claim(
    id="S.adjacency-blocks",
    source="[S] eq. (3.1) to (3.3), (4.3), (C.1) to (C.6); section 2 at B = 1",
    statement="below the diagonal, A_B = Phi_B Lambda_B Phi_B^-1 has W_ij = (-1)^(i-1-j) (phi_{i-1} L_{i-1} "
    "- L_i phi_{i-1}) phi_{i-2} ... phi_j; on it, L_i",
    latex=r"W_{ij} = (-1)^{i-1-j} (\phi_{i-1} L_{i-1} - L_i \phi_{i-1}) \phi_{i-2} \cdots \phi_j",
    verdict="holds",
    remark="The L_i need not be diagonal.",
    checks=identity(
        adjacency_blocks,
        {"without the signs": functools.partial(adjacency_blocks, sign=1)},
        computed_adjacency,
    ),
)

SPECTRUM = Claim(
    id="S.spectrum",
    source="[S] sections 2 and 4",
    statement="A_B Phi_B = Phi_B Lambda_B: the entries of Lambda_B are the eigenvalues of A_B, with "
    "multiplicities, and the columns of Phi_B its eigenvectors",
    latex=r"A_B \Phi_B = \Phi_B \Lambda_B",
    verdict="holds",
    remark="All eigenvalues are real, and A_B is diagonalisable, whatever the parameters: adjacency matrices "
    "of feed-forward networks without self-loops are nilpotent and so are none of these, but for W = 0.",
    checks=identity(columns_are_eigenvectors, {"rows for columns": _rows_are_eigenvectors}),
)

SHIFT = Claim(
    id="S.shift",
    source="follows from [S] eq. (4.3)",
    statement="one constant added to all eigenvalues changes no W_ij",
    latex=r"W_{ij}(\Lambda + c I) = W_{ij}(\Lambda)",
    verdict="holds",
    remark="So under the feed-forward rule no size of the eigenvalues alone says how non-linear a network "
    "is, as [S] appendix E takes that of L_1 and L_2 to do; those of one layer must be held, as L_1 = 0 is.",
    checks=identity(
        shift_changes_nothing, {"not to L_1": functools.partial(shift_changes_nothing, unshifted=1)}
    ),
)


def determinant_at_the_perceptron_start(weights: tuple[float, ...]) -> Sides:
    """`0 < |det A_B|` at L_1 = ... = L_B = 0, L_{B+1} = I, one neuron a layer, phi_i = `weights[i - 1]`."""
    vectors = [jnp.full((1, 1), weight) for weight in weights]
    values = [jnp.zeros(1)] * len(weights) + [jnp.ones(1)]
    determinant = jnp.linalg.det(algebra.dense(algebra.adjacency(vectors, values)))
    return Sides(jnp.asarray(1e-30), jnp.abs(determinant))


PARABOLIC = Claim(
    id="S.parabolic",
    source="[S] section 4, after eq. (4.3)",
    statement="A_B belongs to the complement, in GL(N), of the parabolic subgroup",
    latex=r"A_B \in \mathrm{GL}(N, \mathbb{R}) \setminus P",
    verdict="refuted",
    remark="A_B is in GL(N) only if no eigenvalue is 0, and all but the last layer's are at the authors' own "
    "start. If it is, it is block lower triangular, and these matrices are themselves a parabolic subgroup, "
    "the stabiliser of a flag: A_B is in that one, and in the complement of the upper triangular one as soon "
    "as any W_ij is not 0.",
    printed=(Counterexample(determinant_at_the_perceptron_start, {"weights": (1.0,)}),),
    see=("S.spectrum",),
)

# Binomial coefficients -------------------------------------------------------------------------------


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

# Counts ----------------------------------------------------------------------------------------------


def width_lists() -> Iterator[dict[str, Any]]:
    """A thousand networks of 2 to 13 layers of 1 to 300 neurons, and those of equal widths."""
    random = np.random.default_rng(0)
    for depth in DEPTHS:
        for _ in range(80):
            yield {"widths": tuple(int(n) for n in random.integers(1, 301, depth + 1))}
        yield from ({"widths": (n,) * (depth + 1)} for n in range(1, 7))


def counts_of_parameters(widths: tuple[int, ...], smallest: int = 4, shallowest: int = 2) -> bool:
    """`parameter_counts` counts the entries of the blocks; which is smaller, for equal widths."""
    phi = [np.zeros((n, m), bool) for m, n in itertools.pairwise(widths)]
    values = [np.zeros(n, bool) for n in widths]
    below = [np.zeros((n, m), bool) for m, n in itertools.combinations(widths, 2)]
    spectral, direct = sum(block.size for block in phi + values), sum(block.size for block in below)
    counted = parameter_counts(widths)
    if (counted["spectral"], counted["direct"]) != (spectral, direct):
        return False
    equal = len(set(widths)) == 1 and widths[0] >= smallest and len(phi) >= shallowest
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

# Floating point --------------------------------------------------------------------------------------


def _relative_errors(
    phi: Sequence[Array], formula: Callable[..., Blocks], bounds: Callable[..., Blocks], factor: float
) -> Sides:
    """The largest error of a formula in float32, in units of its bound."""
    vectors = [block.astype(jnp.float32) for block in phi]
    # All products of float32 numbers are kept in full, on accelerators too.
    with jax.default_matmul_precision("highest"):
        found, bound = formula(vectors), bounds(vectors)
    reference = [block.astype(jnp.float64) for block in vectors]
    exact, off = algebra.inverse_by_blocks(reference), error_bounds.inverse_by_blocks_error(reference)

    def largest(errors: Blocks) -> Array:
        ratios = [jnp.where(errors[key] > 0, errors[key] / bound[key], 0).max() for key in exact]
        return jnp.stack(ratios).max()

    errors = {key: jnp.abs(found[key].astype(jnp.float64) - exact[key]) for key in exact}
    return Sides(largest(errors), jnp.asarray(factor), largest(off))


def error_of_powers(
    bounds: Callable[..., Blocks] = error_bounds.inverse_by_powers_error, factor: float = 1.0, **phi: Array
) -> Sides:
    """Formula (4.1) in float32 keeps to `factor` times `error_bounds.inverse_by_powers_error`."""
    return _relative_errors(list(phi.values()), algebra.inverse_by_powers, bounds, factor)


def error_of_blocks(factor: float = 1.0, **phi: Array) -> Sides:
    """(4.2) and substitution in float32 keep to `factor` times `error_bounds.inverse_by_blocks_error`."""
    chains, substituted = (
        _relative_errors(list(phi.values()), formula, error_bounds.inverse_by_blocks_error, factor)
        for formula in (algebra.inverse_by_blocks, algebra.inverse_by_substitution)
    )
    return Sides(jnp.maximum(chains.left, substituted.left), chains.right, chains.rounding)


def float_networks(*widths: int) -> Cube:
    """Networks of these widths with normal entries."""
    return cube(**{f"phi{i}": normal(1.0, (n, m)) for i, (m, n) in enumerate(itertools.pairwise(widths), 1)})


ERROR_OF_POWERS = Claim(
    id="spectral.error-of-powers",
    source="this library; of [S] eq. (4.1)",
    statement="in floating point, sum_i (-1)^i C(B+1, i+1) Phi^i is off by at most gamma_{nB+B+2} sum_i "
    "C(B+1, i+1) |Phi|^i, elementwise, n the number of neurons",
    latex=r"\gamma_{nB+B+2} \sum_{i=0}^{B} \binom{B+1}{i+1} |\Phi_B|^i",
    verdict="holds",
    assumptions="no overflow or underflow; gamma_k = k u / (1 - k u), u the unit roundoff",
    remark="In float32, against float64, whose own error is added.",
    checks=(
        Inequality(
            error_of_powers,
            float_networks(1, 2, 1, 1),
            {
                "a twentieth of it": functools.partial(error_of_powers, factor=0.05),
                "the bound of (4.2)": functools.partial(
                    error_of_powers, bounds=error_bounds.inverse_by_blocks_error
                ),
            },
        ),
    ),
    see=("spectral.error-of-blocks",),
)

ERROR_OF_BLOCKS = Claim(
    id="spectral.error-of-blocks",
    source="this library; of [S] eq. (4.2)",
    statement="in floating point, a chain of products phi_{i-1} ... phi_j is off by at most gamma_K "
    "|phi_{i-1}| ... |phi_j|, elementwise, K the sum of its inner dimensions; so is forward substitution",
    latex=r"\gamma_K \, |\phi_{i-1}| \cdots |\phi_j|",
    verdict="holds",
    assumptions="no overflow or underflow; gamma_k = k u / (1 - k u), u the unit roundoff",
    remark="In float32, against float64, whose own error is added.",
    checks=(
        Inequality(
            error_of_blocks,
            float_networks(2, 1, 2, 1),
            {"10% too small": functools.partial(error_of_blocks, factor=0.9)},
        ),
    ),
)

CLAIMS = (
    NILPOTENT,
    INVERSE,
    INVERSE_ONE_BLOCK,
    INVERSE_TWO_BLOCK,
    POWERS,
    INVERSE_BLOCKS,
    ADJACENCY_BLOCKS,
    SPECTRUM,
    SHIFT,
    PARABOLIC,
    BINOMIAL,
    PARAMETER_COUNT,
    DIAGONAL_BLOCKS,
    ERROR_OF_POWERS,
    ERROR_OF_BLOCKS,
)

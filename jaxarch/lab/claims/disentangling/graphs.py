"""Layered networks as graphs, and the spectra of their Laplacians ([D] section 5, footnotes 14 and 15).

L = I - D^-1/2 A D^-1/2,        D_ii = sum_j |A_ij|
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch.lab.claims.checks.core import EPS, Claim, Counterexample, Sides
from jaxarch.lab.claims.checks.cube import Field, choice, cube, uniform
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.exact import Exact
from jaxarch.structure import graphs


def eigenvalue_error(nodes: int) -> float:
    """Bound generously the error of a symmetric eigenvalue solver, for matrices of norm at most 2."""
    return 100 * nodes * EPS


def weights(*shape: int) -> Field:
    """Return a field of weights from 0 to 2, half of them 0."""
    return Field(lambda u: jnp.maximum(4 * u - 2, 0), "in [0, 2]", shape)


def integer_graphs() -> Iterator[dict[str, Any]]:
    """Signed graphs of 1 to 6 nodes, self-loops and isolated nodes among them, and a vector on the nodes."""
    random = np.random.default_rng(0)
    for _ in range(2000):
        nodes = random.integers(1, 7)
        half = np.triu(random.integers(-3, 4, (nodes, nodes)) * random.integers(0, 2, (nodes, nodes)))
        yield {"graph": half + np.triu(half, 1).T, "vector": random.integers(-5, 6, nodes)}


def quadratic_forms(
    graph: np.ndarray, vector: np.ndarray, degrees: Callable[[np.ndarray], np.ndarray] = np.abs
) -> bool:
    """`y^T (D - A) y` and `y^T (D + A) y` are sums of nonnegative terms; that is `0 <= L <= 2`."""
    total = np.diag(degrees(graph).sum(axis=1))
    loops = np.diag(graph)
    pairs = np.triu(np.abs(graph), 1)
    differences, sums = (
        np.square(vector[:, None] - sign * np.sign(graph) * vector[None, :]) for sign in (1, -1)
    )
    below = (pairs * differences).sum() + ((np.abs(loops) - loops) * vector**2).sum()
    above = (pairs * sums).sum() + ((np.abs(loops) + loops) * vector**2).sum()
    return bool(vector @ (total - graph) @ vector == below and vector @ (total + graph) @ vector == above)


def range_of_spectrum(
    first: Array,
    second: Array,
    loops: Array,
    largest: float = 2.0,
    smallest: float = 0.0,
    lower: float = 0.0,
) -> Sides:
    """The smallest eigenvalue of a network's graph is 0, the largest at most 2.

    `lower` is subtracted from all weights.
    """
    adjacency = graphs.adjacency([first - lower, second - lower], self_loops=False)
    adjacency = adjacency + loops * jnp.eye(len(adjacency))
    eigenvalues = jnp.linalg.eigvalsh(graphs.normalized_laplacian(adjacency))
    left = jnp.maximum(eigenvalues[-1] / largest, 1 + jnp.abs(eigenvalues[0] - smallest))
    return Sides(left, jnp.ones(()), eigenvalue_error(len(eigenvalues)))


LAPLACIAN_RANGE = Claim(
    id="graph.laplacian-range",
    source="[D] section 5, figure 5",
    statement="the normalized Laplacian I - D^-1/2 A D^-1/2, D_ii = sum_j |A_ij|, of a symmetric A has its "
    "spectrum in [0, 2]; if no weight is negative, 0 is in it",
    latex=r"\mathrm{spec}(I - D^{-1/2} A D^{-1/2}) \subset [0, 2]",
    verdict="holds",
    assumptions="the rows of isolated nodes are 0, their diagonal entry too",
    remark="With y = D^-1/2 x: x^T L x = sum_{i<j} |A_ij| (y_i - sign(A_ij) y_j)^2 + sum_i (|A_ii| - A_ii) "
    "y_i^2, and x^T (2 - L) x the same with - A for A, which is checked exactly. Without self-loops a "
    "layered network is bipartite, and 2 is attained.",
    checks=(
        Exact(
            quadratic_forms,
            integer_graphs,
            {"degrees sum_j A_ij": functools.partial(quadratic_forms, degrees=np.asarray)},
        ),
        Inequality(
            range_of_spectrum,
            cube(first=weights(3, 2), second=weights(2, 3), loops=choice(0.0, 1.0)),
            {
                "at most 1.99": functools.partial(range_of_spectrum, largest=1.99),
                "the smallest is 1/100": functools.partial(range_of_spectrum, smallest=0.01),
                "0 also where weights are negative": functools.partial(range_of_spectrum, lower=1.0),
            },
        ),
    ),
)


def relabelling(first: Array, second: Array, keys: Array, both: bool = True) -> Sides:
    """Hidden units in another order have the same spectrum; `keys` sort them, in both matrices or in one."""
    order = jnp.argsort(keys)
    moved = [first[order], second[:, order] if both else second]
    before, after = graphs.spectrum([first, second]), graphs.spectrum(moved)
    return Sides(jnp.abs(before - after).max(), jnp.asarray(eigenvalue_error(len(before))))


def relabelled_adjacency(first: Array, second: Array, keys: Array, both: bool = True) -> Sides:
    """The adjacency with hidden units in another order is `P A P^T`, to the last bit."""
    order = jnp.argsort(keys)
    outputs, hidden = second.shape
    nodes = jnp.concatenate(
        [
            jnp.arange(outputs),
            outputs + order,
            jnp.arange(outputs + hidden, outputs + hidden + first.shape[1]),
        ]
    )
    before = graphs.adjacency([first, second])[nodes][:, nodes]
    after = graphs.adjacency([first[order], second[:, order] if both else second])
    return Sides(jnp.abs(before - after).max(), jnp.zeros(()))


_HIDDEN_ORDER = cube(first=weights(3, 2), second=weights(2, 3), keys=uniform(0.0, 1.0, (3,)))

RELABELLING = Claim(
    id="graph.relabelling",
    source="[D] footnote 15",
    statement="the spectrum does not depend on how hidden units are numbered",
    latex=r"\mathrm{spec}(L(P A P^T)) = \mathrm{spec}(L(A))",
    verdict="holds",
    remark="The converse is false: equal spectra do not tell that networks are the same up to the numbers "
    "of their hidden units. Read from its outputs to its inputs, (W_2^T, W_1^T) for (W_1, W_2), a network "
    "has the same spectrum.",
    checks=tuple(
        Inequality(statement, _HIDDEN_ORDER, {"W_1 alone": functools.partial(statement, both=False)})
        for statement in (relabelling, relabelled_adjacency)
    ),
)


def block_adjacency(first: Array, second: Array) -> Array:
    """Return the matrix of [D] footnote 14, corrected: `[[1, W_2, 0], [W_2^T, 1, W_1], [0, W_1^T, 1]]`."""
    (hidden, inputs), outputs = first.shape, len(second)
    return jnp.block(
        [
            [jnp.eye(outputs), second, jnp.zeros((outputs, inputs))],
            [second.T, jnp.eye(hidden), first],
            [jnp.zeros((inputs, outputs)), first.T, jnp.eye(inputs)],
        ]
    )


def printed_block_adjacency(first: Array, second: Array) -> Array:
    """Return the matrix as [D] footnote 14 prints it, `A_3 = [W_1^T, 0, 1]`, for layers of equal width."""
    zero, one = jnp.zeros_like(first), jnp.eye(len(first))
    return jnp.block([[one, second, zero], [second.T, one, first], [first.T, zero, one]])


def adjacency_is_symmetric(
    first: Array, second: Array, blocks: Callable[[Array, Array], Array] = block_adjacency
) -> Sides:
    """The block adjacency is symmetric, and equal to the one that `graphs.adjacency` builds."""
    found = blocks(first, second)
    built = graphs.adjacency([first, second])
    return Sides(jnp.maximum(jnp.abs(found - found.T).max(), jnp.abs(found - built).max()), jnp.zeros(()))


def printed_asymmetry(first: tuple[tuple[float, ...], ...], second: tuple[tuple[float, ...], ...]) -> Sides:
    """`|A - A^T| <= 0` for the printed matrix."""
    found = printed_block_adjacency(jnp.asarray(first), jnp.asarray(second))
    return Sides(jnp.abs(found - found.T).max(), jnp.zeros(()))


FOOTNOTE_14 = Claim(
    id="graph.footnote-14",
    source="[D] footnote 14",
    statement="the block adjacency is [[1, W_2, 0], [W_2^T, 1, W_1], [0, W_1^T, 1]], symmetric",
    latex=r"A = \begin{pmatrix} 1 & W_2 & 0 \\ W_2^T & 1 & W_1 \\ 0 & W_1^T & 1 \end{pmatrix}",
    verdict="holds as corrected",
    remark="Printed is A_3 = [W_1^T, 0, 1]: not symmetric unless W_1 = 0, and no matrix at all unless "
    "output and hidden layer are equally wide.",
    checks=(
        Inequality(
            adjacency_is_symmetric,
            cube(first=weights(3, 3), second=weights(3, 3)),
            {"as printed": functools.partial(adjacency_is_symmetric, blocks=printed_block_adjacency)},
        ),
    ),
    printed=(Counterexample(printed_asymmetry, {"first": ((1.0,),), "second": ((1.0,),)}),),
)

CLAIMS = (
    LAPLACIAN_RANGE,
    RELABELLING,
    FOOTNOTE_14,
)

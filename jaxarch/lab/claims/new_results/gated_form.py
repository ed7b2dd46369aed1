r"""The gated form of spectral networks: its bundles, its spectrum, and its cost (docs/theory.md).

A'_B = Lambda_B Phi_B^-1
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch.lab.claims.checks.core import Claim, Sides
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.drawn_networks import all_of, kinked, networks, parts, residual, whole
from jaxarch.lab.claims.checks.exact import Exact
from jaxarch.lab.claims.checks.exact_networks import (
    chain,
    eye,
    identity,
    integer_networks,
    matrix,
    powers,
    same,
    symbol_networks,
)
from jaxarch.lab.claims.checks.free_algebra import symbol
from jaxarch.lab.claims.new_results.forward_substitution import multiply_adds, symbolic_widths
from jaxarch.lab.claims.spectral.counts import width_lists
from jaxarch.spectral import Method, algebra, feedforward, parameter_counts
from jaxarch.spectral.algebra import Blocks

CHARACTERISTIC_UP_TO = 12
"""Largest number of neurons of networks whose characteristic polynomials are computed."""


def gated_bundles(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], sign: int = -1) -> Blocks:
    """Compute `W_ij = (-1)^(i-j) L_i phi_{i-1} ... phi_j` literally; `sign` takes the place of -1."""
    blocks = {}
    for i, own in enumerate(eigenvalues[1:], 2):
        block = own[:, None] * eigenvectors[i - 2]
        for j in range(i - 1, 0, -1):
            blocks[i, j] = sign ** (i - j) * block
            if j > 1:
                block = block @ eigenvectors[j - 2]
    return blocks


def gated_adjacency(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], sign: int = -1) -> Any:
    """Compute A'_B from its bundles, with the eigenvalues on its diagonal."""
    bundles = gated_bundles(eigenvectors, eigenvalues, sign)
    return algebra.dense({**algebra.eigenvalue_blocks(eigenvalues), **bundles})


def gated_blocks(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], sign: int = -1) -> bool:
    """The bundles are the blocks of the matrix A' for which `A' Phi = Lambda`."""
    spectrum = algebra.dense(algebra.eigenvalue_blocks(eigenvalues))
    return same(gated_adjacency(eigenvectors, eigenvalues, sign) @ matrix(eigenvectors), spectrum)


def computed_gated_blocks(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any]) -> bool:
    """`algebra.adjacency` and `algebra.apply_adjacency` have these blocks."""
    printed = gated_adjacency(eigenvectors, eigenvalues)
    columns = np.split(eye(printed), np.cumsum([len(values) for values in eigenvalues])[:-1])
    applied = np.concatenate(algebra.apply_adjacency(eigenvectors, eigenvalues, columns, "gated"))
    computed = algebra.dense(algebra.adjacency(eigenvectors, eigenvalues, "gated"))
    return same(printed, computed) and same(printed, applied)


def characteristic_polynomial(square: Any) -> list[int]:
    """Compute the coefficients of `det(t I - X)` for integers, t^n first (Faddeev and LeVerrier)."""
    coefficients, term = [1], eye(square)
    for k in range(1, len(square) + 1):
        product = square @ term
        coefficients.append(-int(np.trace(product)) // k)
        term = product + coefficients[-1] * eye(square)
    return coefficients


def spectrum_is_lambda(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], shift: int = 0) -> bool:
    """`det(t I - A'_B)` is the product of all `t - lambda`; `shift` is added to every lambda."""
    expected = np.array([1], object)
    for value in np.concatenate(eigenvalues) + shift:
        expected = np.append(expected, 0) - int(value) * np.append(0, expected)
    found = characteristic_polynomial(algebra.dense(algebra.adjacency(eigenvectors, eigenvalues, "gated")))
    return same(np.array(found, object), expected)


def small_networks() -> Iterator[dict[str, Any]]:
    """Those of a few neurons among the networks of integers."""
    for network in integer_networks():
        if sum(map(len, network["eigenvalues"])) <= CHARACTERISTIC_UP_TO:
            yield network


def equal_eigenvalues_are_defective(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any]) -> bool:
    """At Lambda = I, `A' - I` is nilpotent, so A' is diagonalizable only if `A' - I` is 0: if all phi are."""
    ones = [0 * values + 1 for values in eigenvalues]
    nilpotent = gated_adjacency(eigenvectors, ones) - eye(matrix(eigenvectors))
    vanishes = same(nilpotent, 0)
    return same(powers(nilpotent, len(eigenvalues))[-1], 0) and vanishes == all(
        same(phi, 0) for phi in eigenvectors
    )


def _columns_of_phi_are_eigenvectors(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any]) -> bool:
    phi, spectrum = matrix(eigenvectors), algebra.dense(algebra.eigenvalue_blocks(eigenvalues))
    return same(gated_adjacency(eigenvectors, eigenvalues) @ phi, phi @ spectrum)


GATED_SPECTRUM = Claim(
    id="spectral.gated-spectrum",
    source="this library; beside [S] eq. (4.3)",
    statement="below the diagonal, A' = Lambda Phi^-1 has W_ij = (-1)^(i-j) L_i phi_{i-1} ... phi_j; on it, "
    "L_i; its eigenvalues are the entries of Lambda, with multiplicities",
    latex=r"[\Lambda \Phi^{-1}]_{ij} = (-1)^{i-j} L_i \phi_{i-1} \cdots \phi_j, \qquad "
    r"\det(t I - \Lambda \Phi^{-1}) = \prod_\lambda (t - \lambda)",
    verdict="holds",
    remark="Unlike A = Phi Lambda Phi^-1 it need not be diagonalisable: at Lambda = I it is Phi^-1, which is "
    "not, unless all phi are 0. The columns of Phi are not its eigenvectors.",
    checks=(
        *identity(
            gated_blocks,
            {"without the signs": functools.partial(gated_blocks, sign=1)},
            computed_gated_blocks,
        ),
        Exact(
            spectrum_is_lambda,
            small_networks,
            {"of Lambda + I": functools.partial(spectrum_is_lambda, shift=1)},
        ),
        Exact(
            equal_eigenvalues_are_defective,
            small_networks,
            {"the columns of Phi are eigenvectors": _columns_of_phi_are_eigenvectors},
        ),
    ),
    see=("S.spectrum",),
)


def gated_substitution_is_the_rule(
    eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], sign: int = -1
) -> bool:
    """`sum_{k<i} W_ik a_k = -L_i (phi_{i-1} s_{i-1})`, `s = Phi^-1 a`; `sign` is the right side's sign."""
    a = [symbol(f"a{i}", 1, 1) for i in range(1, len(eigenvalues) + 1)]
    s, bundles = algebra.substitute(eigenvectors, a), gated_bundles(eigenvectors, eigenvalues)
    return all(
        same(
            sign * eigenvalues[i - 1][:, None] * (phi @ s[i - 2]),
            sum(bundles[i, k] @ a[k - 1] for k in range(1, i)),
        )
        for i, phi in enumerate(eigenvectors, 2)
    )


def gated_passes_agree(c: Array, d: Array, inner: float = 0.0, **case: Array) -> Sides:
    """The library's passes compute the gated form, on integers and with ReLUs of two slopes.

    An ordinary network whose neurons have their own activations has the same output. `inner` is the share of
    L_{i-1} in a bundle, which is 1 in [S].
    """
    phi, values, x = parts(case)
    f = kinked(c, d)
    a = [x]
    for i in range(2, len(values) + 1):
        own, before = values[i - 1], inner * values[i - 2]
        z = 0.0 * own
        for j in range(1, i):
            column = chain(phi, a[j - 1], j, i - 2)
            z = z + (-1.0) ** (i - 1 - j) * (phi[i - 2] @ (before * column) - own * (phi[i - 2] @ column))
        a.append(f(z))
    s = x
    for block, own in zip(phi[:-1], values[1:-1], strict=True):
        s = _neuron(f, own, block @ s)
    plain = -values[-1] * (phi[-1] @ s)
    methods: tuple[Method, ...] = ("auto", "substitution", "materialised")
    found = [feedforward(phi, values, x, f, method, form="gated") for method in methods]
    return all_of([residual(y, jnp.asarray(z)) for y in (*found, plain)])


def _neuron(f: Any, own: Array, u: Array) -> Array:
    """Compute the activation of a gated network's neurons, seen as neurons of an ordinary network."""
    return jnp.asarray(f(-own * u) - u)


def gated_operations(examples: Any, widths: tuple[Any, ...], products: int = 1) -> bool:
    """A gated pass has an ordinary network's multiply-adds; `products` is the number per layer."""
    pairs = list(itertools.pairwise(widths))
    phi = [jax.ShapeDtypeStruct((n, m), jnp.float32) for m, n in pairs]
    values = [jax.ShapeDtypeStruct((n,), jnp.float32) for n in widths]
    x = jax.ShapeDtypeStruct((examples, widths[0]), jnp.float32)

    def gated(phi: Any, values: Any, x: Any) -> Array:
        return feedforward(phi, values, x, jnp.tanh, "substitution", form="gated")

    def plain(phi: Any, x: Any) -> Array:
        for weights in phi[:-1]:
            x = jnp.tanh(x @ weights.T)
        return x @ phi[-1].T

    taken = multiply_adds(jax.make_jaxpr(gated)(phi, values, x).jaxpr)
    ordinary = multiply_adds(jax.make_jaxpr(plain)(phi, x).jaxpr)
    return bool(taken == examples * products * sum(n * m for m, n in pairs) == products * ordinary)


def gated_parameters(widths: tuple[int, ...], read: int = 1) -> bool:
    """`parameter_counts` has the entries of all phi_i and of L_2, ..., L_{B+1}; L_1 is not read.

    Before layer `read`, counted from 0, eigenvalues are not counted.
    """
    phi = sum(n * m for m, n in itertools.pairwise(widths))
    return parameter_counts(widths)["gated"] == phi + sum(widths[read:])


GATED_SUBSTITUTION = Claim(
    id="spectral.gated-substitution",
    source="this library; beside [S] eq. (4.5)",
    statement="in the gated form, with s_1 = a_1, s_i = a_i - phi_{i-1} s_{i-1}, the sum over k < i of W_ik "
    "a_k is -L_i phi_{i-1} s_{i-1}, for any a_k: it is the ordinary network of weights phi_i whose hidden "
    "neurons have the activations u -> f(-lambda u) - u; all bundles cost sum N_i N_{i+1} multiply-adds an "
    "example, as in that network, and sum N_i N_{i+1} + sum_{i>1} N_i parameters",
    latex=r"\sum_{k<i} W_{ik} a_k = - L_i \phi_{i-1} s_{i-1}",
    verdict="holds",
    remark="One product a layer, where Phi Lambda Phi^-1 takes two. With ReLU the activations are parametric "
    "ReLUs, of slopes -1 and -(1 + lambda), which are lines where lambda is 0. The operations are counted in "
    "the traced programs, with symbols for all widths.",
    checks=(
        Exact(
            gated_substitution_is_the_rule,
            symbol_networks,
            {"a flipped sign": functools.partial(gated_substitution_is_the_rule, sign=1)},
            kind="formal",
        ),
        Inequality(
            gated_passes_agree,
            networks(2, 3, 1, 2, c=whole(), d=whole()),
            {"the bundles of [S]": functools.partial(gated_passes_agree, inner=1.0)},
        ),
        Exact(
            gated_operations,
            symbolic_widths,
            {"two products a layer": functools.partial(gated_operations, products=2)},
            kind="formal",
        ),
        Exact(
            gated_parameters,
            width_lists,
            {"with L_1": functools.partial(gated_parameters, read=0)},
        ),
    ),
    see=("spectral.forward-substitution", "S.parameter-count"),
)

CLAIMS = (
    GATED_SPECTRUM,
    GATED_SUBSTITUTION,
)

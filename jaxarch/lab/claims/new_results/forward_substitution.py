r"""Forward substitution computes all skip connections of a spectral network (docs/theory.md).

sum_{k<i} W_ik a_k = phi_{i-1} L_{i-1} s_{i-1} - L_i phi_{i-1} s_{i-1},        s = Phi_B^-1 a
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, export
from jax.extend.core import Jaxpr

from jaxarch.lab.claims.checks.core import Claim, Sides
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.drawn_networks import all_of, kinked, networks, parts, residual, whole
from jaxarch.lab.claims.checks.exact import Exact
from jaxarch.lab.claims.checks.exact_networks import DEPTHS, chain, same, symbol_networks
from jaxarch.lab.claims.checks.free_algebra import symbol
from jaxarch.lab.claims.spectral.adjacency import printed_connections
from jaxarch.spectral import algebra, feedforward, layer_by_layer


def substitution_is_the_rule(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], sign: int = -1) -> bool:
    """`sum_{k<i} W_ik a_k = phi_{i-1} (L_{i-1} s_{i-1}) - L_i (phi_{i-1} s_{i-1})`, `s = Phi^-1 a`."""
    a = [symbol(f"a{i}", 1, 1) for i in range(1, len(eigenvalues) + 1)]
    s, bundles = algebra.substitute(eigenvectors, a), printed_connections(eigenvectors, eigenvalues)
    for i, phi in enumerate(eigenvectors, 2):
        inner, outer = eigenvalues[i - 2][:, None], eigenvalues[i - 1][:, None]
        z = phi @ (inner * s[i - 2]) + sign * outer * (phi @ s[i - 2])
        if not same(z, sum(bundles[i, k] @ a[k - 1] for k in range(1, i))):
            return False
    return True


def forward_passes_agree(
    c: Array, d: Array, rule: Callable[..., Array] = feedforward, **case: Array
) -> Sides:
    """The library's forward passes compute [S] (4.5), here on integers and with ReLUs of two slopes."""
    phi, values, x = parts(case)
    f = kinked(c, d)
    blocks = {
        (i, j): (-1.0) ** (i - 1 - j)
        * (phi[i - 2] @ jnp.diag(values[i - 2]) - jnp.diag(values[i - 1]) @ phi[i - 2])
        @ chain(phi, jnp.eye(len(values[j - 1])), j, i - 2)
        for i in range(2, len(values) + 1)
        for j in range(1, i)
    }
    a = [x]
    for i in range(2, len(values) + 1):
        z = sum(blocks[i, j] @ a[j - 1] for j in range(1, i))
        a.append(f(z))
    passes = (
        [rule(phi, values, x, f)]
        if rule is not feedforward
        else [feedforward(phi, values, x, f, method) for method in ("auto", "substitution", "materialised")]
    )
    return all_of([residual(found, jnp.asarray(z)) for found in passes])


def symbolic_widths() -> Iterator[dict[str, Any]]:
    """For each depth, a number of examples n and widths N1, ..., N_{B+1}, all of them symbols."""
    for depth in DEPTHS:
        names = ["n", *(f"N{i}" for i in range(1, depth + 2))]
        examples, *widths = export.symbolic_shape(", ".join(names))
        yield {"examples": examples, "widths": tuple(widths)}


def multiply_adds(jaxpr: Jaxpr) -> Any:
    """Count the multiply-adds in all matrix products of a program, a number or a polynomial in its sizes."""
    total: Any = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            sizes: Any = [variable.aval for variable in (equation.invars[0], equation.outvars[0])]
            left, out = (size.shape for size in sizes)
            total = total + math.prod((*out, *(left[axis] for axis in contracted)))
        for inner in jax.tree.leaves(list(equation.params.values())):
            total = total + (multiply_adds(inner.jaxpr) if hasattr(inner, "jaxpr") else 0)
    return total


def operations(examples: Any, widths: tuple[Any, ...], products: int = 2) -> bool:
    """Multiply-adds of both forward passes; `products` is the number per hidden layer by substitution."""
    pairs = list(itertools.pairwise(widths))
    phi = [jax.ShapeDtypeStruct((n, m), jnp.float32) for m, n in pairs]
    values = [jax.ShapeDtypeStruct((n,), jnp.float32) for n in widths]
    x = jax.ShapeDtypeStruct((examples, widths[0]), jnp.float32)

    def count(method: Any, values: Sequence[Any], frozen: Sequence[Any] = ()) -> Any:
        def program(phi: Any, values: Any, x: Any) -> Array:
            return feedforward(phi, [*frozen, *values], x, jnp.tanh, method)

        return multiply_adds(jax.make_jaxpr(program)(phi, values, x).jaxpr)

    *hidden, last = (n * m for m, n in pairs)
    substitution = examples * (products * sum(hidden) + last)
    bundles = sum(n * m for m, n in itertools.combinations(widths, 2))
    # A bundle with j <= i - 2 costs one product, since W_ij = -W_{i,j+1} phi_j.
    building = sum(widths[i] * widths[j + 1] * widths[j] for i in range(2, len(widths)) for j in range(i - 1))
    return bool(
        count("substitution", values) == substitution
        and count("materialised", values) == examples * bundles + building
    )


FORWARD_SUBSTITUTION = Claim(
    id="spectral.forward-substitution",
    source="this library; of [S] eq. (3.4), (4.5)",
    statement="with s_1 = a_1, s_i = a_i - phi_{i-1} s_{i-1}, the sum over k < i of W_ik a_k is phi_{i-1} "
    "(L_{i-1} s_{i-1}) - L_i (phi_{i-1} s_{i-1}), for any a_k: all bundles cost 2 sum_{i<B} N_i N_{i+1} + "
    "N_B N_{B+1} multiply-adds an example; as matrices, sum_{i<j} N_i N_j, and sum_{j<i-1} N_i N_{j+1} N_j "
    "to build",
    latex=r"\sum_{k<i} W_{ik} a_k = \phi_{i-1} L_{i-1} s_{i-1} - L_i \phi_{i-1} s_{i-1}",
    verdict="holds",
    remark="The operations are counted in the traced programs, with symbols for all widths.",
    checks=(
        Exact(
            substitution_is_the_rule,
            symbol_networks,
            {"a flipped sign": functools.partial(substitution_is_the_rule, sign=1)},
            kind="formal",
        ),
        Inequality(
            forward_passes_agree,
            networks(2, 3, 1, 2, c=whole(), d=whole()),
            {"without skip connections": functools.partial(forward_passes_agree, rule=layer_by_layer)},
        ),
        Exact(
            operations,
            symbolic_widths,
            {"one product a layer": functools.partial(operations, products=1)},
            kind="formal",
        ),
    ),
)

CLAIMS = (FORWARD_SUBSTITUTION,)

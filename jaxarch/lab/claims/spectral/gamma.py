"""The norm of the tensor Gamma, which measures how non-linear a network is ([S] eq. (E.1), section 5).

Gamma_ijk = [W_32]_ij [W_21]_jk
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import choice
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.drawn_networks import kinked, networks, parts, residual, whole
from jaxarch.spectral import algebra, feedforward, gamma_norm


def norm_of_gamma(factored: bool = True, **case: Array) -> Sides:
    """`|Gamma|^2 = sum_j |W_32[:, j]|^2 |W_21[j, :]|^2`, as `gamma_norm` computes it, against the tensor."""
    phi, values, _ = parts(case)
    blocks = algebra.connections(phi, values)
    gamma = jnp.einsum("ij,jk->ijk", blocks[3, 2], blocks[2, 1])
    params = {
        "eigenvectors": {f"phi{i}": block for i, block in enumerate(phi, 1)},
        "eigenvalues": {f"L{i}": layer for i, layer in enumerate(values, 1)},
    }
    norm = gamma_norm(params) if factored else jnp.linalg.norm(blocks[3, 2] @ blocks[2, 1])
    expected = jnp.sum(jnp.square(gamma))
    return Sides(jnp.abs(jnp.square(norm) - expected), 16 * EPS * expected)


def without_gamma(c: Array, d: Array, into: Array, some: float = 0.0, **case: Array) -> Sides:
    """If every hidden neuron lacks connections in or out, Gamma = 0 and `y = W_31 x`."""
    phi, values, x = parts(case)
    into = jnp.minimum(into + some, 1)
    phi = [into[:, None] * phi[0], phi[1] * jnp.where(into == 1, some, 1)[None, :]]
    # W_21 has the rows of phi_1 that are not 0, W_32 the columns of phi_2.
    skip = algebra.connections(phi, values)[3, 1]
    return residual(feedforward(phi, values, x, kinked(c, d)), skip @ x)


GAMMA = Claim(
    id="S.gamma",
    source="[S] eq. (E.1), section 5",
    statement="the norm of Gamma_ijk = [W_32]_ij [W_21]_jk is sqrt(sum_j |W_32[:, j]|^2 |W_21[j, :]|^2); "
    "where it is 0, the network is y = W_31 x",
    latex=r"\|\Gamma\|^2 = \sum_j \|[W_{32}]_{\cdot j}\|^2 \, \|[W_{21}]_{j \cdot}\|^2",
    verdict="holds",
    assumptions="f(0) = 0 for the second part",
    remark="So the tensor need not be built.",
    checks=(
        Inequality(
            norm_of_gamma,
            networks(2, 3, 2),
            {"the norm of W_32 W_21": functools.partial(norm_of_gamma, factored=False)},
        ),
        Inequality(
            without_gamma,
            networks(2, 3, 2, c=whole(), d=whole(), into=choice(0.0, 1.0, shape=(3,))),
            {"where it is not": functools.partial(without_gamma, some=1.0)},
        ),
    ),
)

CLAIMS = (GAMMA,)

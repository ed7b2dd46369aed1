"""The effect of an eigenvalue of 0 on its neuron ([S] section 5 on figure 10, appendix F.1).

W_{k,k-1} = phi_{k-1} L_{k-1} - L_k phi_{k-1}
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch.lab.claims.checks.core import Claim, Counterexample, Sides
from jaxarch.lab.claims.checks.cube import choice
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.drawn_networks import kinked, networks, parts, residual, whole
from jaxarch.lab.claims.checks.exact import Exact
from jaxarch.lab.claims.checks.exact_networks import DEPTHS, integers, same, symbols
from jaxarch.lab.claims.checks.free_algebra import symbol
from jaxarch.lab.claims.spectral.perceptron_start import some_activation
from jaxarch.spectral import Activation, algebra, feedforward


def sparse_networks() -> Iterator[dict[str, Any]]:
    """Networks of 3 and 4 layers with eigenvectors of -1, 0, 1 and eigenvalues of 0 and 1."""
    random = np.random.default_rng(0)
    for _ in range(1000):
        yield integers(int(random.integers(2, 4)), random, entries=(-1, 1), eigenvalues=(0, 1))


def silent_neurons(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], only_zero: bool = False) -> bool:
    """No connection enters a neuron if and only if all neurons that it is attached to have its eigenvalue."""
    bundles = algebra.connections(eigenvectors, eigenvalues)
    for k in range(2, len(eigenvalues) + 1):
        phi, before, own = eigenvectors[k - 2], eigenvalues[k - 2], eigenvalues[k - 1]
        for n, value in enumerate(own):
            incoming = any(bundles[k, j][n].any() for j in range(1, k))
            differs = value != 0 if only_zero else bool((phi[n] * (before - value)).any())
            if incoming != differs:
                return False
    return True


def incoming_connection(eigenvector: float, inner: float, outer: float = 0.0) -> Sides:
    """`|W| <= 0` for `W = eigenvector (inner - outer)`, which enters a neuron whose eigenvalue is `outer`."""
    w = algebra.adjacent(jnp.full((1, 1), eigenvector), jnp.full(1, inner), jnp.full(1, outer))
    return Sides(jnp.abs(w).max(), jnp.zeros(()))


ONE_NEURON = Claim(
    id="S.one-eigenvalue-one-neuron",
    source="[S] section 5 on figure 10; appendix F.1 (ii)",
    statement="neuron n of layer k has no incoming connections, from any layer, if and only if its "
    "eigenvalue is that of every neuron m of layer k - 1 with [phi_{k-1}]_nm not 0",
    latex=r"[W_{kj}]_{n \cdot} = 0 \;\forall j \iff \lambda_{k,n} = \lambda_{k-1,m} \text{ where } "
    r"[\phi_{k-1}]_{nm} \neq 0",
    verdict="holds as corrected",
    remark="An eigenvalue of 0 silences a neuron where the layer before has zero eigenvalues, which are "
    "nothing special: equal ones count. [S] names L_1 = L_3 = 0 as what makes it so in the second hidden "
    "layer, that of L_3; it takes L_2 = 0. Nor does it cut what leaves the neuron: W_{k+1,k} = phi_k L_k - "
    "L_{k+1} phi_k is -L_{k+1} phi_k then.",
    checks=(
        Exact(
            silent_neurons,
            sparse_networks,
            {"if and only if it is 0": functools.partial(silent_neurons, only_zero=True)},
        ),
    ),
    printed=(Counterexample(incoming_connection, {"eigenvector": 1.0, "inner": 1.0}),),
    see=("S.removed-neurons",),
)


def zeroing_against_removing(c: Array, d: Array, kept: Array, factor: float = 1.0, **case: Array) -> Sides:
    """`y(L_B zeroed) = y(neurons removed) + phi_B q phi_{B-1} s_{B-1}`, q what was zeroed; L_{B-1} = 0."""
    phi, values, x = parts(case)
    f = kinked(c, d)
    *before, hidden, last = values
    before = [*before[:-1], jnp.zeros_like(before[-1])]
    zeroed = feedforward(phi, [*before, kept * hidden, last], x, f)
    neurons = [None] * (len(phi) - 2) + [kept == 1]
    removed = feedforward(phi, [*before, hidden, last], x, f, neurons=neurons)
    lost = phi[-1] @ ((1 - kept) * hidden * _last_but_one(phi, before, x, f))
    return residual(zeroed, removed + factor * lost)


def _last_but_one(phi: Sequence[Array], values: Sequence[Array], x: Array, f: Activation) -> Array:
    """Compute `phi_{B-1} s_{B-1}`."""
    s = x
    for block, inner, outer in zip(phi[:-2], values[:-1], values[1:], strict=True):
        s = f(block @ (inner * s) - outer * (block @ s)) - block @ s
    return phi[-2] @ s


def hidden_layers() -> Iterator[dict[str, int]]:
    """Every hidden layer of networks of 2 to 12 blocks of symbols; two blocks in that layer."""
    return ({"depth": depth, "layer": k} for depth in DEPTHS[1:] for k in range(2, depth + 1))


def zeroing_in_symbols(depth: int, layer: int, factor: int = 1, before: int = 0) -> bool:
    """With q of L_k set to 0, `z_{k+1}` is its value with neurons removed plus `phi_k q phi_{k-1} s_{k-1}`.

    Removing neurons whose eigenvalues are 0 changes nothing. `before` is a factor of L_{k-1}.
    """
    network = symbols(depth)
    phi, values = network["eigenvectors"], network["eigenvalues"]
    into, out = ([symbol(f"{way} {n}", 1, 1) for n in ("kept", "taken")] for way in ("into", "out of"))
    phi[layer - 2], phi[layer - 1] = np.concatenate(into), np.concatenate(out, axis=1)
    values[layer - 2] = before * values[layer - 2]
    own, kept = np.concatenate([symbol("kept", 1), symbol("taken", 1)]), np.array([1, 0], dtype=object)

    def next_layer(own: Any, removed: bool) -> tuple[Any, Any]:
        """Compute `z_{k+1}` and `phi_{k-1} s_{k-1}`."""
        s, passed = symbol("x", 1, 1), None
        for i, block in enumerate(phi[:layer], 2):
            inner, outer = (own if k == layer else values[k - 1] for k in (i - 1, i))
            u = block @ s
            z = block @ (inner[:, None] * s) - outer[:, None] * u
            if i == layer:
                passed = u
            s = some_activation(z) * (kept[:, None] if i == layer and removed else 1) - u
        return z, passed

    zeroed, u = next_layer(kept * own, removed=False)
    lost = phi[layer - 1] @ (((1 - kept) * own)[:, None] * u)
    return same(zeroed, next_layer(own, removed=True)[0] + factor * lost) and same(
        zeroed, next_layer(kept * own, removed=True)[0]
    )


def zeroing_is_removing(eigenvalue: float, x: float, slope: float = 0.0) -> Sides:
    """`|y(eigenvalue 0) - y(neuron removed)| <= 0` in three layers of one neuron, L_1 = L_3 = 0, phi = 1."""
    phi, none = [jnp.ones((1, 1))] * 2, jnp.zeros(1)
    f = kinked(1.0, slope)
    values = [none, jnp.full(1, eigenvalue), none]
    zeroed = feedforward(phi, [none, none, none], jnp.full(1, x), f)
    removed = feedforward(phi, values, jnp.full(1, x), f, neurons=[jnp.asarray([False])])
    return residual(zeroed, removed)


REMOVED_NEURONS = Claim(
    id="S.removed-neurons",
    source="[S] section 5 on figure 10",
    statement="where L_{k-1} = 0, setting eigenvalues q of layer k to 0 changes z_{k+1} by phi_k q "
    "phi_{k-1} s_{k-1} beyond what removing their neurons does; removing them once their eigenvalues are 0 "
    "changes nothing",
    latex=r"z_{k+1}|_{q \to 0} = z_{k+1}|_{\text{removed}} + \phi_k \, q \, \phi_{k-1} s_{k-1}",
    verdict="holds as corrected",
    assumptions="f(0) = 0, 2 <= k <= B",
    remark="[S] has it that setting them to 0 'amounts in turn to remove the associated nodes'. They also "
    "weigh the skip connections past layer k, W_{k+1,j} for j < k, which lose their share. One that is "
    "small is no harm.",
    checks=(
        Exact(
            zeroing_in_symbols,
            hidden_layers,
            {
                "the same": functools.partial(zeroing_in_symbols, factor=0),
                "L_{k-1} not 0": functools.partial(zeroing_in_symbols, before=1),
            },
            kind="formal",
        ),
        Inequality(
            zeroing_against_removing,
            networks(2, 3, 2, 2, c=whole(), d=whole(), kept=choice(0.0, 1.0, shape=(2,))),
            {
                "the same": functools.partial(zeroing_against_removing, factor=0.0),
                "9/10 of it": functools.partial(zeroing_against_removing, factor=0.9),
            },
        ),
    ),
    printed=(Counterexample(zeroing_is_removing, {"eigenvalue": 1.0, "x": 1.0}),),
)

CLAIMS = (
    ONE_NEURON,
    REMOVED_NEURONS,
)

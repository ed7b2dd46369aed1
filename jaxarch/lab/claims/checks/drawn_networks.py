"""Spectral networks of drawn integers, which float64 holds exactly: both sides agree to the last bit.

There are two activations with `f(0) = 0`: `c sin(z) + d (1 - cos(z))`, with slope c at 0, and
`c max(z, 0) + d min(z, 0)`, with two slopes there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch.lab.claims.checks.core import Sides
from jaxarch.lab.claims.checks.cube import Cube, Field, choice, cube
from jaxarch.spectral import Activation, feedforward


def whole(*shape: int) -> Field:
    """Integers from -2 to 2."""
    return choice(0.0, 1.0, -1.0, 2.0, -2.0, shape=shape)


def networks(*widths: int, **more: Field) -> Cube:
    """Return cases of networks of integers with an input, and of further variables."""
    pairs = enumerate(itertools.pairwise(widths), 1)
    blocks = {f"phi{i}": whole(n, m) for i, (m, n) in pairs}
    values = {f"L{i}": whole(n) for i, n in enumerate(widths, 1)}
    return cube(**blocks, **values, x=whole(widths[0]), **more)


def parts(case: dict[str, Array]) -> tuple[list[Array], list[Array], Array]:
    """Return the eigenvectors, eigenvalues and input of a case."""
    depth = sum(name.startswith("phi") for name in case)
    phi = [case[f"phi{i}"] for i in range(1, depth + 1)]
    return phi, [case[f"L{i}"] for i in range(1, depth + 2)], case["x"]


def smooth(c: ArrayLike, d: ArrayLike) -> Activation:
    """`f(z) = c sin(z) + d (1 - cos(z))`: f(0) = 0 and f'(0) = c."""
    return lambda z: jnp.asarray(c * jnp.sin(z) + d * (1 - jnp.cos(z)))


def kinked(c: ArrayLike, d: ArrayLike) -> Activation:
    """`f(z) = c max(z, 0) + d min(z, 0)`: f(0) = 0, with the slopes c and d at 0."""
    return lambda z: jnp.asarray(c * jnp.maximum(z, 0) + d * jnp.minimum(z, 0))


def residual(found: Array, expected: Array) -> Sides:
    """`|found - expected| <= 0`."""
    return Sides(jnp.abs(found - expected).max(), jnp.zeros(()))


def all_of(sides: Sequence[Sides]) -> Sides:
    """Combine several residuals into the worst one."""
    return Sides(jnp.stack([side.left for side in sides]).max(), jnp.zeros(()))


def at_the_start(phi: Sequence[Array], last: Array) -> list[Array]:
    """Return the eigenvalues of the perceptron start: L_1 = ... = L_B = 0, and `last`."""
    return [*(jnp.zeros_like(block[0]) for block in phi), last]


def output_derivative(
    phi: Sequence[Array],
    values: Sequence[Array],
    x: Array,
    f: Activation,
    layer: int,
    direction: Array,
    rule: Callable[..., Array] = feedforward,
) -> Array:
    """Compute the derivative of the output as L_layer moves along `direction`."""

    def output(moved: Array) -> Array:
        return rule(phi, [*values[: layer - 1], moved, *values[layer:]], x, f)

    return jax.jvp(output, (values[layer - 1],), (direction,))[1]

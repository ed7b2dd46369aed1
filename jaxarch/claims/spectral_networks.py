r"""Claims on what spectral networks compute and on how they begin to learn ([S] sections 3 to 5, appendix E).

Most run the library's own networks on integers that float64 holds exactly, so that both sides agree to the
last bit or the claim is false. Activations with `f(0) = 0` are `c sin(z) + d (1 - cos(z))`, of slope c at 0,
and `c max(z, 0) + d min(z, 0)`, of two slopes there.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, export
from jax.extend.core import Jaxpr
from jax.typing import ArrayLike

from jaxarch.claims.core import EPS, Claim, Counterexample, Exact, Inequality, Sides
from jaxarch.claims.cube import Cube, Field, choice, cube, log_uniform, uniform
from jaxarch.claims.free_algebra import Polynomial, linear_in, symbol
from jaxarch.claims.spectral import DEPTHS, printed_connections, same, symbols
from jaxarch.spectral import algebra, feedforward, gamma_norm, layer_by_layer
from jaxarch.spectral.network import Activation

# Networks and activations ----------------------------------------------------------------------------


def whole(*shape: int) -> Field:
    """Integers of at most 2."""
    return choice(0.0, 1.0, -1.0, 2.0, -2.0, shape=shape)


def networks(*widths: int, **more: Field) -> Cube:
    """Networks of integers with an input, and further variables."""
    pairs = enumerate(itertools.pairwise(widths), 1)
    blocks = {f"phi{i}": whole(n, m) for i, (m, n) in pairs}
    values = {f"L{i}": whole(n) for i, n in enumerate(widths, 1)}
    return cube(**blocks, **values, x=whole(widths[0]), **more)


def parts(case: dict[str, Array]) -> tuple[list[Array], list[Array], Array]:
    """Eigenvectors, eigenvalues and input of a case."""
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
    """The worst of several residuals."""
    return Sides(jnp.stack([side.left for side in sides]).max(), jnp.zeros(()))


def chain(phi: Sequence[Any], x: Any, first: int, last: int) -> Any:
    """`phi_last ... phi_first x`, or x where there are none."""
    for block in phi[first - 1 : last]:
        x = block @ x
    return x


def at_the_start(phi: Sequence[Array], last: Array) -> list[Array]:
    """Eigenvalues of the perceptron start: L_1 = ... = L_B = 0, and `last`."""
    return [*(jnp.zeros_like(block[0]) for block in phi), last]


# Forward substitution --------------------------------------------------------------------------------


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
    """In all matrix products of a program, as a number or a polynomial in its sizes."""
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
    """Multiply-adds of both forward passes; `products` is how many a hidden layer takes by substitution."""
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
    # W_ij = -W_{i,j+1} phi_j for j <= i - 2.
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
            lambda: map(symbols, DEPTHS),
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

# The perceptron start --------------------------------------------------------------------------------


def preactivations(
    eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], x: Any, activation: Callable[[Any], Any]
) -> tuple[list[Any], list[Any]]:
    """`z_2, ..., z_{B+1}` and `s_1, ..., s_B` of an input of one column, by forward substitution."""
    z, s = [], [x]
    for phi, inner, outer in zip(eigenvectors, eigenvalues[:-1], eigenvalues[1:], strict=True):
        z.append(phi @ (inner[:, None] * s[-1]) - outer[:, None] * (phi @ s[-1]))
        s.append(activation(z[-1]) - phi @ s[-1])
    return z, s[:-1]


some_activation = np.vectorize(lambda z: Polynomial({(f"f({z!r})",): 1}) if z != 0 else 0, otypes=[object])
"""A function of which nothing is known but that f(0) = 0."""


def perceptron_of_symbols(depth: int, zero: int = 0) -> bool:
    """Nothing is known of f but f(0) = 0, nor of anything else; `zero` layers are not at their start."""
    network = symbols(depth)
    phi, values, x = network["eigenvectors"], network["eigenvalues"], symbol("x", 1, 1)
    start = [0 * layer for layer in values[: depth - zero]] + values[depth - zero :]
    z, _ = preactivations(phi, start, x, some_activation)
    return same(z[-1], (-1) ** depth * values[-1][:, None] * chain(phi, x, 1, depth))


def perceptron(c: Array, d: Array, offset: float = 0.0, **case: Array) -> Sides:
    """At L_1 = ... = L_B = 0, the output is `(-1)^B L_{B+1} phi_B ... phi_1 x`; `offset` is f(0)."""
    phi, values, x = parts(case)
    f, start = smooth(c, d), at_the_start(phi, values[-1])
    found = feedforward(phi, start, x, lambda z: f(z) + offset)
    return residual(found, (-1.0) ** len(phi) * values[-1] * chain(phi, x, 1, len(phi)))


PERCEPTRON = Claim(
    id="S.perceptron",
    source="[S] sections 3 and 4, figure 6",
    statement="at L_1 = ... = L_B = 0 the output is (-1)^B L_{B+1} phi_B ... phi_1 x, linear in the input",
    latex=r"y = (-1)^B L_{B+1} \phi_B \cdots \phi_1 x",
    verdict="holds",
    assumptions="f(0) = 0; the feed-forward rule (4.5), without f in the last layer",
    remark="Not for the sigmoid: the last layer receives W_{B+1,k} f(0) from each hidden layer. The "
    "recursive rule applies f to it B - 1 times. No hidden layer may be narrower than the rank that is "
    "wanted.",
    checks=(
        Exact(
            perceptron_of_symbols,
            lambda: ({"depth": depth} for depth in DEPTHS),
            {"L_B not 0": functools.partial(perceptron_of_symbols, zero=1)},
            kind="formal",
        ),
        Inequality(
            perceptron,
            networks(2, 3, 1, 2, c=whole(), d=whole()),
            {"f(0) = 1": functools.partial(perceptron, offset=1.0)},
        ),
    ),
)


def derivative_at_the_start(layer: int, weights: tuple[float, ...], x: float) -> Sides:
    """`0 < |dy / dL_layer|` at L_1 = ... = L_B = 0, L_{B+1} = 1 with tanh, one neuron a layer."""
    phi = [jnp.full((1, 1), weight) for weight in weights]
    derivative = _derivative(
        phi, at_the_start(phi, jnp.ones(1)), jnp.asarray([x]), jnp.tanh, layer, jnp.ones(1)
    )
    return Sides(jnp.asarray(1e-30), jnp.abs(derivative).max())


def _derivative(
    phi: Sequence[Array], values: Sequence[Array], x: Array, f: Activation, layer: int, direction: Array
) -> Array:
    """Of the output, as L_layer moves."""

    def output(moved: Array) -> Array:
        return feedforward(phi, [*values[: layer - 1], moved, *values[layer:]], x, f)

    return jax.jvp(output, (values[layer - 1],), (direction,))[1]


REACTIVATION = Claim(
    id="S.reactivation",
    source="[S] section 4, (ii) after eq. (4.3); section 3 on ReLU",
    statement="at L_1 = ... = L_B = 0, L_{B+1} = I, the gradient with respect to L_k is not zero",
    latex=r"\nabla_{L_k} \neq 0",
    verdict="refuted",
    remark="For 2 <= k < B it is 0 whatever the differentiable activation, the data and the loss are; for k "
    "= B it is 0 where f'(0) = 1, as for tanh; for k = 1 where f'(0) = 0, which automatic differentiation "
    "takes for ReLU. What a deep network can recruit from this start is its last hidden layer, and with "
    "ReLU at that.",
    printed=(Counterexample(derivative_at_the_start, {"layer": 2, "weights": (1.0, 1.0, 1.0), "x": 1.0}),),
    see=("spectral.recruitment-order", "spectral.one-layer-at-a-time", "spectral.recruitment-at-a-kink"),
)


def start_derivative(
    phi: Sequence[Any], last: Any, x: Any, slope: Any, layer: int, direction: Any, sign: int = -1
) -> Any:
    """The claimed derivative of the output, at the perceptron start, as L_layer moves in a direction.

    Args:
      phi: the eigenvectors.
      last: L_{B+1}, a column.
      x: the input, a column.
      slope: f'(0).
      layer: which eigenvalues move, 1, ..., B.
      direction: their direction, a column.
      sign: of the second term of the last hidden layer's.
    """
    depth = len(phi)
    signs = (-1) ** (depth - 1)
    if layer == 1:
        moved = chain(phi, direction * x, 1, depth)
        return moved if depth == 1 else signs * slope * (last * moved)
    if layer < depth:
        return 0 * (last * chain(phi, x, 1, depth))
    moved = phi[-1] @ (direction * chain(phi, x, 1, depth - 1))
    return signs * (moved + sign * slope * (last * moved))


def recruitment_of_symbols(depth: int, layer: int, slope: int, sign: int = -1) -> bool:
    """In symbols, with `f(z) = slope z`: what f does beyond is of second order at z = 0."""
    network = symbols(depth)
    phi, last, x = network["eigenvectors"], network["eigenvalues"][-1], symbol("x", 1, 1)
    direction = symbol("q", 1)
    values = [direction if i == layer else 0 * direction for i in range(1, depth + 1)]
    z, _ = preactivations(phi, [*values, last], x, lambda z: slope * z)
    expected = start_derivative(phi, last[:, None], x, slope, layer, direction[:, None], sign)
    return same(linear_in("q")(z[-1]), expected)


def recruitment_cases() -> Iterator[dict[str, int]]:
    """Every layer at every depth; the derivative is of degree B in f'(0), so B + 1 values of it prove it."""
    for depth in DEPTHS:
        for layer in range(1, depth + 1):
            yield from ({"depth": depth, "layer": layer, "slope": slope} for slope in range(depth + 1))


def recruitment(c: Array, d: Array, direction: Array, sign: int = -1, **case: Array) -> Sides:
    """The same as automatic differentiation finds it in the library's network, all widths being equal."""
    phi, values, x = parts(case)
    start = at_the_start(phi, values[-1])
    return all_of(
        [
            residual(
                _derivative(phi, start, x, smooth(c, d), layer, direction),
                start_derivative(phi, values[-1], x, c, layer, direction, sign),
            )
            for layer in range(1, len(phi) + 1)
        ]
    )


def dead_start(d: Array, direction: Array, slope: float = 1.0, **case: Array) -> Sides:
    """With f'(0) = 1 and L_{B+1} = I, no hidden layer's eigenvalues have a derivative."""
    phi, values, x = parts(case)
    start = at_the_start(phi, jnp.ones_like(values[-1]))
    found = [
        _derivative(phi, start, x, smooth(slope, d), layer, direction) for layer in range(2, len(phi) + 1)
    ]
    return all_of([residual(derivative, jnp.zeros_like(derivative)) for derivative in found])


RECRUITMENT_ORDER = Claim(
    id="spectral.recruitment-order",
    source="this library; of [S] section 4, (ii)",
    statement="at L_1 = ... = L_B = 0 and any L_{B+1}, the derivative of the output as L_k moves by q is 0 "
    "for 2 <= k < B; (-1)^(B-1) (I - f'(0) L_{B+1}) phi_B q phi_{B-1} ... phi_1 x for k = B >= 2; "
    "(-1)^(B-1) f'(0) L_{B+1} phi_B ... phi_1 q x for k = 1 < B",
    latex=r"\frac{\partial y}{\partial L_B} q = (-1)^{B-1} (I - f'(0) L_{B+1}) \phi_B \, q \, \phi_{B-1} "
    r"\cdots \phi_1 x",
    verdict="holds",
    assumptions="f(0) = 0, f differentiable at 0",
    remark="So from a perceptron the last hidden layer is recruited first. With tanh and L_{B+1} = I not "
    "even that one is, until L_{B+1} has moved. Where f has a kink at 0, automatic differentiation takes "
    "some number for f'(0), for ReLU 0, and training follows this theorem; the true one-sided derivatives "
    "do not.",
    checks=(
        Exact(
            recruitment_of_symbols,
            recruitment_cases,
            {"a flipped sign": functools.partial(recruitment_of_symbols, sign=1)},
            kind="formal",
        ),
        Inequality(
            recruitment,
            networks(2, 2, 2, 2, 2, c=whole(), d=whole(), direction=whole(2)),
            {"a flipped sign": functools.partial(recruitment, sign=1)},
        ),
        Inequality(
            dead_start,
            networks(2, 2, 2, 2, d=whole(), direction=whole(2)),
            {"f'(0) = 2": functools.partial(dead_start, slope=2.0)},
        ),
    ),
    see=("spectral.one-layer-at-a-time", "spectral.recruitment-at-a-kink"),
)


def next_layer_of_symbols(depth: int, slope: int, following: int = 0) -> bool:
    """`L_k` moves, L_1 = ... = L_{k+1} = 0: `s_{k+1}` does not, to first order; k is `depth`.

    With `following` 1, L_{k+1} is a symbol.
    """
    phi = [*symbols(depth)["eigenvectors"], symbol("next", 1, 1)]
    direction = symbol("q", 1)
    values = [0 * direction] * (depth - 1) + [direction, following * symbol("L", 1), 0 * direction]
    _, s = preactivations(phi, values, symbol("x", 1, 1), lambda z: slope * z)
    return same(linear_in("q")(s[depth]), 0)


def later_layers(c: Array, d: Array, direction: Array, reach: int = 1, **case: Array) -> Sides:
    """The derivative in L_k is 0 while L_1 = ... = L_{k+`reach`} = 0, 2 <= k, k + reach <= B."""
    phi, values, x = parts(case)
    depth, found = len(phi), []
    for layer in range(2, depth + 1 - reach):
        zeros = layer + reach
        at = [*(jnp.zeros_like(layer) for layer in values[:zeros]), *values[zeros:]]
        found.append(_derivative(phi, at, x, smooth(c, d), layer, direction))
    return all_of([residual(derivative, jnp.zeros_like(derivative)) for derivative in found])


ONE_LAYER_AT_A_TIME = Claim(
    id="spectral.one-layer-at-a-time",
    source="this library; of [S] section 4",
    statement="while L_1 = ... = L_{k+1} = 0, 2 <= k < B, the derivative of the output in L_k is 0, "
    "whatever the later eigenvalues and all eigenvectors are",
    latex=r"L_1 = \cdots = L_{k+1} = 0 \;\Rightarrow\; \frac{\partial y}{\partial L_k} = 0",
    verdict="holds",
    assumptions="f(0) = 0, f differentiable at 0",
    remark="So the gradient of any loss in L_2, ..., L_{B-1} is 0 at the perceptron start and stays 0 while "
    "eigenvectors, L_B and L_{B+1} are trained, until L_B is no longer 0; then that in L_{B-1} is not 0, "
    "and so on backwards: hidden layers can be recruited only in the order B, B - 1, ..., 2. That shallow "
    "networks are found first needs no regularisation. In floating point the gradient is some rounding "
    "errors, of which Adam, blind to scale, makes steps of full size. Proof: L_k moves by q, then z_k by -q "
    "phi_{k-1} s_{k-1} =: r, s_k by f'(0) r, and s_{k+1} by f'(0) phi_k r - phi_k f'(0) r = 0; nothing "
    "behind layer k + 1 sees anything else.",
    checks=(
        Exact(
            next_layer_of_symbols,
            lambda: (
                {"depth": depth, "slope": slope} for depth in DEPTHS[1:] for slope in range(1, depth + 2)
            ),
            {"L_{k+1} not 0": functools.partial(next_layer_of_symbols, following=1)},
            kind="formal",
        ),
        Inequality(
            later_layers,
            networks(2, 2, 2, 2, 2, 2, c=whole(), d=whole(), direction=whole(2)),
            {"L_{k+1} not 0": functools.partial(later_layers, reach=0)},
        ),
    ),
)


def slopes_of_a_linear_fit(
    c: Array, d: Array, direction: Array, residuals: Array, odd: int = 0, **case: Array
) -> Sides:
    """The loss's derivatives in L_1, ..., L_B, where residuals are orthogonal to all linear functions of x.

    The examples are x and -x, with the same residual, or with `odd` 1 with opposite ones.
    """
    phi, values, x = parts(case)
    start = at_the_start(phi, values[-1])
    found = []
    for layer in range(1, len(phi) + 1):
        moved, mirrored = (_derivative(phi, start, at, smooth(c, d), layer, direction) for at in (x, -x))
        found.append(residual(residuals @ moved, -((-1) ** odd) * (residuals @ mirrored)))
    return all_of(found)


LINEAR_FIT = Claim(
    id="spectral.linear-fit-is-stationary",
    source="this library; of [S] sections 4 and 5",
    statement="at L_1 = ... = L_B = 0, the derivatives of the output in all L_k are linear functions of the "
    "input; so where the perceptron's residuals are orthogonal to these, the loss has gradient 0 in L_1, "
    "..., L_B",
    latex=r"E[\nabla_y \ell \; x^T] = 0 \;\Rightarrow\; \nabla_{L_k} E[\ell] = 0, \quad k = 1, \ldots, B",
    verdict="holds",
    assumptions="f(0) = 0, f differentiable at 0",
    remark="So if the eigenvectors and L_{B+1} first learn the best linear fit, gradient descent stops "
    "there: no hidden neuron is recruited, however poor the fit is. What it takes is a kink, another start, "
    "or to have left 0 before. Checked on pairs x, -x of equal residuals.",
    checks=(
        Inequality(
            slopes_of_a_linear_fit,
            networks(2, 2, 2, 2, c=whole(), d=whole(), direction=whole(2), residuals=whole(2)),
            {"opposite residuals": functools.partial(slopes_of_a_linear_fit, odd=1)},
        ),
    ),
    see=("spectral.recruitment-order",),
)


def one_sided(c: Array, d: Array, direction: Array, both: bool = True, **case: Array) -> Sides:
    """With two slopes at 0, `dy/dt` at t = 0+ as L_k is t q, for 1 <= k <= B."""
    phi, values, x = parts(case)
    depth, last, f = len(phi), values[-1], kinked(c, d)
    start = at_the_start(phi, last)
    found = []
    # Near 0 the output is a polynomial of degree 2 in t, computed without rounding.
    step = 2.0**-16
    for layer in range(1, depth + 1):

        def output(t: float, layer: int = layer) -> Array:
            return feedforward(
                phi, [*start[: layer - 1], t * direction, *start[layer:]], x, f, "substitution"
            )

        whole_step, half_step = output(step) - output(0.0), output(step / 2) - output(0.0)
        derivative = (4 * half_step - whole_step) / step
        moved = (-1.0) ** (layer - 1) * direction * chain(phi, x, 1, layer - 1)
        if layer == 1:
            expected = (-1.0) ** (depth - 1) * last * chain(phi, f(phi[0] @ moved), 2, depth)
        elif layer < depth:
            kink = f(phi[layer - 1] @ moved) - phi[layer - 1] @ f(moved)
            expected = both * (-1.0) ** (depth - layer) * last * chain(phi, kink, layer + 1, depth)
        else:
            expected = phi[-1] @ moved - last * (phi[-1] @ f(moved))
        found.append(residual(derivative, expected))
    return all_of(found)


RECRUITMENT_AT_A_KINK = Claim(
    id="spectral.recruitment-at-a-kink",
    source="this library; of [S] section 3 on ReLU",
    statement="at L_1 = ... = L_B = 0, as L_k becomes t q, t > 0, with r = (-1)^(k-1) q phi_{k-1} ... phi_1 "
    "x the output moves at the rate (-1)^(B-k) L_{B+1} phi_B ... phi_{k+1} (f(phi_k r) - phi_k f(r)) for 2 "
    "<= k < B, and phi_B r - L_{B+1} phi_B f(r) for k = B",
    latex=r"\left. \frac{dy}{dt} \right|_{0+} = (-1)^{B-k} L_{B+1} \phi_B \cdots \phi_{k+1} (f(\phi_k r) - "
    r"\phi_k f(r))",
    verdict="holds",
    assumptions="f(z) = c max(z, 0) + d min(z, 0), ReLU being c = 1, d = 0",
    remark="For c = d it is the theorem on smooth activations. With ReLU the middle layers could be "
    "recruited from the start, but automatic differentiation, which takes 0 for ReLU's slope at 0, reports "
    "0.",
    checks=(
        Inequality(
            one_sided,
            networks(2, 2, 2, 2, 2, c=whole(), d=whole(), direction=whole(2)),
            {"0 for 2 <= k < B": functools.partial(one_sided, both=False)},
        ),
    ),
)

# Neurons and eigenvalues -----------------------------------------------------------------------------


def sparse_networks() -> Iterator[dict[str, Any]]:
    """Networks of 3 and 4 layers with eigenvectors of -1, 0, 1 and eigenvalues of 0 and 1."""
    random = np.random.default_rng(0)
    for _ in range(1000):
        widths = random.integers(1, 4, random.integers(3, 5))
        yield {
            "eigenvectors": [
                random.integers(-1, 2, (n, m)).astype(object) for m, n in itertools.pairwise(widths)
            ],
            "eigenvalues": [random.integers(0, 2, n).astype(object) for n in widths],
        }


def silent_neurons(eigenvectors: Sequence[Any], eigenvalues: Sequence[Any], only_zero: bool = False) -> bool:
    """No connection enters a neuron if and only if it has the eigenvalue of all that it is attached to."""
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
    """`phi_{B-1} s_{B-1}`."""
    s = x
    for block, inner, outer in zip(phi[:-2], values[:-1], values[1:], strict=True):
        s = f(block @ (inner * s) - outer * (block @ s)) - block @ s
    return phi[-2] @ s


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
    assumptions="f(0) = 0; checked for k = B, where z_{k+1} is the output",
    remark="[S] has it that setting them to 0 'amounts in turn to remove the associated nodes'. They also "
    "weigh the skip connections past layer k, W_{k+1,j} for j < k, which lose their share. One that is "
    "small is no harm.",
    checks=(
        Inequality(
            zeroing_against_removing,
            networks(2, 3, 2, 2, c=whole(), d=whole(), kept=choice(0.0, 1.0, shape=(2,))),
            {"the same": functools.partial(zeroing_against_removing, factor=0.0)},
        ),
    ),
    printed=(Counterexample(zeroing_is_removing, {"eigenvalue": 1.0, "x": 1.0}),),
)


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
    """Where every hidden neuron lacks what enters or what leaves it, Gamma = 0 and `y = W_31 x`."""
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


def weights_of_the_parts(alpha: Array, beta: Array) -> tuple[Array, Array]:
    """Of `w x` and of `g(x)` in [S] (5.1)."""
    turn = jnp.tanh(beta * (alpha - 0.5))
    return (1 - turn) / 4, (1 + turn) / 4


def interpolation(alpha: Array, beta: Array, rate: float = 2.0) -> Sides:
    """They are `(1 - p)/2` and `p/2` with `p = sigma(2 beta (alpha - 1/2))`."""
    share = jax.nn.sigmoid(rate * beta * (alpha - 0.5))
    linear, other = weights_of_the_parts(alpha, beta)
    error = jnp.maximum(jnp.abs(linear - (1 - share) / 2), jnp.abs(other - share / 2))
    return Sides(error, jnp.asarray((4 + rate * beta) * EPS))


def linear_at_alpha_0(beta: float) -> Sides:
    """The weight of g at alpha = 0 is 0."""
    _, other = weights_of_the_parts(jnp.zeros(()), jnp.asarray(beta))
    return Sides(other, jnp.zeros(()))


INTERPOLATION = Claim(
    id="S.linear-to-nonlinear",
    source="[S] eq. (5.1)",
    statement="f(x) = ((1 - p) w x + p g(x)) / 2 with p = 1/(1 + exp(-2 beta (alpha - 1/2)))",
    latex=r"f(x) = \tfrac{1}{2} ((1 - p) \, w \cdot x + p \, g(x)), \quad p = \sigma(2 \beta (\alpha - 1/2))",
    verdict="holds as corrected",
    remark="Said to be 'purely linear' at alpha = 0 and 'fully nonlinear' at 1: the other part has the "
    "share 1/(1 + e^beta) there, .0067 for beta = 5. For beta = 1000 p is 0, 1/2 or 1 in floating point at "
    "every alpha of a grid of step 1/20.",
    checks=(
        Inequality(
            interpolation,
            cube(alpha=uniform(0.0, 1.0), beta=log_uniform(0.1, 1000.0)),
            {"half the rate": functools.partial(interpolation, rate=1.0)},
        ),
    ),
    printed=(Counterexample(linear_at_alpha_0, {"beta": 5.0}),),
)

CLAIMS = (
    FORWARD_SUBSTITUTION,
    PERCEPTRON,
    REACTIVATION,
    RECRUITMENT_ORDER,
    ONE_LAYER_AT_A_TIME,
    LINEAR_FIT,
    RECRUITMENT_AT_A_KINK,
    ONE_NEURON,
    REMOVED_NEURONS,
    GAMMA,
    INTERPOLATION,
)

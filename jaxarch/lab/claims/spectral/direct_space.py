"""Networks with all skip connections and without spectral parameters ([S] section 5, appendix F).

a_i = f(sum_{j<i} W_ij a_j), without f in the last layer
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.core import Claim, Control, Counterexample, Sides
from jaxarch.lab.claims.checks.cube import cube
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.drawn_networks import residual, smooth, whole
from jaxarch.spectral import direct_feedforward, parameter_counts


def derivatives(weights: dict[str, Array], x: Array, c: Array, d: Array, offset: float) -> dict[str, Array]:
    """Compute the derivatives of all outputs in each weight; the activation at 0 is `offset`."""
    f = smooth(c, d)
    return jax.jacrev(lambda weights: direct_feedforward(weights, x, lambda z: f(z) + offset))(weights)


def gradient_at_zero_weights(
    skip: Array, leaving: Array, x: Array, c: Array, d: Array, offset: float = 0.0, left: float = 0.0
) -> Sides:
    """`|dy / dW_ij| <= 0` except for W_41, if all other weights are 0.

    `left` scales the weights that leave layer 3.
    """
    weights = {"W2_1": jnp.zeros((3, 2)), "W3_1": jnp.zeros((2, 2)), "W3_2": jnp.zeros((2, 3))}
    weights |= {"W4_1": skip, "W4_2": jnp.zeros((2, 3)), "W4_3": left * leaving}
    found = derivatives(weights, x, c, d, offset)
    hidden = [jnp.abs(found[name]).max() for name in weights if name != "W4_1"]
    return Sides(jnp.stack(hidden).max(), jnp.zeros(()))


ZERO_WEIGHTS = Claim(
    id="S.zero-weights",
    source="[S] section 5, its end",
    statement="in direct space, where all weights into and out of the hidden neurons are 0 and f(0) = 0, the "
    "gradient with respect to each of them is 0",
    latex=r"\nabla_{W_{ij}} = 0 \text{ at } W_{ij} = 0, \; (i, j) \neq (B + 1, 1)",
    verdict="holds",
    assumptions="f(0) = 0, differentiable there; the feed-forward rule (4.5)",
    remark="'Often halts' in [S]: always. What [S] offers in its place halts as well but in the last hidden "
    "layer (S.reactivation); to begin at hidden eigenvalues that are small and not 0 mends either.",
    checks=(
        Inequality(
            gradient_at_zero_weights,
            cube(skip=whole(2, 2), leaving=whole(2, 2), x=whole(2), c=whole(), d=whole()),
            {
                "f(0) = 1": functools.partial(gradient_at_zero_weights, offset=1.0),
                "weights that leave are not 0": functools.partial(gradient_at_zero_weights, left=1.0),
            },
        ),
    ),
    see=("S.reactivation", "spectral.recruitment-order"),
)


def gradients_of_equal_neurons(
    entering: Array, leaving: Array, skip: Array, x: Array, c: Array, d: Array, apart: float = 0.0
) -> Sides:
    """Two hidden neurons with equal weights in and out have equal gradients.

    `apart` is added to the incoming weights of one neuron.
    """
    into = jnp.stack([entering, entering + apart])
    weights = {"W2_1": into, "W3_1": skip, "W3_2": jnp.stack([leaving, leaving], 1)}
    found = derivatives(weights, x, c, d, 0.0)
    one, other = (
        jnp.concatenate([found["W2_1"][:, n].ravel(), found["W3_2"][:, :, n].ravel()]) for n in (0, 1)
    )
    return residual(one, other)


EQUAL_NEURONS = Claim(
    id="S.equal-neurons",
    source="[S] section 5, its end",
    statement="neurons of one layer whose weights in and out are equal have equal gradients, and stay equal",
    latex=r"\nabla_{W_{n \cdot}} = \nabla_{W_{m \cdot}} \text{ where } W_{n \cdot} = W_{m \cdot}",
    verdict="holds",
    assumptions="an optimiser that treats all weights alike, and nothing random between the two",
    remark="With random eigenvectors no two neurons of a spectral network are equal at its start, nor are "
    "two of any network with random weights.",
    checks=(
        Inequality(
            gradients_of_equal_neurons,
            cube(entering=whole(2), leaving=whole(2), skip=whole(2, 2), x=whole(2), c=whole(), d=whole()),
            {"weights in differ by 1": functools.partial(gradients_of_equal_neurons, apart=1.0)},
        ),
    ),
)


def numbers_in_direct_space(widths: tuple[int, ...]) -> Sides:
    """All W_ij below the diagonal are at most as many numbers as eigenvectors and eigenvalues."""
    counted = parameter_counts(widths)
    return Sides(jnp.asarray(counted["direct"] + 0.0), jnp.asarray(counted["spectral"] + 0.0))


REMAPPING = Claim(
    id="S.remapping",
    source="[S] appendix F, its beginning",
    statement="a network that is remapped to direct space by (4.2) takes less memory than the spectral one",
    latex=r"\sum_{i<j} N_i N_j < \sum_i N_i N_{i+1} + \sum_i N_i",
    verdict="refuted",
    remark="The skip connections past hidden layers become weights of their own: 4-4-4 has 44 spectral "
    "parameters and 48 weights, and with more layers of one width it is worse. It depends on the widths: "
    "without a hidden layer, or with narrow ends, it is so. What saves memory is that inference needs no "
    "optimiser's state, and to leave hidden neurons out, which either space may.",
    printed=(Counterexample(numbers_in_direct_space, {"widths": (4, 4, 4)}),),
    controls=(Control(numbers_in_direct_space, {"widths": (4, 4)}),),
    see=("S.parameter-count",),
)

CLAIMS = (
    ZERO_WEIGHTS,
    EQUAL_NEURONS,
    REMAPPING,
)

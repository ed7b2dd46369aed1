"""The slacks that are proved on boxes are those of the statements."""

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxarch.claims.checks import proofs
from jaxarch.claims.checks.interval_arithmetic import Reals
from jaxarch.claims.checks.two_temperature import slope
from jaxarch.precision import float64


def test_the_bounds_of_the_curvature_are_identities_of_polynomials():
    # At one whole number more than its degree for each variable; floats of Python are exact there.
    n = SimpleNamespace(square=lambda x: x * x)
    for tau, share, ratio, u in itertools.product(range(9), range(9), range(3), range(2)):
        t = share * tau
        curvature = (1 - t**2) * ((1 - tau**2) + 2 * ratio * t * (1 + tau - 2 * u))
        assert proofs.curvature_below(n, tau, share, ratio, u) == curvature
        assert proofs.curvature_above(n, tau, share, ratio, u) == 1 + ratio**2 - curvature


CASE = {
    "w": st.floats(-3, 3),
    "hard": st.sampled_from([1.0, 4.0, 20.0]),
    "ratio": st.sampled_from([0.01, 0.5, 1.0]),
    "u": st.floats(0, 1),
}


@given(**CASE)
def test_that_curvature_is_the_divergence_s_along_the_scores(w, hard, ratio, u):
    w, soft = abs(w), ratio * hard
    with float64():
        first = jax.grad(lambda w: (jax.nn.sigmoid(hard * w) - u) / slope(w, soft))
        expected = slope(w, soft) ** 2 * first(w) / (hard * soft / 16)
        tau = jnp.tanh(hard * w / 2)
        share = Reals.share(jnp.tanh(soft * w / 2), tau)
        np.testing.assert_allclose(
            proofs.curvature_below(Reals, tau, share, ratio, u), expected, rtol=1e-9, atol=1e-9
        )


@given(**CASE, step=st.floats(-3, 3))
def test_the_other_slacks_are_their_sides_difference(w, hard, ratio, u, step):
    soft = ratio * hard
    with float64():
        largest = hard * soft / 16
        xi = w - u * step * slope(w, soft)
        p = slope(xi, hard) * slope(w, soft)
        right = max(1, largest - 1)
        for found, expected in (
            (proofs.slope(Reals, w, hard), 1 - slope(w, hard) / (hard / 4)),
            (proofs.lemma_4_2(Reals, w, hard, ratio, step, u), 1 - jnp.abs(1 - p) / right),
            (proofs.convexity(Reals, w, hard, ratio), 1 - slope(w, hard) * slope(w, soft) / largest),
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)

"""The statements that are proved on boxes are the claims', and what is proved is the statements."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxarch import float64
from jaxarch.lab.claims.checks import proofs
from jaxarch.lab.claims.checks.boxes import Rewritten
from jaxarch.lab.claims.checks.interval_arithmetic import Reals
from jaxarch.lab.claims.checks.two_temperature import slope

BOXES = {
    "slope": proofs.SLOPE,
    "lemma 4.2": proofs.LEMMA_4_2_IN_ONE_COORDINATE,
    "convexity": proofs.STRONG_CONVEXITY,
    "ratio from below": proofs.RATIO_BOUND[0],
    "ratio from above": proofs.RATIO_BOUND[1],
}


@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
def test_what_is_proved_is_the_statement_and_a_slack_that_is_not_proves_nothing(box):
    assert box.is_rewritten(box.slack)
    others = [changed.slack for changed in box.mutations.values() if isinstance(changed, Rewritten)]
    assert others
    assert not any(map(box.is_rewritten, others))


@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
def test_no_slack_that_is_another_one_is_negative_so_that_only_the_identity_rejects_it(box):
    random = np.random.default_rng(0)
    case = {name: random.uniform(*ends, 1000) for name, ends in box.box.items()}
    with float64():
        for changed in box.mutations.values():
            if isinstance(changed, Rewritten):
                assert (changed.slack(Reals, **case) >= 0).all()


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

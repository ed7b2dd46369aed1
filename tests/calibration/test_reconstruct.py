"""Weights solved for again under a mask, beside a solver in double precision."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

import jaxarch

DAMPING = 0.01


@functools.cache
def given():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 12)) @ rng.normal(size=(12, 12))
    weights = rng.normal(size=(12, 5))
    return jnp.asarray(weights, jnp.float32), x.astype(np.float32), jnp.asarray(rng.random((12, 5)) < 0.5)


def apply(params, x):
    return x @ params["w"]


def solved(weights, x, mask):
    """Solve the normal equations of each output."""
    h = x.T.astype(float) @ x
    h += DAMPING * np.diag(h).mean() * np.eye(len(h))
    made = np.zeros(weights.shape)
    for output in range(weights.shape[1]):
        own = np.flatnonzero(mask[:, output])
        right = (h @ np.asarray(weights[:, output], float))[own]
        made[own, output] = np.linalg.solve(h[np.ix_(own, own)], right)
    return made


@pytest.mark.long
def test_weights_solve_the_normal_equations():
    weights, x, mask = given()
    made = jaxarch.reconstruct(apply, {"w": weights}, [x[:20], x[20:]], {"w": mask}, damping=DAMPING)
    np.testing.assert_allclose(made["w"], solved(weights, x, mask), rtol=2e-3, atol=2e-3)


@pytest.mark.long
def test_more_steps_than_inputs_change_nothing():
    weights, x, mask = given()
    few, many = (
        jaxarch.reconstruct(apply, {"w": weights}, [x], {"w": mask}, steps=steps)["w"] for steps in (40, 400)
    )
    np.testing.assert_allclose(few, many, rtol=1e-4, atol=1e-4)


@pytest.mark.long
def test_no_step_makes_the_error_worse():
    weights, x, mask = given()
    errors = [
        float((((x @ weights) - x @ jnp.where(mask, weights, 0)) ** 2).sum()),
        *(
            float(((x @ weights - apply(made, x)) ** 2).sum())
            for steps in (1, 2, 4, 8, 16)
            for made in [
                jaxarch.reconstruct(apply, {"w": weights}, [x], {"w": mask}, steps=steps, damping=1e-6)
            ]
        ),
    ]
    assert errors == sorted(errors, reverse=True)


def test_a_full_mask_changes_nothing():
    weights, x, mask = given()
    made = jaxarch.reconstruct(apply, {"w": weights}, [x], {"w": jnp.ones_like(mask)})
    assert (made["w"] == weights).all()


def test_a_mask_that_is_no_mask_of_the_model_is_refused():
    weights, x, mask = given()
    for wrong, message in (
        ({"w": None}, "mask: no leaf is masked"),
        ({"w": mask[:2]}, "mask"),
        ({"w": weights}, "boolean"),
    ):
        with pytest.raises(jaxarch.ArgumentError, match=message):
            jaxarch.reconstruct(apply, {"w": weights}, [x], wrong)


def test_a_leaf_that_no_product_reads_is_refused():
    def model(params, x):
        return x @ params["w"] * params["gain"][None]

    weights, x, mask = given()
    params = {"w": weights, "gain": jnp.ones(5)}
    with pytest.raises(
        jaxarch.ArgumentError, match="the inputs of 'gain' are not known: it meets the inputs"
    ):
        jaxarch.reconstruct(model, params, [x], {"w": mask, "gain": jnp.ones(5, bool)})

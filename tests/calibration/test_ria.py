"""Relative importance and activations, beside the formula written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxarch


def plain(weights, x, exponent=0.5):
    sizes = np.abs(np.asarray(weights, float))
    relative = sizes / sizes.sum(1, keepdims=True) + sizes / sizes.sum(0, keepdims=True)
    return relative * (np.linalg.norm(np.asarray(x, float), axis=0) ** exponent)[:, None]


WEIGHTS = jax.random.normal(jax.random.key(0), (3, 4, 5))
X = jax.random.normal(jax.random.key(1), (7, 4))


@pytest.mark.long
def test_a_weight_counts_relative_to_its_input_and_its_output():
    def apply(params, x):
        return x @ params["w"].T

    params = {"w": WEIGHTS[0].T}
    scores = jaxarch.saliency.ria(params, jaxarch.calibrate(apply, params, [X]), exponent=1.5)
    np.testing.assert_allclose(scores["w"], plain(WEIGHTS[0], X, 1.5).T, rtol=1e-5)


def test_an_expert_with_inputs_of_its_own_is_a_matrix_of_its_own():
    def apply(params, x):
        return jnp.einsum("ebi,eio->ebo", x, params["w"])

    params, inputs = {"w": WEIGHTS}, jnp.stack([X, 2 * X, X[::-1] ** 2])
    scores = jaxarch.saliency.ria(params, jaxarch.calibrate(apply, params, [inputs]))
    expected = [plain(w, x) for w, x in zip(WEIGHTS, inputs, strict=True)]
    np.testing.assert_allclose(scores["w"], np.stack(expected), rtol=1e-5)


def test_a_leaf_that_is_no_matrix_is_refused():
    def apply(params, x):
        return x @ (params["w"] / 2)

    params = {"w": WEIGHTS[0]}
    with pytest.raises(jaxarch.ArgumentError, match="'w' is no matrix: other arrays scale it"):
        jaxarch.saliency.ria(params, jaxarch.calibrate(apply, params, [X]))

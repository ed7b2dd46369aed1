"""Saliencies are their formulas, and the searches' own."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import keys, problem, same

import jaxarch
from jaxarch import masks, saliency

PARAMS = {
    "first": {"kernel": jax.random.normal(jax.random.key(0), (3, 4)), "bias": jnp.ones(4)},
    "last": {"kernel": jax.random.normal(jax.random.key(1), (4, 2)), "bias": jnp.zeros(2)},
}
X = jax.random.normal(jax.random.key(2), (10, 3))


def outputs(params, x=X):
    hidden = jax.nn.relu(x @ params["first"]["kernel"] + params["first"]["bias"][None])
    return hidden @ params["last"]["kernel"] + params["last"]["bias"][None]


def loss(params):
    return jnp.mean(jnp.tanh(outputs(params)) ** 2)


def kernels(tree):
    return {layer: {"bias": None, "kernel": tree[layer]["kernel"]} for layer in tree}


def test_snip_is_the_derivative_by_a_mask_of_ones():
    ones = masks.full_mask(jaxarch.select(PARAMS))
    floats = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), ones)
    by_mask = jax.jit(jax.grad(lambda mask: loss(masks.apply_mask(mask, PARAMS))))(floats)
    scores = saliency.snip(PARAMS, jax.jit(jax.grad(loss))(PARAMS))
    assert same(scores, jax.tree.map(jnp.abs, by_mask))


@pytest.mark.long
def test_grasp_is_half_of_what_the_gradient_s_norm_loses_by_a_removal_to_first_order():
    scores = saliency.grasp(loss, PARAMS)

    def norm(params):
        gradient = jax.grad(loss)(params)
        return sum(jnp.sum(gradient[layer]["kernel"] ** 2) for layer in gradient)

    slopes = jax.jit(jax.grad(norm))(PARAMS)
    for layer, index in (("first", (0, 1)), ("last", (2, 0)), ("last", (3, 1))):
        kernel, slope = PARAMS[layer]["kernel"], slopes[layer]["kernel"][index]
        np.testing.assert_allclose(
            scores[layer]["kernel"][index], kernel[index] * slope / 2, rtol=1e-4, atol=1e-7
        )


def test_synflow_sums_the_products_of_weights_along_all_paths_through_a_connection():
    no_bias = {"a": PARAMS["first"]["kernel"], "b": PARAMS["last"]["kernel"]}
    scores = saliency.synflow(lambda p: jax.nn.relu(jnp.ones((1, 3)) @ p["a"]) @ p["b"], no_bias)
    a, b = jnp.abs(no_bias["a"]), jnp.abs(no_bias["b"])
    np.testing.assert_allclose(scores["a"], a * b.sum(1)[None], rtol=1e-5)
    np.testing.assert_allclose(scores["b"], a.sum(0)[:, None] * b, rtol=1e-5)


@pytest.mark.long
def test_synflow_has_the_whole_flow_where_all_of_it_goes_through_and_shares_it_between_branches():
    shapes = {"before": (3, 4), "branch": (4, 6), "back": (6, 4), "shortcut": (4, 4), "behind": (4, 2)}
    drawn = {name: jax.random.normal(key, shapes[name]) for name, key in zip(shapes, keys(5), strict=True)}

    def flow(params):
        x = jnp.ones((1, 3)) @ params["before"]
        x = jax.nn.relu(x @ params["branch"]) @ params["back"] + x @ params["shortcut"]
        return (x @ params["behind"]).sum()

    whole = flow(jax.tree.map(jnp.abs, drawn))
    through = {name: scores.sum() / whole for name, scores in saliency.synflow(flow, drawn).items()}
    ones = through["before"], through["behind"], through["branch"] + through["shortcut"]
    np.testing.assert_allclose(ones, 1, rtol=1e-5)
    np.testing.assert_allclose(through["branch"], through["back"], rtol=1e-5)


def test_synflow_conserves_the_flow_from_layer_to_layer():
    no_bias = {"a": PARAMS["first"]["kernel"], "b": PARAMS["last"]["kernel"]}
    scores = saliency.synflow(lambda p: jnp.ones((1, 3)) @ p["a"] @ p["b"], no_bias)
    np.testing.assert_allclose(scores["a"].sum(), scores["b"].sum(), rtol=1e-5)


def test_magnitude_is_the_weight_s():
    assert same(saliency.magnitude(PARAMS), jax.tree.map(jnp.abs, kernels(PARAMS)))


def test_lamp_is_the_share_in_the_squares_that_are_at_least_as_large():
    theta = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    expected = [square / (theta[theta**2 >= square] ** 2).sum() for square in (theta**2).ravel()]
    np.testing.assert_allclose(saliency.lamp({"kernel": theta})["kernel"].ravel(), expected, rtol=1e-5)


def test_lamp_of_a_leaf_of_zeros_is_zero():
    assert not saliency.lamp({"kernel": jnp.zeros((2, 3))})["kernel"].any()


SALIENCIES = {
    "magnitude": lambda params, **where: saliency.magnitude(params, **where),
    "lamp": lambda params, **where: saliency.lamp(params, **where),
    "snip": lambda params, **where: saliency.snip(params, jax.grad(loss)(params), **where),
    "taylor": lambda params, **where: saliency.taylor(params, jax.grad(loss)(params), params, **where),
    "fisher diagonal": lambda params, **where: saliency.fisher_diagonal(
        lambda params, x: jnp.mean(jnp.tanh(outputs(params, x)) ** 2), params, X, **where
    )[1],
    "hessian diagonal": lambda params, **where: saliency.hessian_diagonal(
        loss, params, jax.random.key(3), **where
    )[1],
    "grasp": lambda params, **where: saliency.grasp(loss, params, **where),
    "prospr": lambda params, **where: saliency.prospr(
        lambda params, x: jnp.mean(jnp.tanh(outputs(params, x)) ** 2),
        params,
        X.reshape(2, 5, 3),
        optax.sgd(0.1),
        **where,
    ),
    "synflow": lambda params, **where: saliency.synflow(
        lambda p: outputs(p, jnp.ones((1, 3))), params, **where
    ),
    "ntk_sap": lambda params, **where: saliency.ntk_sap(
        lambda p: outputs(p, jnp.ones((1, 3))), params, params, **where
    ),
    "path_exclusion": lambda params, **where: saliency.path_exclusion(
        outputs, params, jnp.ones((2, 3)), **where
    ),
}


@pytest.mark.parametrize("name", SALIENCIES)
def test_none_among_the_parameters_changes_nothing(name):
    scored = jax.jit(SALIENCIES[name])
    scores = scored(PARAMS | {"absent": None})
    assert scores.pop("absent") is None
    assert same(scores, scored(PARAMS))


@pytest.mark.parametrize("name", SALIENCIES)
def test_they_are_float32_with_none_where_nothing_is_masked(name):
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), PARAMS)
    scores = SALIENCIES[name](low)
    assert {leaf.dtype for leaf in jax.tree.leaves(scores)} == {jnp.dtype("float32")}
    assert list(jaxarch.named_leaves(scores)) == ["first/kernel", "last/kernel"]
    of_one = jax.eval_shape(lambda params: SALIENCIES[name](params, where="last/*"), PARAMS)
    assert list(jaxarch.named_leaves(of_one)) == ["last/bias", "last/kernel"]


@pytest.mark.parametrize("name", SALIENCIES)
def test_what_has_no_weights_to_score_is_refused(name):
    with pytest.raises(jaxarch.ArgumentError, match="where: no leaf is selected by 'nothing'"):
        SALIENCIES[name](PARAMS, where="nothing")


def test_gradients_that_would_broadcast_are_refused():
    gradients = jax.tree.map(lambda leaf: leaf[:1], PARAMS)
    with pytest.raises(jaxarch.ArgumentError, match=r"gradients: expected shape \(3, 4\) for 'first/kernel'"):
        saliency.snip(PARAMS, gradients)


def test_a_loss_that_fails_is_named_with_what_it_says():
    with pytest.raises(jaxarch.ArgumentError, match="loss: it fails on these parameters: 'second'"):
        saliency.grasp(lambda params: params["second"], PARAMS)


def test_gradients_of_another_model_are_refused():
    with pytest.raises(jaxarch.ArgumentError, match="gradients: 'last/kernel' has none"):
        saliency.snip(PARAMS, {"first": PARAMS["first"]})
    with pytest.raises(jaxarch.ArgumentError, match="params: "):
        saliency.magnitude({"kernel": jnp.ones((2, 2), int)})


@pytest.mark.long
def test_in_one_s_own_loop_snip_gives_the_mask_of_the_search():
    one, key = problem().of_run(0), keys()[0]
    found = jax.jit(jaxarch.search.snip(0.3))(key, one)
    params_key, batch_key, loss_key = jax.random.split(key, 3)
    params, state = one.init(params_key)
    batch = one.batch(batch_key, 0)
    gradient = jax.jit(jax.grad(lambda p: one.loss(p, state, batch, jax.random.fold_in(loss_key, 0))[0]))(
        params
    )
    assert same(masks.keep(saliency.snip(params, gradient), 0.3), found.mask)


@pytest.mark.long
def test_in_one_s_own_loop_magnitudes_give_the_mask_of_the_search():
    one, key = problem().of_run(0), keys()[0]
    found = jax.jit(jaxarch.search.magnitude_pruning(0.3, fraction=None))(key, one)
    trained = jax.jit(jaxarch.chain(jaxarch.search.dense(nonnegative=False)))(key, one)
    assert same(masks.keep(saliency.magnitude(trained.params), 0.3), found.mask)

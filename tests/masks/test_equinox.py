"""Equinox modules: scores, masks and optimisers take the arrays of one, and give masks that are modules."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import same

import jaxarch
from jaxarch import masks, optim, saliency

eqx = pytest.importorskip("equinox")

X = jax.random.normal(jax.random.key(1), (40, 6))
Y = jnp.arange(40) % 4
WEIGHTS = ["layers/0/weight", "layers/1/weight", "layers/2/weight"]
CUBIC = optax.polynomial_schedule(1.0, 0.25, power=3, transition_steps=4)


def mlp():
    """Leaves that are no arrays, its activations, and `None`: its last layer has no bias."""
    return eqx.nn.MLP(6, 4, 8, 2, use_final_bias=False, key=jax.random.key(0))


PARAMS, STATIC = eqx.partition(mlp(), eqx.is_inexact_array)


def module(params):
    return eqx.combine(params, STATIC)


def loss(model):
    return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(X), Y).mean()


def gradient():
    return eqx.filter_grad(loss)(mlp())


def quarter():
    return masks.keep(saliency.snip(PARAMS, gradient()), 0.25)


def trained(tx, model, steps=6):
    state = tx.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit
    def step(model, state):
        updates, state = tx.update(
            eqx.filter_grad(loss)(model), state, eqx.filter(model, eqx.is_inexact_array)
        )
        return eqx.apply_updates(model, updates), state

    for _ in range(steps):
        model, state = step(model, state)
    return model, state


def test_a_leaf_s_path_is_that_of_its_attributes():
    assert list(jaxarch.named_leaves(jaxarch.select(PARAMS))) == WEIGHTS
    assert list(jaxarch.named_leaves(jaxarch.select(PARAMS, "layers/0/*"))) == [
        "layers/0/weight",
        "layers/0/bias",
    ]


def test_a_pattern_that_selects_nothing_is_answered_with_the_paths():
    with pytest.raises(jaxarch.ArgumentError, match=r"by '\*/kernel'; the leaves are: layers/0/weight, "):
        jaxarch.select(PARAMS, "*/kernel")


@pytest.mark.parametrize("convolution", [1, 2, 3])
def test_the_biases_of_a_convolution_are_no_connections_though_they_have_axes(convolution):
    layer = eqx.nn.Conv(convolution, 2, 4, 3, key=jax.random.key(0))
    assert list(jaxarch.named_leaves(jaxarch.select(eqx.filter(layer, eqx.is_inexact_array)))) == ["weight"]


SALIENCIES = {
    "magnitude": lambda: saliency.magnitude(PARAMS),
    "snip": lambda: saliency.snip(PARAMS, gradient()),
    "fisher": lambda: saliency.taylor(
        PARAMS, *saliency.fisher_diagonal(lambda params, x: loss(module(params)), PARAMS, jnp.ones(2))
    ),
    "hutchinson": lambda: saliency.taylor(
        PARAMS,
        *saliency.hessian_diagonal(lambda params: loss(module(params)), PARAMS, jax.random.key(0)),
    ),
    "grasp": lambda: saliency.grasp(lambda params: loss(module(params)), PARAMS),
    "synflow": lambda: saliency.synflow(lambda params: module(params)(jnp.ones(6)), PARAMS),
    "ntk_sap": lambda: saliency.ntk_sap(lambda params: module(params)(jnp.ones(6)), PARAMS, PARAMS),
    "path_exclusion": lambda: saliency.path_exclusion(
        lambda params, x: module(params)(x[0]), PARAMS, jnp.ones((2, 6))
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", SALIENCIES)
def test_every_saliency_scores_the_weights_and_nothing_else(name):
    scores = SALIENCIES[name]()
    assert jax.tree.structure(scores) == jax.tree.structure(jaxarch.select(PARAMS))
    assert jaxarch.named_leaves(scores).keys() == set(WEIGHTS)
    assert all(np.isfinite(leaf).all() and np.any(leaf != 0) for leaf in jax.tree.leaves(scores))


def test_a_module_that_is_not_filtered_has_the_scores_of_its_arrays_alone():
    assert same(saliency.magnitude(mlp()), saliency.magnitude(PARAMS))
    with pytest.raises(jaxarch.ArgumentError, match="params: leaf 'activation' has no dtype"):
        saliency.magnitude(mlp(), "*")


@pytest.mark.long
def test_a_mask_of_an_exact_size_goes_on_the_arrays_and_on_the_module():
    mask = quarter()
    assert int(masks.connections(mask)) == round(0.25 * (6 * 8 + 8 * 8 + 8 * 4))
    masked = masks.apply_mask(mask, mlp())
    assert same(eqx.filter(masked, eqx.is_inexact_array), masks.apply_mask(mask, PARAMS))
    assert jax.vmap(masked)(X).shape == (40, 4)


@pytest.mark.long
def test_hold_keeps_the_mask_in_a_chain_and_check_held_takes_arrays_and_module():
    mask = quarter()
    tx = optim.hold(mask, optax.adamw(1e-2))
    model, state = trained(tx, masks.apply_mask(mask, mlp()))
    optim.check_held(mask, model)
    optim.check_held(mask, eqx.filter(model, eqx.is_inexact_array))
    assert same(optim.find_mask(state, like=PARAMS), mask)
    assert optim.find_mask(state).keys() == set(WEIGHTS)
    with pytest.raises(jaxarch.ArgumentError, match="pruned weights of 'layers/0/weight' are not 0"):
        optim.check_held(mask, mlp())


@pytest.mark.long
def test_sparse_prunes_as_it_does_a_dict_of_the_same_weights():
    model, state = trained(optim.sparse(optax.sgd(0.1), CUBIC, every=1), mlp())
    mask = optim.find_mask(state, like=PARAMS)
    assert float(masks.density(mask)) == 0.25
    optim.check_held(mask, model)

    leaves, treedef = jax.tree.flatten(PARAMS)
    named = dict(zip(jaxarch.named_leaves(PARAMS), leaves, strict=True))
    order = list(named)

    def of_dict(params):
        return loss(module(jax.tree.unflatten(treedef, [params[path] for path in order])))

    tx = optim.sparse(optax.sgd(0.1), CUBIC, every=1)
    params, state = named, tx.init(named)
    for _ in range(6):
        updates, state = tx.update(jax.grad(of_dict)(params), state, params)
        params = optax.apply_updates(params, updates)
    found = optim.find_mask(state)
    assert all(np.array_equal(leaf, found[path]) for path, leaf in jaxarch.named_leaves(mask).items())


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_a_mask_comes_back_from_a_file_as_a_module(ending, tmp_path):
    if ending == "safetensors":
        pytest.importorskip("safetensors")
    path, mask = tmp_path / f"mask.{ending}", quarter()
    jaxarch.save_mask(path, mask)
    for like in (PARAMS, eqx.filter_eval_shape(lambda: PARAMS)):
        again = jaxarch.load_mask(path, like=like)
        assert jax.tree.structure(again) == jax.tree.structure(mask)
        assert same(again, mask)


@pytest.mark.long
def test_scores_are_learned_through_a_module_and_its_weights_are_not():
    scores = masks.init_scores(jax.random.key(2), jaxarch.select(PARAMS), mean=0.1, std=0.01)

    def loss_of(scores):
        return loss(masks.apply_mask(masks.soft_mask(scores, hard=50.0, soft=5.0), mlp()))

    slopes = jax.grad(loss_of)(scores)
    assert jaxarch.named_leaves(slopes).keys() == set(WEIGHTS)
    assert all(np.any(leaf != 0) for leaf in jax.tree.leaves(slopes))
    assert same(masks.hard_mask(scores), masks.full_mask(jaxarch.select(PARAMS)))


@pytest.mark.long
def test_a_module_is_a_model_of_supervised_as_two_pure_functions():
    problem = jaxarch.supervised(
        (
            lambda key: eqx.filter(eqx.nn.MLP(6, 4, 8, 2, key=key), eqx.is_inexact_array),
            lambda params, x: jax.vmap(eqx.combine(params, eqx.nn.MLP(6, 4, 8, 2, key=jax.random.key(0))))(x),
        ),
        (np.asarray(X), np.asarray(Y)),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(1e-2),
        steps=4,
        batch_size=10,
    )
    pruned = jaxarch.chain(jaxarch.search.snip(0.25), jaxarch.retrain("warm", nonnegative=False))
    network, _ = jaxarch.over_seeds(pruned, jax.random.split(jax.random.key(0), 2), problem)
    assert jax.vmap(masks.density)(network.mask).tolist() == [0.25, 0.25]
    assert network.params.layers[0].weight.shape == (2, 8, 6)

"""Leaves that are no floating-point matrices: beside what is masked they stay, among it they are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from long_suite import partly_long
from methods import IN_JAX, METHODS, strategy_of
from small import same

import jaxarch
from jaxarch import ArgumentError
from jaxarch._internal.trees import raw_numbers

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
START = {
    "w": jnp.ones((4, 4)) / 4,
    "v": jnp.ones((4, 2)) / 4,
    "phase": jnp.ones(2, jnp.complex64),
    "steps": jnp.arange(2),
    "noise": jax.random.key(1),
    "flag": jnp.array(True),
    "nothing": jnp.zeros(0),
    "no rows": jnp.zeros((0, 3)),
    "left out": None,
}
OTHERS = ("steps", "noise", "flag", "nothing", "no rows")
ON_ANY = [name for name in IN_JAX if METHODS[name].parent == "any"]
QUICK = {"dense", "snip", "random_mask"}


def apply(params, x):
    noise = jax.random.normal(params["noise"], (1, 2)) + params["steps"][None]
    return jnp.tanh(x @ params["w"]) @ params["v"] * params["phase"].real[None] + 0.01 * noise


def problem_of(start=START):
    return jaxarch.supervised(
        (lambda key: start, apply), (X, X[:, :2]), loss=optax.l2_loss, optimizer=optax.adam(0.1), steps=3
    )


def raw(params):
    """The leaves that nothing trains, keys as numbers."""
    return {name: raw_numbers(params[name]) for name in OTHERS}


@pytest.mark.parametrize("name", partly_long(ON_ANY, set(ON_ANY) - QUICK))
def test_every_method_takes_leaves_of_any_kind_beside_what_it_masks(name):
    network = jax.eval_shape(strategy_of(name), KEY, problem_of())
    assert jax.tree.structure(network.params) == jax.tree.structure(START)


@pytest.mark.long
def test_leaves_without_a_gradient_stay_and_complex_ones_are_trained_as_by_plain_jax():
    stage, keys = jaxarch.search.dense(nonnegative=False), jax.random.split(KEY, 1)
    network, report = jaxarch.over_seeds(stage, keys, problem_of())
    found = network.of_run(0).params
    assert same(raw(found), raw(START))
    assert not same(found["phase"], START["phase"])
    assert jaxarch.evaluate(stage, network, problem_of(), np.arange(3)).shape == (1, 3, 2)
    assert report.notes == ()  # no dead start of what has no entry


@pytest.mark.long
def test_a_loop_of_one_s_own_takes_gradients_in_what_has_some():
    search = jaxarch.Stepwise(jaxarch.search.dense(nonnegative=False), optax.sgd(0.1), steps=1)
    state = search.init(KEY, START)
    assert [name for name, leaf in state.trainable.items() if leaf is None] == [
        "flag",
        "left out",
        "noise",
        "steps",
    ]
    gradients = jax.grad(lambda t: jnp.sum(apply(search.params(t, state), X)))(state.trainable)
    found = search.network(search.update(gradients, state)).params
    assert same(raw(found), raw(START))
    assert not same(found["w"], START["w"])


@pytest.mark.parametrize(
    "leaf", [jnp.ones((2, 2), int), jnp.ones((2, 2), jnp.complex64), jax.random.split(KEY, (2, 2))]
)
def test_such_a_leaf_among_what_is_masked_is_refused_by_its_path(leaf):
    start = {**START, "table": leaf}
    for stage in (jaxarch.search.movement(0.5), jaxarch.search.snip(0.5), jaxarch.search.edge_popup()):
        with pytest.raises(ArgumentError, match="params: leaf 'table' has dtype") as error:
            jax.eval_shape(jaxarch.chain(stage), KEY, problem_of(start))
        assert "\n" not in str(error.value)


def test_parameters_without_anything_to_train_are_refused():
    with pytest.raises(
        ArgumentError, match="params: expected at least one floating-point array to train, got"
    ):
        jaxarch.Stepwise(jaxarch.search.movement(0.5), optax.sgd(0.1), 1).init(KEY, {"steps": jnp.arange(3)})


def test_parameters_that_changed_since_the_start_are_refused_with_both_structures():
    search = jaxarch.Stepwise(jaxarch.search.dense(nonnegative=False), optax.sgd(0.1), steps=2)
    state = search.init(KEY, {"w": jnp.ones((4, 3))})
    for changed in ({"w": jnp.ones((4, 3)), "b": jnp.ones(3)}, {"w": jnp.ones((4, 2))}, [jnp.ones((4, 3))]):
        with pytest.raises(
            ArgumentError, match=r"gradients: .* \(4, 3\).*, got .*; if parameters have changed"
        ) as error:
            search.update(changed, state)
        assert "\n" not in str(error.value)
    with pytest.raises(ArgumentError, match="trainable: expected the structure and shapes of"):
        search.params({}, state)


@pytest.mark.long
def test_a_network_of_other_parameters_is_not_evaluated():
    stage, keys = jaxarch.search.random_mask(0.5), jax.random.split(KEY, 1)
    network, _ = jaxarch.over_seeds(stage, keys, problem_of())
    other = network.replace(params={"kernel": network.params["w"]})
    with pytest.raises(ArgumentError, match=r"network: its parameters do not match .* got \['kernel'\]"):
        jaxarch.evaluate(stage, other, problem_of(), np.arange(2))

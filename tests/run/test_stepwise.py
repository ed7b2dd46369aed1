"""A search in a loop of one's own finds what it finds of a problem, on pytrees and on Flax NNX models."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from long_suite import partly_long
from methods import METHODS, N_OF_M, problem_of
from small import close, same

import jaxarch
from jaxarch import Training

KEY = jax.random.key(3)
OWN_STEPS = 3


def descending():
    """The searches that descend from nothing, and read no units from a model."""
    stages = {name: method.stage() for name, method in METHODS.items()}
    return [
        name
        for name, stage in stages.items()
        if isinstance(stage, Training) and stage.needs.network != "required" and not stage.needs.predict
    ]


def of_all_rows(name):
    """The small problem of a method, its training rows in every batch, from the same parameters always."""
    problem = problem_of(name).of_run(0)
    start = problem.init(KEY)
    descent = problem.descent.replace(batch_size=None)
    return dataclasses.replace(problem, init=lambda key: start, descent=descent)


def optimizer_of(name, optimizer):
    """What a loop gives beside: nothing, if a search has optimisers for all that descends."""
    return None if name == "architecture_pruning" else optimizer


def looped(search, problem, params, state):
    """What a loop of one's own finds, whose loss is that of a problem."""
    batch = problem.batch(KEY, 0)
    at = search.init(KEY, params)

    @jax.jit
    def step(at, state):
        def loss(trainable):
            values, model = [], state
            for sample in range(search.search.samples):
                params = search.params(trainable, at, sample if search.search.samples > 1 else None)
                value, model = problem.loss(params, model, batch, KEY)
                values.append(value)
            return jnp.mean(jnp.stack(values)), model

        gradients, state = jax.grad(loss, has_aux=True)(at.trainable)
        return search.update(gradients, at), state

    for _ in range(problem.descent.steps):
        at, state = step(at, state)
    return search.network(at)


QUICK = ("hard_concrete", "gradual_magnitude")
"""One with a penalty and noise, one whose mask is its optimiser's: the others take a minute together."""


@pytest.mark.parametrize("name", partly_long(descending(), set(descending()) - set(QUICK)))
def test_a_loop_of_one_s_own_finds_what_the_search_finds_of_a_problem(name):
    problem, method = of_all_rows(name), METHODS[name]
    # A loop of one's own has no model that tells where inputs lie.
    stage = method.make(jaxarch.masks.NOfM(1, 2, axis=-1)) if name in N_OF_M else method.stage()
    expected = jax.jit(stage)(KEY, problem)
    params, state = problem.init(KEY)
    search = jaxarch.Stepwise(stage, optimizer_of(name, problem.descent.optimizer), problem.descent.steps)
    found = looped(search, problem, params, state)
    assert found.info.failed_at == -1
    assert close(found.params, expected.params, 1e-5)
    assert same(found.mask, expected.mask)


def test_the_penalty_is_added_where_the_loss_says_nothing_of_it():
    params = {"w": jnp.array([1.0, -1.0])}
    stage = jaxarch.search.soft_threshold(start=0.0, strength=0.5, where="w")
    search = jaxarch.Stepwise(stage, optax.sgd(1.0), steps=1)
    state = search.init(KEY, params)
    assert search.penalty(state) == 0.25 * 2
    after = search.update(jax.tree.map(jnp.zeros_like, state.trainable), state)
    np.testing.assert_allclose(after.trainable["weights"]["w"], [0.5, -0.5])


def test_what_the_optimiser_takes_beside_reaches_it():
    params = {"w": jnp.ones(2)}
    plateau = optax.chain(optax.sgd(1.0), optax.contrib.reduce_on_plateau(patience=1, factor=0.5))
    search = jaxarch.Stepwise(jaxarch.search.dense(nonnegative=False, where="w"), plateau, steps=9)
    state = search.init(KEY, params)
    zero = jax.tree.map(jnp.zeros_like, state.trainable)
    for _ in range(4):
        state = search.update(zero, state, value=jnp.float32(1.0))
    assert state.optimizer[1].scale < 1


def half_the_sum(mask):
    return 0.5 * mask["w"].sum()


def test_the_value_that_an_optimiser_is_told_has_the_penalty_too():
    told = []

    def update(updates, state, params=None, *, value, value_fn, grad):
        told.append((value, value_fn(params), grad["w"].tolist()))
        return updates, state

    spy = optax.GradientTransformationExtraArgs(lambda params: (), update)
    stage = jaxarch.search.two_temperature(1.0, 1.0, mean=0.0, std=0.0, where="w", penalty=half_the_sum)
    search = jaxarch.Stepwise(stage, spy, steps=1)
    state = search.init(KEY, {"w": jnp.array([1.0, -1.0])})
    gradients = jax.tree.map(jnp.ones_like, state.trainable)
    search.update(gradients, state, value=3.0, value_fn=lambda trainable: 4.0)
    assert told == [(3.5, 4.5, [1.125, 1.125])]


def test_of_scores_and_weights_each_optimiser_is_told_the_value_and_its_own_gradient():
    told = []

    def update(updates, state, params=None, *, value, grad):
        told.append((value, grad["w"].tolist()))
        return updates, state

    spy = optax.GradientTransformationExtraArgs(lambda params: (), update)
    stage = jaxarch.search.soft_threshold(start=0.0, strength=0.5, where="w")
    search = jaxarch.Stepwise(stage, spy, steps=1)
    state = search.init(KEY, {"w": jnp.array([1.0, -1.0])})
    gradients = jax.tree.map(jnp.ones_like, state.trainable)
    search.update(gradients, state, value=3.0)
    assert told == [(3.5, 1.0), (3.5, [1.5, 0.5])]


def test_a_line_search_over_scores_and_weights_is_refused():
    search = jaxarch.Stepwise(jaxarch.search.movement(0.5, where="w"), optax.lbfgs(), steps=1)
    state = search.init(KEY, {"w": jnp.array([1.0, -1.0])})
    gradients = jax.tree.map(jnp.ones_like, state.trainable)
    with pytest.raises(jaxarch.ArgumentError, match="optimizer: a line search does not work here"):
        search.update(gradients, state, value=3.0, value_fn=lambda trainable: 4.0)


def test_a_state_may_be_donated_and_what_it_began_with_is_left():
    key, params = jax.random.key(0), {"w": jnp.ones((4, 4))}
    search = jaxarch.Stepwise(jaxarch.search.dense(nonnegative=False, where="w"), optax.adam(0.1), steps=2)
    step = jax.jit(lambda state: search.update(state.trainable, state), donate_argnums=0)
    step(step(search.init(key, params)))
    assert same(search.init(key, params).trainable, params)


@pytest.mark.long
def test_a_state_of_several_runs_is_refused_where_it_is_not_mapped():
    search = jaxarch.Stepwise(jaxarch.search.movement(0.5, where="w"), optax.sgd(0.1), steps=2)
    states = jax.vmap(search.init, in_axes=(0, None))(jax.random.split(KEY, 2), {"w": jnp.arange(8.0)})
    assert jax.vmap(search.network)(states).mask["w"].sum(axis=1).tolist() == [4, 4]
    for call in (search.network, search.penalty, lambda s: search.update(s.trainable, s)):
        with pytest.raises(jaxarch.ArgumentError, match="state: it holds several runs; map the function"):
            call(states)


@pytest.mark.long
def test_a_mask_that_changes_now_and_then_is_not_computed_at_other_steps_of_many_runs():
    search = jaxarch.Stepwise(jaxarch.search.rigl(0.5, where="w"), optax.sgd(0.1), steps=100)
    states = jax.vmap(search.init, in_axes=(0, None))(jax.random.split(KEY, 2), {"w": jnp.arange(8.0)})

    def step(states, index):
        return jax.vmap(lambda state: search.update(state.trainable, state, step=index))(states)

    assert " cond[" in str(jax.make_jaxpr(step)(states, 3))


class Net(nnx.Module):
    """Batch norm and dropout, as in models that people have."""

    def __init__(self, rngs):
        self.hidden = nnx.Linear(8, 6, rngs=rngs)
        self.norm = nnx.BatchNorm(6, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.head = nnx.Linear(6, 3, rngs=rngs)

    def __call__(self, x):
        return self.head(self.dropout(nnx.relu(self.norm(self.hidden(x)))))


ON_ANY_MODEL = [name for name in descending() if METHODS[name].parent == "any"]


@pytest.mark.long
@pytest.mark.parametrize("name", ON_ANY_MODEL)
def test_an_nnx_model_is_searched_in_a_loop_of_one_s_own(name):
    rng = np.random.default_rng(0)
    x, y = jnp.asarray(rng.normal(size=(20, 8)), jnp.float32), jnp.asarray(rng.integers(0, 3, 20))
    model = Net(nnx.Rngs(0))
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    search = jaxarch.Stepwise(METHODS[name].stage(), optimizer_of(name, optax.adam(1e-2)), OWN_STEPS)
    state = search.init(KEY, params)

    @jax.jit
    def step(state, rest):
        def loss(trainable):
            model = nnx.merge(graph, search.params(trainable, state), rest, copy=True)
            value = optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()
            return value, nnx.state(model, nnx.Not(nnx.Param))

        gradients, rest = jax.grad(loss, has_aux=True)(state.trainable)
        return search.update(gradients, state), rest

    for _ in range(OWN_STEPS):
        state, rest = step(state, rest)
    network = search.network(state)
    nnx.update(model, network.params, rest)
    model.eval()
    assert jnp.isfinite(model(x)).all()
    assert (model.norm.mean[...] != 0).any()
    assert jaxarch.named_leaves(network.mask).keys() == {"hidden/kernel", "head/kernel"}
    jaxarch.optim.check_held(network.mask, nnx.state(model, nnx.Param))


@pytest.mark.long
def test_runs_are_mapped_like_one():
    search = jaxarch.Stepwise(jaxarch.search.edge_popup(0.5), optax.sgd(0.1), steps=2)
    params = {"w": jnp.arange(12.0).reshape(4, 3) - 5}
    keys = jax.random.split(KEY, 2)

    def run(key):
        state = search.init(key, params)
        for _ in range(2):
            gradients = jax.grad(lambda t, s=state: jnp.square(search.params(t, s)["w"]).sum())
            state = search.update(gradients(state.trainable), state)
        return search.network(state)

    both = jax.jit(jax.vmap(run))(keys)
    assert close(both.of_run(1).params, jax.jit(run)(keys[1]).params, 1e-6)


@pytest.mark.long
def test_after_the_last_step_it_warns_of_what_users_should_know_and_not_before():
    stage = jaxarch.search.architecture_pruning(0.01, strength=0.0, where="w")
    search = jaxarch.Stepwise(stage, None, steps=2)
    state = search.init(KEY, {"w": jnp.ones((10, 10))})
    zero = jax.tree.map(jnp.zeros_like, state.trainable)
    state = search.update(zero, state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search.network(state)
    state = search.update(zero, state)
    with pytest.warns(jaxarch.ResultWarning, match="density 0.01 was not reached in 1 of 1 runs"):
        search.network(state)


def test_numbers_that_are_not_finite_are_a_failure():
    search = jaxarch.Stepwise(jaxarch.search.movement(0.5, where="w"), optax.sgd(0.1), steps=5)
    state = search.init(KEY, {"w": jnp.ones(4)})
    state = search.update(jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), state.trainable), state)
    assert search.network(state).info.failed_at == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: jaxarch.search.snip(0.1), "search: expected a search that trains"),
        (lambda: jaxarch.chain(jaxarch.search.movement(0.1)), "search: expected a search that trains"),
        (lambda: jaxarch.search.architecture_pruning(0.1), "optimizer: architecture pruning has its own"),
        (
            lambda: jaxarch.search.edge_popup(0.1, optimizer=optax.sgd(1.0)),
            "optimizer: edge-popup has its own",
        ),
        (lambda: jaxarch.retrain("warm"), r"search: retrain warm needs a network; .* optim\.hold"),
        (lambda: jaxarch.search.two_temperature(units="neurons"), r"axis_groups\(\.\.\.\)\.units\(\.\.\.\)"),
        (
            lambda: jaxarch.search.movement(0.1, batch_size=10),
            "batch_size: your own loop chooses the batches",
        ),
    ],
)
def test_what_a_loop_of_one_s_own_cannot_run_is_refused(make, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.Stepwise(make(), optax.sgd(0.1), steps=10)


@pytest.mark.long
def test_steps_that_a_search_cannot_do_with_are_refused_before_the_first():
    search = jaxarch.Stepwise(jaxarch.search.rigl(0.5), optax.sgd(0.1), steps=1)
    with pytest.raises(jaxarch.ArgumentError, match="key: expected one"):
        search.init(0, {"w": jnp.ones((3, 3))})
    with pytest.raises(jaxarch.ArgumentError, match="steps: RigL would never change its mask in 1 steps"):
        search.init(KEY, {"w": jnp.ones((3, 3))})

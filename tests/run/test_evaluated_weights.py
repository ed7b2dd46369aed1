"""Optimizers that are evaluated at other weights than those that they train."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import close

import jaxarch
from jaxarch import ArgumentError, search
from jaxarch.run._evaluated import evaluated

KEYS = jax.random.split(jax.random.key(0), 1)
X = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
Y = X @ np.ones((4, 1), np.float32)
START = {"w": jnp.zeros((4, 1)), "b": jnp.ones(1)}
FREE = optax.contrib.schedule_free_sgd(0.4, b1=0.5)
DENSE = search.dense(nonnegative=False)
STEPS = 8


def apply(params, x):
    return x @ params["w"] + params["b"][None]


def loss(params):
    return jnp.square(apply(params, X) - Y).mean()


def problem_of(optimizer, **more):
    model = lambda key: START, apply
    return jaxarch.supervised(
        model, (X, Y), loss=optax.squared_error, optimizer=optimizer, steps=STEPS, **more
    )


def by_hand(optimizer, params=START, steps=STEPS):
    """Trained weights, and the optimiser's state, of a loop of plain JAX."""
    state = optimizer.init(params)

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(steps):
        params, state = step(params, state)
    return params, state


@pytest.mark.long
def test_over_seeds_returns_and_validates_the_weights_that_schedule_free_is_evaluated_at():
    problem = problem_of(FREE, validation=np.arange(20))
    network, report = jaxarch.over_seeds(DENSE, KEYS, problem)
    y, state = by_hand(FREE)
    x = optax.contrib.schedule_free_eval_params(state, y)
    assert close(network.of_run(0).params, x, 1e-5)
    assert not close(network.of_run(0).params, y, 1e-3)
    assert close(report.stages[0].validation["loss"][-1, 0], loss(x), 1e-5)


@pytest.mark.long
def test_early_stopping_keeps_the_evaluated_weights_of_its_best_border():
    problem = problem_of(FREE, validation=np.arange(20))
    stop = jaxarch.EarlyStopping(patience=1, least=10.0)
    network, report = jaxarch.over_seeds(DENSE, KEYS, problem, chunk=2, early_stopping=stop)
    y, state = by_hand(FREE, steps=2)
    assert network.info["kept_at"].tolist() == [2]
    assert close(network.of_run(0).params, optax.contrib.schedule_free_eval_params(state, y), 1e-5)
    assert close(report.stages[0].validation["loss"][0, 0], loss(network.of_run(0).params), 1e-5)


@pytest.mark.long
def test_in_a_loop_of_one_s_own_what_is_found_is_evaluated_and_masked():
    stepwise = jaxarch.Stepwise(search.movement(0.5, where="w"), optax.chain(optax.clip(9.0), FREE), STEPS)
    state = stepwise.init(KEYS[0], {"w": jnp.arange(1.0, 5.0)[:, None], "b": jnp.ones(1)})

    @jax.jit
    def step(state):
        return stepwise.update(jax.grad(lambda t: loss(stepwise.params(t, state)))(state.trainable), state)

    for _ in range(STEPS):
        state = step(state)
    free = state.optimizer.states["weights"][1]
    x = optax.contrib.schedule_free_eval_params(free, state.trainable["weights"])
    network = stepwise.network(state)
    assert close(network.params["w"], jnp.where(network.mask["w"], x["w"], 0), 1e-6)
    assert close(network.params["b"], x["b"], 1e-6)


@pytest.mark.parametrize(
    "around",
    [
        lambda tx: optax.partition({"w": tx, "b": optax.sgd(0.1)}, {"w": "w", "b": "b"}),
        lambda tx: optax.MultiSteps(tx, 2).gradient_transformation(),
        lambda tx: optax.apply_if_finite(tx, 2),
    ],
    ids=["partition", "MultiSteps", "apply_if_finite"],
)
def test_schedule_free_is_found_inside_of_other_transformations(around):
    params, state = by_hand(around(FREE))
    found = evaluated(state, params)
    assert not close(found["w"], params["w"], 1e-4)


def test_a_leaf_that_schedule_free_does_not_move_is_evaluated_as_it_is():
    tx = optax.partition({"w": FREE, "b": optax.sgd(0.1)}, {"w": "w", "b": "b"})
    params, state = by_hand(tx)
    assert close(evaluated(state, params)["b"], params["b"], 0)


def test_sam_is_evaluated_at_the_weights_before_its_adversarial_step():
    tx = optax.contrib.sam(optax.sgd(0.1), optax.sgd(0.05), sync_period=2)
    before, _ = by_hand(tx, steps=4)
    params, state = by_hand(tx, steps=5)
    assert not close(params, before, 1e-4)
    assert close(evaluated(state, params), before, 1e-6)
    assert close(evaluated(by_hand(tx, steps=4)[1], before), before, 0)


def test_lookahead_is_refused_in_one_line_before_anything_is_trained():
    lookahead = optax.lookahead(optax.sgd(0.1), 5, 0.5)
    for stage in (
        DENSE,
        search.movement(0.5, where="w"),
        jaxarch.chain(DENSE, search.movement(0.5, where="w")),
    ):
        with pytest.raises(ArgumentError, match=r"optimizer: optax\.lookahead is not supported"):
            jax.eval_shape(jaxarch.chain(stage), KEYS[0], problem_of(lookahead))

"""Searches that stop where their mask is nearly stationary, and what that says of it."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import problem

import jaxarch
from jaxarch.run import _training as training
from jaxarch.search import two_temperature
from jaxarch.theory.optimality import duality_gap

D = 6
KEYS = jax.random.split(jax.random.key(1), 3)
SEARCH = two_temperature(20.0, 2.0, mean=0.0, std=1.0)


@cache
def logistic(rows=60, validation=False):
    """Convex in the mask, with all rows at every step."""
    x = jax.random.normal(jax.random.key(0), (rows, D))
    y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(jnp.float32)
    return jaxarch.supervised(
        (lambda key: {"w": jnp.ones((D, 1))}, lambda params, x: (x @ params["w"])[:, 0]),
        (x, y),
        loss=optax.sigmoid_binary_cross_entropy,
        optimizer=optax.adam(0.05),
        steps=400,
        validation=jnp.arange(20) if validation else None,
    )


@jax.jit
def objective(mask):
    return logistic().objective({"w": jnp.reshape(mask, (D, 1))}, {})


@cache
def stopped():
    stopping = jaxarch.EarlyStopping("gap", until=0.01, patience=100)
    return jaxarch.over_seeds(SEARCH, KEYS, logistic(), chunk=5, early_stopping=stopping)


@pytest.mark.long
def test_each_run_stops_at_the_first_border_whose_gap_is_small_enough():
    network, report = stopped()
    gaps = report.stages[0].validation["gap"]
    for run in range(3):
        ends = int(np.flatnonzero(gaps[:, run] <= 0.01)[0])
        assert int(network.info["kept_at"][run]) == 5 * (ends + 1) < 400
        assert np.isnan(gaps[ends + 1 :, run]).all()
    assert len(set(network.info["kept_at"].tolist())) > 1


@pytest.mark.long
def test_the_gap_is_that_of_the_soft_mask_over_all_rows():
    network, report = stopped()
    for run in range(3):
        mask = jax.nn.sigmoid(20.0 * network.info["scores"]["w"][run])
        gap = duality_gap(mask, jax.grad(objective)(mask))
        border = int(network.info["kept_at"][run]) // 5 - 1
        assert report.stages[0].validation["gap"][border, run] == pytest.approx(float(gap), rel=1e-3)


@pytest.mark.long
def test_on_a_convex_loss_the_mask_is_then_as_near_to_the_best_as_the_gap_says():
    network, _ = stopped()

    def step(v, _):
        return jnp.clip(v - 0.3 * jax.grad(objective)(v), 0, 1), None

    least = float(objective(jax.lax.scan(step, np.full(D, 0.5, np.float32), None, length=3000)[0]))
    for run in range(3):
        soft = jax.nn.sigmoid(20.0 * network.info["scores"]["w"][run])
        assert 0 < float(objective(soft)) - least <= 0.01


@pytest.mark.long
def test_stopping_at_a_gap_is_beside_what_validation_rows_say():
    stopping = jaxarch.EarlyStopping("gap", until=0.01, patience=100)
    _, report = jaxarch.over_seeds(SEARCH, KEYS, logistic(validation=True), chunk=5, early_stopping=stopping)
    assert set(report.stages[0].validation) == {"loss", "gap"}


@pytest.mark.long
def test_a_metric_that_is_reached_ends_a_run_in_either_direction():
    def learning(mode):
        return jaxarch.supervised(
            (lambda key: {"w": jnp.full((1, 1), 10.0)}, lambda params, x: x @ params["w"]),
            (np.ones((2, 1)), np.ones((2, 1))),
            loss=lambda outputs, y: outputs * (1 if mode == "min" else -1),
            optimizer=optax.sgd(1.0),
            steps=12,
            validation=np.array([0]),
            metrics=lambda outputs, y: {"size": jnp.mean(outputs)},
        )

    search = jaxarch.search.dense(nonnegative=False)
    for mode, until in (("min", 7.0), ("max", 13.0)):
        # Even where no step is a large enough improvement.
        stopping = jaxarch.EarlyStopping("size", mode=mode, until=until, least=5.0, patience=12)
        network, _ = jaxarch.over_seeds(search, KEYS[:1], learning(mode), chunk=1, early_stopping=stopping)
        assert int(network.info["kept_at"][0]) == 3
        assert float(network.params["w"].item()) == until


@pytest.mark.long
@pytest.mark.parametrize(
    "search", [jaxarch.search.dense(), two_temperature(units="2:4")], ids=["dense", "N:M"]
)
def test_a_search_without_a_gap_does_not_stop_at_one(search):
    stopping = jaxarch.EarlyStopping("gap", until=1.0)
    with pytest.raises(jaxarch.ArgumentError, match="early_stopping: no metric 'gap'; known: none"):
        jaxarch.over_seeds(search, KEYS, problem(runs=3), early_stopping=stopping)


def test_what_is_good_enough_is_a_number():
    with pytest.raises(jaxarch.ArgumentError, match="until: expected a finite number"):
        jaxarch.EarlyStopping("gap", until=float("nan"))


@pytest.mark.long
def test_the_gap_of_a_search_over_units_is_that_of_its_units():
    search = two_temperature(20.0, 2.0, mean=0.0, std=1.0, units=(2, 1))
    state = training.begin(search, KEYS[0], logistic(), None).state
    mask = jax.nn.sigmoid(20.0 * state.trainable["w"])
    assert mask.shape == (D // 2, 1)
    gradient = jax.jit(jax.grad(lambda mask: objective(jnp.repeat(mask, 2, axis=0))))(mask)
    found = search.gap(search.settings, state, logistic())
    assert float(found) == pytest.approx(float(duality_gap(mask, gradient)), rel=1e-5)


def ten_times_the_size(mask):
    return 10 * mask["w"].sum()


@pytest.mark.long
def test_the_gap_is_that_of_the_loss_with_its_penalty_at_the_temperature_of_the_step():
    hard = optax.linear_schedule(5.0, 20.0, 10)
    search = two_temperature(hard, 2.0, mean=0.0, std=1.0, penalty=ten_times_the_size)
    carry = training.begin(search, KEYS[0], logistic(), None)
    carry, _ = training.advance(search, KEYS[0], logistic(), carry, 0, 5, 5)
    v = jax.nn.sigmoid(hard(5) * carry.state.trainable["w"])
    slopes = jax.jit(jax.grad(lambda v: objective(v) + 10 * v.sum()))(v)
    gap = search.gap(search.settings, carry.state, logistic())
    assert float(gap) == pytest.approx(float(duality_gap(v, slopes)), rel=1e-4)


def test_the_larger_gap_is_not_the_better_one():
    with pytest.raises(jaxarch.ArgumentError, match="mode"):
        jaxarch.EarlyStopping("gap", mode="max")

"""Stages run under JAX's own switches for finding errors, and for other dtypes."""

import contextlib
import gc
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from long_suite import partly_long
from methods import IN_JAX, METHODS, problem_for, strategy_of

import jaxarch

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
TRACED = {
    "strict promotion and leaks": lambda: (jax.numpy_dtype_promotion("strict"), jax.checking_leaks()),
    "float64": lambda: (jax.enable_x64(True),),
}
RUN = {
    "NaN": lambda: jax.debug_nans(True),
    "keys": lambda: jax.debug_key_reuse(True),
    "no jit": lambda: jax.disable_jit(True),
}
QUICK = {"movement", "two_temperature", "prune"}


def small():
    """A problem whose model and loss mix no dtypes; without jit, each operation of an optimizer compiles."""
    model = (lambda key: {"w": jax.random.normal(key, (4, 2))}), (lambda params, x: x @ params["w"])
    return jaxarch.supervised(
        model,
        (X, X[:, :2]),
        loss=optax.l2_loss,
        optimizer=optax.sgd(0.1, 0.9),
        steps=4,
        validation=np.arange(4),
    )


@pytest.mark.parametrize("switch", partly_long(RUN, {"no jit"}))
def test_a_training_that_stops_early_runs_under_a_switch(switch):
    stop = jaxarch.EarlyStopping(patience=1, least=100.0)
    keys = jax.random.split(KEY, 2)
    with RUN[switch]():
        strategy = jaxarch.chain(jaxarch.search.dense(nonnegative=False))
        network, report = jaxarch.over_seeds(
            strategy, keys, small(), chunk=1, max_parallel_runs=1, early_stopping=stop
        )
        outputs = jaxarch.evaluate(strategy, network, small(), np.arange(3))
        # The keys are as good as new.
        jaxarch.over_seeds(strategy, keys, small())
    assert outputs.shape == (2, 3, 2)
    assert network.info["kept_at"].tolist() == [1, 1]
    assert np.isnan(network.info["loss"]).sum() == 4
    assert np.isnan(report.stages[0].validation["loss"]).sum(axis=0).tolist() == [2, 2]


@pytest.mark.parametrize("switch", partly_long(RUN, {"no jit"}))
def test_a_loop_of_one_s_own_runs_under_a_switch(switch):
    with RUN[switch]():
        search = jaxarch.Stepwise(jaxarch.search.movement(0.5), optax.sgd(0.01), steps=2)
        state = search.init(KEY, {"w": jnp.ones((4, 2))})
        step = jax.jit(
            lambda s: search.update(jax.grad(lambda t: jnp.sum(search.params(t, s)["w"]))(s.trainable), s)
        )
        state = step(step(state))
    assert search.network(state).mask["w"].sum() == 4


@pytest.mark.parametrize("switch", TRACED)
@pytest.mark.parametrize("name", partly_long(IN_JAX, set(IN_JAX) - QUICK))
def test_every_method_is_traced_under_a_switch(name, switch):
    with contextlib.ExitStack() as switches:
        # After each trace, leaks are looked for among all objects but the frozen ones, which are older.
        gc.freeze()
        for context in TRACED[switch]():
            switches.enter_context(context)
        jax.eval_shape(strategy_of(name), KEY, made_under(switch, METHODS[name].parent))


@cache
def made_under(switch, parent):
    """Make the problem under a switch, once for all methods, and leave it to no other test."""
    problem_for.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        if parent == "any":
            patch.setattr("methods._losses", _of_one_dtype)
        try:
            return problem_for(parent, runs=1).of_run(0)
        finally:
            problem_for.cache_clear()


def _of_one_dtype(outputs, y):
    return optax.softmax_cross_entropy_with_integer_labels(outputs, y) if outputs.ndim > 1 else outputs

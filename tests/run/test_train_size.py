"""Training sets of many sizes in one program: rows that are padding count for nothing."""

import dataclasses
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import RUNS, close, digits, keys, problem, same

import jaxarch

STRATEGIES = jaxarch.disentangling_strategies()
OF_OTHERS = np.flatnonzero(digits().y == 9)[:130]


def padded(learning, size=None):
    """The problem with rows of another class after its training rows."""
    rows = np.asarray(learning.train)
    padding = np.tile(OF_OTHERS, (rows.shape[0], 1))
    train = jnp.asarray(np.concatenate([rows, padding], axis=1))
    size = jnp.asarray(rows.shape[1] if size is None else size)
    return dataclasses.replace(learning, train=train, train_size=size)


def objectives(learning, params):
    def objective(params, one):
        return one.objective(params, {})

    return jax.jit(jax.vmap(objective, in_axes=(0, learning.in_axes())))(params, learning)


@pytest.fixture(scope="module")
def params():
    return jax.vmap(lambda key: problem().init(key)[0])(keys())


def test_the_objective_is_the_mean_over_the_rows_that_count(params):
    assert close(objectives(padded(problem()), params), objectives(problem(), params))


@pytest.mark.long
def test_each_run_may_have_a_size_of_its_own(params):
    sizes = np.array([3, 100, 101, 120])
    learning = padded(problem(), sizes)
    for run, value in enumerate(objectives(learning, params)):
        one = problem().of_run(run)
        rows = one.train[: sizes[run]]
        expected = one.objective(jax.tree.map(lambda leaf, run=run: leaf[run], params), {}, rows)
        assert close(value, expected)


@pytest.mark.long
def test_the_objective_has_its_gradient_through_the_padding(params):
    one = jax.tree.map(lambda leaf: leaf[0], params)
    gradient = jax.grad(padded(problem()).of_run(0).objective)(one, {})
    assert close(gradient, jax.grad(problem().of_run(0).objective)(one, {}))


@pytest.mark.long
@pytest.mark.parametrize("name", ["real->bin", "logistic regression"])
def test_padding_changes_no_strategy(name):
    network, _ = jaxarch.over_seeds(STRATEGIES[name], keys(), problem())
    with_padding, _ = jaxarch.over_seeds(STRATEGIES[name], keys(), padded(problem()))
    assert close(network.params, with_padding.params)
    assert network.mask is None or same(network.mask, with_padding.mask)


@pytest.mark.long
def test_another_size_compiles_nothing(caplog):
    learning = padded(problem(), jnp.asarray(120))
    strategy = jaxarch.chain(STRATEGIES["real->bin"])
    first, _ = jaxarch.over_seeds(strategy, keys(), learning)
    smaller = dataclasses.replace(learning, train_size=jnp.asarray(40))
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        second, _ = jaxarch.over_seeds(strategy, keys(), smaller)
    assert not [r for r in caplog.records if "Finished XLA compilation" in r.getMessage()]
    assert not same(first.params, second.params)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"train_size": jnp.asarray(121)},
            "train_size: expected 1 to 120, the number of rows in `train`, got 121",
        ),
        ({"train_size": jnp.asarray(0)}, "train_size: expected 1 to 120"),
        ({"train_size": 5}, "train_size: expected an integer array"),
        ({"train_size": jnp.asarray(5.0)}, "train_size: expected an integer array"),
        ({"train_size": jnp.asarray(5), "train": None}, "train_size: it also needs `train`"),
        ({"train_size": jnp.full(RUNS + 1, 5)}, "per-run arrays disagree"),
    ],
)
def test_bad_sizes_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(problem(), **change).check()

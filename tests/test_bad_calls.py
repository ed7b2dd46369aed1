"""What a user may get wrong, a call each: one line that begins with the argument."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import digits, keys, problem

import jaxarch
from jaxarch import search
from jaxarch.errors import ArgumentError
from jaxarch.models import spectral_network

LONG = "x" * 10_000
MOST = 400
"""Characters of a message: several lines of a terminal, whatever was handed in."""


def refused(call):
    """What is said of a call, which is refused in one line."""
    with pytest.raises(ArgumentError) as error:
        call()
    text = str(error.value)
    assert text.isprintable(), text
    assert len(text) <= MOST, text
    return text


ECHOED = {
    "percentiles": lambda: jaxarch.threshold(tuple(range(-1, 5000))),
    "start": lambda: jaxarch.retrain(LONG),
    "units": lambda: search.two_temperature(units=LONG),
    "weights": lambda: search.two_temperature(weights=LONG),
    "fraction": lambda: jaxarch.prune(LONG),
    "density": lambda: jaxarch.at_density(LONG),
    "weight": lambda: jaxarch.share_weight(LONG),
    "per": lambda: search.random_mask(0.5, per=LONG),
    "form": lambda: search.lottery(form=LONG),
    "penalty": lambda: search.spectral(penalty=LONG),
    "activation": lambda: spectral_network((2, 3, 1), activation=LONG),
    "update": lambda: spectral_network((2, 3, 1), update=LONG),
    "eigenvalues": lambda: spectral_network((2, 3, 1), eigenvalues=LONG),
    "soft": lambda: jaxarch.masks.two_temperature(jnp.ones(500), np.ones(500), 2 * np.ones(500)),
    "where": lambda: jaxarch.select({"w": jnp.ones((2, 2))}, [LONG]),
}


@pytest.mark.parametrize("argument", ECHOED)
def test_no_message_echoes_more_than_a_line_of_what_was_handed_in(argument):
    assert refused(ECHOED[argument]).startswith(f"{argument}: ")


THREE = jnp.ones(3)
ONE_NUMBER = {
    "dense": ("std", lambda: search.dense(std=THREE)),
    "untrained": ("std", lambda: search.untrained(THREE)),
    "two_temperature hard": ("hard", lambda: search.two_temperature(50 * THREE)),
    "two_temperature soft": ("soft", lambda: search.two_temperature(50.0, THREE)),
    "two_temperature mean": ("mean", lambda: search.two_temperature(mean=THREE)),
    "two_temperature std": ("std", lambda: search.two_temperature(std=THREE)),
    "architecture_pruning hard": ("hard", lambda: search.architecture_pruning(0.5, hard=100 * THREE)),
    "architecture_pruning strength": ("strength", lambda: search.architecture_pruning(0.5, strength=THREE)),
    "architecture_pruning std": ("std", lambda: search.architecture_pruning(0.5, std=THREE)),
    "logistic_regression": ("C", lambda: search.logistic_regression(THREE)),
    "recruit": ("tolerance", lambda: jaxarch.recruit(THREE)),
    "retrain": ("std", lambda: jaxarch.retrain(std=THREE)),
    "early stopping": ("least", lambda: jaxarch.EarlyStopping(least=[1.0])),
    "ragged": ("std", lambda: search.dense(std=[[1], [1, 2]])),
}


@pytest.mark.parametrize("case", ONE_NUMBER)
def test_where_one_number_is_meant_an_array_is_refused(case):
    argument, call = ONE_NUMBER[case]
    assert refused(call).startswith(f"{argument}: expected one number, got ")


def learn(**changes):
    given = {
        "model": jaxarch.models.tanh_network((64, 3)),
        "data": (digits().x, np.where(digits().y < 5, 1.0, -1.0)),
        "loss": jaxarch.models.signed_output_loss,
        "optimizer": optax.sgd(0.1),
        "steps": 4,
        "batch_size": 10,
    } | changes
    return jaxarch.supervised(given.pop("model"), given.pop("data"), **given)


def broken(key):
    raise RuntimeError("no start\nat all")


SUPERVISED = {
    "train: it is ragged": {"train": [[1], [1, 2]]},
    "validation: it is ragged": {"validation": [[1], [1, 2]]},
    "gather: expected a function": {"gather": None},
    "gather: expected a function (data, per_run, rows) -> (x, y); on": {"gather": lambda data, rows: data},
    "per_run: expected arrays with a leading axis": {"per_run": 3},
    "augment: expected a function (key, x) -> x; it does not take": {"augment": lambda x: x},
    "augment: expected inputs of shape": {"augment": lambda key, x: x[:, :2]},
    "model: it cannot be initialised: no start at all": {"model": (broken, lambda params, x: x)},
    "metrics: expected a function": {"metrics": "acc"},
    "metrics: expected a function (outputs, y) -> {name: scalar}; it makes": {"metrics": lambda o, y: y},
    "metrics: it does not take outputs": {"metrics": lambda outputs: {}},
}


@pytest.mark.parametrize("message", SUPERVISED)
def test_a_problem_of_odd_parts_is_refused_when_it_is_made(message):
    assert refused(lambda: learn(**SUPERVISED[message])).startswith(message)


OPTIONS = {
    "progress": True,
    "schedule": 3,
    "early_stopping": True,
    "checkpoint": "folder",
    "devices": 2,
    "memory": "1GB",
    "labels": "abcd",
    "labels ": 3,
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_of_another_kind_is_refused_before_anything_is_run(name):
    option = name.strip()
    text = refused(lambda: jaxarch.over_seeds(search.dense(), keys(), problem(), **{option: OPTIONS[name]}))
    assert text.startswith(f"{option}: expected ")


RATES = {"n": jnp.arange(1, 5), "rate": jnp.ones(4)}


def run(strategy=None, learning=None, settings=None, **options):
    learning = problem() if learning is None else learning
    return jaxarch.over_seeds(strategy or search.dense(), keys(), learning, settings, **options)


RUN = {
    "schedule: it must return settings of the structure": lambda: run(
        lambda s: search.dense(std=s["rate"]), settings=RATES, schedule=lambda step, settings: [1.0]
    ),
    "schedule: it must return": lambda: run(
        lambda s: search.dense(std=s["rate"]), settings=RATES, schedule=lambda step, s: s | {"rate": THREE}
    ),
    "key: expected one, as of jax.random.key(0), got 3": lambda: jaxarch.chain(search.dense())(3, problem()),
    "key: expected one, as of jax.random.key(0), got Array": lambda: jaxarch.chain(search.dense())(
        keys(), problem()
    ),
    "problem: expected one": lambda: run(learning=(1, 2)),
    "strategies: expected a dict": lambda: jaxarch.compare([search.dense()], keys(), problem()),
    "network: expected what over_seeds returned": lambda: run(jaxarch.prune(), network={"a": jnp.ones(4)}),
    "strategy: with settings": lambda: run(search.dense(), settings=RATES),
    "settings: the strategy makes a Python number": lambda: run(
        lambda s: search.dense(steps=int(s["n"])), settings=RATES
    ),
}


@pytest.mark.parametrize("message", RUN)
def test_a_run_of_what_cannot_be_run_is_refused(message):
    assert refused(RUN[message]).startswith(message)


MASKS = {
    "percentiles: expected numbers in [0, 100], got ((1, 2), (3,))": lambda: jaxarch.threshold(
        ((1, 2), (3,))
    ),
    "mask: expected arrays, got True as leaf 'a'": lambda: jaxarch.density({"a": True}),
    "mask: expected arrays, got False as leaf 'b'": lambda: jaxarch.masks.connections({"b": False}),
    "mask: expected arrays, got 1": lambda: jaxarch.overlap({"a": jnp.ones(2, bool)}, {"a": 1}),
    "scores: expected arrays": lambda: jaxarch.masks.top_k({"a": 1.0}, 1),
}


@pytest.mark.parametrize("message", MASKS)
def test_masks_and_scores_that_are_no_arrays_are_refused(message):
    assert refused(MASKS[message]).startswith(message)


def bare():
    return jaxarch.architecture(jax.tree.map(lambda w: jnp.ones((4, *w.shape), bool), of_one().params))


def of_one():
    return search.untrained()(jax.random.key(0), problem())


def evaluated(network, learning=None):
    return lambda: jaxarch.evaluate(
        search.dense(), network(), problem() if learning is None else learning, np.arange(3)
    )


EVALUATED = {
    "network: expected what over_seeds returned": evaluated(lambda: of_one().params),
    "network: it is of one run": evaluated(of_one),
    "network: it is a bare architecture": evaluated(bare),
    "network: expected a leading axis of 4 runs": evaluated(
        lambda: jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), of_one())
    ),
    "problem: expected one": evaluated(of_one, (1, 2)),
}


@pytest.mark.parametrize("message", EVALUATED)
def test_an_evaluation_of_no_networks_of_many_runs_is_refused(message):
    assert refused(EVALUATED[message]).startswith(message)


def other_head():
    mask = {"other": jnp.ones((4, 2, 2), bool)}
    return run(jaxarch.new_head(), network=jaxarch.architecture(mask))


FILES = {
    "path: expected that of a file": lambda path: jaxarch.save_mask(".", {"w": jnp.ones(2, bool)}),
    "mask: expected booleans in at least one leaf": lambda path: jaxarch.save_mask(path, None),
    "mask: leaf 'a' is no array": lambda path: jaxarch.save_mask(path, {"a": True}),
    "tree: leaf 'a' is no array": lambda path: jaxarch.save_tree(path, {"a": 1.0}),
    "like: leaf 'a' is no array": lambda path: jaxarch.load_tree(path, {"a": 1.0}),
    "like: expected a pytree with at least one array": lambda path: jaxarch.load_mask(path, None),
    "network: it masks other; ": lambda path: other_head(),
    "where: expected a function": lambda path: jaxarch.select({"w": jnp.ones((2, 2))}, 3),
    "activation: expected floating-point values, got bool": lambda path: spectral_network(
        (2, 3, 1), activation=lambda x: x > 0
    ),
}


@pytest.mark.parametrize("message", FILES)
def test_what_does_not_fit_is_refused_and_no_file_is_written(message, tmp_path):
    assert refused(lambda: FILES[message](tmp_path / "file.npz")).startswith(message)
    assert not list(tmp_path.iterdir())

"""What a user may get wrong, a call each: one line that begins with the argument."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import digits, keys, problem

import jaxarch
from jaxarch import ArgumentError, search
from jaxarch.models import spectral_network
from jaxarch.theory import bounds

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
    "form": lambda: spectral_network((2, 1), form=LONG),
    "percentiles": lambda: jaxarch.threshold(tuple(range(-1, 5000))),
    "start": lambda: jaxarch.retrain(LONG),
    "scale": lambda: search.two_temperature(scale=LONG),
    "units": lambda: search.two_temperature(units=LONG),
    "weights": lambda: search.two_temperature(weights=LONG),
    "fraction": lambda: jaxarch.prune(LONG),
    "density": lambda: jaxarch.at_density(LONG),
    "weight": lambda: jaxarch.share_weight(LONG),
    "scope": lambda: search.random_mask(0.5, scope=LONG),
    "lottery_form": lambda: jaxarch.disentangling_strategies(lottery_form=LONG),
    "choose": lambda: search.magnitude_pruning(0.5, choose=LONG),
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
    "train: runs have different numbers of rows": {"train": [[1], [1, 2]]},
    "validation: runs have different numbers of rows": {"validation": [[1], [1, 2]]},
    "gather: expected a function": {"gather": None},
    "gather: expected a function (data, per_run, rows) -> (x, y); it fails": {
        "gather": lambda data, rows: data
    },
    "per_run: expected arrays with a leading axis": {"per_run": 3},
    "augment: expected a function (key, x) -> x; it does not take": {"augment": lambda x: x},
    "augment: expected it to keep the inputs' shape": {"augment": lambda key, x: x[:, :2]},
    "model: it cannot be initialised: no start at all": {"model": (broken, lambda params, x: x)},
    "metrics: expected a function": {"metrics": "acc"},
    "metrics: expected a function (outputs, y) -> {name: scalar}; it does not return a dict": {
        "metrics": lambda o, y: y
    },
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
    "schedule: expected it to return settings with the structure": lambda: run(
        lambda s: search.dense(std=s["rate"]), settings=RATES, schedule=lambda step, settings: [1.0]
    ),
    "schedule: expected it to return": lambda: run(
        lambda s: search.dense(std=s["rate"]), settings=RATES, schedule=lambda step, s: s | {"rate": THREE}
    ),
    "key: expected one random key, such as jax.random.key(0), got 3": lambda: jaxarch.chain(search.dense())(
        3, problem()
    ),
    "key: expected one random key, such as jax.random.key(0), got Array": lambda: jaxarch.chain(
        search.dense()
    )(keys(), problem()),
    "problem: expected a Problem": lambda: run(learning=(1, 2)),
    "strategies: expected a dict": lambda: jaxarch.compare([search.dense()], keys(), problem()),
    "network: expected a network returned by over_seeds": lambda: run(
        jaxarch.prune(), network={"a": jnp.ones(4)}
    ),
    "strategy: with settings": lambda: run(search.dense(), settings=RATES),
    "settings: the strategy converts one to a Python number": lambda: run(
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
    "mask: expected arrays, got True as leaf 'c'": lambda: jaxarch.layer_density({"c": True}),
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
    "network: expected a network returned by over_seeds": evaluated(lambda: of_one().params),
    "network: it holds one run": evaluated(of_one),
    "network: it is a bare architecture": evaluated(bare),
    "network: expected a leading axis of 4 runs": evaluated(
        lambda: jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), of_one())
    ),
    "problem: expected a Problem": evaluated(of_one, (1, 2)),
}


@pytest.mark.parametrize("message", EVALUATED)
def test_an_evaluation_of_no_networks_of_many_runs_is_refused(message):
    assert refused(EVALUATED[message]).startswith(message)


def other_head():
    mask = {"other": jnp.ones((4, 2, 2), bool)}
    return run(jaxarch.new_head(), network=jaxarch.architecture(mask))


FILES = {
    "path: expected the path of a file": lambda path: jaxarch.save_mask(".", {"w": jnp.ones(2, bool)}),
    "mask: expected booleans in at least one leaf": lambda path: jaxarch.save_mask(path, None),
    "mask: expected an array in leaf 'a'": lambda path: jaxarch.save_mask(path, {"a": True}),
    "tree: expected an array in leaf 'a'": lambda path: jaxarch.save_tree(path, {"a": 1.0}),
    "like: expected an array in leaf 'a'": lambda path: jaxarch.load_tree(path, {"a": 1.0}),
    "like: expected a pytree with at least one array": lambda path: jaxarch.load_mask(path, None),
    "network: it masks other, but the problem's model has only ": lambda path: other_head(),
    "where: expected a function": lambda path: jaxarch.select({"w": jnp.ones((2, 2))}, 3),
    "activation: expected it to return floating-point values, got bool": lambda path: spectral_network(
        (2, 3, 1), activation=lambda x: x > 0
    ),
}


@pytest.mark.parametrize("message", FILES)
def test_what_does_not_fit_is_refused_and_no_file_is_written(message, tmp_path):
    assert refused(lambda: FILES[message](tmp_path / "file.npz")).startswith(message)
    assert not list(tmp_path.iterdir())


X, Y = np.ones((4, 3), np.float32), np.arange(4) % 2


def fitted(x, y):
    """Logistic regression on data that a network could be trained on."""
    made = learn(
        data=(x, y),
        model=(lambda key: {"w": jnp.ones((3, 1))}, lambda params, x: jax.tree.leaves(x)[0] @ params["w"]),
        loss=lambda outputs, y: outputs[:, 0],
        batch_size=2,
    )
    return run(search.logistic_regression(), made)


LOGISTIC = {
    "inputs in a dict": (lambda: fitted({"a": X}, Y), "got shapes ({'a': (4, 3)}, (4,))"),
    "inputs in a tuple": (lambda: fitted((X, X), Y), "got shapes (((4, 3), (4, 3)), (4,))"),
    "no labels": (lambda: fitted(X, None), "got shapes ((4, 3), None)"),
    "labels with weights": (lambda: fitted(X, {"y": Y, "weight": Y}), "{'weight': (4,), 'y': (4,)}"),
    "many labels an example": (lambda: fitted(X, X), "got shapes ((4, 3), (4, 3))"),
}


@pytest.mark.parametrize("case", LOGISTIC)
def test_logistic_regression_takes_one_array_of_inputs_and_one_of_labels(case):
    call, found = LOGISTIC[case]
    text = refused(call)
    assert text.startswith("problem: logistic regression needs x and y to be one array each, ")
    assert found in text


def bounded(**changes):
    params, state = problem().init(jax.random.key(0))
    given = {"problem": problem().of_run(0), "params": params, "state": state} | changes
    return bounds.gradient_bounds(**given)


def bound(loss, *boxes):
    return bounds.gradient_bound(loss, {"w": jnp.ones(2)}, *boxes)


BOUNDS = {
    "problem: expected a Problem": lambda: bounded(problem=(X, Y)),
    "problem: its rows have shape": lambda: bounded(problem=problem()),
    "params: the problem's loss fails with them; ": lambda: bounded(problem=problem(), rows=jnp.arange(3)),
    "rows: rows must lie in [0, 1797), got 2000": lambda: bounded(rows=np.array([2000])),
    "rows: expected the rows of one run, shape (n,), got": lambda: bounded(rows=np.array([[1, 2]])),
    "rows: expected at least one": lambda: bounded(rows=np.array([], int)),
    "rows: expected integer rows": lambda: bounded(rows=0.5),
    "key: expected one": lambda: bounds.looseness(keys(), problem().of_run(0), {}),
    "lower: expected a tuple": lambda: bound(lambda mask: mask["w"].sum(), X, X),
    "loss: it does not take (mask, *z): ": lambda: bound(lambda mask: mask["w"].sum(), (X,), (X,)),
    "loss: expected a scalar, got shapes (2,)": lambda: bound(lambda mask: mask["w"]),
}


@pytest.mark.parametrize("message", BOUNDS)
def test_a_bound_of_what_has_no_gradient_is_refused(message):
    assert refused(BOUNDS[message]).startswith(message)


def two_groups(data=None, key=None, positive=(1,), **changes):
    data, key = data or digits(), jax.random.key(0) if key is None else key
    counts = {"train_per_class": 2, "test_per_class": 2, "seeds": 1}
    return jaxarch.lab.data.two_groups(key, data, positive, (2,), **counts | changes)


def balanced(labels=Y, key=None):
    key = jax.random.key(0) if key is None else key
    return jaxarch.lab.data.balanced_rows(key, labels, np.arange(4), per_class=1)


DATA = {
    "data: expected a Dataset, got (": lambda: jaxarch.lab.data.unit_norm((X, Y)),
    "data: expected a Dataset, got Problem": lambda: two_groups(learn()),
    "positive: expected class labels such as (1, 2, 3), got 1": lambda: two_groups(positive=1),
    "orientations: expected some of (False, True), got ()": lambda: two_groups(orientations=()),
    "orientations: expected True or False, got 'yes'": lambda: two_groups(orientations=("yes",)),
    "key: expected one random key, such as jax.random.key(0), got 7": lambda: two_groups(key=7),
    "key: expected one random key, such as jax.random.key(0), got 8": lambda: balanced(key=8),
    "labels: expected non-negative integers of shape (examples,), got <U1": lambda: balanced(["a", "b"]),
    "labels: expected an array": lambda: balanced([[1], [1, 2]]),
    "x: expected finite numbers of shape (examples, features), got object": lambda: (
        jaxarch.lab.data.principal_components({"a": X}, 1)
    ),
    "x: expected finite numbers of shape (examples, features), got float32": lambda: (
        jaxarch.lab.data.principal_components(X * np.nan, 1)
    ),
    "images: expected an array": lambda: jaxarch.lab.data.crop_and_pool((X, Y)),
    "images: expected shape": lambda: jaxarch.lab.data.crop_and_pool({"a": X}),
    "data: expected uint8 pixels with 1 channels, like mean and std, got {'a'": lambda: learn(
        data=({"a": X}, Y), gather=jaxarch.io.take_images([0.5], [0.5])
    ),
    "x: expected pictures of shape (batch, height, width, channels), got {'a'": lambda: (
        jaxarch.io.crop_and_flip()(jax.random.key(0), {"a": X})
    ),
    "data: expected y to be integer classes of shape (n,), got None": lambda: learn(
        data=(X, None), gather=jaxarch.lab.data.take_task_rows
    ),
    'per_run: expected {"targets"': lambda: learn(data=(X, Y), gather=jaxarch.lab.data.take_task_rows),
    "dataset: unknown 3; ": lambda: jaxarch.lab.data.download(3),
}


@pytest.mark.parametrize("message", DATA)
def test_data_of_another_kind_are_refused(message):
    assert refused(DATA[message]).startswith(message)

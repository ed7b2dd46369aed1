"""Random search over nodes: sizes by hand, the sample that must win, and what NaN does to it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import close, keys, same

import jaxarch
from jaxarch import Network, TrainingInfo, named_leaves
from jaxarch.search import random_search
from jaxarch.search._keep_best import Kept, keep, pick
from jaxarch.search._random_search import sampled_widths

X = np.array([[1.0], [2.0], [-1.0], [3.0]], np.float32)
RATE = 0.01
PARAMS = {"hidden": {"kernel": jnp.ones((1, 2))}, "head": {"kernel": jnp.array([[1.0], [3.0]])}}


def apply(params, x):
    return (x @ params["hidden"]["kernel"] @ params["head"]["kernel"])[:, 0]


def problem_of(y, steps=2, **options):
    """Two linear paths from input to output, with weights 1, 1 and 1, 3."""
    return jaxarch.supervised(
        (lambda key: PARAMS, apply),
        (X, np.asarray(y, np.float32)),
        loss=optax.squared_error,
        optimizer=optax.sgd(RATE),
        steps=steps,
        **options,
    )


def trained_by_hand(second, steps):
    """F of one path, with weights 1 and `second` at first, after gradient steps towards y = 3 x."""
    a, b, square = 1.0, second, float(np.mean(X**2))
    for _ in range(steps):
        error = 2 * (a * b - 3) * square
        a, b = a - RATE * error * b, b - RATE * error * a
    return (a * b - 3) ** 2 * square


@pytest.mark.long
def test_densities_that_are_traced_draw_the_nodes_that_they_draw_as_numbers():
    problem = jaxarch.supervised(
        jaxarch.models.tanh_network((6, 8, 8)),
        (np.ones((4, 6), np.float32), np.ones(4, np.float32)),
        loss=optax.squared_error,
        optimizer=optax.sgd(RATE),
        steps=1,
    )
    densities = np.array([0.0625, 0.25, 0.875, 1.0], np.float32)  # the same in float64
    traced, _ = jaxarch.over_seeds(
        lambda density: random_search(density, samples=2), keys(4), problem, jnp.asarray(densities)
    )
    for run, density in enumerate(densities):
        alone = random_search(float(density), samples=2)(keys(4)[run], problem)
        assert same(alone.mask, traced.of_run(run).mask)


@pytest.mark.long
def test_the_best_sample_is_found_with_the_weights_that_it_was_trained_to():
    # Half of 4 connections are those of one node. The second one starts at the solution.
    network = jax.jit(random_search(0.5, samples=4))(keys()[0], problem_of(3 * X[:, 0]))
    objectives = np.asarray(network.info["objectives"])
    by_hand = np.array([trained_by_hand(1.0, 2), 0.0])
    assert by_hand[0] > 0.1
    which = np.abs(objectives[:, None] - by_hand).argmin(1)
    np.testing.assert_allclose(objectives, by_hand[which], rtol=1e-4, atol=1e-6)
    assert set(which) == {0, 1}
    assert int(network.info["sample"]) == int(which.argmax())
    assert network.params["hidden"]["kernel"].tolist() == [[0.0, 1.0]]
    assert network.params["head"]["kernel"].tolist() == [[0.0], [3.0]]
    assert same(network.mask, jax.tree.map(lambda leaf: leaf != 0, network.params))
    assert same(network.info["densities"], jnp.full(4, 0.5))


@pytest.mark.long
def test_samples_are_judged_on_the_validation_rows_if_there_are_any():
    y = np.where(np.arange(4) < 2, 3, 1) * X[:, 0]
    learning = problem_of(y, train=np.arange(2), validation=np.arange(2, 4))
    network = jax.jit(random_search(0.5, samples=4))(keys()[0], learning)
    assert network.mask["hidden"]["kernel"].tolist() == [[True, False]]


@pytest.mark.parametrize("validation", [None, np.arange(3)])
def test_an_objective_of_blocks_of_rows_is_that_of_all_rows(validation):
    learning = problem_of(3 * X[:, 0], train=np.arange(3), validation=validation)
    network = Network(PARAMS, jax.tree.map(lambda leaf: leaf > 0, PARAMS), {})

    def objective(rows, network=network):
        return keep(1, validate=True, rows_at_once=rows)(keys()[0], learning, network)[Kept].objective

    kept = [objective(rows) for rows in (2, None)]
    loops = ["scan" in str(jax.make_jaxpr(functools.partial(objective, rows))(network)) for rows in (2, None)]
    assert loops == [True, False]
    assert kept[0] == pytest.approx(np.mean((4 - 3) ** 2 * X[:3] ** 2), rel=1e-6)
    assert kept[0] == pytest.approx(float(kept[1]), rel=1e-6)


@pytest.mark.parametrize(
    ("objectives", "chosen"),
    [([2, 1, 1], 1), ([np.nan, 3, np.nan], 1), ([3, np.nan, 2], 2), ([np.nan, np.nan, np.nan], 0)],
)
def test_a_network_whose_objective_is_nan_is_kept_only_if_all_are(objectives, chosen):
    learning = dataclasses.replace(
        problem_of(X[:, 0]), loss=lambda params, state, batch, key: (params["w"], state)
    )
    records = ()
    for place, objective in enumerate(objectives):
        mask = {"w": jnp.arange(3) == place}
        network = Network({"w": jnp.asarray(objective, jnp.float32)}, mask, {}, records=records)
        records = keep(3)(keys()[0], learning, network).records
    network = pick("sample", "objectives")(keys()[0], learning, network.replace(records=records))
    assert int(network.info["sample"]) == int(network.mask["w"].argmax()) == chosen
    assert same(network.info["objectives"], jnp.asarray(objectives, jnp.float32))


class Residual(nnx.Module):
    """A picture, two convolutions, a flatten, and a residual block of dense layers."""

    def __init__(self, rngs):
        self.convs = nnx.List([nnx.Conv(1, 4, (3, 3), rngs=rngs), nnx.Conv(4, 6, (3, 3), rngs=rngs)])
        self.stem, self.into = nnx.Linear(24, 8, rngs=rngs), nnx.Linear(8, 6, rngs=rngs)
        self.back, self.head = nnx.Linear(6, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x):
        for conv in self.convs:
            x = nnx.relu(conv(x))
        x = self.stem(x.reshape(x.shape[0], -1))
        return self.head(x + self.back(nnx.relu(self.into(x))))


@pytest.fixture(scope="module")
def pictures():
    return jaxarch.supervised(
        Residual,
        (np.ones((4, 2, 2, 1), np.float32), np.arange(4) % 3),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.sgd(RATE),
        steps=1,
    )


@pytest.mark.long
@pytest.mark.parametrize("density", [0.01, 0.3, 1.0])
def test_a_sample_has_exactly_its_size_between_nodes_of_any_model(pictures, density):
    draw = jax.jit(random_search(density).stages[0])
    mask = draw(keys()[0], pictures).mask
    leaves = named_leaves(mask)
    size = sum(leaf.size for leaf in leaves.values())
    assert int(jaxarch.masks.connections(mask)) == round(density * size)
    if density < 1:
        assert not same(mask, draw(keys()[1], pictures).mask)
    if density == 0.3:
        # A feature of the residual stream is there in all that write to it and that read it, or in none.
        there = [leaves[f"{name}/kernel"].any(1) for name in ("head", "into")]
        there += [leaves[f"{name}/kernel"].any(0) for name in ("stem", "back")]
        assert 0 < there[0].sum() < 8
        assert all(same(there[0], other) for other in there)
        # A channel is flattened to four inputs: it is there with all of them, or with none.
        by_channel = leaves["stem/kernel"].reshape(4, 6, 8).any(2)
        assert same(by_channel.any(0), by_channel.all(0))


@pytest.mark.parametrize(
    ("total", "widths"), [(0, [1, 1]), (4, [1, 1]), (5, [1, 2]), (7, [2, 3]), (13, [2, 3]), (30, [3, 6])]
)
def test_all_groups_keep_the_same_share_of_their_nodes(total, widths):
    # Of 2-3-6-1: shares 1/6, 1/3, 1/2 leave 2-1-1-1, 2-1-2-1, 2-2-3-1, with 4, 6 and 13 connections.
    def connections(of):
        return 2 * of["a"] + of["a"] * of["b"] + of["b"]

    assert list(sampled_widths({"a": 3, "b": 6}, connections, total).values()) == widths


@pytest.mark.long
def test_over_seeds_every_sample_starts_from_the_weights_of_the_whole_network(tmp_path):
    fixed = problem_of(3 * X[:, 0])

    def init(key):
        return jax.tree.map(lambda leaf: leaf + 0.1 * jax.random.normal(key, leaf.shape), PARAMS)

    learning = dataclasses.replace(fixed, init=lambda key: (init(key), {}))
    strategy, options = (
        random_search(0.5, samples=2),
        {"checkpoint": jaxarch.Checkpoints(tmp_path)},
    )
    network, report = jaxarch.over_seeds(strategy, keys(), learning, **options)
    alone = jax.jit(strategy)(keys()[2], learning)
    assert close(network.of_run(2), alone)
    assert network.info["objectives"].shape == (4, 2)
    again, _ = jaxarch.over_seeds(strategy, keys(), learning, **options)
    assert same(network, again)
    start = jax.vmap(lambda key: init(jax.random.split(jax.random.fold_in(key, 0))[0]))(keys())
    assert close(network[jaxarch.Start].params, start)
    assert sum(stage.name == "retrain rewind" for stage in report.stages) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: random_search(0.0), r"density: expected a number in \(0, 1\]"),
        (lambda: random_search(0.5, samples=0), "samples: expected an integer of at least 1"),
        (lambda: random_search(0.5, rows_at_once=0), "rows_at_once: expected an integer of at least 1"),
        (lambda: draw_from_one_layer(), "model: it has no hidden neurons"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def draw_from_one_layer():
    one = (lambda key: {"kernel": jnp.ones((1, 1))}, lambda params, x: x @ params["kernel"])
    problem = jaxarch.supervised(one, (X, X), loss=optax.squared_error, optimizer=optax.sgd(RATE), steps=1)
    return random_search(0.5).stages[0](keys()[0], problem)


def test_a_failure_is_kept_with_its_network_and_handed_on_only_where_networks_build_on_one_another():
    learning = dataclasses.replace(
        problem_of(X[:, 0]), loss=lambda params, state, batch, key: (params["w"], state)
    )
    failed = Network(
        {"w": jnp.asarray(jnp.nan)}, {"w": jnp.ones(3, bool)}, {}, info=TrainingInfo(failed_at=jnp.asarray(5))
    )
    for apart, handed_on in ((True, -1), (False, 5)):
        network = keep(2, apart=apart)(keys()[0], learning, failed)
        assert (network[Kept].failed_at, network.info.failed_at) == (5, handed_on)


def test_a_sample_whose_training_failed_is_no_failure_of_the_one_that_is_found():
    learning = dataclasses.replace(
        problem_of(X[:, 0]), loss=lambda params, state, batch, key: (params["w"], state)
    )

    def trained(objective, failed_at):
        def stage(key, problem, network=None):
            mask = {"w": jnp.ones(3, bool)}
            params = {"w": jnp.asarray(objective, jnp.float32)}
            failed = jnp.asarray(failed_at, jnp.int32)
            info = TrainingInfo(failed_at=failed, dead_start=jnp.asarray(False))
            return Network(params, mask, {}, info=info)

        return stage

    kept, chosen = keep(2, apart=True), pick("sample", "objectives", apart=True)
    search = jaxarch.chain(trained(np.nan, 5), kept, trained(1.0, -1), kept, chosen)
    network = search(keys()[0], learning)
    assert network.info["sample"] == 1
    assert network.info.failed_at == -1
    alone = jaxarch.chain(trained(np.nan, 5), kept, trained(np.nan, 7), kept, chosen)
    assert alone(keys()[0], learning).info.failed_at == 5

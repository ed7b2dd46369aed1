"""The lottery of [D]: a number of rounds of pruning by magnitude, rewound to the start, and the one found."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import close, keys, problem, same

import jaxarch
from jaxarch import Network
from jaxarch.run import _training as training

ROUNDS = 2


def lottery(choose="best"):
    return jaxarch.search.magnitude_pruning(rounds=ROUNDS, choose=choose, nonnegative=True)


def found_with(weights, mask):
    return Network({"w": jnp.asarray(weights)}, {"w": jnp.asarray(mask)}, {})


@pytest.fixture(scope="module")
def one():
    return problem(steps=40).of_run(0)


@pytest.fixture(scope="module")
def ticket(one):
    return jax.jit(lottery())(keys()[0], one)


def test_pruning_removes_the_smallest_weights_of_those_that_are_left():
    weights = np.array([[0.5, -0.1, 0.0], [-0.4, 0.3, 0.2]])
    mask = np.array([[True, True, False], [True, True, True]])
    pruned = jaxarch.prune(0.4)(keys()[0], problem(), found_with(weights, mask))
    assert same(pruned.mask["w"], np.array([[True, False, False], [True, True, False]]))
    assert close(pruned.params["w"], np.where(pruned.mask["w"], weights, 0))


def test_each_leaf_is_pruned_by_itself_where_it_has_a_share_of_its_own():
    weights = {"a": np.array([[3.0, 4.0, 5.0, 6.0]]), "b": np.array([[0.1, 0.2]])}
    network = Network(weights, jax.tree.map(np.ones_like, {k: w > 0 for k, w in weights.items()}), {})
    pruned = jaxarch.prune({"a": 0.5, "b": 0.0})(keys()[0], problem(), network)
    assert same(pruned.mask["a"], np.array([[False, False, True, True]]))
    assert same(pruned.mask["b"], np.array([[True, True]]))


@pytest.mark.parametrize(
    ("fraction", "message"),
    [
        ({"w": 0.5, "v": 0.5}, "fraction: no leaf 'v'"),
        ({}, "fraction: expected a value for each leaf, got none for 'w'"),
        ({"w": 1.0}, "fraction of 'w': expected a number"),
    ],
)
def test_shares_of_other_leaves_than_there_are_or_of_all_are_refused(fraction, message):
    network = found_with(np.ones((2, 2)), np.ones((2, 2), bool))
    with pytest.raises(jaxarch.ArgumentError, match=f"^{message}"):
        jaxarch.prune(fraction)(keys()[0], problem(), network)


def test_pruning_in_rounds_leaves_the_product_of_the_shares():
    network = found_with(np.linspace(-1, 1, 1000).reshape(10, 100), np.ones((10, 100), bool))
    for _ in range(3):
        network = jaxarch.prune(0.2)(keys()[0], problem(), network)
    assert int(network.mask["w"].sum()) == 512


@pytest.mark.long
def test_rewinding_starts_from_the_weights_that_the_first_training_started_from(one):
    real = jaxarch.search.dense()
    start = real.params(real.settings, training.begin(real, keys()[0], one, None).state)
    network = jaxarch.prune(0.5)(keys()[0], one, jaxarch.search.dense()(keys()[0], one))
    rewound = jaxarch.retrain("rewind")
    again = rewound.params(rewound.settings, training.begin(rewound, keys()[1], one, network).state)
    assert close(again, jax.tree.map(lambda m, w: jnp.where(m, w, 0), network.mask, start))


@pytest.mark.long
def test_it_is_training_pruning_rewinding_and_training_again(one, ticket):
    @jax.jit
    def by_hand(key):
        # Stages draw from keys by their place: real, keep, prune, retrain, keep, prune, retrain, keep, ...
        network = jaxarch.search.dense()(jax.random.fold_in(key, 0), one)
        start, losses = network[jaxarch.Start], [one.objective(network.params, {})]
        for place in range(3, 3 * ROUNDS + 1, 3):
            network = jaxarch.prune()(key, one, network).with_records(start)
            network = jaxarch.retrain("rewind")(jax.random.fold_in(key, place), one, network)
            losses.append(one.objective(network.params, {}))
        return jnp.stack(losses)

    assert close(by_hand(keys()[0]), ticket.info["losses"], 1e-4)


def test_it_begins_with_the_training_of_the_whole_network_which_is_run_once_for_both():
    strategies = jaxarch.disentangling_strategies(std=0.3)
    assert strategies["lottery"].stages[0] == strategies["real"]


@pytest.mark.long
def test_the_round_with_the_least_loss_is_found(one, ticket):
    losses = np.asarray(ticket.info["losses"])
    assert np.isfinite(losses).all()
    assert int(ticket.info["round"]) == int(losses.argmin())
    assert close(one.objective(ticket.params, {}), losses.min())
    assert float(jaxarch.density(ticket.mask)) == float(ticket.info["densities"][losses.argmin()])


def test_every_round_and_the_network_before_them_has_its_loss_and_density(one):
    info = jax.eval_shape(lottery(), keys()[0], one).info
    assert info["losses"].shape == info["densities"].shape == (ROUNDS + 1,)


@pytest.mark.long
def test_the_last_round_can_be_asked_for(one):
    last = jax.jit(lottery("last"))(keys()[0], one)
    assert int(last.info["round"]) == ROUNDS
    assert abs(float(jaxarch.density(last.mask)) - 0.8**ROUNDS) < 1e-3


@pytest.mark.long
def test_what_only_the_stages_need_is_not_in_the_result(ticket):
    assert [type(record) for record in ticket.records] == [jaxarch.Start]


@pytest.mark.long
def test_the_recursion_as_printed_changes_nothing_after_its_first_round(one):
    strategies = jaxarch.disentangling_strategies(lottery_rounds=ROUNDS, lottery_form="printed")
    printed = jax.jit(strategies["lottery"])(keys()[0], one)
    densities, losses = printed.info["densities"], printed.info["losses"]
    assert float(densities[1]) < 1
    assert same(densities[1:], jnp.full(ROUNDS, densities[1]))
    assert same(losses[1:], jnp.full(ROUNDS, losses[1]))


@pytest.mark.long
def test_networks_whose_loss_is_nan_are_not_found(one):
    def loss(params, state, batch, key):
        value, state = one.loss(params, state, batch, key)
        pruned = (params["w1"] == 0).mean() > 0.3
        return jnp.where(pruned, jnp.nan, value), state

    broken = dataclasses.replace(one, loss=loss)
    network = jax.jit(lottery())(keys()[0], broken)
    assert int(network.info["round"]) <= 1
    assert np.isnan(np.asarray(network.info["losses"])[2:]).all()


def test_rewinding_needs_a_search_that_tells_where_it_started():
    with pytest.raises(ValueError, match=r"retrain rewind: it needs a network with `Start`; .*search\.dense"):
        jaxarch.over_seeds(
            jaxarch.chain(jaxarch.search.two_temperature(), jaxarch.retrain("rewind")), keys(), problem()
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: jaxarch.disentangling_strategies(lottery_rounds=0),
            "lottery_rounds: expected an integer of at least 1",
        ),
        (
            lambda: jaxarch.disentangling_strategies(lottery_form="literal"),
            "lottery_form: expected 'rewind' or 'printed'",
        ),
        (lambda: jaxarch.threshold(weights="zeros"), "weights: expected 'ones' or 'found'"),
    ],
)
def test_bad_arguments_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()

"""Magnitude pruning to given densities: rounds by hand, exact sizes, tickets that are rewound."""

import jax
import numpy as np
import optax
import pytest
from small import RUNS, keys, problem, same

import jaxarch
from jaxarch.masks._largest import counts_kept
from jaxarch.search import magnitude_pruning, round_densities
from jaxarch.search._rounds import by_density, by_fraction

DENSITIES = (0.5, 0.25)


def learning():
    return problem(width=16)


@pytest.fixture(scope="module")
def tickets():
    return jaxarch.over_seeds(magnitude_pruning(DENSITIES, fraction=0.3), keys(), learning())[0]


@pytest.fixture(scope="module")
def one_shot():
    return jaxarch.over_seeds(magnitude_pruning(DENSITIES, fraction=None), keys(), learning())[0]


def test_rounds_between_two_densities_keep_equal_shares_by_hand():
    # log(.5) / log(.7) = 1.9: two rounds from 1 to .5, two more to .25, each of which keeps .5^(1/2).
    np.testing.assert_allclose(round_densities(DENSITIES, 0.3), [0.5**0.5, 0.5, 0.5**1.5, 0.25])


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_no_round_removes_more_than_its_fraction_and_every_density_is_met(fraction):
    sizes = round_densities((0.9, 0.33, 0.01), fraction)
    shares = np.asarray(sizes) / np.asarray([1.0, *sizes[:-1]])
    assert (shares > 1 - fraction - 1e-9).all()
    assert {0.9, 0.33, 0.01} <= set(sizes)


def test_halving_takes_one_round():
    assert round_densities(0.5, 0.5) == [0.5]


@pytest.mark.long
@pytest.mark.parametrize("network", ["tickets", "one_shot"])
def test_masks_have_exactly_the_sizes_that_were_asked_for(network, request):
    network = request.getfixturevalue(network)
    total = sum(leaf[0].size for leaf in jax.tree.leaves(network.mask))
    for density in DENSITIES:
        kept = jax.vmap(jaxarch.masks.connections)(network[jaxarch.ByDensity].masks[f"{density:g}"])
        assert kept.tolist() == [round(density * total)] * RUNS


@pytest.mark.long
def test_one_shot_keeps_the_largest_weights_of_the_network_trained_once(one_shot):
    real = jaxarch.search.dense(nonnegative=False)
    trained = jaxarch.over_seeds(real, keys(), learning())[0].of_run(0).params
    magnitudes = np.concatenate([np.abs(leaf).ravel() for leaf in jax.tree.leaves(trained)])
    cut = np.sort(magnitudes)[-round(0.25 * magnitudes.size)]
    for path, leaf in jaxarch.named_leaves(one_shot.of_run(0).mask).items():
        assert np.array_equal(leaf, np.abs(jaxarch.named_leaves(trained)[path]) >= cut)


@pytest.mark.long
def test_weights_that_are_nan_are_pruned_first_and_nothing_that_was_pruned_comes_back():
    mask = {"w": np.asarray([True, False, True, True, False])}
    network = jaxarch.Network({"w": np.asarray([np.nan, np.inf, 2.0, -3.0, 0.0], np.float32)}, mask)
    for fraction, left in [(0.0, [True, False, True, True, False]), (0.3, [False, False, True, True, False])]:
        pruned = jaxarch.prune(fraction)(keys()[0], learning().of_run(0), network)
        assert pruned.mask["w"].tolist() == left


@pytest.mark.long
def test_a_training_that_fails_fails_the_densities_that_come_after_it_alone():
    def init(key):
        return jax.random.normal(key, (4, 4))

    def outputs(kernel, x):
        return x @ kernel + jax.numpy.where((kernel != 0).sum() < 16, jax.numpy.nan, 0.0)

    x = np.eye(4, dtype=np.float32)
    whole_alone = jaxarch.supervised(
        (init, outputs), (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2
    )
    search = magnitude_pruning(DENSITIES, fraction=0.5)
    assert int(search(keys()[0], whole_alone).info.failed_at) == 0
    assert int(jaxarch.chain(search, jaxarch.at_density(0.5))(keys()[0], whole_alone).info.failed_at) == -1


@pytest.mark.long
def test_a_round_trains_from_the_start_what_the_round_before_has_left(tickets):
    one, key = learning().of_run(0), keys()[0]
    stages = [jax.random.fold_in(key, index) for index in range(6)]
    # Stages draw from keys by their place: real, first round, prune, retrain, prune, ...
    real = jaxarch.search.dense(nonnegative=False)(stages[0], one)
    share = 1 - 0.5**0.5
    half = jaxarch.prune(share)(stages[2], one, real).with_records(real[jaxarch.Start])
    again = jaxarch.retrain("rewind", nonnegative=False)(stages[3], one, half)
    second = jaxarch.prune(share)(stages[4], one, again)
    first, ours = (float(jaxarch.overlap(second.mask, m)) for m in (half.mask, tickets_at(tickets, 0.5)))
    assert ours == 1.0
    assert first < 1.0


def tickets_at(network, density):
    return jaxarch.at_density(density)(keys()[0], learning().of_run(0), network.of_run(0)).mask


@pytest.mark.long
def test_smaller_tickets_lie_within_larger_ones(tickets):
    small, large = (tickets[jaxarch.ByDensity].masks[f"{density:g}"] for density in sorted(DENSITIES))
    for inner, outer in zip(jax.tree.leaves(small), jax.tree.leaves(large), strict=True):
        assert not (np.asarray(inner) & ~np.asarray(outer)).any()


@pytest.mark.long
def test_a_ticket_has_the_weights_that_training_began_from(tickets):
    run = tickets.of_run(0)
    assert same(run.params, jaxarch.masks.apply_mask(run.mask, run[jaxarch.Start].params))


@pytest.mark.long
def test_what_the_rounds_needed_is_not_kept(tickets):
    assert [type(record) for record in tickets.records] == [jaxarch.ByDensity, jaxarch.Start]


def sizes_of(*sizes):
    """What is measured of two leaves of so many units."""
    return {name: np.zeros(size, np.float32) for name, size in zip("ab", sizes, strict=True)}


def left(rounds, sizes):
    """How many units each leaf, or all together, keep after each round."""
    counts = [counts_kept(sizes, density) for density in rounds.after_each(sizes)]
    return [count.tolist() for count in counts]


def test_each_of_a_number_of_rounds_removes_its_fraction_of_what_is_left_by_hand():
    # 24 - round(4.8) = 19, 19 - round(3.8) = 15, 15 - 3 = 12.
    assert left(by_fraction(3, 0.2, "global"), sizes_of(10, 14)) == [19, 15, 12]


def test_leaf_by_leaf_each_loses_its_fraction_by_hand():
    # 10, 8, 8 - round(1.6) = 6 and 14, 14 - round(2.8) = 11, 11 - round(2.2) = 9.
    assert left(by_fraction(2, 0.2, "layer"), sizes_of(10, 14)) == [[8, 11], [6, 9]]


def test_leaves_may_have_fractions_of_their_own():
    # A fifth of the hidden layers and a tenth of the last one, as Frankle and Carbin have it.
    rounds = by_fraction(3, {"b": 0.1, "a": 0.2}, "global")
    assert left(rounds, sizes_of(100, 40)) == [[80, 36], [64, 32], [51, 29]]


def test_a_density_of_each_leaf_is_rounded_leaf_by_leaf():
    assert left(by_density((0.5,), 0.5, "layer"), sizes_of(11, 13)) == [[6, 6]]  # of 5.5 and 6.5
    assert left(by_density((0.5,), 0.5, "global"), sizes_of(11, 13)) == [12]


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_no_round_gives_back_a_connection(scope):
    sizes = sizes_of(7, 13) | {"c": np.zeros(5)}
    for rounds in (by_density((0.61, 0.13), 0.05, scope), by_fraction(12, 0.17, scope)):
        counts = np.asarray(left(rounds, sizes))
        assert (np.diff(counts, axis=0) <= 0).all()


@pytest.mark.long
@pytest.mark.parametrize(
    "search",
    [
        magnitude_pruning(rounds=1, fraction={"w1": 0.25, "w2": 0.5}, choose="last"),
        magnitude_pruning(rounds=1, fraction={"w1": 0.25, "w2": 0.5}),
    ],
)
def test_leaf_by_leaf_the_smallest_weights_of_each_are_removed(search):
    real = jaxarch.search.dense(nonnegative=False)
    trained = jaxarch.over_seeds(real, keys(), learning())[0].of_run(0).params
    found = jaxarch.over_seeds(search, keys(), learning())[0].of_run(0)
    for name, share in {"w1": 0.75, "w2": 0.5}.items():
        magnitudes = np.abs(trained[name])
        cut = np.sort(magnitudes.ravel())[-round(share * magnitudes.size)]
        assert np.array_equal(found.mask[name], magnitudes >= cut)


@pytest.mark.long
def test_one_shot_may_be_leaf_by_leaf():
    search = magnitude_pruning(0.25, fraction=None, scope="layer")
    mask = jaxarch.over_seeds(search, keys(), learning())[0].of_run(0).mask
    assert [float(leaf.mean()) for leaf in jax.tree.leaves(mask)] == [0.25, 0.25]


@pytest.mark.long
def test_a_ticket_by_rounds_is_the_network_of_the_last_one_not_trained():
    search = magnitude_pruning(rounds=2, fraction=0.5)
    network = jax.jit(search)(keys()[0], learning().of_run(0))
    assert float(jaxarch.density(network.mask)) == 0.25
    assert same(network.params, jaxarch.masks.apply_mask(network.mask, network[jaxarch.Start].params))
    assert [type(record) for record in network.records] == [jaxarch.Start]


@pytest.mark.long
def test_densities_may_be_trained_to_the_last_one_too():
    one = learning().of_run(0)
    trained = jax.jit(magnitude_pruning(DENSITIES, fraction=0.5, choose="last"))(keys()[0], one)
    assert np.asarray(trained.info["densities"]).tolist() == [1.0, *DENSITIES]
    start = jaxarch.masks.apply_mask(trained.mask, trained[jaxarch.Start].params)
    assert not any(same(trained.params[name], start[name]) for name in start)


@pytest.mark.long
def test_rounds_may_remove_whole_neurons_and_one_of_them_be_found():
    rows = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    one = jaxarch.supervised(
        jaxarch.direct_network((6, 10, 1), skips=False),
        (rows, rows[:, :1]),
        loss=lambda outputs, y: optax.l2_loss(outputs, y)[:, 0],
        optimizer=optax.sgd(0.1),
        steps=3,
    )
    search = magnitude_pruning(rounds=2, fraction=0.2, units="neurons", choose="last")
    network = jax.jit(search)(keys()[0], one)
    # 10 - 2 = 8, 8 - round(1.6) = 6 of ten neurons.
    assert int(np.asarray(network.mask["W2_1"]).any(axis=1).sum()) == 6
    assert np.allclose(network.info["densities"], [1.0, 0.8, 0.6])


def test_all_rounds_are_one_stage_however_many_there_are():
    for choose in ("ticket", "best"):
        few, many = (set(magnitude_pruning(rounds=count, choose=choose).stages[3:-1]) for count in (3, 30))
        assert len(few) == len(many) == (2 if choose == "ticket" else 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: magnitude_pruning(()), "densities: expected an integer of at least 1"),
        (lambda: magnitude_pruning(1.2), r"densities: expected a number in \(0, 1\]"),
        (lambda: magnitude_pruning(0.5, fraction=1.0), r"fraction: expected a number in \[0, 1\)"),
        (lambda: magnitude_pruning(0.5, fraction=0.0), r"fraction: expected a number in \(0, 1\)"),
        (lambda: magnitude_pruning(), "densities: expected either densities or rounds, got neither"),
        (
            lambda: magnitude_pruning(0.5, rounds=3),
            "densities: expected either densities or rounds, got both",
        ),
        (lambda: magnitude_pruning(rounds=0), "rounds: expected an integer of at least 1"),
        (
            lambda: magnitude_pruning(rounds=3, fraction=None),
            "rounds: with fraction=None, pruning is in one shot",
        ),
        (
            lambda: magnitude_pruning(0.5, fraction=None, choose="last"),
            "choose: with fraction=None, pruning is in",
        ),
        (lambda: magnitude_pruning(0.5, choose="first"), "choose: expected 'ticket', 'best' or 'last'"),
        (lambda: magnitude_pruning(0.5, scope="erk"), "scope: expected 'global' or 'layer', got 'erk'"),
        (lambda: magnitude_pruning(0.5, fraction={"w1": 0.2}), "fraction: one for each leaf works only with"),
        (
            lambda: magnitude_pruning(rounds=2, fraction={"w1": 1.5}),
            r"fraction of 'w1': expected a number in \[0, 1\)",
        ),
        (
            lambda: magnitude_pruning(rounds=2, fraction={"w1": 0.0}),
            "fraction: expected at least one above 0",
        ),
        (
            lambda: magnitude_pruning(0.5, fraction=None, units="2:4", scope="layer"),
            "scope: 2:4 has the same density in every leaf",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (magnitude_pruning(rounds=2, fraction={"w1": 0.2, "w3": 0.2}), "fraction: no leaf 'w3'; did you"),
        (
            magnitude_pruning(rounds=2, fraction={"w1": 0.2}),
            "fraction: expected a value for each leaf.* 'w2'",
        ),
        (
            magnitude_pruning(rounds=3, fraction=0.99),
            "rounds: nothing is left of all leaves after 2 of 3 rounds",
        ),
        (
            magnitude_pruning(rounds=2, fraction={"w1": 0.0, "w2": 0.999}),
            "rounds: nothing is left of w2 after 1 of ",
        ),
    ],
)
def test_what_does_not_suit_the_model_is_refused_before_anything_is_trained(search, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.over_seeds(search, keys(), learning())


def test_a_fraction_that_is_traced_is_refused():
    with pytest.raises(jaxarch.ArgumentError, match="fraction: expected a concrete number"):
        jax.vmap(lambda share: magnitude_pruning(0.5, fraction=share)(keys()[0], learning()))(np.ones(2))

"""Magnitude pruning to given densities: rounds by hand, exact sizes, tickets that are rewound."""

import jax
import numpy as np
import pytest
from small import RUNS, keys, problem, same

import jaxarch
from jaxarch.search import magnitude_pruning
from jaxarch.search.magnitude_pruning import rounds

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
    np.testing.assert_allclose(rounds(DENSITIES, 0.3), [0.5**0.5, 0.5, 0.5**1.5, 0.25])


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_no_round_removes_more_than_its_fraction_and_every_density_is_met(fraction):
    sizes = rounds((0.9, 0.33, 0.01), fraction)
    shares = np.asarray(sizes) / np.asarray([1.0, *sizes[:-1]])
    assert (shares > 1 - fraction - 1e-9).all()
    assert {0.9, 0.33, 0.01} <= set(sizes)


def test_halving_takes_one_round():
    assert rounds(0.5, 0.5) == [0.5]


@pytest.mark.long
@pytest.mark.parametrize("network", ["tickets", "one_shot"])
def test_masks_have_exactly_the_sizes_that_were_asked_for(network, request):
    network = request.getfixturevalue(network)
    total = sum(leaf[0].size for leaf in jax.tree.leaves(network.mask))
    for density in DENSITIES:
        kept = jax.vmap(jaxarch.masks.connections)(network.by_density.masks[f"{density:g}"])
        assert kept.tolist() == [round(density * total)] * RUNS


def test_one_shot_keeps_the_largest_weights_of_the_network_trained_once(one_shot):
    real = jaxarch.search.dense(nonnegative=False)
    trained = jaxarch.over_seeds(real, keys(), learning())[0].of_run(0).params
    magnitudes = np.concatenate([np.abs(leaf).ravel() for leaf in jax.tree.leaves(trained)])
    cut = np.sort(magnitudes)[-round(0.25 * magnitudes.size)]
    for path, leaf in jaxarch.named_leaves(one_shot.of_run(0).mask).items():
        assert np.array_equal(leaf, np.abs(jaxarch.named_leaves(trained)[path]) >= cut)


def test_weights_that_are_nan_are_pruned_first_and_nothing_that_was_pruned_comes_back():
    mask = {"w": np.asarray([True, False, True, True, False])}
    network = jaxarch.Network({"w": np.asarray([np.nan, np.inf, 2.0, -3.0, 0.0], np.float32)}, mask)
    for fraction, left in [(0.0, [True, False, True, True, False]), (0.3, [False, False, True, True, False])]:
        pruned = jaxarch.prune(fraction)(keys()[0], learning().of_run(0), network)
        assert pruned.mask["w"].tolist() == left


@pytest.mark.long
def test_a_round_trains_from_the_start_what_the_round_before_has_left(tickets):
    one, key = learning().of_run(0), keys()[0]
    stages = [jax.random.fold_in(key, index) for index in range(6)]
    # Stages draw from keys by their place: real, first round, prune, retrain, prune, ...
    real = jaxarch.search.dense(nonnegative=False)(stages[0], one)
    share = 1 - 0.5**0.5
    half = jaxarch.prune(share)(stages[2], one, real).replace(start=real.start)
    again = jaxarch.retrain("rewind", nonnegative=False)(stages[3], one, half)
    second = jaxarch.prune(share)(stages[4], one, again)
    first, ours = (float(jaxarch.overlap(second.mask, m)) for m in (half.mask, tickets_at(tickets, 0.5)))
    assert ours == 1.0
    assert first < 1.0


def tickets_at(network, density):
    return jaxarch.at_density(density)(keys()[0], learning().of_run(0), network.of_run(0)).mask


@pytest.mark.long
def test_smaller_tickets_lie_within_larger_ones(tickets):
    small, large = (tickets.by_density.masks[f"{density:g}"] for density in sorted(DENSITIES))
    for inner, outer in zip(jax.tree.leaves(small), jax.tree.leaves(large), strict=True):
        assert not (np.asarray(inner) & ~np.asarray(outer)).any()


def test_a_ticket_has_the_weights_that_training_began_from(tickets):
    run = tickets.of_run(0)
    assert same(run.params, jaxarch.masks.apply_mask(run.mask, run.start))


def test_what_the_rounds_needed_is_not_kept(tickets):
    assert tickets.memory is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: magnitude_pruning(()), "densities: expected an integer of at least 1"),
        (lambda: magnitude_pruning(1.2), r"densities: expected a number in \(0, 1\]"),
        (lambda: magnitude_pruning(0.5, fraction=1.0), r"fraction: expected a number in \[0, 1\)"),
        (lambda: magnitude_pruning(0.5, fraction=0.0), r"fraction: expected a number in \(0, 1\)"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()

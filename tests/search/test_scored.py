"""What searches have in common in which scores and weights descend together."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import keys, problem, same, straight

import jaxarch
from jaxarch import search

NATURAL = {
    "soft_threshold": search.soft_threshold,
    "continuous_sparsification": search.continuous_sparsification,
    "hard_concrete": search.hard_concrete,
}
"""Those with a mask of their own."""

ALL = {
    **{name: lambda make=make, **settings: make(0.3, **settings) for name, make in NATURAL.items()},
    "movement": lambda **settings: search.movement(0.3, **settings),
    "probmask": lambda **settings: search.probmask(0.3, **settings),
}
A_NUMBER = {
    "soft_threshold": ("strength", 0.05),
    "continuous_sparsification": ("beta", 20.0),
    "hard_concrete": ("mean", 0.5),
    "movement": ("warmup", 0.4),
    "probmask": ("temperature", 0.5),
}
"""Of each, a number that may be traced."""

KEY = jax.random.key(3)


def learning(steps=6):
    return problem(steps=steps, width=8).of_run(0).descending(optimizer=optax.adam(1e-2))


def connections(mask):
    return sum(leaf.size for leaf in jax.tree.leaves(mask))


def kept(mask):
    return int(jaxarch.masks.connections(mask))


@pytest.mark.long
@pytest.mark.parametrize("name", NATURAL)
def test_masks_of_all_densities_have_exactly_their_sizes(name):
    densities = (0.5, 0.11, 0.013)
    network = jax.jit(NATURAL[name](densities))(KEY, learning())
    size = connections(network.mask)
    sizes = {density: kept(network[jaxarch.ByDensity].masks[f"{density:g}"]) for density in densities}
    assert sizes == {density: round(density * size) for density in densities}
    assert same(network.mask, network[jaxarch.ByDensity].masks["0.013"])


@pytest.mark.long
@pytest.mark.parametrize("name", NATURAL)
def test_a_smaller_mask_is_part_of_a_larger_one(name):
    masks = jax.jit(NATURAL[name]((0.5, 0.1)))(KEY, learning())[jaxarch.ByDensity].masks
    assert jax.tree.all(jax.tree.map(lambda few, many: (many | ~few).all(), masks["0.1"], masks["0.5"]))


@pytest.mark.long
@pytest.mark.parametrize("name", NATURAL)
def test_at_density_takes_one_of_them(name):
    strategy = jaxarch.chain(NATURAL[name]((0.5, 0.1)), jaxarch.at_density(0.5))
    network = jaxarch.over_seeds(strategy, keys(), problem(steps=3, width=8))[0].of_run(0)
    assert kept(network.mask) == round(0.5 * connections(network.mask))
    assert same(network.params, jaxarch.masks.apply_mask(network.mask, network.params))


@pytest.mark.long
@pytest.mark.parametrize("name", NATURAL)
def test_densities_do_not_change_what_is_trained(name):
    one, other = (jax.jit(NATURAL[name](densities))(KEY, learning()) for densities in (None, (0.5, 0.1)))
    assert same(one.info["loss"], other.info["loss"])
    assert one.get(jaxarch.ByDensity) is None
    assert same(one.info["own_density"], other.info["own_density"])
    assert jnp.isclose(jaxarch.density(one.mask), other.info["own_density"])


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_a_traced_number_is_as_a_static_one(name):
    setting, value = A_NUMBER[name]
    static = jax.jit(ALL[name](**{setting: value}))(KEY, learning())
    traced = jax.jit(lambda number: ALL[name](**{setting: number})(KEY, learning()))(value)
    plain = jax.jit(ALL[name]())(KEY, learning())
    assert same(static.mask, traced.mask)
    np.testing.assert_allclose(static.info["loss"], traced.info["loss"], rtol=1e-5)
    assert not np.allclose(static.info["loss"], plain.info["loss"], rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_on_digits_the_loss_falls(name):
    losses = jax.jit(ALL[name](strength=0.0) if name in NATURAL else ALL[name]())(KEY, learning(60)).info
    assert losses["loss"][-10:].mean() < 0.7 * losses["loss"][:10].mean()


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_after_another_stage_it_begins_with_its_weights_and_stays_within_its_mask(name):
    before = jaxarch.search.random_mask(0.5)(jax.random.key(9), learning())
    frozen = learning().descending(optimizer=optax.sgd(0.0))
    network = jax.jit(ALL[name]())(KEY, frozen, before)
    there = jax.tree.map(lambda leaf, earlier: (earlier | ~leaf).all(), network.mask, before.mask)
    assert jax.tree.all(there)
    assert kept(network.mask) == round(0.3 * connections(network.mask))
    masked = jaxarch.masks.apply_mask(network.mask, before.params)
    if name in ("continuous_sparsification", "movement", "probmask"):
        assert same(network.params, masked)
    # Thresholds and gates make them smaller.
    ratios = jax.tree.map(lambda leaf, whole: leaf / jnp.where(whole == 0, 1, whole), network.params, masked)
    assert all(((leaf >= 0) & (leaf <= 1)).all() for leaf in jax.tree.leaves(ratios))


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_scores_may_have_an_optimiser_of_their_own(name):
    one = learning(8)
    still = jax.jit(ALL[name](scores_optimizer=optax.sgd(0.0)))(KEY, one)
    own = jax.jit(ALL[name](scores_optimizer=optax.adam(1e-2)))(KEY, one)
    shared = jax.jit(ALL[name]())(KEY, one)
    assert same(own.mask, shared.mask)
    assert not same(still.info["loss"], shared.info["loss"])


@pytest.mark.parametrize("name", ALL)
def test_what_is_no_optimiser_is_refused(name):
    with pytest.raises(jaxarch.ArgumentError, match="scores_optimizer: expected an optax transformation"):
        ALL[name](scores_optimizer=0.1)


@pytest.mark.parametrize("name", NATURAL)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"densities": 1.5}, r"densities: expected a number in \(0, 1\]"),
        ({"densities": ()}, "densities: expected an integer of at least 1"),
        ({"strength": -1.0}, "strength: expected a finite number of at least 0"),
        ({"strength": [1.0, 2.0]}, "strength: expected one number"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(name, settings, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        NATURAL[name](**settings)


@pytest.mark.parametrize(
    ("start", "message"),
    [(1.0, "nothing was pruned in 4 of 4 runs: take a larger"), (-1.0, "nothing is left in 4 of 4 runs")],
)
def test_a_mask_of_all_or_nothing_is_remarked_upon(start, message):
    all_alike = search.continuous_sparsification(start=start, strength=0.0, where="w")
    with pytest.warns(jaxarch.ResultWarning, match=message):
        jaxarch.over_seeds(all_alike, keys(), straight({"w": [1.0, 2.0]}, {"w": [1.0, 1.0]}, rate=0.0))

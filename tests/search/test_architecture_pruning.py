"""Algorithm A.1 of [A], its densities and its penalty; and what is found on one task, carried to another."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import RUNS, close, digits, in_float64, keys, same

import jaxarch
from jaxarch.masks import check_fits
from jaxarch.run import begin
from jaxarch.run._training import step

DENSITIES = (0.5, 0.2, 0.1)
CONNECTIONS = 64 * 12 + 12 * 5


def model(classes=5, hidden=12):
    def init(key):
        first, second = jax.random.split(key)
        return {
            "hidden": {"kernel": 0.2 * jax.random.normal(first, (64, hidden)), "bias": jnp.zeros(hidden)},
            "head": {
                "kernel": 0.2 * jax.random.normal(second, (hidden, classes)),
                "bias": jnp.zeros(classes),
            },
        }

    def apply(params, x):
        hidden, head = params["hidden"], params["head"]
        return jax.nn.relu(x @ hidden["kernel"] + hidden["bias"][None]) @ head["kernel"] + head["bias"][None]

    return init, apply


def learning(classes=range(5), steps=60, **sizes):
    data = digits()
    rows = np.flatnonzero(np.isin(data.y, classes))[:200]
    return jaxarch.supervised(
        model(len(classes), **sizes),
        (data.x[rows], data.y[rows] - min(classes)),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.sgd(0.1),
        steps=steps,
        batch_size=20,
    )


def pruning(densities=DENSITIES, **settings):
    return jaxarch.search.architecture_pruning(densities, strength=1e-3, **settings)


@pytest.fixture(scope="module")
def pruned():
    return jaxarch.over_seeds(pruning(), keys(), learning())[0]


def kept(mask):
    return jax.vmap(jaxarch.masks.connections)(mask).tolist()


@pytest.mark.long
def test_masks_have_exactly_the_sizes_that_were_asked_for(pruned):
    assert kept(pruned.mask) == [round(0.1 * CONNECTIONS)] * RUNS
    for density in DENSITIES:
        assert kept(pruned[jaxarch.ByDensity].masks[f"{density:g}"]) == [round(density * CONNECTIONS)] * RUNS


@pytest.mark.long
def test_biases_are_trained_without_a_mask(pruned):
    assert pruned.mask["head"]["bias"] is None
    assert (jnp.abs(pruned.params["head"]["bias"]) > 0).any()


@pytest.mark.long
def test_smaller_densities_are_reached_later(pruned):
    reached = np.asarray(pruned.info["reached_at"])
    assert (reached[:, 0] > 0).all()
    assert (np.diff(reached, axis=1) > 0).all()
    assert (np.asarray(pruned.info["lowest_density"]) <= 0.1).all()


@pytest.mark.long
def test_a_density_on_the_way_gives_the_mask_that_it_gives_alone(pruned):
    alone = jaxarch.over_seeds(pruning(0.5), keys(), learning())[0]
    assert same(alone.mask, pruned[jaxarch.ByDensity].masks["0.5"])


@pytest.mark.long
def test_the_last_mask_is_held_while_weights_train_on(pruned):
    longer = jaxarch.over_seeds(pruning(), keys(), learning(steps=90))[0]
    assert same(longer.mask, pruned.mask)
    assert not same(longer.params, pruned.params)


@pytest.mark.long
@pytest.mark.parametrize("double", [False, True])
def test_a_density_that_is_met_exactly_is_reached(double):
    """A tenth is a little more in float32 than in float64."""
    with in_float64(double):
        search = pruning(0.1)
        carry = begin(search, keys()[0], learning(), None)
        scores = {"w": jnp.where(jnp.arange(10) < 1, 1.0, -1.0).astype(jnp.float32)}
        state = carry.state._replace(trainable={"scores": scores}, step=jnp.int32(3))
        assert search.after_step(search.settings, state)["reached_at"].tolist() == [3]


@pytest.mark.long
@pytest.mark.parametrize("factor", [False, True])
def test_a_step_is_that_of_the_equations(factor):
    """[A] (15), (16) with the penalty (17) in the corrected sign."""
    hard, soft, gamma, alpha, beta = 20.0, 4.0, 1e-2, 0.7, 0.3
    one = learning(steps=1).descending(batch_size=None)
    search = jaxarch.search.architecture_pruning(
        0.5,
        hard,
        soft,
        strength=gamma,
        factor=factor,
        scores_optimizer=optax.sgd(alpha),
        weights_optimizer=optax.sgd(beta),
    )
    carry = jax.jit(partial(begin, search))(keys()[0], one, None)
    w, theta = (np.float64(carry.state.trainable[name]["head"]["kernel"]) for name in ("scores", "weights"))
    mask = 1 / (1 + np.exp(-hard * w))

    def loss(head):
        hidden = carry.state.trainable["scores"]["hidden"]["kernel"]
        params = {
            "hidden": {
                "kernel": jax.nn.sigmoid(hard * hidden)
                * carry.state.trainable["weights"]["hidden"]["kernel"],
                "bias": jnp.zeros(12),
            },
            "head": {"kernel": head, "bias": jnp.zeros(5)},
        }
        return one.objective(params, {})

    gradient = np.float64(jax.grad(loss)(jnp.asarray(mask * theta, jnp.float32)))
    slope = 1 / (1 + np.exp(-soft * w))
    slope = slope * (1 - slope) * (soft if factor else 1)
    moved, _ = jax.jit(partial(step, search))(keys()[0], one, carry, 0)
    expected_w = w - alpha * (gradient * theta * slope + 2 * gamma * (1 + w))
    expected_theta = theta - beta * (mask * gradient + 2 * gamma * theta)
    after = moved.state.trainable
    np.testing.assert_allclose(after["scores"]["head"]["kernel"], expected_w, atol=1e-6)
    np.testing.assert_allclose(after["weights"]["head"]["kernel"], expected_theta, atol=1e-6)


@pytest.mark.long
def test_the_penalty_as_printed_prunes_nothing_and_says_so():
    with pytest.warns(jaxarch.ResultWarning, match=r"density 0.5 was not reached in 4 of 4 runs"):
        network, report = jaxarch.over_seeds(pruning(0.5, penalty="as printed"), keys(), learning())
    assert (np.asarray(network.info["lowest_density"]) > 0.99).all()
    assert (np.asarray(network.info["reached_at"]) == -1).all()
    assert kept(network.mask) == [CONNECTIONS // 2] * RUNS
    assert len(report.notes) == 1


@pytest.mark.long
def test_without_a_density_the_mask_is_that_of_the_positive_scores():
    carry = jax.jit(partial(begin, pruning(())))(keys()[0], learning(), None)
    scores = jax.tree.map(lambda leaf: leaf - 0.03, carry.state.trainable["scores"])
    search = pruning(())
    moved = carry.state._replace(trainable={**carry.state.trainable, "scores": scores})
    network = search.network(search.settings, moved)
    assert same(network.mask["head"]["kernel"], scores["head"]["kernel"] > 0)
    assert 0.1 < float(jaxarch.density(network.mask)) < 0.9


@pytest.mark.long
def test_each_optimiser_sees_the_tree_that_it_is_for():
    frozen = {"hidden": "still", "head": "moves"}
    weights = optax.partition({"still": optax.set_to_zero(), "moves": optax.adam(1e-2)}, frozen)
    search = pruning(0.5, scores_optimizer=optax.adam(1e-2), weights_optimizer=weights)
    one = learning(steps=3)
    network = jax.jit(search)(keys()[0], one)
    start, _ = one.init(jax.random.split(jax.random.split(keys()[0], 3)[0])[0])
    assert close(network[jaxarch.ByDensity].weights["hidden"], start["hidden"], 1e-6)
    assert not close(network[jaxarch.ByDensity].weights["head"], start["head"], 1e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"densities": 0.0}, r"densities: expected a number in \(0, 1\]"),
        ({"densities": (0.5, 1.5)}, "densities: expected"),
        ({"penalty": "printed"}, "penalty: expected 'corrected' or 'as printed'"),
        ({"hard": 1.0}, "soft: expected at most hard"),
        ({"std": -1.0}, "std: expected"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        pruning(**settings)


# Carried to another task -----------------------------------------------------------------------------

NEW = range(5, 10)


def carried(pruned, *transforms, classes=NEW, steps=5, **sizes):
    strategy = jaxarch.chain(*transforms)
    return jaxarch.over_seeds(strategy, keys(), learning(classes, steps, **sizes), network=pruned)[0]


@pytest.mark.long
def test_an_architecture_of_one_task_is_retrained_on_another(pruned):
    network = carried(pruned, jaxarch.at_density(0.2), jaxarch.retrain("cold", nonnegative=False))
    assert same(network.mask, pruned[jaxarch.ByDensity].masks["0.2"])
    weights = network.params["hidden"]["kernel"]
    assert (jnp.where(network.mask["hidden"]["kernel"], 0, weights) == 0).all()
    assert not np.allclose(weights, pruned.params["hidden"]["kernel"])


@pytest.mark.long
def test_reshuffling_keeps_the_density_of_every_layer_and_no_more(pruned):
    network = carried(pruned, jaxarch.reshuffle())
    before, after = (jax.vmap(jaxarch.layer_density)(mask) for mask in (pruned.mask, network.mask))
    assert same(before, after)
    assert (jax.vmap(jaxarch.overlap)(pruned.mask, network.mask) < 0.5).all()


@pytest.mark.long
def test_a_new_head_has_the_density_of_the_old_one(pruned):
    network = carried(
        pruned, jaxarch.new_head(), jaxarch.retrain("cold", nonnegative=False), classes=range(7, 10)
    )
    old, new = pruned.mask["head"]["kernel"], network.mask["head"]["kernel"]
    assert new.shape == (RUNS, 12, 3)
    assert jnp.allclose(new.mean((1, 2)), old.mean((1, 2)), atol=1 / (12 * 3))
    assert same(network.mask["hidden"]["kernel"], pruned.mask["hidden"]["kernel"])


@pytest.mark.long
def test_another_number_of_classes_needs_a_new_head(pruned):
    with pytest.raises(
        ValueError, match=r"mask: leaf 'head/kernel' has shape \(12, 5\).* new_head\(\) first"
    ):
        carried(pruned, jaxarch.retrain("cold", nonnegative=False), classes=range(7, 10))


def test_a_mask_of_another_model_is_refused():
    with pytest.raises(ValueError, match="mask: the model has no parameter 'head/kernel'"):
        check_fits({"head": {"kernel": jnp.ones((2, 2), bool)}}, {"tail": jnp.ones((2, 2))})


@pytest.mark.long
def test_what_was_found_needs_a_run_for_every_key(pruned):
    with pytest.raises(ValueError, match=r"network: leaf .* needs a leading axis of 2 runs"):
        jaxarch.over_seeds(jaxarch.reshuffle(), keys(2), learning(), network=pruned)


@pytest.mark.long
def test_a_density_that_was_not_kept_is_refused(pruned):
    with pytest.raises(ValueError, match=r"density: no mask has density 0.3; choose one of 0.1, 0.2, 0.5"):
        carried(pruned, jaxarch.at_density(0.3))


def test_he_s_weights_are_drawn_apart_from_the_model_s_own():
    def init(key):
        return {"kernel": jax.random.normal(key, (64, 10))}

    digit = dataclasses.replace(learning(), init=lambda key: (init(key), {}))
    bare = jaxarch.architecture({"kernel": jnp.ones((64, 10), bool)})
    own, fresh = (
        begin(jaxarch.retrain("cold", nonnegative=False, weights=w), keys()[0], digit, bare)
        for w in ("initial", "he")
    )
    both = np.stack([np.ravel(carry.state.trainable["kernel"]) for carry in (own, fresh)])
    assert abs(np.corrcoef(both)[0, 1]) < 0.15


@pytest.mark.long
@pytest.mark.parametrize(("weights", "inputs"), [("he", 1.0), ("density-aware", 0.1)])
def test_a_cold_start_has_the_spread_that_it_says(weights, inputs):
    wide = learning(steps=1, hidden=400).descending(optimizer=optax.sgd(0.0))
    mask = {"hidden": {"kernel": jnp.arange(64 * 400).reshape(64, 400) % 10 == 0, "bias": None}, "head": None}
    mask["head"] = {"kernel": jnp.ones((400, 5), bool), "bias": None}
    params, state = wide.init(keys()[0])
    network = jaxarch.Network(params, mask, state)
    retrained = jaxarch.retrain("cold", nonnegative=False, weights=weights)(keys()[0], wide, network)
    left = np.asarray(retrained.params["hidden"]["kernel"])[np.asarray(mask["hidden"]["kernel"])]
    assert np.isclose(left.std(), np.sqrt(2 / (64 * inputs)), rtol=0.05)


def test_a_spread_is_of_cold_starts_alone():
    with pytest.raises(ValueError, match="weights: 'he' needs start='cold' and nonnegative=False"):
        jaxarch.retrain("warm", nonnegative=False, weights="he")

"""The fewest neurons of a spectral network: rounds under a rising penalty, and the choice among them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import keys, linear_problem, same

import jaxarch
from jaxarch import spectral
from jaxarch.search import spectral_width
from jaxarch.search._spectral_width import fewest_within

NET = jaxarch.spectral_network((2, 6, 5, 1), form="gated", bias=True)


def bent(steps, net=NET, scale=1.0):
    """y = |x_1| + |x_2|, which skip connections and two neurons compute."""
    x = np.random.default_rng(0).uniform(-1, 1, (300, 2)).astype(np.float32)
    return jaxarch.supervised(
        net,
        (x, np.abs(x).sum(axis=1, keepdims=True)),
        loss=lambda outputs, y: scale * optax.squared_error(outputs, y),
        optimizer=optax.adam(1e-2),
        steps=steps,
        batch_size=50,
        train=np.arange(200),
        validation=np.arange(200, 300),
    )


@pytest.fixture(scope="module")
def found():
    """A problem, and the networks of three runs after four rounds of a few steps."""
    problem = bent(100)
    return problem, jaxarch.over_seeds(spectral_width(4, strength=1e-2, growth=3.0), keys(3), problem)[0]


@pytest.mark.parametrize(
    ("counts", "losses", "tolerance", "chosen"),
    [
        ([0, 9, 5, 2], [1.0, 0.1, 0.1, 0.1], 0.0, 3),
        ([0, 9, 5, 2], [1.0, 0.1, 0.1, 0.2], 0.0, 2),
        ([0, 9, 5, 2], [1.0, 0.1, 0.1, 0.2], 0.11, 3),  # a share of the first
        ([0, 9, 5, 2], [1.0, 0.3, 0.1, 0.2], 0.0, 2),  # from the smallest
        ([0, 9, 5, 5], [1.0, 0.1, 0.14, 0.12], 0.05, 3),  # of equal counts the smaller loss
        ([0, 9, 5, 2], [1.0, 0.1, 0.5, 0.1], 0.0, 3),  # the one between may be worse
        ([0, 9, 5, 2], [0.1, 0.1, 0.1, 0.1], 0.0, 0),
        ([0, 9, 5, 2], [-1.0, -3.0, -2.95, -2.8], 0.1, 2),
        ([0, 9, 5, 2], [np.nan, 0.1, 0.1, 0.2], 9.0, 2),
        ([0, 9, 5, 2], [1.0, np.nan, 0.1, np.inf], 0.0, 2),
        ([0, 9, 5, 2], [np.nan] * 4, 1.0, 3),
    ],
)
def test_the_fewest_neurons_within_a_share_of_the_linear_loss_are_chosen(counts, losses, tolerance, chosen):
    assert int(fewest_within(jnp.asarray(counts), jnp.asarray(losses), tolerance)) == chosen


def test_strengths_are_shares_of_the_loss_without_neurons_and_grow(found):
    info = found[1].info
    shares = np.asarray(info["strengths"] / info["width_losses"][:, :1])
    np.testing.assert_allclose(shares, [[0, 1e-2, 3e-2, 9e-2, 27e-2]] * 3, rtol=1e-5)


def test_no_round_has_more_neurons_than_the_one_before(found):
    counts = np.asarray(found[1].info["neurons"])
    assert (counts[:, 0] == 0).all()
    assert (counts[:, 1] <= 11).all()
    assert (np.diff(counts[:, 1:]) <= 0).all()
    assert (counts[:, -1] < counts[:, 1]).all()


def test_the_chosen_network_is_the_candidate_of_its_round(found):
    problem, networks = found
    for run in range(3):
        network = networks.of_run(run)
        chosen = int(network.info["chosen"])
        loss = problem.objective(network.params, network.state, problem.validation)
        assert float(loss) == pytest.approx(float(network.info["width_losses"][chosen]), rel=1e-5)
        assert network[jaxarch.NeuronMask].count() == network.info["neurons"][chosen]
        kept = network[jaxarch.NeuronMask].kept["eigenvalues"]
        assert same(network.state["neurons"], {name: kept[name] for name in ("L2", "L3")})


def test_the_loss_without_neurons_is_that_of_a_linear_model(found):
    problem, networks = found
    x, y = (np.asarray(part) for part in problem.data)
    x = np.concatenate([x, np.ones((300, 1))], axis=1)
    fitted = np.linalg.lstsq(x[:200], y[:200], rcond=None)[0]
    least = np.mean((x[200:] @ fitted - y[200:]) ** 2)
    np.testing.assert_allclose(networks.info["width_losses"][:, 0], least, rtol=0.15)


def test_a_search_of_widths_reports_no_dead_start_and_leaves_nothing_of_its_rounds(found):
    network = found[1]
    assert not network.info.dead_start.any()
    assert set(network.info) == {"loss", "neurons", "width_losses", "strengths", "chosen"}
    assert [type(record) for record in network.records] == [jaxarch.NeuronMask]


def test_strengths_follow_the_scale_of_the_loss(found):
    search = spectral_width(4, strength=1e-2, growth=3.0)
    scaled, _ = jaxarch.over_seeds(search, keys(3), bent(100, scale=8.0))
    np.testing.assert_allclose(scaled.info["strengths"], 8 * found[1].info["strengths"], rtol=1e-2)


def test_a_tolerance_of_the_whole_linear_loss_leaves_no_neuron(found):
    network, _ = jaxarch.over_seeds(
        lambda tolerance: spectral_width(1, tolerance=tolerance),
        jnp.stack([keys(3)[0]] * 2),
        bent(100),
        jnp.asarray([0.0, 1.0]),
    )
    assert network.info["chosen"].tolist() == [1, 0]
    assert network[jaxarch.NeuronMask].count().tolist()[1] == 0


def test_rounds_begin_with_the_neurons_of_a_given_network():
    params, state = NET.init(jax.random.key(1))
    kept = {"eigenvalues": {"L2": jnp.arange(6) < 2, "L3": jnp.zeros(5, bool)}}
    given = jaxarch.Network(params, state=spectral.with_neurons(state, kept))
    network = spectral_width(1, steps=1, recruit_tolerance=0.0)(jax.random.key(0), bent(1), given)
    assert network.info["neurons"][1] <= 2
    phi = given.params["factors"]["phi1"]
    assert jnp.abs(network.params["factors"]["phi1"] - phi).max() < 0.05  # a step or two away


def test_a_round_goes_on_from_the_penalized_network_and_not_from_its_refitted_copy():
    problem, key = bent(1), jax.random.key(0)
    begin, training, linear, _, fewer, _, keep, *_ = spectral_width(1).stages
    start = begin(key, problem)
    network = linear(key, problem, training(key, problem, start))
    assert same(network.params, start.params)
    assert network[jaxarch.NeuronMask].count() == 11
    penalized = fewer(key, problem, training(key, problem, network))
    after = keep(key, problem, training(key, problem, penalized))
    assert same(after.params, penalized.params)
    assert same(after.state, penalized.state)


@pytest.mark.long
def test_two_neurons_are_found_where_two_are_enough():
    search = spectral_width(8, strength=1e-3, growth=2.0)
    network, _ = jaxarch.over_seeds(search, keys(3), bent(1500))
    assert jnp.median(network[jaxarch.NeuronMask].count()) == 2
    chosen = network.info["width_losses"][jnp.arange(3), network.info["chosen"]]
    assert (chosen < 0.01 * network.info["width_losses"][:, 0]).all()


@pytest.mark.long
def test_a_linear_task_keeps_no_neuron():
    problem = linear_problem(jaxarch.spectral_network((3, 10, 10, 1), form="gated"))
    search = spectral_width(3, optimizer=optax.adam(1e-2), steps=500)
    network, _ = jaxarch.over_seeds(search, keys(3), problem)
    assert network[jaxarch.NeuronMask].count().tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: spectral_width(0), "rounds: expected an integer of at least 1"),
        (lambda: spectral_width(strength=0.0), "strength: expected"),
        (lambda: spectral_width(growth=0.5), "growth: expected a factor of at least 1, got 0.5"),
        (lambda: spectral_width(tolerance=-1.0), "tolerance: expected"),
        (lambda: spectral_width(recruit_tolerance=-1.0), "recruit_tolerance: expected"),
        (
            lambda: spectral_width(1)(jax.random.key(0), dataclasses.replace(bent(1), validation=None)),
            "validation",
        ),
    ],
)
def test_a_search_of_widths_that_cannot_be_is_refused(make, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        make()

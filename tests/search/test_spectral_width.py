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
from jaxarch.search._spectral_width import Widths, fewest_within

NET = jaxarch.spectral_network((2, 6, 5, 1), form="gated", bias=True)


def weighed(outputs, y):
    """The squared error by the first column, times the second one."""
    return y[..., 1:] * optax.squared_error(outputs, y[..., :1])


def bent(steps, scales=()):
    """y = |x_1| + |x_2|, which skip connections and two neurons compute; each run may scale its loss."""
    x = np.random.default_rng(0).uniform(-1, 1, (300, 2)).astype(np.float32)
    y = np.abs(x).sum(axis=1, keepdims=True)
    blocks = [np.hstack([y, np.full_like(y, scale)]) for scale in scales or (1,)]
    first = 300 * np.arange(len(scales))[:, None] if scales else 0
    return jaxarch.supervised(
        NET,
        (np.concatenate([x] * len(blocks)), np.concatenate(blocks)),
        loss=weighed,
        optimizer=optax.adam(1e-2),
        steps=steps,
        batch_size=50,
        train=first + np.arange(200),
        validation=first + np.arange(200, 300),
    )


@pytest.fixture(scope="module")
def found():
    """A problem, and the networks of four runs after four rounds of a few steps.

    The last two runs have one key, and the last one has 8 times the loss.
    """
    problem, search = bent(100, scales=(1, 1, 1, 8)), spectral_width(4, strength=1e-2, growth=3.0)
    return problem, jaxarch.over_seeds(search, keys(3)[np.array([0, 1, 2, 2])], problem)[0]


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


@pytest.mark.long
def test_strengths_are_shares_of_the_loss_without_neurons_and_grow(found):
    info = found[1].info
    shares = np.asarray(info["strengths"] / info["width_losses"][:, :1])
    np.testing.assert_allclose(shares, [[0, 1e-2, 3e-2, 9e-2, 27e-2]] * 4, rtol=1e-5)


@pytest.mark.long
def test_no_round_has_more_neurons_than_the_one_before(found):
    counts = np.asarray(found[1].info["neurons"])
    assert (counts[:, 0] == 0).all()
    assert (counts[:, 1] <= 11).all()
    assert (np.diff(counts[:, 1:]) <= 0).all()
    assert (counts[:, -1] < counts[:, 1]).all()


def test_the_chosen_network_is_the_candidate_of_its_round(found):
    problem, networks = found
    loss_of = jax.jit(problem.objective)
    for run in range(4):
        network = networks.of_run(run)
        chosen = int(network.info["chosen"])
        loss = loss_of(network.params, network.state, problem.of_run(run).validation)
        assert float(loss) == pytest.approx(float(network.info["width_losses"][chosen]), rel=1e-5)
        assert network[jaxarch.NeuronMask].count() == network.info["neurons"][chosen]
        kept = network[jaxarch.NeuronMask].kept["eigenvalues"]
        assert same(network.state["neurons"], {name: kept[name] for name in ("L2", "L3")})


def test_the_loss_without_neurons_is_that_of_a_linear_model(found):
    problem, networks = found
    x, y = (np.asarray(part)[:300] for part in problem.data)
    x = np.concatenate([x, np.ones((300, 1))], axis=1)
    fitted = np.linalg.lstsq(x[:200], y[:200, :1], rcond=None)[0]
    least = np.mean((x[200:] @ fitted - y[200:, :1]) ** 2)
    found_losses = networks.info["width_losses"][:, 0] / np.array([1, 1, 1, 8])
    np.testing.assert_allclose(found_losses, least, rtol=0.15)


def test_a_search_of_widths_reports_no_dead_start_and_leaves_nothing_of_its_rounds(found):
    network = found[1]
    assert not network.info.dead_start.any()
    assert set(network.info) == {"loss", "neurons", "width_losses", "strengths", "chosen"}
    assert [type(record) for record in network.records] == [jaxarch.NeuronMask]


def test_strengths_follow_the_scale_of_the_loss(found):
    *_, one, scaled = found[1].info["strengths"]
    np.testing.assert_allclose(scaled, 8 * one, rtol=1e-2)


@pytest.fixture(scope="module")
def stages():
    """The stages of one round as compiled functions, and a problem of one step."""
    problem, (begin, training, linear, _, fewer, _, keep, *_) = (
        bent(1),
        spectral_width(1, recruit_tolerance=0.0).stages,
    )
    made = begin, training, linear, fewer, keep
    return [jax.jit(lambda key, network, stage=stage: stage(key, problem, network)) for stage in made]


@pytest.mark.long
def test_rounds_begin_with_the_neurons_of_a_given_network(stages):
    begin, training, linear, fewer, _ = stages
    key = jax.random.key(0)
    params, state = NET.init(jax.random.key(1))
    kept = {"eigenvalues": {"L2": jnp.arange(6) < 2, "L3": jnp.zeros(5, bool)}}
    given = jaxarch.Network(params, state=spectral.with_neurons(state, kept))
    network = linear(key, training(key, begin(key, given)))
    assert network[jaxarch.NeuronMask].count() == 2
    network = fewer(key, training(key, network))
    assert network[jaxarch.NeuronMask].count() <= 2
    phi = given.params["factors"]["phi1"]
    assert jnp.abs(network.params["factors"]["phi1"] - phi).max() < 0.05  # a step away


@pytest.mark.long
def test_a_round_goes_on_from_the_penalized_network_and_not_from_its_refitted_copy(stages):
    begin, training, linear, fewer, keep = stages
    key, problem = jax.random.key(0), bent(1)
    params, state = problem.start(key)
    start = begin(key, jaxarch.Network(params, state=state))
    network = linear(key, training(key, start))
    assert same(network.params, start.params)
    assert network[jaxarch.NeuronMask].count() == 11
    penalized = fewer(key, training(key, network))
    after = keep(key, training(key, penalized))
    assert same(after.params, penalized.params)
    assert same(after.state, penalized.state)


def test_a_tolerance_of_the_whole_linear_loss_leaves_no_neuron(stages):
    begin, training, linear, _, keep = stages
    key, problem = jax.random.key(0), bent(1)
    params, state = problem.start(key)
    start = begin(key, jaxarch.Network(params, state=state))
    network = keep(key, training(key, linear(key, training(key, start))))
    candidates = network[Widths].candidates._replace(losses=jnp.asarray([1.0, 0.1]))
    network = network.with_records(network[Widths]._replace(candidates=candidates))

    @jax.jit
    @jax.vmap
    def chosen(tolerance):
        return spectral_width(1, tolerance=tolerance).stages[-1](key, problem, network)

    found = chosen(jnp.asarray([0.0, 1.0]))
    assert found.info["chosen"].tolist() == [1, 0]
    assert found[jaxarch.NeuronMask].count().tolist() == [11, 0]


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

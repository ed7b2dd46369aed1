"""Hidden layers of spectral networks that are taken out one by one, and how few of them are kept."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from pages import charted
from small import keys, linear_problem, same

import jaxarch
from jaxarch import Network, spectral
from jaxarch.lab.harness import Results, report_on, run_in
from jaxarch.lab.reproduction import read_findings
from jaxarch.lab.results import read_table
from jaxarch.lab.spectral import deep_teacher, depth
from jaxarch.search import spectral_depth
from jaxarch.search._spectral_depth import fewest

DEEP = (3, 5, 4, 6, 1)
GATED = jaxarch.spectral_network(DEEP, form="gated")


def kinked(net, steps=300):
    """y = |x_1| + |x_2|, for which one hidden layer is enough."""
    x = np.random.default_rng(0).uniform(-1, 1, (300, 2)).astype(np.float32)
    return jaxarch.supervised(
        net,
        (x, np.abs(x).sum(axis=1, keepdims=True)),
        loss=optax.squared_error,
        optimizer=optax.adam(1e-2),
        steps=steps,
        batch_size=50,
        train=np.arange(200),
        validation=np.arange(200, 300),
    )


def gated(eigenvalues):
    """A gated network whose hidden layers have these eigenvalues, all neurons of a layer alike."""
    params, state = GATED.init(jax.random.key(0))
    values = params["eigenvalues"]
    values |= {name: jnp.full_like(values[name], value) for name, value in eigenvalues.items()}
    return Network({**params, "eigenvalues": values}, state=state)


def begun(network, problem):
    """The stages of a search on three layers after its first training, and what the first of them makes."""
    _, begin, keep, remove, *_ = spectral_depth(3).stages
    return begin(jax.random.key(0), problem, network), keep, remove


def kept(network):
    """The neurons that are left of each hidden layer, by its name."""
    return {
        name: kept
        for name, kept in network[jaxarch.NeuronMask].kept["eigenvalues"].items()
        if kept is not None
    }


def layers_left(network):
    return [name for name, neurons in kept(network).items() if neurons.any()]


# Which layers go -------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_layer_whose_removal_costs_least_goes_first():
    problem = linear_problem(GATED)
    network, _, remove = begun(gated({"L2": 3.0, "L3": 0.0, "L4": 0.1}), problem)

    def cost_without(name):
        neurons = kept(network) | {name: jnp.zeros_like(kept(network)[name])}
        return float(problem.objective(network.params, {"neurons": neurons}, problem.validation))

    assert layers_left(network) == ["L2", "L3", "L4"]
    for _ in range(3):
        left = layers_left(network)
        cheapest = min(left, key=cost_without)
        network = remove(jax.random.key(0), problem, network)
        assert layers_left(network) == [name for name in left if name != cheapest]


def test_a_layer_that_is_gone_is_not_taken_for_one_that_costs_nothing():
    problem = linear_problem(GATED)
    network, _, remove = begun(gated({"L2": 3.0, "L3": -2.0, "L4": 1.0}), problem)
    counts = []
    for _ in range(4):
        network = remove(jax.random.key(0), problem, network)
        counts.append(len(layers_left(network)))
    assert counts == [2, 1, 0, 0]


def test_a_gated_layer_without_neurons_is_linear_and_its_factors_act_as_one():
    params = gated({"L2": 3.0, "L3": -2.0, "L4": 1.0}).params
    x = jax.random.normal(jax.random.key(1), (7, 3))
    (one, two, three, four), values = spectral.unpack(params, "gated")
    without = [None, jnp.zeros(4, bool), None]
    outputs = spectral.feedforward((one, two, three, four), values, x, neurons=without, form="gated")
    shorter = spectral.feedforward(
        (one, -three @ two, four), [values[i] for i in (0, 1, 3, 4)], x, form="gated"
    )
    np.testing.assert_allclose(outputs, shorter, rtol=1e-4, atol=1e-5)


# How many are kept -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "tolerance", "removed"),
    [
        ([1.0, 1.0, 1.0], 0.0, 2),
        ([1.0, 1.1, 10.0], 0.0, 0),
        ([1.0, 1.1, 10.0], 0.01, 1),  # a share of the last one, 0.1
        ([1.0, 1.2, 10.0], 0.01, 0),
        ([1.0, 5.0, 1.005], 0.01, 2),  # the one between may be worse
        ([3.0, 1.0, 10.0], 0.0, 1),  # from the smallest, not from the first
        ([-3.0, -2.9, -1.0], 0.1, 1),
        ([np.nan, 1.0, 10.0], 0.5, 1),
        ([1.0, np.nan, 10.0], 0.5, 0),
        ([1.0, 1.0, np.inf], 0.5, 1),
        ([1.0, 1.1, np.nan], 0.5, 0),
        ([np.nan, np.nan, np.nan], 0.5, 0),
    ],
)
def test_as_few_layers_are_kept_as_a_share_of_the_linear_loss_allows(losses, tolerance, removed):
    assert int(fewest(jnp.asarray(losses), tolerance)) == removed


@pytest.fixture(scope="module")
def bent():
    """What is found of two hidden layers for a task that needs one."""
    problem = kinked(jaxarch.spectral_network((2, 10, 10, 1), form="gated"))
    return problem, jaxarch.over_seeds(spectral_depth(2, 1e-5), keys(3), problem)[0]


@pytest.mark.long
def test_a_task_with_a_kink_keeps_one_layer(bent):
    assert bent[1].info["layers"].tolist() == [1, 1, 1]


@pytest.mark.long
def test_a_linear_task_keeps_none():
    problem = linear_problem(jaxarch.spectral_network((3, 10, 10, 1), form="gated"))
    search = spectral_depth(2, optimizer=optax.adam(1e-2), steps=500)
    network, _ = jaxarch.over_seeds(search, keys(3), problem)
    assert network.info["layers"].tolist() == [0, 0, 0]


@pytest.mark.long
def test_what_is_found_is_the_network_of_its_round(bent):
    problem, networks = bent
    network = networks.of_run(0)
    layers, losses = int(network.info["layers"]), network.info["depth_losses"]
    assert losses.shape == (3,)
    found = problem.objective(network.params, network.state, problem.validation)
    assert float(found) == pytest.approx(float(losses[2 - layers]), rel=1e-5)
    assert len(layers_left(network)) == layers
    assert same(network.state["neurons"], kept(network))
    weights = spectral.direct_weights(network.params, network.state)
    assert len(spectral.direct_widths(weights)) == layers + 2


@pytest.mark.long
def test_a_tolerance_is_swept_and_the_whole_linear_loss_leaves_no_layer(bent):
    network, _ = jaxarch.over_seeds(
        lambda tolerance: spectral_depth(2, 1e-5, tolerance=tolerance),
        jnp.stack([keys(3)[0]] * 2),
        bent[0],
        jnp.asarray([0.01, 1.0]),
    )
    assert network.info["layers"].tolist() == [1, 0]


@pytest.mark.long
def test_neurons_are_recruited_in_the_layers_that_are_left_and_refitted(bent):
    problem, networks = bent
    refit = jaxarch.chain(jaxarch.recruit(0.1), jaxarch.search.spectral(0.0))
    network, _ = jaxarch.over_seeds(refit, keys(3), problem, network=networks, dead_start="ignore")
    for run in range(3):
        before, after = networks.of_run(run), network.of_run(run)
        assert layers_left(after) == layers_left(before)
        assert after[jaxarch.NeuronMask].count() < before[jaxarch.NeuronMask].count()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: spectral_depth(0), "layers: expected an integer of at least 1"),
        (lambda: spectral_depth(1, tolerance=-1.0), "tolerance: expected"),
        (lambda: spectral_depth(1, penalty="l3"), "penalty: unknown 'l3'"),
        (
            lambda: spectral_depth(2)(jax.random.key(0), linear_problem(GATED)),
            "layers: expected 3, the number of hidden layers of the model, got 2",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_the_first_step(make, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        make()


# The experiment --------------------------------------------------------------------------------------

SMALL = {
    "seeds": 2,
    "depths": (1, 2),
    "features": 3,
    "neurons": 4,
    "hidden": (6, 6),
    "wide": 8,
    "wide_epochs": 4,
    "epochs": 20,
    "examples": 400,
    "held_out": 60,
    "batch_size": 20,
    "depth_tolerance": 0.05,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("depth")
    run_in(folder, depth.EXPERIMENT, depth.Settings(**SMALL))
    report_on(folder, depth.EXPERIMENT)
    assert charted(folder, depth.EXPERIMENT)
    return folder


@pytest.mark.long
def test_a_teacher_has_as_many_layers_as_it_says_and_bends_where_its_inputs_are():
    settings = depth.Settings(seeds=2, depths=(1, 3), features=5, neurons=6)
    x = np.asarray(settings.inputs(5))[: deep_teacher.SEEN]
    for layers in settings.depths:
        teacher = jax.tree.map(lambda leaf: leaf[1], deep_teacher.teachers(settings, layers, 5, 6))
        weights = np.asarray(teacher["weights"])
        a = np.pad(x, ((0, 0), (0, 1)))
        for matrix in weights[:layers]:
            z = a @ matrix.T
            a = np.maximum((z - z.mean(axis=0)) / z.std(axis=0), 0)
        y = a @ weights[-1].T
        y = (y - y.mean(axis=0)) / (y - y.mean(axis=0)).std()
        np.testing.assert_allclose(deep_teacher.teach(teacher, jnp.asarray(x)), y, atol=1e-3)


def test_each_seed_and_each_depth_has_a_teacher_of_its_own():
    settings = depth.Settings(seeds=2, features=5, neurons=6)
    one, two = (deep_teacher.teachers(settings, layers, 5, 6)["weights"] for layers in (1, 2))
    assert not np.allclose(one[0], one[1])
    assert not np.allclose(one, two)


@pytest.mark.long
def test_every_teacher_is_recognised_only_if_its_depth_is_found_and_what_is_left_is_good_enough(folder):
    table = read_table(folder)
    assert (table.groupby("depth").size() == 2).all()
    assert table["found"].between(0, 2).all()
    recognised = (table["found"] == table["depth"]) & (table["r2"] >= 0.995)
    assert (table["recognised"] == recognised).all()
    assert (table["r2"] > table["shallow_r2"]).sum() >= 2


@pytest.mark.long
def test_the_depth_found_is_that_of_the_losses_in_the_table(folder):
    for row in read_table(folder).itertuples():
        losses = np.array([row.loss_0, row.loss_1, row.loss_2])
        assert row.found == np.flatnonzero(losses <= losses.min() + 0.05 * losses[0]).min()


@pytest.mark.long
def test_the_conclusion_counts_the_teachers_whose_depth_is_recognised(folder):
    table, words = read_table(folder), " ".join(depth.conclusion(Results(folder)))
    for layers, runs in table.groupby("depth"):
        assert f"{int(runs['recognised'].sum())} of 2 teachers of {layers} hidden" in words
        assert f"{runs['shallow_r2'].median():.4f} [" in words
    assert f"Test R^2 is {table['r2'].median():.5f} [" in words


@pytest.mark.long
def test_findings_are_ready_for_the_record(folder):
    assert len(read_findings(folder)) == 2 * 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depths": (5,)}, "hidden: expected at least 5 layers, as the deepest teacher has, got 4"),
        ({"features": 30}, "features: expected at most neurons=20, got 30"),
        ({"depths": ()}, "depths: expected at least one number"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        depth.Settings(**settings).check()

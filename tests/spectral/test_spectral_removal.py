"""How eigenvalues of spectral networks become 0, layers empty, and neurons go."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import keys, linear_problem, same, temporaries
from test_spectral_network import curved, random_params
from test_spectral_readout import random_direct

import jaxarch
from jaxarch import Network, spectral
from jaxarch._internal.trees import by_path
from jaxarch.spectral._direct import neuron_mask
from jaxarch.transforms._removals import along_the_curve, by_bisection

DEEP = (3, 5, 4, 1)
EIGENVALUES = {"L2": jnp.asarray([3.0, -4.0]), "L3": jnp.asarray([0.0, 2.0]), "L4": jnp.ones(1)}


def penalised(search, eigenvalues=EIGENVALUES):
    """Value and gradient of a search's penalty."""
    widths = (3, *(leaf.size for leaf in eigenvalues.values()))
    params = {**random_params(widths), "eigenvalues": eigenvalues}
    problem = curved(jaxarch.spectral_network(widths), 1)
    state = search.init(search.settings, jax.random.key(0), problem, Network(params, state={}))
    value, slope = jax.value_and_grad(
        lambda trainable: search.penalty(search.settings, state._replace(trainable=trainable))
    )(state.trainable)
    return float(value), slope["eigenvalues"]


# Penalties by layer ----------------------------------------------------------------------------------


@pytest.mark.long
def test_each_layer_has_a_strength_of_its_own():
    value, slope = penalised(jaxarch.search.spectral({"L2": 2.0, "L3": 3.0}))
    assert value == 2 * 7 + 3 * 2
    assert [leaf.tolist() for leaf in slope.values()] == [[2, -2], [0, 3], [0]]
    value, _ = penalised(jaxarch.search.spectral({"L2": 2.0, "L3": 3.0}, penalty="squared l2"))
    assert value == 2 * 25 + 3 * 4


@pytest.mark.long
def test_a_depth_penalty_is_of_norms_and_counts_the_hidden_layers_before():
    value, slope = penalised(jaxarch.search.spectral(0.0, depth_strength={"L2": 2.0, "L3": 3.0}))
    assert value == 2 * 5 + 3 * 2
    np.testing.assert_allclose(slope["L2"], [2 * 0.6, -2 * 0.8], rtol=1e-6)
    deeper = {**EIGENVALUES, "L4": jnp.asarray([5.0, 12.0]), "L5": jnp.ones(1)}
    assert penalised(jaxarch.search.spectral(0.0, depth_strength=10.0), deeper)[0] == 10 * 2 + 20 * 13
    assert penalised(jaxarch.search.spectral(1.0, depth_strength=10.0))[0] == 9 + 10 * 2


def test_of_two_networks_each_layer_is_told_by_its_path():
    tree = {"eigenvalues": {"L2": 0}, "head": {"eigenvalues": {"L2": 0}}}
    given = {"eigenvalues/L2": 1.0, "head/eigenvalues/L2": 2.0}
    assert list(jaxarch.named_leaves(by_path("strength", given, tree)).values()) == [1, 2]
    assert list(jaxarch.named_leaves(by_path("strength", {"L2": 3.0}, tree)).values()) == [3, 3]


@pytest.mark.long
def test_strengths_by_layer_are_swept_as_settings():
    def search(strengths):
        return jaxarch.search.spectral({"L2": strengths[0], "L3": strengths[1]}, proximal=True)

    strengths = jnp.asarray([[0.0, 9.0], [9.0, 0.0], [0.0, 0.0]])
    problem = curved(jaxarch.spectral_network(DEEP, eigenvalues="random"), 60)
    network, _ = jaxarch.over_seeds(search, keys(3), problem, strengths)
    left = {name: values.any(axis=1).tolist() for name, values in network.params["eigenvalues"].items()}
    assert left == {"L2": [True, False, True], "L3": [False, True, True], "L4": [True] * 3}


@pytest.mark.parametrize(
    ("strengths", "message"),
    [
        (
            {"strength": {"L2": 1.0, "L3": 1.0, "L7": 1.0}},
            "strength: no leaf 'L7'; known: eigenvalues/L2, eigenvalues/L3",
        ),
        ({"strength": {"L2": 1.0}}, "strength: expected a value for each leaf, .* none for 'eigenvalues/L3'"),
        ({"depth_strength": {"L2": 1.0}}, "depth_strength: expected a value for each leaf"),
    ],
)
@pytest.mark.parametrize("proximal", [False, True])
def test_strengths_of_other_layers_are_refused_before_the_first_step(strengths, message, proximal):
    problem = curved(jaxarch.spectral_network(DEEP), 1)
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.search.spectral(**strengths, proximal=proximal)(jax.random.key(0), problem)


# Exact zeros -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_proximal_steps_leave_exact_zeros_and_the_network_is_the_same_without_those_neurons():
    problem = curved(jaxarch.spectral_network((3, 30, 1)), 300)
    network = jaxarch.search.spectral(3e-3, proximal=True)(jax.random.key(0), problem)
    active = network.params["eigenvalues"]["L2"] != 0
    assert 0 < active.sum() < 20
    assert same(network[jaxarch.NeuronMask].kept["eigenvalues"]["L2"], active)
    assert same(network.state["neurons"]["L2"], active)
    with_all = problem.objective(network.params, {})
    assert float(problem.objective(network.params, network.state)) == pytest.approx(float(with_all), rel=1e-6)
    assert spectral.direct_weights(network.params, network.state)["W2_1"].shape == (active.sum(), 3)
    refit = jaxarch.search.spectral(0.0)(jax.random.key(1), problem, network)
    assert same(refit[jaxarch.NeuronMask].kept["eigenvalues"]["L2"], active)
    assert refit.info["loss"][-1] < network.info["loss"][-1]


@pytest.mark.long
def test_without_them_no_eigenvalue_is_0():
    problem = curved(jaxarch.spectral_network((3, 30, 1)), 300)
    network = jaxarch.search.spectral(3e-3)(jax.random.key(0), problem)
    assert network.params["eigenvalues"]["L2"].all()


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "silent"),
    [
        ({}, {"L2": True, "L3": False}),  # W_32 = phi_2 L_2 - L_3 phi_2 feeds a neuron with eigenvalue 0
        ({"train_input_eigenvalues": True}, {"L2": False, "L3": False}),
        ({"activation": jax.nn.sigmoid}, {"L2": False, "L3": False}),  # f(0) is not 0
        ({"skips": False}, {"L2": True, "L3": False}),
        ({"form": "gated"}, {"L2": True, "L3": True}),
        ({"form": "gated", "activation": jax.nn.sigmoid}, {"L2": False, "L3": False}),
    ],
)
def test_neurons_are_left_out_only_where_an_eigenvalue_of_0_silences_them(options, silent):
    net = jaxarch.spectral_network(DEEP, eigenvalues=(0.0, 0.1, -0.1, 1.0), **options)
    problem = curved(net, 60)
    network = jaxarch.search.spectral(30.0, proximal=True)(jax.random.key(0), problem)
    assert not any(network.params["eigenvalues"][name].any() for name in silent)
    left = network[jaxarch.NeuronMask].kept["eigenvalues"]
    assert {name: not left[name].any() for name in silent} == silent
    before = problem.objective(network.params, {})
    assert float(problem.objective(network.params, network.state)) == pytest.approx(float(before), rel=1e-5)


@pytest.mark.long
def test_a_layer_goes_as_a_whole_under_the_norm():
    problem = curved(jaxarch.spectral_network(DEEP, eigenvalues="random"), 200)
    for options in ({"penalty": "l2", "strength": {"L2": 9.0, "L3": 1e-3}}, {"depth_strength": 9.0}):
        search = jaxarch.search.spectral(**({"strength": 1e-3} | options), proximal=True)
        values = search(jax.random.key(0), problem).params["eigenvalues"]
        gone, kept = ("L3", "L2") if "depth_strength" in options else ("L2", "L3")
        assert not values[gone].any()
        assert values[kept].any()


@pytest.mark.long
def test_a_layer_that_is_emptied_while_training_is_not_in_the_exported_network():
    net = jaxarch.spectral_network(DEEP, eigenvalues=(0.0, 0.3, 0.3, 1.0))
    problem = curved(net, 100)
    search = jaxarch.search.spectral(1e-3, depth_strength={"L2": 9.0, "L3": 0.0}, proximal=True)
    network = search(jax.random.key(0), problem)
    weights = spectral.direct_weights(network.params, network.state)
    assert spectral.direct_widths(weights) == (3, 4, 1)
    x = problem.data[0]
    expected = net.apply(network.params, {}, x, None)[0]
    np.testing.assert_allclose(spectral.direct_feedforward(weights, x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_neurons_go_inside_of_a_flax_model_too():
    problem = curved(lambda rngs: jaxarch.SpectralMLP((3, 20, 1), rngs=rngs), 150)
    network = jaxarch.search.spectral(3e-3, proximal=True)(jax.random.key(0), problem)
    active = jaxarch.named_leaves(network.params)["eigenvalues/L2"] != 0
    assert 0 < active.sum() < 20
    assert same(jaxarch.named_leaves(network.state)["neurons/L2"], active)


@pytest.mark.long
def test_eigenvalues_that_are_not_trained_have_no_steps():
    problem = curved(jaxarch.spectral_network(DEEP, eigenvalues="random"), 5)
    search = jaxarch.search.spectral({"L2": 9.0, "L3": 0.0}, proximal=True, trainable="eigenvalues/L[23]")
    assert not search(jax.random.key(0), problem).params["eigenvalues"]["L2"].all()
    with pytest.raises(jaxarch.ArgumentError, match="trainable: it leaves none of the penalized eigenvalues"):
        jaxarch.search.spectral(proximal=True, trainable="eigenvectors/*")(jax.random.key(0), problem)


# The order in which neurons go -----------------------------------------------------------------------


def recruited(params, problem, *, state=None, **options):
    transform, network = jaxarch.recruit(**options), Network(params, state=state or {})
    return jax.jit(lambda: transform(jax.random.key(0), problem, network))()


def losses_alone(params, problem):
    """The loss without each neuron of DEEP alone."""
    everyone = np.ones(9, bool)
    masks = [np.where(np.arange(9) == n, False, everyone) for n in range(9)]
    return [
        float(problem.objective(params, {"neurons": {"L2": m[:5], "L3": m[5:]}}, problem.validation))
        for m in map(jnp.asarray, masks)
    ]


def curve_by_hand(params, problem, order):
    losses = []
    for count in range(10):
        kept = jnp.ones(9, bool).at[jnp.asarray(order[:count], int)].set(False)
        state = {"neurons": {"L2": kept[:5], "L3": kept[5:]}}
        losses.append(float(problem.objective(params, state, problem.validation)))
    return losses


ORDERS = {
    "loss": ("loss", losses_alone),
    "path norms": (
        spectral.path_norms,
        lambda params, problem: np.concatenate(list(spectral.path_norms(params).values())),
    ),
    "layers": ({"L3": jnp.arange(4), "L2": jnp.arange(5) + 10}, lambda *_: [10, 11, 12, 13, 14, 0, 1, 2, 3]),
    "one array": (-jnp.arange(9.0), lambda *_: -np.arange(9.0)),
    "of a tree": (
        lambda params, state: {"eigenvalues": {"L2": jnp.ones(5), "L3": jnp.zeros(4)}},
        lambda *_: [1] * 5 + [0] * 4,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ORDERS)
def test_neurons_with_the_smallest_numbers_go_first(name):
    order, numbers = ORDERS[name]
    problem, params = linear_problem(jaxarch.spectral_network(DEEP)), random_params(DEEP)
    by_hand = np.argsort(numbers(params, problem), kind="stable")
    network = recruited(params, problem, order=order)
    np.testing.assert_allclose(network.info["losses"], curve_by_hand(params, problem, by_hand), rtol=1e-4)


def test_what_is_removed_already_goes_before_all_others():
    problem, params = linear_problem(jaxarch.spectral_network(DEEP)), random_params(DEEP)
    kept = {"L2": jnp.asarray([True, False, True, True, False]), "L3": jnp.ones(4, bool)}
    for order in ("loss", jnp.arange(9.0), "size"):
        network = recruited(params, problem, state={"neurons": kept}, order=order)
        losses = np.asarray(network.info["losses"])
        np.testing.assert_allclose(losses[1:3], losses[0], rtol=1e-6)
        assert not np.isclose(losses[3], losses[0])


@pytest.mark.long
def test_neurons_of_direct_networks_go_by_their_loss_too():
    net = jaxarch.direct_network(DEEP)
    problem, params = linear_problem(net), random_direct(net)
    params["W2_1"][2] = params["W3_2"][:, 2] = params["W4_2"][:, 2] = 0
    everything = neuron_mask(params, {})
    network = Network(jax.tree.map(jnp.asarray, params), everything, {})
    found = jaxarch.recruit(1e9, order="loss")(jax.random.key(0), problem, network)
    assert int(found.info["removed"]) == 9
    assert float(found.info["losses"][1]) == pytest.approx(float(found.info["losses"][0]))


# Few passes ------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("neurons", [1, 2, 7, 8, 100])
def test_bisection_finds_the_same_where_the_loss_grows_in_so_many_passes(neurons):
    @jax.jit
    def both(curve, tolerance):
        passes = (of(lambda n: curve[n], neurons, tolerance) for of in (along_the_curve, by_bisection))
        return tuple(passes)

    random = np.random.default_rng(neurons)
    for _ in range(5):
        curve = np.cumsum(random.exponential(size=neurons + 1)).astype(np.float32)
        for tolerance in (0.0, *random.uniform(0, float(curve[-1] / curve[0]), size=3)):
            (losses, expected), (few, found) = both(curve, tolerance)
            assert int(found) == int(expected)
            looked = np.isfinite(few)
            assert looked.sum() <= 1 + math.ceil(math.log2(neurons + 1))
            assert looked[0]
            assert looked[int(found)]
            assert (np.asarray(few)[looked] == np.asarray(losses)[looked]).all()


@pytest.mark.parametrize(
    ("curve", "all_of_them", "few"),
    [
        ([2.0, 2.0, 9.0, 9.0, 2.0], 4, 1),  # the middle, 2, is too many
        ([2.0, 9.0, 2.0, 2.0, 9.0], 3, 3),
        ([np.nan, 0.0, 0.0, 0.0, 0.0], 0, 0),
        ([-2.0, -1.95, -1.9, -1.8, -1.7], 2, 2),
    ],
)
def test_bisection_takes_no_more_than_the_curve_and_stops_before_one_too_many(curve, all_of_them, few):
    curve = jnp.asarray(curve)
    assert int(along_the_curve(lambda n: curve[n], 4, 0.05)[1]) == all_of_them
    assert int(by_bisection(lambda n: curve[n], 4, 0.05)[1]) == few


def test_bisection_removes_what_the_curve_removes():
    problem, params = linear_problem(jaxarch.spectral_network(DEEP)), random_params(DEEP)
    curve = recruited(params, problem, order="loss", tolerance=0.5)
    few = recruited(params, problem, order="loss", tolerance=0.5, removals="bisection")
    looked = np.isfinite(few.info["losses"])
    assert looked.sum() <= 5
    np.testing.assert_allclose(few.info["losses"][looked], curve.info["losses"][looked], rtol=1e-5)
    removed = int(few.info["removed"])
    assert removed <= int(curve.info["removed"])
    assert int(few[jaxarch.NeuronMask].count()) == 9 - removed
    assert curve.info["losses"][removed] <= 1.5 * curve.info["losses"][0]


# Rows in batches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 7, 50])  # of 20 rows
def test_losses_and_removals_are_the_same_by_batches_of_rows(batch_size):
    problem, params = linear_problem(jaxarch.spectral_network(DEEP)), random_params(DEEP)
    whole = recruited(params, problem, order="loss", tolerance=0.5)
    parts = recruited(params, problem, order="loss", tolerance=0.5, batch_size=batch_size)
    np.testing.assert_allclose(parts.info["losses"], whole.info["losses"], rtol=1e-5)
    assert same(parts[jaxarch.NeuronMask], whole[jaxarch.NeuronMask])


@pytest.mark.long
@pytest.mark.parametrize("options", [{"order": "loss"}, {"removals": "bisection"}])
def test_many_runs_need_the_memory_of_a_batch_of_rows_and_not_of_all(options):
    problem = linear_problem(jaxarch.spectral_network(DEEP))
    problem = dataclasses.replace(problem, validation=np.tile(problem.validation, 300))
    networks = jax.vmap(lambda params: Network(params, state={}))(
        jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), random_params(DEEP))
    )
    whole, parts = (
        temporaries(jaxarch.recruit(batch_size=size, **options), problem, networks) for size in (None, 250)
    )
    assert parts < whole / 8


# Layers without neurons ------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [(), ("L2",), ("L3",), ("L2", "L3")])
@pytest.mark.parametrize("bias", [False, True])
def test_a_direct_network_is_the_same_without_unused_neurons_and_empty_layers(gone, bias):
    net = jaxarch.direct_network(DEEP, bias=bias, activation=jax.nn.sigmoid)
    kept = {"L2": jnp.asarray([True, False, True, False, True]), "L3": jnp.asarray([False, True, True, True])}
    kept = {name: leaf & (name not in gone) for name, leaf in kept.items()}
    params = jaxarch.masks.apply_mask(neuron_mask(random_direct(net), kept), random_direct(net))
    smaller = spectral.without_unused(params)
    widths = spectral.direct_widths(smaller)
    assert widths == (3, *(int(leaf.sum()) for name, leaf in kept.items() if name not in gone), 1)
    x = linear_problem(net).data[0]
    small_net = jaxarch.direct_network(widths, bias=bias, activation=jax.nn.sigmoid)
    np.testing.assert_allclose(
        small_net.apply(smaller, {}, x, None)[0], net.apply(params, {}, x, None)[0], rtol=1e-4, atol=1e-5
    )


def test_neurons_that_lead_only_to_unused_ones_are_unused():
    weights = {"W2_1": jnp.ones((2, 3)), "W3_2": jnp.ones((2, 2)), "W4_3": jnp.zeros((1, 2))}
    weights["W4_1"] = jnp.ones((1, 3))
    assert {name: leaf.shape for name, leaf in spectral.without_unused(weights).items()} == {"W2_1": (1, 3)}


@pytest.mark.long
def test_what_recruit_leaves_of_a_direct_network_is_exported_smaller():
    net = jaxarch.direct_network(DEEP)
    problem, params = linear_problem(net), jax.tree.map(jnp.asarray, random_direct(net))
    network = Network(params, neuron_mask(params, {}), {})
    sizes = {"L2": jnp.zeros(5), "L3": jnp.ones(4)}  # L2 goes first, as a whole
    curve = jaxarch.recruit(order=sizes)(jax.random.key(0), problem, network).info["losses"]
    alone = params | {"W2_1": params["W2_1"] * 0, "W3_2": params["W3_2"] * 0, "W4_2": params["W4_2"] * 0}
    assert float(curve[5]) == pytest.approx(float(problem.objective(alone, {}, problem.validation)), rel=1e-5)
    smaller = spectral.without_unused(alone)
    assert spectral.direct_widths(smaller) == (3, 4, 1)
    found = jaxarch.recruit(1e9, order=sizes)(jax.random.key(0), problem, network)
    assert spectral.direct_widths(spectral.without_unused(found.params)) == (3, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: jaxarch.search.spectral(proximal=1), "proximal: expected True or False, got 1"),
        (
            lambda: jaxarch.search.spectral(penalty="squared l2", proximal=True),
            "penalty: with proximal=True, expected 'l1' or 'l2', got 'squared l2'",
        ),
        (
            lambda: jaxarch.search.spectral({"L2": 1.0}, penalty=spectral.penalty.l1),
            "strength: expected one number, since a penalty function weighs layers itself",
        ),
        (lambda: jaxarch.search.spectral({"L2": -1.0}), "strength of 'L2': expected a finite number"),
        (lambda: jaxarch.search.spectral(depth_strength=-1.0), "depth_strength: expected a finite number"),
        (
            lambda: jaxarch.recruit(order="eigenvalue"),
            "order: expected 'size', 'loss', a function or numbers",
        ),
        (lambda: jaxarch.recruit(removals="few"), "removals: expected 'all' or 'bisection', got 'few'"),
        (
            lambda: jaxarch.recruit(batch_size=0),
            "batch_size: expected an integer of at least 1, got 0",
        ),
        (
            lambda: jaxarch.recruit(batch_size=20.0),
            "batch_size: expected an integer of at least 1, got 20.0",
        ),
        (lambda: recruit_with(jnp.ones(8)), r"each of 9 hidden neurons, got shape \(8,\)"),
        (
            lambda: recruit_with({"L2": jnp.ones(5)}),
            "order: expected a value for each leaf, .*eigenvalues/L3",
        ),
        (
            lambda: recruit_with({"L2": jnp.ones(5), "L3": jnp.ones(5)}),
            r"order: expected a number for each of 4 neurons of a layer",
        ),
        (lambda: recruit_with(np.full(9, np.nan)), "order: expected a finite number"),
        (
            lambda: spectral.without_unused({"W2_1": jnp.ones((2, 3)), "W3_2": jnp.zeros((1, 2))}),
            "weights: nothing leads into layer 3",
        ),
        (
            lambda: jax.jit(spectral.without_unused)({"W2_1": jnp.ones((2, 3))}),
            "weights: they are traced, but decide shapes",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line_that_names_the_argument(make, message):
    with pytest.raises(jaxarch.ArgumentError, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)


def recruit_with(order):
    problem, network = linear_problem(jaxarch.spectral_network(DEEP)), Network(random_params(DEEP), state={})
    return jaxarch.recruit(order=order)(jax.random.key(0), problem, network)

"""What a spectral network has recruited: read-out, removal of neurons, export, and its rivals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import linear_problem, same
from test_spectral_network import curved, inputs, random_params

import jaxarch
from jaxarch import Network, spectral
from jaxarch.spectral import _direct as direct
from jaxarch.spectral import algebra

DEEP = (3, 5, 4, 2)
NEURONS = {"L2": jnp.asarray([True, False, True, True, False]), "L3": jnp.asarray([False, True, True, True])}


def by_hand(params, neurons, x, activation):
    """Eq. (4.5) with dense bundles, all rows and columns of removed neurons taken out."""
    vectors, values = jax.device_get(spectral.unpack(params))
    w = {key: np.array(block) for key, block in algebra.connections(vectors, values).items()}
    a = {1: np.asarray(x)}
    for i in range(2, len(values) + 1):
        z = sum(a[j] @ w[i, j].T for j in a)
        a[i] = np.asarray(activation(z)) * np.asarray(neurons.get(f"L{i}", 1))
    return z


# Read-out --------------------------------------------------------------------------------------------


def test_the_norm_of_gamma_is_that_of_the_tensor():
    params = random_params((3, 5, 2), trained=True)
    w = algebra.connections(*spectral.unpack(params))
    tensor = jnp.einsum("ij,jk->ijk", w[3, 2], w[2, 1])
    assert float(spectral.gamma_norm(params)) == pytest.approx(float(jnp.linalg.norm(tensor)), rel=1e-5)


def test_path_norms_are_sums_over_paths():
    params = random_params(DEEP)
    w = {key: np.square(block) for key, block in algebra.connections(*spectral.unpack(params)).items()}
    through_2 = (w[4, 2] + w[4, 3] @ w[3, 2]).sum(0) * w[2, 1].sum(1)
    through_3 = w[4, 3].sum(0) * (w[3, 1] + w[3, 2] @ w[2, 1]).sum(1)
    norms = spectral.path_norms(params)
    np.testing.assert_allclose(norms["L2"], np.sqrt(through_2), rtol=1e-5)
    np.testing.assert_allclose(norms["L3"], np.sqrt(through_3), rtol=1e-5)


def test_nothing_runs_through_removed_neurons():
    norms = spectral.path_norms(random_params(DEEP), {"neurons": NEURONS})
    assert {name: (norm > 0).tolist() for name, norm in norms.items()} == {
        name: kept.tolist() for name, kept in NEURONS.items()
    }


def test_neurons_are_ordered_by_magnitude_over_all_hidden_layers():
    params = random_params(DEEP)
    params["eigenvalues"] |= {
        "L2": jnp.asarray([0.3, -0.1, 0.0, -2, 0.5]),
        "L3": jnp.asarray([-1.0, 0.2, 0.1, 4]),
    }
    places = spectral.neuron_order(params)["eigenvalues"]
    assert places["L2"].tolist() == [4, 1, 0, 7, 5]
    assert places["L3"].tolist() == [6, 3, 2, 8]
    removed = spectral.neuron_order(params, {"neurons": {"L3": jnp.asarray([True, True, True, False])}})
    assert removed["eigenvalues"]["L3"].tolist() == [7, 4, 3, 0]


@pytest.mark.parametrize("widths", [(100,) * 2, (100,) * 3, (3, 300, 20, 1)])
def test_parameters_are_counted_as_arrays_have_them(widths):
    params = jax.eval_shape(lambda: random_params(widths, trained=True))
    bundles = jax.eval_shape(lambda: algebra.connections(*spectral.unpack(random_params(widths))))
    mlp = sum(leaf.size for leaf in jax.tree.leaves(params["eigenvectors"]))
    assert spectral.parameter_counts(widths) == {
        "spectral": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "gated": sum(leaf.size for leaf in jax.tree.leaves(params)) - widths[0],
        "direct": sum(leaf.size for leaf in jax.tree.leaves(bundles)),
        "mlp": mlp,
    }


# Removal ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", [jax.nn.relu, jax.nn.sigmoid])
def test_a_removed_neuron_is_gone_from_all_rows_and_columns(activation):
    params, x = random_params(DEEP, trained=True), inputs(DEEP)
    neurons = [NEURONS["L2"], NEURONS["L3"]]
    vectors, values = spectral.unpack(params)

    @jax.jit
    def outputs():
        return [
            spectral.feedforward(vectors, values, x, activation, method, neurons)
            for method in ("auto", "substitution", "materialised")
        ]

    for network in outputs():
        np.testing.assert_allclose(network, by_hand(params, NEURONS, x, activation), rtol=2e-5, atol=1e-5)


def test_in_the_recursive_rule_too():
    params, x = random_params(DEEP, trained=True), inputs(DEEP)
    vectors, values = spectral.unpack(params)
    matrix = np.array(algebra.dense(algebra.adjacency(*jax.device_get((vectors, values)))))
    kept = np.concatenate([np.ones(3), NEURONS["L2"], NEURONS["L3"], np.ones(2)])
    matrix *= kept[:, None] * kept[None, :]
    a = np.zeros((3, 14))
    a[:, :3] = x
    a = a @ matrix.T
    for _ in vectors[1:]:
        a = (np.maximum(a, 0)) @ matrix.T
    net = jaxarch.spectral_network(DEEP, train_input_eigenvalues=True, update="recursive")
    network = net.apply(params, {"neurons": NEURONS}, x, None)[0]
    np.testing.assert_allclose(network, a[:, -2:], rtol=2e-5, atol=1e-5)


def recruited(params, problem, tolerance=0.05):
    transform, network = jaxarch.recruit(tolerance), Network(params, state={})
    return jax.jit(lambda: transform(jax.random.key(0), problem, network))()


def test_the_largest_removal_within_the_tolerance_is_taken():
    widths = (*DEEP[:-1], 1)
    net, params = jaxarch.spectral_network(widths), random_params(widths)
    problem = linear_problem(net)
    order = np.argsort(np.abs(np.concatenate([params["eigenvalues"][k] for k in ("L2", "L3")])))
    x, y = (np.asarray(leaf)[20:] for leaf in problem.data)
    losses = []
    for removed in range(10):
        kept = np.ones(9, bool)
        kept[order[:removed]] = False
        out = by_hand(params, {"L2": kept[:5], "L3": kept[5:]}, x, jax.nn.relu)
        losses.append(np.square(out - y).mean())
    tolerance = 1.001 * sorted(losses)[5] / losses[0] - 1
    network = recruited(params, problem, tolerance)
    np.testing.assert_allclose(network.info["losses"], losses, rtol=1e-4)
    expected = max(r for r in range(10) if losses[r] <= (1 + tolerance) * losses[0])
    assert int(network.info["removed"]) == expected
    kept = np.concatenate([network[jaxarch.NeuronMask].kept["eigenvalues"][k] for k in ("L2", "L3")])
    assert sorted(np.flatnonzero(~kept)) == sorted(order[:expected])
    assert same(network.params, params)
    again = jax.jit(problem.objective)(network.params, network.state, problem.validation)
    assert float(again) == pytest.approx(losses[expected], rel=1e-4)
    assert same(
        network.state["neurons"],
        {k: network[jaxarch.NeuronMask].kept["eigenvalues"][k] for k in ("L2", "L3")},
    )


@pytest.mark.parametrize(
    ("losses", "removed"),
    [
        ([2.0, 2.09, 2.11, 2.0, 2.2], 3),
        ([-2.0, -1.91, -1.89, -1.9, -1.8], 3),
        ([0.0, 0.0, 1e-9, 1.0, 1.0], 1),
        ([np.nan, 0.0, 0.0, 0.0, 0.0], 0),
        ([np.inf, 0.0, 0.0, 0.0, 0.0], 0),
        ([1.0, np.nan, -np.inf, 1.2, 1.2], 2),
    ],
)
def test_a_loss_may_be_negative_zero_or_no_number(losses, removed):
    net = jaxarch.spectral_network((3, 4, 1))
    curve = jnp.asarray(losses, jnp.float32)

    def of_removed(params, state, batch, key):
        kept = state["neurons"]["L2"].sum() if "neurons" in state else 4
        return curve[4 - kept], state

    problem = linear_problem(net)
    problem = jaxarch.Problem(
        init=net.init,
        loss=of_removed,
        data=problem.data,
        descent=jaxarch.Descent(optax.sgd(1), steps=1),
        validation=np.arange(3),
    )
    network = recruited(random_params((3, 4, 1)), problem)
    assert int(network.info["removed"]) == removed


@pytest.mark.long
def test_a_search_then_a_removal_then_a_refit_is_one_chain_under_vmap():
    spectral_search = jaxarch.search.spectral
    chain = jaxarch.chain(spectral_search(3e-4), jaxarch.recruit(), spectral_search(0.0))
    problem = curved(jaxarch.spectral_network((3, 30, 1)), 150)
    problem = dataclasses.replace(
        problem.descending(batch_size=None), train=np.arange(150), validation=np.arange(150, 200)
    )
    network = jax.jit(jax.vmap(chain, in_axes=(0, None)))(jax.random.split(jax.random.key(0), 3), problem)
    removed = network.info["removed"]
    assert (removed > 0).all()
    assert (removed < 30).all()
    assert ((~network[jaxarch.NeuronMask].kept["eigenvalues"]["L2"]).sum(1) == removed).all()
    assert same(network.state["neurons"]["L2"], network[jaxarch.NeuronMask].kept["eigenvalues"]["L2"])
    norms = jax.vmap(spectral.path_norms)(network.params, network.state)["L2"]
    assert ((norms > 0).sum(1) <= 30 - removed).all()
    after = jax.vmap(problem.objective, in_axes=(0, 0, None))(
        network.params, network.state, problem.validation
    )
    before = network.info["losses"][jnp.arange(3), removed]
    assert float(jnp.median(after / before)) < 1


@pytest.mark.parametrize("start", ["warm", "cold"])
def test_retraining_a_mask_of_neurons_names_the_refit_to_use_instead(start):
    problem = linear_problem(jaxarch.spectral_network((3, 5, 1)))
    chain = jaxarch.chain(jaxarch.search.spectral(), jaxarch.recruit(), jaxarch.retrain(start))
    with pytest.raises(jaxarch.ArgumentError, match=r"use search\.spectral\(0\.0\) as a transform"):
        jax.eval_shape(chain, jax.random.key(0), problem)


# Export ----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("bias", [False, True])
def test_exported_weights_are_the_pruned_network_and_come_back_from_a_file(bias, tmp_path):
    net = jaxarch.spectral_network(DEEP, bias=bias, activation=jax.nn.sigmoid, eigenvalues="random")
    params, state = random_params((3 + bias, *DEEP[1:])), {"neurons": NEURONS}
    weights = spectral.direct_weights(params, state, bias=bias)
    assert spectral.direct_widths(weights) == (3, 3, 3, 2)
    small = jaxarch.direct_network((3, 3, 3, 2), bias=bias, activation=jax.nn.sigmoid)
    jaxarch.save_tree(tmp_path / "small.npz", weights)
    like = jax.eval_shape(small.init, jax.random.key(0))[0]
    loaded = jaxarch.load_tree(tmp_path / "small.npz", like)
    x = inputs(DEEP, 20)
    np.testing.assert_allclose(
        small.apply(loaded, {}, x, None)[0], net.apply(params, state, x, None)[0], rtol=1e-5, atol=1e-5
    )
    larger = jax.eval_shape(jaxarch.direct_network((3, 4, 3, 2), bias=bias).init, jax.random.key(0))[0]
    with pytest.raises(jaxarch.ArgumentError, match=r"leaf 'W2_1' .* has shape"):
        jaxarch.load_tree(tmp_path / "small.npz", larger)


@pytest.mark.parametrize("gone", [("L2",), ("L3",), ("L2", "L3")])
def test_a_layer_without_neurons_is_left_out(gone):
    net, params, x = jaxarch.spectral_network(DEEP), random_params(DEEP), inputs(DEEP)
    neurons = {name: kept & (name not in gone) for name, kept in NEURONS.items()}
    weights = spectral.direct_weights(params, {"neurons": neurons})
    assert len(spectral.direct_widths(weights)) == 4 - len(gone)
    expected = net.apply(params, {"neurons": neurons}, x, None)[0]
    np.testing.assert_allclose(spectral.direct_feedforward(weights, x), expected, rtol=1e-5, atol=1e-5)


def test_a_network_with_all_its_neurons_is_exported_as_it_is():
    weights = spectral.direct_weights(random_params(DEEP, trained=True))
    bundles = algebra.connections(*spectral.unpack(random_params(DEEP, trained=True)))
    assert same(weights, {f"W{i}_{j}": block for (i, j), block in bundles.items()})


# Rivals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("skips", [True, False])
def test_a_direct_network_computes_its_formula(skips):
    net = jaxarch.direct_network(DEEP, bias=True, skips=skips, activation=jnp.tanh)
    params, x = random_direct(net), np.asarray(inputs(DEEP))
    assert set(params) - {"b2", "b3", "b4"} == (
        {"W2_1", "W3_1", "W3_2", "W4_1", "W4_2", "W4_3"} if skips else {"W2_1", "W3_2", "W4_3"}
    )
    a = [x]
    for i in (2, 3, 4):
        z = params[f"b{i}"] + sum(a[j - 1] @ params[k].T for j in range(1, i) if (k := f"W{i}_{j}") in params)
        a.append(np.tanh(z))
    np.testing.assert_allclose(net.apply(params, {}, x, None)[0], z, rtol=1e-5, atol=1e-5)


def test_without_skip_connections_only_neighbours_are_joined():
    options = {"train_input_eigenvalues": True, "eigenvalues": "random", "skips": False, "bias": True}
    net = jaxarch.spectral_network(DEEP, **options)
    params, x = random_params((4, *DEEP[1:]), trained=True), inputs(DEEP)
    w = jax.device_get(algebra.connections(*spectral.unpack(params)))
    a = np.append(np.asarray(x), np.ones((3, 1)), axis=1)
    for i, name in ((2, "L2"), (3, "L3")):
        a = np.maximum(a @ w[i, i - 1].T, 0) * np.asarray(NEURONS[name])
    state = {"neurons": NEURONS}
    network = net.apply(params, state, x, None)[0]
    np.testing.assert_allclose(network, a @ w[4, 3].T, rtol=1e-5, atol=1e-5)
    weights = spectral.direct_weights(params, state, bias=True, skips=False)
    small = jaxarch.direct_network(spectral.direct_widths(weights), bias=True, skips=False)
    like = jax.eval_shape(small.init, jax.random.key(0))[0]
    assert {k: v.shape for k, v in weights.items()} == {k: v.shape for k, v in like.items()}
    np.testing.assert_allclose(small.apply(weights, {}, x, None)[0], network, rtol=1e-5, atol=1e-5)
    norms = spectral.path_norms(params, skips=False)
    through = (w[4, 3] ** 2).sum(0) * ((w[3, 2] ** 2) @ (w[2, 1] ** 2).sum(1))
    np.testing.assert_allclose(norms["L3"], np.sqrt(through), rtol=1e-5)


def random_direct(net):
    random = np.random.default_rng(0)
    shapes = jax.eval_shape(net.init, jax.random.key(0))[0]
    return {name: np.float32(random.normal(size=leaf.shape)) for name, leaf in shapes.items()}


def test_without_skip_connections_a_perceptron_start_is_called_dead():
    with pytest.warns(jaxarch.DeadStartWarning, match="no signal passes hidden eigenvalues of 0"):
        jaxarch.spectral_network(DEEP, skips=False)


@pytest.mark.long
def test_a_neuron_s_group_is_all_its_weights_in_and_out():
    params = random_direct(jaxarch.direct_network(DEEP, bias=True))
    by_hand = [
        np.concatenate([params["W2_1"][n], params["W3_2"][:, n], params["W4_2"][:, n]]) for n in range(5)
    ]
    norms = direct.neuron_norms(params)
    np.testing.assert_allclose(norms["L2"], np.linalg.norm(by_hand, axis=1), rtol=1e-5)
    zero = jax.tree.map(jnp.zeros_like, params)
    gradient = jax.grad(lambda weights: direct.neuron_norms(weights)["L2"].sum())(zero)
    assert not any(leaf.any() for leaf in jax.tree.leaves(gradient))


@pytest.mark.long
def test_a_group_lasso_then_a_removal_then_a_refit_leave_neurons_out():
    problem = curved(jaxarch.direct_network((3, 30, 1)), 200)
    problem = dataclasses.replace(
        problem.descending(batch_size=None), train=np.arange(150), validation=np.arange(150, 200)
    )
    refit = jaxarch.retrain("warm", nonnegative=False)
    chain = jaxarch.chain(jaxarch.search.group_lasso(3e-3), jaxarch.recruit(), refit)
    network = jax.jit(jax.vmap(chain, in_axes=(0, None)))(jax.random.split(jax.random.key(0), 2), problem)
    removed = network.info["removed"]
    assert ((removed > 5) & (removed < 30)).all()
    kept = jax.vmap(direct.neuron_norms)(network.params)["L2"] > 0
    assert (kept.sum(1) == 30 - removed).all()
    assert same(network.mask["W3_2"][:, 0], kept)
    after = jax.vmap(problem.objective, in_axes=(0, None, None))(network.params, {}, problem.validation)
    assert (after < network.info["losses"][jnp.arange(2), removed]).all()


# Bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: jaxarch.recruit(-0.1), "tolerance: expected a finite number of at least 0"),
        (lambda: jaxarch.search.group_lasso(-1), "strength: expected a finite number of at least 0"),
        (lambda: direct.neuron_norms({"W2_1": jnp.ones((1, 2))}), "weights: the network has no hidden"),
        (lambda: jaxarch.recruit("5%"), "tolerance: expected a finite number of at least 0"),
        (
            lambda: jaxarch.recruit()(None, curved(jaxarch.spectral_network((3, 1)), 1), Network({}, {}, {})),
            "validation: recruit needs",
        ),
        (lambda: spectral.gamma_norm(random_params(DEEP)), "params: Gamma is defined for one hidden layer"),
        (lambda: spectral.gamma_norm({"w": 1}), "params: expected parameters of a spectral network"),
        (lambda: spectral.path_norms({"w": 1}), "params: expected parameters of a spectral network"),
        (lambda: spectral.parameter_counts((3, 0)), "widths: expected an integer of at least 1"),
        (
            lambda: spectral.direct_weights(
                random_params(DEEP), {"neurons": {"L2": jnp.zeros(5, bool)}}, skips=False
            ),
            "state: a layer has no neurons left",
        ),
        (
            lambda: jaxarch.spectral_network((3, 2), skips=False, update="recursive"),
            "skips: with skips=False, update and method",
        ),
        (
            lambda: jax.jit(spectral.direct_weights)(random_params(DEEP)),
            "params: they are traced, but the neurons that are left decide shapes",
        ),
        (lambda: spectral.direct_widths({}), r'expected the weights of .* \{"W2_1": ...\}; got none'),
        (lambda: spectral.direct_widths({"w": jnp.ones((2, 2))}), r'\{"W2_1": ...\}; got w'),
        (lambda: spectral.direct_widths({"W2_1": jnp.ones(2)}), "weights: W2_1 must be a matrix"),
        (
            lambda: spectral.direct_widths({"W2_1": jnp.ones((3, 2)), "W3_2": jnp.ones((1, 4))}),
            "weights: W3_2 has 4 neurons in layer 2, but other weights have 3",
        ),
        (lambda: spectral.direct_widths({"W3_2": jnp.ones((1, 4))}), "a bundle into every layer; got W3_2"),
        (
            lambda: spectral.direct_feedforward({"W2_1": jnp.ones((1, 4))}, inputs(DEEP)),
            r"x: the network has 4 inputs, got an array of shape \(3, 3\)",
        ),
        (
            lambda: jaxarch.direct_network((3, 2)).apply({"W2_1": jnp.ones((1, 3))}, {}, inputs(DEEP), None),
            r"params: the network has widths \(3, 2\), got \(3, 1\)",
        ),
        (
            lambda: spectral.feedforward(
                *spectral.unpack(random_params(DEEP)), inputs(DEEP), neurons=[NEURONS["L2"]]
            ),
            "neurons: expected 2 masks, one per hidden layer, got 1",
        ),
        (
            lambda: spectral.feedforward(
                *spectral.unpack(random_params(DEEP)), inputs(DEEP), neurons=[NEURONS["L3"]] * 2
            ),
            r"neurons: expected a mask of shape \(5,\), got \(4,\)",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line_that_names_the_argument(make, message):
    with pytest.raises(jaxarch.ArgumentError, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)


@pytest.mark.long
def test_direct_weights_of_many_runs_or_of_a_module_are_refused_by_what_they_are():
    model = jaxarch.spectral_network((2, 3, 1))
    params, _ = jax.vmap(model.init)(jax.random.split(jax.random.key(0), 2))
    with pytest.raises(jaxarch.ArgumentError, match=r"params: they have a leading axis of runs.*of_run\(i\)"):
        jaxarch.spectral.direct_weights(params)
    module = jaxarch.models.SpectralMLP((2, 3, 1), rngs=nnx.Rngs(0))
    with pytest.raises(jaxarch.ArgumentError, match=r"got the module SpectralMLP; .*nnx.state\(module"):
        jaxarch.spectral.direct_weights(module)


def test_a_mask_of_neurons_that_are_not_there_is_refused():
    weights = {"W2_1": jnp.ones((3, 2)), "W3_2": jnp.ones((1, 3))}
    with pytest.raises(jaxarch.ArgumentError, match="kept: unknown layer 'L4'"):
        direct.neuron_mask(weights, {"L4": jnp.ones(3, bool)})
    with pytest.raises(jaxarch.ArgumentError, match=r"kept: L2 has 3 neurons, got shape \(2,\)"):
        direct.neuron_mask(weights, {"L2": jnp.ones(2, bool)})

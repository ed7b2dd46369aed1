"""Spectral networks: what they compute, where they start, how they are trained."""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import keys, same

import jaxarch
from jaxarch import float64, spectral
from jaxarch.run import _training as training
from jaxarch.spectral import _network as network
from jaxarch.spectral import algebra, penalty

WIDTHS = ((3, 2), (3, 5, 1), (2, 4, 4, 3), (1, 3, 1, 2, 4))


def close(tree, other, tolerance=1e-12):
    leaves, others = jax.tree.leaves(jax.device_get(tree)), jax.tree.leaves(jax.device_get(other))
    scale = max(1, *(np.abs(leaf).max() for leaf in others))
    return all(np.abs(a - b).max() <= tolerance * scale for a, b in zip(leaves, others, strict=True))


def random_params(widths, seed=0, trained=False, dtype=np.float32):
    """Random eigenvectors and eigenvalues, L_1 among them if it is trained."""
    random = np.random.default_rng(seed)
    shapes = {
        "eigenvectors": {f"phi{i + 1}": (widths[i + 1], widths[i]) for i in range(len(widths) - 1)},
        "eigenvalues": {f"L{i + 1}": (widths[i],) for i in range(not trained, len(widths))},
    }
    return {
        kind: {name: jnp.asarray(random.normal(0, 0.7, shape), dtype) for name, shape in named.items()}
        for kind, named in shapes.items()
    }


def inputs(widths, examples=3, dtype=np.float32):
    return jnp.asarray(np.random.default_rng(9).normal(size=(examples, widths[0])), dtype)


def started(net):
    return jax.jit(net.init)(jax.random.key(3))


def blocks_of(rows, widths):
    return jnp.split(rows, np.cumsum(widths)[:-1], axis=-1)


def dense_adjacency(vectors, values):
    """A_B = Phi Lambda Phi^-1 by a triangular solver, which knows nothing of blocks."""
    phi = algebra.dense(algebra.eigenvector_blocks(vectors))
    scaled = phi * jnp.concatenate(values)[None, :]
    return jax.scipy.linalg.solve_triangular(phi.T, scaled.T, unit_diagonal=True).T


def dense_feedforward(vectors, values, x, activation, adjacency=dense_adjacency):
    """Eq. (4.5), layer after layer, with the rows of a dense A_B."""
    widths = [len(layer) for layer in values]
    rows = blocks_of(adjacency(vectors, values).T, widths)
    a = jnp.zeros((x.shape[0], sum(widths)), x.dtype).at[:, : widths[0]].set(x)
    for i, start in enumerate(np.cumsum(widths)[:-1], 1):
        z = a @ rows[i]
        a = a.at[:, start : start + widths[i]].set(activation(z))
    return z


def dense_recursion(vectors, values, x, activation, adjacency=dense_adjacency):
    """The rule a <- f(A a), with a dense A_B."""
    widths = [len(layer) for layer in values]
    matrix = adjacency(vectors, values)
    a = jnp.zeros((x.shape[0], sum(widths)), x.dtype).at[:, : widths[0]].set(x) @ matrix.T
    for _ in vectors[1:]:
        a = activation(a) @ matrix.T
    return blocks_of(a, widths)[-1]


def values_and_gradients(computations, params, x, activation):
    """Outputs and gradients of several computations of one network, in one program."""

    def loss(params, x, compute):
        y = compute(*spectral.unpack(params), x, activation)
        return jnp.sum(jnp.sin(y)), y

    @jax.jit
    def all_of_them(params, x):
        gradient = jax.grad(loss, argnums=(0, 1), has_aux=True)
        return [gradient(params, x, compute) for compute in computations]

    return all_of_them(params, x)


METHODS = [partial(spectral.feedforward, method=m) for m in ("auto", "substitution", "materialised")]


# What it computes ------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("widths", "trained"), [*zip(WIDTHS, [False, True, False, True], strict=True)])
def test_every_method_is_the_dense_network_in_value_and_gradient(widths, trained):
    with float64():
        params, x = random_params(widths, 0, trained, np.float64), inputs(widths, 3, np.float64)
        expected, *network = values_and_gradients([dense_feedforward, *METHODS], params, x, jnp.tanh)
        assert all(close(one, expected) for one in network)


def test_the_recursive_rule_is_that_of_the_dense_network():
    widths = WIDTHS[2]
    with float64():
        params, x = random_params(widths, 1, True, np.float64), inputs(widths, 3, np.float64)
        expected, network = values_and_gradients([dense_recursion, spectral.recursive], params, x, jnp.tanh)
        assert close(network, expected)


def test_one_constant_added_to_all_eigenvalues_leaves_the_outputs_as_they_are():
    with float64():
        params = random_params(WIDTHS[3], 0, True, np.float64)
        vectors, values = spectral.unpack(params)
        x = inputs(WIDTHS[3], 3, np.float64)

        @jax.jit
        def outputs(values):
            return [compute(vectors, values, x, jnp.tanh) for compute in METHODS]

        before, after = outputs(values), outputs([layer + 1.7 for layer in values])
        assert close(before, after)
        assert not close(before, outputs([*values[:-1], values[-1] + 1.7]), 1e-3)


def test_only_zeros_are_taken_for_zeros_among_numpy_arrays():
    vectors, values = spectral.unpack(random_params(WIDTHS[2], trained=True))
    x = inputs(WIDTHS[2])
    expected = spectral.feedforward(vectors, values, x)
    assert close(spectral.feedforward(vectors, jax.device_get(values), x), expected, 1e-6)


def test_inputs_may_have_any_leading_axes():
    vectors, values = spectral.unpack(random_params(WIDTHS[2]))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 4, 2)), jnp.float32)

    @jax.jit
    def outputs(x):
        of_shape = [x, x[1], x[0, 0], x[:0]]
        return [[compute(vectors, values, x) for x in of_shape] for compute in [*METHODS, spectral.recursive]]

    for both, row, one, none in outputs(x):
        assert both.shape == (5, 4, 3)
        np.testing.assert_allclose(row, both[1], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(one, both[0, 0], rtol=1e-5, atol=1e-6)
        assert none.shape == (0, 4, 3)


@pytest.mark.long
def test_many_networks_are_one_vmap_inside_a_scan_and_forward_mode_works():
    x = inputs(WIDTHS[2])
    runs = [random_params(WIDTHS[2], seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs)

    def outputs(params):
        return [compute(*spectral.unpack(params), x, jnp.tanh) for compute in METHODS]

    scanned = jax.jit(lambda runs: jax.lax.scan(lambda c, _: (c, jax.vmap(outputs)(c)), runs, length=2)[1])
    network = scanned(stacked)
    for run, params in enumerate(runs):
        assert close([leaf[1, run] for leaf in network], jax.jit(outputs)(params), 1e-6)

    @jax.jit
    def both_modes(params, tangents, cotangents):
        pushed = jax.jvp(outputs, (params,), (tangents,))[1]
        pulled = jax.vjp(outputs, params)[1](cotangents)[0]
        return [[jnp.vdot(a, b) for a, b in zip(pushed, cotangents, strict=True)]], [
            jnp.sum(jnp.stack(jax.tree.leaves(jax.tree.map(jnp.vdot, pulled, tangents))))
        ]

    pushed, pulled = both_modes(runs[0], runs[1], [jnp.sin(leaf[0, 2]) for leaf in network])
    assert float(sum(pushed[0])) == pytest.approx(float(pulled[0]), rel=1e-4)


def multiply_adds(method, widths, examples):
    params = jax.eval_shape(lambda: random_params(widths))
    x = jax.ShapeDtypeStruct((examples, widths[0]), jnp.float32)
    compute = jax.make_jaxpr(
        lambda params, x: spectral.feedforward(*spectral.unpack(params), x, method=method)
    )
    products = [e for e in compute(params, x).eqns if e.primitive.name == "dot_general"]
    return sum(e.outvars[0].aval.size * e.invars[0].aval.shape[-1] for e in products)


@pytest.mark.parametrize(
    ("widths", "as_method"),
    [
        ((8, 8, 8), "substitution"),
        ((64, 64, 64, 64), "substitution"),
        ((3, 300, 1), "materialised"),
        ((784, 300, 10), "substitution"),
    ],
)
def test_the_method_is_chosen_by_the_widths(widths, as_method):
    chosen = multiply_adds("auto", widths, 100)
    assert chosen == multiply_adds(as_method, widths, 100)
    assert multiply_adds("substitution", widths, 100) != multiply_adds("materialised", widths, 100)


def test_all_skips_cost_two_products_a_layer_and_less_at_the_ends():
    narrow, wide = (256,) * 16, (256,) * 17
    product = 1000 * 256 * 256
    assert multiply_adds("auto", wide, 1000) == (2 * 16 - 2) * product
    to_one = multiply_adds("auto", (*narrow, 1), 1000)
    assert (2 * 16 - 4) * product < to_one < (2 * 16 - 3) * product
    assert multiply_adds("materialised", wide, 1000) > 150 * product


# Where it starts -------------------------------------------------------------------------------------


def parabola(compute, params, x):
    """The loss of a network on data that are not linear."""
    y = compute(params, x)
    return jnp.mean((y - jnp.sum(x**2, 1, keepdims=True)) ** 2)


@pytest.mark.long
def test_a_perceptron_start_is_exactly_linear_and_moves_only_the_last_hidden_layer():
    net = jaxarch.spectral_network((3, 6, 5, 4, 2))
    params, x = started(net)[0], inputs((3,), 10)
    vectors, values = jax.device_get(spectral.unpack(params))
    assert not any(layer.any() for layer in values[:-1])
    assert (values[-1] == 1).all()

    def of(method):
        def outputs(params, x):
            return method(*spectral.unpack(params), x)

        return outputs(params, x), outputs(params, -4 * x), jax.grad(parabola, argnums=1)(outputs, params, x)

    for y, of_minus_4_x, gradient in jax.jit(lambda: [of(method) for method in METHODS])():
        np.testing.assert_allclose(y, x @ algebra.connections(vectors, values)[5, 1].T, rtol=1e-5, atol=1e-6)
        assert same(of_minus_4_x, -4 * y)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
        assert (gradient["eigenvalues"]["L4"] != 0).all()
        assert not gradient["eigenvalues"]["L3"].any()
        assert not gradient["eigenvalues"]["L2"].any()


@pytest.mark.long
def test_hidden_layers_wake_one_a_step_from_the_last():
    problem = curved(jaxarch.spectral_network((3, 8, 8, 8, 1)), 4)
    search, key = jaxarch.search.spectral(), jax.random.key(0)
    carry = jax.jit(lambda: training.begin(search, key, problem, None))()
    step = jax.jit(lambda carry, index: training.step(search, key, problem, carry, index)[0])
    for index, awake in enumerate([{"L4"}, {"L3", "L4"}, {"L2", "L3", "L4"}]):
        carry = step(carry, index)
        values = carry.state.trainable["eigenvalues"]
        assert {name for name in ("L2", "L3", "L4") if values[name].any()} == awake


def test_with_slope_1_at_0_no_hidden_eigenvalue_has_a_gradient():
    with pytest.warns(jaxarch.DeadStartWarning, match="use eigenvalues='random'"):
        net = jaxarch.spectral_network((3, 6, 5, 1), activation=jnp.tanh)
    params, x = started(net)[0], inputs((3,), 20)

    def outputs(params, x):
        return net.apply(params, {}, x, None)[0]

    gradient = jax.jit(jax.grad(partial(parabola, outputs)))(params, x)["eigenvalues"]
    assert jnp.abs(gradient["L4"]).max() > 0.1
    assert all(jnp.abs(gradient[name]).max() < 1e-6 for name in ("L2", "L3"))


@pytest.mark.long
def test_with_a_smooth_activation_the_best_perceptron_is_a_stationary_point():
    widths, x = (3, 6, 5, 1), inputs((3,), 50)
    residual = x[:, :1] ** 2 - x @ np.linalg.lstsq(x, x[:, :1] ** 2)[0]

    def gradient_at(start):
        net = jaxarch.spectral_network(widths, activation=jax.nn.gelu, eigenvalues=start)

        @jax.jit
        def gradient(params):
            # The start fits the linear part of these data as well as any network can.
            y = net.apply(params, {}, x, None)[0] + residual
            return jax.grad(lambda p: jnp.mean((net.apply(p, {}, x, None)[0] - y) ** 2))(params)

        leaves = jax.tree.leaves(jax.device_get(gradient(started(net)[0])))
        return np.asarray([np.abs(leaf).max() for leaf in leaves])

    with pytest.warns(jaxarch.DeadStartWarning):
        assert (gradient_at("perceptron") < 1e-5).all()
    assert (gradient_at("random") > 1e-2).all()


def test_a_kink_at_0_and_a_random_start_are_alive():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jaxarch.spectral_network((3, 5, 1), activation=jax.nn.relu)
        jaxarch.spectral_network((3, 5, 1), activation=jax.nn.leaky_relu)
        jaxarch.spectral_network((3, 5, 1), activation=jnp.tanh, eigenvalues="random")
        jaxarch.spectral_network((3, 5, 1), activation=jnp.tanh, eigenvalues=(0, 0.5, 1))
        jaxarch.spectral_network((3, 1), activation=jnp.tanh)


def test_a_dead_start_is_found_inside_a_trace():
    def make(x):
        net = jaxarch.spectral_network((3, 5, 1), activation=jnp.tanh)
        return net.apply(net.init(jax.random.key(0))[0], {}, x, None)[0]

    with pytest.warns(jaxarch.DeadStartWarning):
        jax.jit(make)(jnp.ones((2, 3)))


def test_eigenvectors_start_xavier_uniform_and_by_any_initialiser():
    params, _ = started(jaxarch.spectral_network((30, 90, 1)))
    bound = np.sqrt(6 / (30 + 90))
    phi = params["eigenvectors"]["phi1"]
    assert phi.shape == (90, 30)
    assert 0.98 * bound < float(jnp.abs(phi).max()) <= bound
    he = jaxarch.spectral_network((30, 900, 1), eigenvectors=jax.nn.initializers.he_normal())
    phi = started(he)[0]["eigenvectors"]["phi1"]
    assert float(phi.std()) == pytest.approx(np.sqrt(2 / 30), rel=0.05)


def test_eigenvalues_start_as_they_are_given():
    normal = jax.nn.initializers.normal(0.1)
    starts = (0.5, [1.0, 2.0, 3.0], normal, -2)
    net = jaxarch.spectral_network((2, 3, 4000, 1), eigenvalues=starts, train_input_eigenvalues=True)
    values = started(net)[0]["eigenvalues"]
    assert values["L1"].tolist() == [0.5, 0.5]
    assert values["L2"].tolist() == [1.0, 2.0, 3.0]
    assert float(values["L3"].std()) == pytest.approx(0.1, rel=0.1)
    assert values["L4"].tolist() == [-2.0]


def test_input_eigenvalues_are_no_parameter_unless_they_are_trained():
    frozen, _ = started(jaxarch.spectral_network((3, 5, 1)))
    assert set(frozen["eigenvalues"]) == {"L2", "L3"}
    trained, _ = started(jaxarch.spectral_network((3, 5, 1), train_input_eigenvalues=True))
    assert set(trained["eigenvalues"]) == {"L1", "L2", "L3"}


@pytest.mark.parametrize("update", ["feedforward", "recursive"])
def test_a_bias_neuron_is_an_input_that_is_always_1(update):
    with_bias = jaxarch.spectral_network((2, 5, 1), bias=True, update=update)
    without = jaxarch.spectral_network((3, 5, 1), update=update)
    params, state = started(with_bias)
    assert same(params, started(without)[0])
    x = inputs((2,), 6)
    ones = jnp.concatenate([x, jnp.ones((6, 1))], axis=1)
    outputs = (jax.jit(net.apply)(params, state, x, None)[0] for net, x in ((with_bias, x), (without, ones)))
    assert same(*outputs)


# How it is trained -----------------------------------------------------------------------------------


def curved(net, steps, **options):
    """y = |x|^2 in two dimensions, and a third input that is 1."""
    x = np.random.default_rng(0).uniform(-1, 1, (200, 3)).astype(np.float32)
    x[:, 2] = 1
    y = (x[:, :2] ** 2).sum(1, keepdims=True)
    return jaxarch.supervised(
        net, (x, y), loss=optax.squared_error, optimizer=optax.adam(1e-2), steps=steps, batch_size=50
    )


SEARCHES = {
    "relu": (jax.nn.relu, "perceptron", jaxarch.search.dense(nonnegative=False)),
    "tanh": (jnp.tanh, "random", jaxarch.search.spectral()),
}


@pytest.mark.long
@pytest.mark.parametrize("name", SEARCHES)
def test_it_learns_what_no_perceptron_can_and_layers_that_wait_are_not_called_dead(name):
    activation, start, search = SEARCHES[name]
    net = jaxarch.spectral_network((3, 20, 20, 1), activation=activation, eigenvalues=start)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network, report = jaxarch.over_seeds(search, keys(), curved(net, 300), chunk=20)
    assert not report.notes
    loss, linear = network.info["loss"], 0.17
    assert float(jnp.median(loss[:, 10:20])) > linear / 2
    assert float(jnp.median(loss[:, -50:])) < linear / 10


@pytest.mark.long
def test_stronger_penalties_in_one_program_leave_smaller_hidden_eigenvalues():
    net = jaxarch.spectral_network((3, 30, 1))
    strengths = jnp.asarray([0.0, 1e-3, 1e-2, 1.0])
    network, _ = jaxarch.over_seeds(jaxarch.search.spectral, keys(), curved(net, 300), strengths)
    sizes = jnp.abs(network.params["eigenvalues"]["L2"]).sum(1)
    assert (jnp.diff(sizes) < 0).all()
    assert float(sizes[-1]) < 0.3
    assert (network.params["eigenvalues"]["L3"] > 0.2).all()


def test_the_penalty_is_added_for_what_it_names_and_for_nothing_else():
    net = jaxarch.spectral_network(
        (3, 4, 4, 1), eigenvalues=(0.5, 0.1, -0.2, 1), train_input_eigenvalues=True
    )
    problem = curved(net, 1)
    searches = {
        ("L2", "L3"): jaxarch.search.spectral(2.0),
        ("L1", "L2"): jaxarch.search.spectral(2.0, where="eigenvalues/L[12]", penalty="l2"),
    }

    def added(trainable, at, search):
        return search.penalty(search.settings, at._replace(trainable=trainable))

    @jax.jit
    def gradients():
        at = [search.init(search.settings, jax.random.key(0), problem, None) for search in searches.values()]
        return [jax.grad(added)(a.trainable, a, s) for a, s in zip(at, searches.values(), strict=True)]

    for named, gradient in zip(searches, gradients(), strict=True):
        assert {key for key, leaf in gradient["eigenvalues"].items() if leaf.any()} == set(named)
        assert not any(leaf.any() for leaf in jax.tree.leaves(gradient["eigenvectors"]))


def test_eigenvalues_can_be_trained_alone():
    problem = curved(jaxarch.spectral_network((3, 30, 1)), 3)
    search, key = jaxarch.search.spectral(trainable="eigenvalues/*"), jax.random.key(0)
    start, network = jax.jit(lambda: (training.begin(search, key, problem, None), search(key, problem)))()
    assert same(network.params["eigenvectors"], start.state.fixed.params["eigenvectors"])
    assert network.params["eigenvalues"]["L2"].all()
    # The architecture is the hidden neurons.
    assert network.mask is None
    assert network[jaxarch.NeuronMask].kept["eigenvalues"]["L2"].tolist() == [True] * 30
    assert set(jaxarch.named_leaves(network[jaxarch.NeuronMask].kept)) == {"eigenvalues/L2"}


LAYERS = {"L2": jnp.asarray([3.0, -4.0]), "L3": jnp.asarray([0.0, 2.0]), "L4": None}


@pytest.mark.parametrize(
    ("name", "value", "gradient"),
    [
        ("l1", 9.0, [[1, -1], [0, 1]]),
        ("l2", 7.0, [[0.6, -0.8], [0, 1]]),
        ("squared l2", 29.0, [[6, -8], [0, 4]]),
    ],
)
def test_penalties_have_their_value_their_gradient_and_none_at_zero(name, value, gradient):
    of = jax.jit(jax.value_and_grad(penalty.PENALTIES[name]))
    network, slope = of(LAYERS)
    assert float(network) == pytest.approx(value)
    np.testing.assert_allclose([slope["L2"], slope["L3"]], gradient, rtol=1e-6)
    assert of(jax.tree.map(jnp.zeros_like, LAYERS))[1]["L2"].tolist() == [0, 0]


def test_the_norm_of_tiny_eigenvalues_does_not_vanish():
    tiny = {"L2": jnp.asarray([3e-30, -4e-30])}
    value, gradient = jax.jit(jax.value_and_grad(penalty.l2))(tiny)
    assert float(value) == pytest.approx(5e-30, rel=1e-5)
    np.testing.assert_allclose(gradient["L2"], [0.6, -0.8], rtol=1e-5)


def test_hidden_eigenvalues_are_found_inside_larger_models():
    head = random_params((4, 5, 6, 2), trained=True)
    network = spectral.hidden_eigenvalues({"body": {"kernel": jnp.ones((3, 4))}, "head": head})
    assert set(jaxarch.named_leaves(network)) == {"head/eigenvalues/L2", "head/eigenvalues/L3"}


# Bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: jaxarch.spectral_network((3,)), "widths: expected an input size and at least one layer"),
        (lambda: jaxarch.spectral_network(3), "widths: expected an input size and at least one layer"),
        (lambda: jaxarch.spectral_network((3, 0, 1)), "widths: expected an integer of at least 1, got 0"),
        (lambda: jaxarch.spectral_network((3, 2.5, 1)), "widths: expected an integer of at least 1, got 2.5"),
        (
            lambda: jaxarch.spectral_network((3, 1), eigenvalues="percepton"),
            "expected 'perceptron', 'random'",
        ),
        (lambda: jaxarch.spectral_network((3, 5, 1), eigenvalues=(0, 1)), "eigenvalues: expected 3 starts"),
        (
            lambda: jaxarch.spectral_network((3, 5, 1), eigenvalues=(0, [1.0] * 4, 1)),
            r"eigenvalues: expected a number, an array of shape \(5,\)",
        ),
        (
            lambda: jaxarch.spectral_network((3, 5, 1), eigenvalues=(0, "x", 1)),
            "eigenvalues: expected a number",
        ),
        (
            lambda: jaxarch.spectral_network((3, 5, 1), eigenvalues=(0, np.nan, 1)),
            "eigenvalues: expected finite starts, got L_2 = ",
        ),
        (
            lambda: jaxarch.spectral_network((3, 5, 1), eigenvalues=(0.1, 0, 1)),
            "eigenvalues: L_1 is fixed at 0; pass train_input_eigenvalues=True",
        ),
        (lambda: jaxarch.spectral_network((3, 1), update="both"), "update: expected 'feedforward'"),
        (
            lambda: jaxarch.spectral_network((3, 1), method="fast"),
            "method: expected 'auto', 'sub",
        ),
        (
            lambda: jaxarch.spectral_network((3, 1), update="recursive", method="substitution"),
            "method: .* applies only to update='feedforward'",
        ),
        (
            lambda: jaxarch.spectral_network((3, 1), activation=lambda z: z.sum()),
            "activation: expected an elementwise function",
        ),
        (
            lambda: jaxarch.spectral_network((3, 1), activation="relu"),
            "activation: expected an elementwise function",
        ),
        (lambda: jaxarch.search.spectral(-1.0), "strength: expected a finite number of at least 0, got -1.0"),
        (lambda: jaxarch.search.spectral(jnp.nan), "strength: expected a finite number of at least 0"),
        (lambda: jaxarch.search.spectral("1"), "strength: expected a finite number of at least 0"),
        (lambda: jaxarch.search.spectral(penalty="l3"), "penalty: unknown 'l3'; did you mean"),
        (lambda: spectral.unpack({"w1": jnp.ones(3)}), "params: expected parameters of a spectral network"),
        (lambda: spectral.hidden_eigenvalues({"w1": jnp.ones(3)}), "no hidden eigenvalues.*are: w1"),
        (
            lambda: spectral.unpack(jax.tree.map(lambda leaf: leaf[None], random_params((3, 4, 1)))),
            "eigenvectors: phi_1 must have shape .* use vmap",
        ),
        (
            lambda: jaxarch.spectral_network((3, 1)).apply(random_params((3, 1)), {}, jnp.ones((5, 4)), None),
            r"x: the network has 3 inputs, got examples of shape \(4,\)",
        ),
        (
            lambda: spectral.feedforward(*spectral.unpack(random_params((3, 1))), jnp.ones((5, 4))),
            r"x: the network has 3 inputs, got an array of shape \(5, 4\)",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line_that_names_the_argument(make, message):
    with pytest.raises(jaxarch.ArgumentError, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)


@pytest.mark.long
def test_the_gradient_is_finite_where_the_activation_of_a_removed_neuron_overflows():
    phi = [jnp.full((2, 1), 1.0), jnp.ones((1, 2))]
    values = [np.zeros(1, np.float32), jnp.asarray([-1000.0, -1.0]), jnp.ones(1)]
    kept = [jnp.asarray([False, True])]

    def output(phi, hidden, x):
        return network.feedforward(phi, [values[0], hidden, values[2]], x, jnp.exp, neurons=kept).sum()

    gradients = jax.grad(output, argnums=(0, 1, 2))(phi, values[1], jnp.ones((3, 1)))
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradients))


@pytest.mark.parametrize(
    "activation",
    [jax.nn.softmax, jnp.sort, lambda z: z - z.mean(), lambda z: jnp.cumsum(z, 0), lambda z: z.T, 3],
    ids=["softmax", "sort", "mean", "sum along examples", "shape", "number"],
)
@pytest.mark.parametrize("make", [jaxarch.spectral_network, jaxarch.models.direct_network])
def test_activations_that_are_not_elementwise_are_refused(make, activation):
    with pytest.raises(jaxarch.ArgumentError, match="activation: expected an elementwise function"):
        make((2, 3, 1), activation=activation)


def test_an_activation_is_checked_inside_of_jit_too():
    with pytest.raises(jaxarch.ArgumentError, match="activation: expected an elementwise function"):
        jax.jit(lambda: jaxarch.spectral_network((2, 3, 1), activation=jax.nn.softmax) and None)()


def test_a_mask_of_neurons_of_an_unknown_layer_is_refused():
    model = jaxarch.spectral_network((2, 3, 1))
    params, _ = model.init(jax.random.key(0))
    with pytest.raises(jaxarch.ArgumentError, match="it masks neurons of 'L3', but the hidden layers are L2"):
        model.apply(params, {"neurons": {"L3": jnp.ones(1, bool)}}, jnp.ones((1, 2)), None)


@pytest.mark.parametrize("search", [jaxarch.search.spectral, jaxarch.search.group_lasso])
def test_a_strength_that_is_an_array_is_refused(search):
    with pytest.raises(jaxarch.ArgumentError, match=r"strength: expected one number, got shape \(2,\)"):
        search(np.array([1e-3, 1e-4]))


def test_a_typo_in_trainable_is_refused_by_its_name():
    problem = jaxarch.supervised(
        jaxarch.spectral_network((2, 3, 1)),
        (np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)),
        loss=lambda outputs, y: jnp.square(outputs - y)[:, 0],
        optimizer=optax.sgd(0.1),
        steps=1,
    )
    search = jaxarch.search.spectral(trainable=["eigenvalues/*", "eigenvektors/*"])
    with pytest.raises(jaxarch.ArgumentError, match=r"trainable: no leaf is selected by 'eigenvektors/\*'"):
        search(jax.random.key(0), problem)
